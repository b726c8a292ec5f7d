//! Ack policy: when to send an acknowledgement that cannot be piggybacked.
//!
//! ```text
//!   in order           wait for data to piggyback on, at most the delay, or until a quarter
//!                      of the window has come
//!   out of order       the other channel may just be slower: send with the third such segment, or
//!                      after an eighth of the delay
//!   old, duplicate, ASK, FIN, Ping     at once: the peer wants to know
//! ```
//!
//! Owns: the numbers of segments not acknowledged.
//! Out of scope: sequence numbers, the timer (`timers`).

use crate::time::Instant;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct AckPolicy {
    delay: Duration,
    quarter: u32,
    /// In-order segments since the last acknowledgement.
    owed: u32,
    /// Segments since the last acknowledgement that came while an earlier one was missing.
    early: u32,
}

/// Number of out-of-order segments that are acknowledged at once. The peer declares a loss when three later segments of
/// the same channel have arrived (usnic's tolerance), so hearing of fewer is of no use to it.
const ENOUGH: u32 = 3;

/// Fraction of the delay that fewer out-of-order segments wait. Longer than a command segment ever lags behind a data
/// segment sent before it on one machine, and far below the shortest time-out.
const EARLY_PART: u32 = 8;

impl AckPolicy {
    pub(super) fn new(delay: Duration, window: u16) -> Self {
        Self {
            delay,
            quarter: (u32::from(window) / 4).max(1),
            owed: 0,
            early: 0,
        }
    }

    /// Counts a segment that came in order, with nothing missing. Returns the deadline of its acknowledgement.
    pub(super) fn on_in_order(&mut self, now: Instant) -> Instant {
        self.owed = self.owed.saturating_add(1);
        let wait = if self.owed >= self.quarter {
            Duration::ZERO
        } else {
            self.delay
        };
        now.after(wait)
    }

    /// Counts a new segment that came while an earlier one is missing. Returns the deadline of its acknowledgement.
    pub(super) fn on_early(&mut self, now: Instant) -> Instant {
        self.early = self.early.saturating_add(1);
        let wait = if self.early >= ENOUGH {
            Duration::ZERO
        } else {
            self.delay / EARLY_PART
        };
        now.after(wait)
    }

    /// Records that an acknowledgement was sent, alone or piggybacked.
    pub(super) fn on_acked(&mut self) {
        (self.owed, self.early) = (0, 0);
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
        let due = [10, 11, 12, 20].map(|at| policy.on_in_order(Instant(at)));
        assert_eq!(due, [810, 811, 812, 20].map(Instant));
        policy.on_acked();
        assert_eq!(policy.on_in_order(Instant(30)), Instant(830));
    }

    #[test]
    fn two_early_segments_are_let_go_and_the_third_is_not() {
        let mut policy = policy(1024);
        let due = [10, 50, 60].map(|at| policy.on_early(Instant(at)));
        assert_eq!(due, [110, 150, 60].map(Instant));
        // The count begins again after an acknowledgement.
        policy.on_acked();
        assert_eq!(policy.on_early(Instant(70)), Instant(170));
    }

    #[test]
    fn the_smallest_windows_are_acknowledged_at_once() {
        for window in [0, 1, 4, 7] {
            let due = policy(window).on_in_order(Instant(5));
            assert_eq!(due, Instant(5), "window {window}");
        }
        assert_eq!(policy(8).on_in_order(Instant(5)), Instant(805));
    }

    #[test]
    fn counters_do_not_overflow() {
        let mut policy = policy(16);
        (policy.owed, policy.early) = (u32::MAX, u32::MAX);
        assert_eq!(policy.on_in_order(Instant(1)), Instant(1));
        assert_eq!(policy.on_early(Instant(1)), Instant(1));
    }
}
