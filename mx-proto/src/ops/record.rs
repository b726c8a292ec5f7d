//! The life of one operation.
//!
//! ```text
//!   send     Queued --offer--> Offered --pull--> Serving --notify--> Done
//!              |                  `--ended, may be read--'--> Withdrawn --notify--> Done
//!              |  `--data all taken--> Done
//!              `-----data taken in part by the port-------> Draining --> Done
//!   receive  Posted --matches an offer--> Pulling --all there--> Done
//!              ^  `--matches data--> Done    |
//!              `---- sender withdraws -------'
//!   access   Lending --all has gone--> Done            a peer's get; its put is Pulling
//!   connect  Connecting --reply--> Done
//!   pending   Pending --> Queued, Draining, Posted, Pulling or Done
//!
//!   Done --the owner has seen it--> Free
//! ```
//!
//! [`crate::op_states`] has all transitions as a table. A record has memory in the states that need
//! it and in no other.
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

/// The remote of an operation that has none.
pub(crate) const NO_REMOTE: RemoteId = RemoteId::new(u32::MAX, 0);

/// Time for the receiver of a [`State::Withdrawn`] send to stop reading. Its last reads end in milliseconds, and
/// what it says meanwhile goes behind them; a process that dies is missed sooner.
const WITHDRAWN_MAX: Duration = Duration::from_secs(2);

/// A slot of the operation table: the state, remote, match bits and timeouts of one send, receive or
/// connect, or a free slot (generation 0). `M` is the memory that it sends from or receives into.
#[derive(Debug)]
pub struct Record<M> {
    /// 0: there is no operation.
    pub(super) generation: u32,
    /// In the list that its state says; see [`ListKind`].
    pub(crate) links: Links,
    pub(crate) remote_links: Links,
    /// The other side, [`NO_REMOTE`] while it is not known. It is among its kin, but for connects.
    pub(crate) remote: RemoteId,
    /// The operation is a receive for messages of its remote only, whether it has matched one or not.
    pub(crate) from_one: bool,
    pub(crate) timer: Option<TimerId>,
    /// Once it has been matched, or if it is a connect.
    pub(crate) timeout: Timeout,
    /// Before that: a send's wait for its turn and its receiver, a receive's for a message.
    pub(crate) waiting: Timeout,
    /// Something has happened since the timer was last looked at.
    pub(crate) touched: bool,
    pub(crate) bits: MatchBits,
    pub(crate) state: State<M>,
}

/// The form in which a queued message is sent in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// The message goes with its data if it is small and there is credit, as an offer otherwise.
    Plain,
    /// As an offer.
    Synchronous,
    /// The message goes with its data, which has been paid for: it is a copy, and complete for its sender.
    Copied,
}

/// The state of an operation. Its tag has a byte of its own, so that comparing it is cheap.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum State<M> {
    /// There is none.
    Free,
    /// Its remote is not known yet. Without memory only while it is activated, or after that has
    /// failed.
    Pending { memory: Option<M>, receives: bool },
    /// A send waiting for its turn, in its remote's queue.
    Queued { memory: M, stand: QueuePosition },
    /// A send with its data of which the port has taken a part.
    Draining { memory: M, form: Form },
    /// A send the receiver knows of.
    Offered {
        memory: M,
        registered: Option<RemoteKey>,
    },
    /// A send whose data the receiver has begun to ask for.
    Serving {
        memory: M,
        registered: Option<RemoteKey>,
    },
    /// A send that is to end like this, when the receiver does not read its memory any more.
    Withdrawn {
        memory: M,
        registered: RemoteKey,
        status: Status,
    },
    /// A receive no message has matched, among those of the same bits.
    Posted {
        memory: M,
        position: Position,
        head: BucketHead,
    },
    /// A receive whose data is on its way.
    Pulling(Pulling<M>),
    /// A part of a get by a peer, with the memory of all of it; see `regions`.
    Lending {
        memory: M,
        region: RegionKey,
        /// The reader's id of its get.
        recv_id: u64,
        /// Offset of the first byte of the part, and of the one behind it.
        part: (u32, u32),
    },
    /// A connect, among its remote's.
    Connecting { key: u32 },
    /// The operation is over, and its owner's to free.
    Done,
}

