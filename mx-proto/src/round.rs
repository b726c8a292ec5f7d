//! Rounds: events of a port, polled one at a time.
//!
//! ```text
//!   begin(now, budget) --> next --> Event --> handled: any call of the port is legal --> next --> ... --> End
//!                                    |
//!                                    |-- Packet: `body` lends its bytes
//!                                    `-- Part:   `read` copies its bytes to their destination, or `skip` drops the body
//! ```
//!
//! A round returns what has happened since the last one, and then ends. The bytes of a packet or a part lie in the
//! port's memory until the next call of [`Rounds::next`]; they must be read or skipped before. The link of an event may
//! be closed while the event is handled; then no further event of it follows.
//!
//! Owns: nothing; the port keeps the position within a round.

use crate::ids::LinkId;
use crate::memory::{Memory, Source};
use crate::port::{HeaderBytes, LinkDown, Place, RemoteUse};
use crate::time::Instant;

/// Event of a port, which the endpoint polls ([`Rounds::next`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// A link that [`connect`](crate::port::LinkControl::connect) started can carry packets.
    Up(LinkId),
    /// A link is down. Everything that arrived on it has been returned before.
    Down(LinkId, LinkDown),
    /// A link that had no room has some again.
    Writable(LinkId),
    /// A packet arrived, and its whole body is at hand ([`Rounds::body`]). A stranger's link begins with its first
    /// packet.
    Packet {
        /// Link on which the packet came.
        link: LinkId,
        /// Header of the packet.
        header: HeaderBytes,
    },
    /// Bytes of a body that arrives in parts, from a port that can read into application memory. The endpoint answers
    /// with [`Rounds::read`] or [`Rounds::skip`].
    Part {
        /// Link on which the bytes came.
        link: LinkId,
        /// Header of the packet.
        header: HeaderBytes,
        /// Whether everything before the packet has been returned, so that a message that carries its data is matched
        /// now. If this part is read, the other parts come with `begin` false, and no other packet of the link comes
        /// before its [`PortEvent::Placed`].
        begin: bool,
    },
    /// The whole body of a packet has been read.
    Placed {
        /// Link on which the packet came.
        link: LinkId,
        /// Header of the packet.
        header: HeaderBytes,
    },
    /// A read of memory, ours or the peer's, has made progress and has not ended. Reported often enough for time-outs
    /// of seconds.
    RemoteActivity(LinkId, RemoteUse),
    /// A [`read`](crate::port::RemoteMemory::read) of the peer's memory has ended.
    RemoteRead {
        /// Link of the read.
        link: LinkId,
        /// Token with which the read was started.
        token: u64,
        /// Whether all bytes have been read; false: the read failed.
        ok: bool,
    },
    /// Few slots or descriptors are left for new links: links that sessions can do without should be closed.
    PlacesShort,
}

impl PortEvent {
    /// Returns the link of an event; `None` for [`PortEvent::PlacesShort`], which concerns the whole port.
    pub fn link(&self) -> Option<LinkId> {
        match *self {
            Self::Up(link)
            | Self::Down(link, _)
            | Self::Writable(link)
            | Self::Packet { link, .. }
            | Self::Part { link, .. }
            | Self::Placed { link, .. }
            | Self::RemoteActivity(link, _)
            | Self::RemoteRead { link, .. } => Some(link),
            Self::PlacesShort => None,
        }
    }
}

/// Result of [`Rounds::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// An event.
    Event(PortEvent),
    /// The round is over, and no memory of the port is lent any more.
    End {
        /// Whether there was anything in this round, an event or not.
        any: bool,
    },
}

/// Result of [`Rounds::begin_active`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Nothing has come over the active links: the round is over.
    Nothing,
    /// A round over the active links has begun.
    Active,
    /// No round has begun: the caller must begin one over all links with [`Rounds::begin`].
    Elsewhere,
}

/// Receiving side of a port. Its events are polled in rounds: the endpoint begins a round and calls [`Self::next`]
/// until [`Next::End`]. Until then the port lends the memory of received packets.
pub trait Rounds<M: Memory> {
    /// Bytes of a packet, lent by the port.
    type Lent<'a>: Source
    where
        Self: 'a + Sized;

    /// Begins a round over active links that cost next to nothing to check: links through shared memory. Reads no clock
    /// and makes no system call. [`Begun::Elsewhere`]: there is no such link, something else is known to have happened,
    /// or there have been only such rounds for a while. The caller then calls [`Self::begin`] and does its own
    /// occasional work.
    #[inline]
    fn begin_active(&mut self, _budget: usize) -> Begun {
        Begun::Elsewhere
    }

    /// Begins a round of about `budget` packets at most. Never blocks.
    fn begin(&mut self, now: Instant, budget: usize);

    /// Returns the next event of the round. Called until [`Next::End`].
    fn next(&mut self) -> Next;

    /// Front of [`Self::next`]: offers to `take` the whole packets that come next, each with its body. A packet that
    /// `take` accepts is handled and is no event of the round. At the end of the round returns whether there was
    /// anything in it. `None`: the caller calls [`Self::next`], which begins with the packet that was not taken.
    #[inline]
    fn take_packets(
        &mut self,
        _take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool>
    where
        Self: Sized,
    {
        None
    }

    /// Returns the body of the [`PortEvent::Packet`] that [`Self::next`] returned last; empty after another event.
    fn body(&self) -> Self::Lent<'_>
    where
        Self: Sized;

    /// Reads the bytes of the [`PortEvent::Part`] that [`Self::next`] returned last to `place`, the destination of the
    /// packet's whole body. The port knows how much of it has been read.
    fn read(&mut self, place: Place<'_, M>);

    /// Answers that the body of the last part has no destination now. If the packet may be returned whole
    /// ([`Limits::packet_max`](crate::port::Limits::packet_max)) and nothing of it has been read, a
    /// [`PortEvent::Packet`] follows when it is complete; the rest of any other body is dropped.
    fn skip(&mut self);
}
