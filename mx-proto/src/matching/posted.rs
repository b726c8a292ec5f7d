//! Posted receives that no message has matched yet.
//!
//! ```text
//!   class (mask) -- hash(bits & mask) --> queue: oldest <-> ... <-> youngest
//! ```
//!
//! Owns: the order of posting. Cost: post, take and remove are O(1) per mask class in use.

use crate::ids::{MatchBits, MatchMask, RequestId};
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Names a posted receive for [`Posted::remove`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PostedKey(u32);

/// All posted receives of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    classes: Vec<Class>,
    nodes: Slab<Node>,
    next_order: u64,
}

#[derive(Debug)]
struct Class {
    mask: MatchMask,
    queues: HashMap<u64, Queue, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    youngest: u32,
}

#[derive(Debug)]
struct Node {
    request: RequestId,
    bits: MatchBits,
    mask: MatchMask,
    /// Position in the order of posting.
    order: u64,
    prev: u32,
    next: u32,
}

/// What has to be remembered to put a receive back where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    bits: MatchBits,
    mask: MatchMask,
    order: u64,
}

impl Position {
    pub(crate) fn bits(self) -> MatchBits {
        self.bits
    }

    pub(crate) fn mask(self) -> MatchMask {
        self.mask
    }
}

impl Posted {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds the youngest receive. `bits` must lie within `mask`.
    #[inline]
    pub(crate) fn post(
        &mut self,
        bits: MatchBits,
        mask: MatchMask,
        request: RequestId,
    ) -> PostedKey {
        let position = self.reserve(bits, mask);
        self.put_back(position, request)
    }

    /// The place of a receive that a waiting message has matched before it could be posted.
    pub(crate) fn reserve(&mut self, bits: MatchBits, mask: MatchMask) -> Position {
        let order = self.next_order;
        self.next_order += 1;
        Position { bits, mask, order }
    }

    /// Puts a receive that [`Self::take`] or [`Self::reserve`] gave a place back to it.
    #[inline]
    pub(crate) fn put_back(&mut self, position: Position, request: RequestId) -> PostedKey {
        let Position { bits, mask, order } = position;
        let class = self.class_of(mask);
        let node = Node {
            request,
            bits,
            mask,
            order,
            prev: NONE,
            next: NONE,
        };
        let index = self.nodes.insert(node) as u32;
        match self.classes[class].queues.entry(bits.0) {
            Entry::Vacant(empty) => {
                empty.insert(Queue {
                    oldest: index,
                    youngest: index,
                });
            }
            Entry::Occupied(mut queue) => {
                let queue = queue.get_mut();
                // Behind every older one: at the end, if it is new; else there are few older ones,
                // for it was the oldest once.
                let youngest = &self.nodes[queue.youngest as usize];
                let mut next = if youngest.order < order {
                    NONE
                } else {
                    queue.oldest
                };
                while self
                    .nodes
                    .get(next as usize)
                    .is_some_and(|node| node.order < order)
                {
                    next = self.nodes[next as usize].next;
                }
                let prev = match self.nodes.get_mut(next as usize) {
                    Some(node) => std::mem::replace(&mut node.prev, index),
                    None => std::mem::replace(&mut queue.youngest, index),
                };
                match self.nodes.get_mut(prev as usize) {
                    Some(node) => node.next = index,
                    None => queue.oldest = index,
                }
                self.nodes[index as usize].prev = prev;
                self.nodes[index as usize].next = next;
            }
        }
        PostedKey(index)
    }

    /// Takes out the oldest receive that accepts a message with `bits`.
    #[inline]
    pub(crate) fn take(&mut self, bits: MatchBits) -> Option<(RequestId, Position)> {
        let mut best: Option<(u64, u32)> = None;
        for class in &self.classes {
            let Some(queue) = class.queues.get(&class.mask.apply(bits).0) else {
                continue;
            };
            let order = self.nodes[queue.oldest as usize].order;
            if best.is_none_or(|(oldest, _)| order < oldest) {
                best = Some((order, queue.oldest));
            }
        }
        let (_, index) = best?;
        let node = self.unlink(index)?;
        Some((
            node.request,
            Position {
                bits: node.bits,
                mask: node.mask,
                order: node.order,
            },
        ))
    }

    /// Takes out one receive. `key` must be one that is still posted.
    pub(crate) fn remove(&mut self, key: PostedKey) {
        self.unlink(key.0);
    }

