//! Reordering wait: how long after later arrivals a segment is declared lost (RFC 8985).
//!
//! ```text
//!   sent          typical: smoothed round trip     reordered ones arrived
//!    |------------------------|---------- extra ---------|--1/8--|
//!    |  not lost, however many later ones have arrived           |  lost
//! ```
//!
//! Until a segment arrives after three later ones, three later arrivals are enough and there is no wait: on a path that
//! keeps the order a loss is detected at once. On a path that reorders, each loss costs the wait, at most a round trip
//! more (as the window of RACK, RFC 8985, section 6.2).
//!
//! Owns: the longest delay of a reordered segment in the last 5 to 10 seconds.
//! Out of scope: segments, clocks.

use super::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// Longest time in microseconds, rounded up, that a reordered segment took beyond the smoothed round trip; 0: none.
    extra: u32,
    /// Time of that segment's arrival.
    at: Instant,
}

/// Time after which a shorter delay replaces the longest; after twice this time without reordering, the path is taken
/// to keep the order. RFC 8985 forgets after 16 losses, which on a bad link is very soon, and each time it forgets, a
/// window's worth is sent twice.
const LASTS: Duration = Duration::from_secs(5);

impl Reordering {
    pub(super) fn new() -> Self {
        Self {
            extra: 0,
            at: Instant(0),
        }
    }

    /// Records that a segment arrived `age` after it was sent, and after three later ones.
    pub(super) fn on_reordered(&mut self, now: Instant, age: Duration, rtt: &Rtt) {
        let smoothed = rtt.srtt().unwrap_or_default();
        let extra = age.saturating_sub(smoothed).min(smoothed);
        let micros = u32::try_from(extra.as_micros()).unwrap_or(u32::MAX);
        let extra = micros.saturating_add(1);
        if extra >= self.extra || now.since(self.at) >= LASTS {
            (self.extra, self.at) = (extra, now);
        }
    }

    /// Returns the time after its sending in which a segment is not declared lost because of later arrivals.
    pub(super) fn wait(&self, now: Instant, rtt: &Rtt) -> Duration {
        if self.extra == 0 || now.since(self.at) >= 2 * LASTS {
            return Duration::ZERO;
        }
        let longest = rtt.srtt().unwrap_or_default() + Duration::from_micros(self.extra.into());
        longest + longest / 8
    }
}

#[cfg(test)]
mod tests {
    use super::super::reliable_config::ReliableConfig;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rtt(sample: Duration) -> Rtt {
        let mut rtt = Rtt::new(&ReliableConfig::default());
        rtt.on_sample(Instant(1), sample);
        rtt
    }

    fn s(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn there_is_no_wait_before_a_segment_is_reordered() {
        let mut reordering = Reordering::new();
        for at in [s(0), s(4), s(100)] {
            assert_eq!(reordering.wait(at, &rtt(10 * MS)), Duration::ZERO);
        }
        // Without a measurement, the smoothed round trip is unknown.
        let unknown = Rtt::new(&ReliableConfig::default());
        reordering.on_reordered(s(100), MS, &unknown);
        assert!(reordering.wait(s(100), &unknown) < MS);
    }

    #[test]
    fn the_wait_is_what_the_latest_took_and_an_eighth() {
        let (mut reordering, rtt) = (Reordering::new(), rtt(16 * MS));
        reordering.on_reordered(s(100), 24 * MS, &rtt);
        let wait = reordering.wait(s(100), &rtt);
        assert!(wait >= 27 * MS && wait < 28 * MS, "{wait:?}");
        // A segment with a shorter delay changes nothing.
        reordering.on_reordered(s(101), 20 * MS, &rtt);
        assert_eq!(reordering.wait(s(101), &rtt), wait);
        reordering.on_reordered(s(102), 25 * MS, &rtt);
        assert!(reordering.wait(s(102), &rtt) > wait);
    }

    #[test]
    fn reordering_wait_is_at_most_two_and_a_quarter_rtt() {
        let (mut reordering, rtt) = (Reordering::new(), rtt(16 * MS));
        for age in [32 * MS, 33 * MS, Duration::MAX] {
            reordering.on_reordered(s(100), age, &rtt);
            let wait = reordering.wait(s(100), &rtt);
            assert!(wait >= 36 * MS && wait < 37 * MS, "{wait:?}");
        }
    }

    #[test]
    fn it_is_forgotten_after_five_to_ten_seconds() {
        let (mut reordering, rtt) = (Reordering::new(), rtt(16 * MS));
        reordering.on_reordered(s(100), 30 * MS, &rtt);
        let long = reordering.wait(s(100), &rtt);
        reordering.on_reordered(s(104), 20 * MS, &rtt);
        assert_eq!(reordering.wait(s(109), &rtt), long);
        reordering.on_reordered(s(109), 20 * MS, &rtt);
        let short = reordering.wait(s(118), &rtt);
        assert!(short > Duration::ZERO && short < long, "{short:?}");
        assert_eq!(reordering.wait(s(119), &rtt), Duration::ZERO);
        // A reordered segment is then the first again.
        reordering.on_reordered(s(200), 17 * MS, &rtt);
        assert!(reordering.wait(s(200), &rtt) < short);
    }

    #[test]
    fn the_wait_follows_the_typical_round_trip() {
        let mut reordering = Reordering::new();
        reordering.on_reordered(s(100), 12 * MS, &rtt(10 * MS));
        let (near, far) = (rtt(10 * MS), rtt(40 * MS));
        assert!(reordering.wait(s(100), &far) > reordering.wait(s(100), &near) + 30 * MS);
    }
}
