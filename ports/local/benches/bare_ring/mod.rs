//! The least that two processes can do: a ring in shared memory, and nothing else.
//!
//! ```text
//!   slot:  | flag, length, 48 bytes inline |  a cache line
//!          | 32 KiB of data                |  for longer chunks
//! ```
//!
//! The reference that the port is measured against: one producer, one consumer who trust each
//! other, two copies, chunks of 32 KiB, no headers, no sleeping, no checks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that travel in one slot.
pub(crate) const CHUNK: usize = 32 * 1024;

const SLOTS: u64 = 16;
/// The consumer gives slots back this many at a time.
const BATCH: u64 = 4;
const LINE: usize = 64;
const INLINE: usize = 48;
const SLOT: usize = LINE + CHUNK;

/// Bytes of shared memory one ring takes, a multiple of the page size.
pub(crate) const RING_LEN: usize = (2 * LINE + SLOTS as usize * SLOT).next_multiple_of(4096);

/// An end of a ring.
pub(crate) struct End {
    base: *mut u8,
    position: u64,
    /// The other end's position when we last looked (producer only).
    seen: u64,
}

impl End {
    /// An end of the ring at `base`.
    ///
    /// # Safety
    /// `base` is the beginning of [`RING_LEN`] zeroed bytes that outlive the value, aligned to 64;
    /// only one producer and one consumer use them.
    pub(crate) unsafe fn new(base: *mut u8) -> Self {
        Self {
            base,
            position: 0,
            seen: 0,
        }
    }

    /// Sends a message, waiting for room as long as it takes.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(CHUNK) {
            while self.position - self.seen == SLOTS {
                self.seen = self.tail().load(Ordering::Acquire);
            }
            let slot = self.slot();
            let at = if chunk.len() <= INLINE { 16 } else { LINE };
            // SAFETY: the slot is ours until the flag is stored, and holds CHUNK bytes from `at`.
            unsafe {
                slot.add(8).cast::<u64>().write(chunk.len() as u64);
                std::ptr::copy_nonoverlapping(chunk.as_ptr(), slot.add(at), chunk.len());
            }
            self.flag().store(self.position + 1, Ordering::Release);
            self.position += 1;
        }
    }

    /// Receives a message that fills `into`, waiting for it as long as it takes.
    #[inline]
    pub(crate) fn receive(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(CHUNK) {
            while self.flag().load(Ordering::Acquire) != self.position + 1 {
                std::hint::spin_loop();
            }
            let slot = self.slot();
            let at = if chunk.len() <= INLINE { 16 } else { LINE };
            // SAFETY: the flag gave us the slot until the tail is stored.
            unsafe {
                let len = slot.add(8).cast::<u64>().read() as usize;
                assert_eq!(len, chunk.len());
                std::ptr::copy_nonoverlapping(slot.add(at), chunk.as_mut_ptr(), len);
            }
            self.position += 1;
            if self.position.is_multiple_of(BATCH) {
                self.tail().store(self.position, Ordering::Release);
            }
        }
    }

    fn slot(&self) -> *mut u8 {
        // SAFETY: below RING_LEN.
        unsafe {
            self.base
                .add(2 * LINE + (self.position % SLOTS) as usize * SLOT)
        }
    }

    fn flag(&self) -> &AtomicU64 {
        // SAFETY: aligned, inside the ring, only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.slot().cast()) }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: aligned, inside the ring, only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.cast()) }
    }
}
