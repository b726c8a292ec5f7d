//! Counts and times of one node, or of many.
//!
//! ```text
//!   node: operations, codes, cancels ---> figures note ---> director adds them up, prints them
//! ```

use super::notes::Fate;
use bmi_host::histogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers of operations.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) posted: u64,
    pub(crate) unexpected: u64,
    /// Operations that ended, by code.
    pub(crate) codes: BTreeMap<i32, u64>,
    /// Times from each cancel call to its reported completion, by the state of the peer
    /// ([`Fate::ALL`]).
    pub(crate) cancels: [Histogram; 3],
}

impl Figures {
    pub(crate) fn ended(&mut self, code: i32) {
        *self.codes.entry(code).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.posted += other.posted;
        self.unexpected += other.unexpected;
        for (code, count) in &other.codes {
            *self.codes.entry(*code).or_default() += count;
        }
        for (mine, others) in self.cancels.iter_mut().zip(&other.cancels) {
            mine.merge(others);
        }
    }

    /// Formats a line for people, and one for the cancels of each state of the peer.
    pub(crate) fn summary(&self) -> String {
        let codes = self.codes.iter().rev();
        let codes: Vec<_> = codes
            .map(|(code, count)| format!("{count} {}", bmi_host::codes::name(*code)))
            .collect();
        let some = Fate::ALL.into_iter().zip(&self.cancels);
        let some = some.filter(|(_, times)| times.count() > 0);
        let lines = some.map(|(fate, times)| {
            let at = |percent| times.percentile(percent).as_micros();
            format!(
                "\n  {} cancels, the peer {}: median {} us, 99 % {} us, max {} us",
                times.count(),
                fate.name(),
                at(50.0),
                at(99.0),
                at(100.0),
            )
        });
        let cancels: String = lines.collect();
        format!(
            "{} operations ({}), {} unexpected messages{cancels}",
            self.posted,
            codes.join(", "),
            self.unexpected
        )
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::real::notes::{parse, text};

    #[test]
    fn figures_are_told_and_add_up() {
        let mut one = Figures {
            posted: 3,
            unexpected: 1,
            ..Figures::default()
        };
        one.ended(0);
        one.ended(bmi_host::codes::ECANCEL);
        one.cancels[Fate::Dead as usize].record(std::time::Duration::from_micros(12));
        let mut sum: Figures = parse(&text(&one)).unwrap();
        assert_eq!(sum, one);
        sum.add(&one);
        assert_eq!((sum.posted, sum.codes[&0]), (6, 2));
        let cancels = "\n  2 cancels, the peer dead: median 12 us";
        assert!(sum.summary().contains(cancels));
        assert_eq!(sum.summary().lines().count(), 2);
    }
}
