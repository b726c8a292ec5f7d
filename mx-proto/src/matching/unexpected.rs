//! Messages that arrived before a receive for them was posted.
//!
//! ```text
//!   arrival, unmatched --> [ oldest ... youngest ] -- take(bits, mask) --> a new receive
//!                                  |
//!                                  `-- withdraw, forget: its sender takes it back, or is gone
//! ```
//!
//! Owns: their bytes.
//! Not here: the limit for each sender (see `flow`).
//! Cost: what a [`MatchIndex`] costs; a sender's messages are found without looking at others', and
//! its offers by their names.

use crate::by_remote::ByRemote;
use crate::flow::{self, Lane, Paid};
use crate::ids::{MatchBits, MatchMask, RemoteId, RequestId};
use crate::matching::{EntryId, MatchIndex};
use crate::port::RemoteKey;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The contents of a waiting message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// All of it.
    Eager(Vec<u8>),
    /// The name under which its sender will give it out.
    Offer { send_id: u64, bytes: Offered },
}

/// The bytes of an offered message. Those of a small one are fetched before it is decided about.
#[derive(Debug)]
pub(crate) enum Offered {
    /// They are with their sender, which may have made them readable.
    There(Option<RemoteKey>),
    /// The same, and they cannot be fetched now.
    Withheld,
    /// They are on their way.
    Coming(RequestId),
    /// All of them.
    Here(Box<[u8]>),
}

impl Offered {
    /// The key with which the sender's memory can be read.
    pub(crate) fn key(&self) -> Option<RemoteKey> {
        match self {
            Self::There(key) => *key,
            _ => None,
        }
    }
}

/// One waiting message.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) source: RemoteId,
    pub(crate) bits: MatchBits,
    pub(crate) length: u32,
    /// It came in this slot of its sender's.
    pub(crate) slot: Option<Lane>,
    pub(crate) payload: Payload,
}

impl Waiting {
    /// Bytes of it that lie here.
    pub(crate) fn held(&self) -> usize {
        match &self.payload {
            Payload::Eager(data) => data.len(),
            Payload::Offer { .. } => 0,
        }
    }

    /// The payment of its sender.
    pub(crate) fn paid(&self) -> Paid {
        let cost = match self.payload {
            Payload::Eager(_) => flow::cost(self.length),
            Payload::Offer { .. } => 1,
        };
        self.slot.map_or(Paid::Credits(cost), Paid::Slot)
    }

    /// All of it is here, and `from` has sent it.
    pub(crate) fn is_whole_of(&self, from: RemoteId) -> bool {
        self.source == from && matches!(self.payload, Payload::Eager(_))
    }

    /// The sender and its id of the message, if it is only offered.
    fn offer(&self) -> Option<(RemoteId, u64)> {
        match self.payload {
            Payload::Eager(_) => None,
            Payload::Offer { send_id, .. } => Some((self.source, send_id)),
        }
    }
}

/// All waiting messages of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    messages: MatchIndex<Waiting>,
    by_source: ByRemote,
    /// Those that are only offered, by source and name. Should a source give two of them the same
    /// name, the younger one has it.
    offers: HashMap<(RemoteId, u64), EntryId, RandomState>,
}

