//! Large buffers given to the application, found by address.
//!
//! ```text
//!   memalloc --> allocate --> table:  [ Region | Region | ... ]   by address
//!   memfree  --> release  ------------- removes one
//!
//!   an Arc<Region> elsewhere (in a cached registration) keeps the pages mapped after that;
//!   the last Arc frees them
//! ```
//!
//! A registration is valid only while its memory stays mapped. An application may unmap and remap its own memory
//! unnoticed; a region stays mapped while it is referenced, so its registration stays valid.
//!
//! A region shares no page with other memory, whatever the page size: registering it may keep its pages from children
//! of `fork`, and heap memory beside it must not be lost with them.
//!
//! Owns: the table of regions that have not been released.
//! Out of scope: registrations.
//! Cost: a lock and a tree search, only for allocations of many pages.

use libc::c_void;
use mx_port_base::fork::ForkLock;
use mx_port_base::page::page_size;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static TABLE: ForkLock<BTreeMap<usize, Arc<Region>>> = ForkLock::new(BTreeMap::new());

static RELEASED: AtomicU64 = AtomicU64::new(0);

/// Whole pages from the C library, allocated for the application. They are freed with the last `Arc`, and so not before
/// [`release`].
pub struct Region {
    start: NonNull<c_void>,
    len: usize,
    /// True if the caller has passed the memory to `free`, so that it must not be freed again.
    lost: AtomicBool,
}

// SAFETY: gives no access to its bytes, and any thread may call `free`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Returns the address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    /// Returns the size of the region in bytes: whole pages, at least the requested size.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.lost.load(Ordering::Relaxed) {
            // SAFETY: allocated by posix_memalign; `release` means that the owner no longer uses it.
            unsafe { libc::free(self.start.as_ptr()) };
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:?}, {} bytes)", self.start, self.len)
    }
}

/// Returns the size in bytes of the region that [`allocate`] makes for `size` bytes; `None` on overflow.
pub fn len_for(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(page_size())
}

/// Allocates whole pages with at least `size` bytes, not initialized, and lists them by address for registrations.
/// [`release`] frees them. `None` without memory.
pub fn allocate(size: usize) -> Option<*mut c_void> {
    allocate_pages(len_for(size)?, page_size())
}

/// Allocates `len` bytes, a multiple of `page`, aligned to `page`.
fn allocate_pages(len: usize, page: usize) -> Option<*mut c_void> {
    let mut start = ptr::null_mut();
    // SAFETY: `start` is writable, and a page is a power of two.
    let code = unsafe { libc::posix_memalign(&raw mut start, page, len) };
    let start = NonNull::new(start).filter(|_| code == 0)?;
    let region = Arc::new(Region {
        start,
        len,
        lost: AtomicBool::new(false),
    });
    if let Some(old) = TABLE.lock().insert(start.addr().get(), region) {
        // The C library returned a known address, so the application has wrongly passed the old region to `free`.
        old.lost.store(true, Ordering::Relaxed);
    }
    Some(start.as_ptr())
}

/// Returns the size in bytes of the region that begins exactly at `start`; `None` if there is none.
pub fn len_at(start: *mut c_void) -> Option<usize> {
    Some(TABLE.lock().get(&start.addr())?.len)
}

/// Releases the region at `start`, which the application no longer uses. Its pages are freed at once, or with the last
/// `Arc` if registrations still refer to it. Returns false if no region begins there.
pub fn release(start: *mut c_void) -> bool {
    let Some(region) = TABLE.lock().remove(&start.addr()) else {
        return false;
    };
    if Arc::strong_count(&region) > 1 {
        RELEASED.fetch_add(1, Ordering::Relaxed);
    }
    true
}

/// Returns the region that contains all `len` bytes at `start`; `None` if there is none that has not been released.
pub fn find(start: *const u8, len: usize) -> Option<Arc<Region>> {
    let address = start.addr();
    let table = TABLE.lock();
    let (&base, region) = table.range(..=address).next_back()?;
    let end = (address - base).checked_add(len)?;
    (end <= region.len).then(|| Arc::clone(region))
}

/// Returns the number of regions that were released while registrations still referred to them. When it has grown, a
/// cache of registrations looks for such regions and gives them up.
pub fn released() -> u64 {
    RELEASED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_inside_a_region_are_found() {
        let start = allocate(100_000).unwrap();
        let first = start.cast::<u8>();
        let region = find(first, 100_000).unwrap();
        assert_eq!(region.start(), first);
        let len = region.len();
        assert!(len >= 100_000 && len_at(start) == Some(len));
        assert!(find(first.wrapping_add(5), len - 5).is_some());
        assert!(find(first.wrapping_add(5), len - 4).is_none());
        assert!(find(first.wrapping_add(len), 1).is_none());
        assert!(find(first, usize::MAX).is_none());
        drop(region);
        assert!(release(start));
        assert!(!release(start));
        assert!(find(first, 1).is_none());
    }

    /// Checks the bytes around regions, which the C library uses itself.
    #[test]
    fn a_region_has_its_pages_to_itself() {
        for page in [4096, 65536] {
            let regions: Vec<_> = (1..4)
                .map(|pages| allocate_pages(pages * page, page).unwrap())
                .collect();
            for (pages, start) in (1..4).zip(&regions) {
                assert_eq!(start.addr() % page, 0);
                assert_eq!(len_at(*start), Some(pages * page));
            }
            assert!(regions.into_iter().all(release));
        }
        for size in [1, page_size(), page_size() + 1, 100_000] {
            let len = len_for(size).unwrap();
            assert!(len >= size && len - size < page_size() && len % page_size() == 0);
            let start = allocate(size).unwrap();
            assert_eq!(start.addr() % page_size(), 0);
            assert_eq!(len_at(start), Some(len));
            assert!(release(start));
        }
        assert_eq!(len_for(usize::MAX), None);
        assert_eq!(allocate(usize::MAX), None);
    }

    #[test]
    fn memory_stays_mapped_while_its_region_is_held() {
        let start = allocate(1 << 20).unwrap();
        let region = find(start.cast(), 1).unwrap();
        let before = released();
        assert!(release(start));
        assert!(released() > before);
        // SAFETY: the region is held, so the pages are mapped and exclusively ours.
        unsafe { ptr::write_bytes(region.start(), 0x5a, region.len()) };
        assert_eq!(Arc::strong_count(&region), 1);
    }

    #[test]
    fn a_region_that_was_freed_behind_our_back_is_not_freed_twice() {
        let start = allocate(1 << 16).unwrap();
        let held = find(start.cast(), 1).unwrap();
        // A second region at one address, as after a stray `free`.
        let again = Arc::new(Region {
            start: NonNull::new(start).unwrap(),
            len: 1 << 16,
            lost: AtomicBool::new(false),
        });
        let old = TABLE.lock().insert(start.addr(), again).unwrap();
        old.lost.store(true, Ordering::Relaxed);
        drop((old, held));
        assert!(release(start));
    }
}
