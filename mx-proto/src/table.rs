//! Table: a slab with generations, so that stale keys are recognised; used for links, remotes and peers.
//!
//! ```text
//!   insert -> key = (index, generation)      get(key) -> Some
//!   remove(key)                              get(key) -> None from now on
//! ```
//!
//! Owns: the values.
//! Cost: insert, look up and remove are O(1); memory is reused. Generations come from one counter for each
//! table, so a key is repeated only if the same slot is used again after 2^32 inserts.

use slab::Slab;
use std::marker::PhantomData;

/// Key of a value in a [`Table`]: a slot index and a generation. An implementation is a copyable id that stores both
/// numbers unchanged.
pub trait Key: Copy {
    /// Makes a key.
    fn new(index: u32, generation: u32) -> Self;
    /// Returns the slot in the table.
    fn index(self) -> u32;
    /// Returns the number that distinguishes the key from others of its slot. Never 0 in a key that a table made.
    fn generation(self) -> u32;
}

/// Values in slots, found by keys that become stale when their value is removed.
#[derive(Debug)]
pub struct Table<K, T> {
    slots: Slab<TableSlot<T>>,
    next_generation: u32,
    keys: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct TableSlot<T> {
    generation: u32,
    value: T,
}

impl<K, T> Default for Table<K, T> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            next_generation: 1,
            keys: PhantomData,
        }
    }
}

impl<K: Key, T> Table<K, T> {
    /// Returns the number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there is no value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the number of values, including the present ones, that fit without allocating.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Stores `value` and returns its key, which no earlier value had. Allocates if the table is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> K {
        self.insert_with(|_| value)
    }

    /// Stores the value that `value` makes from its future key, and returns the key.
    #[inline]
    pub fn insert_with(&mut self, value: impl FnOnce(K) -> T) -> K {
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).unwrap_or(1);
        if self.slots.len() == self.slots.capacity() {
            self.grow();
        }
        let vacant = self.slots.vacant_entry();
        // A slab of 2^32 values would not fit into memory.
        let key = K::new(vacant.key() as u32, generation);
        let value = value(key);
        vacant.insert(TableSlot { generation, value });
        key
    }

    /// Grows a full table.
    #[cold]
    fn grow(&mut self) {
        let more = growth(self.slots.len(), 1);
        self.slots.reserve_exact(more);
    }

    /// Returns the value of a key; `None` if it has been removed.
    #[inline]
    pub fn get(&self, key: K) -> Option<&T> {
        match self.slots.get(key.index() as usize) {
            Some(slot) if slot.generation == key.generation() => Some(&slot.value),
            _ => None,
        }
    }

    /// Returns the value of a key for changing; `None` if it has been removed.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut T> {
        match self.slots.get_mut(key.index() as usize) {
            Some(slot) if slot.generation == key.generation() => Some(&mut slot.value),
            _ => None,
        }
    }

    /// Returns the value in the slot `index` and its key; `None` if the slot is empty.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(K, &T)> {
        let slot = self.slots.get(index as usize)?;
        Some((K::new(index, slot.generation), &slot.value))
    }

    /// Returns the value in the slot `index` for changing; `None` if the slot is empty.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        Some(&mut slot.value)
    }

    /// Removes a value and returns it; its key is stale from now on. `None` if the key was stale already.
    #[inline]
    pub fn remove(&mut self, key: K) -> Option<T> {
        self.get(key)?;
        Some(self.slots.remove(key.index() as usize).value)
    }

    /// Returns all values with their keys, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slots.iter().map(|(index, slot)| {
            let key = K::new(index as u32, slot.generation);
            (key, &slot.value)
        })
    }

    /// Returns all values with their keys, for changing, in the order of their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut T)> {
        self.slots.iter_mut().map(|(index, slot)| {
            let key = K::new(index as u32, slot.generation);
            (key, &mut slot.value)
        })
    }

    /// Frees the memory of a table that is empty; does nothing to any other. Old keys remain stale.
    pub fn forget_places(&mut self) {
        if self.is_empty() {
            self.slots = Slab::new();
        }
    }
}

/// Reserves memory in `all` for `len` values in total. A vector doubles up to 1024 values and grows by a quarter
/// beyond.
#[inline]
pub fn reserve<T>(all: &mut Vec<T>, len: usize) {
    if len > all.capacity() {
        all.reserve_exact(growth(all.len(), len - all.len()));
    }
}

/// Returns the number of values by which a full table grows to add `more`. A large one grows by a quarter: the unused half of
/// a doubled one would be most of the cost of each of ten thousand values.
fn growth(len: usize, more: usize) -> usize {
    let spare = if len < DOUBLED { len.max(4) } else { len / 4 };
    spare.max(more)
}

/// Number of values below which a full table doubles.
const DOUBLED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkId;

    #[test]
    fn large_table_reserves_a_quarter_and_grows_seldom() {
        let mut table = Table::<LinkId, usize>::default();
        let mut capacities = Vec::new();
        for n in 1..=100_000 {
            table.insert(n);
            let capacity = table.slots.capacity();
            assert!(
                n < 2 * DOUBLED || capacity <= n + n / 4 + 1,
                "{capacity} for {n}"
            );
            if capacities.last() != Some(&capacity) {
                capacities.push(capacity);
            }
        }
        assert!(capacities.len() < 40, "{capacities:?}");
        let key = table.insert(7);
        let full = table.slots.capacity();
        table.remove(key);
        table.insert(8);
        assert_eq!(table.slots.capacity(), full, "a free place is used first");
    }

    #[test]
    fn a_removed_key_stays_stale_when_its_slot_is_used_again() {
        let mut table = Table::<LinkId, char>::default();
        let old = table.insert('a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert('b');
        assert_eq!((new.index(), table.get(old)), (old.index(), None));
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.get(new), Some(&'b'));
        assert_eq!(table.get(LinkId::new(1000, 1)), None);
        table.remove(new);
        table.forget_places();
        let next = table.insert('c');
        assert_eq!((next.index(), table.get(new)), (0, None));
    }

    #[test]
    fn generations_wrap_without_ever_being_zero() {
        let mut table = Table::<LinkId, u32> {
            next_generation: u32::MAX,
            ..Table::default()
        };
        let (last, first) = (table.insert(1), table.insert(2));
        assert_eq!((last.generation(), first.generation()), (u32::MAX, 1));
    }
}