impl Unexpected {
    /// Their number.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn add(&mut self, waiting: Waiting) {
        let (source, name) = (waiting.source, waiting.offer());
        let id = self.messages.add(waiting.bits, waiting);
        self.by_source.join(source, id.index());
        if let Some(name) = name {
            self.offers.insert(name, id);
        }
    }

    /// Takes out the oldest message that a receive with `bits` and `mask` accepts.
    #[inline]
    pub(crate) fn take(&mut self, bits: MatchBits, mask: MatchMask) -> Option<Waiting> {
        let oldest = self.messages.front(bits, mask)?;
        self.remove(oldest)
    }

    /// The oldest one from a `wanted` source, whatever its bits. Cost: O(n) for n that are passed over.
    pub(crate) fn oldest(&self, wanted: impl Fn(RemoteId) -> bool) -> Option<EntryId> {
        let mut all = self.messages.iter();
        let found = all.find(|(_, waiting)| wanted(waiting.source));
        found.map(|(id, _)| id)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> Option<&mut Waiting> {
        self.messages.get_mut(id)
    }

    pub(crate) fn remove(&mut self, id: EntryId) -> Option<Waiting> {
        let waiting = self.messages.remove(id)?;
        self.by_source.leave(waiting.source, id.index());
        if let Some(name) = waiting.offer()
            && self.offers.get(&name) == Some(&id)
        {
            self.offers.remove(&name);
        }
        Some(waiting)
    }

    /// All messages from `source`, oldest first.
    fn of(&self, source: RemoteId) -> impl Iterator<Item = (EntryId, &Waiting)> {
        let places = self.by_source.of(source);
        places.filter_map(|place| self.messages.at(place))
    }

    /// Looks at the oldest message that a receive with `bits` and `mask` would accept.
    pub(crate) fn peek(&mut self, bits: MatchBits, mask: MatchMask) -> Option<&Waiting> {
        let oldest = self.messages.front(bits, mask)?;
        self.messages.get(oldest)
    }

    /// Takes out the offer `send_id` of `source`.
    pub(crate) fn withdraw(&mut self, source: RemoteId, send_id: u64) -> Option<Waiting> {
        let id = *self.offers.get(&(source, send_id))?;
        self.remove(id)
    }

    /// The number of complete messages from `source`.
    pub(crate) fn whole_of(&self, source: RemoteId) -> usize {
        let theirs = self.of(source);
        theirs
            .filter(|(_, waiting)| waiting.is_whole_of(source))
            .count()
    }

    /// The credits that messages from `source` hold.
    pub(crate) fn held_of(&self, source: RemoteId) -> u32 {
        let held = self.of(source).map(|(_, waiting)| match waiting.paid() {
            Paid::Credits(cost) => cost,
            Paid::Slot(_) => 0,
        });
        held.sum()
    }

    /// Puts another name on the oldest `count` whole messages from `source`.
    pub(crate) fn rename(&mut self, source: RemoteId, to: RemoteId, count: usize) {
        let theirs = self.of(source);
        let whole = theirs.filter(|(_, waiting)| waiting.is_whole_of(source));
        let whole: Vec<_> = whole.map(|(id, _)| id).take(count).collect();
        for id in whole {
            if let Some(waiting) = self.messages.get_mut(id) {
                waiting.source = to;
                self.by_source.leave(source, id.index());
                self.by_source.join(to, id.index());
            }
        }
    }

    /// Takes out everything from `source` that is `wanted`.
    pub(crate) fn forget(
        &mut self,
        source: RemoteId,
        wanted: impl Fn(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let theirs = self.of(source).filter(|(_, waiting)| wanted(waiting));
        let theirs: Vec<_> = theirs.map(|(id, _)| id).collect();
        theirs
            .into_iter()
            .filter_map(|id| self.remove(id))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: MatchMask = MatchMask(0xf000_0000_0000_0000);

    fn message(source: u32, bits: u64, byte: u8) -> Waiting {
        Waiting {
            source: RemoteId::new(source, 1),
            bits: MatchBits(bits),
            length: 1,
            slot: None,
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
        assert_eq!(unexpected.forget(RemoteId::new(0, 1), |_| true).len(), 3);
        let out: Vec<_> =
            std::iter::from_fn(|| byte(unexpected.take(MatchBits(1), MatchMask::EXACT))).collect();
        assert_eq!(out, [1, 3, 5]);
    }

    #[test]
    fn a_withdrawn_offer_is_found_by_its_id() {
        let mut unexpected = Unexpected::default();
        let offer = Payload::Offer {
            send_id: 42,
            bytes: Offered::There(None),
        };
        unexpected.add(Waiting {
            payload: offer,
            ..message(3, 1, 0)
        });
        assert!(unexpected.withdraw(RemoteId::new(4, 1), 42).is_none());
        assert!(unexpected.withdraw(RemoteId::new(3, 1), 41).is_none());
        assert!(unexpected.withdraw(RemoteId::new(3, 1), 42).is_some());
        assert!(unexpected.messages.is_empty() && unexpected.offers.is_empty());
    }

    #[test]
    fn of_two_offers_with_one_name_the_younger_has_it_and_the_older_is_not_lost() {
        let mut unexpected = Unexpected::default();
        for bits in [1, 2, 3] {
            let payload = Payload::Offer {
                send_id: 42,
                bytes: Offered::There(None),
            };
            unexpected.add(Waiting {
                payload,
                ..message(3, bits, 0)
            });
        }
        assert!(unexpected.take(MatchBits(1), MatchMask::EXACT).is_some());
        let withdrawn = unexpected.withdraw(RemoteId::new(3, 1), 42);
        assert_eq!(withdrawn.map(|it| it.bits), Some(MatchBits(3)));
        assert!(unexpected.withdraw(RemoteId::new(3, 1), 42).is_none());
        assert!(unexpected.take(MatchBits(2), MatchMask::EXACT).is_some());
        assert!(unexpected.messages.is_empty() && unexpected.offers.is_empty());
    }

    #[test]
    fn a_source_is_found_whatever_came_and_went_between() {
        mx_sim::seeds::each(500, |seed| {
            let mut rng = mx_sim::Rng::new(seed);
            let mut unexpected = Unexpected::default();
            let source = |n: u64| RemoteId::new(n as u32, 1);
            for n in 0..rng.below(200) {
                let (bits, of) = (rng.below(8), rng.below(4));
                match rng.below(8) {
                    0..5 if rng.below(2) == 0 => unexpected.add(message(of as u32, bits, 0)),
                    0..5 => {
                        let payload = Payload::Offer {
                            send_id: n,
                            bytes: Offered::There(None),
                        };
                        unexpected.add(Waiting {
                            payload,
                            ..message(of as u32, bits, 0)
                        });
                    }
                    5 => drop(unexpected.take(MatchBits(bits), MatchMask::EXACT)),
                    6 => unexpected.rename(source(of), source(4 + of), 2),
                    _ => drop(unexpected.withdraw(source(of), rng.below(n + 1))),
                }
                let all = || unexpected.messages.iter();
                for of in 0..8 {
                    let theirs = all().filter(|(_, waiting)| waiting.source == source(of));
                    let mut expected: Vec<_> = theirs.map(|(id, _)| id.index()).collect();
                    let mut found: Vec<_> = unexpected.by_source.of(source(of)).collect();
                    // A renamed one stands behind those that its new source has already.
                    expected.sort_unstable();
                    found.sort_unstable();
                    assert_eq!(found, expected);
                }
                let offers = all().filter_map(|(id, waiting)| Some((waiting.offer()?, id)));
                assert_eq!(unexpected.offers, offers.collect());
            }
            for of in 0..8 {
                unexpected.forget(source(of), |_| true);
            }
            assert!(unexpected.messages.is_empty() && unexpected.offers.is_empty());
        });
    }
}
