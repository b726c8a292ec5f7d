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
//! At most one thread sleeps in the kernel on the engine's descriptors: the *progress thread*, or,
//! while no application thread polls or waits, the helper. Other waiting threads are *waiters* and
//! sleep until another thread finds an event for them. The engine is *armed* (peers must wake us)
//! exactly while such a thread sleeps and no other polls the engine.
//!
//! No wake-up is lost: a thread that releases the lock while others sleep first notifies them of
//! the events produced ([`Progress::take_produced`]), and arms the engine again ([`Progress::arm`]
//! refuses while there is anything to do).
//!
//! Owns: the lock, the doorbells, the order of waiting threads. Each thread waits until its `check`
//! succeeds.
//! Cost: a poll is one uncontended lock. A system call only to sleep or to wake.

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

/// Events that threads can wait for, one bit each; defined by the engine's users.
pub type Interest = u64;

/// Everything.
pub const EVERYTHING: Interest = u64::MAX;

/// The default time that a waiting thread polls memory before it sleeps: a little more than a metadata
/// server takes for an answer from its memory (0.12 ms in OrangeFS).
const DEFAULT_SPIN: Duration = Duration::from_micros(200);

/// Something that makes progress when it is called, and can tell when to call it next.
pub trait Progress {
    /// Takes in what has arrived and gives out what can go. Never blocks. Returns whether anything
    /// happened.
    fn progress(&mut self) -> bool;

    /// The interests with new events since the last call. A bit set in vain costs a wake-up; a
    /// missing bit is a lost wake-up.
    fn take_produced(&mut self) -> Interest;

    /// Prepares for sleeping; see [`mx_proto::port::LinkControl::arm`]. Returns false when
    /// [`Progress::progress`] has something to do. May be called again while it is armed.
    fn arm(&mut self) -> bool;

    /// The opposite of [`Progress::arm`]. May be called when it is not armed.
    fn disarm(&mut self);

    /// The control descriptor is readable: the next [`Progress::progress`] must see to it.
    fn note_control(&mut self);

    /// The thread that slept in [`Progress::set`] was given exactly these tokens, so the next
    /// [`Progress::progress`] need not ask the kernel. Called after [`Progress::disarm`]. Without
    /// it everything is checked.
    fn note_ready(&mut self, tokens: &[u64]) {
        let _ = tokens;
    }

    /// An epoll instance with everything in it that wakes a sleeper, what the control descriptor
    /// stands for too; and a number that no other one of this process has had.
    fn set(&self) -> Option<(RawFd, u64)> {
        None
    }

    /// Whether [`Progress::progress`] looks at memory alone nearly always at present; otherwise it makes system calls.
    fn looks_at_memory(&self) -> bool {
        true
    }

    /// The time at which [`Progress::progress`] should be called although nothing arrives.
    fn deadline(&self) -> Option<Instant>;

    /// The descriptors to sleep on.
    fn descriptors(&self) -> WakeDescriptors;

    /// There is an endpoint to look after.
    fn active(&self) -> bool;

    /// Ends what is under way, because the host has closed descriptors of the engine: everything is produced, and the
    /// descriptors are used no more. May be called again.
    fn lose(&mut self) {}

    /// Calls [`Progress::lose`] if the host has closed descriptors, as far as one system call tells.
    fn check_descriptors(&mut self) {}

    /// Returns whether [`Progress::lose`] was called. Then there are no doorbells, and each check has to succeed.
    fn is_lost(&self) -> bool {
        false
    }

    /// A thread goes to sleep on the engine's descriptors: the time to write down what others may
    /// look at meanwhile. `waits` is what has been counted of waiting threads.
    fn on_sleep(&mut self, _waits: &WaitStats) {}

    /// In a child of `fork`, right after it, when it was made with [`Shared::inherit`]; see
    /// [`Held::in_child`].
    fn in_child(&mut self) {}

    /// Whether packets are held back, until [`Progress::progress`] or [`Progress::send_held`].
    fn holds(&self) -> bool {
        false
    }

    /// Sends the packets that are held back.
    fn send_held(&mut self) {}

    /// The time at which [`Progress::give_back`] should be called. It wakes the helper thread; without one, a
    /// thread that goes to sleep after that calls it.
    fn give_back_due() -> Option<Instant> {
        None
    }

    /// Gives back memory that has not been used for a while. Called without the lock.
    fn give_back() {}
}

/// Gives back memory if that is due.
#[inline]
fn give_back_if_due<T: Progress>() {
    if T::give_back_due().is_some_and(|due| due <= MonotonicClock.now()) {
        T::give_back();
    }
}

/// Settings of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// The time that a waiting thread polls before it sleeps, where a poll looks at memory alone; half of it where a poll makes
    /// system calls. Zero on a machine with one processor.
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
    /// Counters, for tests and tools.
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

/// An engine shared by all threads of the process.
pub struct Shared<T> {
    core: Mutex<Core<T>>,
    /// Threads that wait for the lock.
    contenders: AtomicU32,
    /// Polls and waits of application threads. Written under the lock.
    attention: AtomicU64,
    mark: ForkMark,
}

/// The doorbells of the two threads that sleep in the kernel. A thread that sleeps or rings holds a
/// reference meanwhile, so that they can be closed at any time.
#[derive(Debug)]
struct Doorbells {
    progress_thread: EventFd,
    helper: EventFd,
    /// The number of the set that the progress thread's is in.
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

