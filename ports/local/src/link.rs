//! A link and its states.
//!
//! ```text
//!   we connect:    Dialing --room in the backlog--> Greeting --Welcome--.
//!   they connect:                 Accepted ----------------Hello--------+--> Plain
//!
//!   Plain  --a packet: we hand memory over--> Offered --Taken--> Up          the initiator
//!     | ^                                        `-----Later--> Plain
//!     | `---------Suspend, from both: Up is idle--------.
//!     `-------memory is offered, and we map it-------> Up                    the acceptor
//!
//!   Up:  hung up (no socket) --ring drained--> down: Closed or Reset
//!        invalid data in the ring ------------> down: Protocol
//! ```
//!
//! Plain and Offered have no rings; packets go over the socket (`receive`). Rings are made and
//! freed in `idle`.
//!
//! Owns: the data of each state.

use super::barrier;
use super::handshake::ControlMessage;
use super::layout::Geometry;
use super::pieces::Rest;
use super::ring::{self, Consumer, Corrupt, Producer, PushError};
use super::shared::Shared;
use super::socket::Socket;
use mx_port_base::close_on_fork::CloseOnForkFd;
use mx_port_base::incoming::Incoming;
use mx_port_base::sealed::Region;
use mx_proto::origin::Source;
use mx_proto::port::{Body, HeaderBytes, LinkDown};
use mx_proto::{Instant, Memory as Bytes, Route};
use std::io;
use std::time::Duration;

/// A link and what the endpoint attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The user at the other end, as the kernel says: the one that listened, or in whose name Hello came.
    pub(super) user: u32,
    /// The endpoint at the other end: the one we connected to, or one that `user` has open.
    pub(super) endpoint: Option<u32>,
    /// The source whose share it counts against.
    pub(super) source: Source,
    /// The peer began it, and the endpoint has not bound it.
    pub(super) stranger: bool,
    /// The endpoint has heard of it: it started the link, or had a packet from it.
    pub(super) known: bool,
    /// The endpoint was told "no room" and waits for `on_writable`.
    pub(super) blocked: bool,
    /// The peer has said that it closes the link on purpose.
    pub(super) bye: bool,
    /// Reason of its end, which the queue reports ([`Reason::Ended`](super::queue::Reason)).
    pub(super) end: Option<LinkDown>,
    /// Bits of the reasons for which it is in the queue.
    pub(super) reasons: u8,
    /// Messages read from its socket since it came to the front of the queue.
    pub(super) heard: u8,
    /// Wake-ups that have come and not been read. Each is for once that we said we slept, so the socket
    /// never comes to be full of them.
    pub(super) unread: u8,
    /// The number of reports of new data by the kernel since.
    pub(super) told: u8,
    /// A control message that there was no room for in the socket. Nothing follows it there until it is
    /// sent.
    pub(super) unsaid: Option<ControlMessage>,
    /// A packet that comes in pieces.
    pub(super) incoming: Option<Incoming>,
    /// A packet has been sent in part: nothing goes before its rest.
    pub(super) midway: bool,
    /// The rest of that packet, if its memory has gone.
    pub(super) rest: Option<Rest>,
    /// The peer's kind of barrier; see [`barrier`].
    pub(super) asymmetric: bool,
    /// 0: we started the link, 1: the peer did.
    pub(super) side: u8,
    /// Route to the peer if the link does not come up; `None` once it has.
    pub(super) instead: Option<Route>,
    /// Packets over the socket until we hand memory over again.
    pub(super) pause: u8,
    /// Large messages go through it, since it was last idle.
    pub(super) streaming: bool,
    /// The link is in the list of links that may be idle.
    pub(super) listed: bool,
    /// `None` once the peer has hung up.
    pub(super) socket: Option<Socket>,
    pub(super) state: State,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "what carries packets is found without another pointer"
)]
pub(super) enum State {
    /// The peer's backlog is full; tried again from time to time.
    Dialing(Dialing),
    /// Connected, memory handed over if there is some, no answer yet.
    Greeting(Option<Memory>),
    /// Accepted; nothing has been received on it yet.
    Accepted,
    /// Carries packets over its socket.
    Plain,
    /// The socket carries packets; memory has been handed over and not answered yet. We send nothing.
    Offered(Memory),
    /// Carries packets through its rings.
    Up(Link),
    /// Between two states, or removed.
    Changing,
}