/// The position of a receive among the posted ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) mask: MatchMask,
    /// In the order of posting.
    pub(crate) order: NonZeroU64,
}

/// The links of the oldest receive of its bits and mask to the others; see `matching/posted.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketHead {
    /// The next oldest one in its bucket.
    pub(crate) next: u32,
    /// The youngest of its own bits.
    pub(crate) last: u32,
}

/// A receive that has matched an offer, or a message that is coming with its data.
#[derive(Debug)]
pub(crate) struct Pulling<M> {
    pub(crate) memory: M,
    /// The sender's id of it.
    pub(crate) send_id: u64,
    /// The sender's match bits; of a peer's put the key of the region.
    pub(crate) bits: MatchBits,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Bytes we want of it: what fits.
    pub(crate) wanted: u32,
    /// Bytes that have been asked for, from its beginning.
    pub(crate) requested: u32,
    /// Parts of these bytes that have not come.
    pub(crate) parts: Parts,
    /// The key for a remote read.
    pub(crate) key: Option<Box<RemoteKey>>,
    /// The port is reading the sender's memory.
    pub(crate) reading: bool,
    /// The sender has called the message off while we are reading it; true: it waits for our end.
    pub(crate) withdrawn: Option<bool>,
    /// Its position among the posted receives; `None` if it was made for this message.
    pub(crate) position: Option<Position>,
    /// The purpose of a receive of the endpoint's own.
    pub(crate) fetch: Option<Fetch>,
}

/// The id of a message at its sender, for a receive that asks for nothing of it.
pub(crate) const STREAMED: u64 = u64::MAX;

/// The id of a message at its sender, for a get.
pub(crate) const REGION: u64 = u64::MAX - 1;

/// A message that the endpoint fetches for itself. An option of it has four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fetch(NonZeroU32);

impl Fetch {
    /// No message: an access of a peer to a region. There are never so many places that the last number is one.
    pub(crate) const ACCESS: Self = Self(NonZeroU32::MAX);

    /// The unexpected message at this place.
    pub(crate) fn of(place: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(place))
    }

    pub(crate) fn place(self) -> u32 {
        self.0.get() - 1
    }
}

impl BucketHead {
    /// The links of a receive that is alone in its bucket.
    #[inline]
    pub(crate) const fn alone(place: u32) -> Self {
        Self {
            next: NONE,
            last: place,
        }
    }

    /// The place of a receive that is not the oldest.
    pub(crate) const NONE: Self = Self {
        next: NONE,
        last: NONE,
    };
}

impl<M: Memory> Pulling<M> {
    /// The beginning: nothing has been asked for. `offer`: what the sender calls it, and where it can be
    /// read.
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

    /// A message that is here as a whole.
    pub(crate) fn whole(memory: M, bits: MatchBits, length: u32) -> Self {
        let mut whole = Self::new(memory, (STREAMED, None), bits, length, None);
        whole.requested = whole.wanted;
        whole
    }

    /// Whether a peer's registered memory is read.
    pub(crate) fn is_get(&self) -> bool {
        self.send_id == REGION
    }

    /// Returns the number of bytes that are to be asked for.
    pub(crate) fn missing(&self) -> u32 {
        self.wanted - self.requested + self.parts.awaited(NO_LINK)
    }

    /// Takes out up to `most` bytes that are to be asked for: those that a lost link was to bring, then the rest.
    pub(crate) fn take_missing(&mut self, most: u32) -> Option<(u32, u32)> {
        self.parts.take_unasked(most).or_else(|| {
            let at = self.requested;
            self.requested += most.min(self.wanted - at);
            (self.requested > at).then_some((at, self.requested))
        })
    }

    /// Whether all bytes are there that are wanted.
    pub(crate) fn is_whole(&self) -> bool {
        self.requested == self.wanted && self.parts.open().is_empty() && !self.reading
    }
}

impl<M> Default for Record<M> {
    /// A free place.
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

