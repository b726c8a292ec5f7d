//! Which fragments of one peer have arrived, and those that came early.
//!
//! ```text
//!        next            cumulative                     next + capacity
//!          |                 |                                 |
//!   given  [ here, in order  )   hole   [here]  hole  [here]   )  not accepted
//!   out
//! ```
//!
//! Owns: the bytes of fragments that cannot be given out yet. Knows nothing of: packets, acks'
//! timing, the peer.
//! Cost: accepting and giving out are O(1); memory only for what is kept.

use super::seq::Seq;
use std::collections::VecDeque;

/// A fragment that was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    pub(super) flags: u16,
    pub(super) bytes: Vec<u8>,
}

/// What a fragment is to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It is the next one to be given out: [`RecvWindow::on_given`] once that has been done, or
    /// [`RecvWindow::keep`].
    Next,
    /// It has its place behind others; [`RecvWindow::keep`] puts it there.
    Early,
    /// It has been here before.
    Duplicate,
    /// There is no place for it.
    Outside,
}

/// The receiving half of one link.
#[derive(Debug)]
pub(super) struct RecvWindow {
    next: Seq,
    /// What is here from `next` on.
    slots: VecDeque<Option<Fragment>>,
    /// How many of `slots` from the front are there without a hole.
    in_order: usize,
    capacity: u16,
    kept_bytes: usize,
}

impl RecvWindow {
    pub(super) fn new(first: Seq, capacity: u16) -> Self {
        Self {
            next: first,
            slots: VecDeque::new(),
            in_order: 0,
            capacity,
            kept_bytes: 0,
        }
    }

    /// The number up to which everything has arrived.
    pub(super) fn cumulative(&self) -> Seq {
        self.next.ahead(self.in_order as u32)
    }

    /// Bit i: the fragment `cumulative + 1 + i` has arrived.
    pub(super) fn sack(&self) -> u64 {
        let later = self.slots.iter().skip(self.in_order + 1).take(64);
        later
            .enumerate()
            .fold(0, |bits, (i, slot)| bits | u64::from(slot.is_some()) << i)
    }

    /// Fragments from the cumulative number on that will be accepted.
    pub(super) fn room(&self) -> u16 {
        self.capacity.saturating_sub(self.in_order as u16)
    }

    /// Bytes in fragments that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Fragments that can be given out now.
    pub(super) fn has_next(&self) -> bool {
        self.in_order > 0
    }

    /// Looks at a number; changes nothing.
    pub(super) fn verdict(&self, seq: Seq) -> Verdict {
        if seq.precedes(self.next) {
            return Verdict::Duplicate;
        }
        let ahead = seq.since(self.next);
        if ahead >= u32::from(self.capacity) {
            return Verdict::Outside;
        }
        match self.slots.get(ahead as usize) {
            Some(Some(_)) => Verdict::Duplicate,
            _ if ahead == 0 => Verdict::Next,
            _ => Verdict::Early,
        }
    }

    /// The next fragment has been given out without having been kept.
    pub(super) fn on_given(&mut self) {
        debug_assert_eq!(self.in_order, 0);
        self.slots.pop_front();
        self.next = self.next.ahead(1);
        self.count_in_order();
    }

    /// Keeps a fragment for which the verdict was `Next` or `Early`.
    pub(super) fn keep(&mut self, seq: Seq, fragment: Fragment) {
        let ahead = seq.since(self.next) as usize;
        if ahead >= usize::from(self.capacity) {
            return;
        }
        while self.slots.len() <= ahead {
            self.slots.push_back(None);
        }
        self.kept_bytes += fragment.bytes.len();
        self.slots[ahead] = Some(fragment);
        self.count_in_order();
    }

    /// The next fragment that was kept, if nothing is missing before it.
    pub(super) fn take_next(&mut self) -> Option<Fragment> {
        if self.in_order == 0 {
            return None;
        }
        let fragment = self.slots.pop_front().flatten()?;
        self.next = self.next.ahead(1);
        self.in_order -= 1;
        self.kept_bytes -= fragment.bytes.len();
        Some(fragment)
    }

    fn count_in_order(&mut self) {
        while matches!(self.slots.get(self.in_order), Some(Some(_))) {
            self.in_order += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Seq = Seq(u32::MAX - 2);

    fn fragment(tag: u8) -> Fragment {
        Fragment {
            flags: 0,
            bytes: vec![tag],
        }
    }

    #[test]
    fn early_fragments_wait_for_the_missing_one_across_the_wrap() {
        let mut window = RecvWindow::new(START, 8);
        for i in [4, 2, 1] {
            assert_eq!(window.verdict(START.ahead(i)), Verdict::Early);
            window.keep(START.ahead(i), fragment(i as u8));
        }
        assert_eq!((window.cumulative(), window.sack()), (START, 0b1011));
        assert_eq!(window.take_next(), None);
        assert_eq!(window.verdict(START), Verdict::Next);
        window.on_given();
        assert_eq!((window.cumulative(), window.sack()), (START.ahead(3), 0b1));
        assert_eq!(window.room(), 6);
        assert_eq!(window.take_next(), Some(fragment(1)));
        assert_eq!(window.take_next(), Some(fragment(2)));
        assert_eq!(window.take_next(), None);
        assert_eq!((window.room(), window.kept_bytes()), (8, 1));
    }

    #[test]
    fn old_and_doubled_fragments_are_duplicates_and_far_ones_outside() {
        let mut window = RecvWindow::new(START, 8);
        window.keep(START.ahead(3), fragment(3));
        assert_eq!(window.verdict(START.ahead(3)), Verdict::Duplicate);
        assert_eq!(window.verdict(START.ahead(7)), Verdict::Early);
        assert_eq!(window.verdict(START.ahead(8)), Verdict::Outside);
        window.on_given();
        assert_eq!(window.verdict(START), Verdict::Duplicate);
        assert_eq!(window.verdict(START.ahead(8)), Verdict::Early);
        assert_eq!(window.verdict(START.ahead(1 << 30)), Verdict::Outside);
    }

    #[test]
    fn what_is_kept_in_order_takes_room_until_it_is_given_out() {
        let mut window = RecvWindow::new(START, 4);
        (0..4).for_each(|i| window.keep(START.ahead(i), fragment(i as u8)));
        assert_eq!((window.room(), window.cumulative()), (0, START.ahead(4)));
        assert_eq!(window.verdict(START.ahead(4)), Verdict::Outside);
        assert!(window.take_next().is_some());
        assert_eq!(window.room(), 1);
        assert_eq!(window.verdict(START.ahead(4)), Verdict::Early);
    }
}
