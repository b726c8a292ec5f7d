//! Pool: the balance of all credits.
//!
//! ```text
//!                lend                  close (the remote is lost, its messages wait)
//!         .-----------> lent ---------------------.
//!       free <----------'  take back              v
//!        | ^ <--------------------------------- tombstones     reclaim
//!        | |`---------> drawn     fetching an offered message, until it is taken
//!        | `----------> copies    of our own sends, until they have been sent
//!        v
//!       total = free + lent + drawn + copies + tombstones                       always
//!       lent + copies <= total - reserve                                     when lending, copying
//! ```
//!
//! The reserve is never lent, and drawn credits and tombstones become free when messages are received. So a draw of up
//! to the reserve always succeeds in time.
//!
//! A source borrows at most its [share](Shares) of the credits that the others leave; tombstones of its lost remotes
//! count, too.
//! Out of scope: remotes.

use super::settings::Settings;
use crate::origin::Source;
use crate::shares::Shares;

/// Size of one credit in bytes, bookkeeping of a message ([`OVERHEAD`]) included: one credit pays for a message of up
/// to 192 bytes, such as a small request or its answer.
pub const CREDIT: usize = 512;

/// Bytes of bookkeeping that every waiting message costs besides its data; `tests/bounds` measures them.
pub const OVERHEAD: usize = 320;

/// Returns the number of credits that a message of `len` bytes costs if it carries its data, at least 1. An offer costs
/// 1.
#[inline]
pub const fn cost(len: u32) -> u32 {
    const BESIDES: u64 = (OVERHEAD + CREDIT - 1) as u64;
    // The result is at most 2^23 + 2.
    ((len as u64 + BESIDES) / CREDIT as u64) as u32
}

/// Balance of all credits.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) total: u32,
    reserve: u32,
    pub(super) lent: u32,
    pub(super) drawn: u32,
    pub(super) copies: u32,
    pub(super) tombstones: u32,
    shares: Shares,
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        let (total, reserve) = (settings.total(), settings.reserve());
        Self {
            total,
            reserve,
            lent: 0,
            drawn: 0,
            copies: 0,
            tombstones: 0,
            shares: Shares::new((total - reserve) as usize, settings.source_share),
        }
    }

    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.total - self.used()
    }

    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.lent + self.drawn + self.copies + self.tombstones
    }

    /// Returns the credits that could be lent if none were.
    pub(super) fn lendable(&self) -> u32 {
        self.total - self.reserve
    }

    /// Returns the credits that can be lent now.
    #[inline]
    pub(super) fn available(&self) -> u32 {
        let unlent = self.total - self.lent - self.copies;
        unlent.saturating_sub(self.reserve).min(self.free())
    }

    /// Returns the credits that may be lent to a source.
    pub(super) fn room(&self, source: Source) -> u32 {
        let available = self.available();
        if source == Source::TRUSTED {
            return available;
        }
        let share = self.shares.share(source);
        let left = share.saturating_sub(self.shares.of(source));
        available.min(left.try_into().unwrap_or(u32::MAX))
    }

    /// Lends credits for which there is [room](Self::room).
    pub(super) fn lend(&mut self, source: Source, credits: u32) {
        debug_assert!(credits <= self.room(source));
        self.lent += credits;
        self.shares.take(source, credits as usize);
    }

    pub(super) fn take_back(&mut self, source: Source, credits: u32) {
        self.lent -= credits;
        self.shares.give_back(source, credits as usize);
    }

    /// Moves credits of a credit limit to tombstones.
    pub(super) fn move_to_tombstones(&mut self, credits: u32) {
        self.lent -= credits;
        self.tombstones += credits;
    }

    /// Adds slot messages of a lost remote as tombstones. Returns false if there is no room for them.
    pub(super) fn inherit(&mut self, source: Source, credits: u32) -> bool {
        if credits > self.free() {
            return false;
        }
        self.tombstones += credits;
        self.shares.take(source, credits as usize);
        true
    }

    pub(super) fn reclaim(&mut self, source: Source, credits: u32) {
        debug_assert!(
            credits <= self.tombstones,
            "reclaimed {credits} of {self:?}"
        );
        let credits = credits.min(self.tombstones);
        self.tombstones -= credits;
        self.shares.give_back(source, credits as usize);
    }

    /// Takes credits for a message to be fetched. Returns false if there are not enough.
    pub(super) fn draw(&mut self, credits: u32) -> bool {
        let there = credits <= self.free();
        self.drawn += if there { credits } else { 0 };
        there
    }

    /// Returns the credits of a fetched message that has been taken, or whose fetch has failed.
    pub(super) fn undraw(&mut self, credits: u32) {
        debug_assert!(credits <= self.drawn, "undrawn {credits} of {self:?}");
        self.drawn -= credits.min(self.drawn);
    }

    /// Takes credits for a copy of our own send; copies may use an eighth of all credits. Returns false if there are
    /// not enough.
    pub(super) fn copy(&mut self, credits: u32) -> bool {
        let most = (self.total / 8).saturating_sub(self.copies);
        let there = credits <= most.min(self.available());
        self.copies += if there { credits } else { 0 };
        there
    }

    /// Returns the credits of a copy that has been sent or dropped.
    pub(super) fn uncopy(&mut self, credits: u32) {
        debug_assert!(credits <= self.copies, "uncopied {credits} of {self:?}");
        self.copies -= credits.min(self.copies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Source = Source(1);
    const B: Source = Source(2);

    /// Makes a pool of 1000 credits, of which 125 are reserve.
    fn pool() -> Pool {
        Pool::new(&Settings {
            bytes: 1000 * CREDIT,
            ..Settings::default()
        })
    }

    #[test]
    fn message_costs_bytes_and_bookkeeping_in_credits() {
        for (len, credits) in [
            (0, 1),
            (8, 1),
            (192, 1),
            (193, 2),
            (704, 2),
            (705, 3),
            (1024, 3),
            (4096, 9),
            (u32::MAX, (1 << 23) + 1),
        ] {
            assert_eq!(cost(len), credits, "{len}");
        }
    }

    #[test]
    fn copies_are_an_eighth_and_no_more_than_could_be_lent() {
        let mut pool = pool();
        assert!(!pool.copy(126) && pool.copy(125) && !pool.copy(1));
        assert_eq!((pool.available(), pool.free()), (750, 875));
        pool.uncopy(125);
        pool.lend(Source::TRUSTED, 865);
        assert!(!pool.copy(11) && pool.copy(10));
        assert_eq!(pool.available(), 0);
    }

    #[test]
    fn one_source_borrows_half_of_what_the_others_leave() {
        let mut pool = pool();
        assert_eq!(pool.room(A), 437);
        pool.lend(A, 437);
        assert_eq!((pool.room(A), pool.room(B)), (0, 219));
        pool.lend(B, 219);
        assert_eq!(pool.room(Source::TRUSTED), 875 - 437 - 219);
        // Tombstones of a source's remotes count in its share.
        pool.move_to_tombstones(400);
        assert_eq!(pool.room(A), 0);
        pool.reclaim(A, 400);
        // Only free credits can be lent now.
        assert_eq!(pool.room(A), 291);
        pool.take_back(A, 37);
        pool.take_back(B, 219);
        assert_eq!(
            (pool.available(), pool.free(), pool.room(A)),
            (875, 1000, 437)
        );
    }
}
