//! Record of one operation, and its states.
//!
//! ```text
//!   send     Queued --offer--> Offered --pull--> Serving --notify--> Done
//!              |                  `--ended, may be read--'--> Withdrawn --notify--> Done
//!              |  `--port takes all data--> Done
//!              `-----port takes a part of the data--------> Draining --> Done
//!   receive  Posted --matches an offer--> Pulling --all bytes here--> Done
//!              ^  `--matches data--> Done    |
//!              `---- sender withdraws -------'
//!   access   Lending --all bytes sent--> Done             a peer's get; its put is Pulling
//!   connect  Connecting --reply--> Done
//!   pending  Pending --> Queued, Draining, Posted, Pulling or Done
//!
//!   Done --the owner frees it--> Free
//! ```
//!
//! [`crate::op_states`] has all transitions as a table. A record has memory exactly in the states that need it.
//!
//! Out of scope: lists' heads, the wire, ports.

use super::list::{Links, ListKind, NONE};
use super::parts::{NO_LINK, Parts};
use crate::ids::{MatchBits, MatchMask, RemoteId};
use crate::memory::Memory;
use crate::op_states::{self, Stage};
use crate::port::RemoteKey;
use crate::queues::QueuePosition;
use crate::regions::RegionKey;
use crate::status::Status;
use crate::timeouts::Timeout;
use crate::timer::TimerId;
use std::mem::ManuallyDrop;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

/// Stands for the remote of an operation that has none.
pub(crate) const NO_REMOTE: RemoteId = RemoteId::new(u32::MAX, 0);

/// Time for the receiver of a [`State::Withdrawn`] send to stop reading. Its last reads end within milliseconds, and
/// its answer follows them; the death of a process is noticed sooner.
const WITHDRAWN_MAX: Duration = Duration::from_secs(2);

/// Slot of the operation table: the state, remote, match bits and timeouts of one send, receive or connect, or a free
/// slot. `M` is the memory that the operation sends from or receives into.
#[derive(Debug)]
pub struct Record<M> {
    /// Generation of the operation's id; 0: the slot is free.
    pub(super) generation: u32,
    /// Links in the list of its state; see [`ListKind`].
    pub(crate) links: Links,
    pub(crate) remote_links: Links,
    /// Remote of the operation, [`NO_REMOTE`] while it is not known. The operation is in the remote's list, except a
    /// connect.
    pub(crate) remote: RemoteId,
    /// Whether the operation is a receive for messages of its remote only, matched or not.
    pub(crate) from_one: bool,
    pub(crate) timer: Option<TimerId>,
    /// Time-out of a matched operation, or of a connect.
    pub(crate) timeout: Timeout,
    /// Time-out before the match: of a send that waits for its turn and its receiver, or a receive that waits for a
    /// message.
    pub(crate) waiting: Timeout,
    /// Whether the operation has made progress since its timer was last checked.
    pub(crate) touched: bool,
    pub(crate) bits: MatchBits,
    pub(crate) state: State<M>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Message with its data if it is small and there are credits, otherwise an offer.
    Plain,
    /// Always an offer.
    Synchronous,
    /// Message with its data, paid for with credits: a copy, complete for its sender.
    Copied,
}

/// State of an operation. The tag has a byte of its own, so comparing it is cheap.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum State<M> {
    /// The slot is free.
    Free,
    /// The operation's remote is not known yet. `memory` is `None` only while the operation is being activated, or
    /// after that has failed.
    Pending { memory: Option<M>, receives: bool },
    /// A send that waits for its turn in its remote's queue.
    Queued { memory: M, stand: QueuePosition },
    /// A send with its data, of which the port has taken a part.
    Draining { memory: M, form: Form },
    /// A send that the receiver knows of.
    Offered {
        memory: M,
        registered: Option<RemoteKey>,
    },
    /// A send whose data the receiver has begun to request.
    Serving {
        memory: M,
        registered: Option<RemoteKey>,
    },
    /// A send that ends with `status` once the receiver no longer reads its memory.
    Withdrawn {
        memory: M,
        registered: RemoteKey,
        status: Status,
    },
    /// A receive that no message has matched, in the index of posted receives.
    Posted {
        memory: M,
        position: Position,
        head: BucketHead,
    },
    /// A receive whose data is being transferred.
    Pulling(Pulling<M>),
    /// A part of a peer's get, with the memory of the whole get; see `regions`.
    Lending {
        memory: M,
        region: RegionKey,
        /// Reader's id of its get.
        recv_id: u64,
        /// Offset of the part's first byte, and the offset after its last.
        part: (u32, u32),
    },
    /// A connect, in its remote's list.
    Connecting { key: u32 },
    /// The operation has completed, and the owner has to free it.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) mask: MatchMask,
    /// Number in the order of posting.
    pub(crate) order: NonZeroU64,
}

