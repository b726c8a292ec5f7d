//! Peers in order: whom to ask for credits, and whom to lend some.
//!
//! ```text
//!   Above    more than the minimum         front: longest not used     asked first
//!   Within   the minimum or less           front: longest not used     asked when somebody waits
//!   Wanting  has some and wants more       front: longest waiting      served second
//!   Without  has none and waits            front: longest waiting      served first
//! ```
//!
//! Links lie in the records; a peer is in one list at most. Every call is O(1).
//!
//! Knows nothing of: who belongs where.

use super::record::Record;

/// The lists there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum List {
    Above = 1,
    Within = 2,
    Wanting = 3,
    Without = 4,
}

/// Front and back of every list.
#[derive(Debug)]
pub(super) struct Lists {
    ends: [Ends; 4],
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
    len: u32,
}

impl Lists {
    pub(super) fn new() -> Self {
        let empty = Ends {
            front: NOBODY,
            back: NOBODY,
            len: 0,
        };
        Self { ends: [empty; 4] }
    }

    /// The first of a list.
    #[inline]
    pub(super) fn front(&self, list: List) -> Option<u32> {
        let front = self.ends(list).front;
        (front != NOBODY).then_some(front)
    }

    #[inline]
    pub(super) fn len(&self, list: List) -> u32 {
        self.ends(list).len
    }

    #[inline]
    pub(super) fn is_empty(&self, list: List) -> bool {
        self.ends(list).len == 0
    }

    /// Puts a peer at the back of a list, out of the one that it was in.
    pub(super) fn push(&mut self, records: &mut [Record], peer: u32, list: List) {
        self.remove(records, peer);
        let Ends { back, .. } = *self.ends(list);
        let record = &mut records[peer as usize];
        record.list = list as u8;
        (record.previous, record.next) = (back, NOBODY);
        let ends = self.ends_mut(list);
        ends.back = peer;
        ends.len += 1;
        if back == NOBODY {
            ends.front = peer;
        } else {
            records[back as usize].next = peer;
        }
    }

    /// Takes a peer out of the list that it is in.
    pub(super) fn remove(&mut self, records: &mut [Record], peer: u32) {
        let record = &mut records[peer as usize];
        let Some(list) = list_of(record) else {
            return;
        };
        record.list = 0;
        let (previous, next) = (record.previous, record.next);
        let ends = self.ends_mut(list);
        ends.len -= 1;
        if previous == NOBODY {
            ends.front = next;
        }
        if next == NOBODY {
            ends.back = previous;
        }
        if previous != NOBODY {
            records[previous as usize].next = next;
        }
        if next != NOBODY {
            records[next as usize].previous = previous;
        }
    }

    fn ends(&self, list: List) -> &Ends {
        &self.ends[list as usize - 1]
    }

    fn ends_mut(&mut self, list: List) -> &mut Ends {
        &mut self.ends[list as usize - 1]
    }
}

/// The list that a peer is in.
pub(super) fn list_of(record: &Record) -> Option<List> {
    match record.list {
        1 => Some(List::Above),
        2 => Some(List::Within),
        3 => Some(List::Wanting),
        4 => Some(List::Without),
        _ => None,
    }
}

/// No peer: peer ids have 20 bits.
const NOBODY: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(lists: &mut Lists, records: &mut [Record], list: List) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some(peer) = lists.front(list) {
            order.push(peer);
            lists.remove(records, peer);
        }
        assert!(lists.is_empty(list));
        order
    }

    #[test]
    fn a_list_keeps_the_order_of_entry_whoever_leaves() {
        let mut lists = Lists::new();
        let mut records = vec![Record::default(); 8];
        for peer in 0..8 {
            lists.push(&mut records, peer, List::Above);
        }
        for peer in [0, 7, 3] {
            lists.remove(&mut records, peer);
            lists.remove(&mut records, peer);
        }
        lists.push(&mut records, 2, List::Above);
        assert_eq!(lists.len(List::Above), 5);
        assert_eq!(
            drain(&mut lists, &mut records, List::Above),
            [1, 4, 5, 6, 2]
        );
    }

    #[test]
    fn a_peer_is_in_one_list_only() {
        let mut lists = Lists::new();
        let mut records = vec![Record::default(); 3];
        for list in [List::Above, List::Within, List::Wanting, List::Without] {
            for peer in 0..3 {
                lists.push(&mut records, peer, list);
                assert_eq!(list_of(&records[peer as usize]), Some(list));
            }
        }
        assert!(lists.is_empty(List::Above) && lists.is_empty(List::Within));
        assert!(lists.is_empty(List::Wanting));
        assert_eq!(drain(&mut lists, &mut records, List::Without), [0, 1, 2]);
    }
}
