//! A slab with generations, so that stale keys are recognised.
//!
//! ```text
//!   insert -> (index, generation)      get(index, generation) -> Some
//!   remove                             get(index, generation) -> None, for ever
//! ```
//!
//! Owns: the values.
//! Cost: insert, look up and remove are O(1); memory is reused. Generations are handed out from one
//! counter per table, so a key comes back only after 2^32 inserts that all hit the same slot.

use slab::Slab;

/// Values under generational keys.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Slab<Slot<T>>,
    next_generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: T,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slab::new(),
            next_generation: 1,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Stores `value`; the key's generation is never 0.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> (u32, u32) {
        let generation = self.next_generation;
        self.next_generation = generation.checked_add(1).unwrap_or(1);
        if self.slots.len() == self.slots.capacity() {
            self.grow();
        }
        // A slab of 2^32 requests would not fit into memory.
        let index = self.slots.insert(Slot { generation, value }) as u32;
        (index, generation)
    }

    /// A large table grows by a quarter: what doubling has in reserve would be most of what each of
    /// ten thousand values costs.
    #[cold]
    fn grow(&mut self) {
        let len = self.slots.len();
        if len >= DOUBLED {
            self.slots.reserve_exact(len / 4);
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&T> {
        match self.slots.get(index as usize) {
            Some(slot) if slot.generation == generation => Some(&slot.value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        match self.slots.get_mut(index as usize) {
            Some(slot) if slot.generation == generation => Some(&mut slot.value),
            _ => None,
        }
    }

    /// The value at `index`, whichever it is.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots
            .get_mut(index as usize)
            .map(|slot| &mut slot.value)
    }

    /// The generation of the value at `index`, if there is one.
    pub(crate) fn generation_of(&self, index: u32) -> Option<u32> {
        self.slots.get(index as usize).map(|slot| slot.generation)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32, generation: u32) -> Option<T> {
        match self.slots.get(index as usize) {
            Some(slot) if slot.generation == generation => {
                Some(self.slots.remove(index as usize).value)
            }
            _ => None,
        }
    }

    /// Every value with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ((u32, u32), &T)> {
        self.slots
            .iter()
            .map(|(index, slot)| ((index as u32, slot.generation), &slot.value))
    }
}

/// Below so many values a table doubles when it is full.
const DOUBLED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_has_a_quarter_in_reserve_at_most_and_grows_seldom() {
        let mut table = Table::new();
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
        let (index, generation) = table.insert(7);
        let full = table.slots.capacity();
        table.remove(index, generation);
        table.insert(8);
        assert_eq!(table.slots.capacity(), full, "a free place is used first");
    }

    #[test]
    fn a_removed_key_stays_stale_when_its_slot_is_used_again() {
        let mut table = Table::new();
        let (index, old) = table.insert('a');
        assert_eq!(table.remove(index, old), Some('a'));
        let (again, new) = table.insert('b');
        assert_eq!((again, table.get(index, old)), (index, None));
        assert_eq!(table.remove(index, old), None);
        assert_eq!(table.get(again, new), Some(&'b'));
    }

    #[test]
    fn generations_wrap_without_ever_being_zero() {
        let mut table = Table::new();
        table.next_generation = u32::MAX;
        let (_, last) = table.insert(1);
        let (_, first) = table.insert(2);
        assert_eq!((last, first), (u32::MAX, 1));
    }
}