/// Links of the oldest receive with its bits and mask; see `matching/posted.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketHead {
    /// Next head in the bucket.
    pub(crate) next: u32,
    /// Youngest receive with the same bits.
    pub(crate) last: u32,
}

/// State of a receive that has matched an offer, or a message whose data is arriving.
#[derive(Debug)]
pub(crate) struct Pulling<M> {
    pub(crate) memory: M,
    /// Sender's id of the message; [`STREAMED`] or [`REGION`] if there is none.
    pub(crate) send_id: u64,
    /// Match bits from the sender; for a peer's put, the key of the region.
    pub(crate) bits: MatchBits,
    /// Length of the message in bytes.
    pub(crate) length: u32,
    /// Number of bytes to receive: as many as fit.
    pub(crate) wanted: u32,
    /// Number of bytes that have been requested, from the beginning.
    pub(crate) requested: u32,
    /// Parts of the requested bytes that have not arrived.
    pub(crate) parts: Parts,
    /// Key for a remote read; `None`: the message is pulled.
    pub(crate) key: Option<Box<RemoteKey>>,
    /// Whether the port is reading the sender's memory.
    pub(crate) reading: bool,
    /// The sender has withdrawn the message while the port reads it; true: the sender waits for an answer. `None`: not
    /// withdrawn.
    pub(crate) withdrawn: Option<bool>,
    /// Position among the posted receives; `None` if the receive was made for this message.
    pub(crate) position: Option<Position>,
    /// Purpose of an internal receive; `None` for the owner's.
    pub(crate) fetch: Option<Fetch>,
}

/// Sender's id in a receive that requests nothing from the sender.
pub(crate) const STREAMED: u64 = u64::MAX;

/// Sender's id in a get.
pub(crate) const REGION: u64 = u64::MAX - 1;

/// Purpose of an internal receive: the unexpected message that it fetches. An `Option` of it has four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fetch(NonZeroU32);

impl Fetch {
    /// An access of a peer to a region, no message. No table has so many slots that the last number is one.
    pub(crate) const ACCESS: Self = Self(NonZeroU32::MAX);

    /// Returns the purpose of fetching the unexpected message at this slot.
    pub(crate) fn of(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    pub(crate) fn place(self) -> u32 {
        self.0.get() - 1
    }
}

impl BucketHead {
    /// Links of a receive that is alone in its bucket.
    #[inline]
    pub(crate) const fn alone(place: u32) -> Self {
        Self {
            next: NONE,
            last: place,
        }
    }

    /// Links of a receive that is not the oldest with its bits.
    pub(crate) const NONE: Self = Self {
        next: NONE,
        last: NONE,
    };
}

impl<M: Memory> Pulling<M> {
    /// Makes the state in which nothing has been requested. `offer`: the sender's id of the message, and the key for
    /// reading it.
    pub(crate) fn new(
        memory: M,
        (send_id, key): (u64, Option<RemoteKey>),
        bits: MatchBits,
        length: u32,
        position: Option<Position>,
    ) -> Self {
        let room = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        Self {
            memory,
            send_id,
            bits,
            length,
            wanted: length.min(room),
            requested: 0,
            parts: Parts::default(),
            key: key.map(Box::new),
            reading: false,
            withdrawn: None,
            position,
            fetch: None,
        }
    }

    /// Makes the state of a message all of whose bytes have arrived.
    pub(crate) fn whole(memory: M, bits: MatchBits, length: u32) -> Self {
        let mut whole = Self::new(memory, (STREAMED, None), bits, length, None);
        whole.requested = whole.wanted;
        whole
    }

    /// Returns whether this is a get from a peer's registered memory.
    pub(crate) fn is_get(&self) -> bool {
        self.send_id == REGION
    }

