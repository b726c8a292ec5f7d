//! Supply: the memory available for new work of an endpoint.
//!
//! ```text
//!               Ample              Short                      Critical
//!   posts       accepted           refused                    refused
//!   new peers   accepted           refused                    refused
//!   messages    kept               kept                       their peer's links are closed
//! ```
//!
//! A table doubles when it is full, so one more entry may need a large block of memory where nothing can be rejected. A
//! [`Claim`] is therefore made beforehand, where rejection is possible: it covers the growth of all tables with entries
//! of one kind, and the supply reserves what it covers.
//!
//! Cost: a call and a comparison for each entry; a claim grows by a quarter at a time.

/// Level of free memory, which decides whether new work is accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLevel {
    /// The reserve of memory for work under way is complete: new work is accepted.
    Ample,
    /// Some of the reserve has been used: posts and new peers are refused, and messages are still kept.
    Short,
    /// Only the memory for ending work is left: peers whose messages would have to be kept are disconnected.
    Critical,
}

/// Memory accounting of the process, as three functions that an endpoint calls before it accepts new work.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// Returns the present level of free memory.
    pub level: fn() -> MemoryLevel,
    /// Reserves this many more bytes for the growth of tables. Returns false, and reserves nothing, if there are not
    /// enough.
    pub claim: fn(usize) -> bool,
    /// Releases this many bytes that `claim` reserved.
    pub release: fn(usize),
}

impl Supply {
    /// Supply without a limit: memory is always ample, and every claim succeeds.
    pub const ENDLESS: Self = Self {
        level: || MemoryLevel::Ample,
        claim: |_| true,
        release: |_| {},
    };

    /// Returns whether new work may be accepted ([`MemoryLevel::Ample`]).
    #[inline]
    pub fn is_ample(&self) -> bool {
        (self.level)() == MemoryLevel::Ample
    }

    /// Returns whether only the memory for ending work is left ([`MemoryLevel::Critical`]).
    #[inline]
    pub fn is_critical(&self) -> bool {
        (self.level)() == MemoryLevel::Critical
    }
}

impl PartialEq for Supply {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.level, other.level)
            && std::ptr::fn_addr_eq(self.claim, other.claim)
            && std::ptr::fn_addr_eq(self.release, other.release)
    }
}

impl Eq for Supply {}

/// Reservation of memory for the growth of all tables with entries of one kind, such as remotes. Counts bytes only; the
/// tables allocate by themselves. Dropping it releases the reservation.
#[derive(Debug)]
pub struct Claim {
    supply: Supply,
    /// Bytes of one entry in all tables while they grow: twice its size, and once more while they are copied.
    each: usize,
    /// Number of entries that are covered.
    covered: usize,
}

impl Claim {
    /// Makes a claim on `supply` for tables in which one entry costs `each` bytes, growth included. The first 1024
    /// entries need no reservation.
    pub fn new(supply: Supply, each: usize) -> Self {
        Self {
            supply,
            each,
            covered: FREE,
        }
    }

    /// Returns whether an entry may be added to the `count` present ones as new work: memory must be ample, and a
    /// reservation for the entry is made if needed. If memory is short, returns false and releases most of an unneeded
    /// reservation.
    #[inline(always)]
    pub fn admits(&mut self, count: usize) -> bool {
        if self.supply.is_ample() {
            return self.covers(count);
        }
        self.shrink(count);
        false
    }

    /// Releases most of what was claimed for many more than `count` entries, so that it is available when memory is
    /// short.
    #[cold]
    fn shrink(&mut self, count: usize) {
        let enough = count.saturating_mul(2).max(FREE);
        if enough < self.covered / 2 {
            (self.supply.release)((self.covered - enough) * self.each);
            self.covered = enough;
        }
    }

    /// Returns whether an entry may be added to the `count` present ones although memory may be short: it is covered by
    /// the reservation, or by one that is made now.
    #[inline(always)]
    pub fn covers(&mut self, count: usize) -> bool {
        count < self.covered || self.grow()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let more = self.covered / 4;
        let granted = (self.supply.claim)(more * self.each);
        if granted {
            self.covered += more;
        }
        granted
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        (self.supply.release)((self.covered - FREE) * self.each);
    }
}

/// Number of entries of each kind that need no claim, because their tables are small.
const FREE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(0) };
        static LEVEL: Cell<MemoryLevel> = const { Cell::new(MemoryLevel::Ample) };
    }

    const MEASURED: Supply = Supply {
        level: || LEVEL.get(),
        claim: |bytes| {
            let left = LEFT.get().checked_sub(bytes);
            left.inspect(|left| LEFT.set(*left)).is_some()
        },
        release: |bytes| LEFT.set(LEFT.get() + bytes),
    };

    #[test]
    fn what_a_flood_has_claimed_is_not_needed_to_begin_again() {
        LEFT.set(1_000_000);
        let mut claim = Claim::new(MEASURED, 100);
        let count = (0..).find(|count| !claim.admits(*count)).unwrap();
        LEVEL.set(MemoryLevel::Short);
        assert!(!claim.admits(count - 1));
        assert!(LEFT.get() < 250_000, "they are all there still");
        assert!(!claim.admits(0));
        assert_eq!(LEFT.get(), 1_000_000);
        LEVEL.set(MemoryLevel::Ample);
        assert!(claim.admits(count / 2));
        drop(claim);
        assert_eq!(LEFT.get(), 1_000_000);
    }
}
