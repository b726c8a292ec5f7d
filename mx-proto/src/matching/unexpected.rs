//! Messages that arrived before a receive for them was posted.
//!
//! ```text
//!   arrival, unmatched --> [ oldest ... youngest ] -- take(bits, mask) --> a new receive
//!                                  |
//!                                  `-- withdraw, forget: its sender takes it back, or is gone
//! ```
//!
//! Owns: their bytes. Knows nothing of: who may leave how much here (credits see to that).
//! Cost: what a [`MatchIndex`] costs.

use crate::ids::{MatchBits, MatchMask, PartnerId};
use crate::matching::MatchIndex;
use crate::port::RemoteKey;

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

impl Waiting {
    /// Bytes of it that lie here.
    pub(crate) fn held(&self) -> usize {
        match &self.payload {
            Payload::Eager(data) => data.len(),
            Payload::Offer { .. } => 0,
        }
    }

    /// All of it is here, and `from` has sent it.
    pub(crate) fn is_whole_of(&self, from: PartnerId) -> bool {
        self.source == from && matches!(self.payload, Payload::Eager(_))
    }

    /// Is it what `from` has offered as `wanted`?
    pub(crate) fn is_offer(&self, from: PartnerId, wanted: u64) -> bool {
        matches!(self.payload, Payload::Offer { send_id, .. } if send_id == wanted)
            && self.source == from
    }
}

/// All waiting messages of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    messages: MatchIndex<Waiting>,
}

impl Unexpected {
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.messages.add(waiting.bits, waiting);
    }

    /// Takes out the oldest message that a receive with `bits` and `mask` accepts.
    #[inline]
    pub(crate) fn take(&mut self, bits: MatchBits, mask: MatchMask) -> Option<Waiting> {
        self.messages.take(bits, mask)
    }

    /// Looks at the oldest message that a receive with `bits` and `mask` would accept.
    pub(crate) fn peek(&mut self, bits: MatchBits, mask: MatchMask) -> Option<&Waiting> {
        let oldest = self.messages.front(bits, mask)?;
        self.messages.get(oldest)
    }

    /// Takes out the offer `send_id` of `source`.
    pub(crate) fn withdraw(&mut self, source: PartnerId, send_id: u64) -> Option<Waiting> {
        let (id, _) = self
            .messages
            .iter()
            .find(|(_, waiting)| waiting.is_offer(source, send_id))?;
        self.messages.remove(id)
    }

    /// How many whole messages from `source` there are.
    pub(crate) fn whole_of(&self, source: PartnerId) -> usize {
        let all = self.messages.iter();
        all.filter(|(_, waiting)| waiting.is_whole_of(source))
            .count()
    }

    /// Puts another name on the oldest `count` whole messages from `source`.
    pub(crate) fn rename(&mut self, source: PartnerId, to: PartnerId, count: usize) {
        let all = self.messages.iter();
        let theirs = all.filter(|(_, waiting)| waiting.is_whole_of(source));
        let theirs: Vec<_> = theirs.map(|(id, _)| id).take(count).collect();
        for id in theirs {
            if let Some(waiting) = self.messages.get_mut(id) {
                waiting.source = to;
            }
        }
    }

    /// Throws away everything from `source`; tells how many bytes of messages that were.
    pub(crate) fn forget(&mut self, source: PartnerId) -> usize {
        let theirs = self.messages.iter();
        let theirs = theirs.filter(|(_, waiting)| waiting.source == source);
        let theirs: Vec<_> = theirs.map(|(id, _)| id).collect();
        let gone = theirs.into_iter().filter_map(|id| self.messages.remove(id));
        gone.map(|waiting| waiting.held()).sum()
    }
}

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