/// The address to try again, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialing {
    pub(super) board: u32,
    pub(super) endpoint: u32,
    pub(super) next_try: Instant,
    pub(super) pause: Duration,
}

/// Memory with rings that are not used yet.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) geometry: Geometry,
}

/// The rings of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) consumer: Consumer,
    pub(super) producer: Producer,
    /// Membership of the active links, which every poll looks at.
    pub(super) active: bool,
    /// Number of packets that the peer sent through its ring before it sent Suspend: once they are taken, the link goes
    /// on over its socket.
    pub(super) suspended: Option<u64>,
    /// Polls of all links in a row that found nothing.
    pub(super) idle: u32,
    /// Chunks of large messages taken, as far as that matters.
    pub(super) chunks: u8,
    /// Packets sent and taken when it was last found to have moved, and when that was.
    pub(super) seen: Option<((u64, u64), Instant)>,
    /// The memory of the rings.
    region: Region,
}

impl Entry {
    pub(super) fn new(socket: Socket, state: State, ours: bool) -> Self {
        Self {
            user: 0,
            endpoint: None,
            source: Source::TRUSTED,
            stranger: false,
            known: ours,
            blocked: false,
            bye: false,
            end: None,
            reasons: 0,
            heard: 0,
            unread: 0,
            told: 0,
            unsaid: None,
            incoming: None,
            midway: false,
            rest: None,
            asymmetric: false,
            side: u8::from(!ours),
            instead: None,
            pause: 0,
            streaming: false,
            listed: false,
            socket: Some(socket),
            state,
        }
    }

    /// The link waits for room, or is over: that is not to be seen in its ring.
    #[inline]
    pub(super) fn is_odd(&self) -> bool {
        self.blocked | self.socket.is_none()
    }

    /// Returns whether every poll looks at its ring.
    pub(super) fn is_active(&self) -> bool {
        matches!(&self.state, State::Up(link) if link.active)
    }

    /// Makes it idle; the caller takes it out of the active links.
    pub(super) fn deactivate(&mut self) {
        if let Some(link) = self.up() {
            link.active = false;
        }
    }

    /// Only wake-ups and control messages come over its socket: it has rings, and has not sent Suspend.
    pub(super) fn hears_control_only(&self) -> bool {
        matches!(&self.state, State::Up(link) if !link.producer.is_retired())
    }

    /// The rings, if the link has some.
    #[inline]
    pub(super) fn up(&mut self) -> Option<&mut Link> {
        match &mut self.state {
            State::Up(link) => Some(link),
            _ => None,
        }
    }

    /// Prepares for sleeping, or takes that back. A barrier and [`Entry::wants_poll`] follow.
    pub(super) fn set_asleep(&mut self, asleep: bool) {
        let State::Up(link) = &mut self.state else {
            return;
        };
        self.unread += u8::from(link.consumer.set_sleeping(asleep));
        if self.blocked {
            self.unread += u8::from(link.producer.set_waiting(asleep));
        }
    }

    /// Pushes a packet that found no room while a thread sleeps that was armed before: that is woken when there
    /// is room, unless there is some already.
    #[cold]
    #[inline(never)]
    pub(super) fn push_armed<M: Bytes>(
        &mut self,
        header: &HeaderBytes,
        body: &Body<'_, M>,
    ) -> Result<bool, PushError> {
        let State::Up(link) = &mut self.state else {
            return Err(PushError::Full);
        };
        self.unread += u8::from(link.producer.set_waiting(true));
        barrier::heavy();
        if link.producer.has_room() != Ok(true) {
            return Err(PushError::Full);
        }
        link.producer.push(header, body)
    }

