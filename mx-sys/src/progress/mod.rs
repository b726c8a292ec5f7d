//! A lock around an engine, and threads that wait for its events.
//!
//! ```text
//!   post:  lock ------------------> engine          wait_until(check):
//!                                     ^               progress, check        every time
//!   +---------- Shared<T> ------------|----+          spin a little          in an exchange
//!   |  Mutex { engine T, waiters }    |    |          sleep:  progress thread  in the kernel, armed
//!   |                                 |    |                  waiters on a doorbell each
//!   |  Helper thread -----------------'    |
//!   +--------------------------------------+
//! ```
//!
//! At most one thread sleeps in the kernel on the engine's descriptors: the *progress thread*, or, while no application
//! thread polls or waits, the helper. Other waiting threads are *waiters* and sleep until another thread finds an event
//! for them. The engine is *armed* (peers must wake this process) exactly while such a thread sleeps and no other polls
//! the engine.
//!
//! No wake-up is lost: a thread that releases the lock while others sleep first notifies them of the events produced
//! ([`Progress::take_produced`]) and arms the engine again ([`Progress::arm`] refuses while there is anything to do).
//!
//! Owns: the lock, the doorbells, the order of waiting threads. Each thread waits until its `check` succeeds.
//! Cost: a poll is one uncontended lock. System calls only to sleep or to wake.

mod helper;
#[cfg(loom)]
#[path = "../../loom/src/models.rs"]
mod models;
mod sleep;
mod spin;
mod wait;

pub use helper::Helper;
pub use sleep::DOORBELL;

use crate::cancellation::CancellationDisabled;
use crate::clock::MonotonicClock;
use crate::eventfd::EventFd;
use crate::fork::{ForkHold, ForkMark, Held, hold_outer};
use crate::lock::{Mutex, MutexGuard};
use mx_proto::port::WakeDescriptors;
use mx_proto::{Clock, Instant};
use spin::Spin;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use wait::{HelperState, Waiting};

/// A set of events that threads can wait for, one bit each; defined by the engine's users.
pub type Interest = u64;

/// Interest in every event.
pub const EVERYTHING: Interest = u64::MAX;

/// Default time that a waiting thread polls memory before it sleeps: slightly more than a metadata server takes to
/// answer from memory (0.12 ms in OrangeFS).
const DEFAULT_SPIN: Duration = Duration::from_micros(200);

/// Engine (a library's protocol endpoint) that works only when a thread calls it, and knows when to be called next.
pub trait Progress {
    /// Receives what has arrived and sends what can be sent. Never blocks. Returns whether anything happened.
    fn progress(&mut self) -> bool;

    /// Returns the interests with new events since the last call. A superfluous bit costs a wake-up; a missing bit is a
    /// lost wake-up.
    fn take_produced(&mut self) -> Interest;

    /// Prepares for sleeping; see [`mx_proto::port::LinkControl::arm`]. Returns false if [`Progress::progress`] has
    /// work to do. May be called while armed.
    fn arm(&mut self) -> bool;

    /// Undoes [`Progress::arm`]. May be called while not armed.
    fn disarm(&mut self);

    /// Records that the control descriptor is readable: the next [`Progress::progress`] must handle it.
    fn note_control(&mut self);

    /// Passes on the ready tokens of a sleep in [`Progress::set`], so that the next [`Progress::progress`] need not ask
    /// the kernel. Called after [`Progress::disarm`]. Without this call, progress checks every descriptor.
    fn note_ready(&mut self, tokens: &[u64]) {
        let _ = tokens;
    }

    /// Returns an epoll instance with every descriptor that wakes a sleeper, those behind the control descriptor
    /// included, and a number unique to that instance within the process. `None` if there is no such instance.
    fn set(&self) -> Option<(RawFd, u64)> {
        None
    }

    /// Returns whether [`Progress::progress`] at present nearly always reads memory only; otherwise it makes system
    /// calls.
    fn looks_at_memory(&self) -> bool {
        true
    }

    /// Returns the time at which [`Progress::progress`] should be called even if nothing arrives.
    fn deadline(&self) -> Option<Instant>;

    /// Returns the descriptors to sleep on.
    fn descriptors(&self) -> WakeDescriptors;

    /// Returns whether an endpoint is open.
    fn active(&self) -> bool;

    /// Ends all operations because the host has closed descriptors of the engine: everything is produced, and the
    /// descriptors are no longer used. May be called again.
    fn lose(&mut self) {}

