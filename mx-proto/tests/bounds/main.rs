//! Limits of the memory that a remote can make an endpoint hold, and the cost of a quiet one: measured.
//!
//! ```text
//!   counting allocator:  bytes that this thread holds
//!   script:              one endpoint, all peers are the test, which says what it likes
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
    /// The most it ever held, both copies of what grows included.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The C library's cost of `size` bytes: a word of its own, and 16 at a time. A fixture's memory is left out.
fn taken(size: usize) -> isize {
    if mx_sim::is_aside() {
        return 0;
    }
    ((size + 8).next_multiple_of(16)).max(32) as isize
}

// SAFETY: hands everything on to the system's allocator.
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

/// Bytes this thread holds.
pub(crate) fn live() -> isize {
    LIVE.get()
}

/// The most that this thread holds at a time while `f` runs, on top of what it holds before.
pub(crate) fn peak_of(f: impl FnOnce()) -> isize {
    let before = LIVE.get();
    PEAK.set(before);
    f();
    PEAK.get() - before
}