    /// The set to sleep in, once the progress thread's doorbell is in it. Called with the lock held.
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
    /// Puts `value` behind a lock. Fails when there are no descriptors left.
    pub fn new(value: T, tuning: Tuning) -> io::Result<Self> {
        let waiting = Waiting::new(tuning.spin(), Doorbells::new()?);
        Ok(Self {
            core: Mutex::new(Core { value, waiting }),
            contenders: AtomicU32::new(0),
            attention: AtomicU64::new(0),
            mark: ForkMark::new(),
        })
    }

    /// Tunes waiting anew, for another engine behind the same lock. Fails when the descriptors were given
    /// back ([`Shared::end`]) and there are no others.
    pub fn retune(&self, tuning: Tuning) -> io::Result<()> {
        self.lock().retune(tuning)
    }

    /// Access to the engine, to post operations. Who was waiting for what comes out of it is woken
    /// when the guard is dropped.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        Guard {
            shared: self,
            core: ManuallyDrop::new(self.acquire()),
        }
    }

    /// [`Shared::lock`], if no other thread has the lock.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        let core = ManuallyDrop::new(self.core.try_lock()?);
        Some(Guard { shared: self, core })
    }

    /// [`Shared::lock_for_poll`], if no other thread has the lock.
    #[inline(always)]
    pub fn try_lock_for_poll(&self) -> Option<Guard<'_, T>> {
        Some(self.for_poll(self.core.try_lock()?))
    }

    /// [`Shared::lock`] by an application thread that polls or waits: the helper leaves the engine to it.
    #[inline]
    pub fn lock_for_poll(&self) -> Guard<'_, T> {
        self.for_poll(self.acquire())
    }

    #[inline(always)]
    fn for_poll<'a>(&'a self, mut core: CoreGuard<'a, T>) -> Guard<'a, T> {
        // Written under the lock, so no count is lost.
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

    /// False in a child of the process that made this or has claimed it: what its engine has to do with
    /// others is the parent's.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.mark.is_mine()
    }

    /// From now on it is this process's.
    pub fn claim(&self) {
        self.mark.claim();
    }

    /// The counters.
    pub fn wait_stats(&self) -> WaitStats {
        self.acquire().waiting.stats
    }

    /// Gives the descriptors back that threads were woken with, although threads may keep this
    /// value. No thread sleeps in the kernel any more: for an engine that has ended, whose checks
    /// all find that out.
    pub fn end(&self) {
        let mut core = self.acquire();
        let doorbells = core.doorbells();
        core.waiting.doorbells = None;
        self.release(core);
        if let Some(doorbells) = doorbells {
            // The last thread that sleeps on them closes them.
            doorbells.progress_thread.ring();
        }
    }

    fn doorbells(&self) -> Option<Arc<Doorbells>> {
        let mut core = self.acquire();
        let doorbells = core.doorbells();
        self.release(core);
        doorbells
    }

    /// The engine, when the last reference is gone.
    pub fn into_inner(self) -> T {
        self.core.into_inner().value
    }

    /// Takes the lock, and makes a spinning thread yield it.
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

    /// Releases the lock for a moment, for other threads.
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

    /// Gives the lock back. All threads give it back through here, so that sleepers learn what
    /// they have to.
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
    /// A child of `fork` finds the engine whole, its lock free, and no thread that waits for anything.
    /// [`Shared::retune`] makes the doorbells for those there will be. To be called once, without a lock.
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

/// The engine, while its process forks. Nothing happens to it, so no sleeper has to learn anything.
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

/// Processors of this machine. Not those this process may run on: pinned to one of many, it still
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

/// The engine, while this thread has it to itself.
pub struct Guard<'a, T: Progress> {
    shared: &'a Shared<T>,
    /// There until `drop`.
    core: ManuallyDrop<CoreGuard<'a, T>>,
}

impl<'a, T: Progress> Guard<'a, T> {
    /// The engine with its lock, for when this guard is gone.
    pub fn shared(&self) -> &'a Shared<T> {
        self.shared
    }

    /// Whether packets that are sent now may be held back: the helper can be woken for them, and no other thread sleeps.
    #[inline(always)]
    pub fn may_hold(&self) -> bool {
        self.core.waiting.may_hold()
    }

    /// Has the helper send what is held back, unless a thread polls before.
    #[inline(always)]
    pub fn send_held_soon(&mut self) {
        if self.core.value.holds() {
            self.core.waiting.wake_for_held();
        }
    }

    /// Returns whether the host has closed descriptors, as far as one system call tells. Then the doorbells are
    /// forgotten.
    pub fn check_lost(&mut self) -> bool {
        self.core.value.check_descriptors();
        let _ = self.core.doorbells();
        self.core.value.is_lost()
    }

    /// [`Shared::retune`] with the lock.
    pub fn retune(&mut self, tuning: Tuning) -> io::Result<()> {
        let waiting = &mut self.core.waiting;
        waiting.spin = tuning.spin();
        if waiting.doorbells.is_none() {
            waiting.doorbells = Some(Doorbells::new()?);
        }
        Ok(())
    }

    /// Gives the lock back until `check` returns something or `timeout` is over, as
    /// [`Shared::wait_for`] does. To be called when `check` has just found nothing.
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