    /// Calls [`Progress::lose`] if the host has closed descriptors, as far as one system call tells.
    fn check_descriptors(&mut self) {}

    /// Returns whether [`Progress::lose`] was called. If so, there are no doorbells, and each check has to succeed.
    fn is_lost(&self) -> bool {
        false
    }

    /// Called before a thread sleeps on the engine's descriptors: publishes the values that tools read meanwhile. The
    /// argument has the counters of waiting threads.
    fn on_sleep(&mut self, _waits: &WaitStats) {}

    /// Called in a child right after `fork`, if the engine was registered with [`Shared::inherit`]; see
    /// [`Held::in_child`].
    fn in_child(&mut self) {}

    /// Returns whether packets are held back until [`Progress::progress`] or [`Progress::send_held`].
    fn holds(&self) -> bool {
        false
    }

    /// Sends the packets that are held back.
    fn send_held(&mut self) {}

    /// Returns the time at which [`Progress::give_back`] should be called. The helper thread wakes up for it; without a
    /// helper, the next thread that goes to sleep after that time calls it.
    fn give_back_due() -> Option<Instant> {
        None
    }

    /// Returns unused memory to the system. Called without the lock.
    fn give_back() {}
}

/// Calls [`Progress::give_back`] if due.
#[inline]
fn give_back_if_due<T: Progress>() {
    if T::give_back_due().is_some_and(|due| due <= MonotonicClock.now()) {
        T::give_back();
    }
}

/// Settings of waiting threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// Time that a waiting thread polls before it sleeps, where a poll reads memory only; half of it where a poll makes
    /// system calls. Treated as zero on a machine with one processor.
    pub spin: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { spin: DEFAULT_SPIN }
    }
}

impl Tuning {
    fn spin(self) -> Spin {
        Spin::new(match processors() {
            1 => Duration::ZERO,
            _ => self.spin,
        })
    }
}

mx_proto::counters! {
    /// Counters of waiting threads, for tests and tools.
    pub struct WaitStats("wait_") {
        Count spins: u64 = "times a waiting thread polled before it slept",
        Count vain_spins: u64 = "times that polling found nothing and the thread slept",
        Count long_yields: u64 = "times a polling thread offered its processor and had it back after 1 ms or more",
        Count progress_thread_sleeps: u64 = "times a thread went to sleep in the kernel for all",
        Count waiter_sleeps: u64 = "times a thread went to sleep behind another one",
        Count progress_thread_wakes: u64 = "times the first sleeper was woken by another thread",
        Count waiter_wakes: u64 = "times a thread behind it was woken for its own completion",
        Count handovers: u64 = "times a thread behind it was woken to take its place",
        Count helper_arms: u64 = "times the helper thread went to sleep on the network",
        Count stand_downs: u64 = "times the helper thread yielded to a thread of the application",
    }
}

/// Engine behind a lock, shared by all threads of the process, which also poll, wait and sleep through this value.
pub struct Shared<T> {
    core: Mutex<Core<T>>,
    /// Number of threads that wait for the lock.
    contenders: AtomicU32,
    /// Number of polls and waits of application threads. Written under the lock.
    attention: AtomicU64,
    mark: ForkMark,
}

/// Doorbells of the two threads that sleep in the kernel. A thread that sleeps on or rings one holds a reference
/// meanwhile, so that they can be closed at any time.
#[derive(Debug)]
struct Doorbells {
    progress_thread: EventFd,
    helper: EventFd,
    /// Number of the epoll instance that contains the progress thread's doorbell.
    joined: AtomicU64,
}

impl Doorbells {
    fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            progress_thread: EventFd::new()?,
            helper: EventFd::new()?,
            joined: AtomicU64::new(0),
        }))
    }

    /// Adds the progress thread's doorbell to the set if needed, and returns the set's descriptor. Called with the lock
    /// held.
    fn join(&self, (set, number): (RawFd, u64)) -> Option<RawFd> {
        if self.joined.load(Ordering::Relaxed) != number {
            if !sleep::join(set, &self.progress_thread) {
                return None;
            }
            self.joined.store(number, Ordering::Relaxed);
        }
        Some(set)
    }
}

struct Core<T> {
    value: T,
    waiting: Waiting,
}

type CoreGuard<'a, T> = MutexGuard<'a, Core<T>>;

