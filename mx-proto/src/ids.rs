//! Ids: one type for each kind.
//!
//! ```text
//!   machine - NicId         an interface of a machine ("board")
//!             `- EndpointId one open endpoint on it
//!                 `- SessionId   one life of that endpoint
//!   LinkId     one connection of a port             (port's number)
//!   RemoteId   one session with a peer              (endpoint's number)
//!   RequestId  one posted send, receive or connect  (endpoint's number)
//! ```
//!
//! `LinkId`, `RemoteId`, `RequestId` and `EntryId` are an index and a generation, so a stale id is recognised
//! when its index has been reused.

use crate::table::Key;
use std::fmt;

/// Network interface of a machine: 48 bits, the same number in every process of the cluster. Programs pass it on in two
/// halves, of 16 and 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NicId(pub u64);

impl NicId {
    /// Largest interface number, of 48 one bits.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// Makes an id from an outside value. `None` if the value has more than 48 bits.
    #[inline]
    pub fn new(id: u64) -> Option<Self> {
        (id <= Self::MAX.0).then_some(Self(id))
    }
}

/// Endpoint number on a network interface, as in `mx://host:board:endpoint`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointId(pub u32);

/// Number of a life of an endpoint: drawn at random when the endpoint is opened, so that a restarted peer differs from
/// its predecessor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId(pub u64);

/// Match bits of a message: the sender gives them, and receives select messages by them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatchBits(pub u64);

/// Mask of match bits: a receive compares only the bits that are 1 in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MatchMask(pub u64);

impl MatchMask {
    /// Mask with which every bit is compared.
    pub const EXACT: Self = Self(u64::MAX);

    /// Returns `bits` with all bits outside the mask set to zero.
    #[inline]
    pub fn apply(self, bits: MatchBits) -> MatchBits {
        MatchBits(bits.0 & self.0)
    }
}

macro_rules! generational {
    ($(#[$doc:meta])* $name:ident, $bits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            index: u32,
            generation: u32,
        }

        impl $name {
            /// Makes an id of a slot number and a generation, both stored unchanged.
            #[inline]
            pub const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            /// Returns the slot number, which later ids may have again.
            #[inline]
            pub const fn index(self) -> u32 {
                self.index & (u32::MAX >> (32 - $bits))
            }

            /// Returns the generation, which distinguishes this id from other ids of its slot.
            #[inline]
            pub const fn generation(self) -> u32 {
                self.generation
            }

            /// Returns the id as a number, to be sent to a peer or kept in a foreign context field.
            #[inline]
            pub const fn to_word(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }

            /// Returns the id of a word made by [`Self::to_word`]; it may be stale or invented, and has to be looked
            /// up.
            #[inline]
            pub const fn from_word(word: u64) -> Self {
                Self { index: word as u32, generation: (word >> 32) as u32 }
            }
        }

        impl Key for $name {
            #[inline]
            fn new(index: u32, generation: u32) -> Self {
                Self::new(index, generation)
            }

            #[inline]
            fn index(self) -> u32 {
                self.index()
            }

            #[inline]
            fn generation(self) -> u32 {
                self.generation
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}.{})"), self.index(), self.generation)
            }
        }
    };
}

generational! {
    /// A connection that a port opened, or accepted, to one remote endpoint.
    LinkId, 29
}
generational! {
    /// A session with a remote endpoint.
    RemoteId, 32
}
generational! {
    /// A posted operation: a send, receive or connect.
    RequestId, 32
}
generational! {
    /// A value in a [`MatchIndex`](crate::MatchIndex).
    EntryId, 32
}

impl LinkId {
    /// Returns the id of this link at the port with that number, 0 to 7. [`LinkId::new`] makes an id of port 0.
    #[inline]
    #[must_use]
    pub const fn at_port(self, port: u8) -> Self {
        Self {
            index: self.index() | (port as u32) << 29,
            ..self
        }
    }

    /// Returns the number of the port that the link belongs to, 0 to 7.
    #[inline]
    pub const fn port(self) -> u8 {
        (self.index >> 29) as u8
    }
}

/// Address of a remote endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// Network interface of the endpoint.
    pub nic: NicId,
    /// Number of the endpoint on that interface.
    pub endpoint: EndpointId,
    /// Choice of the port that connects.
    pub route: Route,
}

impl Target {
    /// Returns the target of an endpoint, leaving the choice of the port to the ports ([`Route::AUTO`]).
    pub const fn auto(nic: NicId, endpoint: EndpointId) -> Self {
        Self {
            nic,
            endpoint,
            route: Route::AUTO,
        }
    }
}

/// Choice of the port for the traffic to a peer; only the ports know its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Route(pub u8);

impl Route {
    /// Route that leaves the choice to the ports.
    pub const AUTO: Self = Self(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_a_port_is_that_ports_and_keeps_its_index() {
        let link = LinkId::new(5, 9).at_port(3);
        assert_eq!((link.port(), link.index(), link.generation()), (3, 5, 9));
        assert_eq!(LinkId::new(5, 9).port(), 0);
    }
}
