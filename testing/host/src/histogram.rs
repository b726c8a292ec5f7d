//! A histogram of durations, to 1 %.
//!
//! Owns: the text in which one process tells it another.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Counts of durations.
#[derive(Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u32>);

impl Histogram {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.0 += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that `percent` of all took at most; zero when there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

impl Default for Histogram {
    fn default() -> Self {
        // It grows as it has to; two digits are a number it takes.
        Self(hdrhistogram::Histogram::new(2).expect("a number of digits"))
    }
}

/// `nanoseconds:count` for those that were counted, with commas between; `-` for none.
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.iter_recorded().map(|step| {
            let (time, n) = (step.value_iterated_to(), step.count_at_value());
            format!("{time}:{n}")
        });
        let counts: Vec<String> = counts.collect();
        f.write_str(if counts.is_empty() { "-" } else { "" })?;
        f.write_str(&counts.join(","))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Histogram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut histogram = Self::default();
        for part in text.split(',').filter(|_| text != "-") {
            let pair = part.split_once(':');
            let pair = pair.and_then(|(time, n)| Some((time.parse().ok()?, n.parse().ok()?)));
            let (time, n) = pair.ok_or_else(|| format!("'{part}' is no count"))?;
            let recorded = histogram.0.record_n(time, n);
            recorded.map_err(|why| format!("'{part}': {why}"))?;
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
        a.merge(&b.to_string().parse().unwrap());
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
        assert_eq!(all.to_string().parse(), Ok(all.clone()));
        all.record(Duration::MAX);
        assert_eq!(all.count(), 4);
    }

    #[test]
    fn nothing_is_told_and_read_and_nonsense_is_not() {
        let none = Histogram::default();
        assert_eq!(none.to_string().parse(), Ok(none.clone()));
        assert_eq!(none.percentile(50.0), Duration::ZERO);
        for bad in ["", "1", "1:x", "1:2,", "x:1", "1:-1", "-,1:1"] {
            assert!(bad.parse::<Histogram>().is_err(), "{bad}");
        }
    }
}
