//! Reassembly: chunks of fragments, in any order, become packets in the order of their fragments.
//!
//! ```text
//!          next                                         up to 2^15 ahead
//!           |
//!   waiting [ part . . part ]   hole   [ whole ]   [ . . part . ]
//!               |                         |             |
//!               |                         |             `- the layer above is asked for a destination:
//!               |                         |                placed at once, else kept
//!               |                         `- kept until all earlier ones have been delivered
//!               `- the front: begun and placed, kept (small) or dropped (no destination)
//!
//!   whole, and the next: delivered from the datagram itself, nothing is kept
//!
//!   take a chunk --> next --> Ask: answer, with the chunk's bytes --> next --> Packet, Placed --> ... --> Done
//! ```
//!
//! Owns: the bytes of fragments that cannot be delivered yet.
//! Out of scope: sequence numbers, acknowledgements; each chunk is passed here once.
//! Cost: O(1) for a chunk in order; an early one needs a search among the waiting fragments. Memory is
//! allocated only for bytes that have arrived, never for an announced length. The front packet is
//! not charged while its bytes come in order, and takes at most as much as a kept packet may have;
//! everything else is charged, with its bookkeeping.

use super::partial::{Order, Partial};
use crate::memory::Memory;
use crate::port::{HEADER_LEN, HeaderBytes, Place, body_len};
use std::collections::VecDeque;
use std::ops::Range;

/// Part of a fragment that one segment carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk<'a> {
    pub(super) fragment: u32,
    pub(super) offset: u32,
    /// Length of the fragment in bytes: a packet's header and body.
    pub(super) len: u32,
    /// Whether this is the empty last fragment, after which nothing follows.
    pub(super) fin: bool,
    pub(super) payload: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    Yes,
    /// The chunk would have to be kept, and there is no memory for that.
    Full,
    /// The chunk is a violation.
    Bad,
}

/// Violation: the data cannot be reassembled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadFragment;

/// Limits of bodies, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// Largest body of a packet that is kept.
    pub(super) kept: usize,
    /// Largest body of any packet.
    pub(super) any: usize,
}

