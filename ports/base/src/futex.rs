//! Lock in one futex word, whose waiters sleep in the kernel.
//!
//! ```text
//!   FREE --lock--> TAKEN --another thread waits--> AWAITED --unlock--> FREE, and one waiter is woken
//!                    `------------unlock--> FREE
//! ```
//!
//! A child of `fork` has a copy of the word and none of the waiting threads.
//!
//! Owns: the states of the word. `mx-sys/loom` checks this file under every interleaving of its threads.
//! Cost: an uncontended lock is one atomic operation, and so is an unlock.

#[cfg(loom)]
use crate::kernel::{wait, wake};
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::{sync::atomic::AtomicU32, time::Duration};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and threads may be sleeping until it is free.
const AWAITED: u32 = 2;

/// Number of times a thread looks at a taken lock before it sleeps.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 100 };

#[derive(Debug)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    /// Creates a free lock.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Acquires the lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        let (on_success, on_failure) = (Ordering::Acquire, Ordering::Relaxed);
        (self.0)
            .compare_exchange(FREE, TAKEN, on_success, on_failure)
            .is_ok()
    }

    /// Acquires the lock, waiting for it if necessary.
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
        // A thread that has waited does not know whether others still do.
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            wait(&self.0, AWAITED);
        }
    }

    /// Releases the lock, which the caller holds.
    #[inline(always)]
    pub(crate) fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0);
        }
    }
}

/// Sleeps until another thread wakes the waiters of `word`, or spuriously. Returns at once unless its value is `value`.
#[cfg(not(loom))]
#[cold]
fn wait(word: &AtomicU32, value: u32) {
    wait_for(word, value, None);
}

/// Sleeps like [`wait`], for at most `span`; `None`: without a timeout.
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

/// Wakes one thread that waits at `word`.
#[cfg(not(loom))]
#[cold]
fn wake(word: &AtomicU32) {
    let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel does not look at the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), how, 1) };
}

/// Condition variable: a count of notifications.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Notified(AtomicU32);

#[cfg(not(loom))]
impl Notified {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Releases `lock` until notified, for at most `span`, and reacquires it. Spurious wake-ups are possible.
    pub(crate) fn wait(&self, lock: &Futex, span: Option<Duration>) {
        let before = self.0.load(Ordering::Relaxed);
        lock.unlock();
        wait_for(&self.0, before, span);
        lock.lock();
    }

    /// Wakes one waiting thread.
    pub(crate) fn notify_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        wake(&self.0);
    }
}
