//! Memory that another process writes to at any time: the only way to reach it.
//!
//! ```text
//!   Region  --of-->  Shared  --at(offset)-->  Shared  --first(len)-->  Shared
//!                                               |  long, short        atomics
//!                                               |  words, read        copied out
//!                                               `- write              copied in
//! ```
//!
//! Bytes are moved with raw copies, and no reference to anything but an atomic is made. Where a place lies in its part
//! of the mapping, the caller has seen to with a mask or a check of its own; builds with assertions check it.
//!
//! Owns: nothing. Cost: a pointer; none of its own, optimised.

use super::copy::copy;
use mx_port_base::sealed::Region;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A place in a mapping, and what is behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    at: *mut u8,
    #[cfg(debug_assertions)]
    left: usize,
}

// SAFETY: the pointer leads into a mapping of the whole process.
unsafe impl Send for Shared {}

impl Shared {
    /// No memory.
    pub(super) const NONE: Self = Self {
        at: std::ptr::null_mut(),
        #[cfg(debug_assertions)]
        left: 0,
    };

    /// All of a region.
    ///
    /// # Safety
    /// The region outlives the value, and all that is made of it.
    pub(super) unsafe fn of(region: &Region) -> Self {
        Self {
            at: region.base(),
            #[cfg(debug_assertions)]
            left: region.size(),
        }
    }

    /// So many bytes further on.
    #[inline(always)]
    pub(super) fn at(self, offset: usize) -> Self {
        self.has(offset);
        Self {
            at: self.at.wrapping_add(offset),
            #[cfg(debug_assertions)]
            left: self.left - offset,
        }
    }

    /// No more than so many bytes.
    #[inline(always)]
    pub(super) fn first(self, len: usize) -> Self {
        self.has(len);
        Self {
            #[cfg(debug_assertions)]
            left: len,
            ..self
        }
    }

    /// The eight bytes here.
    #[inline(always)]
    pub(super) fn long<'a>(self) -> &'a AtomicU64 {
        self.has(8);
        // SAFETY: inside the mapping, which outlives what is made of it, and aligned to 8 (`layout`). An atomic may
        // be shared with others who write it.
        unsafe { AtomicU64::from_ptr(self.at.cast()) }
    }

    /// The four bytes here.
    #[inline(always)]
    pub(super) fn short<'a>(self) -> &'a AtomicU32 {
        self.has(4);
        // SAFETY: as above, aligned to 4.
        unsafe { AtomicU32::from_ptr(self.at.cast()) }
    }

    /// The words here. Volatile, so that there is one copy: the compiler may omit an ordinary copy of memory that
    /// "does not change" and read again what was checked.
    #[inline(always)]
    pub(super) fn words<const N: usize>(self) -> [u64; N] {
        self.has(8 * N);
        // SAFETY: inside the mapping, and aligned to 8.
        unsafe { self.at.cast::<[u64; N]>().read_volatile() }
    }

    /// Copies the bytes here.
    #[inline(always)]
    pub(super) fn read(self, into: &mut [u8]) {
        self.has(into.len());
        // SAFETY: inside the mapping, and of the same length as `into`, which is the application's.
        unsafe { copy(self.at, into.as_mut_ptr(), into.len()) };
    }

    /// Copies bytes to here.
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
