//! Budget of shared memory for all links of a port.
//!
//! ```text
//!   0              1/2 of the limit          3/4               limit
//!   |  standard rings  |     smaller ones     | smallest  |  none: packets go over the socket
//!   | 1/4: far areas   |                      |           |
//!   |  idle timeout    |  shorter and shorter .........  10 ms
//! ```
//!
//! Mapped memory is counted, which is the maximum; pages that were never touched cost nothing. Both sides of a link
//! count it.
//!
//! Each other user of this machine has a share ([`Shares`]), divided by the same steps.
//!
//! Owns: the sums.
//! Out of scope: links.

use super::layout::Geometry;
use mx_proto::origin::Source;
use mx_proto::shares::Shares;
use std::time::Duration;

/// Limits of shared memory.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    shares: Shares,
    /// Idle time after which a link is suspended while memory is plentiful; `None`: never.
    idle: Option<Duration>,
}

impl Budget {
    /// Creates a budget of `limit` bytes, of which a source may have `share` percent of what others leave.
    pub(super) fn new(limit: usize, share: u8, idle: Option<Duration>) -> Self {
        Self {
            limit,
            shares: Shares::new(limit, share),
            idle,
        }
    }

    /// Maximum bytes that may be mapped.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are mapped.
    pub(super) fn used(&self) -> usize {
        self.shares.used()
    }

    /// Replaces `before` bytes of `source` by `after`.
    pub(super) fn change(&mut self, source: Source, before: usize, after: usize) {
        self.shares.give_back(source, before);
        self.shares.take(source, after);
    }

    /// Returns true if memory for one more link is left, though perhaps not within every source's share.
    pub(super) fn has_any(&self) -> bool {
        self.used() + Geometry::SMALLEST.total() <= self.limit
    }

    /// Returns the largest rings for one more link of `source`; with `streaming`, also those with far areas. `None`:
    /// not even the smallest fit.
    pub(super) fn choose(&self, source: Source, streaming: bool) -> Option<Geometry> {
        let share = self.shares.share(source);
        let own = self.shares.of(source);
        [
            (Geometry::STREAMING, 1),
            (Geometry::STANDARD, 2),
            (Geometry::SMALLER, 3),
            (Geometry::SMALLEST, 4),
        ]
        .into_iter()
        .filter(|(geometry, _)| streaming || geometry.far == 0)
        .find(|(geometry, quarters)| {
            let bytes = geometry.total();
            let up_to = |all: usize| match quarters {
                4 => all,
                _ => all / 4 * quarters,
            };
            self.used() + bytes <= up_to(self.limit) && own + bytes <= up_to(share)
        })
        .map(|(geometry, _)| geometry)
    }

    /// Returns the current idle time after which a link is suspended; `None`: never.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        let idle = self.idle?;
        let half = self.limit / 2;
        let left = self.limit.saturating_sub(self.used()).min(half);
        let share = left as f64 / half.max(1) as f64;
        Some(idle.mul_f64(share).max(LEAST_IDLE.min(idle)))
    }
}

/// Minimum idle time when memory is short: a suspension and a resumption cost about a thousandth of it.
const LEAST_IDLE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    #[test]
    fn rings_get_smaller_and_never_exceed_the_limit() {
        for limit in [4 << 20, 5_000_001, 256 << 20] {
            let mut budget = Budget::new(limit, 50, Some(IDLE));
            let mut last = usize::MAX;
            let mut sizes = std::collections::BTreeSet::new();
            while let Some(geometry) = budget.choose(Source::TRUSTED, false) {
                assert!(geometry.is_acceptable() && geometry.total() <= last);
                last = geometry.total();
                sizes.insert(last);
                budget.change(Source::TRUSTED, 0, last);
                assert!(budget.used() <= limit);
            }
            assert_eq!(sizes.len(), 3);
            assert!(budget.used() + Geometry::SMALLEST.total() > limit);
            budget.change(Source::TRUSTED, budget.used(), 0);
            assert_eq!(
                budget.choose(Source::TRUSTED, false),
                Some(Geometry::STANDARD)
            );
        }
    }

    #[test]
    fn far_areas_leave_room_for_rings_without() {
        let mut budget = Budget::new(256 << 20, 50, Some(IDLE));
        let mut streaming = 0;
        while let Some(geometry) = budget.choose(Source::TRUSTED, true)
            && geometry == Geometry::STREAMING
        {
            budget.change(Source::TRUSTED, 0, geometry.total());
            streaming += 1;
        }
        assert!(streaming > 0 && budget.used() <= 64 << 20);
        let next = budget.choose(Source::TRUSTED, true);
        assert_eq!(next, Some(Geometry::STANDARD));
    }

    #[test]
    fn the_idle_timeout_shrinks_with_what_is_left() {
        let mut budget = Budget::new(1 << 20, 50, Some(IDLE));
        let mut last = Duration::MAX;
        for used in (0..=1 << 20).step_by(1 << 16) {
            budget.change(Source::TRUSTED, budget.used(), used);
            let idle_timeout = budget.idle_timeout().unwrap();
            assert!(idle_timeout <= last && idle_timeout >= LEAST_IDLE);
            assert_eq!(idle_timeout == IDLE, used <= 1 << 19, "{used}");
            last = idle_timeout;
        }
        assert_eq!(last, LEAST_IDLE);
        budget.change(Source::TRUSTED, budget.used(), 0);
        assert_eq!(Budget::new(1 << 20, 50, None).idle_timeout(), None);
    }

    #[test]
    fn an_idle_timeout_below_the_least_stays() {
        let idle = Duration::from_millis(1);
        let budget = Budget::new(1 << 20, 50, Some(idle));
        assert_eq!(budget.idle_timeout(), Some(idle));
    }

    #[test]
    fn a_user_has_a_share_and_smaller_rings_within_it() {
        let mut budget = Budget::new(64 << 20, 50, Some(IDLE));
        for user in 1..=3 {
            let source = Source(user);
            let mut sizes = std::collections::BTreeSet::new();
            while let Some(geometry) = budget.choose(source, false) {
                sizes.insert(geometry.total());
                budget.change(source, 0, geometry.total());
            }
            assert!(!sizes.is_empty());
            let next = Source(user + 1);
            assert!(budget.choose(next, false).is_some(), "after {user}");
            assert!(budget.choose(Source::TRUSTED, false).is_some());
        }
    }
}
