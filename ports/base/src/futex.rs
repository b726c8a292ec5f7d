//! A lock in one word of the process's memory, whose waiters sleep in the kernel.
//!
//! ```text
//!   FREE --lock--> TAKEN --another thread waits--> AWAITED --unlock--> FREE, and one waiter is woken
//!                    `------------unlock--> FREE
//! ```
//!
//! A child of `fork` has a copy of the word and none of the threads that waited.
//!
//! Owns: the states of the word. `mx-sys/loom` runs this file in every order in which threads can meet.
//! Cost: an uncontended lock is one atomic operation, and so is giving it back.

#[cfg(loom)]
use crate::kernel::{wait, wake};
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::{sync::atomic::AtomicU32, time::Duration};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Threads may sleep until it is free.
const AWAITED: u32 = 2;

/// Looks at a taken lock before its thread sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };

/// The word of a lock.
#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    /// A lock that is free.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        let (on_success, on_failure) = (Ordering::Acquire, Ordering::Relaxed);
        (self.0)
            .compare_exchange(FREE, TAKEN, on_success, on_failure)
            .is_ok()
    }

    /// Takes the lock, when other threads have given it back.
    #[inline(always)]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.await_turn();
        }
    }

    #[cold]
    #[inline(never)]
    fn await_turn(&self) {
        for _ in 0..LOOKS {
            if self.0.load(Ordering::Relaxed) != TAKEN {
                break;
            }
            std::hint::spin_loop();
        }
        if self.try_lock() {
            return;
        }
        // A thread that has waited does not know whether others do.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            wait(&self.0, AWAITED);
        }
    }

    /// Gives the lock back, which the caller has.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0);
        }
    }
}

/// Sleeps until another thread wakes those that wait at `word`, or for no reason. Returns at once if its value is another one.
#[cfg(not(loom))]
#[cold]
fn wait(word: &AtomicU32, value: u32) {
    wait_for(word, value, None);
}

/// [`wait`] for at most `span`.
#[cfg(not(loom))]
fn wait_for(word: &AtomicU32, value: u32, span: Option<Duration>) {
    let span = span.map(|span| libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    });
    let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time live longer than the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, value, span) };
}

/// Wakes a thread that waits at `word`.
#[cfg(not(loom))]
#[cold]
fn wake(word: &AtomicU32) {
    let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel does not look at the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, 1) };
}

/// The word of a condition: counts the times that it was notified.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Notified(AtomicU32);

#[cfg(not(loom))]
impl Notified {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Gives a lock back until the condition is notified, `span` is over, or for no reason.
    pub(crate) fn wait(&self, lock: &Futex, span: Option<Duration>) {
        let before = self.0.load(Ordering::Relaxed);
        lock.unlock();
        wait_for(&self.0, before, span);
        lock.lock();
    }

    /// Wakes a thread that waits for it.
    pub(crate) fn notify_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        wake(&self.0);
    }
}
