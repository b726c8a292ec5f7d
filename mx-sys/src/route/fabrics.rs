//! Outgoing connections whose session is to use another port than the one it begins on.
//!
//! ```text
//!   rdm, or dgram over libfabric:  TCP link --connected--> moves to the fabric | stays: logged, or the session ends
//!   dgram over kernel UDP:         datagrams --no answer--> TCP: logged
//! ```
//!
//! The endpoint performs the move. A target that asks for the port by name uses no other one.
//!
//! Owns: the port that each connection asks for, and what has been logged about peers.

use super::host_port::PortList;
use crate::nic;
use mx_port_base::ports::{self, DGRAM, RDM, ROUTE_TCP};
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::log_limit::LogLimit;
use mx_proto::port::{FABRIC_DGRAM, FABRIC_RDM, LinkDown, MoveRefusal};
use mx_proto::{EndpointId, LinkId, Memory, NicId, Target};
use std::collections::HashMap;
use std::fmt;

/// Returns the number of the port that a fabric's bit stands for.
pub(super) fn port_of(fabric: u32) -> u8 {
    if fabric == FABRIC_RDM { RDM } else { DGRAM }
}

/// Returns the bits of the open fabrics.
pub(super) fn open<M: Memory + 'static>(list: &PortList<M>) -> u32 {
    let is_open = |fabric: &u32| {
        let port = list.get(port_of(*fabric));
        port.and_then(|port| port.fabric()).is_some()
    };
    [FABRIC_RDM, FABRIC_DGRAM].into_iter().filter(is_open).sum()
}

/// Outgoing connections that have not settled on a port.
#[derive(Debug, Default)]
pub(super) struct Fabrics {
    /// Connections by the link on which they began.
    calls: HashMap<LinkId, FabricCall>,
    logged: LogLimit<(Peer, u8, FallbackReason)>,
}

/// An outgoing connection.
#[derive(Debug)]
struct FabricCall {
    target: Target,
    /// Number of the port that the target asks for.
    number: u8,
    /// Whether the target's address names that port: no fallback.
    strict: bool,
    /// Provider of a peer on another fabric; empty if unknown.
    theirs: String,
}

impl Fabrics {
    /// Records a connection that begins on `link`.
    pub(super) fn begin(&mut self, link: LinkId, number: u8, (target, strict): (Target, bool)) {
        let theirs = String::new();
        let call = FabricCall {
            target,
            number,
            strict,
            theirs,
        };
        self.calls.insert(link, call);
    }

    /// Removes a closed link.
    #[inline]
    pub(super) fn forget(&mut self, link: LinkId) {
        if !self.calls.is_empty() {
            self.calls.remove(&link);
        }
    }

    /// Returns the bit of the fabric that the connection should move to; 0: none.
    pub(super) fn wanted(&self, link: LinkId) -> u32 {
        match self.calls.get(&link) {
            Some(call) if call.number != link.port() => match call.number {
                RDM => FABRIC_RDM,
                _ => FABRIC_DGRAM,
            },
            _ => 0,
        }
    }

    /// Returns whether the connection may use only the port that it asks for.
    pub(super) fn must_move(&self, link: LinkId) -> bool {
        self.calls.get(&link).is_some_and(|call| call.strict)
    }

    /// Records the provider of a peer whose address is not on this fabric.
    pub(super) fn differs(&mut self, link: LinkId, address: &[u8]) {
        if let Some(call) = self.calls.get_mut(&link)
            && let Some(address) = EndpointAddress::parse(address)
        {
            call.theirs = address.provider;
        }
    }