impl<T: Progress> Shared<T> {
    /// Puts `value` behind a lock. `tuning` says how long waiting threads poll before they sleep. Fails if no file
    /// descriptors are left for the doorbells, which wake sleeping threads.
    pub fn new(value: T, tuning: Tuning) -> io::Result<Self> {
        let waiting = Waiting::new(tuning.spin(), Doorbells::new()?);
        Ok(Self {
            core: Mutex::new(Core { value, waiting }),
            contenders: AtomicU32::new(0),
            attention: AtomicU64::new(0),
            mark: ForkMark::new(),
        })
    }

    /// Replaces the settings of waiting threads, for another engine behind this lock. Opens new doorbells if
    /// [`Shared::end`] has closed them, and fails if no file descriptors are left.
    pub fn retune(&self, tuning: Tuning) -> io::Result<()> {
        self.lock().retune(tuning)
    }

    /// Locks the engine, to post operations. Threads waiting for the events that this produces are woken when the guard
    /// is dropped.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard {
            shared: self,
            core: ManuallyDrop::new(self.acquire()),
        }
    }

    /// Locks the engine as [`Shared::lock`] does, or returns `None` at once if another thread has the lock.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let core = ManuallyDrop::new(self.core.try_lock()?);
        Some(Guard { shared: self, core })
    }

    /// Locks the engine as [`Shared::lock_for_poll`] does, so that the helper thread leaves progress to the caller.
    /// Returns `None` at once if another thread has the lock.
    #[inline(always)]
    pub fn try_lock_for_poll(&self) -> Option<Guard<'_, T>> {
        Some(self.for_poll(self.core.try_lock()?))
    }

    /// Locks the engine for an application thread that polls or waits. The helper thread stands down and leaves
    /// progress to that thread.
    #[inline]
    pub fn lock_for_poll(&self) -> Guard<'_, T> {
        self.for_poll(self.acquire())
    }

    #[inline(always)]
    fn for_poll<'a>(&'a self, mut core: CoreGuard<'a, T>) -> Guard<'a, T> {
        // Written under the lock, so no increment is lost.
        let attention = self.attention.load(Ordering::Relaxed);
        self.attention
            .store(attention.wrapping_add(1), Ordering::Relaxed);
        if core.waiting.sleepers
            && let HelperState::Armed(_) = core.waiting.helper
        {
            self.suspend_helper(&mut core);
        }
        Guard {
            shared: self,
            core: ManuallyDrop::new(core),
        }
    }

    /// Returns whether this process made or claimed this value; false in a child of `fork`, where the engine's
    /// connections are the parent's.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.mark.is_mine()
    }

    /// Makes the current process the owner, so that [`Shared::is_mine`] returns true: called in a child of `fork` that
    /// has reopened or dropped the endpoint.
    pub fn claim(&self) {
        self.mark.claim();
    }

    /// Returns the counters of waiting threads.
    pub fn wait_stats(&self) -> WaitStats {
        self.acquire().waiting.stats
    }

    /// Closes the doorbells and wakes the thread that sleeps in the kernel; afterwards no thread sleeps there. Called
    /// for an engine that has ended, and whose checks all report that.
    pub fn end(&self) {
        let mut core = self.acquire();
        let doorbells = core.doorbells();
        core.waiting.doorbells = None;
        self.release(core);
        if let Some(doorbells) = doorbells {
            // The last thread that sleeps on the doorbells closes them.
            doorbells.progress_thread.ring();
        }
    }

    fn doorbells(&self) -> Option<Arc<Doorbells>> {
        let mut core = self.acquire();
        let doorbells = core.doorbells();
        self.release(core);
        doorbells
    }

    /// Consumes the lock and returns the engine.
    pub fn into_inner(self) -> T {
        self.core.into_inner().value
    }

    /// Takes the lock; a spinning thread gives way.
    #[inline]
    fn acquire(&self) -> CoreGuard<'_, T> {
        match self.core.try_lock() {
            Some(core) => core,
            None => self.acquire_contended(),
        }
    }

    #[cold]
    fn acquire_contended(&self) -> CoreGuard<'_, T> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Releases the lock briefly if other threads wait for it.
    #[inline]
    fn let_others_in<'a>(&'a self, core: CoreGuard<'a, T>) -> CoreGuard<'a, T> {
        if self.contenders.load(Ordering::Relaxed) == 0 {
            return core;
        }
        self.release(core);
        for _ in 0..32 {
            std::hint::spin_loop();
        }
        self.acquire()
    }

    /// Releases the lock. Every release goes through this function, so that sleepers are notified.
    #[inline(always)]
    fn release(&self, core: CoreGuard<'_, T>) {
        if core.waiting.sleepers {
            Self::release_to_sleepers(core);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_sleepers(mut core: CoreGuard<'_, T>) {
        if core.waiting.no_sleepers() {
            return;
        }
        let rings = core.notify();
        drop(core);
        rings.ring();
    }
}

impl<T: Progress + Send + 'static> Shared<T> {
    /// Registers the engine to be locked while the process forks, so that a child finds it consistent, unlocked, and
    /// without waiting threads. [`Shared::retune`] makes the child's doorbells. Called once, without the lock.
    pub fn inherit(&'static self) {
        hold_outer(self);
    }
}

