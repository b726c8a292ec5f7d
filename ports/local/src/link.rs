//! A link and its states.
//!
//! ```text
//!   we connect:    Dialing --room in the backlog--> Greeting --Welcome--.
//!   they connect:                 Accepted ----------------Hello--------+--> Plain
//!
//!   Plain  --a packet: we offer memory--> Offered --Taken--> Up                the initiator
//!     | ^                                    `-----Later--> Plain
//!     | `---------Suspend, from both: Up is idle--------.
//!     `-------memory is offered, and we map it-------> Up                      the acceptor
//!
//!   Up:  hung up (no socket) --ring drained--> down: Closed or Reset
//!        invalid data in the ring ------------> down: Protocol
//! ```
//!
//! Plain and Offered have no rings; packets go over the socket (`receive`). `idle` creates and frees rings.
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

/// A link of any state.
#[derive(Debug)]
pub(super) struct Entry {
    /// User id of the peer as the kernel reports it: the listener's, or the one in whose name Hello came.
    pub(super) user: u32,
    /// Peer's endpoint id: the one we connected to, or the one in Hello, which `user` has open.
    pub(super) endpoint: Option<u32>,
    /// Source whose share the link counts against.
    pub(super) source: Source,
    /// True for a link begun by the peer until the endpoint binds it.
    pub(super) stranger: bool,
    /// True once the endpoint knows the link: it started the link, or had a packet from it.
    pub(super) known: bool,
    /// True while the endpoint waits for `on_writable`.
    pub(super) blocked: bool,
    /// True once the peer has said that it closes the link on purpose.
    pub(super) bye: bool,
    /// Reason of the link's end, which the queue reports ([`Reason::Ended`](super::queue::Reason)).
    pub(super) end: Option<LinkDown>,
    /// Bit set of the reasons for which the link is in the queue.
    pub(super) reasons: u8,
    /// Messages read from the socket since the link came to the front of the queue.
    pub(super) heard: u8,
    /// Number of wake-ups that have arrived unread. Each answers one sleep of ours, so they never fill the socket.
    pub(super) unread: u8,
    /// Number of reports of new data by the kernel since the last read.
    pub(super) told: u8,
    /// Control message for which the socket had no room. Nothing is sent before it.
    pub(super) unsaid: Option<ControlMessage>,
    /// Packet that is arriving in pieces.
    pub(super) incoming: Option<Incoming>,
    /// True while a packet is sent in part: nothing is sent before its rest.
    pub(super) midway: bool,
    /// Rest of that packet, if its memory has been detached.
    pub(super) rest: Option<Rest>,
    /// Peer's type of barrier; see [`barrier`].
    pub(super) asymmetric: bool,
    /// 0 if this side initiated the link, 1 if the peer did.
    pub(super) side: u8,
    /// Route to the peer if the link does not come up; `None` once it has.
    pub(super) instead: Option<Route>,
    /// Packets over the socket until memory is offered again.
    pub(super) pause: u8,
    /// True if large messages have passed since the link was last idle.
    pub(super) streaming: bool,
    /// True if the link is in the list of links to check for idleness.
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
    /// The peer's backlog is full; connecting is retried.
    Dialing(Dialing),
    /// Connected, perhaps with memory offered; not answered yet.
    Greeting(Option<Memory>),
    /// Accepted; nothing received yet.
    Accepted,
    /// Carries packets over its socket.
    Plain,
    /// Memory has been offered and not answered yet: receives over the socket, sends nothing.
    Offered(Memory),
    /// Carries packets through its rings.
    Up(Link),
    /// Between two states, or removed.
    Changing,
}

/// Address to retry, and the time of the next attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialing {
    pub(super) board: u32,
    pub(super) endpoint: u32,
    pub(super) next_try: Instant,
    pub(super) pause: Duration,
}

/// Memory with unused rings.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) geometry: Geometry,
}