    pub(crate) fn missing(&self) -> u32 {
        self.wanted - self.requested + self.parts.awaited(NO_LINK)
    }

    /// Removes up to `most` bytes that are still to be requested, and returns their range: first those of a lost link,
    /// then the rest.
    pub(crate) fn take_missing(&mut self, most: u32) -> Option<(u32, u32)> {
        self.parts.take_unasked(most).or_else(|| {
            let at = self.requested;
            self.requested += most.min(self.wanted - at);
            (self.requested > at).then_some((at, self.requested))
        })
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.requested == self.wanted && self.parts.open().is_empty() && !self.reading
    }
}

impl<M> Default for Record<M> {
    fn default() -> Self {
        Self {
            generation: 0,
            links: Links::ALONE,
            remote_links: Links::ALONE,
            remote: NO_REMOTE,
            from_one: false,
            timer: None,
            timeout: Timeout::FOR_EVER,
            waiting: Timeout::FOR_EVER,
            touched: false,
            bits: MatchBits(0),
            state: State::Free,
        }
    }
}

impl<M> Record<M> {
    #[inline]
    pub(super) fn links_mut(&mut self, strand: ListKind) -> &mut Links {
        match strand {
            ListKind::State => &mut self.links,
            ListKind::Remote => &mut self.remote_links,
        }
    }

    #[inline]
    pub(super) fn links(&self, strand: ListKind) -> Links {
        match strand {
            ListKind::State => self.links,
            ListKind::Remote => self.remote_links,
        }
    }

    #[inline(always)]
    pub(crate) fn begin(&mut self, state: State<M>) {
        op_states::note(Stage::New, state.stage());
        self.state.begin(state);
    }

    #[inline(always)]
    pub(super) fn empty(&mut self) {
        debug_assert!(
            matches!(self.state, State::Done),
            "it is {}",
            self.state.stage()
        );
        self.generation = 0;
        self.links = Links::ALONE;
        self.state.begin(State::Free);
    }

    pub(crate) fn limit(&self) -> Timeout {
        if matches!(self.state, State::Withdrawn { .. }) {
            Timeout::new(Some(WITHDRAWN_MAX))
        } else if self.state.is_waiting() {
            self.waiting
        } else {
            self.timeout
        }
    }

    /// Ends a receive whose message was withdrawn, after `fill` has written another message into its memory.
    #[cold]
    pub(super) fn finish_pulling(&mut self, fill: impl FnOnce(&mut M) -> usize) -> usize {
        let filled = match &mut self.state {
            State::Pulling(pulling) => fill(&mut pulling.memory),
            _ => 0,
        };
        self.state = State::Done;
        filled
    }

    /// Moves the memory into the next state. Does nothing if there is no memory.
    pub(crate) fn become_next(&mut self, next: impl FnOnce(M) -> State<M>) {
        let stage = self.state.stage();
        if let Some(memory) = std::mem::replace(&mut self.state, State::Done).into_memory() {
            self.state = next(memory);
            op_states::note(stage, self.state.stage());
        } else {
            debug_assert!(false, "{stage} has no memory");
        }
    }
}

impl<M> State<M> {
    /// Replaces the state. The old one must have nothing to drop; only debug builds check that.
    #[inline(always)]
    pub(super) fn begin(&mut self, next: Self) {
        let before = ManuallyDrop::new(std::mem::replace(self, next));
        debug_assert!(matches!(*before, Self::Free | Self::Done));
    }

