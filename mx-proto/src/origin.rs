//! Origin of a link: its other end, as the network knows it.
//!
//! ```text
//!   port:  a connection, a session's datagrams, a process on this machine
//!             |
//!             `--> LinkOrigin { source   for shares of limited resources
//!                               user     for the log
//!                               nic      the peer's proven interface, its name together with its endpoint number
//!                               oneself  whether the peer is this endpoint }
//! ```
//!
//! Out of scope: addresses, which only ports have.

use crate::event::Identity;
use crate::ids::NicId;

/// Source of links, as an opaque number: one IPv4 address or IPv6 /64 prefix of another machine, or one user of this
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source(pub u64);

impl Source {
    /// Source that shares do not limit: this process's own user, root, and every peer of a port that cannot tell
    /// sources apart.
    pub const TRUSTED: Self = Self(0);
}

/// Origin of a link: its other end as the network knows it, not as the peer claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOrigin {
    /// Source of the link.
    pub source: Source,
    /// User id on this machine; `None` if the peer is elsewhere.
    pub user: Option<u32>,
    /// Interface of the peer, proven by the network. `None`: the port cannot tell, or the number that the peer claims
    /// belongs to another address.
    pub nic: Option<NicId>,
    /// Whether the other end of the link is this endpoint itself.
    pub oneself: bool,
}

impl LinkOrigin {
    /// Returns the origin of a peer at a port that only trusted processes reach: the claimed interface is believed, and
    /// the source is [`Source::TRUSTED`].
    pub fn trusted(claimed: &Identity) -> Self {
        Self {
            source: Source::TRUSTED,
            user: None,
            nic: Some(claimed.nic),
            oneself: false,
        }
    }
}
