//! Senders: counts the links that have brought bulk data recently, among which the receive window is divided (incast
//! control).
//!
//! ```text
//!   | this epoch: n | the previous: m |      a share: receive window / max(n, m, 1)
//! ```
//!
//! Owns: two counts. Each link records the epoch in which it was last counted.

use super::roster::QUIET;
use crate::time::Instant;
use std::time::Duration;

/// Counts of links that have brought bulk data recently and share the receive buffer.
#[derive(Debug)]
pub(super) struct Senders {
    epoch: u64,
    now: u32,
    before: u32,
    /// Bytes that all of them together may have in flight.
    buffer: usize,
}

/// Length of an epoch: some round trips.
const SENDERS_EPOCH: Duration = Duration::from_millis(10);

impl Senders {
    pub(super) fn new(receive_buffer: usize, window: usize) -> Self {
        Self {
            epoch: 0,
            now: 0,
            before: 0,
            // Half, because the kernel's overhead for a small datagram is about its size. A switch's queue is unknown,
            // so all senders together get the window of one alone.
            buffer: window.min(receive_buffer / 2),
        }
    }

    /// Begins a new epoch if it is time. Returns the present epoch.
    #[inline]
    pub(super) fn enter(&mut self, now: Instant) -> u64 {
        let epoch = Self::epoch(now);
        if epoch != self.epoch {
            self.before = if epoch == self.epoch + 1 { self.now } else { 0 };
            self.now = 0;
            self.epoch = epoch;
        }
        epoch
    }

    /// Counts a link as a sender in the present epoch.
    #[inline]
    pub(super) fn count(&mut self) {
        self.now = self.now.saturating_add(1);
    }

    /// Returns the number of bytes that each sender may have in flight.
    pub(super) fn share(&self) -> usize {
        self.buffer / self.now.max(self.before).max(1) as usize
    }

    /// Returns whether a link that last brought data in epoch `last` has done so within a second.
    pub(super) fn is_recent(now: Instant, last: u64) -> bool {
        let epochs = (QUIET.as_nanos() / SENDERS_EPOCH.as_nanos()) as u64;
        last + epochs > Self::epoch(now)
    }

    fn epoch(now: Instant) -> u64 {
        1 + now.0 / SENDERS_EPOCH.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_recent_for_a_second_after_its_last_data() {
        let mut senders = Senders::new(1 << 20, 1 << 20);
        let now = Instant(0).after(100 * SENDERS_EPOCH);
        let last = senders.enter(now);
        let recent = |after| Senders::is_recent(now.after(after), last);
        assert!(recent(QUIET - SENDERS_EPOCH) && !recent(QUIET));
    }
}
