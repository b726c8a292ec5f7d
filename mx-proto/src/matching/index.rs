//! Index of values by match bits: finds the oldest value that agrees under a mask.
//!
//! ```text
//!   all, by age:           #0 <-> #1 <-> #2 <-> #3        #n: slots of one slab
//!   per mask in use:  hash(bits & mask) --> #0 <-> #2
//!                     hash(bits & mask) --> #1 <-> #3
//! ```
//!
//! Owns: the values.
//! Cost: add, find and remove are O(1) for each mask in use, and allocate nothing once the tables have
//! grown. The first look-up with a mask is one pass over all values. Mask 0 needs only the order of age.

use crate::ids::{EntryId, MatchBits, MatchMask};
use crate::table::Table;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Values with match bits, found by bits and mask, oldest first.
#[derive(Debug)]
pub struct MatchIndex<K> {
    values: Table<EntryId, K>,
    places: MatchTable,
}

/// Slots of a slab, found by the bits of their values and a mask, oldest first.
#[derive(Default, Debug)]
pub(crate) struct MatchTable {
    len: usize,
    by_age: Chains,
    all: ChainEnds,
    /// Match bits of each slot that has ever been used.
    bits: Vec<MatchBits>,
    classes: Vec<Class>,
    /// Number of look-ups, to find the least recently used class.
    turn: u64,
}

/// All values, arranged by their bits under one mask.
#[derive(Debug)]
struct Class {
    mask: MatchMask,
    used: u64,
    queues: HashMap<u64, ChainEnds, RandomState>,
    chains: Chains,
}

impl<K> Default for MatchIndex<K> {
    fn default() -> Self {
        Self {
            values: Table::default(),
            places: MatchTable::default(),
        }
    }
}

impl<K> MatchIndex<K> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if there is no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Adds a value, which is the youngest.
    pub fn add(&mut self, bits: MatchBits, value: K) -> EntryId {
        let id = self.values.insert(value);
        self.places.add(bits, id.index());
        id
    }

    /// Returns the id of the oldest value, whatever its bits; `None` if there is none.
    pub fn oldest(&self) -> Option<EntryId> {
        self.id_of(self.places.all.oldest()?)
    }

    /// Returns the id of the oldest value whose bits agree with `bits` where `mask` has ones; `None` if there is none.
    /// The first look-up with a mask visits all values.
    #[inline]
    pub fn front(&mut self, bits: MatchBits, mask: MatchMask) -> Option<EntryId> {
        let oldest = self.places.front(bits, mask)?;
        self.id_of(oldest)
    }

    /// Returns a value; `None` if it has been removed.
    #[inline]
    pub fn get(&self, id: EntryId) -> Option<&K> {
        self.values.get(id)
    }

    /// Removes a value and returns it; `None` if it had been removed.
    pub fn remove(&mut self, id: EntryId) -> Option<K> {
        let value = self.values.remove(id)?;
        self.places.remove(id.index());
        if self.values.is_empty() && self.values.capacity() > KEPT_MAX {
            // Free the memory of a flood: a program may never see another one.
            self.values.forget_places();
            self.places = MatchTable::default();
        }
        Some(value)
    }

    /// Removes and returns the value that [`Self::front`] finds; `None` if it finds none.
    #[inline]
    pub fn take(&mut self, bits: MatchBits, mask: MatchMask) -> Option<K> {
        let id = self.front(bits, mask)?;
        self.remove(id)
    }

    /// Returns all values, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &K)> {
        let places = self.places.by_age.walk(self.places.all);
        places.filter_map(|place| self.values.at(place))
    }

    fn id_of(&self, place: u32) -> Option<EntryId> {
        Some(self.values.at(place)?.0)
    }
}

impl MatchTable {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a slot, which is the youngest.
    pub(crate) fn add(&mut self, bits: MatchBits, place: u32) {
        self.len += 1;
        self.by_age.append(&mut self.all, place);
        let at = place as usize;
        if at >= self.bits.len() {
            self.bits.resize(at + 1, bits);
        }
        self.bits[at] = bits;
        for class in &mut self.classes {
            class.append(bits, place);
        }
    }

    pub(crate) fn remove(&mut self, place: u32) {
        self.len -= 1;
        self.by_age.unlink(&mut self.all, place);
        let bits = self.bits[place as usize];
        for class in &mut self.classes {
            class.unlink(bits, place);
        }
    }

    /// Returns the oldest slot whose bits agree with `bits` where `mask` has ones.
    #[inline]
    pub(crate) fn front(&mut self, bits: MatchBits, mask: MatchMask) -> Option<u32> {
        let oldest = self.all.oldest()?;
        if mask.0 == 0 {
            return Some(oldest);
        }
        let at = self.class_of(mask);
        let class = &mut self.classes[at];
        self.turn += 1;
        class.used = self.turn;
        class.queues.get(&mask.apply(bits).0)?.oldest()
    }