    /// Logs that a connection's session does not move. `ours`: name of this endpoint's provider.
    pub(super) fn decline_move(&mut self, ours: &str, link: LinkId, why: MoveRefusal) {
        let Some(call) = self.calls.remove(&link) else {
            return;
        };
        let trouble = match why {
            // The peer logs the reason, or the session ends.
            MoveRefusal::Ended(LinkDown::Closed) => return,
            MoveRefusal::NotOffered => FallbackReason::NoPort,
            MoveRefusal::Differs => FallbackReason::Differs,
            MoveRefusal::Full => FallbackReason::Full,
            MoveRefusal::Failed => FallbackReason::Failed,
            MoveRefusal::Ended(_) => FallbackReason::Unheard,
        };
        self.log(&call, ours, trouble);
    }

    /// Ends a connection over datagrams: `end` is `None` if its link is up, else the reason why the link ended. Returns
    /// the reason for the endpoint: for a fallback, [`LinkDown::Elsewhere`].
    ///
    /// Over UDP a peer without a dgram port cannot be told from an absent peer; TCP tells the difference.
    pub(super) fn end_call(&mut self, link: LinkId, end: Option<LinkDown>) -> Option<LinkDown> {
        let call = self.calls.remove(&link)?;
        let end = end?;
        let unheard = matches!(
            end,
            // `Protocol`: the peer speaks another version on that port.
            LinkDown::Refused | LinkDown::Unreachable | LinkDown::TimedOut | LinkDown::Protocol
        );
        if call.strict || !unheard {
            return Some(end);
        }
        let (peer, of) = (Peer::of(call.target), name(call.number));
        if self
            .logged
            .is_first((peer, call.number, FallbackReason::Unheard))
        {
            log::info!("{peer}: connecting over {of} failed ({end}): trying tcp");
        }
        Some(LinkDown::Elsewhere(ROUTE_TCP))
    }

    /// Logs each reason once per peer.
    fn log(&mut self, call: &FabricCall, ours: &str, trouble: FallbackReason) {
        let (peer, of) = (Peer::of(call.target), name(call.number));
        if !self.logged.is_first((peer, call.number, trouble)) {
            return;
        }
        let theirs = &call.theirs;
        let what = match trouble {
            FallbackReason::NoPort => format!("peer has no {of} port, we use {ours}"),
            FallbackReason::Differs if theirs.is_empty() => {
                format!("peer has another version of the {of} port, we use {ours}")
            }
            FallbackReason::Differs if theirs == ours => {
                format!("peer uses {theirs} with other addresses than ours")
            }
            FallbackReason::Differs => format!("peer uses {theirs}, we use {ours}"),
            FallbackReason::Full => format!("no room for another link of {ours}"),
            FallbackReason::Failed => format!("the {of} port has failed, we use {ours}"),
            FallbackReason::Unheard => {
                format!("peer uses {ours} as we do, but is not heard over it")
            }
        };
        if call.strict {
            log::warn!("{peer}: {what}; its address says {of}@, so there is no connection");
        } else {
            log::warn!("{peer}: {what}: falling back to tcp");
        }
    }
}

fn name(number: u8) -> &'static str {
    ports::name(number).unwrap_or("no")
}

/// A peer, displayed as its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Peer(NicId, EndpointId);

impl Peer {
    fn of(target: Target) -> Self {
        Self(target.nic, target.endpoint)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nic, endpoint) = *self;
        match nic::host_name(nic) {
            Some(host) => write!(f, "mx://{host}:{}", endpoint.0),
            None => write!(f, "endpoint {} of {:#x}", endpoint.0, nic.0),
        }
    }
}

/// Reasons why a peer is not reached over the requested port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FallbackReason {
    /// The peer does not have the fabric.
    NoPort,
    /// The peer is on another fabric, or its address is of another version.
    Differs,
    /// There is no room for another link, on this side or the peer's.
    Full,
    /// The fabric is not open, or rejects the address.
    Failed,
    /// Frames do not get through.
    Unheard,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_without_a_name_is_named_by_its_numbers() {
        let peer = Peer(NicId(5), EndpointId(3));
        assert_eq!(peer.to_string(), "endpoint 3 of 0x5");
    }
}
