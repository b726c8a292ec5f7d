//! Memory of the fixtures, for tests that count the memory of the code under test.
//!
//! ```text
//!   port.poll(..)                    counted
//!       `- aside(|| ...)             memory of the datagram service: not counted
//! ```
//!
//! The counting allocator belongs to the test program, which asks [`is_aside`].

use std::cell::Cell;

thread_local! {
    static ASIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `what`, whose allocations a counting allocator leaves out. Memory allocated within is freed
/// within.
pub fn aside<T>(what: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            ASIDE.set(self.0);
        }
    }
    let _back = Back(ASIDE.replace(true));
    what()
}

/// Returns true within [`aside`].
pub fn is_aside() -> bool {
    // An ending thread no longer has this variable.
    ASIDE.try_with(Cell::get).unwrap_or(false)
}
