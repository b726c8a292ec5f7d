//! Whose unexpected messages stay at the endpoint until there is room for them.
//!
//! ```text
//!   first --> peer  peer  peer <-- last       tried first; one try each, then it is the next one's
//! ```
//!
//! While a peer stands here, whatever else it sends stays at the endpoint behind its first message,
//! so that nothing overtakes.
//!
//! Owns: what has been paid for messages that are not here yet. Knows nothing of: messages.
//! Cost: O(1) for everything but a peer that is forgotten.

use crate::peer::table::PeerKey;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Held {
    line: VecDeque<PeerKey>,
    /// Credits paid by each when its messages arrived.
    paid: HashMap<PeerKey, u32, RandomState>,
}

impl Held {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.line.len()
    }

    #[inline]
    pub(super) fn contains(&self, peer: PeerKey) -> bool {
        !self.paid.is_empty() && self.paid.contains_key(&peer)
    }

    /// A message stays at the endpoint for which its sender has `paid`.
    #[cold]
    pub(super) fn add(&mut self, peer: PeerKey, paid: u32) {
        let line = &mut self.line;
        *self.paid.entry(peer).or_insert_with(|| {
            line.push_back(peer);
            0
        }) += paid;
    }

    pub(super) fn first(&self) -> Option<PeerKey> {
        self.line.front().copied()
    }

    /// The first has had its turn, with a message for which it had `paid`.
    pub(super) fn rotate(&mut self, paid: u32) {
        if let Some(peer) = self.line.pop_front() {
            self.line.push_back(peer);
            if let Some(left) = self.paid.get_mut(&peer) {
                *left = left.saturating_sub(paid);
            }
        }
    }

    /// What it has paid for its messages at the endpoint.
    pub(super) fn paid(&self, peer: PeerKey) -> u32 {
        self.paid.get(&peer).copied().unwrap_or(0)
    }

    /// What it has paid is worth nothing any more. Gives how much that was.
    pub(super) fn void(&mut self, peer: PeerKey) -> u32 {
        self.paid.get_mut(&peer).map_or(0, std::mem::take)
    }

    /// A peer has no more messages at the endpoint. Gives what it had paid for those that were there.
    pub(super) fn forget(&mut self, peer: PeerKey) -> u32 {
        let Some(paid) = self.paid.remove(&peer) else {
            return 0;
        };
        if self.line.front() == Some(&peer) {
            self.line.pop_front();
        } else {
            self.line.retain(|held| *held != peer);
        }
        paid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_turn_and_stands_there_once() {
        let peer = |id: u64| PeerKey::from_word(1 << 32 | id);
        let mut held = Held::default();
        for id in [1, 2, 1, 3] {
            held.add(peer(id), 10);
        }
        assert_eq!(held.len(), 3);
        assert_eq!(held.first(), Some(peer(1)));
        held.rotate(7);
        assert_eq!(held.first(), Some(peer(2)));
        assert_eq!(held.forget(peer(2)), 10);
        assert!(!held.contains(peer(2)) && held.contains(peer(1)));
        assert_eq!([held.forget(peer(3)), held.forget(peer(3))], [10, 0]);
        assert_eq!(held.first(), Some(peer(1)));
        assert_eq!(held.forget(peer(1)), 13);
        assert!(held.is_empty() && !held.contains(peer(1)));
    }
}
