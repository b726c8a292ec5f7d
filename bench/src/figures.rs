//! Statistics of a few repeats of a measurement.

/// Median and extremes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Computes median and extremes; zeros for an empty list.
    pub(crate) fn of(values: &[f64]) -> Self {
        Self {
            median: percentile(values, 50.0),
            min: percentile(values, 0.0),
            max: percentile(values, 100.0),
        }
    }
}

/// Returns the value below which `percent` of `values` are.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    sorted
        .get((last * percent / 100.0).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn medians_ignore_the_order() {
        let spread = Spread::of(&[5.0, 1.0, 9.0]);
        assert_eq!((spread.median, spread.min, spread.max), (5.0, 1.0, 9.0));
        assert_eq!(percentile(&[], 50.0), 0.0);
        assert_eq!(
            percentile(&(0..=100).map(f64::from).collect::<Vec<_>>(), 99.0),
            99.0
        );
    }
}
