//! Threads of this library's own, in processes whose threads are others' business.
//!
//! Owns: blocking signals, which are the application's.

use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::panic::resume_unwind;
use std::thread::{self, Builder, JoinHandle};

/// Starts a thread with all signals blocked.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = SignalsBlocked::new();
    Builder::new().name(name.to_owned()).spawn(run)
}

/// Calls `run` in a thread, for work that takes more stack than callers may have; where there is no thread, on the
/// caller's.
pub fn apart<T: Send>(name: &str, run: impl FnOnce() -> T + Send) -> T {
    // In here until it is called: who refuses a thread drops what the thread would have called.
    let mut run = Some(run);
    let done = thread::scope(|scope| {
        let call = || run.take().map(|run| run());
        let blocked = SignalsBlocked::new();
        let started = Builder::new()
            .name(name.to_owned())
            .spawn_scoped(scope, call);
        drop(blocked);
        started
            .ok()
            .and_then(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    // Not called yet means that there was no thread.
    done.or_else(|| run.map(|run| run()))
        .unwrap_or_else(|| unreachable!("it is called once"))
}

/// Blocks all signals in this thread until it is dropped.
pub(crate) struct SignalsBlocked {
    before: SigSet,
}

impl SignalsBlocked {
    pub(crate) fn new() -> Self {
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        Self {
            before: before.unwrap_or_else(|_| SigSet::empty()),
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
