//! The reordering wait: how long after later arrivals a segment is declared lost (RFC 8985).
//!
//! ```text
//!   sent          typical: smoothed round trip     reordered ones came
//!    |------------------------|---------- extra ---------|--1/8--|
//!    |  not lost, however many later ones have arrived           |  lost
//! ```
//!
//! Until a segment arrives of which three later ones have arrived before, three are enough and there
//! is no wait: on a path that keeps the order a loss is found at once. On a path that reorders each
//! loss costs the wait, at most a round trip more (as the window of RACK, RFC 8985, section 6.2).
//!
//! Owns: the delays of reordered segments in the last 5 to 10 seconds.
//! Not here: segments, clocks.

use super::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

/// The reordering of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// The longest time beyond the typical round trip that a reordered segment took, in this half of
    /// the window and in the one before. Microseconds, rounded up: 0 is "none".
    extra: [u32; 2],
    /// The time at which this half began.
    half: Instant,
}

/// After twice as long without a reordered segment the path is taken to keep the order. As for the
/// least round trip ([`super::rtt`]): RFC 8985 forgets after 16 losses, which on a bad link are
/// nothing, and each time it forgets a window's worth is sent twice.
const HALF: Duration = Duration::from_secs(5);

impl Reordering {
    pub(super) fn new() -> Self {
        Self {
            extra: [0; 2],
            half: Instant(0),
        }
    }

    /// A segment arrived `age` after it was sent, and three later ones before it. True: the wait has
    /// become longer.
    pub(super) fn on_reordered(&mut self, now: Instant, age: Duration, rtt: &Rtt) -> bool {
        let before = self.wait(now, rtt);
        self.turn(now);
        let smoothed = rtt.srtt().unwrap_or_default();
        let extra = age.saturating_sub(smoothed).min(smoothed);
        let micros = u32::try_from(extra.as_micros()).unwrap_or(u32::MAX);
        self.extra[0] = self.extra[0].max(micros.saturating_add(1));
        self.wait(now, rtt) > before
    }

    /// The time after its sending in which a segment is not declared lost because of later arrivals.
    pub(super) fn wait(&self, now: Instant, rtt: &Rtt) -> Duration {
        let passed = now.since(self.half);
        let extra = match () {
            () if passed >= 2 * HALF => 0,
            () if passed >= HALF => self.extra[0],
            () => self.extra[0].max(self.extra[1]),
        };
        if extra == 0 {
            return Duration::ZERO;
        }
        let longest = rtt.srtt().unwrap_or_default() + Duration::from_micros(extra.into());
        longest + longest / 8
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.since(self.half);
        if passed >= HALF {
            let before = if passed >= 2 * HALF { 0 } else { self.extra[0] };
            self.extra = [0, before];
            self.half = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::ReliableConfig;
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
        // Not even a measurement: nothing can be said about what is typical.
        let unknown = Rtt::new(&ReliableConfig::default());
        assert!(reordering.on_reordered(s(100), MS, &unknown));
        assert!(reordering.wait(s(100), &unknown) < MS);
    }

    #[test]
    fn the_wait_is_what_the_latest_took_and_an_eighth() {
        let (mut reordering, rtt) = (Reordering::new(), rtt(16 * MS));
        assert!(reordering.on_reordered(s(100), 24 * MS, &rtt));
        let wait = reordering.wait(s(100), &rtt);
        assert!(wait >= 27 * MS && wait < 28 * MS, "{wait:?}");
        // One that came sooner changes nothing.
        assert!(!reordering.on_reordered(s(101), 20 * MS, &rtt));
        assert_eq!(reordering.wait(s(101), &rtt), wait);
        assert!(reordering.on_reordered(s(102), 25 * MS, &rtt));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_two_round_trips_and_a_quarter() {
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
        // The half that began at 100 s ends at 105, the next at 110.
        reordering.on_reordered(s(106), 20 * MS, &rtt);
        assert_eq!(reordering.wait(s(110), &rtt), long);
        let short = reordering.wait(s(111), &rtt);
        assert!(short > Duration::ZERO && short < long, "{short:?}");
        assert_eq!(reordering.wait(s(116), &rtt), Duration::ZERO);
        // A reordered segment is then the first again.
        assert!(reordering.on_reordered(s(200), 17 * MS, &rtt));
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
