//! Memory for messages: `memalloc` and `memfree`.
//!
//! ```text
//!   size < 4 KiB          malloc
//!   4 KiB .. 64 KiB       an allocation aligned to 4 KiB, and if it is a page or more to a page
//!   64 KiB and more       a region of whole pages (mx_sys::regions), which when freed is cached for the next one of
//!                           similar size
//!                           cache: newest at the end, at most BMI_MX_BUFFER_CACHE bytes, and for 5 s
//! ```
//!
//! The cache avoids page faults: memory that `free` returns to the system must be mapped and zeroed again page by page.
//! Four 4 MiB buffers in turn cost 1640 us each with `posix_memalign` and `free`, 148 us with the cache, including one
//! write of each; at 64 KiB there is nothing to gain (1.20 and 1.15 us). The cache does not zero buffers.
//!
//! A server that was busy once must not keep that memory for ever: a buffer unused for 5 s is freed, and the C
//! library's heap is trimmed.
//!
//! Regions serve fabric cards: a region's registration is kept while it is cached, and its pages stay mapped while it
//! is registered.
//!
//! Owns: freed buffers kept for reuse.
//! Out of scope: operations.
//! Cost: one lock; `take` and `keep` scan the cached buffers, newest first.

use libc::c_void;
use mx_proto::{Clock, Instant};
use mx_sys::clock::MonotonicClock;
use mx_sys::fork::ForkLock;
use mx_sys::{page_size, regions};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Minimum alignment of larger buffers: the smallest page size.
const ALIGN: usize = 4096;

/// Minimum size of cached buffers, in bytes; smaller ones gain nothing.
const CACHED_FROM: usize = 64 * 1024;

/// Maximum number of cached buffers, whatever their size: each costs a comparison.
const MAX_CACHED: usize = 256;

/// Time for which an unused buffer is cached: longer than the pauses of an active program.
const KEPT_FOR: Duration = Duration::from_secs(5);

static CACHE: ForkLock<Cache> = ForkLock::new(Cache::new());

/// Time in nanoseconds at which the oldest cached buffer expires; 0: none is cached.
static DUE: AtomicU64 = AtomicU64::new(0);

/// Allocates a buffer of at least `size` bytes, or takes a cached one; its contents are undefined. From 4096 bytes on
/// it is aligned to that, from a page on to a page. `None` without memory; for size 0 a unique address.
pub fn allocate(size: usize) -> Option<*mut c_void> {
    if size < ALIGN {
        // SAFETY: malloc may be called with any size; size 1 returns an address where size 0 need not.
        let start = unsafe { libc::malloc(size.max(1)) };
        return (!start.is_null()).then_some(start);
    }
    if size >= CACHED_FROM {
        let len = regions::len_for(size)?;
        let mut cache = CACHE.lock();
        let cached = cache.take(len);
        cache.note();
        drop(cache);
        return match cached {
            Some(buffer) => Some(buffer.start.as_ptr()),
            None => regions::allocate(size),
        };
    }
    let align = alignment(size, page_size());
    let mut start = ptr::null_mut();
    // SAFETY: `start` is writable, and the alignment is a power of two.
    let code = unsafe { libc::posix_memalign(&raw mut start, align, size) };
    (code == 0).then_some(start)
}

fn alignment(size: usize, page: usize) -> usize {
    if size < page { ALIGN } else { page }
}

/// Frees a buffer, or caches it for reuse. Null is legal. Returns false without an effect if the buffer has been freed
/// already, as far as that can be told.
///
/// # Safety
///
/// `start` is null or came from [`allocate`] and is no longer used.
pub unsafe fn release(start: *mut c_void) -> bool {
    let Some(start) = NonNull::new(start) else {
        return true;
    };
    // A small buffer may have any address; a large one is aligned.
    if start.addr().get() % ALIGN == 0 {
        let capacity = regions::len_at(start.as_ptr());
        let mut cache = CACHE.lock();
        if cache.has(start) {
            return false;
        }
        if let Some(capacity) = capacity {
            let kept = cache.keep(Buffer {
                start,
                capacity,
                freed: MonotonicClock.now(),
            });
            cache.note();
            drop(cache);
            return kept || regions::release(start.as_ptr());
        }
    }
    // SAFETY: as above.
    unsafe { libc::free(start.as_ptr()) };
    true
}

