//! Waiting threads: the progress thread, the waiters, and waking them.
//!
//! ```text
//!                 +---------------- wait_for -----------------+
//!                 v                                           |
//!   progress, check --found--> leave --> (a waiter takes over)
//!                 |
//!               spin  "poller": polls the engine, which is not armed
//!                 |
//!        is there a progress thread or a poller?
//!            no /        \ yes
//! sleep_as_progress_thread   sleep_as_waiter
//!     arm, unlock,           sleep on the thread's own doorbell
//!     sleep on {control, data, doorbell}
//! ```
//!
//! Invariant: while waiters sleep, there is a progress thread, a poller, or a waiter that has been woken and has not
//! run yet. A thread that leaves restores the invariant.
//!
//! Owns: the list of waiters and the states of progress thread and helper.

use super::sleep::{SleepError, SleepOutcome, sleep, sleep_in};
use super::spin::{POLLS_BEFORE_YIELDING, POLLS_PER_YIELD, Spin};
use super::{
    Core, CoreGuard, Doorbells, EVERYTHING, Interest, Progress, Shared, WaitStats, give_back_if_due,
};
use crate::clock::MonotonicClock;
use crate::lock::Condvar;
use mx_proto::port::WakeDescriptors;
use mx_proto::{Clock, Instant};
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::time::Duration;

/// All waiting threads and their states.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Number of threads that spin.
    pub(super) pollers: u32,
    /// Whether a release of the lock must check for sleepers: set when a thread goes to sleep, cleared when
    /// [`Waiting::no_sleepers`] finds none.
    pub(super) sleepers: bool,
    pub(super) progress_thread: Option<Sleep>,
    pub(super) helper: HelperState,
    pub(super) held_back: HeldBack,
    waiters: Vec<Waiter>,
    next_waiter: u64,
    /// Doorbells of past waiters, for reuse.
    spare: Vec<Arc<Condvar>>,
    pub(super) spin: Spin,
    /// `None` after the engine has ended.
    pub(super) doorbells: Option<Arc<Doorbells>>,
    pub(super) stats: WaitStats,
}

/// A thread that sleeps in the kernel with the engine armed, and the state of the engine that it relies on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    interest: Interest,
    /// Time at which the sleeper wakes by itself.
    pub(super) until: Option<Instant>,
    /// The engine's deadline when the sleep began.
    deadline: Option<Instant>,
    /// Descriptors that the thread sleeps on.
    pub(super) fds: WakeDescriptors,
    active: bool,
    /// Whether the thread's doorbell has been rung.
    woken_up: bool,
}

/// State of the helper thread.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum HelperState {
    /// No helper thread runs.
    Absent,
    /// Application threads poll the engine; the helper watches the control descriptor.
    Watching,
    /// No endpoint is open; the helper sleeps until one is opened.
    Dormant,
    /// The helper sleeps on the engine's descriptors.
    Armed(Sleep),
}

/// Whether the helper has been woken to send packets that the engine holds back. A poll by another thread sends them
/// earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeldBack {
    /// The helper has not been woken.
    None,
    /// The helper is woken when the lock is released.
    Waking,
    /// The helper has been woken and has not polled yet.
    Woken,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    interest: Interest,
    doorbell: Arc<Condvar>,
    woken: bool,
}

/// Doorbells to ring after the lock has been released.
#[derive(Default)]
pub(super) struct PendingDoorbells {
    progress_thread: bool,
    helper: bool,
    /// `None` if neither is to be rung.
    doorbells: Option<Arc<Doorbells>>,
}

impl PendingDoorbells {
    pub(super) fn ring(self) {
        let Some(doorbells) = self.doorbells else {
            return;
        };
        if self.progress_thread {
            doorbells.progress_thread.ring();
        }
        if self.helper {
            doorbells.helper.ring();
        }
    }
}

/// Delay before a deadline is checked again that has passed although the engine has just been called. Keeps an engine
/// with a coarse clock from making its progress thread spin.
const STALE_DEADLINE: Duration = Duration::from_micros(100);

