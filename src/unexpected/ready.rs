//! Unexpected messages that can be had now, oldest first, and how many each peer has among them.
//!
//! Owns: the messages. Knows nothing of: credits. Cost: O(1), 4 bytes a peer; a peer's messages are
//! looked for only where it has any.

use super::Message;
use crate::peer::table::PeerKey;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ready {
    queue: VecDeque<Message>,
    /// By the number of the peer, which passes to nobody else while one of its messages is here.
    counts: Vec<u32>,
}

impl Ready {
    #[inline]
    pub(super) fn push_back(&mut self, message: Message) {
        self.count(message.peer, 1);
        self.queue.push_back(message);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Message> {
        let message = self.queue.pop_front()?;
        if let Some(count) = self.counts.get_mut(message.peer.id() as usize) {
            *count -= 1;
        }
        Some(message)
    }

    pub(super) fn front(&self) -> Option<&Message> {
        self.queue.front()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many there are of a peer's.
    pub(super) fn of(&self, peer: PeerKey) -> u32 {
        self.counts.get(peer.id() as usize).copied().unwrap_or(0)
    }

    /// Takes out everything that is a peer's.
    pub(super) fn take_of(&mut self, peer: PeerKey) -> Vec<Message> {
        if self.of(peer) == 0 {
            return Vec::new();
        }
        let mut theirs = Vec::new();
        for _ in 0..self.queue.len() {
            match self.queue.pop_front() {
                Some(message) if message.peer == peer => theirs.push(message),
                other => self.queue.extend(other),
            }
        }
        self.counts[peer.id() as usize] = 0;
        theirs
    }

    /// One peer turned out to be another.
    pub(super) fn rename(&mut self, from: PeerKey, into: PeerKey) {
        let moved = self.of(from);
        if moved == 0 {
            return;
        }
        for message in self.queue.iter_mut().filter(|message| message.peer == from) {
            message.peer = into;
        }
        self.counts[from.id() as usize] = 0;
        self.count(into, moved);
    }

    #[inline]
    fn count(&mut self, peer: PeerKey, more: u32) {
        let at = peer.id() as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += more;
    }
}
