//! Memory that another process may write at any time: the only way to access it.
//!
//! ```text
//!   Region  --of-->  Shared  --at(offset)-->  Shared  --first(len)-->  Shared
//!                                               |  long, short        atomics
//!                                               |  words, read        copied out
//!                                               `- write              copied in
//! ```
//!
//! Bytes are moved with raw copies, and the only references made are to atomics. The caller keeps offsets within their
//! part of the mapping, by a mask or a check of its own; builds with assertions verify it.
//!
//! Owns: nothing. Cost: a pointer; no instructions of its own when optimised.

use super::copy::copy;
use mx_port_base::sealed::Region;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Position in a mapping, and, with assertions, the bytes after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    at: *mut u8,
    #[cfg(debug_assertions)]
    left: usize,
}

// SAFETY: the pointer leads into a mapping of the whole process.
unsafe impl Send for Shared {}

impl Shared {
    /// Position without memory.
    pub(super) const NONE: Self = Self {
        at: std::ptr::null_mut(),
        #[cfg(debug_assertions)]
        left: 0,
    };

    /// Returns the position of a whole region.
    ///
    /// # Safety
    /// The region must outlive the value, and all values derived from it.
    pub(super) unsafe fn of(region: &Region) -> Self {
        Self {
            at: region.base(),
            #[cfg(debug_assertions)]
            left: region.size(),
        }
    }

    /// Returns the position `offset` bytes further on.
    #[inline(always)]
    pub(super) fn at(self, offset: usize) -> Self {
        self.has(offset);
        Self {
            at: self.at.wrapping_add(offset),
            #[cfg(debug_assertions)]
            left: self.left - offset,
        }
    }

    /// Returns this position, limited to `len` bytes.
    #[inline(always)]
    pub(super) fn first(self, len: usize) -> Self {
        self.has(len);
        Self {
            #[cfg(debug_assertions)]
            left: len,
            ..self
        }
    }

    /// Returns the eight bytes here as an atomic.
    #[inline(always)]
    pub(super) fn long<'a>(self) -> &'a AtomicU64 {
        self.has(8);
        // SAFETY: inside the mapping, which outlives all derived values, and aligned to 8 (`layout`). An atomic may be
        // shared with other writers.
        unsafe { AtomicU64::from_ptr(self.at.cast()) }
    }

    /// Returns the four bytes here as an atomic.
    #[inline(always)]
    pub(super) fn short<'a>(self) -> &'a AtomicU32 {
        self.has(4);
        // SAFETY: as above, aligned to 4.
        unsafe { AtomicU32::from_ptr(self.at.cast()) }
    }

    /// Copies the words here. Volatile, so that there is one copy: the compiler could omit an ordinary copy of memory
    /// that "does not change" and reread bytes after their check.
    #[inline(always)]
    pub(super) fn words<const N: usize>(self) -> [u64; N] {
        self.has(8 * N);
        // SAFETY: inside the mapping, and aligned to 8.
        unsafe { self.at.cast::<[u64; N]>().read_volatile() }
    }

    /// Copies the bytes here to `into`.
    #[inline(always)]
    pub(super) fn read(self, into: &mut [u8]) {
        self.has(into.len());
        // SAFETY: inside the mapping, and of the same length as `into`, which is the application's.
        unsafe { copy(self.at, into.as_mut_ptr(), into.len()) };
    }

    #[inline(always)]
    pub(super) fn write(self, bytes: &[u8]) {
        self.has(bytes.len());
        // SAFETY: inside the mapping, and of the same length as `bytes`, which are the application's.
        unsafe { copy(bytes.as_ptr(), self.at, bytes.len()) };
    }

    #[inline(always)]
    fn has(self, _len: usize) {
        #[cfg(debug_assertions)]
        assert!(_len <= self.left, "{_len} of {} bytes", self.left);
    }
}
