//! Settings and constants of flow control.
//!
//! ```text
//!   total   [ reserve: an eighth, or the largest fetched message | may be lent ................. ]
//!                                                                [ at connect: half of the total ]
//!   a credit limit   0 .. MINIMUM .. first .. most: AT_ONCE or a quarter of what may be lent
//! ```
//!
//! The table of credits in bench/RESULTS.md was measured with these constants.

use super::pool::{CREDIT, cost};

/// Limits of an endpoint's flow control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Size of the pool in bytes, bookkeeping included; see [`CREDIT`]. Up to two messages of at most one credit from
    /// each remote are not included.
    pub bytes: usize,
    /// Size in bytes of the largest message that is fetched for the inbox. At most seven eighths of `bytes` are kept
    /// free for it.
    pub largest: u32,
    /// Number of credits lent to a remote at connect, while there is room.
    pub first: u16,
    /// Percentage of the credits left by other sources that the remotes of one source may borrow.
    pub source_share: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            largest: 0,
            first: FIRST,
            source_share: 50,
        }
    }
}

impl Settings {
    pub(super) fn total(&self) -> u32 {
        // Running totals of 32 bits can distinguish differences below 2^31.
        (self.bytes / CREDIT).clamp(1, 1 << 30) as u32
    }

    pub(super) fn reserve(&self) -> u32 {
        let total = self.total();
        let most = total - (total / 8).max(1);
        cost(self.largest).max(total / 8).min(most)
    }

    pub(super) fn most(&self) -> u32 {
        let lendable = self.total() - self.reserve();
        AT_ONCE.min(lendable / 4).max(1)
    }

    pub(super) fn first(&self) -> u32 {
        u32::from(self.first).min(self.most())
    }
}

/// Default number of credits lent at connect: enough for twenty requests of more than a kilobyte, or eighty small ones.
/// Programs for MX rely on more.
pub const FIRST: u16 = 80;

/// Maximum number of credits in flight, of all remotes together: eight messages of 512 KiB or four of 1 MiB. Also the
/// largest credit limit of one remote, because messages beyond it would only wait here.
pub const AT_ONCE: u32 = 8 * cost(512 << 10);

/// Credits that a quiet remote may keep as long as every other has some (GASNet's `MIN_CREDITS`).
pub(super) const MINIMUM: u32 = 4;

/// Number of messages in an epoch, at least; `EPOCH_EACH`: for each remote. A busy remote sends more than this.
pub(super) const EPOCH: u64 = 4096;
pub(super) const EPOCH_EACH: u64 = 4;

/// Number of epochs after which a remote is quiet, and a request stale: at least one whole epoch.
pub(super) const QUIET: u16 = 2;

/// Maximum number of unanswered Revokes. Remotes that do not answer count for one epoch only.
pub(super) const ASKED_AT_ONCE: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_an_eighth_or_the_largest_message() {
        let settings = Settings::default();
        assert_eq!((settings.total(), settings.reserve()), (131_072, 16_384));
        assert_eq!((settings.most(), settings.first()), (8200, 80));
        let large = Settings {
            largest: 16 << 20,
            ..settings
        };
        assert_eq!(large.reserve(), (16 << 11) + 1);
        let larger = Settings {
            largest: u32::MAX,
            ..settings
        };
        assert_eq!(larger.reserve(), 131_072 / 8 * 7);
    }

    #[test]
    fn whatever_is_set_there_is_a_credit_and_one_may_be_lent() {
        for bytes in [0, 1, 511, 512, 1024, 9 * 512, 64 << 10, usize::MAX] {
            for largest in [0, 1, 1 << 20, u32::MAX] {
                let settings = Settings {
                    bytes,
                    largest,
                    ..Settings::default()
                };
                let lendable = settings.total() - settings.reserve();
                assert!(settings.most() >= 1 && settings.first() <= settings.most());
                assert!(lendable >= 1 && lendable >= settings.total() / 8);
            }
        }
    }
}
