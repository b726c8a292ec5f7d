//! Waiting threads: the leader, the followers, and who wakes whom.
//!
//! ```text
//!                 +---------------- wait_for -----------------+
//!                 v                                           |
//!   progress, check --found--> leave --> (a follower takes the lead)
//!                 |
//!               spin  "driver": looks after the engine; it is not armed
//!                 |
//!        a leader or a driver there?
//!            no /        \ yes
//!          lead          follow
//!     arm, unlock,    sleep on a doorbell of one's own
//!     sleep on {control, data, doorbell}
//! ```
//!
//! Invariant: when followers sleep, there is a leader, a driver, or a follower that has been woken
//! and not run yet. Whoever leaves restores it.
//!
//! Owns: the list of followers and the states of leader and helper.

use super::sleep::{sleep, sleep_in};
use super::spin::Spin;
use super::{Core, Doorbells, EVERYTHING, Held, Interest, Progress, Shared, WaitStats};
use crate::clock::MonotonicClock;
use mx_proto::port::WakeDescriptors;
use mx_proto::{Clock, Instant};
use parking_lot::Condvar;
use std::sync::Arc;
use std::time::Duration;

/// Who waits, and how.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Threads that spin.
    pub(super) drivers: u32,
    pub(super) leader: Option<Sleep>,
    pub(super) helper: HelperState,
    followers: Vec<Follower>,
    next_follower: u64,
    /// Doorbells of followers that have gone.
    spare: Vec<Arc<Condvar>>,
    pub(super) spin: Spin,
    /// `None` once the engine has ended.
    pub(super) doorbells: Option<Arc<Doorbells>>,
    pub(super) stats: WaitStats,
}

/// A thread that sleeps in the kernel, armed, and what it took for granted when it went to sleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sleep {
    interest: Interest,
    /// It wakes by itself then.
    pub(super) until: Option<Instant>,
    /// The engine's deadline.
    deadline: Option<Instant>,
    /// What it sleeps on.
    pub(super) fds: WakeDescriptors,
    active: bool,
    /// Its doorbell has been rung.
    kicked: bool,
}

/// What the helper thread does.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum HelperState {
    /// There is none.
    Absent,
    /// Application threads look after the engine; it minds the control descriptor.
    Watching,
    /// There is no endpoint: it sleeps until somebody opens one.
    Dormant,
    /// It looks after the engine.
    Armed(Sleep),
}

#[derive(Debug)]
struct Follower {
    id: u64,
    interest: Interest,
    doorbell: Arc<Condvar>,
    woken: bool,
}

/// Doorbells to ring once the lock has been given back.
#[derive(Default)]
pub(super) struct Rings {
    leader: bool,
    helper: bool,
    /// There when one of them is to be rung.
    doorbells: Option<Arc<Doorbells>>,
}

impl Rings {
    pub(super) fn ring(self) {
        let Some(doorbells) = self.doorbells else {
            return;
        };
        if self.leader {
            doorbells.leader.ring();
        }
        if self.helper {
            doorbells.helper.ring();
        }
    }
}

/// A deadline that has passed although the engine has just been called is not looked at again
/// before this time, so that an engine with a coarse clock does not make its leader spin.
const STALE_DEADLINE: Duration = Duration::from_micros(100);

/// Polls between two looks at the clock while spinning.
const POLLS_PER_LOOK: u32 = 16;

impl Waiting {
    pub(super) fn new(spin: Spin, doorbells: Arc<Doorbells>) -> Self {
        Self {
            drivers: 0,
            leader: None,
            helper: HelperState::Absent,
            followers: Vec::new(),
            next_follower: 0,
            spare: Vec::new(),
            spin,
            doorbells: Some(doorbells),
            stats: WaitStats::default(),
        }
    }

    /// Nobody has to be told anything when the lock is given back.
    #[inline]
    pub(super) fn nobody_sleeps(&self) -> bool {
        self.leader.is_none()
            && self.followers.is_empty()
            && matches!(self.helper, HelperState::Absent | HelperState::Watching)
    }

    /// Wakes the followers that something was produced for.
    fn wake_followers(&mut self, produced: Interest) {
        for follower in &mut self.followers {
            if follower.interest & produced != 0 && !follower.woken {
                follower.woken = true;
                self.stats.follower_wakes += 1;
                follower.doorbell.notify_one();
            }
        }
    }

