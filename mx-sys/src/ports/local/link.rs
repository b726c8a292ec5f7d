//! One link, in whatever state it is.
//!
//! ```text
//!   we connect:    Dialing --room in the backlog--> Greeting --Welcome--> Up
//!   they connect:                 Accepted ---------Hello + memory------> Up
//!
//!   Up:  hung up (no socket) --ring drained--> down: Closed or Reset
//!        failed (nonsense in the ring)-------> down: Protocol
//! ```
//!
//! Owns: what each state needs, and nothing of the other states.
//! Knows nothing of: who looks at it when.

use super::barrier;
use super::layout::Geometry;
use super::ring::{Consumer, Corrupt, Producer};
use super::socket::Socket;
use crate::sealed::Region;
use mx_proto::Instant;
use mx_proto::port::LinkDown;
use std::time::Duration;

/// A link and what the endpoint attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) cookie: u64,
    /// The endpoint has heard of it: it started the link, or had a packet from it.
    pub(super) known: bool,
    /// The endpoint was told "no room" and waits for `on_writable`.
    pub(super) blocked: bool,
    /// `None` once the peer has hung up.
    pub(super) socket: Option<Socket>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// The peer's backlog is full; tried again from time to time.
    Dialing(Dialing),
    /// Connected, memory handed over, no answer yet.
    Greeting(Region),
    /// Somebody connected and has said nothing yet.
    Accepted { deadline: Instant },
    /// Carries packets.
    Up(Link),
    /// Between two states.
    Changing,
}

/// Where to knock again, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialing {
    pub(super) board: u32,
    pub(super) endpoint: u32,
    pub(super) next_try: Instant,
    pub(super) pause: Duration,
}

/// A link that carries packets.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) consumer: Consumer,
    pub(super) producer: Producer,
    /// Something was wrong with what the peer wrote.
    pub(super) failed: bool,
    /// Looked at in every poll; otherwise in turn, and the peer rings for its first packet.
    pub(super) hot: bool,
    /// Polls in a row that found nothing.
    pub(super) idle: u32,
    /// What the rings point into. Not read here, but it has to live as long as they.
    _region: Region,
}

impl Entry {
    pub(super) fn new(socket: Socket, state: State, known: bool) -> Self {
        Self {
            cookie: 0,
            known,
            blocked: false,
            socket: Some(socket),
            state,
        }
    }

    /// The link, if it is up.
    #[inline]
    pub(super) fn up(&mut self) -> Option<&mut Link> {
        match &mut self.state {
            State::Up(link) => Some(link),
            _ => None,
        }
    }

    /// Prepares for sleeping, or takes that back. A barrier and [`Entry::wants_poll`] follow.
    pub(super) fn set_asleep(&mut self, asleep: bool) {
        let blocked = self.blocked;
        if let Some(link) = self.up() {
            link.consumer.set_sleeping(asleep);
            if blocked {
                link.producer.set_waiting(asleep);
            }
        }
    }

    /// The peer will ring for its next packet.
    pub(super) fn is_asleep(&mut self) -> bool {
        self.up().is_some_and(|link| link.consumer.is_sleeping())
    }

    /// True when a poll would find something to do with this link.
    pub(super) fn wants_poll(&mut self) -> bool {
        let (blocked, hung_up) = (self.blocked, self.socket.is_none());
        self.up().is_some_and(|link| {
            link.consumer.is_ready()
                || link.failed
                || hung_up
                || (blocked && link.producer.has_room() != Ok(false))
        })
    }

    /// Why the link is over, once nothing more can be taken from its ring.
    pub(super) fn verdict(&mut self) -> Option<LinkDown> {
        let hung_up = self.socket.is_none();
        let link = self.up()?;
        if link.failed {
            return Some(LinkDown::Protocol);
        }
        if !hung_up {
            return None;
        }
        match link.consumer.peek() {
            Err(Corrupt) => Some(LinkDown::Protocol),
            Ok(Some(_)) => None,
            Ok(None) if link.consumer.is_closed() => Some(LinkDown::Closed),
            Ok(None) => Some(LinkDown::Reset),
        }
    }
}

impl Link {
    /// A link over `region`, of which we are the `side` (0 initiator, 1 acceptor).
    /// `peer_asymmetric`: what the peer said about itself, see [`barrier`].
    pub(super) fn new(
        region: Region,
        geometry: Geometry,
        side: usize,
        peer_asymmetric: bool,
    ) -> Self {
        let asymmetric = peer_asymmetric && barrier::is_asymmetric();
        debug_assert_eq!(region.len(), geometry.total());
        // SAFETY: the region was made or checked to be `geometry.total()` bytes long, and is kept
        // beside the rings; no packet outlives the poll that peeked at it.
        let (producer, consumer) = unsafe {
            (
                Producer::new(&region, geometry, side, asymmetric),
                Consumer::new(&region, geometry, 1 - side, asymmetric),
            )
        };
        Self {
            consumer,
            producer,
            failed: false,
            hot: true,
            idle: 0,
            _region: region,
        }
    }
}
