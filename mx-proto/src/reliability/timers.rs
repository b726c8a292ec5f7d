//! Deadlines of one session, in one table.
//!
//! ```text
//!   timer        set by                              at its deadline
//!   Hello        connecting                          a Hello is sent
//!   Connect      Hellos without an answer            the session ends
//!   Linger       close                               the session ends
//!   Ask          segments in flight                  a Ping asks for them
//!   Reordering   later segments that arrived         the reordered segments are lost
//!   Resend       segments in flight                  all of them are lost
//!   Pacing       an empty bucket of the pacer        more segments are sent
//!   Ack          segments that arrived               an Ack is sent
//!   Probe        a search of the path MTU            a probe is lost, or a search begins
//!   Ping         silence of the peer                 a Ping is sent
//! ```
//!
//! Owns: the deadlines. A link has one entry in the wheel of its port, for the earliest of them.
//! Out of scope: what happens at a deadline (`Session::on_timer`, `transmit`).
//! Cost: 8 bytes for each timer; `next` looks at all.

use crate::time::Instant;
use std::time::Duration;

/// Reason why a session acts although nothing arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    Hello,
    Connect,
    Linger,
    Ask,
    Reordering,
    Resend,
    Pacing,
    Ack,
    Probe,
    Ping,
}

impl Timer {
    /// All timers, in the order in which expired ones are handled.
    pub(super) const ALL: [Self; 10] = {
        use Timer::*;
        [
            Hello, Connect, Linger, Ask, Reordering, Resend, Pacing, Ack, Probe, Ping,
        ]
    };
}

/// Deadline of each timer of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers([Instant; Timer::ALL.len()]);

/// Deadline of a timer that is not set.
const NEVER: Instant = Instant(u64::MAX);

impl Timers {
    /// Returns a table in which no timer is set.
    pub(super) fn new() -> Self {
        Self([NEVER; Timer::ALL.len()])
    }

    /// Sets a timer, wherever it was before; `None` stops it.
    pub(super) fn set(&mut self, timer: Timer, at: impl Into<Option<Instant>>) {
        self.0[timer as usize] = at.into().unwrap_or(NEVER);
    }

    /// Sets a timer, unless it is set for an earlier time.
    pub(super) fn set_earlier(&mut self, timer: Timer, at: Instant) {
        let deadline = &mut self.0[timer as usize];
        *deadline = at.min(*deadline);
    }

    /// Postpones a timer by `span` if it is set.
    pub(super) fn postpone(&mut self, timer: Timer, span: Duration) {
        let deadline = &mut self.0[timer as usize];
        *deadline = deadline.after(span);
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = NEVER;
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] != NEVER
    }

    pub(super) fn is_expired(&self, timer: Timer, now: Instant) -> bool {
        self.0[timer as usize] <= now
    }

    /// Returns the earliest deadline; the end of time if no timer is set.
    pub(super) fn next(&self) -> Instant {
        self.0.iter().copied().fold(NEVER, Instant::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timer_has_its_place_in_the_table() {
        for (index, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, index, "{timer:?}");
        }
    }

    #[test]
    fn the_earliest_timer_that_is_set_is_next() {
        let mut timers = Timers::new();
        assert_eq!(timers.next(), NEVER);
        timers.set(Timer::Ask, Instant(7));
        timers.set(Timer::Resend, Some(Instant(5)));
        assert_eq!(timers.next(), Instant(5));
        timers.stop(Timer::Resend);
        assert_eq!(timers.next(), Instant(7));
        timers.set(Timer::Ask, None);
        assert!(!timers.is_set(Timer::Ask));
        assert_eq!(timers.next(), NEVER);
    }

    #[test]
    fn a_timer_expires_at_its_deadline_and_stays_set() {
        let mut timers = Timers::new();
        assert!(!timers.is_expired(Timer::Ack, Instant(1 << 60)));
        timers.set(Timer::Ack, Instant(7));
        let expired = [6, 7, 8].map(|now| timers.is_expired(Timer::Ack, Instant(now)));
        assert_eq!(expired, [false, true, true]);
        assert!(timers.is_set(Timer::Ack));
    }

    #[test]
    fn a_timer_that_is_not_set_cannot_be_postponed() {
        let mut timers = Timers::new();
        timers.set(Timer::Linger, Instant(7));
        for timer in [Timer::Linger, Timer::Connect] {
            timers.postpone(timer, Duration::from_nanos(5));
        }
        assert_eq!(timers.next(), Instant(12));
        assert!(!timers.is_set(Timer::Connect));
    }

    #[test]
    fn a_timer_that_is_set_earlier_is_never_put_off() {
        let mut timers = Timers::new();
        for (at, due) in [(20, 20), (30, 20), (10, 10)] {
            timers.set_earlier(Timer::Ack, Instant(at));
            assert_eq!(timers.next(), Instant(due));
        }
    }
}
