//! Limits of the memory that a remote can make an endpoint hold, and the cost of an idle remote,
//! measured.
//!
//! ```text
//!   counting allocator:  bytes that this thread holds
//!   script:              one endpoint; the test plays all peers and sends whatever it likes
//!   early:               the same for the reliability layer below it
//! ```

mod data_links;
mod early;
mod hostile;
mod idle;
mod inbox;
mod lending;
mod shortage;

mod script;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// The bytes that this thread has allocated and not freed, as the allocator rounds them.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most bytes that this thread has held; while something grows, its old and its new copy.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The cost of `size` bytes to the C library: a word of its own, and multiples of 16. Memory of a
/// test fixture is left out.
fn taken(size: usize) -> isize {
    if mx_sim::is_aside() {
        return 0;
    }
    ((size + 8).next_multiple_of(16)).max(32) as isize
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + taken(layout.size()));
        PEAK.set(PEAK.get().max(LIVE.get()));
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - taken(layout.size()));
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        PEAK.set(PEAK.get().max(LIVE.get() + taken(size)));
        LIVE.set(LIVE.get() + taken(size) - taken(layout.size()));
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes that this thread holds.
pub(crate) fn live() -> isize {
    LIVE.get()
}

/// Returns the most bytes that this thread holds at a time while `f` runs, on top of those that it
/// held before.
pub(crate) fn peak_of(f: impl FnOnce()) -> isize {
    let before = LIVE.get();
    PEAK.set(before);
    f();
    PEAK.get() - before
}
