//! Slots with generations, by [`LinkId`].
//!
//! ```text
//!   LinkId { index, generation } --> slots[index], if its generation still is that one
//!                                    free: [7, 3]  indices to use again
//! ```
//!
//! Owns: the values.
//! Cost: all operations are O(1).

use mx_port_base::nest;
use mx_proto::LinkId;

/// A table of `T` by [`LinkId`].
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    /// A table of at most `limit` values, which is kept below [`INDEX_LIMIT`].
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            limit: limit.min(INDEX_LIMIT),
        }
    }

    /// Values in the table.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True when nothing can be inserted.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Puts a value in; `None` when the table is full.
    pub(super) fn insert(&mut self, value: T) -> Option<LinkId> {
        if self.is_full() {
            return None;
        }
        let index = if let Some(index) = self.free.pop() {
            index
        } else {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            (self.slots.len() - 1) as u32
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Some(LinkId::new(index, slot.generation))
    }

    /// Takes a value out; its name is stale from now on.
    pub(super) fn remove(&mut self, id: LinkId) -> Option<T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index());
        Some(value)
    }

    /// The value called `id`.
    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&T> {
        let slot = self.slots.get(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        slot.value.as_ref()
    }

    /// The value called `id`.
    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.index() as usize)?;
        if slot.generation != id.generation() {
            return None;
        }
        slot.value.as_mut()
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

/// Other descriptors wake the same sleeper under the tokens from there on.
const INDEX_LIMIT: usize = nest::FIRST_TOKEN as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_does_not_reach_the_next_owner_of_its_slot() {
        let mut table = Table::new(8);
        let first = table.insert('a').unwrap();
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b').unwrap();
        assert_eq!(first.index(), second.index());
        assert_eq!(table.get(first), None);
        assert_eq!(table.get_mut(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'b'));
        assert_eq!(table.get(LinkId::new(1000, 0)), None);
    }

    #[test]
    fn a_full_table_takes_nothing_until_something_is_removed() {
        let mut table = Table::new(2);
        let first = table.insert(1).unwrap();
        table.insert(2).unwrap();
        assert!(table.is_full());
        assert_eq!(table.insert(3), None);
        table.remove(first);
        assert!(table.insert(4).is_some());
        assert_eq!(table.values().count(), 2);
    }

    #[test]
    fn generations_wrap() {
        let mut table = Table::new(1);
        let id = table.insert(()).unwrap();
        table.slots[0].generation = u32::MAX;
        let last = LinkId::new(id.index(), u32::MAX);
        assert_eq!(table.remove(last), Some(()));
        assert_eq!(table.insert(()), Some(LinkId::new(0, 0)));
    }

    #[test]
    fn what_else_wakes_a_sleeper_is_no_link() {
        let mut table = Table::new(100);
        for _ in 0..20 {
            table.insert(()).expect("there is a place");
        }
        for member in 0..nest::MEMBERS as u64 {
            let id = LinkId::from_word(nest::FIRST_TOKEN + member);
            assert_eq!(table.get(id), None, "{member}");
        }
    }
}
