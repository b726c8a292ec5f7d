//! Counts and times of one node, or of many.
//!
//! ```text
//!   node: operations, codes, cancels ---> figures note ---> director adds them up, prints them
//! ```

use bmi_host::histogram::Histogram;
use std::collections::BTreeMap;

/// Numbers of operations.
#[derive(Clone, PartialEq, Default, Debug)]
pub(crate) struct Figures {
    pub(crate) posted: u64,
    pub(crate) unexpected: u64,
    /// Operations that ended, by code.
    pub(crate) codes: BTreeMap<i32, u64>,
    /// From each cancel call to its completion in hand.
    pub(crate) cancels: Histogram,
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
        self.cancels.merge(&other.cancels);
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{} {};", self.posted, self.unexpected);
        for (code, count) in &self.codes {
            text += &format!(" {code} {count}");
        }
        format!("{text};{}", self.cancels)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split(';').collect();
        let &[counts, codes, cancels] = parts.as_slice() else {
            return None;
        };
        let (posted, unexpected) = counts.split_once(' ')?;
        let codes = super::notes::numbers::<i64>(codes)?;
        let codes = codes
            .chunks_exact(2)
            .map(|pair| (pair[0] as i32, pair[1] as u64));
        Some(Self {
            posted: posted.parse().ok()?,
            unexpected: unexpected.parse().ok()?,
            codes: codes.collect(),
            cancels: cancels.parse().ok()?,
        })
    }

    /// Two lines for people.
    pub(crate) fn summary(&self) -> String {
        let codes = self.codes.iter().rev();
        let codes: Vec<_> = codes
            .map(|(code, count)| format!("{count} {}", bmi_host::codes::name(*code)))
            .collect();
        let at = |percent| self.cancels.percentile(percent).as_micros();
        let cancels = match self.cancels.count() {
            0 => "no cancels".into(),
            count => format!(
                "{count} cancels: median {} us, 99 % {} us, max {} us",
                at(50.0),
                at(99.0),
                at(100.0),
            ),
        };
        format!(
            "{} operations ({}), {} unexpected messages\n  {cancels}",
            self.posted,
            codes.join(", "),
            self.unexpected
        )
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn figures_add_up_and_can_be_read_back() {
        let mut one = Figures {
            posted: 3,
            unexpected: 1,
            ..Figures::default()
        };
        one.ended(0);
        one.ended(bmi_host::codes::ECANCEL);
        one.cancels.record(std::time::Duration::from_micros(12));
        let mut sum = Figures::parse(&one.text()).unwrap();
        assert_eq!(sum, one);
        sum.add(&one);
        assert_eq!((sum.posted, sum.codes[&0], sum.cancels.count()), (6, 2, 2));
        assert!(sum.summary().contains("2 cancels: median 12 us"));
    }
}
