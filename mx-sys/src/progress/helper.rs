//! The helper thread, which polls the engine while the application computes.
//!
//! ```text
//!              endpoint opened            no thread polled or waited for a tick
//!   Dormant -------------------> Watching ---------------------------------> Armed
//!      ^                          {control, doorbell} <----------------------- {control, data, doorbell}
//!      `---- endpoint closed ----- + tick           an application thread
//!                                                   polls again (one ring)
//! ```
//!
//! The helper always watches the control descriptor, which reports connections that open or close. Packets are left to
//! the application while that polls or waits: a second polling thread would only contend for the lock, and an armed
//! engine makes peers send wake-ups.
//!
//! Owns: the thread.
//! Cost: watching, one wake-up a tick; armed or dormant, two a second while nothing happens.

use super::sleep::sleep;
use super::wait::{HeldBack, HelperState, earlier};
use super::{Progress, Shared, give_back_if_due};
use crate::clock::MonotonicClock;
use crate::deferred_log;
use crate::lock::Mutex;
use crate::thread;
use mx_proto::Clock;
use mx_proto::port::WakeDescriptors;
use mx_reserve as reserve;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between checks for application threads that poll. Short enough for peers not to notice, long beside the
/// cost of a check.
const TICK: Duration = Duration::from_millis(10);

/// Longest tick, reached while an application thread is always waiting.
const LONG_TICK: Duration = Duration::from_millis(160);

/// Rounds of polling in a row before the helper yields its processor.
const ROUNDS: u32 = 64;

/// Number of rounds in a row with a readable control descriptor after which it is ignored for a tick: a port that does
/// not clear it must not use a whole processor.
const STORM: u32 = 16;

/// Time that [`Helper::stop`] waits for the thread to end.
const JOIN_LIMIT: Duration = Duration::from_secs(2);

/// Background thread that keeps one engine's connections moving while no application thread polls. Dropping this value
/// stops the thread.
#[derive(Debug)]
pub struct Helper<T: Progress + Send + 'static> {
    shared: Arc<Shared<T>>,
    stopping: Arc<AtomicBool>,
    /// `None` after the thread has been stopped.
    thread: Option<JoinHandle<()>>,
    /// Disconnects when the thread ends. The mutex makes this value `Sync` and is never locked.
    ended: Mutex<Receiver<()>>,
}

impl<T: Progress + Send + 'static> Helper<T> {
    /// Starts the thread and waits until it runs. All signals are blocked in it: signals belong to the application.
    pub fn start(shared: Arc<Shared<T>>) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let (alive, ended) = mpsc::channel();
        let (begins, begun) = mpsc::channel::<()>();
        let run = {
            let (shared, stopping) = (Arc::clone(&shared), Arc::clone(&stopping));
            move || {
                reserve::prepare_thread();
                drop(begins);
                run(&shared, &stopping, alive);
            }
        };
        let thread = thread::start("mx-progress", thread::PROGRESS_STACK, run)?;
        // Wait until the thread has allocated its per-thread state, which may fail later.
        let _ = begun.recv();
        Ok(Self {
            shared,
            stopping,
            thread: Some(thread),
            ended: Mutex::new(ended),
        })
    }

    /// Stops the thread and waits at most two seconds for its end. The caller must not hold the engine's lock, which
    /// the thread takes to end.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !self.shared.is_mine() {
            // A child of fork has a copy of this value but not the thread.
            return;
        }
        self.stopping.store(true, Ordering::Release);
        thread.thread().unpark();
        if let Some(doorbells) = self.shared.doorbells() {
            doorbells.helper.ring();
        }
        match self.ended.get_mut().recv_timeout(JOIN_LIMIT) {
            // The thread only has to return.
            Err(mpsc::RecvTimeoutError::Disconnected) => drop(thread.join()),
            _ => log::error!("the helper thread did not end within {JOIN_LIMIT:?}; leaving it"),
        }
    }
}

