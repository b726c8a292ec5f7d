//! Threads of this library's own, in processes whose threads are others' business.
//!
//! Owns: blocking signals, which are the application's.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with all signals blocked.
pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let _blocked = SignalsBlocked::new();
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Blocks all signals in this thread until it is dropped.
struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigfillset initialises `all`; pthread_sigmask reads it and writes `before`,
        // which is a valid (empty) set even if the call should fail.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: `before` is a set that pthread_sigmask gave us.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}
