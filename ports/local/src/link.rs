//! One link, in whatever state it is.
//!
//! ```text
//!   we connect:    Dialing --room in the backlog--> Greeting --Welcome--> Up
//!   they connect:                 Accepted ---------Hello + memory------> Up
//!
//!   Up:  hung up (no socket) --ring drained--> down: Closed or Reset
//!        failed (nonsense in the ring)-------> down: Protocol
//!        idle for long --Asking--> Asleep --Waking--> Up          `link_states` has all of it
//! ```
//!
//! Owns: what each state needs, and nothing of the other states.
//! Knows nothing of: who looks at it when.

use super::barrier;
use super::handshake::{Traits, Word};
use super::layout::{Geometry, REST_AT};
use super::link_states::Stage;
use super::rest::{self, Counts, Rest};
use super::ring::{Consumer, Corrupt, Producer};
use super::socket::Socket;
use mx_port_base::sealed::Region;
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::{Instant, Route};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A link and what the endpoint attached to it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The user at the other end, as the kernel says.
    pub(super) user: u32,
    /// Whose share it counts against.
    pub(super) source: Source,
    /// The peer began it, and the endpoint has not bound it.
    pub(super) stranger: bool,
    pub(super) cookie: u64,
    /// The endpoint has heard of it: it started the link, or had a packet from it.
    pub(super) known: bool,
    /// The endpoint was told "no room" and waits for `on_writable`.
    pub(super) blocked: bool,
    /// The peer has said that it closes the link on purpose, otherwise than in the ring.
    pub(super) bye: bool,
    /// It is in the list of links that are about to go down.
    pub(super) doomed: bool,
    /// Wake-ups that have come and not been read. Each is for once that we said we slept, so the socket
    /// never comes to be full of them.
    pub(super) unread: u8,
    /// How often the kernel has told of something new to read since.
    pub(super) told: u8,
    /// It is past the handshake and no poll looks at it: its doorbells and messages are listened to.
    pub(super) idle: bool,
    /// What the peer said about itself.
    pub(super) peer: Traits,
    /// 0: we started the link, 1: the peer did.
    pub(super) side: u8,
    /// Where else to go if the peer has no room for a link over memory.
    pub(super) instead: Option<Route>,
    /// When it was first found to have memory.
    pub(super) held_since: Option<Instant>,
    /// Since when others want its memory, and it has not been given back.
    pub(super) called: Option<Instant>,
    /// Its turn to get memory has come, and the peer had none.
    pub(super) first: bool,
    /// Where it is in the list of links that may fall asleep.
    pub(super) listed: Option<u32>,
    /// `None` once the peer has hung up.
    pub(super) socket: Option<Socket>,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) enum State {
    /// The peer's backlog is full; tried again from time to time.
    Dialing(Dialing),
    /// Connected, memory handed over, no answer yet.
    Greeting(Memory),
    /// Somebody connected and has said nothing yet.
    Accepted,
    /// Carries packets.
    Up(Link),
    /// The same, but we have asked the peer to sleep; the link is idle and nothing is in its rings.
    Asking(Link),
    /// Without memory.
    Asleep,
    /// Without memory, and in the queue of those that want some.
    Wanted,
    /// Asleep, memory handed over, no answer yet.
    Waking(Memory),
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

/// Memory with rings in it, that nobody uses yet.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) geometry: Geometry,
}

/// A link that carries packets.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) consumer: Consumer,
    pub(super) producer: Producer,
    /// Something was wrong with what the peer wrote.
    pub(super) failed: bool,
    /// Polls of all links in a row that found nothing.
    pub(super) idle: u32,
    /// Packets sent and taken when it was last found to have moved, and when that was.
    pub(super) seen: Option<(Counts, Instant)>,
    /// 0 or 1; see [`Entry::side`].
    side: usize,
    /// What the rings point into.
    region: Region,
}

impl Entry {
    pub(super) fn new(socket: Socket, state: State, ours: bool) -> Self {
        Self {
            user: 0,
            source: Source::TRUSTED,
            stranger: false,
            cookie: 0,
            known: ours,
            blocked: false,
            bye: false,
            doomed: false,
            unread: 0,
            told: 0,
            idle: false,
            peer: Traits::default(),
            side: u8::from(!ours),
            instead: None,
            held_since: None,
            called: None,
            first: false,
            listed: None,
            socket: Some(socket),
            state,
        }
    }

    /// It waits for room, or is over: that is not to be seen in its ring.
    #[inline]
    pub(super) fn is_odd(&self) -> bool {
        let failed = matches!(&self.state, State::Up(link) if link.failed);
        self.blocked | failed | self.socket.is_none()
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
        // Before and not after: the next one may be for less room than a packet takes, and then nobody
        // rings for the rest.
        if asleep && self.unread >= UNREAD_MAX {
            self.silence();
        }
        let State::Up(link) = &mut self.state else {
            return;
        };
        self.unread += u8::from(link.consumer.set_sleeping(asleep));
        if self.blocked {
            self.unread += u8::from(link.producer.set_waiting(asleep));
        }
    }

    /// There is something new to read. True: it is a wake-up and nothing else, as it comes from a peer
    /// that has seen that we sleep.
    pub(super) fn is_doorbell(&mut self) -> bool {
        let State::Up(link) = &mut self.state else {
            return false;
        };
        self.unread += u8::from(link.consumer.is_rung()) + u8::from(link.producer.is_rung());
        self.told = self.told.saturating_add(1);
        self.told <= self.unread
    }