    #[inline]
    fn class_of(&mut self, mask: MatchMask) -> usize {
        match self.classes.iter().position(|class| class.mask == mask) {
            Some(at) => at,
            None => self.new_class(mask),
        }
    }

    #[cold]
    fn new_class(&mut self, mask: MatchMask) -> usize {
        let classes = self.classes.iter().enumerate();
        if self.classes.len() >= CLASSES_KEPT
            && let Some((idle, _)) = classes.min_by_key(|(_, class)| class.used)
        {
            self.classes.swap_remove(idle);
        }
        let mut class = Class {
            mask,
            used: self.turn,
            queues: HashMap::default(),
            chains: Chains::default(),
        };
        for place in self.by_age.walk(self.all) {
            class.append(self.bits[place as usize], place);
        }
        self.classes.push(class);
        self.classes.len() - 1
    }
}

impl Class {
    #[inline]
    fn append(&mut self, bits: MatchBits, index: u32) {
        let queue = self.queues.entry(self.mask.apply(bits).0);
        self.chains.append(queue.or_insert(ChainEnds::EMPTY), index);
    }

    #[inline]
    fn unlink(&mut self, bits: MatchBits, index: u32) {
        let key = self.mask.apply(bits).0;
        let Some(queue) = self.queues.get_mut(&key) else {
            debug_assert!(false, "an entry that is in no queue");
            return;
        };
        self.chains.unlink(queue, index);
        if queue.oldest == NONE {
            self.queues.remove(&key);
        }
    }
}

/// First and last entry of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainEnds {
    oldest: u32,
    youngest: u32,
}

impl ChainEnds {
    pub(crate) const EMPTY: Self = Self {
        oldest: NONE,
        youngest: NONE,
    };

    #[inline]
    pub(crate) fn oldest(self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(crate) fn youngest(self) -> Option<u32> {
        (self.youngest != NONE).then_some(self.youngest)
    }
}

impl Default for ChainEnds {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Neighbours of every entry, by its slot. Each entry is in one chain.
#[derive(Debug, Default)]
pub(crate) struct Chains(Vec<Neighbours>);

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    older: u32,
    younger: u32,
}

impl Chains {
    #[inline]
    pub(crate) fn append(&mut self, ends: &mut ChainEnds, index: u32) {
        let place = index as usize;
        if place >= self.0.len() {
            let nothing = Neighbours {
                older: NONE,
                younger: NONE,
            };
            self.0.resize(place + 1, nothing);
        }
        let older = std::mem::replace(&mut ends.youngest, index);
        self.0[place] = Neighbours {
            older,
            younger: NONE,
        };
        match self.0.get_mut(older as usize) {
            Some(before) => before.younger = index,
            None => ends.oldest = index,
        }
    }

    #[inline]
    pub(crate) fn unlink(&mut self, ends: &mut ChainEnds, index: u32) {
        let Some(&Neighbours { older, younger }) = self.0.get(index as usize) else {
            return;
        };
        match self.0.get_mut(older as usize) {
            Some(before) => before.younger = younger,
            None => ends.oldest = younger,
        }
        match self.0.get_mut(younger as usize) {
            Some(behind) => behind.older = older,
            None => ends.youngest = older,
        }
    }

    pub(crate) fn insert(&mut self, ends: &mut ChainEnds, index: u32, before: u32) {
        let Some(&Neighbours { older, .. }) = self.0.get(before as usize) else {
            return;
        };
        let mut front = ChainEnds {
            youngest: older,
            ..*ends
        };
        self.append(&mut front, index);
        ends.oldest = front.oldest;
        self.0[index as usize].younger = before;
        self.0[before as usize].older = index;
    }

    pub(crate) fn walk(&self, ends: ChainEnds) -> impl Iterator<Item = u32> {
        std::iter::successors(ends.oldest(), |index| self.behind(*index))
    }

    pub(crate) fn behind(&self, index: u32) -> Option<u32> {
        Some(self.after(index)).filter(|next| *next != NONE)
    }

    fn after(&self, index: u32) -> u32 {
        self.0
            .get(index as usize)
            .map_or(NONE, |neighbours| neighbours.younger)
    }
}

/// Stands for no entry; no slab grows this large.
const NONE: u32 = u32::MAX;
/// Maximum number of masks with a class; a program that uses more pays for rebuilding classes.
const CLASSES_KEPT: usize = 8;
/// Number of entries for which memory is kept when the index is empty: about half a megabyte.
pub(crate) const KEPT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: MatchMask = MatchMask::EXACT;
    const TOP: MatchMask = MatchMask(0xf000_0000_0000_0000);

