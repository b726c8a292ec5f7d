//! Pacer: a token bucket that fills at the rate of the window.
//!
//! ```text
//!   rate = 1.25 (slow start: 2) * window / round trip
//!        |
//!        v
//!   +---------+  at most 64 KiB, or 1 ms at that rate
//!   | credit  |
//!   +---------+ ---> a GSO batch takes its bytes from it
//! ```
//!
//! Owns: the credit.
//! Out of scope: the congestion controller.

use super::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// Bytes that may be sent at once. Negative after a GSO batch larger than the bucket.
    credit: i64,
    /// Time at which the bucket was last filled.
    filled_at: Instant,
}

impl Pacer {
    pub(super) fn new() -> Self {
        Self {
            credit: QUANTUM,
            filled_at: Instant(0),
        }
    }

    /// Returns the time at which `bytes` may be sent; `None`: now. A GSO batch larger than the bucket may be sent when
    /// the bucket is full.
    pub(super) fn wait_until(
        &mut self,
        now: Instant,
        bytes: u64,
        window: u64,
        slow_start: bool,
        rtt: &Rtt,
    ) -> Option<Instant> {
        // Before the first measurement only the initial window limits.
        let round = rtt.srtt()?.as_nanos().max(1);
        let quarters = if slow_start { 8 } else { 5 };
        let per_ms = u128::from(window) * quarters * 1_000_000 / (4 * round);
        let per_ms = i64::try_from(per_ms).unwrap_or(i64::MAX).max(1);
        let depth = per_ms.max(QUANTUM);
        let passed = now.since(self.filled_at).as_nanos();
        let gained = per_ms as u128 * passed / 1_000_000;
        if gained > 0 {
            let gained = i64::try_from(gained).unwrap_or(i64::MAX);
            self.credit = self.credit.saturating_add(gained).min(depth);
            self.filled_at = now;
        }
        let wanted = i64::try_from(bytes).unwrap_or(i64::MAX).min(depth);
        if self.credit >= wanted {
            return None;
        }
        let missing = wanted.saturating_sub(self.credit) as u128;
        let nanos = (missing * 1_000_000).div_ceil(per_ms as u128);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        // The remainder below one unit is kept: it has accrued since the bucket was last filled.
        let at = self.filled_at.after(Duration::from_nanos(nanos));
        Some(at.max(Instant(now.0.saturating_add(1))))
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_sub(bytes);
    }
}

/// Minimum depth of the bucket in bytes: one GSO batch of the largest datagrams. Shorter ones would save the network
/// nothing, and cost a system call each.
const QUANTUM: i64 = 64 << 10;

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

    /// Returns the bytes sent in a second in GSO batches of `batch`, if the pacer is asked `late` after each time it
    /// has named.
    fn in_a_second(batch: u64, window: u64, slow: bool, round: Duration, late: Duration) -> u64 {
        let (mut pacer, rtt) = (Pacer::new(), rtt(round));
        let (mut now, mut sent) = (Instant(5_000_000_000), 0);
        let end = now.after(Duration::from_secs(1));
        while now < end {
            match pacer.wait_until(now, batch, window, slow, &rtt) {
                None => {
                    pacer.on_sent(batch);
                    sent += batch;
                }
                Some(at) => {
                    assert!(at > now);
                    now = at.after(late);
                }
            }
        }
        sent
    }

    #[test]
    fn pacing_rate_is_1_25_or_2_windows_per_round_trip() {
        for (round, window) in [(10 * MS, 1 << 20), (MS, 100_000), (100 * MS, 30_000)] {
            let rate = window * 1000 / round.as_millis() as u64;
            for batch in [100, 1472, 20_000, 64 << 10, 1 << 20] {
                let depth = (rate / 500).max(64 << 10) + batch;
                let sent = in_a_second(batch, window, false, round, Duration::ZERO);
                assert!(
                    sent.abs_diff(rate * 5 / 4) <= depth + rate / 100,
                    "{sent} at {rate}"
                );
                let sent = in_a_second(batch, window, true, round, Duration::ZERO);
                assert!(
                    sent.abs_diff(rate * 2) <= depth + rate / 100,
                    "{sent} at {rate}"
                );
            }
        }
    }

    #[test]
    fn a_caller_that_wakes_up_late_loses_no_rate() {
        let window = 1 << 20;
        let rate = window * 100;
        let sent = in_a_second(64 << 10, window, false, 10 * MS, MS * 3 / 10);
        assert!(sent >= rate * 5 / 4 * 98 / 100, "{sent}");
    }

    #[test]
    fn silence_saves_up_no_more_than_a_batch_or_a_millisecond() {
        for (window, round, depth) in [(64_000, 10 * MS, 64 << 10), (1 << 20, MS, 1_310_720)] {
            let (mut pacer, rtt) = (Pacer::new(), rtt(round));
            let now = Instant(3_600_000_000_000);
            let mut went = 0;
            while pacer.wait_until(now, 1024, window, false, &rtt).is_none() {
                pacer.on_sent(1024);
                went += 1024;
            }
            assert!(depth - went < 1024, "{went} of {depth}");
        }
    }

    #[test]
    fn before_the_first_measurement_nothing_waits() {
        let (mut pacer, rtt) = (Pacer::new(), Rtt::new(&ReliableConfig::default()));
        for _ in 0..100 {
            let wait = pacer.wait_until(Instant(7), 1 << 20, 1 << 20, true, &rtt);
            assert_eq!(wait, None);
            pacer.on_sent(1 << 20);
        }
    }

    #[test]
    fn no_input_stops_it_or_overflows() {
        for window in [0, 1, u64::MAX] {
            for round in [Duration::from_nanos(1), Duration::from_secs(1000)] {
                for bytes in [0, 1, u64::MAX] {
                    let (mut pacer, rtt) = (Pacer::new(), rtt(round));
                    let mut now = Instant(u64::MAX - 10);
                    for _ in 0..5 {
                        match pacer.wait_until(now, bytes, window, true, &rtt) {
                            None => pacer.on_sent(bytes),
                            Some(at) => {
                                assert!(at >= now);
                                now = at;
                            }
                        }
                    }
                }
            }
        }
    }
}
