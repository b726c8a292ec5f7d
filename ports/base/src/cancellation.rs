//! `pthread_cancel`, which is kept off where a thread can end: in system calls, and while it sleeps.
//!
//! ```text
//!   C --> exported function
//!           matching, rings, tables              no cancellation point
//!           Off::new()
//!             polls of sockets, sends, sleeps    the thread would end here, in the middle
//!           drop
//!   C <--                                        it ends at its next cancellation point
//! ```
//!
//! A cancelled thread is unwound from where it is. That unwinding cannot be caught, so it would end the process at the
//! first frame of Rust's that has anything to clean up, or leave a lock taken.
//!
//! Cost: two calls of libc and two atomic operations, about 10 ns: too much for each call of a message over shared
//! memory, which has no system call.
//! Not here: `PTHREAD_CANCEL_ASYNCHRONOUS`. With it almost no function may be called, POSIX says.

use libc::c_int;

/// While it lives, this thread is not cancelled.
#[derive(Debug)]
#[must_use]
pub struct Off {
    before: c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

// The libc crate has neither.
/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

impl Off {
    /// From now on.
    #[inline]
    pub fn new() -> Self {
        let mut before = DISABLE;
        // SAFETY: `before` is writable. The call fails only for another state.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Default for Off {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Off {
    #[inline]
    fn drop(&mut self) {
        let mut none = DISABLE;
        // SAFETY: `none` is writable, and the state is one that was. No cancellation point.
        unsafe { pthread_setcancelstate(self.before, &raw mut none) };
    }
}

/// Whether an exported function reaches no system call but through a port or asleep, where it is kept off
/// anyway: those of each message.
pub const fn is_of_messages(function: &str) -> bool {
    let mut at = 0;
    while at < OF_MESSAGES.len() {
        if is_same(OF_MESSAGES[at], function) {
            return true;
        }
        at += 1;
    }
    false
}

const OF_MESSAGES: [&str; 25] = [
    "BMI_mx_cancel",
    "BMI_mx_memalloc",
    "BMI_mx_memfree",
    "BMI_mx_post_recv",
    "BMI_mx_post_recv_list",
    "BMI_mx_post_send",
    "BMI_mx_post_send_list",
    "BMI_mx_post_sendunexpected",
    "BMI_mx_post_sendunexpected_list",
    "BMI_mx_test",
    "BMI_mx_testcontext",
    "BMI_mx_testsome",
    "BMI_mx_testunexpected",
    "BMI_mx_unexpected_free",
    "mx_buffered",
    "mx_ibuffered",
    "mx_iprobe",
    "mx_irecv",
    "mx_isend",
    "mx_issend",
    "mx_progress",
    "mx_test",
    "mx_test_any",
    "mx_wait",
    "mx_wait_any",
];

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
        let outer = Off::new();
        let inner = Off::new();
        assert_eq!(inner.before, DISABLE);
        drop(inner);
        assert_eq!(Off::new().before, DISABLE);
        let first = outer.before;
        drop(outer);
        assert_eq!(Off::new().before, first);
    }

    #[test]
    fn functions_of_messages_are_known_by_their_names() {
        assert!(is_of_messages("mx_isend") && is_of_messages("BMI_mx_testcontext"));
        assert!(!is_of_messages("BMI_mx_initialize") && !is_of_messages("mx_isen"));
    }
}
