//! The kernel, of which loom has to know who sleeps and who wakes whom.
//!
//! ```text
//!   write, read:  lock --> the real call --> tell sleepers
//!   ppoll:        lock --> the real call, without waiting --nothing--> sleep in loom, again
//! ```
//!
//! Owns: one lock, and the time.

use libc_real::{c_int, c_long, clockid_t, nfds_t, pollfd, sigset_t, timespec};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use nix_real::{Result, unistd};
use std::cell::Cell;
use std::os::fd::AsFd;

struct Kernel {
    lock: Mutex<()>,
    changed: Condvar,
}

loom::lazy_static! {
    static ref KERNEL: Kernel = Kernel { lock: Mutex::new(()), changed: Condvar::new() };
}

thread_local! {
    /// Nanoseconds. All threads of a model are one of the system's, which takes turns.
    static TIME: Cell<i64> = const { Cell::new(0) };
}

/// Each look at the clock takes a while, the same in each run.
const LOOK_NS: i64 = 100;

/// Begins a run of a model.
pub(crate) fn reset() {
    TIME.set(0);
}

pub fn write(fd: impl AsFd, from: &[u8]) -> Result<usize> {
    let _kernel = KERNEL.lock.lock().unwrap();
    let written = unistd::write(fd, from);
    KERNEL.changed.notify_all();
    written
}

pub fn read(fd: impl AsFd, into: &mut [u8]) -> Result<usize> {
    let _kernel = KERNEL.lock.lock().unwrap();
    unistd::read(fd, into)
}

/// # Safety
/// As the real one.
pub unsafe fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    span: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let at_once = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut kernel = KERNEL.lock.lock().unwrap();
    let mut waited = false;
    loop {
        // SAFETY: the caller's promise; the time outlives the call.
        let ready = unsafe { libc_real::ppoll(fds, count, &raw const at_once, mask) };
        if ready != 0 || waited {
            return ready;
        }
        if span.is_null() {
            kernel = KERNEL.changed.wait(kernel).unwrap();
        } else {
            drop(kernel);
            loom::thread::yield_now();
            kernel = KERNEL.lock.lock().unwrap();
            waited = true;
        }
    }
}

/// `FUTEX_WAIT`: sleeps unless the word has changed already.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    let kernel = KERNEL.lock.lock().unwrap();
    if word.load(Ordering::Relaxed) == value {
        drop(KERNEL.changed.wait(kernel).unwrap());
    }
}

/// `FUTEX_WAKE`.
pub(crate) fn wake(_word: &AtomicU32) {
    let _kernel = KERNEL.lock.lock().unwrap();
    KERNEL.changed.notify_one();
}

/// # Safety
/// As the real one.
pub unsafe fn clock_gettime(_clock: clockid_t, now: *mut timespec) -> c_int {
    let time = TIME.get() + LOOK_NS;
    TIME.set(time);
    let time = timespec {
        tv_sec: 0,
        tv_nsec: time,
    };
    // SAFETY: the caller's promise.
    unsafe { now.write(time) };
    0
}

/// # Safety
/// None is needed; the real one is as unsafe.
pub unsafe fn sysconf(_name: c_int) -> c_long {
    // Processors: threads may spin.
    2
}
