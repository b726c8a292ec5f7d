//! Messages that arrived before a receive for them was posted.
//!
//! ```text
//!   waiting messages, oldest first:   #7  #9  #12  ...
//!   index per mask in use:  hash(bits & mask) --> #9, #12 ...
//! ```
//!
//! Owns: their bytes. Knows nothing of: who may leave how much here (credits see to that).
//! Cost: O(1) per message and mask in use. An index is made when a mask is first asked for;
//! what has left through another index is skipped when it comes to the front.

use crate::ids::{MatchBits, MatchMask, PartnerId};
use crate::port::RemoteKey;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What there is of a waiting message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// All of it.
    Eager(Vec<u8>),
    /// The name under which its sender will give it out.
    Offer {
        send_id: u64,
        key: Option<RemoteKey>,
    },
}

/// One waiting message.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) source: PartnerId,
    pub(crate) bits: MatchBits,
    pub(crate) length: u32,
    pub(crate) payload: Payload,
}

/// All waiting messages of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    /// By order of arrival.
    messages: BTreeMap<u64, Waiting>,
    next_order: u64,
    indexes: Vec<Index>,
}

#[derive(Debug)]
struct Index {
    mask: MatchMask,
    queues: HashMap<u64, VecDeque<u64>, RandomState>,
    /// Entries in `queues`, those that have left through another index included.
    entries: usize,
}

impl Unexpected {
    pub(crate) fn add(&mut self, waiting: Waiting) {
        let order = self.next_order;
        self.next_order += 1;
        for index in &mut self.indexes {
            index.add(waiting.bits, order);
        }
        self.messages.insert(order, waiting);
        let live = self.messages.len();
        for index in &mut self.indexes {
            if index.entries > 2 * live + STALE_KEPT {
                index.rebuild(&self.messages);
            }
        }
    }

    /// Takes out the oldest message that a receive with `bits` and `mask` accepts.
    #[inline]
    pub(crate) fn take(&mut self, bits: MatchBits, mask: MatchMask) -> Option<Waiting> {
        if self.messages.is_empty() {
            return None;
        }
        let order = self.find(bits, mask)?;
        self.messages.remove(&order)
    }

    /// Looks at the oldest message that a receive with `bits` and `mask` would accept.
    pub(crate) fn peek(&mut self, bits: MatchBits, mask: MatchMask) -> Option<&Waiting> {
        let order = self.find(bits, mask)?;
        self.messages.get(&order)
    }

    /// Takes out the offer `send_id` of `source`.
    pub(crate) fn withdraw(&mut self, source: PartnerId, wanted: u64) -> Option<Waiting> {
        let order = self.messages.iter().find_map(|(order, waiting)| {
            let Payload::Offer { send_id, .. } = waiting.payload else {
                return None;
            };
            (waiting.source == source && send_id == wanted).then_some(*order)
        })?;
        self.messages.remove(&order)
    }

    /// Throws away everything from `source`; tells how many bytes of messages that were.
    pub(crate) fn forget(&mut self, source: PartnerId) -> usize {
        let mut bytes = 0;
        self.messages.retain(|_, waiting| {
            let keep = waiting.source != source;
            if let (false, Payload::Eager(data)) = (keep, &waiting.payload) {
                bytes += data.len();
            }
            keep
        });
        bytes
    }

    fn find(&mut self, bits: MatchBits, mask: MatchMask) -> Option<u64> {
        let at = match self.indexes.iter().position(|index| index.mask == mask) {
            Some(at) => at,
            None => {
                if self.indexes.len() >= INDEXES_KEPT {
                    self.indexes.remove(0);
                }
                let mut index = Index {
                    mask,
                    queues: HashMap::default(),
                    entries: 0,
                };
                index.rebuild(&self.messages);
                self.indexes.push(index);
                self.indexes.len() - 1
            }
        };
        self.indexes[at].front(mask.apply(bits).0, &self.messages)
    }
}

impl Index {
    fn add(&mut self, bits: MatchBits, order: u64) {
        self.queues
            .entry(self.mask.apply(bits).0)
            .or_default()
            .push_back(order);
        self.entries += 1;
    }