/// Longest sleep in the kernel. A host that closes the library's descriptors wakes no thread: a sleeper notices only
/// when it wakes, and a blocked call is to return within a second. Unlimited in loom's models, where a lost wake-up has
/// to hang.
const LONGEST_SLEEP: Option<Duration> = if cfg!(loom) {
    None
} else {
    Some(Duration::from_millis(500))
};

/// Polls between two clock readings while spinning.
const POLLS_PER_LOOK: u32 = 16;

impl Waiting {
    pub(super) fn new(spin: Spin, doorbells: Arc<Doorbells>) -> Self {
        Self {
            pollers: 0,
            sleepers: false,
            held_back: HeldBack::None,
            progress_thread: None,
            helper: HelperState::Absent,
            waiters: Vec::new(),
            next_waiter: 0,
            spare: Vec::new(),
            spin,
            doorbells: Some(doorbells),
            stats: WaitStats::default(),
        }
    }

    /// Updates `sleepers`, and returns whether no thread has to be notified when the lock is released.
    pub(super) fn no_sleepers(&mut self) -> bool {
        self.sleepers = self.progress_thread.is_some()
            || !self.waiters.is_empty()
            || matches!(self.helper, HelperState::Dormant | HelperState::Armed(_))
            || self.held_back == HeldBack::Waking;
        !self.sleepers
    }

    /// Records that the helper goes to sleep in this state.
    pub(super) fn begin_sleep(&mut self, helper: HelperState) {
        (self.helper, self.sleepers) = (helper, true);
    }

    /// Returns whether packets may be held back: the helper can be woken to send them, and no other thread sleeps.
    #[inline(always)]
    pub(super) fn may_hold(&self) -> bool {
        match self.helper {
            HelperState::Watching | HelperState::Armed(_) => {
                self.progress_thread.is_none() && self.waiters.is_empty()
            }
            HelperState::Absent | HelperState::Dormant => false,
        }
    }

    /// Schedules the helper's wake-up to send held packets, unless it has been woken already.
    #[cold]
    pub(super) fn wake_for_held(&mut self) {
        if self.held_back == HeldBack::None {
            (self.held_back, self.sleepers) = (HeldBack::Waking, true);
        }
    }

    /// Clears the states in a child of `fork`, which has none of these threads. Leaks their values, whose drop may not
    /// run here.
    pub(super) fn forget_threads(&mut self) {
        self.pollers = 0;
        self.progress_thread = None;
        (self.helper, self.held_back) = (HelperState::Absent, HeldBack::None);
        let waiters = ManuallyDrop::new(mem::take(&mut self.waiters));
        let doorbells = ManuallyDrop::new(self.doorbells.take());
        let _ = (waiters, doorbells);
    }

    /// Wakes the waiters interested in `produced`.
    fn wake_waiters(&mut self, produced: Interest) {
        for waiter in &mut self.waiters {
            if waiter.interest & produced != 0 && !waiter.woken {
                waiter.woken = true;
                self.stats.waiter_wakes += 1;
                waiter.doorbell.notify_one();
            }
        }
    }

    /// Wakes a waiter to take over if other waiters sleep and no thread polls the engine.
    fn hand_over(&mut self) {
        if self.progress_thread.is_some()
            || self.pollers > 0
            || self.waiters.iter().any(|waiter| waiter.woken)
        {
            return;
        }
        if let Some(next) = self.waiters.first_mut() {
            next.woken = true;
            self.stats.handovers += 1;
            next.doorbell.notify_one();
        }
    }
}

/// Returns the earlier of two optional times.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

