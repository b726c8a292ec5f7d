//! A histogram of durations, precise to 1 %.
//!
//! Serialized as counts of durations, for another process.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Counts of durations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(into = "Counts", try_from = "Counts")]
pub struct Histogram(hdrhistogram::Histogram<u32>);

/// Nanoseconds, and their counts.
type Counts = Vec<(u64, u32)>;

impl Histogram {
    /// Records a duration.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.0 += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the duration that `percent` of all do not exceed; zero if there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

impl Default for Histogram {
    fn default() -> Self {
        // The histogram grows as needed; two digits are a valid precision.
        Self(hdrhistogram::Histogram::new(2).expect("a number of digits"))
    }
}

impl From<Histogram> for Counts {
    fn from(histogram: Histogram) -> Self {
        let counts = histogram.0.iter_recorded();
        counts
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }
}

impl TryFrom<Counts> for Histogram {
    type Error = hdrhistogram::errors::RecordError;

    fn try_from(counts: Counts) -> Result<Self, Self::Error> {
        let mut histogram = Self::default();
        for (time, n) in counts {
            histogram.0.record_n(time, n)?;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_what_was_merged_and_told() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        for us in 1..=50 {
            a.record(Duration::from_micros(us));
            b.record(Duration::from_micros(us + 50));
        }
        a.merge(&Counts::from(b).try_into().unwrap());
        assert_eq!(a.count(), 100);
        let median = a.percentile(50.0).as_nanos() as f64 / 50_000.0;
        assert!((0.99..=1.01).contains(&median), "{median}");
        let most = a.percentile(100.0).as_nanos() as f64 / 100_000.0;
        assert!((0.99..=1.01).contains(&most), "{most}");
    }

    #[test]
    fn every_time_has_a_place() {
        let mut all = Histogram::default();
        for time in [0, 1, 1 << 40].map(Duration::from_nanos) {
            all.record(time);
        }
        assert_eq!(
            Histogram::try_from(Counts::from(all.clone())),
            Ok(all.clone())
        );
        all.record(Duration::MAX);
        assert_eq!(all.count(), 4);
        assert_eq!(Histogram::default().percentile(50.0), Duration::ZERO);
    }
}
