//! Warnings about peers that are reached only by a fallback, once for each.

use super::packet::For;
use crate::nic;
use mx_port_fabric::endpoint_address::Refusal;
use mx_proto::{EndpointId, NicId, Target};
use std::fmt;

/// The address of the peer, as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::route) struct Peer(NicId, EndpointId);

impl Peer {
    pub(in crate::route) fn of(target: Target) -> Self {
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

/// Reasons why a peer is not reached over the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::route) enum Trouble {
    /// It says so.
    Refused(Refusal),
    /// It accepted the connection and said nothing.
    Silent,
    /// It closed the link over the question, or answered with something else.
    Puzzled,
    /// It answered, but frames do not get through.
    Unheard,
}

/// One line of the log about a peer.
pub(in crate::route) struct Line<'a> {
    pub(in crate::route) peer: Peer,
    pub(in crate::route) of: For,
    pub(in crate::route) ours: &'a str,
    pub(in crate::route) theirs: &'a str,
    pub(in crate::route) trouble: Trouble,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            peer,
            of,
            ours,
            theirs,
            ..
        } = self;
        write!(f, "{peer}: ")?;
        match self.trouble {
            Trouble::Refused(Refusal::Provider) => write!(f, "peer uses {theirs}, we use {ours}"),
            Trouble::Refused(Refusal::NoPort) if theirs.is_empty() => {
                write!(f, "peer has no {of} port, we use {ours}")
            }
            Trouble::Refused(why @ (Refusal::Secret | Refusal::NoSecret)) => {
                write!(f, "peer has {why}")
            }
            Trouble::Refused(why) if theirs.is_empty() => {
                write!(f, "peer has {why}, we use {ours}")
            }
            Trouble::Refused(why) => {
                write!(f, "peer refuses ({why}; it uses {theirs}), we use {ours}")
            }
            Trouble::Silent => write!(
                f,
                "peer did not say within {} s which provider it uses, we use {ours}",
                super::TIMEOUT.as_secs()
            ),
            Trouble::Puzzled => write!(
                f,
                "peer does not know the {of} port (an older version?), we use {ours}"
            ),
            Trouble::Unheard => write!(f, "peer uses {ours} as we do, but is not heard over it"),
        }
    }
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