impl<T: Progress + Send + 'static> ForkHold for Shared<T> {
    fn hold(&'static self) -> Box<dyn Held> {
        Box::new(HeldOverFork {
            shared: self,
            core: self.acquire(),
        })
    }
}

/// The locked engine while its process forks. Nothing changes meanwhile, so no sleeper has to be notified.
struct HeldOverFork<T: 'static> {
    shared: &'static Shared<T>,
    core: CoreGuard<'static, T>,
}

impl<T: Progress> Held for HeldOverFork<T> {
    fn in_child(&mut self) {
        self.shared.contenders.store(0, Ordering::Relaxed);
        self.core.waiting.forget_threads();
        self.core.value.in_child();
    }
}

/// Returns the number of processors of this machine, not of the affinity mask: a process pinned to one of many still
/// waits for peers on the others.
fn processors() -> i64 {
    // SAFETY: takes no pointers.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Exclusive access to the engine. Dropping this value releases the lock and wakes the threads whose events have been
/// produced meanwhile.
pub struct Guard<'a, T: Progress> {
    shared: &'a Shared<T>,
    /// Valid until `drop`.
    core: ManuallyDrop<CoreGuard<'a, T>>,
}

impl<'a, T: Progress> Guard<'a, T> {
    /// Returns the engine with its lock, for use after this guard.
    pub fn shared(&self) -> &'a Shared<T> {
        self.shared
    }

    /// Returns whether packets sent now may be held back, to leave together with later ones: true if the helper thread
    /// can be woken to send them, and no other thread sleeps.
    #[inline(always)]
    pub fn may_hold(&self) -> bool {
        self.core.waiting.may_hold()
    }

    /// Schedules the helper to send the packets held back, unless a thread polls before.
    #[inline(always)]
    pub fn send_held_soon(&mut self) {
        if self.core.value.holds() {
            self.core.waiting.wake_for_held();
        }
    }

    /// Checks with one system call whether the host has closed the engine's descriptors, and if so ends all operations
    /// ([`Progress::lose`]) and drops the doorbells. Returns true if the descriptors are lost, now or since an earlier
    /// call.
    pub fn check_lost(&mut self) -> bool {
        self.core.value.check_descriptors();
        let _ = self.core.doorbells();
        self.core.value.is_lost()
    }

    /// Does what [`Shared::retune`] does, with the lock held.
    pub fn retune(&mut self, tuning: Tuning) -> io::Result<()> {
        let waiting = &mut self.core.waiting;
        waiting.spin = tuning.spin();
        if waiting.doorbells.is_none() {
            waiting.doorbells = Some(Doorbells::new()?);
        }
        Ok(())
    }

    /// Releases the lock and waits as [`Shared::wait_for`] does, until `check` returns a value; `None` after `timeout`.
    /// Called after `check` has found nothing.
    #[cold]
    #[inline(never)]
    pub fn wait<R>(
        self,
        interest: Interest,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let _off = CancellationDisabled::new();
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: taken once, as this guard is not dropped.
        let core = unsafe { ManuallyDrop::take(&mut guard.core) };
        guard.shared.wait(core, interest, timeout, &mut check)
    }
}

impl<T: Progress> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.core.value
    }
}

impl<T: Progress> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.core.value
    }
}

impl<T: Progress> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: taken once, here, and `self` is not used afterwards.
        let core = unsafe { ManuallyDrop::take(&mut self.core) };
        self.shared.release(core);
    }
}

impl<T: Progress> fmt::Debug for Guard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}
