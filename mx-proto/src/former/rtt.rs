//! How long to wait for an acknowledgement: RFC 6298.
//!
//! ```text
//!   first sample r:   smoothed = r            variation = r / 2
//!   every other:      variation += (|smoothed - r| - variation) / 4
//!                     smoothed  += (r - smoothed) / 8
//!   time-out = (smoothed + 4 * variation) * 2^back-off, between floor and cap
//! ```
//!
//! Knows nothing of: fragments. The caller gives only samples of fragments sent once.

use super::config::ReliableConfig;
use std::time::Duration;

/// The estimate for one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    back_off: u32,
    first: Duration,
    floor: Duration,
    cap: Duration,
}

/// Doublings after which any time-out is at its cap; keeps the shift in range.
const BACK_OFF_MAX: u32 = 16;

impl Rtt {
    pub(super) fn new(config: &ReliableConfig) -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            back_off: 0,
            first: config.first_rto,
            floor: config.min_rto,
            cap: config.max_rto,
        }
    }

    /// A fragment that was sent once took `sample`. Ends the back-off.
    pub(super) fn on_sample(&mut self, sample: Duration) {
        self.back_off = 0;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
            return;
        };
        let off = smoothed.abs_diff(sample);
        self.variation = (self.variation * 3 + off) / 4;
        self.smoothed = Some((smoothed * 7 + sample) / 8);
    }

    /// Something new was acknowledged, though perhaps nothing that was sent only once: a step back,
    /// or a link on which everything has to be sent twice would wait its longest for ever.
    pub(super) fn on_progress(&mut self) {
        self.back_off = self.back_off.saturating_sub(1);
    }

    /// Nothing came in time.
    pub(super) fn on_timeout(&mut self) {
        self.back_off = (self.back_off + 1).min(BACK_OFF_MAX);
    }

    /// How long to wait now.
    pub(super) fn timeout(&self) -> Duration {
        let base = self
            .smoothed
            .map_or(self.first, |smoothed| smoothed + self.variation * 4);
        base.max(self.floor)
            .saturating_mul(1 << self.back_off)
            .min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rtt() -> Rtt {
        Rtt::new(&ReliableConfig::default())
    }

    #[test]
    fn the_first_sample_counts_with_half_of_itself_as_variation() {
        let mut rtt = rtt();
        assert_eq!(rtt.timeout(), 5 * MS);
        rtt.on_sample(10 * MS);
        assert_eq!(rtt.timeout(), 30 * MS);
        rtt.on_sample(10 * MS);
        assert_eq!(rtt.timeout(), 25 * MS);
    }

    #[test]
    fn the_timeout_stays_between_floor_and_cap() {
        let mut rtt = rtt();
        rtt.on_sample(Duration::from_micros(3));
        assert_eq!(rtt.timeout(), MS);
        rtt.on_sample(Duration::from_secs(100));
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
    }

    #[test]
    fn back_off_doubles_never_overflows_and_ends_with_a_sample() {
        let mut rtt = rtt();
        rtt.on_timeout();
        assert_eq!(rtt.timeout(), 10 * MS);
        (0..1000).for_each(|_| rtt.on_timeout());
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        rtt.on_sample(MS);
        assert_eq!(rtt.timeout(), 3 * MS);
    }

    #[test]
    fn progress_takes_back_one_step_of_the_back_off() {
        let mut rtt = rtt();
        (0..2).for_each(|_| rtt.on_timeout());
        rtt.on_progress();
        assert_eq!(rtt.timeout(), 10 * MS);
        (0..5).for_each(|_| rtt.on_progress());
        assert_eq!(rtt.timeout(), 5 * MS);
    }
}
