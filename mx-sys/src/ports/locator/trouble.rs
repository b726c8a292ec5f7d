//! What the log says of peers that are not reached as they might be, once for each.
//!
//! Knows nothing of: what is done about it.

use super::packet::For;
use crate::nic;
use crate::ports::rdm::card::Refusal;
use mx_proto::{EndpointId, NicId, Target};
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

/// Who is to be reached: its address, for people, by whatever way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::ports) struct Peer(NicId, EndpointId);

impl Peer {
    pub(in crate::ports) fn of(target: Target) -> Self {
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

/// What has been said already: a peer that is not reached is tried often.
#[derive(Debug)]
pub(in crate::ports) struct Told<K>(HashSet<K>);

/// What is remembered at most. Beyond it all begins to be said again.
const TOLD_MAX: usize = 4096;

impl<K> Default for Told<K> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<K: Eq + Hash> Told<K> {
    /// It has not been said yet; from now on it has.
    pub(in crate::ports) fn is_news(&mut self, what: K) -> bool {
        if self.0.len() >= TOLD_MAX {
            self.0.clear();
        }
        self.0.insert(what)
    }
}

/// Why a peer is not reached over the fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Trouble {
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
pub(super) struct Line<'a> {
    pub(super) peer: Peer,
    pub(super) of: For,
    pub(super) ours: &'a str,
    pub(super) theirs: &'a str,
    pub(super) trouble: Trouble,
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
                super::PATIENCE.as_secs()
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
    fn everything_is_news_once_until_there_is_too_much_of_it() {
        let mut told = Told::default();
        for what in 0..TOLD_MAX - 1 {
            assert!(told.is_news(what));
            assert!(!told.is_news(what));
        }
        assert!(told.is_news(TOLD_MAX));
        // Full: it begins again.
        assert!(told.is_news(0));
        assert_eq!(told.0.len(), 1);
    }

    #[test]
    fn a_peer_without_a_name_is_named_by_its_numbers() {
        let peer = Peer(NicId(5), EndpointId(3));
        assert_eq!(peer.to_string(), "endpoint 3 of 0x5");
    }
}