    #[test]
    fn the_oldest_that_agrees_comes_out_whatever_the_mask() {
        let mut index = MatchIndex::default();
        for (n, bits) in [0xe << 60 | 1, 0xd << 60, 0xe << 60 | 2, 0xe << 60 | 1u64]
            .into_iter()
            .enumerate()
        {
            index.add(MatchBits(bits), n);
        }
        assert_eq!(index.take(MatchBits(0xe << 60 | 2), EXACT), Some(2));
        assert_eq!(index.take(MatchBits(0xe << 60), TOP), Some(0));
        assert_eq!(index.take(MatchBits(0xe << 60 | 1), EXACT), Some(3));
        assert_eq!(index.take(MatchBits(0xe << 60), TOP), None);
        assert_eq!(index.take(MatchBits(7), MatchMask(0)), Some(1));
        assert!(index.is_empty() && index.oldest().is_none());
    }

    #[test]
    fn an_id_is_stale_once_its_value_is_gone() {
        let mut index = MatchIndex::default();
        let first = index.add(MatchBits(1), 'a');
        assert_eq!(index.remove(first), Some('a'));
        let second = index.add(MatchBits(1), 'b');
        assert_eq!(index.get(first), None);
        assert_eq!(index.remove(first), None);
        assert_eq!(index.get(second), Some(&'b'));
    }

    #[test]
    fn values_leave_from_anywhere_and_the_rest_keeps_its_order() {
        let mut index = MatchIndex::default();
        let ids: Vec<_> = (0..6).map(|n| index.add(MatchBits(n % 2), n)).collect();
        assert_eq!(index.front(MatchBits(0), EXACT), Some(ids[0]));
        for n in [0, 3, 4] {
            assert_eq!(index.remove(ids[n]), Some(n as u64));
        }
        let left: Vec<_> = index.iter().map(|(_, value)| *value).collect();
        assert_eq!(left, [1, 2, 5]);
        assert_eq!(index.take(MatchBits(1), EXACT), Some(1));
        assert_eq!(index.take(MatchBits(1), EXACT), Some(5));
        assert_eq!(index.take(MatchBits(1), EXACT), None);
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn ever_new_masks_neither_pile_up_nor_displace_the_one_in_use() {
        let mut index = MatchIndex::default();
        index.add(MatchBits(0), 0);
        for n in 1..1000 {
            assert!(index.front(MatchBits(0), TOP).is_some());
            assert!(index.front(MatchBits(0), MatchMask(n)).is_some());
        }
        // The classes left are the one in use and the most recent others.
        let mut masks: Vec<u64> = index
            .places
            .classes
            .iter()
            .map(|class| class.mask.0)
            .collect();
        masks.sort_unstable();
        let last = (999 - CLASSES_KEPT as u64 + 2)..=999;
        assert_eq!(masks, last.chain([TOP.0]).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_of_a_flood_is_given_back() {
        let mut index = MatchIndex::default();
        for n in 0..3 * KEPT_MAX as u64 {
            index.add(MatchBits(n), n);
        }
        while let Some(id) = index.oldest() {
            assert!(index.front(MatchBits(0), TOP).is_some());
            assert!(index.remove(id).is_some());
        }
        assert_eq!(index.values.capacity(), 0);
        index.add(MatchBits(5), 5);
        assert_eq!(index.take(MatchBits(5), EXACT), Some(5));
    }

    #[test]
    fn a_list_searched_from_the_front_finds_the_same() {
        mx_sim::seeds::each(2_000, |seed| {
            let mut rng = mx_sim::Rng::new(seed);
            let mut index = MatchIndex::default();
            let mut list: Vec<(EntryId, u64)> = Vec::new();
            for n in 0..rng.below(200) {
                let (bits, mask) = (rng.below(16), MatchMask(rng.below(16)));
                let front = list
                    .iter()
                    .position(|(_, other)| other & mask.0 == bits & mask.0);
                match rng.below(4) {
                    0 | 1 => list.push((index.add(MatchBits(bits), n), bits)),
                    2 => {
                        let found = index.front(MatchBits(bits), mask);
                        assert_eq!(found, front.map(|at| list[at].0));
                        if let Some(at) = front {
                            assert!(index.take(MatchBits(bits), mask).is_some());
                            list.remove(at);
                        }
                    }
                    _ if list.is_empty() => {}
                    _ => {
                        let (id, _) = list.remove(rng.index(list.len()));
                        assert!(index.remove(id).is_some() && index.remove(id).is_none());
                    }
                }
                assert_eq!(index.oldest(), list.first().map(|(id, _)| *id));
            }
            let left: Vec<_> = index.iter().map(|(id, _)| id).collect();
            assert_eq!(left, list.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            assert_eq!(index.len(), list.len());
        });
    }
}
