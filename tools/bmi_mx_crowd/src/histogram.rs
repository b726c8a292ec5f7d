//! How often something took how long, in buckets that are 3 % wide.
//!
//! ```text
//!   0 1 2 ... 63 | 64 66 68 ... 126 | 128 132 ... | ...      nanoseconds; 32 buckets a doubling
//! ```
//!
//! Owns: the counts. Small enough to be told in a line of text and added up over processes.
//! Cost: O(1) to record; 1 KiB or so for what lies below a second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Counts of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
}

/// Buckets a doubling.
const STEPS: u64 = 32;

/// Buckets there can be, for what others say.
const MOST: usize = (STEPS * 60) as usize;

impl Histogram {
    /// Counts one.
    #[inline]
    pub fn record(&mut self, time: Duration) {
        self.add(bucket(time.as_nanos() as u64), 1);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that `percent` of all took at most; zero when there are none.
    pub fn percentile(&self, percent: f64) -> Duration {
        let wanted = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            sum += u64::from(*n);
            if sum >= wanted {
                return Duration::from_nanos(middle(at));
            }
        }
        Duration::ZERO
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (at, n) in other.buckets.iter().enumerate() {
            self.add(at, *n);
        }
    }

    fn add(&mut self, at: usize, n: u32) {
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += n;
        self.count += u64::from(n);
    }
}

/// Of `ns` nanoseconds.
fn bucket(ns: u64) -> usize {
    if ns < 2 * STEPS {
        return ns as usize;
    }
    let doublings = u64::from(ns.ilog2() - STEPS.ilog2());
    (doublings * STEPS + (ns >> doublings)) as usize
}

/// Nanoseconds in the middle of a bucket.
fn middle(at: usize) -> u64 {
    let at = at as u64;
    if at < 2 * STEPS {
        return at;
    }
    let doublings = at / STEPS - 1;
    ((at - doublings * STEPS) << doublings) + (1 << doublings) / 2
}

/// `bucket:count` for those that are not empty, with commas between; `-` for none.
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (at, n) in self.buckets.iter().enumerate().filter(|(_, n)| **n > 0) {
            write!(f, "{comma}{at}:{n}")?;
            comma = ",";
        }
        match comma {
            "" => f.write_str("-"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Histogram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut histogram = Self::default();
        if text == "-" {
            return Ok(histogram);
        }
        for part in text.split(',') {
            let pair = part.split_once(':');
            let pair = pair.and_then(|(at, n)| Some((at.parse().ok()?, n.parse().ok()?)));
            match pair {
                Some((at, n)) if at < MOST => histogram.add(at, n),
                _ => return Err(format!("'{part}' is no bucket")),
            }
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_thirtieth_wide_and_every_time_has_one() {
        let mut last = 0;
        for ns in (0..100_000).chain([1 << 40, u64::MAX]) {
            let at = bucket(ns);
            assert!(at >= last && at < MOST, "{ns}");
            last = at;
            let off = middle(at).abs_diff(ns);
            assert!(
                off as f64 <= ns as f64 / 32.0,
                "{ns} is told as {}",
                middle(at)
            );
        }
    }

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
        assert!((0.97..=1.03).contains(&median), "{median}");
        let most = a.percentile(100.0).as_nanos() as f64 / 100_000.0;
        assert!((0.97..=1.03).contains(&most), "{most}");
    }

    #[test]
    fn nothing_is_told_and_read_and_nonsense_is_not() {
        let none = Histogram::default();
        assert_eq!(none.to_string().parse(), Ok(none.clone()));
        assert_eq!(none.percentile(50.0), Duration::ZERO);
        for bad in ["", "1", "1:x", "1:2,", "99999:1", "1:-1"] {
            assert!(bad.parse::<Histogram>().is_err(), "{bad}");
        }
    }
}