    /// Ends a posted receive, dropping only its memory, and only if that does anything: assigning `Done` would generate
    /// code to drop every state.
    #[inline(always)]
    pub(super) fn end_posted(&mut self)
    where
        M: Memory,
    {
        match self {
            Self::Posted { memory, .. } if memory.is_plain() => {
                let _ = ManuallyDrop::new(std::mem::replace(self, Self::Done));
            }
            _ => self.drop_posted(),
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_posted(&mut self) {
        debug_assert!(
            matches!(self, Self::Posted { .. }),
            "{} is not posted",
            self.stage()
        );
        *self = Self::Done;
    }

    #[inline]
    pub(crate) fn memory(&self) -> Option<&M> {
        match self {
            Self::Queued { memory, .. }
            | Self::Draining { memory, .. }
            | Self::Offered { memory, .. }
            | Self::Serving { memory, .. }
            | Self::Withdrawn { memory, .. }
            | Self::Posted { memory, .. }
            | Self::Lending { memory, .. }
            | Self::Pulling(Pulling { memory, .. }) => Some(memory),
            Self::Pending { memory, .. } => memory.as_ref(),
            Self::Free | Self::Connecting { .. } | Self::Done => None,
        }
    }

    /// Returns the present or former position of a receive among the posted ones.
    #[inline]
    pub(crate) fn position(&self) -> Option<Position> {
        match self {
            Self::Posted { position, .. } => Some(*position),
            Self::Pulling(pulling) => pulling.position,
            _ => None,
        }
    }

    /// Returns the links of a posted receive as the oldest with its bits.
    #[inline]
    pub(crate) fn head(&self) -> Option<BucketHead> {
        match self {
            Self::Posted { head, .. } => Some(*head),
            _ => None,
        }
    }

    /// Sets the links of a posted receive as the oldest with its bits. Does nothing in other states.
    #[inline]
    pub(crate) fn set_head(&mut self, next: BucketHead) {
        match self {
            Self::Posted { head, .. } => *head = next,
            _ => debug_assert!(false, "{} has no head", self.stage()),
        }
    }

    pub(crate) fn into_memory(self) -> Option<M> {
        match self {
            Self::Queued { memory, .. }
            | Self::Draining { memory, .. }
            | Self::Offered { memory, .. }
            | Self::Serving { memory, .. }
            | Self::Withdrawn { memory, .. }
            | Self::Posted { memory, .. }
            | Self::Lending { memory, .. }
            | Self::Pulling(Pulling { memory, .. }) => Some(memory),
            Self::Pending { memory, .. } => memory,
            Self::Free | Self::Connecting { .. } | Self::Done => None,
        }
    }

    /// Returns the size of the operation's memory in bytes.
    #[inline]
    pub(crate) fn room(&self) -> u32
    where
        M: Memory,
    {
        let room = self.memory().map_or(0, Memory::len);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Returns whether nothing has matched the operation yet.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self,
            Self::Pending { .. } | Self::Queued { .. } | Self::Offered { .. } | Self::Posted { .. }
        )
    }

    /// Returns the key for the receiver's reads of a send's memory.
    pub(crate) fn registered(&self) -> Option<RemoteKey> {
        match self {
            Self::Offered { registered, .. } | Self::Serving { registered, .. } => *registered,
            Self::Withdrawn { registered, .. } => Some(*registered),
            _ => None,
        }
    }

    /// Returns whether the port is reading the message from the sender's memory.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self, Self::Pulling(pulling) if pulling.reading)
    }

    /// Returns the purpose of an internal operation, [`Fetch::ACCESS`] for an access to a region; `None` for the
    /// owner's.
    #[inline]
    pub(crate) fn fetches(&self) -> Option<Fetch> {
        match self {
            Self::Pulling(pulling) => pulling.fetch,
            Self::Lending { .. } => Some(Fetch::ACCESS),
            _ => None,
        }
    }

    /// Returns whether this is a copy, whose send is complete for its owner.
    #[inline]
    pub(crate) fn is_copy(&self) -> bool {
        let form = match self {
            Self::Queued { stand, .. } => stand.form,
            Self::Draining { form, .. } => *form,
            _ => return false,
        };
        form == Form::Copied
    }

    /// Returns whether progress restarts the time-out.
    pub(crate) fn is_renewed(&self) -> bool {
        // A sender whose message is fetched holds credits of the pool: for this time at most.
        !matches!(self, Self::Withdrawn { .. }) && self.fetches().is_none()
    }

    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::Free => Stage::New,
            Self::Pending { .. } => Stage::Pending,
            Self::Queued { .. } => Stage::Queued,
            Self::Draining { .. } => Stage::Draining,
            Self::Offered { .. } => Stage::Offered,
            Self::Serving { .. } => Stage::Serving,
            Self::Withdrawn { .. } => Stage::Withdrawn,
            Self::Posted { .. } => Stage::Posted,
            Self::Pulling(_) => Stage::Pulling,
            Self::Lending { .. } => Stage::Lending,
            Self::Connecting { .. } => Stage::Connecting,
            Self::Done => Stage::Done,
        }
    }
}
