//! Our calls that are to go over another port than the one on which they begin.
//!
//! ```text
//!   rdm, or dgram over libfabric:  TCP link --met--> moves to the fabric | stays: a line, or the end
//!   dgram over kernel UDP:         datagrams --no answer--> TCP: a line
//! ```
//!
//! The move itself is the endpoint's. A target that asks for the port by name goes over no other one.
//!
//! Owns: what each call asks for, and what has been logged of peers.

use super::host_port::PortList;
use crate::nic;
use mx_port_base::ports::{self, DGRAM, RDM, ROUTE_TCP};
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::log_limit::LogLimit;
use mx_proto::port::{FABRIC_DGRAM, FABRIC_RDM, LinkDown, MoveRefusal};
use mx_proto::{EndpointId, LinkId, Memory, NicId, Target};
use std::collections::HashMap;
use std::fmt;

/// The number of the port whose links a fabric's bit stands for.
pub(super) fn port_of(fabric: u32) -> u8 {
    if fabric == FABRIC_RDM { RDM } else { DGRAM }
}

/// The bits of the fabrics that are open.
pub(super) fn open<M: Memory + 'static>(list: &PortList<M>) -> u32 {
    let is_open = |fabric: &u32| {
        let port = list.get(port_of(*fabric));
        port.and_then(|port| port.fabric()).is_some()
    };
    [FABRIC_RDM, FABRIC_DGRAM].into_iter().filter(is_open).sum()
}

/// Calls on their way.
#[derive(Debug, Default)]
pub(super) struct Fabrics {
    /// By the link on which each of them has begun.
    calls: HashMap<LinkId, FabricCall>,
    logged: LogLimit<(Peer, u8, FallbackReason)>,
}

/// A call.
#[derive(Debug)]
struct FabricCall {
    target: Target,
    /// Number of the port that it asks for.
    number: u8,
    /// Its target asks for that port by name: no other one will do.
    strict: bool,
    /// Provider of a peer that is on another fabric.
    theirs: String,
}

impl Fabrics {
    /// A call has begun on a link.
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

    /// A link is no more.
    #[inline]
    pub(super) fn forget(&mut self, link: LinkId) {
        if !self.calls.is_empty() {
            self.calls.remove(&link);
        }
    }

    /// The bit of the fabric that a call asks for; 0: none.
    pub(super) fn wanted(&self, link: LinkId) -> u32 {
        match self.calls.get(&link) {
            Some(call) if call.number != link.port() => match call.number {
                RDM => FABRIC_RDM,
                _ => FABRIC_DGRAM,
            },
            _ => 0,
        }
    }

    /// Whether a call must go over the port that it asks for.
    pub(super) fn must_move(&self, link: LinkId) -> bool {
        self.calls.get(&link).is_some_and(|call| call.strict)
    }

    /// The peer of a call has sent an address that is none of our fabric.
    pub(super) fn differs(&mut self, link: LinkId, address: &[u8]) {
        if let Some(call) = self.calls.get_mut(&link)
            && let Some(address) = EndpointAddress::parse(address)
        {
            call.theirs = address.provider;
        }
    }

    /// The session of a call does not move. `ours`: the name of our provider.
    pub(super) fn decline_move(&mut self, ours: &str, link: LinkId, why: MoveRefusal) {
        let Some(call) = self.calls.remove(&link) else {
            return;
        };
        let trouble = match why {
            // The peer's own line says more, or the session ends.
            MoveRefusal::Ended(LinkDown::Closed) => return,
            MoveRefusal::NotOffered => FallbackReason::NoPort,
            MoveRefusal::Differs => FallbackReason::Differs,
            MoveRefusal::Full => FallbackReason::Full,
            MoveRefusal::Failed => FallbackReason::Failed,
            MoveRefusal::Ended(_) => FallbackReason::Unheard,
        };
        self.log(&call, ours, trouble);
    }

    /// A link over datagrams is up, or has ended before; then the reason for the endpoint is returned.
    ///
    /// A peer without a dgram port looks the same over UDP as no peer at all; TCP tells the difference.
    pub(super) fn end_call(&mut self, link: LinkId, end: Option<LinkDown>) -> Option<LinkDown> {
        let call = self.calls.remove(&link)?;
        let end = end?;
        let unheard = matches!(
            end,
            // The last: it speaks another version there.
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

    /// Each way of failing once for each peer.
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

/// The address of a peer, as text.
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

/// Reasons why a peer is not reached over the port that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum FallbackReason {
    /// The peer does not have the fabric.
    NoPort,
    /// The peer is on another fabric, or its address is of another version.
    Differs,
    /// There is no room for another link, here or there.
    Full,
    /// The fabric is not open, or does not take the address.
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
