//! Posted receives that no message has matched yet.
//!
//! ```text
//!   class (mask):  bucket  -->  head  -->  head  -->          heads: the oldest receive with its bits
//!                                |          |  links
//!                                v          v
//!                              younger    younger             younger receives with the same bits
//! ```
//!
//! Receives are linked through their records, so posting allocates nothing. A look-up compares one or two heads,
//! however many receives share the same bits. The hash has a random seed, so peers cannot choose bits that share a
//! bucket.
//!
//! Owns: the order of posting, and the heads of chains.
//! Cost: post, take and remove are O(1) for each mask class in use; the number of buckets grows with the number of
//! different bits.

use crate::ids::{MatchBits, MatchMask, RequestId};
use crate::ops::{BucketHead, Links, NONE, Ops, Position, Record, State};
use crate::owner::Owner;
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::num::NonZeroU64;

#[derive(Debug)]
pub(crate) struct PostedReceives {
    classes: Vec<Class>,
    len: usize,
    last_order: u64,
    /// Seed of the hash: odd, drawn at random.
    seed: u64,
}

#[derive(Debug)]
struct Class {
    mask: MatchMask,
    /// First head of each bucket; their number is a power of two.
    buckets: Vec<u32>,
    heads: usize,
}

/// Position of a head in its bucket, or of a new one.
#[derive(Clone, Copy, Debug)]
struct Spot {
    bucket: usize,
    /// Head before it in the bucket; `NONE`: it is the first.
    before: u32,
    /// Head found; `NONE`: no receive has these bits.
    head: u32,
}

impl Spot {
    const NOWHERE: Self = Self {
        bucket: 0,
        before: NONE,
        head: NONE,
    };
}

impl Default for PostedReceives {
    fn default() -> Self {
        Self {
            classes: Vec::new(),
            len: 0,
            last_order: 0,
            seed: RandomState::default().hash_one(0) | 1,
        }
    }
}

impl PostedReceives {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the position of a new receive with this mask, which is the youngest.
    #[inline]
    pub(crate) fn reserve(&mut self, mask: MatchMask) -> Position {
        self.last_order += 1;
        Position {
            mask,
            order: NonZeroU64::new(self.last_order).unwrap_or(NonZeroU64::MAX),
        }
    }

    /// Enters a receive at its position: that of a new receive, or the one it had before [`Self::take`]. Its state must
    /// be `Posted`, and its bits within its mask.
    #[inline(always)]
    pub(crate) fn enter<O: Owner>(&mut self, ops: &mut Ops<O>, place: u32) {
        let record = ops.record_mut(place);
        let bits = record.bits;
        let State::Posted { position, head, .. } = &mut record.state else {
            debug_assert!(false, "#{place} is no posted receive");
            return;
        };
        *head = BucketHead::alone(place);
        let position = *position;
        self.enter_at(ops, place, bits, position);
    }

    /// Enters a receive as [`Self::enter`] does; its record is already set up as the only one of its bits.
    #[inline(always)]
    pub(crate) fn enter_at<O: Owner>(
        &mut self,
        ops: &mut Ops<O>,
        place: u32,
        bits: MatchBits,
        position: Position,
    ) {
        self.len += 1;
        let at = self.class_of(position.mask);
        let (class, seed) = (&mut self.classes[at], self.seed);
        let bucket = class.bucket(seed, bits);
        let first = &mut class.buckets[bucket];
        if *first != NONE {
            return class.enter_among(ops, seed, place, position);
        }
        *first = place;
        class.more_heads(ops, seed);
    }

    /// Takes out the oldest receive that accepts a message with `bits`, and returns its slot. Its state does not
    /// change.
    #[inline(always)]
    pub(crate) fn take<O: Owner>(&mut self, ops: &mut Ops<O>, bits: MatchBits) -> Option<u32> {
        self.take_if(ops, bits, |_| true)
    }

    /// Takes the oldest receive as [`Self::take`] does, but only if `accepts` returns true for it.
    #[inline(always)]
    pub(crate) fn take_if<O: Owner>(
        &mut self,
        ops: &mut Ops<O>,
        bits: MatchBits,
        accepts: impl FnOnce(&Record<O::Memory>) -> bool,
    ) -> Option<u32> {
        let (at, spot) = match &self.classes[..] {
            [only] => (0, only.find(ops, self.seed, only.mask.apply(bits))),
            _ => self.find_oldest(ops, bits),
        };
        if spot.head == NONE || !accepts(ops.record(spot.head)) {
            return None;
        }
        self.take_head(ops, at, spot);
        Some(spot.head)
    }

