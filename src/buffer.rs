//! Memory for messages: `memalloc` and `memfree`.
//!
//! ```text
//!   size < 4 KiB          malloc
//!   4 KiB .. 64 KiB       an allocation aligned to 4 KiB, and if it is a page or more to a page
//!   64 KiB and more       a region of whole pages (mx_sys::regions), and when freed kept for the next one of
//!                           about this size
//!                           cache: newest at the end, at most BMI_MX_BUFFER_CACHE bytes, and for 5 s
//! ```
//!
//! The cache avoids page faults: memory that `free` returns to the system must be mapped and zeroed
//! again page by page. Four 4 MiB buffers in turn cost 1640 us each with `posix_memalign` and
//! `free`, 148 us with the cache, writing them once included; at 64 KiB there is nothing to gain
//! (1.20 and 1.15 us). Nothing is zeroed here.
//!
//! A server that was busy once must not keep that memory for ever: a buffer that has not been used for 5 s goes
//! back, and with it what the C library keeps in its heap.
//!
//! Regions serve fabric cards: a region's registration is kept while it is in the cache, and its
//! pages stay mapped while it is registered.
//!
//! Owns: buffers that were freed and not given out again.
//! Out of scope: operations.
//! Cost: one lock; `take` and `keep` look at every cached buffer, newest first.

use libc::c_void;
use mx_proto::{Clock, Instant};
use mx_sys::clock::MonotonicClock;
use mx_sys::fork::ForkLock;
use mx_sys::{page_size, regions};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The least alignment of larger buffers: the smallest page there is.
const ALIGN: usize = 4096;

/// Smaller buffers are not worth keeping.
const CACHED_FROM: usize = 64 * 1024;

/// The maximum number of buffers kept, whatever their size: each costs a comparison.
const MAX_CACHED: usize = 256;

/// The time for which an unused buffer is kept: longer than the pauses of a program that goes on.
const KEPT_FOR: Duration = Duration::from_secs(5);

static CACHE: ForkLock<Cache> = ForkLock::new(Cache::new());

/// The time in nanoseconds at which the oldest kept buffer has been unused for too long; 0: there is none.
static DUE: AtomicU64 = AtomicU64::new(0);

/// A buffer of at least `size` bytes. `None` when there is no memory: one of no bytes has an address, too.
pub fn allocate(size: usize) -> Option<*mut c_void> {
    if size < ALIGN {
        // SAFETY: malloc may be called with any size; of 1 it gives an address where of 0 it need not.
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
    // SAFETY: `start` can be written to, and the alignment is a power of two.
    let code = unsafe { libc::posix_memalign(&raw mut start, align, size) };
    (code == 0).then_some(start)
}

fn alignment(size: usize, page: usize) -> usize {
    if size < page { ALIGN } else { page }
}

/// Gives a buffer back. Null is legal. False when it has been given back already, as far as that
/// can be told; nothing is done then.
///
/// # Safety
///
/// `start` is null or came from [`allocate`] and is not used any more.
pub unsafe fn release(start: *mut c_void) -> bool {
    let Some(start) = NonNull::new(start) else {
        return true;
    };
    // A small buffer's address may be anything; a large one's is aligned.
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

/// Sets the number of bytes that may be kept; 0 frees all kept ones.
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

/// The time at which [`give_back_unused`] has something to do.
pub fn next_due() -> Option<Instant> {
    match DUE.load(Ordering::Relaxed) {
        0 => None,
        due => Some(Instant(due)),
    }
}

/// Frees what has not been used for a while, and has the C library give back what that leaves in its heap.
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

// SAFETY: unused memory, which any thread may free or give out.
unsafe impl Send for Buffer {}

struct Cache {
    /// Oldest first.
    kept: Vec<Buffer>,
    /// The sum of their capacities; at most `limit`.
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

    /// The newest buffer that holds `size` bytes and not a quarter more than that.
    fn take(&mut self, size: usize) -> Option<Buffer> {
        let fits = size..=size + size / 4;
        let place = self.kept.iter().rposition(|b| fits.contains(&b.capacity))?;
        let buffer = self.kept.remove(place);
        self.bytes -= buffer.capacity;
        Some(buffer)
    }

    /// Takes the buffer over, unless it is too small or there is no room.
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

    /// Takes out those that have not been used for [`KEPT_FOR`].
    fn expire(&mut self, now: Instant) -> Vec<Buffer> {
        let unused = |buffer: &&Buffer| now.since(buffer.freed) >= KEPT_FOR;
        let count = self.kept.iter().take_while(unused).count();
        self.take_oldest(count)
    }

    /// Writes down when the oldest will have been unused for too long.
    fn note(&self) {
        let due = self.kept.first().map(|oldest| oldest.freed.after(KEPT_FOR));
        DUE.store(due.map_or(0, |due| due.0.max(1)), Ordering::Relaxed);
    }

    fn has(&self, start: NonNull<c_void>) -> bool {
        self.kept.iter().any(|buffer| buffer.start == start)
    }

    /// Takes out the oldest until the limit is kept.
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