    /// Takes in what the peer has rung.
    pub(super) fn silence(&mut self) {
        self.told = 0;
        if std::mem::take(&mut self.unread) != 0
            && let Some(socket) = &self.socket
        {
            socket.silence();
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

    /// Why a new link is over for which there is no memory.
    pub(super) fn no_room(&self) -> LinkDown {
        self.instead
            .map_or(LinkDown::Unreachable, LinkDown::Elsewhere)
    }

    /// Why a new link is over that the peer has dropped without a word. If it is dead, nobody is there
    /// the other way either; else it may have been short of something, as older ones do not say.
    pub(super) fn dropped(&self) -> LinkDown {
        self.instead.map_or(LinkDown::Refused, LinkDown::Elsewhere)
    }

    /// Tells the peer that the link is closed on purpose, if there has been one.
    pub(super) fn say_bye(&self) {
        if let State::Up(link) | State::Asking(link) = &self.state {
            link.producer.close();
        }
        if let State::Asking(_) | State::Asleep | State::Wanted | State::Waking(_) = &self.state
            && let Some(socket) = &self.socket
        {
            // Otherwise it takes us for dead, which makes no great difference.
            let _ = socket.send(&Word::Bye.encode(), None);
        }
    }

    /// Why the link is over, once nothing more can be taken from its ring.
    pub(super) fn verdict(&mut self) -> Option<LinkDown> {
        let (hung_up, bye) = (self.socket.is_none(), self.bye);
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
            Ok(None) if bye || link.consumer.is_closed() => Some(LinkDown::Closed),
            Ok(None) => Some(LinkDown::Reset),
        }
    }
}

/// Wake-ups that a link leaves unread while it carries packets: reading them costs a system call, and
/// the kernel less than a KiB each to keep them.
pub(super) const UNREAD_MAX: u8 = 8;

impl Memory {
    /// New memory of ours, with the descriptor to hand over.
    pub(super) fn make(geometry: Geometry) -> io::Result<(Self, OwnedFd)> {
        let (region, fd) = Region::create(c"mx-local", geometry.total())?;
        Ok((Self { region, geometry }, fd))
    }
}

impl State {
    /// Its name in [`link_states`](super::link_states). `None` between two states.
    pub(super) fn stage(&self) -> Option<Stage> {
        Some(match self {
            Self::Dialing(_) => Stage::Dialing,
            Self::Greeting(_) => Stage::Greeting,
            Self::Accepted => Stage::Accepted,
            Self::Up(_) => Stage::Up,
            Self::Asking(_) => Stage::Asking,
            Self::Asleep => Stage::Asleep,
            Self::Wanted => Stage::Wanted,
            Self::Waking(_) => Stage::Waking,
            Self::Changing => return None,
        })
    }

    /// Bytes of shared memory it has mapped.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Greeting(memory) | Self::Waking(memory) => memory.region.size(),
            Self::Up(link) | Self::Asking(link) => link.region.size(),
            _ => 0,
        }
    }
}

impl Link {
    /// A link over `memory`, of which we are the `side` (0 initiator, 1 acceptor).
    /// `peer_asymmetric`: what the peer said about itself, see [`barrier`].
    pub(super) fn new(memory: Memory, side: u8, peer_asymmetric: bool) -> Self {
        let Memory { region, geometry } = memory;
        let side = usize::from(side & 1);
        let asymmetric = peer_asymmetric && barrier::is_asymmetric();
        debug_assert_eq!(region.size(), geometry.total());
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
            idle: 0,
            seen: None,
            side,
            region,
        }
    }

    /// Brings it to rest: nothing is sent any more, and the peer sends what it has room for at most.
    pub(super) fn hold(&mut self) {
        self.producer.hold();
        self.consumer.hold();
    }

    /// Takes [`Link::hold`] back. True when the peer waits for room and has to be woken.
    pub(super) fn let_go(&mut self) -> bool {
        self.producer.let_go();
        self.consumer.let_go()
    }

    /// [`Link::hold`] has been called and not taken back.
    pub(super) fn is_held(&self) -> bool {
        self.producer.is_held()
    }

    /// How far it has got.
    pub(super) fn counts(&self) -> Counts {
        Counts {
            sent: self.producer.sent(),
            taken: self.consumer.taken(),
        }
    }

    /// What the two sides have agreed about sleeping.
    pub(super) fn rest(&self) -> Rest {
        rest::look(self.word(), self.side, self.counts())
    }

    /// [`rest::ask`].
    pub(super) fn ask(&self) -> bool {
        rest::ask(self.word(), self.side, self.counts())
    }

    /// [`rest::take_back`]. Nothing has been sent or taken since [`Link::ask`].
    pub(super) fn take_back(&self) -> Result<bool, Corrupt> {
        rest::take_back(self.word(), self.side, self.counts())
    }

    /// [`rest::agree`].
    pub(super) fn agree(&self) -> bool {
        rest::agree(self.word(), self.side, self.counts())
    }

    /// [`rest::refuse`].
    pub(super) fn refuse(&self) {
        rest::refuse(self.word(), self.side);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the word lies in the first page, which every geometry has, aligned to 8; atomics
        // may be shared with others who write them, and the mapping lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.region.base().add(REST_AT).cast()) }
    }
}
