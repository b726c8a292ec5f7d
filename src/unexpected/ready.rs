//! Unexpected messages that can be had now: of each peer oldest first, and the peers in turn.
//!
//! ```text
//!   turn    next --> peer 3  peer 7  peer 1 <-- last     peers with messages here; one gives one
//!                      |       |       |                 and stands behind the others if it has more
//!                      9       2       4   <-- oldest
//!                      5               6
//!                      8
//! ```
//!
//! However much a peer has here, it delays another's oldest message by one hand-out.
//!
//! Owns: the messages. Knows nothing of: credits. Cost: O(1), 8 bytes a peer; a peer's messages are
//! looked for only where it has any.

use super::Message;
use crate::peer::table::PeerKey;
use slab::Slab;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ready {
    /// Peers with messages here, each once.
    turn: VecDeque<PeerKey>,
    /// By the number of the peer, which passes to nobody else while one of its messages is here.
    queues: Vec<Queue>,
    messages: Slab<Waiting>,
    /// Messages that have become ready so far.
    total: u64,
}

/// The messages of one peer, by their places in the slab.
#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    youngest: u32,
}

#[derive(Debug)]
struct Waiting {
    message: Message,
    /// Its number among all that have become ready.
    number: u64,
    /// The next one of the same peer.
    next: u32,
}

impl Ready {
    #[inline]
    pub(super) fn push_back(&mut self, message: Message) {
        let peer = message.peer;
        let place = self.messages.insert(Waiting {
            message,
            number: self.total,
            next: NONE,
        });
        self.total += 1;
        if self.append(peer, place) {
            self.turn.push_back(peer);
        }
    }

    /// The oldest message of the peer whose turn it is.
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Message> {
        let peer = self.turn.pop_front()?;
        let queue = self.queues.get_mut(peer.id() as usize)?;
        let oldest = self.messages.try_remove(queue.oldest as usize)?;
        queue.oldest = oldest.next;
        if oldest.next != NONE {
            self.turn.push_back(peer);
        }
        Some(oldest.message)
    }

    /// Who sent what [`Self::pop_front`] gives.
    #[inline]
    pub(super) fn first_peer(&self) -> Option<PeerKey> {
        self.turn.front().copied()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Are there messages of a peer's?
    #[inline]
    pub(super) fn has(&self, peer: PeerKey) -> bool {
        let queue = self.queues.get(peer.id() as usize);
        queue.is_some_and(|queue| queue.oldest != NONE)
    }

    /// Takes out everything that is a peer's, oldest first.
    pub(super) fn take_of(&mut self, peer: PeerKey) -> Vec<Message> {
        let places = self.unlink(peer);
        if !places.is_empty() {
            self.turn.retain(|other| *other != peer);
        }
        let messages = &mut self.messages;
        let theirs = places.into_iter().map(|place| messages.remove(place));
        theirs.map(|waiting| waiting.message).collect()
    }

    /// One peer turned out to be another: what there is of both is handed out in the order in which it
    /// became ready.
    pub(super) fn rename(&mut self, from: PeerKey, into: PeerKey) {
        let mut places = self.unlink(from);
        if places.is_empty() {
            return;
        }
        let others = self.unlink(into);
        if others.is_empty() {
            let turns = self.turn.iter_mut().filter(|peer| **peer == from);
            turns.for_each(|peer| *peer = into);
        } else {
            self.turn.retain(|peer| *peer != from);
        }
        places.extend(others);
        places.sort_unstable_by_key(|place| self.messages[*place].number);
        for place in places {
            self.messages[place].message.peer = into;
            self.append(into, place);
        }
    }

    /// Puts a message behind those of the same peer. True when there are none.
    #[inline]
    fn append(&mut self, peer: PeerKey, place: usize) -> bool {
        let id = peer.id() as usize;
        if id >= self.queues.len() {
            self.queues.resize(id + 1, Queue::EMPTY);
        }
        let queue = &mut self.queues[id];
        let before = std::mem::replace(&mut queue.youngest, place as u32);
        let is_first = queue.oldest == NONE;
        if is_first {
            queue.oldest = place as u32;
        } else {
            self.messages[before as usize].next = place as u32;
        }
        is_first
    }

    /// Leaves a peer without messages. Gives the places of those it had, oldest first.
    fn unlink(&mut self, peer: PeerKey) -> Vec<usize> {
        let mut places = Vec::new();
        if let Some(queue) = self.queues.get_mut(peer.id() as usize) {
            let mut place = std::mem::replace(queue, Queue::EMPTY).oldest;
            while place != NONE {
                places.push(place as usize);
                place = std::mem::replace(&mut self.messages[place as usize].next, NONE);
            }
        }
        places
    }
}

impl Queue {
    const EMPTY: Self = Self {
        oldest: NONE,
        youngest: NONE,
    };
}

/// No place: credits bound what is here far below.
const NONE: u32 = u32::MAX;
