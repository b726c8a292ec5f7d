//! When to send an acknowledgement that cannot be piggybacked.
//!
//! ```text
//!   in order           wait for data to piggyback on, at most the delay, or until a quarter
//!                      of the window has come
//!   early              the other channel may just be slower: the third of them, or an eighth of
//!                      the delay
//!   old, doubled, ASK, FIN, Ping     at once: the peer wants to know
//! ```
//!
//! Owns: the acknowledgements due, and their time.
//! Not here: numbers.

use crate::time::Instant;
use std::time::Duration;

/// The acknowledgement due to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckPolicy {
    delay: Duration,
    quarter: u32,
    /// Segments that came in order since the last acknowledgement.
    owed: u32,
    /// Segments that came before something that is missing, since the last acknowledgement.
    early: u32,
    /// Its deadline.
    due: Option<Instant>,
}

/// The early segment that is not let go any more. The peer believes in a loss when three later
/// segments of the same channel have arrived (usnic's tolerance): hearing of fewer is no use to it.
const ENOUGH: u32 = 3;

/// Fewer early segments wait for this part of the delay. Longer than a command segment is ever
/// behind a data segment sent before it on one host, far below the shortest time-out.
const EARLY_PART: u32 = 8;

impl AckPolicy {
    pub(super) fn new(delay: Duration, window: u16) -> Self {
        Self {
            delay,
            quarter: (u32::from(window) / 4).max(1),
            owed: 0,
            early: 0,
            due: None,
        }
    }

    /// A segment came in order, and nothing is missing.
    pub(super) fn on_in_order(&mut self, now: Instant) {
        self.owed = self.owed.saturating_add(1);
        let wait = if self.owed >= self.quarter {
            Duration::ZERO
        } else {
            self.delay
        };
        self.plan(now.after(wait));
    }

    /// A new segment came, and one before it is missing.
    pub(super) fn on_early(&mut self, now: Instant) {
        self.early = self.early.saturating_add(1);
        let wait = if self.early >= ENOUGH {
            Duration::ZERO
        } else {
            self.delay / EARLY_PART
        };
        self.plan(now.after(wait));
    }

    /// Something came that the peer should hear of at once.
    pub(super) fn on_urgent(&mut self, now: Instant) {
        self.plan(now);
    }

    fn plan(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// An acknowledgement went out, alone or with something else.
    pub(super) fn on_acked(&mut self) {
        (self.owed, self.early, self.due) = (0, 0, None);
    }

    /// Its deadline; `None`: none is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(window: u16) -> AckPolicy {
        AckPolicy::new(Duration::from_nanos(800), window)
    }

    #[test]
    fn in_order_segments_wait_until_a_quarter_of_the_window() {
        let mut policy = policy(16);
        assert_eq!(policy.due(), None);
        (0..3).for_each(|i| policy.on_in_order(Instant(10 + i)));
        assert_eq!(policy.due(), Some(Instant(810)));
        policy.on_in_order(Instant(20));
        assert_eq!(policy.due(), Some(Instant(20)));
        policy.on_acked();
        assert_eq!(policy.due(), None);
        policy.on_in_order(Instant(30));
        assert_eq!(policy.due(), Some(Instant(830)));
    }

    #[test]
    fn two_early_segments_are_let_go_and_the_third_is_not() {
        let mut policy = policy(1024);
        policy.on_early(Instant(10));
        policy.on_early(Instant(50));
        assert_eq!(policy.due(), Some(Instant(110)));
        policy.on_early(Instant(60));
        assert_eq!(policy.due(), Some(Instant(60)));
        // The next three are another reason.
        policy.on_acked();
        policy.on_early(Instant(70));
        assert_eq!(policy.due(), Some(Instant(170)));
    }

    #[test]
    fn what_is_urgent_goes_at_once_and_nothing_puts_it_off() {
        let mut policy = policy(1024);
        policy.on_in_order(Instant(10));
        policy.on_urgent(Instant(20));
        policy.on_in_order(Instant(30));
        policy.on_early(Instant(40));
        assert_eq!(policy.due(), Some(Instant(20)));
    }

    #[test]
    fn the_smallest_windows_are_acknowledged_at_once() {
        for window in [0, 1, 4, 7] {
            let mut policy = policy(window);
            policy.on_in_order(Instant(5));
            assert_eq!(policy.due(), Some(Instant(5)), "window {window}");
        }
        let mut policy = policy(8);
        policy.on_in_order(Instant(5));
        assert_eq!(policy.due(), Some(Instant(805)));
    }

    #[test]
    fn counters_do_not_overflow() {
        let mut policy = policy(16);
        (policy.owed, policy.early) = (u32::MAX, u32::MAX);
        policy.on_in_order(Instant(1));
        policy.on_early(Instant(1));
        assert_eq!(policy.due(), Some(Instant(1)));
    }
}
