//! Chunks of fragments, in any order, become packets in the order of their fragments.
//!
//! ```text
//!          next                                         up to 2^15 ahead
//!           |
//!   waiting [ part . . part ]   hole   [ whole ]   [ . . part . ]
//!               |                         |             |
//!               |                         |             `- asked where it belongs: into memory
//!               |                         |                at once, else kept
//!               |                         `- kept until those before it have been delivered
//!               `- the front: begun and placed, kept (small) or dropped (no destination)
//!
//!   whole, and the next: given out straight from the datagram, nothing is kept
//!
//!   take a chunk --> next --> Ask: answer, with the chunk's bytes --> next --> Packet, Placed --> ... --> Done
//! ```
//!
//! Owns: the bytes of fragments that cannot be delivered yet.
//! Out of scope: sequence numbers, acknowledgements; each chunk is passed here once.
//! Cost: O(1) a chunk in order; an early one is searched for among those that wait. Memory is
//! allocated only for bytes that have arrived, never for an announced length. The front packet is
//! not charged while its bytes come in order, and takes at most as much as a kept packet may have;
//! all else is charged, with its bookkeeping.

use super::partial::{Order, Partial};
use crate::memory::Memory;
use crate::port::{HEADER_LEN, HeaderBytes, Place, body_len};
use std::collections::VecDeque;
use std::ops::Range;

/// The part of a fragment that one segment carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk<'a> {
    /// The fragment's number.
    pub(super) fragment: u32,
    /// The offset of the part in the fragment.
    pub(super) offset: u32,
    /// Bytes of the fragment: a packet's header and body.
    pub(super) len: u32,
    /// Nothing follows this fragment; it is empty.
    pub(super) fin: bool,
    pub(super) payload: &'a [u8],
}

/// The decision about a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    Yes,
    /// The chunk would have to be kept, without memory for that.
    Full,
    /// A violation: no correct peer sends it.
    Bad,
}

/// The data cannot be reassembled: a violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadFragment;

/// Largest bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Limit of a packet that is kept.
    pub(super) kept: usize,
    /// Limit of any packet.
    pub(super) any: usize,
}

/// The next thing to be done about the fragments of a link.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing, until another chunk comes.
    Done,
    /// Everything the peer ever sent has been given out.
    Fin,
    /// The layer above is asked where a body belongs, see [`Reassembly::answer`].
    Ask {
        header: HeaderBytes,
        /// All before it has been given out, and a message that comes with its data is begun.
        begin: bool,
    },
    /// A packet that was kept, with its body from `at` on.
    Packet {
        header: HeaderBytes,
        bytes: Vec<u8>,
        at: usize,
    },
    /// The whole body of a packet has been read.
    Placed(HeaderBytes),
}

/// The question where a body belongs.
#[derive(Debug)]
struct PlacementRequest {
    /// The fragment's place among those that wait.
    index: usize,
    turn: Order,
    begin: bool,
    /// The range in the fragment of the chunk that came last, whose bytes still lie in its datagram; else empty.
    fresh: Range<u32>,
}

/// Fragments further ahead than this are none: many times what a window can hold.
const AHEAD_MAX: u32 = 1 << 15;

/// The allocator's overhead at most, for some bytes.
pub(super) const ALLOC_COST: usize = 32;

/// The cost of an entry in a table of which, as it grows and shrinks, a quarter is in use.
pub(super) const SLOT_COST: usize = 4;

/// The cost of any fragment that waits.
const WAITING_COST: usize = SLOT_COST * size_of::<Waiting>();

/// The fragments of one link.
#[derive(Debug)]
pub(super) struct Reassembly {
    /// The fragment that is delivered next.
    next: u32,
    /// The fragments of which something is here, in order.
    waiting: VecDeque<Waiting>,
    /// An empty one, with the memory of those before it.
    spare: Option<Box<Partial>>,
    /// The question that has not been answered.
    question: Option<PlacementRequest>,
    /// The cost of all that wait.
    kept: usize,
    /// The end has been delivered.
    ended: bool,
}

#[derive(Debug)]
struct Waiting {
    fragment: u32,
    what: WaitingKind,
}