    /// There is something new to read. True: it is a wake-up and nothing else, as it comes from a peer
    /// that has seen that we sleep, and may stay unread.
    pub(super) fn is_doorbell(&mut self) -> bool {
        let State::Up(link) = &mut self.state else {
            return false;
        };
        // A control message is expected, which may have arrived with a wake-up.
        if link.producer.is_retired() || link.consumer.is_left() {
            return false;
        }
        self.unread += u8::from(link.consumer.is_rung()) + u8::from(link.producer.is_rung());
        self.told = self.told.saturating_add(1);
        self.told <= self.unread && self.unread < UNREAD_MAX
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
                || hung_up
                || (blocked && link.producer.has_room() != Ok(false))
        })
    }

    /// Tells the peer that packets go over the socket from now on, and sends none until its answer. False: that
    /// cannot be said now, or has been.
    pub(super) fn suspend(&mut self) -> bool {
        let (State::Up(link), Some(socket), None) = (&mut self.state, &self.socket, &self.unsaid)
        else {
            return false;
        };
        if link.producer.is_retired() {
            return false;
        }
        link.producer.leave();
        let suspend = ControlMessage::Suspend(link.counts().0).encode();
        let said = socket.send(&suspend, None).is_ok();
        if said {
            link.producer.retire();
        }
        said
    }

    /// Tells the peer that the link is closed on purpose, if there has been one.
    pub(super) fn say_bye(&self) {
        if let State::Plain | State::Offered(_) | State::Up(_) = &self.state
            && let Some(socket) = &self.socket
        {
            // On failure the peer takes this side for dead, which makes little difference.
            let _ = socket.send(&ControlMessage::Bye.encode(), None);
        }
    }

    /// The reason for ending a link that has hung up, once its ring is empty.
    pub(super) fn verdict(&mut self) -> Option<LinkDown> {
        if self.socket.is_some() {
            return None;
        }
        let bye = self.bye;
        match self.up().map_or(Ok(None), |link| link.consumer.peek()) {
            Err(Corrupt) => Some(LinkDown::Protocol),
            Ok(Some(_)) => None,
            Ok(None) if bye => Some(LinkDown::Closed),
            Ok(None) => Some(LinkDown::Reset),
        }
    }
}

/// Wake-ups that a link leaves unread while it carries packets: reading them costs a system call, and
/// the kernel less than a KiB each to keep them.
pub(super) const UNREAD_MAX: u8 = 8;

impl Memory {
    /// New memory of ours, with the descriptor to hand over.
    pub(super) fn make(geometry: Geometry) -> io::Result<(Self, CloseOnForkFd)> {
        let (region, fd) = Region::create(c"mx-local", geometry.total())?;
        Ok((Self { region, geometry }, fd))
    }
}

impl State {
    /// Past the handshake and without memory.
    pub(super) fn is_asleep(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Bytes of shared memory it has mapped.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Greeting(Some(memory)) | Self::Offered(memory) => memory.region.size(),
            Self::Up(link) => link.region.size(),
            _ => 0,
        }
    }
}

// All that a link is beside its rings and the socket. With assertions pointers have bounds (`shared`).
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Entry>() <= 512);

impl Link {
    /// A link over `memory`, of which we are the `side` (0 initiator, 1 acceptor).
    /// `peer_asymmetric`: what the peer said about itself, see [`barrier`].
    pub(super) fn new(memory: Memory, side: u8, peer_asymmetric: bool) -> Self {
        let Memory { region, geometry } = memory;
        let side = usize::from(side & 1);
        let asymmetric = peer_asymmetric && barrier::is_asymmetric();
        debug_assert_eq!(region.size(), geometry.total());
        // SAFETY: the region is kept beside the rings, and no packet is lent when they go (`Round::forget_lent`).
        let memory = unsafe { Shared::of(&region) };
        let (producer, consumer) = ring::ends(memory, geometry, side, asymmetric);
        Self {
            consumer,
            producer,
            active: true,
            suspended: None,
            idle: 0,
            chunks: 0,
            seen: None,
            region,
        }
    }

    /// Packets sent and taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.producer.sent(), self.consumer.taken())
    }
}
