//! Answers due to the peer of one session: to its Pings and to its Probes.
//!
//! ```text
//!   Ping ---> waits until the data channel has been read ---> the next Ack answers it
//!   Probe --> Probed
//! ```
//!
//! The peer declares segments lost that the answer to a Ping does not name, so whatever arrived before the Ping must be
//! read first.
//!
//! Out of scope: acknowledgements without a Ping (`ack_policy`).

use super::timers::{Timer, Timers};
use crate::time::Instant;
use std::time::Duration;

/// Answers due to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// Stamp of the last Ping that waits, and the time at which the first of them arrived; `None`: no Ping waits.
    pings: Option<(u32, Instant)>,
    /// Stamp for the next Ack, which answers a Ping; `None`: no answer is due.
    pub(super) stamp: Option<u32>,
    /// Size and proof of the last Probe; `None`: no answer is due.
    pub(super) probed: Option<(u32, u64)>,
}

/// Maximum time that the answer to a Ping waits for the data channel to be empty: many times the time needed to read a
/// whole socket.
const WAIT_MAX: Duration = Duration::from_millis(20);

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.pings.is_none() && self.stamp.is_none() && self.probed.is_none()
    }

    pub(super) fn on_ping(&mut self, now: Instant, stamp: u32) {
        let came = self.pings.map_or(now, |(_, came)| came);
        self.pings = Some((stamp, came));
    }

    /// Answers a Ping if nothing is left on the data channel (`empty`), or if that takes too long. Returns false if the
    /// answer still waits.
    pub(super) fn answer_ping(&mut self, now: Instant, empty: bool, timers: &mut Timers) -> bool {
        let Some((stamp, came)) = self.pings else {
            return true;
        };
        if !empty && now.since(came) < WAIT_MAX {
            return false;
        }
        (self.pings, self.stamp) = (None, Some(stamp));
        timers.set_earlier(Timer::Ack, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_is_answered_when_data_channel_is_empty_or_late() {
        for (empty, after) in [(true, Duration::ZERO), (false, WAIT_MAX)] {
            let (mut answers, mut timers) = (Answers::default(), Timers::new());
            answers.on_ping(Instant(7), 1);
            let before = Instant(7).after(WAIT_MAX).before(Duration::from_nanos(1));
            assert!(!answers.answer_ping(before, false, &mut timers));
            assert!(!timers.is_set(Timer::Ack) && !answers.is_empty());
            // The first Ping counts for the wait, and the last one is answered.
            answers.on_ping(before, 2);
            let now = before.max(Instant(7).after(after));
            assert!(answers.answer_ping(now, empty, &mut timers));
            assert_eq!((answers.stamp, timers.next()), (Some(2), now));
            // No Ping waits any more.
            assert!(answers.answer_ping(now, false, &mut timers));
        }
    }
}
