//! Receives that were cancelled before their message arrived.
//!
//! ```text
//!   oldest                              newest
//!     tag   tag   tag   ...   tag   tag        of each peer, at most LIMIT
//!      |                             ^
//!      |  dropped when the           '-- cancelled or timed out
//!      v  peer's share is used up
//!    its message, if it has arrived
//! ```
//!
//! A host that cancels a receive usually does not use its tag again, but the peer still sends the message, which would
//! then hold credits for ever; in the end the peer could send no more. A host that does use the tag again still gets
//! the message: a message is dropped only when most of the peer's credits are in use.
//!
//! Owns: the cancelled tags, by peer id.
//! Out of scope: messages.
//! Cost: 4 bytes a tag; nothing for peers without one.

use foldhash::fast::RandomState;
use mx_proto::flow::AT_ONCE;
use std::collections::{HashMap, VecDeque};

/// Tags of receives that were cancelled, or timed out, before their message arrived: by peer id, oldest first.
#[derive(Debug, Default)]
pub struct CancelledReceives {
    tags: HashMap<u32, VecDeque<u32>, RandomState>,
}

/// Maximum number of tags per peer: as many messages as a peer may leave here.
const LIMIT: usize = AT_ONCE as usize + 2;

impl CancelledReceives {
    /// Returns whether no cancelled receive is recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Records a cancelled receive for `tag`; a peer with too many loses its oldest record.
    pub fn add(&mut self, peer: u32, tag: u32) {
        let tags = self.tags.entry(peer).or_default();
        if tags.len() == LIMIT {
            tags.pop_front();
        }
        tags.push_back(tag);
    }

    /// Returns whether a cancelled receive of this peer is recorded.
    pub fn any_of(&self, peer: u32) -> bool {
        self.tags.contains_key(&peer)
    }

    /// Removes one record of `tag`, because another receive has been posted for it and gets the message.
    #[cold]
    pub fn take_back(&mut self, peer: u32, tag: u32) {
        self.remove(peer, |tags| {
            let place = tags.iter().rposition(|known| *known == tag)?;
            tags.remove(place)
        });
    }

    /// Removes and returns the oldest tag whose message has arrived, according to `is_here`.
    pub fn take_oldest(&mut self, peer: u32, mut is_here: impl FnMut(u32) -> bool) -> Option<u32> {
        self.remove(peer, |tags| {
            let place = tags.iter().position(|tag| is_here(*tag))?;
            tags.remove(place)
        })
    }

    fn remove(
        &mut self,
        peer: u32,
        f: impl FnOnce(&mut VecDeque<u32>) -> Option<u32>,
    ) -> Option<u32> {
        let tags = self.tags.get_mut(&peer)?;
        let removed = f(tags);
        if tags.is_empty() {
            self.tags.remove(&peer);
        }
        removed
    }

    /// Forgets the tags of a lost peer, whose messages are lost, too.
    pub fn forget(&mut self, peer: u32) {
        self.tags.remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_message_is_dropped_first_and_reposted_ones_stay() {
        let mut abandoned = CancelledReceives::default();
        for tag in [7, 8, 9, 8] {
            abandoned.add(1, tag);
        }
        abandoned.take_back(1, 8);
        abandoned.take_back(1, 100);
        assert!(abandoned.any_of(1) && !abandoned.any_of(2));
        assert_eq!(abandoned.take_oldest(1, |tag| tag != 7), Some(8));
        assert_eq!(abandoned.take_oldest(1, |tag| tag == 8), None);
        assert_eq!(abandoned.take_oldest(1, |_| true), Some(7));
        assert_eq!(abandoned.take_oldest(1, |_| true), Some(9));
        assert!(abandoned.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_goes_with_its_peer() {
        let mut abandoned = CancelledReceives::default();
        for tag in 0..LIMIT as u32 + 1000 {
            abandoned.add(1, tag);
        }
        assert_eq!(abandoned.take_oldest(1, |_| true), Some(1000));
        abandoned.forget(1);
        assert!(abandoned.is_empty());
    }
}
