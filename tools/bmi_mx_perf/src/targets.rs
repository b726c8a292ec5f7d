//! What a figure is wanted to be, printed beside it.
//!
//! ```text
//!   latency:    worse ......| at least ....| goal ....      ratios, smaller is better
//!   bandwidth:  worse ......| at least ....| goal ....      ratios, larger is better
//! ```
//!
//! Owns: the table of the design's performance document.
//! Knows nothing of: how anything is measured.

use crate::report::Row;

/// Two limits for one figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Target {
    pub(crate) at_least: f64,
    pub(crate) goal: f64,
}

impl Target {
    /// The target for a figure, if it has one.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        const MIB: usize = 1 << 20;
        const FOUR_MIB: usize = 4 * MIB;
        let (at_least, goal) = match (row.test, row.port, row.size) {
            ("latency", "local", 8) => (4.0, 2.0),
            ("latency", "local", MIB) => (1.3, 1.1),
            ("latency", "tcp", 8 | MIB) => (1.25, 1.1),
            ("latency", "rdm", 8) => (1.15, 1.05),
            ("bandwidth", "tcp", MIB) => (0.85, 0.95),
            ("bandwidth", "rdm", MIB | FOUR_MIB) => (0.9, 1.0),
            ("wakeup", ..) => (1.5, 1.2),
            ("matching", ..) => (1.5, 1.1),
            ("mx", ..) => (1.1, 1.0),
            ("mx_match", ..) => (1.5, 1.1),
            ("idle", ..) => (1.0, 0.2),
            _ => return None,
        };
        Some(Self { at_least, goal })
    }

    /// `goal`, `at least`, or `missed`. What two digits cannot tell from the limit has reached it.
    pub(crate) fn reached(self, row: &Row) -> &'static str {
        let figure = row.ratio.map_or(row.value, |ratio| ratio.median);
        let figure = (figure * 100.0).round() / 100.0;
        let within = |limit: f64| match self.smaller_is_better() {
            true => figure <= limit,
            false => figure >= limit,
        };
        match (within(self.goal), within(self.at_least)) {
            (true, _) => "goal",
            (false, true) => "at least",
            (false, false) => "missed",
        }
    }

    /// Both limits and which was reached.
    pub(crate) fn judge(self, row: &Row) -> String {
        let Self { at_least, goal } = self;
        let sign = if self.smaller_is_better() { "<=" } else { ">=" };
        format!("{sign} {at_least}, {goal}: {}", self.reached(row))
    }

    fn smaller_is_better(self) -> bool {
        self.goal < self.at_least
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::figures::Spread;

    fn row(test: &'static str, port: &'static str, size: usize, ratio: f64) -> Row {
        Row {
            test,
            port,
            size,
            unit: "median_us",
            value: 1.0,
            p99_us: None,
            reference: None,
            ratio: Some(Spread::of(&[ratio])),
        }
    }

    #[test]
    fn a_limit_is_reached_at_its_value_in_either_direction() {
        for (test, size, ratio, reached) in [
            ("latency", 8, 1.05, "goal"),
            ("latency", 8, 1.06, "at least"),
            ("latency", 8, 1.15, "at least"),
            ("latency", 8, 1.16, "missed"),
            ("bandwidth", 1 << 20, 1.0, "goal"),
            ("bandwidth", 4 << 20, 0.99, "at least"),
            ("bandwidth", 1 << 20, 0.9, "at least"),
            ("bandwidth", 4 << 20, 0.89, "missed"),
        ] {
            let row = row(test, "rdm", size, ratio);
            let target = Target::of(&row);
            assert_eq!(target.map(|t| t.reached(&row)), Some(reached), "{ratio}");
        }
        assert_eq!(Target::of(&row("latency", "rdm", 1024, 1.0)), None);
    }
}
