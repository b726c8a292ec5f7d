//! Time: points in time as numbers, nanoseconds since an arbitrary start.
//!
//! No function here reads a clock. An endpoint is given its [`Clock`], the real one in `mx-sys` or a virtual one in the
//! simulator, and tells its port the time.

use std::time::Duration;

/// Point in time, in nanoseconds since an arbitrary start that all parts of one run share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// Returns `self + span`, at most the end of time.
    #[inline]
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns `self - span`, at least the beginning of time.
    #[inline]
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(nanos))
    }

    /// Returns the first multiple of `grain` not before `self`, so that inexact deadlines expire together.
    #[inline]
    #[must_use]
    pub fn up_to(self, grain: Duration) -> Self {
        let grain = u64::try_from(grain.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0.div_ceil(grain).saturating_mul(grain))
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the earliest of `times`; `None` if there is none before the end of time.
    ///
    /// `times.flatten().min()` compiles to a branch on the undefined value of a `None`, whose outcome is then ignored;
    /// valgrind reports the branch in every program over the library.
    pub fn earliest(times: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        let numbers = times
            .into_iter()
            .map(|time| time.map_or(u64::MAX, |time| time.0));
        let first = numbers.fold(u64::MAX, u64::min);
        (first < u64::MAX).then_some(Self(first))
    }
}

/// Deadline for an answer of a peer.
///
/// A check that comes [`LATE`] or more after the deadline shows nothing about the peer: this process was stopped, or
/// the clock jumped forward. The first such check postpones the deadline to [`LATE`] from now, so that what the peer
/// has sent can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerDeadline {
    at: Instant,
    put_off: bool,
}

impl PeerDeadline {
    /// Makes a deadline that expires at `at`.
    pub fn new(at: Instant) -> Self {
        let put_off = false;
        Self { at, put_off }
    }

    /// Returns the time at which [`Self::is_over`] is to be called next.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// Checks the deadline: returns true if the peer has run out of time. Returns false before the deadline, and once
    /// if the check itself comes too late, which postpones the deadline.
    pub fn is_over(&mut self, now: Instant) -> bool {
        if self.put_off || now.since(self.at) < LATE {
            return now >= self.at;
        }
        let (at, put_off) = (now.after(LATE), true);
        *self = Self { at, put_off };
        false
    }
}

/// Delay of a check after which this process counts as having been stopped: many times any delay of scheduling, and
/// short compared with the time-outs.
pub const LATE: Duration = Duration::from_secs(1);

/// Source of time.
pub trait Clock {
    /// Returns the present time. Never goes backwards.
    fn now(&self) -> Instant;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_times_leaves_out_those_that_are_not_there() {
        let earliest =
            |times: &[Option<u64>]| Instant::earliest(times.iter().map(|time| time.map(Instant)));
        assert_eq!(earliest(&[]), None);
        assert_eq!(earliest(&[None, None]), None);
        assert_eq!(earliest(&[None, Some(7), Some(3), None]), Some(Instant(3)));
        assert_eq!(earliest(&[Some(0), None]), Some(Instant(0)));
        assert_eq!(earliest(&[Some(u64::MAX), None]), None);
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(
            Instant(u64::MAX - 1).after(Duration::from_secs(1)),
            Instant(u64::MAX)
        );
        assert_eq!(Instant(0).after(Duration::MAX), Instant(u64::MAX));
        let grain = Duration::from_nanos(10);
        assert_eq!(
            [0, 1, 10, 11].map(|n| Instant(n).up_to(grain).0),
            [0, 10, 10, 20]
        );
        assert_eq!(Instant(u64::MAX).up_to(grain), Instant(u64::MAX));
        assert_eq!(Instant(7).up_to(Duration::ZERO), Instant(7));
        assert_eq!(Instant(3).since(Instant(5)), Duration::ZERO);
        assert_eq!(Instant(5).since(Instant(3)), Duration::from_nanos(2));
    }

    #[test]
    fn a_late_look_puts_a_deadline_off_once() {
        let due = Instant(7);
        let mut in_time = PeerDeadline::new(due);
        assert!(!in_time.is_over(Instant(6)));
        assert!(in_time.is_over(due));
        assert!(in_time.is_over(due.after(LATE).before(Duration::from_nanos(1))));
        let late = due.after(LATE);
        assert!(!in_time.is_over(late));
        assert_eq!(in_time.at(), late.after(LATE));
        assert!(!in_time.is_over(late.after(LATE / 2)));
        assert!(in_time.is_over(late.after(9 * LATE)), "late again");
    }
}