    /// Returns the class and the spot of the oldest receive among several masks.
    #[inline(never)]
    fn find_oldest<O: Owner>(&self, ops: &Ops<O>, bits: MatchBits) -> (usize, Spot) {
        let mut best = (0, Spot::NOWHERE);
        for (at, class) in self.classes.iter().enumerate() {
            if class.heads == 0 {
                continue;
            }
            let spot = class.find(ops, self.seed, class.mask.apply(bits));
            let than = best.1.head;
            if spot.head != NONE && (than == NONE || order_of(ops, spot.head) < order_of(ops, than))
            {
                best = (at, spot);
            }
        }
        best
    }

    pub(crate) fn remove<O: Owner>(&mut self, ops: &mut Ops<O>, id: RequestId) {
        let place = id.index();
        let record = ops.record(place);
        let (bits, Links { before, behind }) = (record.bits, record.links);
        let Some(position) = record.state.position() else {
            debug_assert!(false, "{id:?} is no posted receive");
            return;
        };
        let at = self.class_of(position.mask);
        let is_end = before == NONE || behind == NONE;
        let spot = is_end.then(|| self.classes[at].find(ops, self.seed, bits));
        match spot {
            Some(spot) if before == NONE => return self.take_head(ops, at, spot),
            Some(spot) => set_last(ops, spot.head, before),
            None => ops.record_mut(behind).links.before = before,
        }
        ops.record_mut(before).links.behind = behind;
        ops.record_mut(place).links = Links::ALONE;
        self.len -= 1;
    }

    /// Removes a head; the next receive with its bits takes its position.
    #[inline(always)]
    fn take_head<O: Owner>(&mut self, ops: &mut Ops<O>, at: usize, spot: Spot) {
        let class = &mut self.classes[at];
        self.len -= 1;
        let record = ops.record_mut(spot.head);
        let behind = std::mem::replace(&mut record.links, Links::ALONE).behind;
        let head = record.state.head().unwrap_or(BucketHead::NONE);
        if behind != NONE {
            ops.record_mut(behind).links.before = NONE;
            set_head(ops, behind, head);
            return class.replace(ops, spot, behind);
        }
        class.replace(ops, spot, head.next);
        class.heads -= 1;
        if class.buckets.len() > BUCKETS_KEPT {
            class.shrink(ops, self.seed);
        }
    }

    #[inline]
    fn class_of(&mut self, mask: MatchMask) -> usize {
        match self.classes.first() {
            Some(class) if class.mask == mask => 0,
            _ => self.other_class(mask),
        }
    }

    #[inline(never)]
    fn other_class(&mut self, mask: MatchMask) -> usize {
        if let Some(at) = self.classes.iter().position(|class| class.mask == mask) {
            return at;
        }
        // A program with ever new masks would otherwise leave a trail of empty classes.
        if self.classes.len() >= CLASSES_KEPT {
            self.classes.retain(|class| class.heads != 0);
        }
        self.classes.push(Class {
            mask,
            buckets: vec![NONE; BUCKETS],
            heads: 0,
        });
        self.classes.len() - 1
    }
}

impl Class {
    #[inline]
    fn bucket(&self, seed: u64, bits: MatchBits) -> usize {
        let hash = bits.0.wrapping_mul(seed) >> 32;
        // The upper bits of the product are the well-mixed ones.
        ((hash * self.buckets.len() as u64) >> 32) as usize
    }

    /// Halves the buckets if few heads are left.
    #[inline(never)]
    fn shrink<O: Owner>(&mut self, ops: &mut Ops<O>, seed: u64) {
        if self.heads < self.buckets.len() / 4 {
            self.resize(ops, seed, self.buckets.len() / 2);
        }
    }

    /// Counts one more head, and doubles the buckets if there are too many heads.
    #[inline]
    fn more_heads<O: Owner>(&mut self, ops: &mut Ops<O>, seed: u64) {
        self.heads += 1;
        if self.heads > self.buckets.len() {
            self.resize(ops, seed, self.buckets.len() * 2);
        }
    }

    #[inline(always)]
    fn find<O: Owner>(&self, ops: &Ops<O>, seed: u64, bits: MatchBits) -> Spot {
        let bucket = self.bucket(seed, bits);
        let (mut before, mut head) = (NONE, self.buckets[bucket]);
        while head != NONE && ops.record(head).bits != bits {
            (before, head) = (head, head_of(ops, head).next);
        }
        Spot {
            bucket,
            before,
            head,
        }
    }

