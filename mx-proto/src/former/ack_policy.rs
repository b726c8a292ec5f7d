//! When an acknowledgement goes out by itself.
//!
//! ```text
//!   in order           wait for something to travel with, at most the delay,
//!                      or until a quarter of the window has come
//!   early, doubled,    at once: the peer wants to know what is missing
//!   asked for
//! ```
//!
//! Knows nothing of: numbers, how it is sent.

use crate::time::Instant;
use std::time::Duration;

/// What is owed to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckPolicy {
    delay: Duration,
    quarter: u32,
    /// Fragments that came in order since the last acknowledgement.
    owed: u32,
    /// When it must go.
    due: Option<Instant>,
}

impl AckPolicy {
    pub(super) fn new(delay: Duration, window: u16) -> Self {
        Self {
            delay,
            quarter: (u32::from(window) / 4).max(1),
            owed: 0,
            due: None,
        }
    }

    /// A fragment came in order.
    pub(super) fn on_in_order(&mut self, now: Instant) {
        self.owed += 1;
        if self.owed >= self.quarter {
            self.due = Some(now);
        } else if self.due.is_none() {
            self.due = Some(now.after(self.delay));
        }
    }

    /// Something came that the peer should hear of at once.
    pub(super) fn on_urgent(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// An acknowledgement went out, alone or with something else.
    pub(super) fn on_acked(&mut self) {
        self.owed = 0;
        self.due = None;
    }

    /// When it must go; `None`: nothing is owed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_fragments_wait_until_a_quarter_of_the_window() {
        let mut policy = AckPolicy::new(Duration::from_nanos(100), 16);
        assert_eq!(policy.due(), None);
        (0..3).for_each(|i| policy.on_in_order(Instant(10 + i)));
        assert_eq!(policy.due(), Some(Instant(110)));
        policy.on_in_order(Instant(20));
        assert_eq!(policy.due(), Some(Instant(20)));
        policy.on_acked();
        assert_eq!(policy.due(), None);
        policy.on_urgent(Instant(30));
        assert_eq!(policy.due(), Some(Instant(30)));
    }
}
