//! An endpoint on a hostile port, and what its peers say.
//!
//! ```text
//!   begin(config) -> Endpoint 1, with KEY  ---HostilePort---  Wire <- packet(kind, ..), hello(..)
//! ```

use crate::link::{Buffer, HostilePort, Wire, WireClock};
use crate::meter::{self, within};
use crate::packets::{body_len, put};
use mx_proto::port::{HEADER_LEN, HeaderBytes};
use mx_proto::wire::{HELLO_LEN, VERSION};
use mx_proto::{Config, Endpoint, EndpointId, Identity, NicId, Owner, Route, SessionId, Target};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) type HostileEndpoint<O> = Endpoint<HostilePort, WireClock, O>;

/// Of all endpoints.
pub(crate) const KEY: u32 = 77;

const SELF: Identity = Identity {
    nic: NicId(1),
    endpoint: EndpointId(1),
    session: SessionId(99),
};

/// An endpoint of `host`'s, whose heap is owner 1's, and the wire it is on. All accounts start anew.
pub(crate) fn begin<O: Owner<Memory = Buffer>>(
    config: impl FnOnce() -> Config,
    host: O,
) -> (Rc<RefCell<Wire>>, HostileEndpoint<O>) {
    meter::clear();
    let wire = Rc::new(RefCell::new(Wire::default()));
    wire.borrow_mut().now.0 = 1_000_000_000;
    let port = HostilePort {
        wire: Rc::clone(&wire),
    };
    let clock = WireClock(Rc::clone(&wire));
    let endpoint = within(1, || Endpoint::new(config(), SELF, KEY, port, clock, host));
    (wire, endpoint)
}

/// The peer of that number.
pub(crate) fn target(number: u8) -> Target {
    Target {
        nic: SELF.nic,
        endpoint: EndpointId(number.into()),
        route: Route::AUTO,
    }
}

/// A packet as `mx_proto::wire` describes it, with all the credit there can be.
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

/// The body of an introduction.
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
    bytes[NONCE_AT..].fill(endpoint << 3 | life & 7);
    bytes
}

/// Endpoints with this number and above have the secret, if there is one, and say so in their session.
pub(crate) const RIGHTFUL: u8 = 32;

/// The sessions of those.
pub(crate) fn is_rightful(session: SessionId) -> bool {
    session.0 >> 8 & 1 == 1
}

/// The nonce of a hello.
pub(crate) const NONCE_AT: usize = 48;

/// The same packet with that status.
pub(crate) fn with_status(
    mut packet: (HeaderBytes, Vec<u8>),
    status: u8,
) -> (HeaderBytes, Vec<u8>) {
    packet.0[STATUS_AT] = status;
    packet
}

const STATUS_AT: usize = 20;
