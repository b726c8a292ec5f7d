//! Settings and constants of flow control.
//!
//! ```text
//!   total   [ reserve, an eighth or the largest that is fetched | may be lent ................. ]
//!                                                               [ at connect: half of the total ]
//!   a credit limit   0 .. MINIMUM .. first .. most: AT_ONCE, a quarter of what may be lent
//! ```
//!
//! The table of credits in bench/RESULTS.md was measured with these constants.

use super::pool::{CREDIT, cost};

/// The limits of an endpoint's flow control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Bytes, bookkeeping included; see [`CREDIT`]. Not in it are two messages of at most one credit
    /// of every remote.
    pub bytes: usize,
    /// Bytes of the largest message that is fetched for the inbox. At most seven eighths of `bytes`
    /// are kept free for it.
    pub largest: u32,
    /// Credits that a remote is lent at connect, while there is room.
    pub first: u16,
    /// Percent of what others leave that remotes from one source may borrow.
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
        // Running totals of 32 bits keep apart what is less than 2^31.
        (self.bytes / CREDIT).clamp(1, 1 << 30) as u32
    }

    pub(super) fn reserve(&self) -> u32 {
        let total = self.total();
        let most = total - (total / 8).max(1);
        cost(self.largest).max(total / 8).min(most)
    }

    /// The largest credit limit.
    pub(super) fn most(&self) -> u32 {
        let lendable = self.total() - self.reserve();
        AT_ONCE.min(lendable / 4).max(1)
    }

    pub(super) fn first(&self) -> u32 {
        u32::from(self.first).min(self.most())
    }
}

/// The first credits: twenty requests of a kilobyte and more, or eighty small ones. A program of MX
/// counts on more.
pub const FIRST: u16 = 80;

/// Credits that may be on their way at once, of all remotes together: eight messages of 512 KiB or four of 1 MiB.
/// With many senders it is little for each. A single credit limit is not larger: more would only wait here.
pub const AT_ONCE: u32 = 8 * cost(512 << 10);

/// The credits that a quiet remote may keep as long as every other has some (GASNet's
/// `MIN_CREDITS`).
pub(super) const MINIMUM: u32 = 4;

/// Messages of an epoch, at least, and for each remote: a busy one sends more than this.
pub(super) const EPOCH: u64 = 4096;
pub(super) const EPOCH_EACH: u64 = 4;

/// Epochs after which a remote is quiet, and a request forgotten: at least one whole one.
pub(super) const QUIET: u16 = 2;

/// Remotes that are asked for credits at once. Those that do not answer count for one epoch.
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
