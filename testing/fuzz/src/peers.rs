//! An endpoint on a hostile port, and packets of its peers.
//!
//! ```text
//!   begin(config) -> Endpoint 1, with KEY  ---HostilePort---  HostileNet <- packet(kind, ..), hello(..)
//! ```

use crate::link::{Buffer, HostileNet, HostilePort};
use crate::meter::{self, within};
use crate::packets::{body_len, put};
use mx_proto::port::{HEADER_LEN, HeaderBytes};
use mx_proto::wire::{HELLO_LEN, VERSION};
use mx_proto::{Config, Endpoint, EndpointId, Identity, NicId, Owner, Route, SessionId, Target};
use mx_sim::VirtualClock;
use std::time::Duration;

pub(crate) type HostileEndpoint<O> = Endpoint<HostilePort, VirtualClock, O>;

/// Key of all endpoints.
pub(crate) const KEY: u32 = 77;

const SELF: Identity = Identity {
    nic: NicId(1),
    endpoint: EndpointId(1),
    session: SessionId(99),
};

/// Makes an endpoint of `host`, whose heap is counted for owner 1, its network, and its clock.
/// Resets all accounts.
pub(crate) fn begin<O: Owner<Memory = Buffer>>(
    config: impl FnOnce() -> Config,
    host: O,
) -> (HostileNet, VirtualClock, HostileEndpoint<O>) {
    meter::clear();
    let net = HostileNet::default();
    net.with(|net| net.halts = true);
    let clock = VirtualClock::new();
    clock.advance(Duration::from_secs(1));
    let (port, time) = (net.port(0), clock.clone());
    let endpoint = within(1, || Endpoint::new(config(), SELF, KEY, port, time, host));
    (net, clock, endpoint)
}

/// Returns the target of the peer with that number.
pub(crate) fn target(number: u8) -> Target {
    Target {
        nic: SELF.nic,
        endpoint: EndpointId(number.into()),
        route: Route::AUTO,
    }
}

/// Makes a packet as `mx_proto::wire` describes it, with the maximum of credit.
pub(crate) fn packet(kind: u8, word: u64, length: u32, body: &[u8]) -> (HeaderBytes, Vec<u8>) {
    let mut header = [0; HEADER_LEN];
    header[0] = kind;
    header[2..4].copy_from_slice(b"MX");
    put(&mut header, 4, body.len() as u64, 4);
    put(&mut header, 8, word, 8);
    put(&mut header, 16, length.into(), 4);
    put(&mut header, 24, 1 << 20, 4);
    debug_assert_eq!(body_len(&header), body.len());
    (header, body.to_vec())
}

/// Makes the body of an introduction.
pub(crate) fn hello(key: u32, endpoint: u8, life: u8) -> Vec<u8> {
    let mut bytes = vec![0; HELLO_LEN];
    bytes[..4].copy_from_slice(b"MXs1");
    put(&mut bytes, 4, VERSION.into(), 2);
    put(&mut bytes, 6, u64::from(life >> 2), 2);
    put(&mut bytes, 8, key.into(), 4);
    put(&mut bytes, 12, endpoint.into(), 4);
    put(&mut bytes, 16, 1, 8);
    put(&mut bytes, 24, 7 + u64::from(life & 3), 1);
    bytes[25] = u8::from(endpoint >= RIGHTFUL);
    put(&mut bytes, 32, SELF.nic.0, 8);
    put(&mut bytes, 40, SELF.endpoint.0.into(), 4);
    put(&mut bytes, 44, REGIONS, 4);
    bytes[NONCE_AT..].fill(endpoint << 3 | life & 7);
    bytes
}

/// First endpoint number of those that have the secret, if there is one, and whose session number
/// shows it.
pub(crate) const RIGHTFUL: u8 = 32;

/// Returns whether a session is one of theirs.
pub(crate) fn is_rightful(session: SessionId) -> bool {
    session.0 >> 8 & 1 == 1
}

/// Feature bit of registered memory.
const REGIONS: u64 = 2;

/// Offset of the nonce in a hello.
pub(crate) const NONCE_AT: usize = 48;

/// Returns the packet with that status.
pub(crate) fn with_status(
    mut packet: (HeaderBytes, Vec<u8>),
    status: u8,
) -> (HeaderBytes, Vec<u8>) {
    packet.0[STATUS_AT] = status;
    packet
}

const STATUS_AT: usize = 20;