    /// Enters a receive into a bucket in use, behind every older one with its bits. A new receive goes to the end; one
    /// that was taken before has few older ones, because it was the oldest then.
    #[inline(never)]
    fn enter_among<O: Owner>(
        &mut self,
        ops: &mut Ops<O>,
        seed: u64,
        place: u32,
        position: Position,
    ) {
        let spot = self.find(ops, seed, ops.record(place).bits);
        set_head(ops, place, BucketHead::NONE);
        if spot.head == NONE {
            let next = std::mem::replace(&mut self.buckets[spot.bucket], place);
            set_head(ops, place, BucketHead { next, last: place });
            return self.more_heads(ops, seed);
        }
        let head = head_of(ops, spot.head);
        let is_older = |other: u32| order_of(ops, other) < Some(position.order);
        let (mut before, mut behind) = (head.last, NONE);
        if !is_older(before) {
            behind = spot.head;
            while is_older(behind) {
                behind = ops.record(behind).links.behind;
            }
            before = ops.record(behind).links.before;
        }
        ops.record_mut(place).links = Links { before, behind };
        if before == NONE {
            set_head(ops, place, head);
            self.replace(ops, spot, place);
        } else {
            ops.record_mut(before).links.behind = place;
        }
        if behind == NONE {
            set_last(ops, spot.head, place);
        } else {
            ops.record_mut(behind).links.before = place;
        }
    }

    /// Replaces a head in its bucket with another, or with none.
    #[inline(always)]
    fn replace<O: Owner>(&mut self, ops: &mut Ops<O>, spot: Spot, next: u32) {
        if spot.before == NONE {
            self.buckets[spot.bucket] = next;
        } else {
            let before = head_of(ops, spot.before);
            set_head(ops, spot.before, BucketHead { next, ..before });
        }
    }

    #[cold]
    fn resize<O: Owner>(&mut self, ops: &mut Ops<O>, seed: u64, len: usize) {
        for mut place in std::mem::replace(&mut self.buckets, vec![NONE; len]) {
            while place != NONE {
                let head = head_of(ops, place);
                let bucket = self.bucket(seed, ops.record(place).bits);
                let next = std::mem::replace(&mut self.buckets[bucket], place);
                set_head(ops, place, BucketHead { next, ..head });
                place = head.next;
            }
        }
    }
}

#[inline]
fn order_of<O: Owner>(ops: &Ops<O>, place: u32) -> Option<NonZeroU64> {
    Some(ops.record(place).state.position()?.order)
}

#[inline]
fn head_of<O: Owner>(ops: &Ops<O>, place: u32) -> BucketHead {
    ops.record(place).state.head().unwrap_or(BucketHead::NONE)
}

#[inline]
fn set_head<O: Owner>(ops: &mut Ops<O>, place: u32, head: BucketHead) {
    ops.record_mut(place).state.set_head(head);
}

fn set_last<O: Owner>(ops: &mut Ops<O>, head: u32, last: u32) {
    let known = head_of(ops, head);
    set_head(ops, head, BucketHead { last, ..known });
}