#[derive(Debug)]
enum WaitingKind {
    /// All of a packet that can be kept.
    Whole(Box<[u8]>),
    Partial(Box<Partial>),
    Fin,
}

impl Reassembly {
    /// Nothing has come; fragment `next` is delivered first.
    pub(super) fn new(next: u32) -> Self {
        Self {
            next,
            waiting: VecDeque::new(),
            spare: None,
            question: None,
            kept: 0,
            ended: false,
        }
    }

    /// Nothing is here that has not been delivered: the fragment that is delivered next.
    pub(super) fn suspended(&self) -> Option<u32> {
        (self.waiting.is_empty() && !self.ended).then_some(self.next)
    }

    /// Memory charged: for all that came early.
    #[inline]
    pub(super) fn kept_bytes(&self) -> usize {
        match self.waiting.front() {
            Some(front) if front.fragment == self.next => self.kept - front.base_cost(),
            _ => self.kept,
        }
    }

    /// [`Self::next`] has something to deliver.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        match self.waiting.front() {
            Some(front) if front.fragment == self.next => front.is_complete(),
            _ => false,
        }
    }

    /// Decides about a chunk if `window` bytes may be charged for it. `in_order`: everything sent
    /// before has arrived. It is then always admitted when it is its fragment's turn, so there is
    /// progress even if memory is full. ([`Self::take`] may still reject it: too long, or partly a
    /// duplicate.)
    #[inline]
    pub(super) fn admits(&self, chunk: &Chunk<'_>, in_order: bool, window: usize) -> Admission {
        let headed = chunk.offset != 0 || chunk.fin || chunk.has_sound_header();
        let ahead = chunk.fragment.wrapping_sub(self.next);
        if !chunk.is_sound() || !headed || self.ended || ahead >= AHEAD_MAX {
            return Admission::Bad;
        }
        let index = self.find(chunk.fragment).ok();
        let here = index.and_then(|index| self.waiting.get(index));
        let (contiguous, cost) = match here.map(|waiting| &waiting.what) {
            // The cost is highest if more parts of it follow.
            None => (0, WAITING_COST + Partial::cost_of_first(chunk)),
            Some(WaitingKind::Partial(partial)) => (partial.contiguous(), partial.cost_of(chunk)),
            Some(WaitingKind::Whole(_) | WaitingKind::Fin) => return Admission::Bad,
        };
        // Segments are cut once and numbered in the order of their bytes.
        if ahead == 0 && in_order {
            return if chunk.offset == contiguous {
                Admission::Yes
            } else {
                Admission::Bad
            };
        }
        if cost <= window {
            Admission::Yes
        } else {
            Admission::Full
        }
    }

    /// Adds a new chunk. True if it is the next packet, which the caller gives out from where it lies; else
    /// [`Self::next`] says what comes of it.
    #[inline]
    pub(super) fn take(
        &mut self,
        chunk: &Chunk<'_>,
        limits: BodyLimits,
        budget: &mut usize,
    ) -> Result<bool, BadFragment> {
        let ahead = chunk.fragment.wrapping_sub(self.next);
        let sound = chunk.is_sound() && !self.ended && ahead < AHEAD_MAX;
        if !sound || chunk.len as usize > HEADER_LEN + limits.any {
            return Err(BadFragment);
        }
        let first = self.waiting.front().map(|front| front.fragment);
        let is_long = chunk.len as usize > HEADER_LEN + limits.kept;
        if ahead > 0 || !chunk.is_whole() || is_long || *budget == 0 || first == Some(self.next) {
            return self.keep(chunk, ahead == 0, limits).map(|()| false);
        }
        if chunk.fin {
            self.end();
            return Ok(false);
        }
        if !chunk.has_sound_header() {
            return Err(BadFragment);
        }
        self.next = self.next.wrapping_add(1);
        *budget -= 1;
        Ok(true)
    }

    /// The next step, with at most `budget` packets given out.
    pub(super) fn next(&mut self, budget: &mut usize) -> Step {
        if self.ended {
            return Step::Fin;
        }
        loop {
            if let Some(PlacementRequest { index, begin, .. }) = self.question
                && let Some(WaitingKind::Partial(partial)) =
                    self.waiting.get(index).map(|at| &at.what)
            {
                let header = partial.header();
                return Step::Ask { header, begin };
            }
            let front = self.waiting.front();
            let Some(front) = front.filter(|front| front.fragment == self.next) else {
                break;
            };
            match &front.what {
                WaitingKind::Fin => {
                    self.end();
                    return Step::Fin;
                }
                WaitingKind::Partial(partial) => {
                    // Memory is kept for one packet only.
                    self.spare = None;
                    // Everything that could change the answer has been given out.
                    if partial.is_undecided(Order::Front) {
                        self.ask(0, Order::Front, 0..0);
                        continue;
                    }
                }
                WaitingKind::Whole(_) => {}
            }
            if !front.is_complete() || *budget == 0 {
                break;
            }
            *budget -= 1;
            if let Some(step) = self.pop_front() {
                return step;
            }
        }
        let used = 1 + self.waiting.len();
        if self.waiting.capacity() > SLOT_COST * used {
            self.waiting.shrink_to(2 * used);
        }
        Step::Done
    }

    /// Takes the first packet out. `None`: nothing is left of it.
    fn pop_front(&mut self) -> Option<Step> {
        let waiting = self.waiting.pop_front()?;
        self.next = self.next.wrapping_add(1);
        // A front that is complete has no charge beyond its base.
        self.kept -= waiting.base_cost();
        match waiting.what {
            WaitingKind::Whole(bytes) => Some(Step::Packet {
                header: *bytes.first_chunk()?,
                bytes: bytes.into_vec(),
                at: HEADER_LEN,
            }),
            WaitingKind::Partial(mut partial) => {
                let step = partial.deliver();
                self.spare = Some(partial);
                step
            }
            WaitingKind::Fin => None,
        }
    }

    /// The memory of a packet that was given out, for the next one.
    pub(super) fn reuse(&mut self, bytes: Vec<u8>) {
        if let Some(spare) = &mut self.spare {
            spare.reuse(bytes);
        }
    }

    /// Answers a [`Step::Ask`]; a place that the body does not fit into is none. `chunk`: the one that came
    /// last, as it was taken.
    pub(super) fn answer<M: Memory>(
        &mut self,
        place: Option<Place<'_, M>>,
        chunk: &[u8],
        limits: BodyLimits,
    ) {
        let Some(mut question) = self.question.take() else {
            return;
        };
        let waiting = self.waiting.get_mut(question.index);
        let Some(WaitingKind::Partial(partial)) = waiting.map(|waiting| &mut waiting.what) else {
            return;
        };
        let place = place.filter(|place| partial.fits(place));
        // A body that has a place without being begun does not keep those behind it from asking.
        if place.is_none() && !question.begin && partial.may_begin(question.turn) {
            question.begin = true;
            self.question = Some(question);
            return;
        }
        self.kept -= partial.charge();
        let body = tail(chunk, &question.fresh);
        if let Some(place) = place {
            partial.place(place, question.begin, (question.fresh, body));
        } else {
            partial.refuse(question.turn, limits);
            partial.record(question.fresh, body);
        }
        self.kept += partial.charge();
    }

    fn ask(&mut self, index: usize, turn: Order, fresh: Range<u32>) {
        self.question = Some(PlacementRequest {
            index,
            turn,
            begin: false,
            fresh,
        });
    }

    /// Gives back memory that is not needed now; all of it when nothing waits.
    pub(super) fn shrink(&mut self) {
        self.spare = None;
        self.waiting.shrink_to_fit();
    }

    /// The end has been reached; whatever lies behind it never was.
    fn end(&mut self) {
        self.waiting = VecDeque::new();
        self.kept = 0;
        self.ended = true;
    }

    fn keep(
        &mut self,
        chunk: &Chunk<'_>,
        is_front: bool,
        limits: BodyLimits,
    ) -> Result<(), BadFragment> {
        if chunk.offset == 0 && !chunk.fin && !chunk.has_sound_header() {
            return Err(BadFragment);
        }
        let index = match self.find(chunk.fragment) {
            Ok(index) => index,
            Err(index) => {
                let what = if chunk.fin {
                    WaitingKind::Fin
                } else if chunk.is_whole() && chunk.len as usize <= HEADER_LEN + limits.kept {
                    WaitingKind::Whole(chunk.payload.into())
                } else {
                    // Reused memory is not charged: only one fragment has it.
                    let spare = self.spare.take_if(|_| is_front);
                    let mut partial = spare.unwrap_or_default();
                    partial.begin(chunk.len);
                    WaitingKind::Partial(partial)
                };
                let is_done = !matches!(what, WaitingKind::Partial(_));
                let fragment = chunk.fragment;
                let waiting = Waiting { fragment, what };
                self.kept += waiting.base_cost();
                self.waiting.insert(index, waiting);
                if is_done {
                    return Ok(());
                }
                index
            }
        };
        let turn = match self.waiting.front().map(|front| &front.what) {
            _ if is_front => Order::Front,
            Some(WaitingKind::Partial(front)) if front.is_begun() => Order::Behind,
            _ => Order::Early,
        };
        let Some(WaitingKind::Partial(partial)) =
            self.waiting.get_mut(index).map(|at| &mut at.what)
        else {
            // All of it was received before.
            return Err(BadFragment);
        };
        let fresh = partial.add(chunk)?;
        let body = tail(chunk.payload, &fresh);
        let asks = if partial.is_placed() {
            !body.is_empty()
        } else {
            (is_front || chunk.offset == 0) && partial.is_undecided(turn)
        };
        if asks {
            self.ask(index, turn, fresh);
        } else {
            self.kept -= partial.charge();
            partial.record(fresh, body);
            self.kept += partial.charge();
        }
        Ok(())
    }

    /// The index of a waiting fragment, or of a new one.
    fn find(&self, fragment: u32) -> Result<usize, usize> {
        let ahead = |waiting: &Waiting| waiting.fragment.wrapping_sub(self.next);
        let wanted = fragment.wrapping_sub(self.next);
        // Usually it belongs to the latest one.
        match self.waiting.back() {
            Some(back) if ahead(back) == wanted => Ok(self.waiting.len() - 1),
            _ => self.waiting.binary_search_by_key(&wanted, ahead),
        }
    }
}