    fn rebuild(&mut self, messages: &BTreeMap<u64, Waiting>) {
        self.queues.clear();
        self.entries = 0;
        for (order, waiting) in messages {
            self.add(waiting.bits, *order);
        }
    }

    fn front(&mut self, key: u64, messages: &BTreeMap<u64, Waiting>) -> Option<u64> {
        let queue = self.queues.get_mut(&key)?;
        while let Some(order) = queue.front() {
            if messages.contains_key(order) {
                return Some(*order);
            }
            queue.pop_front();
            self.entries -= 1;
        }
        self.queues.remove(&key);
        None
    }
}

/// Masks for which an index is kept; a program with more pays for making them again.
const INDEXES_KEPT: usize = 8;
/// Entries of messages that are gone which an index may hold before it is made anew.
const STALE_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: MatchMask = MatchMask(0xf000_0000_0000_0000);

    fn message(source: u32, bits: u64, byte: u8) -> Waiting {
        Waiting {
            source: PartnerId::new(source, 1),
            bits: MatchBits(bits),
            length: 1,
            payload: Payload::Eager(vec![byte]),
        }
    }

    fn byte(waiting: Option<Waiting>) -> Option<u8> {
        match waiting?.payload {
            Payload::Eager(bytes) => bytes.first().copied(),
            Payload::Offer { send_id, .. } => Some(send_id as u8),
        }
    }

    #[test]
    fn the_oldest_acceptable_message_comes_out_first() {
        let mut unexpected = Unexpected::default();
        for (n, bits) in [0xe << 60 | 1, 0xd << 60, 0xe << 60 | 2, 0xe << 60 | 1u64]
            .into_iter()
            .enumerate()
        {
            unexpected.add(message(0, bits, n as u8));
        }
        let exact = MatchMask::EXACT;
        assert_eq!(
            byte(unexpected.take(MatchBits(0xe << 60 | 2), exact)),
            Some(2)
        );
        assert_eq!(byte(unexpected.take(MatchBits(0xe << 60), TOP)), Some(0));
        assert_eq!(
            byte(unexpected.take(MatchBits(0xe << 60 | 1), exact)),
            Some(3)
        );
        assert_eq!(byte(unexpected.take(MatchBits(0xe << 60), TOP)), None);
        assert_eq!(byte(unexpected.take(MatchBits(0xd << 60), TOP)), Some(1));
        assert!(unexpected.messages.is_empty());
    }

    #[test]
    fn forgetting_a_source_keeps_the_others() {
        let mut unexpected = Unexpected::default();
        for n in 0..6 {
            unexpected.add(message(n % 2, 1, n as u8));
        }
        assert_eq!(unexpected.forget(PartnerId::new(0, 1)), 3);
        let out: Vec<_> =
            std::iter::from_fn(|| byte(unexpected.take(MatchBits(1), MatchMask::EXACT))).collect();
        assert_eq!(out, [1, 3, 5]);
    }

    #[test]
    fn an_index_never_searched_does_not_grow_for_ever() {
        let mut unexpected = Unexpected::default();
        assert!(unexpected.peek(MatchBits(0), TOP).is_none());
        for n in 0..10_000u64 {
            unexpected.add(message(0, n, 0));
            assert!(unexpected.take(MatchBits(n), MatchMask::EXACT).is_some());
        }
        let largest = unexpected.indexes.iter().map(|index| index.entries).max();
        assert!(largest.unwrap() <= STALE_KEPT + 2);
    }

    #[test]
    fn a_withdrawn_offer_is_found_by_its_id() {
        let mut unexpected = Unexpected::default();
        let offer = Payload::Offer {
            send_id: 42,
            key: None,
        };
        unexpected.add(Waiting {
            payload: offer,
            ..message(3, 1, 0)
        });
        assert!(unexpected.withdraw(PartnerId::new(4, 1), 42).is_none());
        assert!(unexpected.withdraw(PartnerId::new(3, 1), 41).is_none());
        assert!(unexpected.withdraw(PartnerId::new(3, 1), 42).is_some());
        assert!(unexpected.messages.is_empty());
    }
}