/// Number of buckets of a new class, a quarter of a kilobyte.
const BUCKETS: usize = 64;
/// Number of buckets that a class keeps once it has grown, however few receives are left.
const BUCKETS_KEPT: usize = 1024;
/// Number of classes at which empty ones are dropped: more masks than any known program uses.
const CLASSES_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Arrival, Outcome, Verdict};
    use crate::memory::Source;
    use crate::ops::ChunkedStorage;
    use crate::owner::Events;
    use crate::timeouts::{TimeOuts, Timeout};
    use mx_sim::Rng;

    const EXACT: MatchMask = MatchMask::EXACT;
    const TOP: MatchMask = MatchMask(0xf000_0000_0000_0000);

    /// An owner that ignores all reports.
    #[derive(Debug)]
    struct Deaf;

    impl Owner for Deaf {
        type Memory = Vec<u8>;
        type OpData = u64;
        type OwnerEvent = ();
        type OpStorage = ChunkedStorage<Vec<u8>, u64>;

        fn completed(&mut self, _: &mut Ops<Self>, _: &mut Events<Self>, _: RequestId, _: Outcome) {
        }

        fn arrived<B: Source + ?Sized>(
            &mut self,
            _: &mut Events<Self>,
            _: &Arrival,
            _: Option<&B>,
        ) -> Verdict {
            Verdict::Continue
        }
    }

    /// Posted receives, and beside them the simplest correct model: a list in the order of posting.
    #[derive(Default)]
    struct Beside {
        posted: PostedReceives,
        ops: Ops<Deaf>,
        all: Vec<(u64, MatchBits, MatchMask, RequestId)>,
    }

    impl Beside {
        fn post(&mut self, bits: u64, mask: MatchMask) -> RequestId {
            let bits = mask.apply(MatchBits(bits));
            let position = self.posted.reserve(mask);
            let state = State::Posted {
                memory: Vec::new(),
                position,
                head: BucketHead::NONE,
            };
            let timeouts = TimeOuts {
                transfer: Timeout::FOR_EVER,
                waiting: Timeout::FOR_EVER,
            };
            let id = self.ops.add(0, bits, timeouts, state).unwrap();
            self.posted.enter(&mut self.ops, id.index());
            self.all.push((position.order.get(), bits, mask, id));
            id
        }

        fn take(&mut self, bits: u64) -> Option<RequestId> {
            let bits = MatchBits(bits);
            let accepts =
                |(_, own, mask, _): &(_, MatchBits, MatchMask, _)| mask.apply(bits) == *own;
            let expected = self.all.iter().position(accepts);
            let expected = expected.map(|at| self.all.remove(at).3);
            let taken = self.posted.take(&mut self.ops, bits);
            let taken = taken.and_then(|place| self.ops.at(place));
            assert_eq!(taken, expected);
            taken
        }

        /// Undoes a take.
        fn put_back(&mut self, id: RequestId) {
            let record = self.ops.get(id).unwrap();
            let position = record.state.position().unwrap();
            let order = position.order.get();
            let at = self.all.partition_point(|(other, ..)| *other < order);
            self.all.insert(at, (order, record.bits, position.mask, id));
            self.posted.enter(&mut self.ops, id.index());
        }

        fn remove(&mut self, id: RequestId) {
            self.all.retain(|(.., other)| *other != id);
            self.posted.remove(&mut self.ops, id);
            assert!(self.ops.finish(id) && self.ops.free(id));
        }
    }

    #[test]
    fn every_message_finds_the_oldest_receive_that_accepts_it() {
        let masks = [EXACT, TOP, MatchMask(0), MatchMask(0xff), MatchMask(0xf0)];
        mx_sim::seeds::each(300, |seed| {
            let mut rng = Rng::new(seed);
            let mut all = Beside::default();
            let (kinds, masks) = (1 + rng.below(300), &masks[..1 + rng.index(masks.len())]);
            let mut out = Vec::new();
            let posts = 1 + rng.below(8);
            for _ in 0..rng.below(2000) {
                let bits = rng.below(kinds) | rng.below(2) << 60;
                match rng.below(16) {
                    n if n < posts => {
                        all.post(bits, masks[rng.index(masks.len())]);
                    }
                    n if n < 12 => out.extend(all.take(bits)),
                    12 | 13 if !out.is_empty() => {
                        let id = out.swap_remove(rng.index(out.len()));
                        all.put_back(id);
                    }
                    _ if !all.all.is_empty() => {
                        let (.., id) = all.all[rng.index(all.all.len())];
                        all.remove(id);
                    }
                    _ => {}
                }
                assert_eq!(all.posted.len(), all.all.len());
            }
            while let Some((.., id)) = all.all.first().copied() {
                all.remove(id);
            }
            assert!(all.posted.classes.iter().all(|class| class.heads == 0));
            let mut buckets = all.posted.classes.iter().flat_map(|class| &class.buckets);
            assert!(buckets.all(|bucket| *bucket == NONE));
        });
    }

    #[test]
    fn buckets_grow_with_distinct_bits_not_with_receives() {
        let mut all = Beside::default();
        let buckets = |all: &Beside| all.posted.classes[0].buckets.len();
        for _ in 0..10_000 {
            all.post(7, EXACT);
        }
        assert_eq!(buckets(&all), BUCKETS);
        for n in 0..10_000 {
            all.post(n << 32, EXACT);
        }
        assert_eq!(buckets(&all), 16_384);
        for n in (0..10_000).rev() {
            assert!(all.take(n << 32).is_some());
        }
        assert_eq!((buckets(&all), all.posted.len()), (BUCKETS_KEPT, 10_000));
    }

    #[test]
    fn ever_new_masks_leave_no_trail() {
        let mut all = Beside::default();
        for n in 0..1000 {
            let id = all.post(0, MatchMask(n));
            all.remove(id);
        }
        assert!(all.posted.classes.len() <= CLASSES_KEPT + 1);
    }
}
