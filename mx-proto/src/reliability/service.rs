//! Service: the interface of the reliability layer to a datagram service.
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

/// Channel to a peer, which has two. They are not ordered with respect to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Channel for short and urgent datagrams.
    Command,
    /// Channel for all others.
    Data,
}

/// Limits of one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Largest datagram in bytes that the service accepts; the MTU of the path to a peer may be smaller. At least 548.
    pub datagram_max: usize,
    /// Maximum number of datagrams in one [`GsoBatch`].
    pub batch_max: usize,
    /// Maximum number of bytes in one [`GsoBatch`].
    pub batch_bytes: usize,
}

/// Datagrams for one receiver: `bytes` cut every `segment` bytes. The last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct GsoBatch<'a> {
    /// Bytes of all datagrams, without gaps.
    pub bytes: &'a [u8],
    /// Size in bytes of every datagram but the last; not 0.
    pub segment: usize,
    /// Whether the datagrams may exceed the path's MTU, so that the network layer should fragment them if it can.
    pub may_fragment: bool,
    /// Whether this is a single datagram for which the service may use a faster path that does not choose the source
    /// address: the peer recognises the session by other means. (Not for datagrams to whose source address answers are
    /// sent.)
    pub express: bool,
}

impl<'a> GsoBatch<'a> {
    /// Makes a batch of one datagram, with both flags false.
    pub fn single(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            segment: bytes.len().max(1),
            may_fragment: false,
            express: false,
        }
    }
}

/// Reason for rejecting a GSO batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// No room now; the batch is tried again.
    WouldBlock,
    /// No route to the address now. The batch counts as lost and is retransmitted.
    Unreachable,
    /// The service knows the path's MTU: the largest datagram that passes has this many bytes. Nothing was sent.
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

/// Event of a datagram service, either datagrams or an error about one that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<A> {
    /// Datagrams of one sender arrived together, as in a [`GsoBatch`]. [`DatagramPort::bytes`] lends them.
    Datagrams {
        /// Channel on which they came.
        channel: Channel,
        /// Source address that they claim, which may be forged.
        from: A,
        /// Size in bytes of every datagram but the last; not 0.
        segment: usize,
    },
    /// A datagram to this address found no socket there.
    Refused {
        /// Destination of the datagram.
        to: A,
        /// Quote of the datagram; without it the error may be forged.
        quote: Option<Quote>,
    },
    /// A datagram to this address was larger than the path's MTU.
    TooLarge {
        /// Destination of the datagram.
        to: A,
        /// Largest size in bytes that would have passed.
        most: usize,
        /// Quote of the datagram; without it the error may be forged.
        quote: Option<Quote>,
    },
}

/// Result of [`DatagramPort::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received<A> {
    /// An event.
    Incoming(Incoming<A>),
    /// The end of the round: no memory of the service is lent any more.
    End {
        /// Whether there was anything, returned or not.
        any: bool,
        /// Whether the data channel has been read, and nothing that arrived before is left there.
        drained: bool,
    },
}

/// Maximum length in bytes of a data channel's name, with which a peer finds its address
/// ([`DatagramPort::data_address`]).
pub const DATA_NAME_MAX: usize = 64;

/// Unreliable datagram service with two channels, over which `Reliable` carries its links.
pub trait DatagramPort {
    /// Address of a datagram's source or destination, opaque to the layer above. A peer has one for each of its
    /// channels.
    type Address: Copy + Eq + Hash + fmt::Debug;

    /// Returns the address of the command channel of a remote endpoint.
    fn resolve(&mut self, target: Target) -> Result<Self::Address, ConnectError>;

    /// Returns whether both addresses belong to one machine: a peer may use either, see [`GsoBatch::express`].
    fn same_host(one: Self::Address, other: Self::Address) -> bool {
        one == other
    }

    /// Returns the source whose share datagrams from this address count against.
    fn source(address: Self::Address) -> Source {
        let _ = address;
        Source::TRUSTED
    }

    /// Returns the name of our data channel for the peer, at most [`DATA_NAME_MAX`] bytes.
    fn data_name(&self) -> &[u8];

    /// Returns the address of the data channel of the peer whose command channel is at `command` and that sent `name`.
    /// `None`: an invalid name.
    fn data_address(&mut self, command: Self::Address, name: &[u8]) -> Option<Self::Address>;

    /// Returns whether datagrams to this address cannot be damaged in flight, because they do not leave this machine,
    /// or the fabric checks them.
    fn is_safe(&self, address: Self::Address) -> bool;

    /// Returns whether a datagram to this address without a socket there is [`Incoming::Refused`] at once, because the
    /// address belongs to this machine.
    fn refuses_at_once(&self, address: Self::Address) -> bool {
        let _ = address;
        false
    }

    /// Returns whether nothing can come from that address any more, because its peer sends to a former address of this
    /// machine.
    fn is_cut_off(&self, address: Self::Address) -> bool {
        let _ = address;
        false
    }

    /// Returns the limits of a channel, constant for the whole life of the service.
    fn capacity(&self, channel: Channel) -> Capacity;

    /// Returns the number of bytes that can arrive without being polled; excess bytes are lost.
    fn receive_buffer(&self) -> usize;

    /// Returns the present time, for sending; a poll gets the time as an argument.
    fn now(&self) -> Instant;

    /// Sends on one of our channels. After an error nothing has been sent.
    fn send(
        &mut self,
        channel: Channel,
        to: Self::Address,
        batch: GsoBatch<'_>,
    ) -> Result<(), DatagramError>;

    /// Begins to receive about `budget` datagrams at most, those of the command channel first. May omit the data
    /// channel if polling it costs and few packets arrive.
    fn begin(&mut self, budget: usize);

    /// Begins to receive datagrams of the data channel alone, which is read in any case.
    fn begin_data(&mut self, budget: usize);

    /// Returns the next event after [`Self::begin`] or [`Self::begin_data`]. Called until [`Received::End`]; between
    /// two calls anything may be sent. Never blocks.
    fn next(&mut self) -> Received<Self::Address>;

    /// Returns the datagrams of the [`Incoming::Datagrams`] that [`Self::next`] returned last, without gaps.
    fn bytes(&self) -> &[u8];

    /// Arms the service; see [`crate::port::LinkControl::arm`].
    fn arm(&mut self) -> bool;

    /// Disarms the service; see [`crate::port::LinkControl::disarm`].
    fn disarm(&mut self);

    /// Returns descriptors to sleep on; see [`crate::port::LinkControl::descriptors`].
    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }
}
