//! Events of a port, polled out one at a time.
//!
//! ```text
//!   begin(now, budget) --> next --> Event --> handled: any call of the port is legal --> next --> ... --> End
//!                                    |
//!                                    |-- Packet: `body` lends its bytes
//!                                    `-- Part:   `read` copies its bytes to their place, or `skip` drops the body
//! ```
//!
//! A round takes in what has happened since the last one, and has an end. The bytes of a packet or a part lie
//! in the port's memory until the next call of [`Rounds::next`]; they are read or skipped before it. While an
//! event is handled its link may be closed: then nothing of it follows.
//!
//! Owns: nothing; the position within a round is the port's.

use crate::ids::LinkId;
use crate::memory::{Memory, Source};
use crate::port::{HeaderBytes, LinkDown, Place, RemoteUse};
use crate::time::Instant;

/// An event at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// A link that [`connect`](crate::port::LinkControl::connect) started can carry packets.
    Up(LinkId),
    /// A link is gone. Everything that arrived on it has been given out before.
    Down(LinkId, LinkDown),
    /// A link that had no room has some again.
    Writable(LinkId),
    /// A packet arrived, and all of its body is at hand ([`Rounds::body`]). Links from strangers begin with their
    /// first packet.
    Packet {
        /// The link on which it came.
        link: LinkId,
        /// The packet's header.
        header: HeaderBytes,
    },
    /// Bytes of a body that arrives in parts, of a port that can read into application memory. Answered with
    /// [`Rounds::read`] or [`Rounds::skip`].
    Part {
        /// The link on which they came.
        link: LinkId,
        /// The packet's header.
        header: HeaderBytes,
        /// All before the packet has been given out, and a message that comes with its data is matched now. When
        /// it is read, its other parts come without that word, and no other packet of the link comes before its
        /// [`PortEvent::Placed`].
        begin: bool,
    },
    /// The whole body of a packet has been read.
    Placed {
        /// The link on which it came.
        link: LinkId,
        /// The packet's header.
        header: HeaderBytes,
    },
    /// Bytes are moving in a read of memory, ours or the peer's, that has not ended. Given out often enough for
    /// time-outs of seconds.
    RemoteActivity(LinkId, RemoteUse),
    /// A [`read`](crate::port::RemoteMemory::read) of the peer's memory has ended; `ok` is false when it failed.
    RemoteRead {
        /// The link over which it went.
        link: LinkId,
        /// The token it was started with.
        token: u64,
        /// All bytes are there.
        ok: bool,
    },
    /// Few places or descriptors are left for new links: links that a session can do without should go.
    PlacesShort,
}

impl PortEvent {
    /// Returns the link of an event, if it has one.
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

/// The answer of [`Rounds::next`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Something has happened.
    Event(PortEvent),
    /// The round is over, and no memory of the port is lent any more.
    End {
        /// There was anything in this round, an event or not.
        any: bool,
    },
}

/// The answer of [`Rounds::begin_active`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Nothing has come over the links that were active lately: the round is over.
    Nothing,
    /// A round over these links has begun.
    Active,
    /// [`Rounds::begin`] is to begin a round.
    Elsewhere,
}

/// The answer of [`Rounds::next_packet`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front {
    /// [`PortEvent::Packet`], whose body is as long as its header says.
    Packet {
        /// The link on which it came.
        link: LinkId,
        /// The packet's header.
        header: HeaderBytes,
    },
    /// [`Next::End`].
    End {
        /// There was anything in this round, an event or not.
        any: bool,
    },
    /// [`Rounds::next`] has the answer.
    Other,
}

/// A port whose events are polled out.
pub trait Rounds<M: Memory> {
    /// The bytes of a packet, lent.
    type Lent<'a>: Source
    where
        Self: 'a + Sized;

    /// Begins a round over what was active lately and costs next to nothing to look at: links through memory. No
    /// clock is read for it, and the kernel is not asked. [`Begun::Elsewhere`]: there is no such link, something else is known
    /// to have happened, or there have been such rounds and nothing else for a while; then comes [`Self::begin`], and
    /// with it all that is done now and then.
    #[inline]
    fn begin_active(&mut self, _budget: usize) -> Begun {
        Begun::Elsewhere
    }

    /// Begins a round of at most about `budget` packets. Never blocks.
    fn begin(&mut self, now: Instant, budget: usize);

    /// The next event of the round. Called until the [`Next::End`].
    fn next(&mut self) -> Next;

    /// The front of [`Self::next`]: answers if the event is a whole packet, or the round is over, and that is easily told. After
    /// [`Front::Other`] nothing has been taken, and [`Self::next`] is called.
    #[inline]
    fn next_packet(&mut self) -> Front {
        Front::Other
    }

    /// The body of the [`PortEvent::Packet`] that [`Self::next`] has given last; no bytes after another event.
    fn body(&self) -> Self::Lent<'_>
    where
        Self: Sized;

    /// The body of the [`Front::Packet`] that [`Self::next_packet`] has given last.
    #[inline]
    fn front_body(&self) -> Self::Lent<'_>
    where
        Self: Sized,
    {
        self.body()
    }

    /// Reads the bytes of the [`PortEvent::Part`] that [`Self::next`] has given last to `place`, which is where the
    /// packet's whole body belongs. The port knows how much of it is there.
    fn read(&mut self, place: Place<'_, M>);

    /// The body of that part has no place now. Of a packet that may be given out whole
    /// ([`Limits::packet_max`](crate::port::Limits::packet_max)) and of which nothing has been read, a
    /// [`PortEvent::Packet`] follows when all of it is there; the rest of any other is dropped.
    fn skip(&mut self);
}
