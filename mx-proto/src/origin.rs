//! The source of a link according to the network, and what that proves of a peer's claims.
//!
//! ```text
//!   port:      source of a connection, of a session's datagrams, of a process on this machine
//!                 |
//!                 +--> Source                 for shares of limited resources
//!                 `--> Proof of a Claim       Proven | Refuted | Ask the claimed address
//! ```
//!
//! Not here: addresses, which only ports have.

use crate::ids::{EndpointId, NicId, Target};

/// The source of links as a number: one address of another machine, or one user of this one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Source(pub u64);

impl Source {
    /// Not limited by shares: this process's own user, root, and sources that the port cannot tell
    /// apart.
    pub const TRUSTED: Self = Self(0);
}

/// The identity that a peer claims when it introduces itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Its interface.
    pub nic: NicId,
    /// Its endpoint there.
    pub endpoint: EndpointId,
    /// The destination of the claim: the interface and endpoint that the peer connected to, or that
    /// connected to it.
    pub to: (NicId, EndpointId),
}

/// An address of the network, 128 bits that only ports understand. 0: the port cannot tell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Address(pub u128);

/// The network's evidence for a [`Claim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// The peer is where it claims to be.
    Proven,
    /// It is not.
    Refuted,
    /// It comes from another address, this one. Whether it has the claimed one as well is to be asked
    /// there.
    Ask(Target, Address),
}