impl<T: Progress> Core<T> {
    /// Notifies waiters of new events, and arms the engine for the sleeping thread.
    #[cold]
    pub(super) fn notify(&mut self) -> PendingDoorbells {
        let mut rings = PendingDoorbells::default();
        let waiting = &mut self.waiting;
        let mut produced = 0;
        if waiting.progress_thread.is_some() || !waiting.waiters.is_empty() {
            produced = self.value.take_produced();
            waiting.wake_waiters(produced);
        }
        if let Some(mut sleep) = waiting.progress_thread
            && !sleep.woken_up
            && (sleep.interest & produced != 0 || (waiting.pollers == 0 && self.must_wake(&sleep)))
        {
            sleep.woken_up = true;
            self.waiting.progress_thread = Some(sleep);
            self.waiting.stats.progress_thread_wakes += 1;
            rings.progress_thread = true;
        }
        match self.waiting.helper {
            HelperState::Armed(mut sleep) => {
                let held = mem::replace(&mut self.waiting.held_back, HeldBack::None);
                if !sleep.woken_up && (held == HeldBack::Waking || self.must_wake(&sleep)) {
                    sleep.woken_up = true;
                    self.waiting.helper = HelperState::Armed(sleep);
                    rings.helper = true;
                }
            }
            HelperState::Dormant => {
                if self.value.active() {
                    self.waiting.helper = HelperState::Watching;
                    rings.helper = true;
                }
            }
            HelperState::Watching if self.waiting.held_back == HeldBack::Waking => {
                self.waiting.held_back = HeldBack::Woken;
                rings.helper = true;
            }
            HelperState::Absent | HelperState::Watching => {}
        }
        if rings.progress_thread || rings.helper {
            rings.doorbells = self.doorbells();
        }
        rings
    }

    /// Returns the doorbells; `None` if the engine has ended or the host has closed them.
    pub(super) fn doorbells(&mut self) -> Option<Arc<Doorbells>> {
        if self.value.is_lost() {
            self.waiting.doorbells = None;
        }
        self.waiting.doorbells.clone()
    }

    /// Records that a sleeper on these doorbells has found closed descriptors. An engine opened since then has other
    /// doorbells and has lost nothing: the library itself closed the sleeper's descriptors.
    pub(super) fn lose(&mut self, doorbells: &Arc<Doorbells>) {
        let current = self.waiting.doorbells.as_ref();
        if current.is_some_and(|current| Arc::ptr_eq(current, doorbells)) {
            self.value.lose();
        }
    }

    /// Returns whether the state that a sleeping thread relies on has changed.
    fn must_wake(&mut self, sleep: &Sleep) -> bool {
        let active = self.value.active();
        if active != sleep.active || self.value.descriptors() != sleep.fds {
            return true;
        }
        let sooner = match (self.value.deadline(), earlier(sleep.deadline, sleep.until)) {
            (Some(deadline), Some(known)) => deadline < known,
            (Some(_), None) => true,
            (None, _) => false,
        };
        sooner || (active && !self.value.arm())
    }

    /// Called before a thread sleeps on the engine's descriptors.
    pub(super) fn on_sleep(&mut self) {
        self.value.on_sleep(&self.waiting.stats);
    }

    /// Returns the state that a thread relies on if it goes to sleep now, with the engine armed.
    pub(super) fn sleep_for(&self, interest: Interest, until: Option<Instant>) -> Sleep {
        let deadline = self.value.deadline();
        let now = MonotonicClock.now();
        let due = deadline.map(|deadline| deadline.max(now.after(STALE_DEADLINE)));
        Sleep {
            interest,
            until: earlier(
                earlier(until, due),
                LONGEST_SLEEP.map(|most| now.after(most)),
            ),
            deadline,
            fds: self.value.descriptors(),
            active: self.value.active(),
            woken_up: false,
        }
    }
}

impl<T: Progress> Shared<T> {
    /// Waits as [`Shared::wait_for`] does, for events of every interest.
    #[inline]
    pub fn wait_until<R>(
        &self,
        timeout: Option<Duration>,
        check: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        self.wait_for(EVERYTHING, timeout, check)
    }

    /// Makes progress and calls `check` until that returns a value, which is returned, or `timeout` has passed (result
    /// `None`). Checks exactly once with a time-out of zero; waits without limit if `timeout` is `None`.
    ///
    /// `check` is called after each progress and whenever events were produced for `interest`. The lock is held, so it
    /// must not block. An event for which `check` returns `Some` belongs to this thread: no other thread gets it.
    #[inline]
    pub fn wait_for<R>(
        &self,
        interest: Interest,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.lock_for_poll();
        engine.progress();
        let found = check(&mut engine);
        if found.is_some() || timeout == Some(Duration::ZERO) {
            return found;
        }
        engine.wait(interest, timeout, check)
    }