    /// Sees to it that somebody looks after the engine while followers sleep.
    fn hand_over(&mut self) {
        if self.leader.is_some()
            || self.drivers > 0
            || self.followers.iter().any(|follower| follower.woken)
        {
            return;
        }
        if let Some(next) = self.followers.first_mut() {
            next.woken = true;
            self.stats.handovers += 1;
            next.doorbell.notify_one();
        }
    }
}

/// The earlier of two times that may not exist.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

impl<T: Progress> Core<T> {
    /// Passes on what was produced, and puts the engine back into the state that whoever sleeps
    /// relies on.
    #[cold]
    pub(super) fn settle(&mut self) -> Rings {
        let mut rings = Rings::default();
        let waiting = &mut self.waiting;
        let mut produced = 0;
        if waiting.leader.is_some() || !waiting.followers.is_empty() {
            produced = self.value.take_produced();
            waiting.wake_followers(produced);
        }
        if let Some(mut sleep) = waiting.leader
            && !sleep.kicked
            && (sleep.interest & produced != 0 || (waiting.drivers == 0 && self.must_wake(&sleep)))
        {
            sleep.kicked = true;
            self.waiting.leader = Some(sleep);
            self.waiting.stats.leader_kicks += 1;
            rings.leader = true;
        }
        match self.waiting.helper {
            HelperState::Armed(mut sleep) => {
                if !sleep.kicked && self.must_wake(&sleep) {
                    sleep.kicked = true;
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
            HelperState::Absent | HelperState::Watching => {}
        }
        if rings.leader || rings.helper {
            rings.doorbells = self.waiting.doorbells.clone();
        }
        rings
    }

    /// What a thread took for granted when it went to sleep does not hold any more.
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

    /// A thread is about to sleep on the engine's descriptors.
    pub(super) fn rest(&mut self) {
        self.value.on_rest(&self.waiting.stats);
    }

    /// What a thread that goes to sleep now takes for granted. The engine is armed.
    pub(super) fn sleep_for(&self, interest: Interest, until: Option<Instant>) -> Sleep {
        let deadline = self.value.deadline();
        let soon = || MonotonicClock.now().after(STALE_DEADLINE);
        Sleep {
            interest,
            until: earlier(until, deadline.map(|deadline| deadline.max(soon()))),
            deadline,
            fds: self.value.descriptors(),
            active: self.value.active(),
            kicked: false,
        }
    }
}

impl<T: Progress> Shared<T> {
    /// [`Shared::wait_for`] whatever is produced.
    #[inline]
    pub fn wait_until<R>(
        &self,
        timeout: Option<Duration>,
        check: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        self.wait_for(EVERYTHING, timeout, check)
    }

    /// Makes progress and calls `check` until it returns something or `timeout` is over; with a
    /// time-out of zero exactly once, without one for ever.
    ///
    /// `check` is called after every progress and whenever something was produced for `interest`,
    /// with the lock held; it must not block. What it returns `Some` for is its own: each thread
    /// takes what it returns.
    #[inline]
    pub fn wait_for<R>(
        &self,
        interest: Interest,
        timeout: Option<Duration>,
        mut check: impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let mut engine = self.attend();
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
        mut core: Held<'a, T>,
        interest: Interest,
        timeout: Option<Duration>,
        check: &mut impl FnMut(&mut T) -> Option<R>,
    ) -> Option<R> {
        let began = MonotonicClock.now();
        let until = timeout.map(|timeout| began.after(timeout));
        loop {
            let budget = core.waiting.spin.budget();
            if !budget.is_zero() {
                let spin_until = earlier(until, Some(MonotonicClock.now().after(budget)));
                let found;
                (core, found) = self.drive(core, spin_until, check);
                if found.is_some() {
                    return self.leave(core, found, began);
                }
                core.waiting.spin.on_vain();
            }
            if until.is_some_and(|until| until <= MonotonicClock.now()) {
                return self.leave(core, None, began);
            }
            core = if core.waiting.leader.is_some() || core.waiting.drivers > 0 {
                self.follow(core, interest, until)
            } else {
                self.lead(core, interest, until)
            };
            // Here and not after the check: between a check and going to sleep the lock must not
            // be given away, or what is produced meanwhile is seen by nobody.
            core = self.let_others_in(core);
            core.value.progress();
            let found = check(&mut core.value);
            if found.is_some() {
                return self.leave(core, found, began);
            }
        }
    }

    /// Looks again and again for a while.
    fn drive<'a, R>(
        &'a self,
        mut core: Held<'a, T>,
        until: Option<Instant>,
        check: &mut impl FnMut(&mut T) -> Option<R>,
    ) -> (Held<'a, T>, Option<R>) {
        core.waiting.drivers += 1;
        if core.waiting.leader.is_some() {
            // Peers need not wake the leader while this thread looks.
            core.value.disarm();
        }
        let mut polls = 0u32;
        let found = loop {
            core.value.progress();
            let found = check(&mut core.value);
            if found.is_some() {
                break found;
            }
            polls = polls.wrapping_add(1);
            if polls % POLLS_PER_LOOK == 0
                && until.is_none_or(|until| until <= MonotonicClock.now())
            {
                break None;
            }
            if !core.waiting.nobody_sleeps() {
                let rings = core.settle();
                rings.ring();
            }
            core = self.let_others_in(core);
            std::hint::spin_loop();
        };
        core.waiting.drivers -= 1;
        (core, found)
    }

    /// Sleeps in the kernel, once, on behalf of everybody. Returns at once when there is something
    /// to do.
    fn lead<'a>(
        &'a self,
        mut core: Held<'a, T>,
        interest: Interest,
        until: Option<Instant>,
    ) -> Held<'a, T> {
        // Whatever it was, this thread has just checked, and followers learn it now.
        let produced = core.value.take_produced();
        core.waiting.wake_followers(produced);
        if core.value.active() && !core.value.arm() {
            core.value.disarm();
            return core;
        }
        let Some(doorbells) = core.waiting.doorbells.clone() else {
            core.value.disarm();
            return core;
        };
        let nap = core.sleep_for(interest, until);
        let set = core.value.set().and_then(|set| doorbells.join(set));
        core.waiting.leader = Some(nap);
        core.waiting.stats.leader_sleeps += 1;
        core.rest();
        drop(core);
        let told = set.and_then(|set| sleep_in(set, &doorbells.leader, nap.until));
        let control = told.is_none()
            && sleep(nap.fds.control, nap.fds.data, &doorbells.leader, nap.until).control;
        drop(doorbells);
        let mut core = self.acquire();
        core.waiting.leader = None;
        core.value.disarm();
        if control {
            core.value.note_control();
        }
        if let Some(told) = &told {
            core.value.note_ready(told.tokens());
        }
        core
    }

    /// Sleeps until somebody says that there is something, or that a leader is needed.
    fn follow<'a>(
        &'a self,
        mut core: Held<'a, T>,
        interest: Interest,
        until: Option<Instant>,
    ) -> Held<'a, T> {
        // The leader relies on the engine being armed when the last driver stops.
        let rings = core.settle();
        rings.ring();
        let waiting = &mut core.waiting;
        let doorbell = waiting.spare.pop().unwrap_or_default();
        let id = waiting.next_follower;
        waiting.next_follower += 1;
        waiting.stats.follower_sleeps += 1;
        waiting.followers.push(Follower {
            id,
            interest,
            doorbell: Arc::clone(&doorbell),
            woken: false,
        });
        match until {
            None => doorbell.wait(&mut core),
            Some(until) => {
                let _ = doorbell.wait_for(&mut core, until.since(MonotonicClock.now()));
            }
        }
        let waiting = &mut core.waiting;
        waiting.followers.retain(|follower| follower.id != id);
        waiting.spare.push(doorbell);
        core
    }

    /// Ends a wait.
    fn leave<R>(&self, mut core: Held<'_, T>, found: Option<R>, began: Instant) -> Option<R> {
        let waited = MonotonicClock.now().since(began);
        core.waiting.spin.on_end(found.is_some(), waited);
        if !core.waiting.nobody_sleeps() {
            let rings = core.settle();
            core.waiting.hand_over();
            drop(core);
            rings.ring();
        }
        found
    }

    /// An application thread looks after the engine again.
    #[cold]
    pub(super) fn stand_down(&self, core: &mut Core<T>) {
        core.value.disarm();
        core.waiting.helper = HelperState::Watching;
        core.waiting.stats.stand_downs += 1;
        if let Some(doorbells) = &core.waiting.doorbells {
            doorbells.helper.ring();
        }
    }
}