impl Waiting {
    /// The cost before its turn, without the parts that are here.
    fn base_cost(&self) -> usize {
        WAITING_COST
            + match &self.what {
                WaitingKind::Whole(bytes) => bytes.len() + ALLOC_COST,
                WaitingKind::Partial(_) => Partial::COST,
                WaitingKind::Fin => 0,
            }
    }

    fn is_complete(&self) -> bool {
        match &self.what {
            WaitingKind::Partial(partial) => partial.is_complete(),
            WaitingKind::Whole(_) | WaitingKind::Fin => true,
        }
    }
}

impl Chunk<'_> {
    /// Whether the chunk is a part of something that a packet can be, as far as its numbers tell. The packet's
    /// header is never torn.
    #[inline]
    fn is_sound(&self) -> bool {
        if self.fin {
            return self.len == 0 && self.offset == 0 && self.payload.is_empty();
        }
        let (offset, len) = (self.offset as usize, self.len as usize);
        let header = if offset == 0 { HEADER_LEN } else { 1 };
        let sound = offset == 0 || offset >= HEADER_LEN;
        sound && self.payload.len() >= header && self.payload.len() <= len.saturating_sub(offset)
    }

    /// Whether the chunk is all of its fragment.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.payload.len() == self.len as usize
    }

    /// Whether the chunk begins with the header of a packet as long as the fragment.
    #[inline]
    fn has_sound_header(&self) -> bool {
        let header = self.payload.first_chunk();
        header.is_some_and(|header| body_len(header) + HEADER_LEN == self.len as usize)
    }
}

/// The last bytes of a chunk, as many as there are in the range.
fn tail<'a>(chunk: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let at = chunk.len().checked_sub(range.len());
    at.and_then(|at| chunk.get(at..)).unwrap_or(&[])
}

#[cfg(test)]
pub(super) mod tests;