/// Sets the maximum number of cached bytes; 0 frees all cached buffers.
pub fn set_cache_limit(limit: usize) {
    let excess = {
        let mut cache = CACHE.lock();
        cache.limit = limit;
        let excess = cache.shrink();
        cache.note();
        excess
    };
    free(excess);
}

/// Returns the time at which [`give_back_unused`] should be called, because the oldest cached buffer expires; `None` if
/// none is cached.
pub fn next_due() -> Option<Instant> {
    match DUE.load(Ordering::Relaxed) {
        0 => None,
        due => Some(Instant(due)),
    }
}

/// Frees the buffers that have been cached for five seconds, and trims the C library's heap when none is left.
#[cold]
pub fn give_back_unused() {
    let unused = {
        let mut cache = CACHE.lock();
        let unused = cache.expire(MonotonicClock.now());
        cache.note();
        unused
    };
    if unused.is_empty() {
        return;
    }
    free(unused);
    if next_due().is_none() {
        #[cfg(target_env = "gnu")]
        // SAFETY: may be called at any time.
        unsafe {
            libc::malloc_trim(0)
        };
    }
}

fn free(buffers: Vec<Buffer>) {
    for buffer in buffers {
        regions::release(buffer.start.as_ptr());
    }
}

struct Buffer {
    start: NonNull<c_void>,
    capacity: usize,
    freed: Instant,
}

// SAFETY: unused memory, which any thread may free or reuse.
unsafe impl Send for Buffer {}

struct Cache {
    /// Cached buffers, oldest first.
    kept: Vec<Buffer>,
    /// Sum of their capacities in bytes; at most `limit`.
    bytes: usize,
    limit: usize,
}

impl Cache {
    const fn new() -> Self {
        Self {
            kept: Vec::new(),
            bytes: 0,
            limit: 0,
        }
    }

    /// Removes and returns the newest buffer of at least `size` bytes and at most a quarter more.
    fn take(&mut self, size: usize) -> Option<Buffer> {
        let fits = size..=size + size / 4;
        let place = self.kept.iter().rposition(|b| fits.contains(&b.capacity))?;
        let buffer = self.kept.remove(place);
        self.bytes -= buffer.capacity;
        Some(buffer)
    }

    /// Caches a buffer. Returns false if it is too small or the cache is full.
    fn keep(&mut self, buffer: Buffer) -> bool {
        let room = self.limit - self.bytes;
        let wanted = buffer.capacity >= CACHED_FROM
            && buffer.capacity <= room
            && self.kept.len() < MAX_CACHED;
        if wanted {
            self.bytes += buffer.capacity;
            self.kept.push(buffer);
        }
        wanted
    }

    /// Removes buffers that have been unused for [`KEPT_FOR`].
    fn expire(&mut self, now: Instant) -> Vec<Buffer> {
        let unused = |buffer: &&Buffer| now.since(buffer.freed) >= KEPT_FOR;
        let count = self.kept.iter().take_while(unused).count();
        self.take_oldest(count)
    }

    /// Stores the time at which the oldest buffer expires.
    fn note(&self) {
        let due = self.kept.first().map(|oldest| oldest.freed.after(KEPT_FOR));
        DUE.store(due.map_or(0, |due| due.0.max(1)), Ordering::Relaxed);
    }

    fn has(&self, start: NonNull<c_void>) -> bool {
        self.kept.iter().any(|buffer| buffer.start == start)
    }

    /// Removes the oldest buffers until the limit holds.
    fn shrink(&mut self) -> Vec<Buffer> {
        let mut bytes = self.bytes;
        let mut count = 0;
        for buffer in &self.kept {
            if bytes <= self.limit {
                break;
            }
            bytes -= buffer.capacity;
            count += 1;
        }
        self.take_oldest(count)
    }