    /// An operation begins at this place.
    #[inline(always)]
    pub(crate) fn begin(&mut self, state: State<M>) {
        op_states::note(Stage::New, state.stage());
        self.state.begin(state);
    }

    /// There is none any more at this place: it was over.
    #[inline(always)]
    pub(super) fn empty(&mut self) {
        debug_assert!(
            matches!(self.state, State::Done),
            "it is {}",
            self.state.stage()
        );
        self.generation = 0;
        self.state.begin(State::Free);
    }

    /// The time-out that counts in its present state.
    pub(crate) fn limit(&self) -> Timeout {
        if matches!(self.state, State::Withdrawn { .. }) {
            Timeout::new(Some(WITHDRAWN_MAX))
        } else if self.state.is_waiting() {
            self.waiting
        } else {
            self.timeout
        }
    }

    /// A receive whose message was withdrawn, and that another one goes into, is over when `fill` has had its
    /// memory.
    #[cold]
    pub(super) fn finish_pulling(&mut self, fill: impl FnOnce(&mut M) -> usize) -> usize {
        let filled = match &mut self.state {
            State::Pulling(pulling) => fill(&mut pulling.memory),
            _ => 0,
        };
        self.state = State::Done;
        filled
    }

    /// Goes on with the memory that it has. Nothing happens to one that has none.
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
    /// Replaces the state. Only if the old one has nothing to drop: that is not checked here.
    #[inline(always)]
    pub(super) fn begin(&mut self, next: Self) {
        let before = ManuallyDrop::new(std::mem::replace(self, next));
        debug_assert!(matches!(*before, Self::Free | Self::Done));
    }

    /// A posted receive is over. Only the memory is dropped, and only if that does anything: assigning `Done` would go through
    /// all states that may have to be dropped.
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

    /// The present or former position of a receive among the posted ones.
    #[inline]
    pub(crate) fn position(&self) -> Option<Position> {
        match self {
            Self::Posted { position, .. } => Some(*position),
            Self::Pulling(pulling) => pulling.position,
            _ => None,
        }
    }

    /// The links of a posted receive that is the oldest of its bits.
    #[inline]
    pub(crate) fn head(&self) -> Option<BucketHead> {
        match self {
            Self::Posted { head, .. } => Some(*head),
            _ => None,
        }
    }

    /// Changes that. Nothing happens to any other operation.
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

    /// Bytes of its memory.
    #[inline]
    pub(crate) fn room(&self) -> u32
    where
        M: Memory,
    {
        let room = self.memory().map_or(0, Memory::len);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Nothing has matched it.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self,
            Self::Pending { .. } | Self::Queued { .. } | Self::Offered { .. } | Self::Posted { .. }
        )
    }

    /// The key for the receiver's reads of a send's memory.
    pub(crate) fn registered(&self) -> Option<RemoteKey> {
        match self {
            Self::Offered { registered, .. } | Self::Serving { registered, .. } => *registered,
            Self::Withdrawn { registered, .. } => Some(*registered),
            _ => None,
        }
    }

    /// A port reads its message from where its sender has it.
    #[inline]
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self, Self::Pulling(pulling) if pulling.reading)
    }

    /// The message that the endpoint fetches with it for itself, if it does, or [`Fetch::ACCESS`].
    #[inline]
    pub(crate) fn fetches(&self) -> Option<Fetch> {
        match self {
            Self::Pulling(pulling) => pulling.fetch,
            Self::Lending { .. } => Some(Fetch::ACCESS),
            _ => None,
        }
    }

    /// The rest of a send that is complete.
    #[inline]
    pub(crate) fn is_copy(&self) -> bool {
        let form = match self {
            Self::Queued { stand, .. } => stand.form,
            Self::Draining { form, .. } => *form,
            _ => return false,
        };
        form == Form::Copied
    }

    /// Progress prolongs its time-out.
    pub(crate) fn is_renewed(&self) -> bool {
        // A sender whose message is fetched holds credits of the pool: for this time at most.
        !matches!(self, Self::Withdrawn { .. }) && self.fetches().is_none()
    }

    /// Its name; `New` for one that is free.
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