/// Next step for the fragments of a link.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing to do until another chunk comes.
    Done,
    /// Everything that the peer sent has been delivered.
    Fin,
    /// The layer above is asked for the destination of a body; see [`Reassembly::answer`].
    Ask {
        header: HeaderBytes,
        /// Whether everything before the fragment has been delivered, so that a message that carries its data may
        /// begin.
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

/// Question to the layer above about the destination of a body.
#[derive(Debug)]
struct PlacementRequest {
    /// Index of the fragment among the waiting ones.
    index: usize,
    turn: Order,
    begin: bool,
    /// Range in the fragment of the latest chunk, whose bytes still lie in its datagram; empty if there are none.
    fresh: Range<u32>,
}

/// Maximum distance of a fragment from the next one: many times what a window can hold.
const AHEAD_MAX: u32 = 1 << 15;

/// Maximum overhead of the allocator for one allocation, in bytes.
pub(super) const ALLOC_COST: usize = 32;

/// Factor for the cost of an entry in a table that grows and shrinks: a quarter of it is in use.
pub(super) const SLOT_COST: usize = 4;

/// Memory cost of any waiting fragment in bytes.
const WAITING_COST: usize = SLOT_COST * size_of::<Waiting>();

#[derive(Debug)]
pub(super) struct Reassembly {
    next: u32,
    /// Fragments of which something has arrived, in order.
    waiting: VecDeque<Waiting>,
    /// Empty fragment with the memory of earlier ones; `None`: there is none.
    spare: Option<Box<Partial>>,
    /// Question that has not been answered.
    question: Option<PlacementRequest>,
    /// Memory cost of all waiting fragments in bytes.
    kept: usize,
    ended: bool,
}

#[derive(Debug)]
struct Waiting {
    fragment: u32,
    what: WaitingKind,
}

#[derive(Debug)]
enum WaitingKind {
    /// A whole packet, small enough to be kept.
    Whole(Box<[u8]>),
    Partial(Box<Partial>),
    Fin,
}

impl Reassembly {
    /// Makes an empty reassembly that delivers fragment `next` first.
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

    /// Returns the number of the next fragment if nothing waits, for a suspended link.
    pub(super) fn suspended(&self) -> Option<u32> {
        (self.waiting.is_empty() && !self.ended).then_some(self.next)
    }

    /// Returns the memory charged for early data, in bytes.
    #[inline]
    pub(super) fn kept_bytes(&self) -> usize {
        match self.waiting.front() {
            Some(front) if front.fragment == self.next => self.kept - front.base_cost(),
            _ => self.kept,
        }
    }

    /// Returns whether [`Self::next`] has something to deliver.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        match self.waiting.front() {
            Some(front) if front.fragment == self.next => front.is_complete(),
            _ => false,
        }
    }

    /// Decides about a chunk for which up to `window` bytes may be charged. `in_order`: everything sent before has
    /// arrived. Such a chunk is always admitted if it is its fragment's turn, so there is progress even if memory is
    /// full. ([`Self::take`] may still reject it: too long, or partly a duplicate.)
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
            // The cost is highest if more chunks of the fragment follow.
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

    /// Adds a new chunk. Returns true if it is the next packet, which the caller delivers from the datagram; otherwise
    /// [`Self::next`] returns what follows.
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

    /// Returns the next step, delivering at most `budget` packets.
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
                    // Everything that could change the answer has been delivered.
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

    /// Removes the first packet. `None`: its body has been dropped.
    fn pop_front(&mut self) -> Option<Step> {
        let waiting = self.waiting.pop_front()?;
        self.next = self.next.wrapping_add(1);
        // A complete front has no charge beyond its base.
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

    /// Takes back the memory of a delivered packet, for the next one.
    pub(super) fn reuse(&mut self, bytes: Vec<u8>) {
        if let Some(spare) = &mut self.spare {
            spare.reuse(bytes);
        }
    }

    /// Answers a [`Step::Ask`]; a destination too small for the body counts as none. `chunk`: the latest chunk, as it
    /// was taken.
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
        // A body placed without being begun does not keep later ones from asking.
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

    /// Frees memory that is not needed now, all of it if nothing waits.
    pub(super) fn shrink(&mut self) {
        self.spare = None;
        self.waiting.shrink_to_fit();
    }

    /// Notes that the end has been reached; anything after it is ignored.
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
                    // Reused memory is not charged, because only one fragment has it.
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

    /// Returns the index of a waiting fragment, or as an error the index for a new one.
    fn find(&self, fragment: u32) -> Result<usize, usize> {
        let ahead = |waiting: &Waiting| waiting.fragment.wrapping_sub(self.next);
        let wanted = fragment.wrapping_sub(self.next);
        // Usually a chunk belongs to the latest fragment.
        match self.waiting.back() {
            Some(back) if ahead(back) == wanted => Ok(self.waiting.len() - 1),
            _ => self.waiting.binary_search_by_key(&wanted, ahead),
        }
    }
}

impl Waiting {
    /// Returns the memory cost without the arrived pieces.
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
    /// Returns whether the numbers of the chunk are possible for a part of a packet. A packet's header is never split.
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

    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.payload.len() == self.len as usize
    }

    /// Returns whether the chunk begins with the header of a packet as long as the fragment.
    #[inline]
    fn has_sound_header(&self) -> bool {
        let header = self.payload.first_chunk();
        header.is_some_and(|header| body_len(header) + HEADER_LEN == self.len as usize)
    }
}

/// Returns the last bytes of a chunk, as many as the range has.
fn tail<'a>(chunk: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let at = chunk.len().checked_sub(range.len());
    at.and_then(|at| chunk.get(at..)).unwrap_or(&[])
}

#[cfg(test)]
pub(super) mod tests;