    fn take_oldest(&mut self, count: usize) -> Vec<Buffer> {
        let oldest: Vec<Buffer> = self.kept.drain(..count).collect();
        self.bytes -= oldest.iter().map(|buffer| buffer.capacity).sum::<usize>();
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(place: usize, capacity: usize) -> Buffer {
        let start = NonNull::new(ptr::without_provenance_mut(place * ALIGN)).unwrap();
        let freed = Instant(place as u64 * 1_000_000_000);
        Buffer {
            start,
            capacity,
            freed,
        }
    }

    fn cache(limit: usize) -> Cache {
        let mut cache = Cache::new();
        cache.limit = limit;
        cache
    }

    #[test]
    fn a_freed_buffer_serves_the_next_of_its_size_newest_first() {
        let mut cache = cache(10 << 20);
        assert!(cache.keep(buffer(1, 1 << 20)));
        assert!(cache.keep(buffer(2, 1 << 20)));
        assert_eq!(cache.take(1 << 20).unwrap().start, buffer(2, 0).start);
        assert_eq!(cache.take((1 << 20) - 5).unwrap().start, buffer(1, 0).start);
        assert!(cache.take(1 << 20).is_none());
        assert_eq!(cache.bytes, 0);
    }

    #[test]
    fn a_buffer_is_never_too_small_and_never_a_quarter_too_large() {
        let mut cache = cache(10 << 20);
        assert!(cache.keep(buffer(1, 100_000)));
        assert!(cache.take(100_001).is_none());
        assert!(cache.take(79_999).is_none());
        assert!(cache.take(80_000).is_some());
    }

    #[test]
    fn the_limit_holds_for_bytes_and_for_buffers() {
        let mut bounded = cache(200_000);
        assert!(bounded.keep(buffer(1, 100_000)));
        assert!(!bounded.keep(buffer(2, 100_001)));
        assert!(bounded.keep(buffer(3, 100_000)));
        assert!(!bounded.keep(buffer(4, CACHED_FROM)));
        assert!(!cache(200_000).keep(buffer(5, CACHED_FROM - 1)));

        let mut many = cache(usize::MAX);
        for place in 1..=MAX_CACHED {
            assert!(many.keep(buffer(place, CACHED_FROM)));
        }
        assert!(!many.keep(buffer(MAX_CACHED + 1, CACHED_FROM)));
    }

    #[test]
    fn a_smaller_limit_drops_the_oldest() {
        let mut cache = cache(400_000);
        for place in 1..=4 {
            assert!(cache.keep(buffer(place, 100_000)));
        }
        cache.limit = 250_000;
        let dropped = cache.shrink();
        assert_eq!(dropped.len(), 2);
        assert_eq!(dropped[0].start, buffer(1, 0).start);
        assert_eq!(cache.bytes, 200_000);
        assert!(cache.has(buffer(3, 0).start) && !cache.has(buffer(1, 0).start));
    }

    #[test]
    fn buffers_unused_for_five_seconds_are_freed() {
        let mut cache = cache(10 << 20);
        // Freed after 1, 2 and 4 s.
        for place in [1, 2, 4] {
            assert!(cache.keep(buffer(place, 1 << 20)));
        }
        let second = |n: u64| Instant(n * 1_000_000_000);
        assert!(cache.expire(Instant(second(6).0 - 1)).is_empty());
        let unused = cache.expire(second(7));
        assert_eq!(unused.len(), 2);
        assert_eq!(unused[1].start, buffer(2, 0).start);
        assert_eq!((cache.bytes, cache.kept.len()), (1 << 20, 1));
        assert_eq!(cache.expire(second(9)).len(), 1);
        assert_eq!((cache.bytes, cache.kept.capacity()), (0, 0));
    }

    #[test]
    fn what_is_a_page_or_more_is_aligned_to_one() {
        for (page, expected) in [
            (4096, [4096, 4096]),
            (16384, [4096, 16384]),
            (65536, [4096, 4096]),
        ] {
            assert_eq!([8192, 65535].map(|size| alignment(size, page)), expected);
        }
    }

    #[test]
    fn large_buffers_are_aligned_and_writable_to_the_end() {
        for size in [
            0,
            1,
            ALIGN - 1,
            ALIGN,
            ALIGN + 1,
            CACHED_FROM,
            CACHED_FROM + 17,
            4 << 20,
        ] {
            let start = allocate(size).unwrap();
            assert!(size < ALIGN || start.addr() % ALIGN == 0, "{size}");
            // SAFETY: `size` bytes, just allocated.
            unsafe { ptr::write_bytes(start.cast::<u8>(), 0xa5, size) };
            // SAFETY: as above, and not used again.
            assert!(unsafe { release(start) });
        }
    }
}
