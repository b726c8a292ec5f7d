//! Letters in flight to one address, and letters that have arrived there.
//!
//! ```text
//!   post --> in flight, by time --(at its time)--> arrived, at most `limit` bytes --> take
//!                                                             `- drop-tail
//! ```

use super::address::SimAddress;
use crate::world::NodeId;
use mx_proto::Instant;
use mx_proto::reliability::Quote;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A letter for one address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Letter {
    /// Datagram from that address.
    Datagram(SimAddress, Vec<u8>),
    /// Datagrams from that address, in a GSO batch cut at that size.
    Batch(SimAddress, Vec<u8>, usize),
    /// Report that no socket is open there.
    Refused(SimAddress, Option<Quote>),
    /// Report that no larger datagrams pass on the way there.
    TooLarge(SimAddress, usize, Option<Quote>),
}

impl Letter {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Datagram(_, bytes) | Self::Batch(_, bytes, _) => bytes.len(),
            Self::Refused(..) | Self::TooLarge(..) => 0,
        }
    }
}

/// Mailbox of an address.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Node that owns the address.
    pub(super) node: NodeId,
    /// Whether the owner has the name open.
    pub(super) open: bool,
    under_way: BinaryHeap<Reverse<(Instant, u64, Letter)>>,
    arrived: VecDeque<Letter>,
    arrived_bytes: usize,
    limit: usize,
    /// Time for which the owner has been woken.
    woken: Option<Instant>,
}

impl Mailbox {
    pub(super) fn new(node: NodeId, limit: usize) -> Self {
        Self {
            node,
            open: false,
            under_way: BinaryHeap::new(),
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            limit,
            woken: None,
        }
    }

    /// Adds a letter. Returns true if its owner has to be woken at that time.
    pub(super) fn post(&mut self, at: Instant, order: u64, letter: Letter) -> bool {
        self.under_way.push(Reverse((at, order, letter)));
        self.woken.replace(at) != Some(at)
    }

    /// Gives the name to another node: letters that arrived before are lost, and later ones belong
    /// to the new node. Returns the times at which it has to be woken.
    pub(super) fn reopen(&mut self, now: Instant, node: NodeId) -> Vec<Instant> {
        self.receive_due(now);
        self.arrived.clear();
        (self.arrived_bytes, self.open, self.node) = (0, true, node);
        self.woken = None;
        let times = self.under_way.iter().map(|Reverse((at, _, _))| *at);
        times.collect()
    }

    /// Moves letters that are due to the arrived ones; returns the number that did not fit.
    pub(super) fn receive_due(&mut self, now: Instant) -> u64 {
        let mut lost = 0;
        self.woken = self.woken.filter(|at| *at > now);
        while let Some(Reverse((at, _, _))) = self.under_way.peek()
            && *at <= now
        {
            let Some(Reverse((_, _, letter))) = self.under_way.pop() else {
                break;
            };
            if self.arrived_bytes + letter.len() > self.limit {
                lost += 1;
            } else {
                self.arrived_bytes += letter.len();
                self.arrived.push_back(letter);
            }
        }
        lost
    }

    /// Returns the number of letters that have arrived and were not taken.
    pub(super) fn waiting(&self) -> usize {
        self.arrived.len()
    }

    /// Drops all letters.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
        self.arrived.clear();
        self.arrived_bytes = 0;
    }

    /// Takes the oldest arrived letter.
    pub(super) fn take(&mut self) -> Option<Letter> {
        let letter = self.arrived.pop_front()?;
        self.arrived_bytes -= letter.len();
        Some(letter)
    }

    /// Takes the next letter if it continues a GSO batch of `from`: no longer than its datagrams,
    /// and not more than `room` bytes.
    pub(super) fn take_more(
        &mut self,
        from: SimAddress,
        segment: usize,
        room: usize,
    ) -> Option<Vec<u8>> {
        let fits = match self.arrived.front()? {
            Letter::Datagram(sender, bytes) => {
                *sender == from && bytes.len() <= segment.min(room) && !bytes.is_empty()
            }
            _ => false,
        };
        match fits.then(|| self.take())?? {
            Letter::Datagram(_, bytes) => Some(bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_proto::{EndpointId, NicId};

    fn from(number: u32) -> SimAddress {
        SimAddress::command(NicId(1), EndpointId(number))
    }

    fn datagram(sender: u32, len: usize) -> Letter {
        Letter::Datagram(from(sender), vec![sender as u8; len])
    }

    #[test]
    fn what_does_not_fit_when_it_arrives_is_lost() {
        let mut mailbox = Mailbox::new(0, 25);
        for (order, at) in [30, 10, 20].into_iter().enumerate() {
            mailbox.post(Instant(at), order as u64, datagram(at as u32, 10));
        }
        assert_eq!(mailbox.receive_due(Instant(5)), 0);
        assert_eq!(mailbox.waiting(), 0);
        assert_eq!(
            mailbox.receive_due(Instant(30)),
            1,
            "the last one finds no room"
        );
        assert_eq!(mailbox.take(), Some(datagram(10, 10)));
        assert_eq!(mailbox.take(), Some(datagram(20, 10)));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn only_equal_ones_of_one_sender_continue_a_batch() {
        let mut mailbox = Mailbox::new(0, 100);
        let letters = [datagram(1, 10), datagram(1, 7), datagram(2, 7)];
        for (order, letter) in letters.into_iter().enumerate() {
            mailbox.post(Instant(1), order as u64, letter);
        }
        mailbox.receive_due(Instant(1));
        assert_eq!(mailbox.take(), Some(datagram(1, 10)));
        assert_eq!(mailbox.take_more(from(1), 10, 6), None, "no room");
        assert_eq!(mailbox.take_more(from(1), 10, 60), Some(vec![1; 7]));
        assert_eq!(mailbox.take_more(from(1), 10, 60), None, "another's");
        assert_eq!(mailbox.take(), Some(datagram(2, 7)));
    }
}
