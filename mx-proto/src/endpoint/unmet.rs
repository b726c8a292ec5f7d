//! Control packets for links whose peer is not met there, or that are not a remote's sending link.
//!
//! ```text
//!   answers to strangers, introductions --> queue of the link --> sent in turns with other links
//!                                             |
//!                                             `-- the link has a remote: that one's queue
//! ```
//!
//! Owns: the packets.
//! Cost: O(1); linear in the links with packets when one of them goes.

use super::outbound::unread_max;
use crate::ids::LinkId;
use crate::queues::{Control, Controls};
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Unmet {
    pub(super) links: HashMap<LinkId, Waiting, RandomState>,
    /// Each of these links, but one that is sending.
    turns: VecDeque<LinkId>,
    /// The number of all packets.
    pub(super) count: usize,
}

/// The packets for one link.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) packets: Controls,
    /// It is closed after them, unless its peer is accepted before.
    pub(super) closes: bool,
}

impl Unmet {
    /// May another answer be kept for this link?
    pub(super) fn has_room(&self, link: LinkId) -> bool {
        self.count_of(link) < unread_max(self.count, ALL)
    }

    fn count_of(&self, link: LinkId) -> usize {
        self.links.get(&link).map_or(0, |it| it.packets.len())
    }

    pub(super) fn push(&mut self, link: LinkId, control: Control) {
        self.count += 1;
        let packets = &mut self.links.entry(link).or_default().packets;
        if packets.is_empty() {
            self.turns.push_back(link);
        }
        packets.push_back(control);
    }

    /// Whether the link is closed after its packets. Without any it stays.
    pub(super) fn set_closes(&mut self, link: LinkId, closes: bool) {
        if let Some(waiting) = self.links.get_mut(&link) {
            waiting.closes = closes;
        }
    }

    /// The link whose turn it is. [`Self::go_on`] is to follow.
    pub(super) fn next(&mut self) -> Option<LinkId> {
        self.turns.pop_front()
    }

    /// It has had its turn. True if all has gone, and it is to be closed now.
    pub(super) fn go_on(&mut self, link: LinkId) -> bool {
        if self.count_of(link) == 0 {
            return self.take(link).closes;
        }
        self.turns.push_back(link);
        false
    }

    /// A link is no more, or has a remote. Gives what waits there.
    pub(super) fn take(&mut self, link: LinkId) -> Waiting {
        let Some(waiting) = self.links.remove(&link) else {
            return Waiting::default();
        };
        self.count -= waiting.packets.len();
        if !waiting.packets.is_empty() {
            self.turns.retain(|of| *of != link);
        }
        if self.links.is_empty() && self.turns.capacity() > KEPT {
            *self = Self::default();
        }
        waiting
    }
}

/// With so many packets, about a megabyte, a link has room for few.
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

    /// The first packet of the link whose turn it is goes. Gives the link, and whether it is closed.
    fn send(unmet: &mut Unmet) -> Option<(LinkId, bool)> {
        let link = unmet.next()?;
        let waiting = unmet.links.get_mut(&link).expect("it has a turn");
        waiting.packets.pop_front();
        unmet.count -= 1;
        Some((link, unmet.go_on(link)))
    }

    #[test]
    fn each_link_has_room_and_little_once_there_is_a_crowd() {
        let mut unmet = Unmet::default();
        let link = |n| LinkId::new(n, 1);
        let each = unread_max(0, ALL);
        for _ in 0..each {
            assert!(unmet.has_room(link(0)));
            unmet.push(link(0), answer());
        }
        assert!(!unmet.has_room(link(0)));
        for n in 1..(ALL - each) as u32 {
            unmet.push(link(n), answer());
            assert!(unmet.has_room(link(n)));
        }
        unmet.push(link(1), answer());
        for n in 2..unread_max(ALL, ALL) {
            assert!(unmet.has_room(link(1)), "{n}");
            unmet.push(link(1), answer());
        }
        assert!(!unmet.has_room(link(1)) && unmet.has_room(link(2)));
        assert_eq!(unmet.take(link(0)).packets.len(), each);
        assert!(unmet.has_room(link(1)), "there is no crowd any more");
        while send(&mut unmet).is_some() {}
        assert_eq!((unmet.count, unmet.links.len()), (0, 0));
        assert_eq!((unmet.links.capacity(), unmet.turns.capacity()), (0, 0));
    }
}
