//! How much shared memory all links of a port may have, and what follows from that.
//!
//! ```text
//!   0              1/2 of the limit          3/4               limit
//!   |  standard rings  |     smaller ones     | smallest  |  none: asleep, or over tcp
//!   |  idle for long   |  less and less patience .....  10 ms
//! ```
//!
//! Counted is what is mapped, which is the most that it can come to; pages that nobody has touched
//! cost nothing. Both sides of a link count it.
//!
//! Owns: the sum.
//! Knows nothing of: links.

use super::layout::Geometry;
use std::time::Duration;

/// What is there to give.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    used: usize,
    /// How long a link is idle before it is put to sleep, while there is plenty. `None`: never.
    idle: Option<Duration>,
}

impl Budget {
    /// `limit` bytes for all links together.
    pub(super) fn new(limit: usize, idle: Option<Duration>) -> Self {
        Self {
            limit,
            used: 0,
            idle,
        }
    }

    /// Links of ours can sleep.
    pub(super) fn sleeps(&self) -> bool {
        self.idle.is_some()
    }

    /// Bytes that are mapped.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Some of it is mapped, or not any more.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        debug_assert!(self.used >= before);
        self.used = (self.used + after).saturating_sub(before);
    }

    /// So many bytes more would be within the limit.
    pub(super) fn has(&self, bytes: usize) -> bool {
        self.used + bytes <= self.limit
    }

    /// So many bytes are within half of the limit.
    pub(super) fn has_half(&self, bytes: usize) -> bool {
        bytes <= self.limit / 2
    }

    /// The rings that one more link would get. `None`: not even the smallest.
    pub(super) fn choose(&self) -> Option<Geometry> {
        let quarter = self.limit / 4;
        [
            (Geometry::STANDARD, 2 * quarter),
            (Geometry::SMALLER, 3 * quarter),
            (Geometry::SMALLEST, self.limit),
        ]
        .into_iter()
        .find(|(geometry, up_to)| self.used + geometry.total() <= *up_to)
        .map(|(geometry, _)| geometry)
    }

    /// How long a link is idle at the moment before it is asked to sleep. `wanted`: somebody waits
    /// for memory. `None`: never.
    pub(super) fn patience(&self, wanted: bool) -> Option<Duration> {
        let idle = self.idle?;
        if wanted {
            return Some(LEAST_IDLE.min(idle));
        }
        let half = self.limit / 2;
        let left = self.limit.saturating_sub(self.used).min(half);
        let share = left as f64 / half.max(1) as f64;
        Some(idle.mul_f64(share).max(LEAST_IDLE.min(idle)))
    }
}

/// Even when memory is short a link keeps it for so long after a packet: a sleep and a wake-up cost
/// about a thousandth of it.
const LEAST_IDLE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    #[test]
    fn rings_get_smaller_and_never_exceed_the_limit() {
        for limit in [4 << 20, 5_000_001, 256 << 20] {
            let mut budget = Budget::new(limit, Some(IDLE));
            let mut last = usize::MAX;
            let mut sizes = std::collections::BTreeSet::new();
            while let Some(geometry) = budget.choose() {
                assert!(geometry.is_acceptable() && geometry.total() <= last);
                last = geometry.total();
                sizes.insert(last);
                budget.change(0, last);
                assert!(budget.used() <= limit);
            }
            assert_eq!(sizes.len(), 3);
            assert!(budget.used() + Geometry::SMALLEST.total() > limit);
            assert!(!budget.has(Geometry::SMALLEST.total()));
            budget.change(budget.used(), 0);
            assert_eq!(budget.choose(), Some(Geometry::STANDARD));
        }
    }

    #[test]
    fn patience_shrinks_with_what_is_left() {
        let mut budget = Budget::new(1 << 20, Some(IDLE));
        let mut last = Duration::MAX;
        for used in (0..=1 << 20).step_by(1 << 16) {
            budget.change(budget.used(), used);
            let patience = budget.patience(false).unwrap();
            assert!(patience <= last && patience >= LEAST_IDLE);
            assert_eq!(patience == IDLE, used <= 1 << 19, "{used}");
            last = patience;
        }
        assert_eq!(last, LEAST_IDLE);
        budget.change(budget.used(), 0);
        assert_eq!(budget.patience(true), Some(LEAST_IDLE));
        assert_eq!(Budget::new(1 << 20, None).patience(true), None);
    }

    #[test]
    fn a_patience_below_the_least_stays() {
        let idle = Duration::from_millis(1);
        let budget = Budget::new(1 << 20, Some(idle));
        assert_eq!(
            (budget.patience(false), budget.patience(true)),
            (Some(idle), Some(idle))
        );
    }
}