    #[inline(never)]
    pub(super) fn wait<'a, R>(
        &'a self,
        mut core: CoreGuard<'a, T>,
        interest: Interest,
        timeout: Option<Duration>,
        check: &mut impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        // Beginning of the wait, or time of the last event in it.
        let mut last = MonotonicClock.now();
        let until = timeout.map(|timeout| last.after(timeout));
        loop {
            let budget = core.waiting.spin.budget(core.value.looks_at_memory());
            if !budget.is_zero() && MonotonicClock.now() < last.after(budget) {
                let found;
                (core, found) = self.drive(core, (budget, until), &mut last, check);
                if found.is_some() {
                    return self.leave(core, found, last);
                }
                core.waiting.spin.on_vain();
            }
            if until.is_some_and(|until| until <= MonotonicClock.now()) {
                return self.leave(core, None, last);
            }
            core = if core.waiting.progress_thread.is_some() || core.waiting.pollers > 0 {
                self.sleep_as_waiter(core, interest, until)
            } else {
                self.sleep_as_progress_thread(core, interest, until)
            };
            // Released here and not after the check: if the lock were released between a check and going to sleep, no
            // thread would see the events produced meanwhile.
            core = self.let_others_in(core);
            let some = core.value.progress();
            let found = check(&mut core.value);
            if found.is_some() {
                return self.leave(core, found, last);
            }
            if some {
                last = MonotonicClock.now();
            }
        }
    }

    /// Polls until `check` returns a value, nothing has happened for `budget` since the last event, `until` has come,
    /// or another program has held the processor for long.
    fn drive<'a, R>(
        &'a self,
        mut core: CoreGuard<'a, T>,
        (budget, until): (Duration, Option<Instant>),
        last_event: &mut Instant,
        check: &mut impl FnMut(&mut T) -> Option<R>,
    ) -> (CoreGuard<'a, T>, Option<R>) {
        core.waiting.stats.spins += 1;
        core.waiting.pollers += 1;
        if core.waiting.progress_thread.is_some() {
            // Peers need not wake the progress thread while this thread polls.
            core.value.disarm();
        }
        let (mut polls, mut some, mut last) = (0u32, false, false);
        let mut is_over = |now: Instant, some: &mut bool| {
            if mem::take(some) {
                *last_event = now;
            }
            last_event.after(budget) <= now || until.is_some_and(|until| until <= now)
        };
        let found = loop {
            some |= core.value.progress();
            let found = check(&mut core.value);
            if found.is_some() || last {
                break found;
            }
            if !core.waiting.no_sleepers() {
                let rings = core.notify();
                rings.ring();
            }
            polls = polls.wrapping_add(1);
            if polls >= POLLS_BEFORE_YIELDING && polls % POLLS_PER_YIELD == 0 {
                let began = MonotonicClock.now();
                self.release(core);
                std::thread::yield_now();
                let now = MonotonicClock.now();
                core = self.acquire();
                let long = core.waiting.spin.on_yield(now.since(began));
                core.waiting.stats.long_yields += u64::from(long);
                // The thread polls once more: others may have run for long.
                last = is_over(now, &mut some) || long;
                continue;
            }
            if polls % POLLS_PER_LOOK == 0 {
                last = is_over(MonotonicClock.now(), &mut some);
            }
            core = self.let_others_in(core);
            std::hint::spin_loop();
        };
        core.waiting.pollers -= 1;
        match found {
            Some(_) => core.waiting.spin.on_found(),
            None => core.waiting.stats.vain_spins += 1,
        }
        (core, found)
    }

    /// Sleeps in the kernel once, as the progress thread. Returns at once if the engine has work to do.
    fn sleep_as_progress_thread<'a>(
        &'a self,
        mut core: CoreGuard<'a, T>,
        interest: Interest,
        until: Option<Instant>,
    ) -> CoreGuard<'a, T> {
        // The thread has just checked for its own events; wake the waiters for theirs.
        let produced = core.value.take_produced();
        core.waiting.wake_waiters(produced);
        if core.value.active() && !core.value.arm() {
            core.value.disarm();
            return core;
        }
        let Some(doorbells) = core.doorbells() else {
            core.value.disarm();
            return core;
        };
        let sleep_plan = core.sleep_for(interest, until);
        let set = core.value.set().and_then(|set| doorbells.join(set));
        (core.waiting.progress_thread, core.waiting.sleepers) = (Some(sleep_plan), true);
        core.waiting.stats.progress_thread_sleeps += 1;
        core.on_sleep();
        let helped = !matches!(core.waiting.helper, HelperState::Absent);
        drop(core);
        if !helped {
            give_back_if_due::<T>();
        }
        let doorbell = &doorbells.progress_thread;
        let told = set.map_or(Err(SleepError::NoCall), |set| {
            sleep_in(set, doorbell, sleep_plan.until)
        });
        let slept = match told {
            Err(SleepError::NoCall) => sleep(
                sleep_plan.fds.control,
                sleep_plan.fds.data,
                doorbell,
                sleep_plan.until,
            ),
            _ => SleepOutcome::default(),
        };
        let mut core = self.acquire();
        core.waiting.progress_thread = None;
        core.value.disarm();
        if slept.control {
            core.value.note_control();
        }
        if let Ok(told) = &told {
            core.value.note_ready(told);
        }
        if slept.lost || matches!(told, Err(SleepError::Lost)) {
            core.lose(&doorbells);
        }
        core
    }

    /// Sleeps as a waiter until there is an event for this thread, or a progress thread is needed.
    fn sleep_as_waiter<'a>(
        &'a self,
        mut core: CoreGuard<'a, T>,
        interest: Interest,
        until: Option<Instant>,
    ) -> CoreGuard<'a, T> {
        // The progress thread relies on the engine being armed when the last poller stops.
        let rings = core.notify();
        rings.ring();
        let waiting = &mut core.waiting;
        let doorbell = waiting.spare.pop().unwrap_or_default();
        let id = waiting.next_waiter;
        waiting.next_waiter += 1;
        waiting.stats.waiter_sleeps += 1;
        waiting.sleepers = true;
        waiting.waiters.push(Waiter {
            id,
            interest,
            doorbell: Arc::clone(&doorbell),
            woken: false,
        });
        core = match until {
            None => doorbell.wait(core),
            Some(until) => doorbell.wait_for(core, until.since(MonotonicClock.now())),
        };
        let waiting = &mut core.waiting;
        waiting.waiters.retain(|waiter| waiter.id != id);
        waiting.spare.push(doorbell);
        core
    }

    /// Ends a wait whose last event before `found` was at `last`.
    fn leave<R>(&self, mut core: CoreGuard<'_, T>, found: Option<R>, last: Instant) -> Option<R> {
        let waited = MonotonicClock.now().since(last);
        let in_memory = core.value.looks_at_memory();
        core.waiting.spin.on_end(found.is_some(), waited, in_memory);
        if !core.waiting.no_sleepers() {
            let rings = core.notify();
            core.waiting.hand_over();
            drop(core);
            rings.ring();
        }
        found
    }

    /// Wakes the helper because an application thread polls the engine again.
    #[cold]
    pub(super) fn suspend_helper(&self, core: &mut Core<T>) {
        core.value.disarm();
        core.waiting.helper = HelperState::Watching;
        core.waiting.stats.stand_downs += 1;
        // A check costs little here, off the path of a message: the helper sleeps again only after a tick.
        core.value.check_descriptors();
        match core.doorbells() {
            Some(doorbells) if doorbells.helper.is_intact() => doorbells.helper.ring(),
            Some(_) => core.value.lose(),
            None => {}
        }
    }
}
