//! The other end of a link, as the network knows it.
//!
//! ```text
//!   port:  a connection, a session's datagrams, a process on this machine
//!             |
//!             `--> LinkOrigin { source   for shares of limited resources
//!                               user     for the log
//!                               nic      the peer's interface, proven: its name, with its endpoint number
//!                               oneself }
//! ```
//!
//! Out of scope: addresses, which only ports have.

use crate::event::Identity;
use crate::ids::NicId;

/// The source of links as a number: one address of another machine, or one user of this one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source(pub u64);

impl Source {
    /// A source that shares do not limit: this process's own user, root, and sources that the port cannot tell
    /// apart.
    pub const TRUSTED: Self = Self(0);
}

/// The other end of a link, according to the network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkOrigin {
    /// Its source.
    pub source: Source,
    /// The user of this machine, if it is one.
    pub user: Option<u32>,
    /// The interface that it comes from. `None`: the port cannot tell, or the interface's number is
    /// another address's.
    pub nic: Option<NicId>,
    /// The other end is this endpoint itself.
    pub oneself: bool,
}

impl LinkOrigin {
    /// The peer that says it is `claimed`, at a port that cannot have strangers.
    pub fn trusted(claimed: &Identity) -> Self {
        Self {
            source: Source::TRUSTED,
            user: None,
            nic: Some(claimed.nic),
            oneself: false,
        }
    }
}
