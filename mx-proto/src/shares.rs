//! Shares of limited resources (links, peers, bytes) for each source.
//!
//! ```text
//!   limit   [ others ........... | left for this source ............................. ]
//!                              [ its share: a percentage of that ]
//! ```
//!
//! A source can take only a part of what the others leave: however many greedy sources there are, some is left for the
//! next. (Dynamic thresholds: Choudhury and Hahne, 1998.)
//!
//! Owns: the counts.
//! Cost: one hash of a source for each change; no memory for a source that has nothing.

use crate::origin::Source;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Amounts of one limited resource in use, in all and by source. One source may have `percent` of what the others
/// leave.
#[derive(Debug)]
pub struct Shares {
    limit: usize,
    percent: u8,
    used: usize,
    by_source: HashMap<Source, usize, RandomState>,
}

impl Shares {
    /// Makes the counts of a limit for all sources together. One source may have `percent` (1 to 100) of what the
    /// others leave. 100: first come, first served.
    pub fn new(limit: usize, percent: u8) -> Self {
        Self {
            limit,
            percent: percent.clamp(1, 100),
            used: 0,
            by_source: HashMap::default(),
        }
    }

    /// Makes empty counts for one of `parts` equal parts of the limit, with the same percentage. The amounts in use are
    /// not copied.
    pub fn part(&self, parts: usize) -> Self {
        Self::new(self.limit / parts, self.percent)
    }

    /// Returns whether `source` may take `amount` more, without taking it: the total must stay within the limit, and
    /// the source's amount within its share, which is at least 1. [`Source::TRUSTED`] has no share and is bound by the
    /// limit alone.
    pub fn may_take(&self, source: Source, amount: usize) -> bool {
        let total = self.used.checked_add(amount);
        if total.is_none_or(|total| total > self.limit) {
            return false;
        }
        if source == Source::TRUSTED {
            return true;
        }
        self.of(source).saturating_add(amount) <= self.share(source)
    }

    /// Returns the largest amount that `source` may have in all: its percentage of what the other sources leave, at
    /// least 1. For [`Source::TRUSTED`] returns the amount that is free.
    pub fn share(&self, source: Source) -> usize {
        let left = (self.limit + self.of(source)).saturating_sub(self.used);
        if source == Source::TRUSTED {
            return left;
        }
        let share = left as u128 * u128::from(self.percent) / 100;
        // `share` is not above `left`.
        (share as usize).max(1)
    }

    /// Adds `amount` to what `source` has, without checking the limits ([`Self::may_take`] checks them).
    pub fn take(&mut self, source: Source, amount: usize) {
        self.used = self.used.saturating_add(amount);
        if source != Source::TRUSTED && amount > 0 {
            *self.by_source.entry(source).or_default() += amount;
        }
    }

    /// Subtracts `amount`, which `source` took before, from what it has.
    pub fn give_back(&mut self, source: Source, amount: usize) {
        debug_assert!(self.used >= amount);
        self.used = self.used.saturating_sub(amount);
        if let Some(own) = self.by_source.get_mut(&source) {
            *own = own.saturating_sub(amount);
            if *own == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// Returns the amount that `source` has; 0 for [`Source::TRUSTED`], which only the sum counts.
    pub fn of(&self, source: Source) -> usize {
        self.by_source.get(&source).copied().unwrap_or(0)
    }

    /// Returns the amount in use by all sources together, [`Source::TRUSTED`] included.
    pub fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(shares: &mut Shares, source: Source) -> usize {
        let mut got = 0;
        while shares.may_take(source, 1) {
            shares.take(source, 1);
            got += 1;
        }
        got
    }

    #[test]
    fn sources_that_take_nothing_are_not_remembered() {
        let mut shares = Shares::new(10, 50);
        (1..1000).for_each(|i| shares.take(Source(i), 0));
        assert_eq!((shares.used(), shares.by_source.capacity()), (0, 0));
    }

    #[test]
    fn a_whole_share_is_first_come_first_served() {
        let mut shares = Shares::new(10, 100);
        assert_eq!(fill(&mut shares, Source(1)), 10);
        assert_eq!(fill(&mut shares, Source(2)), 0);
    }
}
