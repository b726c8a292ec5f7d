//! Targets of the figures, printed beside them.
//!
//! ```text
//!   latency:    worse ......| at least ....| goal ....      ratios, smaller is better
//!   bandwidth:  worse ......| at least ....| goal ....      ratios, larger is better
//! ```
//!
//! Owns: the limits that bench/RESULTS.md quotes.

use crate::reference::{tcp, ucx, udp};
use crate::report::Row;

/// Two limits of one figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Target {
    pub(crate) at_least: f64,
    pub(crate) goal: f64,
}

impl Target {
    /// Returns the target for a figure, if it has one.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        const MIB: usize = 1 << 20;
        const FOUR_MIB: usize = 4 * MIB;
        // Where there are several references, each has limits of its own, or none.
        let beside = row.reference.as_ref().map_or("", |(name, _)| name);
        let ucx = beside.starts_with(ucx::NAME);
        let (at_least, goal) = match (row.test, row.port, row.size, beside) {
            ("latency", "local", 8, _) if ucx => (1.0, 0.8),
            ("rate", "local", 8, _) if ucx => (0.8, 1.2),
            _ if ucx => return None,
            // Limits hold for messages in one piece.
            _ if row.pieces.is_some() => return None,
            ("latency", "local", 8, _) => (4.0, 2.0),
            ("latency", "local", MIB, _) => (1.3, 1.1),
            ("latency", "tcp", 8 | MIB, _) => (1.25, 1.1),
            ("latency", "rdm", 8, _) => (1.15, 1.05),
            ("latency", "dgram", 8, udp::NAME) => (1.4, 1.2),
            ("bandwidth", "tcp", MIB, _) => (0.85, 0.95),
            ("bandwidth", "rdm", MIB | FOUR_MIB, _) => (0.9, 1.0),
            ("bandwidth", "dgram", MIB, tcp::NAME) => (0.5, 1.0),
            ("loss", ..) if row.loss_percent == Some(1.0) => (0.5, 0.8),
            ("wakeup", ..) => (1.5, 1.2),
            ("matching", ..) => (1.5, 1.1),
            ("mx", ..) => (1.1, 1.0),
            ("mx_match", ..) => (1.5, 1.1),
            ("idle", ..) => (1.0, 0.2),
            ("peers", ..) => (2048.0, 512.0),
            _ => return None,
        };
        Some(Self { at_least, goal })
    }

    /// Returns `goal`, `at least`, or `missed`. A figure that two digits do not distinguish from
    /// the limit has reached it.
    pub(crate) fn reached(self, row: &Row) -> &'static str {
        let figure = row.ratio.unwrap_or(row.value).median;
        let figure = (figure * 100.0).round() / 100.0;
        let within = |limit: f64| {
            if self.smaller_is_better() {
                figure <= limit
            } else {
                figure >= limit
            }
        };
        match (within(self.goal), within(self.at_least)) {
            (true, _) => "goal",
            (false, true) => "at least",
            (false, false) => "missed",
        }
    }

    /// Formats both limits, and which one was reached.
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
    use crate::bursts::Bursts;
    use crate::figures::Spread;

    fn row(test: &'static str, port: &'static str, size: usize, ratio: f64) -> Row {
        Row {
            test,
            port,
            size,
            unit: "median_us",
            value: Spread::of(&[1.0]),
            p99_us: None,
            reference: None,
            ratio: Some(Spread::of(&[ratio])),
            loss_percent: None,
            pieces: None,
            bursts: Bursts::default(),
        }
    }

    fn reached(row: &Row) -> Option<&'static str> {
        Target::of(row).map(|target| target.reached(row))
    }

    #[test]
    fn a_limit_is_reached_at_its_value_in_either_direction() {
        for (test, size, ratio, wanted) in [
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
            assert_eq!(reached(&row), Some(wanted), "{ratio}");
        }
        assert_eq!(Target::of(&row("latency", "rdm", 1024, 1.0)), None);
    }

    #[test]
    fn over_dgram_each_measurement_has_its_own_reference() {
        for (test, size, beside, ratio, wanted) in [
            ("latency", 8, "bare UDP", 1.2, Some("goal")),
            ("latency", 8, "bare UDP", 1.4, Some("at least")),
            ("latency", 8, "bare UDP", 1.41, Some("missed")),
            ("latency", 8, "bare TCP", 1.0, None),
            ("bandwidth", 1 << 20, "bare TCP", 1.0, Some("goal")),
            ("bandwidth", 1 << 20, "bare TCP", 0.5, Some("at least")),
            ("bandwidth", 1 << 20, "bare TCP", 0.49, Some("missed")),
            ("bandwidth", 1 << 20, "bare UDP 1472 x 44", 1.0, None),
        ] {
            let mut row = row(test, "dgram", size, ratio);
            row.reference = Some((beside.into(), Spread::of(&[1.0])));
            assert_eq!(reached(&row), wanted, "{test} {beside} {ratio}");
        }
    }

    #[test]
    fn beside_ucx_small_messages_over_shared_memory_have_limits() {
        for (test, port, size, ratio, wanted) in [
            ("latency", "local", 8, 0.8, Some("goal")),
            ("latency", "local", 8, 1.0, Some("at least")),
            ("latency", "local", 8, 1.01, Some("missed")),
            ("rate", "local", 8, 1.2, Some("goal")),
            ("rate", "local", 8, 0.8, Some("at least")),
            ("rate", "local", 8, 0.79, Some("missed")),
            ("latency", "local", 1024, 0.1, None),
            ("latency", "tcp", 8, 0.1, None),
        ] {
            let mut row = row(test, port, size, ratio);
            row.reference = Some(("UCX 1.13.1 posix".into(), Spread::of(&[1.0])));
            assert_eq!(reached(&row), wanted, "{test} {port} {size} {ratio}");
        }
    }

    #[test]
    fn goodput_has_a_limit_at_one_percent_of_loss_only() {
        for (percent, ratio, wanted) in [
            (1.0, 0.8, Some("goal")),
            (1.0, 0.5, Some("at least")),
            (1.0, 0.49, Some("missed")),
            (2.0, 0.1, None),
        ] {
            let mut row = row("loss", "dgram", 1 << 20, ratio);
            row.loss_percent = Some(percent);
            assert_eq!(reached(&row), wanted, "{percent} {ratio}");
        }
    }
}
