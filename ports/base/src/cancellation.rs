//! Disables `pthread_cancel` around cancellation points: system calls and sleeps.
//!
//! ```text
//!   C --> exported function
//!           matching, rings, tables              no cancellation point
//!           CancellationDisabled::new()
//!             polls of sockets, sends, sleeps    the thread would end here, in the middle
//!           drop
//!   C <--                                        it ends at its next cancellation point
//! ```
//!
//! A cancelled thread is unwound from where it is. The unwinding cannot be caught, so it would abort the process at the
//! first Rust frame with something to drop, or leave a lock held.
//!
//! Cost: two calls of libc and two atomic operations, about 10 ns: too much for each call of a message over shared
//! memory, which makes no system call.
//! Out of scope: `PTHREAD_CANCEL_ASYNCHRONOUS`, under which POSIX allows almost no function to be called.

use libc::c_int;

/// Guard that keeps `pthread_cancel` from ending this thread while it exists. A request stays pending, and takes effect
/// at the next cancellation point after the drop.
#[derive(Debug)]
#[must_use]
pub struct CancellationDisabled {
    before: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`, which the libc crate lacks.
const DISABLE: c_int = 1;

impl CancellationDisabled {
    /// Disables cancellation of this thread; dropping the guard restores the state found here, so guards may nest.
    #[inline]
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: `before` is writable. The call fails only for another state.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Default for CancellationDisabled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CancellationDisabled {
    #[inline]
    fn drop(&mut self) {
        let mut none = DISABLE;
        // SAFETY: `none` is writable, and the state is one that libc returned. Not a cancellation point.
        unsafe { pthread_setcancelstate(self.before, &raw mut none) };
    }
}

/// Returns whether `all` contains `name`. The macros that export functions call it at compile time to find the
/// functions that need not disable cancellation.
pub const fn is_one_of(name: &str, all: &[&str]) -> bool {
    let mut at = 0;
    while at < all.len() {
        if is_same(all[at], name) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_ones_restore_what_was() {
        let outer = CancellationDisabled::new();
        let inner = CancellationDisabled::new();
        assert_eq!(inner.before, DISABLE);
        drop(inner);
        assert_eq!(CancellationDisabled::new().before, DISABLE);
        let first = outer.before;
        drop(outer);
        assert_eq!(CancellationDisabled::new().before, first);
    }

    #[test]
    fn a_name_is_found_as_a_whole() {
        const ALL: [&str; 2] = ["mx_isend", "mx_test"];
        assert!(is_one_of("mx_isend", &ALL) && is_one_of("mx_test", &ALL));
        assert!(!is_one_of("mx_wait", &ALL) && !is_one_of("mx_isen", &ALL));
    }
}
