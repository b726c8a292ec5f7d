//! The memory available for new work of an endpoint.
//!
//! ```text
//!               Ample              Short                      Critical
//!   posts       accepted           refused                    refused
//!   new peers   accepted           refused                    refused
//!   messages    kept               kept                       their peer's links are closed
//! ```
//!
//! A table doubles when it is full, so one more entry can need a large block of memory where
//! nothing can be refused. A [`Claim`] is made beforehand, where it can be refused: it covers the
//! growth of all tables with entries of one kind, and the supply reserves what it covers.
//!
//! Cost: a call and a comparison for each entry; a claim is raised by a quarter at a time.

/// The level of free memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MemoryLevel {
    /// Nothing is missing of what is kept back.
    Ample,
    /// Some of that has been used: nothing new is taken on.
    Short,
    /// Only what ends things is left.
    Critical,
}

/// The source of memory.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    /// The level of free memory.
    pub level: fn() -> MemoryLevel,
    /// Keeps so many bytes back, on top of what is. False: there are not so many.
    pub claim: fn(usize) -> bool,
    /// Takes a claim back.
    pub release: fn(usize),
}

impl Supply {
    /// Memory without limit.
    pub const ENDLESS: Self = Self {
        level: || MemoryLevel::Ample,
        claim: |_| true,
        release: |_| {},
    };

    /// May something new be taken on?
    #[inline]
    pub fn is_ample(&self) -> bool {
        (self.level)() == MemoryLevel::Ample
    }

    /// Whether memory is left only to end work under way.
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

/// The growth of all tables with entries of one kind.
#[derive(Debug)]
pub struct Claim {
    supply: Supply,
    /// Bytes of one thing in all tables, while these grow: twice its entries, and once more while they
    /// are copied.
    each: usize,
    /// Things that are covered.
    covered: usize,
}

impl Claim {
    /// For things that take up to `each` bytes.
    pub fn new(supply: Supply, each: usize) -> Self {
        Self {
            supply,
            each,
            covered: FREE,
        }
    }

    /// May there be one more than `count`? If so, nothing it needs is refused.
    #[inline(always)]
    pub fn admits(&mut self, count: usize) -> bool {
        if self.supply.is_ample() {
            return self.covers(count);
        }
        self.shrink(count);
        false
    }

    /// Memory is short, and there are `count`: what was claimed for many more is not needed to begin again.
    #[cold]
    fn shrink(&mut self, count: usize) {
        let enough = count.saturating_mul(2).max(FREE);
        if enough < self.covered / 2 {
            (self.supply.release)((self.covered - enough) * self.each);
            self.covered = enough;
        }
    }

    /// Whether there may be one more than `count`, also when memory is short.
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

/// The number of entries of each kind that need no claim: their tables are small.
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
