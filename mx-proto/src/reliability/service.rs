//! The interface of the reliability layer to a datagram service.
//!
//! ```text
//!   Reliable --- GsoBatch on a channel ---> service          one datagram, or many of equal size
//!            <-- Incoming, one at a time                   for one receiver, in one call
//!
//!   begin --> next --> Datagrams: `bytes` lends them until the next call --> next --> ... --> End
//!
//!   Command   ACKs, control, tiny fragments: short queue, polled first
//!   Data      everything else
//! ```

use super::quote::Quote;
use crate::ids::Target;
use crate::origin::Source;
use crate::port::{ConnectError, WakeDescriptors};
use crate::time::Instant;
use std::fmt;
use std::hash::Hash;

/// A channel to a peer, of the two. There is no order between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// For what is short and urgent.
    Command,
    /// For all the rest.
    Data,
}

/// The limits of one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Largest datagram that can be given to the service; the MTU of the path to a peer may be
    /// less. At least 548 bytes.
    pub datagram_max: usize,
    /// Most datagrams in one [`GsoBatch`].
    pub batch_max: usize,
    /// Most bytes in one [`GsoBatch`].
    pub batch_bytes: usize,
}

/// Datagrams for one receiver: `bytes` cut every `segment` bytes. The last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct GsoBatch<'a> {
    /// All of them, one behind the other.
    pub bytes: &'a [u8],
    /// Bytes of each but the last. Not 0.
    pub segment: usize,
    /// The datagrams may be larger than the path's MTU: the network layer is to cut them if it can.
    pub may_fragment: bool,
    /// A single datagram whose source address does not matter: the peer knows its sender anyway.
    /// (Not for datagrams from the address to which answers are sent.)
    pub express: bool,
}

impl<'a> GsoBatch<'a> {
    /// A single datagram.
    pub fn single(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            segment: bytes.len().max(1),
            may_fragment: false,
            express: false,
        }
    }
}

/// Reasons for refusing a GSO batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// No room now; it is tried again.
    WouldBlock,
    /// There is no route to that address now. Treated as a loss.
    Unreachable,
    /// The service knows that no datagram larger than this passes. Nothing was sent.
    TooLarge(usize),
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("no room for a datagram"),
            Self::Unreachable => f.write_str("address unreachable"),
            Self::TooLarge(most) => {
                write!(f, "larger than {most} bytes, the largest size that passes")
            }
        }
    }
}

/// An event of a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<A> {
    /// Datagrams of one sender arrived together, as in a [`GsoBatch`]. [`DatagramPort::bytes`] lends them.
    Datagrams {
        /// The channel they came on.
        channel: Channel,
        /// The source address they claim, which may be forged.
        from: A,
        /// Bytes of each but the last. Not 0.
        segment: usize,
    },
    /// A datagram to this address found no socket there.
    Refused {
        /// The address.
        to: A,
        /// The quoted datagram. Without it the error may be forged.
        quote: Option<Quote>,
    },
    /// A datagram to this address was larger than the path's MTU.
    TooLarge {
        /// The address.
        to: A,
        /// The size that would have passed.
        most: usize,
        /// As above.
        quote: Option<Quote>,
    },
}

/// The answer of [`DatagramPort::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received<A> {
    /// Something has come in.
    Incoming(Incoming<A>),
    /// The end of the round: no memory of the service is lent any more.
    End {
        /// There was anything, handed out or not.
        any: bool,
        /// The data channel has been read, and nothing is left there of what had come in before.
        drained: bool,
    },
}

/// Bytes of a data channel's name at most.
pub const DATA_NAME_MAX: usize = 64;

/// An unreliable datagram service with two channels.
pub trait DatagramPort {
    /// The address of a datagram's source or destination; opaque to the layer above. A peer has one
    /// for each of its channels.
    type Address: Copy + Eq + Hash + fmt::Debug;

    /// The address of the command channel of a remote endpoint.
    fn resolve(&mut self, target: Target) -> Result<Self::Address, ConnectError>;

    /// Both are of one host: a peer may use either, see [`GsoBatch::express`].
    fn same_host(one: Self::Address, other: Self::Address) -> bool {
        one == other
    }

    /// The source whose share datagrams from this address count against.
    fn source(address: Self::Address) -> Source {
        let _ = address;
        Source::TRUSTED
    }

    /// The name of our data channel for the peer: at most [`DATA_NAME_MAX`] bytes.
    fn data_name(&self) -> &[u8];

    /// The address of the data channel of the peer whose command channel is at `command` and that
    /// sent `name`. `None`: an invalid name.
    fn data_address(&mut self, command: Self::Address, name: &[u8]) -> Option<Self::Address>;

    /// Datagrams to this address cannot be damaged under way: they do not leave this machine, or
    /// the fabric checks them.
    fn is_safe(&self, address: Self::Address) -> bool;

    /// A datagram to this address without a socket there is [`Incoming::Refused`] at once: it is on
    /// this machine.
    fn refuses_at_once(&self, address: Self::Address) -> bool {
        let _ = address;
        false
    }

    /// Nothing comes from that address any more: its peer sends to an address that was this machine's.
    fn is_cut_off(&self, address: Self::Address) -> bool {
        let _ = address;
        false
    }

    /// The limits of a channel, constant for the whole life of the service.
    fn capacity(&self, channel: Channel) -> Capacity;

    /// Bytes that can have arrived without having been polled; more are lost.
    fn receive_buffer(&self) -> usize;

    /// Now, for what is sent: a poll is told the time.
    fn now(&self) -> Instant;

    /// Sends on a channel of ours, or does nothing and says why.
    fn send(
        &mut self,
        channel: Channel,
        to: Self::Address,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError>;

    /// Begins to take in at most about `budget` of the datagrams that have come in, the command channel's
    /// first. May leave out the data channel, where polling costs and few packets arrive.
    fn begin(&mut self, budget: usize);

    /// Begins to take in datagrams of the data channel alone, which is read in any case.
    fn begin_data(&mut self, budget: usize);

    /// The next event of what [`Self::begin`] or [`Self::begin_data`] began. Called until the
    /// [`Received::End`]; between two calls anything may be sent. Never blocks.
    fn next(&mut self) -> Received<Self::Address>;

    /// The datagrams of the [`Incoming::Datagrams`] that [`Self::next`] has given last, one behind the other.
    fn bytes(&self) -> &[u8];

    /// As [`crate::port::LinkControl::arm`].
    fn arm(&mut self) -> bool;

    /// As [`crate::port::LinkControl::disarm`].
    fn disarm(&mut self);

    /// As [`crate::port::LinkControl::descriptors`].
    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }
}