impl<T: Progress + Send + 'static> Drop for Helper<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the thread. `alive` is dropped when the thread ends, also by a panic.
pub(super) fn run<T: Progress>(shared: &Shared<T>, stopping: &AtomicBool, alive: Sender<()>) {
    let mut attention = shared.attention.load(Ordering::Relaxed);
    let mut tick = TICK;
    let mut storm = 0;
    deferred_log::say_helpers();
    while !stopping.load(Ordering::Acquire) {
        let control = round(shared, &mut attention, &mut tick, storm < STORM);
        deferred_log::say_helpers();
        storm = if control { storm + 1 } else { 0 };
    }
    let mut core = shared.acquire();
    if let HelperState::Armed(_) = core.waiting.helper {
        core.value.disarm();
    }
    core.waiting.helper = HelperState::Absent;
    shared.release(core);
    drop(alive);
}

/// Sleeps once, on the descriptors that the engine's state requires, and handles the wake-up. Returns true if the
/// control descriptor was readable.
fn round<T: Progress>(
    shared: &Shared<T>,
    attention: &mut u64,
    tick: &mut Duration,
    mind_control: bool,
) -> bool {
    let mut core = shared.acquire();
    let Some(doorbells) = core.doorbells() else {
        // The engine has ended, or its descriptors have been closed; `stop` unparks this thread.
        shared.release(core);
        std::thread::park_timeout(LONG_TICK);
        return false;
    };
    let now_attention = shared.attention.load(Ordering::Relaxed);
    let attended = core.waiting.progress_thread.is_some() || core.waiting.pollers > 0;
    let mut sleep_plan;
    if !core.value.active() {
        sleep_plan = core.sleep_for(0, None);
        sleep_plan.fds = WakeDescriptors::default();
        core.waiting.begin_sleep(HelperState::Dormant);
    } else if attended || now_attention != *attention {
        // An application thread sleeps in a wait, or has polled during this tick.
        *tick = if attended {
            (*tick * 2).min(LONG_TICK)
        } else {
            TICK
        };
        *attention = now_attention;
        sleep_plan = core.sleep_for(0, None);
        sleep_plan.fds.data = None;
        sleep_plan.until = Some(MonotonicClock.now().after(*tick));
        core.waiting.helper = HelperState::Watching;
    } else {
        let mut rounds = 0;
        while !core.value.arm() {
            core.value.disarm();
            core.value.progress();
            rounds += 1;
            core = shared.let_others_in(core);
            if rounds == ROUNDS || shared.attention.load(Ordering::Relaxed) != now_attention {
                shared.release(core);
                std::thread::yield_now();
                return false;
            }
        }
        *tick = TICK;
        sleep_plan = core.sleep_for(0, None);
        core.waiting.begin_sleep(HelperState::Armed(sleep_plan));
        core.waiting.stats.helper_arms += 1;
    }
    core.on_sleep();
    shared.release(core);
    give_back_if_due::<T>();
    sleep_plan.until = earlier(sleep_plan.until, T::give_back_due());
    if !mind_control {
        sleep_plan.fds.control = None;
        sleep_plan.until = earlier(sleep_plan.until, Some(MonotonicClock.now().after(TICK)));
    }
    let slept = sleep(
        sleep_plan.fds.control,
        sleep_plan.fds.data,
        &doorbells.helper,
        sleep_plan.until,
    );
    let mut core = shared.acquire();
    let armed = matches!(core.waiting.helper, HelperState::Armed(_));
    if armed {
        core.value.disarm();
        core.waiting.helper = HelperState::Watching;
    }
    if slept.lost {
        core.lose(&doorbells);
    }
    if slept.control {
        core.value.note_control();
    }
    if armed || slept.control {
        core.value.progress();
    }
    core.waiting.held_back = HeldBack::None;
    if core.value.holds() {
        core.value.send_held();
    }
    shared.release(core);
    slept.control
}
