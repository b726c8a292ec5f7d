//! When an epoch ends: after so many messages, or after a time.
//!
//! ```text
//!   number 6          |  7                |  8
//!   ------------------|-------------------|------------>
//!     count messages  ^ count reached     ^ time over
//! ```
//!
//! An epoch is long enough that every busy peer has used credits in it: four messages a peer at
//! least. Time that passes while nobody asks ends as many epochs as it has room for, afterwards.
//!
//! Knows nothing of: peers, what an epoch is for.

use crate::time::Instant;
use std::time::Duration;

/// The epoch we are in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epochs {
    number: u32,
    messages: u32,
    limit: u32,
    least: u32,
    time: Duration,
    end: Instant,
}

impl Epochs {
    pub(super) fn new(messages: u32, time: Duration) -> Self {
        Self {
            number: 0,
            messages: 0,
            limit: messages,
            least: messages,
            time,
            // The first call that brings a time begins the first epoch.
            end: Instant(0),
        }
    }

    /// Counts up, and wraps.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// So many peers there are.
    pub(super) fn on_peers(&mut self, peers: u32) {
        self.limit = peers.saturating_mul(MESSAGES_A_PEER).max(self.least);
    }

    /// A message arrived. True when that ended the epoch.
    #[inline]
    pub(super) fn on_message(&mut self, now: Instant) -> bool {
        self.messages += 1;
        if self.messages < self.limit && now < self.end {
            return false;
        }
        self.turn(now)
    }

    /// True when time has ended the epoch.
    #[inline]
    pub(super) fn on_time(&mut self, now: Instant) -> bool {
        now >= self.end && self.turn(now)
    }

    /// When time will end the epoch.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    #[cold]
    fn turn(&mut self, now: Instant) -> bool {
        let first = self.end == Instant(0);
        let late = now.since(self.end).as_nanos() / self.time.as_nanos().max(1);
        self.end = now.after(self.time);
        if first && self.messages < self.limit {
            return false;
        }
        // A figure of recent use is gone after eight epochs; more cannot be told from that.
        let ended = if first {
            1
        } else {
            1 + late.min(LATE_MAX) as u32
        };
        self.number = self.number.wrapping_add(ended);
        self.messages = 0;
        true
    }
}

/// A peer that sends a quarter as often as the average is still a busy one.
const MESSAGES_A_PEER: u32 = 4;

/// Epochs that one call ends at most, beside the first.
const LATE_MAX: u128 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000 + 1)
    }

    #[test]
    fn an_epoch_ends_with_its_last_message() {
        let mut epochs = Epochs::new(3, SECOND);
        let ended: Vec<bool> = (0..7).map(|_| epochs.on_message(at(5))).collect();
        assert_eq!(ended, [false, false, true, false, false, true, false]);
        assert_eq!(epochs.number(), 2);
    }

    #[test]
    fn an_epoch_ends_in_time_and_idle_time_counts_afterwards() {
        let mut epochs = Epochs::new(1000, SECOND);
        assert!(!epochs.on_time(at(10)));
        assert!(!epochs.on_time(Instant(at(11).0 - 1)));
        assert!(epochs.on_time(at(11)));
        assert_eq!((epochs.number(), epochs.end()), (1, at(12)));
        assert!(epochs.on_message(at(15)));
        assert_eq!((epochs.number(), epochs.end()), (5, at(16)));
        assert!(epochs.on_time(at(1_000_000)));
        assert_eq!(epochs.number(), 5 + 16);
    }

    #[test]
    fn with_many_peers_an_epoch_has_four_messages_for_each() {
        let mut epochs = Epochs::new(3, SECOND);
        epochs.on_peers(100);
        let messages = (1..).find(|_| epochs.on_message(at(1)));
        assert_eq!(messages, Some(400));
        epochs.on_peers(0);
        let messages = (1..).find(|_| epochs.on_message(at(1)));
        assert_eq!(messages, Some(3));
    }

    #[test]
    fn the_number_wraps() {
        let mut epochs = Epochs::new(1, SECOND);
        epochs.number = u32::MAX;
        assert!(epochs.on_message(at(1)));
        assert_eq!(epochs.number(), 0);
    }
}
