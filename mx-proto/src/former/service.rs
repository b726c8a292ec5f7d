//! What the reliability layer needs of whatever carries datagrams.
//!
//! Knows nothing of: what is in them, whether they arrive.

use crate::ids::Target;
use crate::port::{ConnectError, WakeDescriptors};
use crate::time::Instant;
use std::fmt;
use std::hash::Hash;

/// Why a datagram was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// No room now; it is tried again.
    WouldBlock,
    /// There is no way to that address now. Treated as a loss.
    Unreachable,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WouldBlock => "no room for a datagram",
            Self::Unreachable => "address unreachable",
        })
    }
}

/// What a datagram service tells.
#[derive(Debug)]
pub enum Incoming<'a, A> {
    /// A datagram arrived.
    Datagram {
        /// Where it says it comes from. Anybody can say that.
        from: A,
        /// All of it.
        bytes: &'a [u8],
    },
    /// Something sent to this address found nobody there.
    Refused {
        /// The address.
        to: A,
    },
}

/// An unreliable datagram service.
pub trait DatagramPort {
    /// Where a datagram goes to or comes from; means nothing to the layer above.
    type Address: Copy + Eq + Hash + fmt::Debug;

    /// The address of a remote endpoint.
    fn resolve(&self, target: Target) -> Result<Self::Address, ConnectError>;

    /// Largest datagram, the same for the whole life of the service. At least 256 bytes.
    fn mtu(&self) -> usize;

    /// Now.
    fn now(&self) -> Instant;

    /// Sends one datagram, or does nothing and says why.
    fn send(&mut self, to: Self::Address, datagram: &[u8]) -> Result<(), DatagramError>;

    /// Hands out at most `budget` of the things that have come in. Returns true when there was
    /// one. Never blocks.
    fn poll(&mut self, budget: usize, receive: impl FnMut(Incoming<'_, Self::Address>)) -> bool;

    /// As [`crate::port::Port::arm`].
    fn arm(&mut self) -> bool;

    /// As [`crate::port::Port::disarm`].
    fn disarm(&mut self);

    /// As [`crate::port::Port::descriptors`].
    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }
}