/// Rings of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) consumer: Consumer,
    pub(super) producer: Producer,
    /// True if the link is active: every poll looks at it.
    pub(super) active: bool,
    /// Number of packets that the peer sent through its ring before Suspend; `None` before that. Once they are taken,
    /// the link continues over its socket.
    pub(super) suspended: Option<u64>,
    /// Consecutive polls of all links that found no packet.
    pub(super) idle: u32,
    /// Chunks of large messages taken, counted up to [`STREAM`](super::STREAM).
    pub(super) chunks: u8,
    /// Packets sent and taken at the last check that found a change, and its time.
    pub(super) seen: Option<((u64, u64), Instant)>,
    /// Memory of the rings.
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

    /// Returns true if the link waits for room or has hung up, which its ring does not show.
    #[inline]
    pub(super) fn is_odd(&self) -> bool {
        self.blocked | self.socket.is_none()
    }

    /// Returns whether every poll looks at the link's ring.
    pub(super) fn is_active(&self) -> bool {
        matches!(&self.state, State::Up(link) if link.active)
    }

    /// Makes the link idle; the caller removes it from the active links.
    pub(super) fn deactivate(&mut self) {
        if let Some(link) = self.up() {
            link.active = false;
        }
    }

    /// Returns true if only wake-ups and control messages come over the socket: the link has rings, and has not sent
    /// Suspend.
    pub(super) fn hears_control_only(&self) -> bool {
        matches!(&self.state, State::Up(link) if !link.producer.is_retired())
    }

    /// Returns the rings, if the link has some.
    #[inline]
    pub(super) fn up(&mut self) -> Option<&mut Link> {
        match &mut self.state {
            State::Up(link) => Some(link),
            _ => None,
        }
    }

    /// Prepares for sleeping, or undoes it. A barrier and [`Entry::wants_poll`] follow.
    pub(super) fn set_asleep(&mut self, asleep: bool) {
        let State::Up(link) = &mut self.state else {
            return;
        };
        self.unread += u8::from(link.consumer.set_sleeping(asleep));
        if self.blocked {
            self.unread += u8::from(link.producer.set_waiting(asleep));
        }
    }

    /// Retries a packet that found no room while another thread sleeps: asks the peer to wake the sleeper when there is
    /// room, unless there is some already.
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

    /// Handles a report of new data. Returns true if it is only a wake-up, as sent by a peer that has seen us sleep,
    /// which may stay unread.
    pub(super) fn is_doorbell(&mut self) -> bool {
        let State::Up(link) = &mut self.state else {
            return false;
        };
        // An expected control message may have arrived with a wake-up.
        if link.producer.is_retired() || link.consumer.is_left() {
            return false;
        }
        self.unread += u8::from(link.consumer.is_rung()) + u8::from(link.producer.is_rung());
        self.told = self.told.saturating_add(1);
        self.told <= self.unread && self.unread < UNREAD_MAX
    }

    /// Returns true if the peer will ring for its next packet.
    pub(super) fn is_asleep(&mut self) -> bool {
        self.up().is_some_and(|link| link.consumer.is_sleeping())
    }

    /// Returns true if a poll would find something to do with this link.
    pub(super) fn wants_poll(&mut self) -> bool {
        let (blocked, hung_up) = (self.blocked, self.socket.is_none());
        self.up().is_some_and(|link| {
            link.consumer.is_ready()
                || hung_up
                || (blocked && link.producer.has_room() != Ok(false))
        })
    }

    /// Tells the peer that packets go over the socket from now on, and stops sending until its answer. Returns false if
    /// that cannot be sent now, or has been already.
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

    /// Tells the peer of an established link that it is closed on purpose.
    pub(super) fn say_bye(&self) {
        if let State::Plain | State::Offered(_) | State::Up(_) = &self.state
            && let Some(socket) = &self.socket
        {
            // On failure the peer takes this side for dead, which makes little difference.
            let _ = socket.send(&ControlMessage::Bye.encode(), None);
        }
    }

    /// Returns the reason for ending a link that has hung up; `None` while its ring is not empty.
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

/// Maximum number of wake-ups that a link leaves unread: reading them costs a system call, keeping one less than a KiB
/// of kernel memory.
pub(super) const UNREAD_MAX: u8 = 8;

impl Memory {
    /// Creates memory, and the descriptor to send to the peer.
    pub(super) fn make(geometry: Geometry) -> io::Result<(Self, CloseOnForkFd)> {
        let (region, fd) = Region::create(c"mx-local", geometry.total())?;
        Ok((Self { region, geometry }, fd))
    }
}

impl State {
    /// Returns true for a state past the handshake and without memory.
    pub(super) fn is_asleep(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Returns the bytes of shared memory that the state has mapped.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Greeting(Some(memory)) | Self::Offered(memory) => memory.region.size(),
            Self::Up(link) => link.region.size(),
            _ => 0,
        }
    }
}

// All memory of a link beside its rings and the socket. With assertions pointers have bounds (`shared`).
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<Entry>() <= 512);

impl Link {
    /// Creates the rings of a link in `memory`, as `side` 0 (initiator) or 1 (acceptor). `peer_asymmetric`: the peer's
    /// type of barrier, see [`barrier`].
    pub(super) fn new(memory: Memory, side: u8, peer_asymmetric: bool) -> Self {
        let Memory { region, geometry } = memory;
        let side = usize::from(side & 1);
        let asymmetric = peer_asymmetric && barrier::is_asymmetric();
        debug_assert_eq!(region.size(), geometry.total());
        // SAFETY: the region lives as long as the rings, and no packet is lent when it is freed (`Round::forget_lent`).
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

    /// Returns the numbers of packets sent and taken.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.producer.sent(), self.consumer.taken())
    }
}
