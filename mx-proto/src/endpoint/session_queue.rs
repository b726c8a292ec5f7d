//! Session packets for links that are not a remote's sending link.
//!
//! ```text
//!   answers to strangers, introductions --> [ oldest ... youngest ] --> its link; no room: the end
//!                                             |
//!                                             `-- how many of each link, so that none has many
//! ```
//!
//! Owns: the packets, and whether their links are closed after them.
//! Cost: O(1); linear in the waiting packets when a link goes down.

use crate::ids::LinkId;
use crate::queues::Control;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct SessionQueue {
    queue: VecDeque<(LinkId, Control, After)>,
    each: HashMap<LinkId, usize, RandomState>,
}

/// The link's fate after the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// It stays.
    Open,
    /// It is closed, unless its peer is accepted before.
    Close,
    /// It is closed, and nothing counts that comes on it before.
    End,
}

impl SessionQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// May another answer be kept for this link?
    pub(super) fn has_room(&self, link: LinkId) -> bool {
        let most = if self.queue.len() < ALL {
            EACH
        } else {
            EACH_WHEN_FULL
        };
        self.each.get(&link).is_none_or(|packets| *packets < most)
    }

    pub(super) fn push(&mut self, link: LinkId, control: Control, after: After) {
        *self.each.entry(link).or_default() += 1;
        self.queue.push_back((link, control, after));
    }

    pub(super) fn pop(&mut self) -> Option<(LinkId, Control, After)> {
        let packet = self.queue.pop_front()?;
        self.uncount(packet.0);
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            *self = Self::default();
        }
        Some(packet)
    }

    /// A link is no more.
    pub(super) fn forget(&mut self, link: LinkId) {
        if self.each.remove(&link).is_some() {
            self.queue.retain(|(of, _, _)| *of != link);
        }
    }

    /// The link stays open, because a peer that was refused on it has been accepted.
    pub(super) fn keep_open(&mut self, link: LinkId) {
        if self.each.contains_key(&link) {
            for (of, _, after) in &mut self.queue {
                if *of == link && *after == After::Close {
                    *after = After::Open;
                }
            }
        }
    }

    fn uncount(&mut self, link: LinkId) {
        if let Some(packets) = self.each.get_mut(&link) {
            *packets -= 1;
            if *packets == 0 {
                self.each.remove(&link);
            }
        }
    }
}

/// Limit of packets that wait on one link: far more than the connects that are ever under way
/// there.
pub(super) const EACH: usize = 256;
/// The same once there are [`ALL`], about a megabyte, on all links together.
const EACH_WHEN_FULL: usize = 4;
const ALL: usize = 8192;
/// Places kept when there is none any more.
const KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Header, Kind};

    fn answer() -> Control {
        Control::new(Header::new(Kind::Reply, 0, 0), &[])
    }

    #[test]
    fn each_link_has_room_and_little_once_there_is_a_crowd() {
        let mut queue = SessionQueue::default();
        let link = |n| LinkId::new(n, 1);
        for _ in 0..EACH {
            assert!(queue.has_room(link(0)));
            queue.push(link(0), answer(), After::Open);
        }
        assert!(!queue.has_room(link(0)));
        for n in 1..ALL as u32 {
            queue.push(link(n), answer(), After::Open);
        }
        for n in 1..EACH_WHEN_FULL {
            assert!(queue.has_room(link(1)), "{n}");
            queue.push(link(1), answer(), After::Open);
        }
        assert!(!queue.has_room(link(1)) && queue.has_room(link(2)));
        queue.forget(link(0));
        assert!(queue.has_room(link(0)));
        while queue.pop().is_some() {}
        assert!(queue.each.is_empty() && queue.queue.capacity() == 0);
    }

    #[test]
    fn a_link_that_is_to_stay_is_not_closed() {
        let mut queue = SessionQueue::default();
        let [stays, goes, ended] = [1, 2, 3].map(|n| LinkId::new(n, 1));
        queue.push(stays, answer(), After::Close);
        queue.push(goes, answer(), After::Close);
        queue.push(ended, answer(), After::End);
        queue.keep_open(stays);
        queue.keep_open(ended);
        let mut next = || queue.pop().map(|(link, _, after)| (link, after));
        assert_eq!(next(), Some((stays, After::Open)));
        assert_eq!(next(), Some((goes, After::Close)));
        assert_eq!(next(), Some((ended, After::End)));
    }
}