    fn unlink(&mut self, index: u32) -> Option<Node> {
        let node = self.nodes.try_remove(index as usize)?;
        if let Some(prev) = self.nodes.get_mut(node.prev as usize) {
            prev.next = node.next;
        }
        if let Some(next) = self.nodes.get_mut(node.next as usize) {
            next.prev = node.prev;
        }
        if node.prev == NONE || node.next == NONE {
            let class = self.class_of(node.mask);
            let queues = &mut self.classes[class].queues;
            if node.prev == NONE && node.next == NONE {
                queues.remove(&node.bits.0);
            } else if let Some(queue) = queues.get_mut(&node.bits.0) {
                if node.prev == NONE {
                    queue.oldest = node.next;
                } else {
                    queue.youngest = node.prev;
                }
            }
        }
        Some(node)
    }

    #[inline]
    fn class_of(&mut self, mask: MatchMask) -> usize {
        match self.classes.iter().position(|class| class.mask == mask) {
            Some(at) => at,
            None => {
                // A program with ever new masks would otherwise leave a trail of empty classes.
                if self.classes.len() >= CLASSES_KEPT {
                    self.classes.retain(|class| !class.queues.is_empty());
                }
                self.classes.push(Class {
                    mask,
                    queues: HashMap::default(),
                });
                self.classes.len() - 1
            }
        }
    }
}

const NONE: u32 = u32::MAX;
/// Classes kept although they may be empty: more masks than any program is known to use.
const CLASSES_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: MatchMask = MatchMask::EXACT;
    const TOP: MatchMask = MatchMask(0xf000_0000_0000_0000);

    fn id(n: u32) -> RequestId {
        RequestId::new(n, 1)
    }

    fn taken(posted: &mut Posted, bits: u64) -> Option<u32> {
        posted
            .take(MatchBits(bits))
            .map(|(request, _)| request.index())
    }

    #[test]
    fn equal_bits_match_in_posting_order() {
        let mut posted = Posted::default();
        for n in 0..4 {
            posted.post(MatchBits(5), EXACT, id(n));
        }
        posted.post(MatchBits(6), EXACT, id(9));
        let out: Vec<_> = std::iter::from_fn(|| taken(&mut posted, 5)).collect();
        assert_eq!(out, [0, 1, 2, 3]);
        assert_eq!(posted.len(), 1);
    }

    #[test]
    fn the_oldest_receive_wins_whatever_its_mask() {
        let mut posted = Posted::default();
        posted.post(MatchBits(0xe << 60), TOP, id(0));
        posted.post(MatchBits(0xe << 60 | 1), EXACT, id(1));
        posted.post(MatchBits(0xe << 60), TOP, id(2));
        assert_eq!(taken(&mut posted, 0xe << 60 | 1), Some(0));
        assert_eq!(taken(&mut posted, 0xe << 60 | 1), Some(1));
        assert_eq!(taken(&mut posted, 0xe << 60 | 1), Some(2));
        assert_eq!(taken(&mut posted, 0xe << 60 | 1), None);
    }

    #[test]
    fn a_receive_put_back_is_where_it_was() {
        let mut posted = Posted::default();
        for n in 0..4 {
            posted.post(MatchBits(5), EXACT, id(n));
        }
        let (zero, first) = posted.take(MatchBits(5)).unwrap();
        let (one, second) = posted.take(MatchBits(5)).unwrap();
        posted.put_back(second, one);
        posted.put_back(first, zero);
        let out: Vec<_> = std::iter::from_fn(|| taken(&mut posted, 5)).collect();
        assert_eq!(out, [0, 1, 2, 3]);
        posted.put_back(first, zero);
        assert_eq!(taken(&mut posted, 5), Some(0));
    }

    #[test]
    fn removing_from_head_middle_and_tail_keeps_the_rest() {
        let mut posted = Posted::default();
        let keys: Vec<_> = (0..5)
            .map(|n| posted.post(MatchBits(1), EXACT, id(n)))
            .collect();
        for n in [0, 2, 4] {
            posted.remove(keys[n]);
        }
        assert_eq!(taken(&mut posted, 1), Some(1));
        assert_eq!(taken(&mut posted, 1), Some(3));
        assert_eq!(taken(&mut posted, 1), None);
        assert_eq!(posted.len(), 0);
    }

    #[test]
    fn ever_new_masks_leave_no_trail() {
        let mut posted = Posted::default();
        for n in 0..1000 {
            let key = posted.post(MatchBits(0), MatchMask(n), id(0));
            posted.remove(key);
        }
        assert!(posted.classes.len() <= CLASSES_KEPT + 1);
    }
}
