//! Timers of the port.
//!
//! ```text
//!   set(at, alarm) --> [ earliest | ... ] --> ring(now): every alarm that is due
//! ```
//!
//! Owns: the alarms. An obsolete alarm still fires and is ignored, so setting costs O(log n) and clearing nothing.
//! Out of scope: links, except for their ids.

use mx_proto::{Instant, LinkId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Work to do at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Alarm {
    /// Timeout of an attempt to connect.
    Dial {
        /// Link that is connecting.
        link: LinkId,
        /// Number of the attempt.
        attempt: u32,
    },
    /// End of a closed link's lingering.
    Linger(LinkId),
    /// End of a pause in accepting.
    Accept,
    /// Check of links that have sent something.
    Health,
}

/// Pending alarms, earliest first.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    heap: BinaryHeap<Reverse<(Instant, Alarm)>>,
}

impl Alarms {
    /// Sets `alarm` for the time `at`.
    pub(super) fn set(&mut self, at: Instant, alarm: Alarm) {
        self.heap.push(Reverse((at, alarm)));
    }

    /// Returns the time of the earliest alarm.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns an alarm that is due.
    pub(super) fn ring(&mut self, now: Instant) -> Option<Alarm> {
        if self.next()? > now {
            return None;
        }
        let alarm = self.heap.pop().map(|Reverse((_, alarm))| alarm);
        if self.heap.capacity() > 4 * self.heap.len() + 256 {
            self.heap.shrink_to(2 * self.heap.len());
        }
        alarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_ring_in_the_order_of_time_and_not_before_it() {
        let mut alarms = Alarms::default();
        alarms.set(Instant(20), Alarm::Health);
        alarms.set(Instant(10), Alarm::Accept);
        assert_eq!(alarms.next(), Some(Instant(10)));
        assert_eq!(alarms.ring(Instant(9)), None);
        assert_eq!(alarms.ring(Instant(30)), Some(Alarm::Accept));
        assert_eq!(alarms.ring(Instant(30)), Some(Alarm::Health));
        assert_eq!(alarms.ring(Instant(30)), None);
    }
}
