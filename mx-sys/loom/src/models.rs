//! Threads that wait for one engine, and others that come in their way: no order leaves one of them
//! asleep.
//!
//! Compiled into `progress`, whose helper thread it runs without the system's thread.

#[path = "../../tests/support/mod.rs"]
mod support;

use super::helper::run;
use super::wait::{HeldBack, HelperState};
use super::{Shared, Tuning};
use crate::kernel;
use loom::model::Builder;
use loom::thread;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use support::{Feeder, Toy};

type Engine = Arc<Shared<Toy>>;

/// Runs `body` in every order with at most `preemptions` threads stopped where they need not stop.
fn in_every_order(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(move || {
        kernel::reset();
        body();
    });
}

fn engine(spin: Duration) -> (Engine, Feeder) {
    let (toy, feeder) = Toy::new(4);
    (Arc::new(Shared::new(toy, Tuning { spin }).unwrap()), feeder)
}

/// A thread that waits for items of one class, without a time-out.
fn waiter(engine: &Engine, class: usize, items: u64) -> thread::JoinHandle<()> {
    let engine = Arc::clone(engine);
    thread::spawn(move || {
        for item in 0..items {
            let got = engine.wait_for(1 << class, None, |toy| toy.take(class));
            assert_eq!(got, Some(item));
        }
    })
}

fn join<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn one_that_waits_hears_of_what_comes() {
    in_every_order(4, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let waiting = waiter(&engine, 0, 2);
        feeder.push(0, 0);
        feeder.push(0, 1);
        waiting.join().unwrap();
    });
}

#[test]
fn two_that_wait_for_different_things_each_hear_of_theirs() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let waiting = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        feeder.push(1, 0);
        feeder.push(0, 0);
        join(waiting);
    });
}

#[test]
fn of_three_the_one_that_leaves_hands_over() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let waiting = [0, 1, 2].map(|class| waiter(&engine, class, 1));
        for class in 0..3 {
            feeder.push(class, 0);
        }
        join(waiting);
    });
}

#[test]
fn what_is_produced_by_posting_reaches_those_that_wait() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let waiting = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        engine.lock().produce(0, 0);
        feeder.push(1, 0);
        join(waiting);
    });
}

#[test]
fn what_one_takes_in_that_polls_reaches_those_that_wait() {
    in_every_order(2, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let waiting = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        let polling = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for _ in 0..2 {
                    let now = Some(Duration::ZERO);
                    let got = engine.wait_for(1 << 2, now, |toy| toy.take(2));
                    assert_eq!(got, None);
                }
            })
        };
        feeder.push(0, 0);
        feeder.push(1, 0);
        polling.join().unwrap();
        join(waiting);
    });
}

/// The thread that leads sleeps on: it is told nothing, and has to tell.
#[test]
fn waiter_gets_its_completion_while_the_thread_sleeps_on() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let [stays, goes] = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        feeder.push(1, 0);
        goes.join().unwrap();
        feeder.push(0, 0);
        stays.join().unwrap();
    });
}

/// Waits that spin a little, as after fast answers. Time passes by looking at it.
fn engine_that_spins() -> (Engine, Feeder) {
    let (engine, feeder) = engine(SPIN);
    let mut core = engine.acquire();
    while core.waiting.spin.budget(true).is_zero() {
        core.waiting.spin.on_end(true, Duration::ZERO, true);
    }
    drop(core);
    (engine, feeder)
}

/// Time of some looks at the clock.
const SPIN: Duration = Duration::from_nanos(300);

#[test]
fn spinning_thread_yields_the_engine_to_sleepers() {
    in_every_order(3, || {
        let (engine, feeder) = engine_that_spins();
        let [stays, goes] = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        feeder.push(1, 0);
        goes.join().unwrap();
        feeder.push(0, 0);
        stays.join().unwrap();
    });
}

#[test]
fn unsuccessful_spinner_leaves_the_engine_to_sleepers() {
    in_every_order(3, || {
        let (engine, feeder) = engine_that_spins();
        let [first, second] = [waiter(&engine, 0, 1), waiter(&engine, 1, 1)];
        feeder.push(0, 0);
        first.join().unwrap();
        feeder.push(1, 0);
        second.join().unwrap();
    });
}

#[test]
fn the_end_of_the_engine_wakes_all_waiters() {
    in_every_order(3, || {
        let (engine, _feeder) = engine(Duration::ZERO);
        let waiting = [0, 1].map(|class| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                engine.wait_for(1 << class, None, |toy| (!toy.open).then_some(()));
            })
        });
        {
            let mut toy = engine.lock();
            toy.open = false;
            // An engine that ends produces something for every waiter.
            (0..4).for_each(|class| toy.produce(class, 0));
        }
        engine.end();
        join(waiting);
    });
}

/// The helper thread of an engine, as `Helper::start` and `Helper::stop` have it.
struct Helping {
    engine: Engine,
    stopping: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Helping {
    fn start(engine: &Engine) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let (alive, _) = mpsc::channel();
        let thread = {
            let (engine, stopping) = (Arc::clone(engine), Arc::clone(&stopping));
            thread::spawn(move || run(&engine, &stopping, alive))
        };
        Self {
            engine: Arc::clone(engine),
            stopping,
            thread,
        }
    }

    fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(doorbells) = self.engine.doorbells() {
            doorbells.helper.ring();
        }
        self.thread.join().unwrap();
    }
}

#[test]
fn the_helper_and_one_that_waits_lose_nothing_between_them() {
    in_every_order(2, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        let waiting = waiter(&engine, 0, 2);
        feeder.push(0, 0);
        feeder.push(0, 1);
        waiting.join().unwrap();
        helping.stop();
        assert!(!feeder.is_armed());
    });
}

#[test]
fn helper_progresses_between_calls_and_stops_when_told() {
    in_every_order(2, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        feeder.push(0, 0);
        // A later waiter finds it, whichever thread took it in.
        let posting = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || engine.lock().produce(1, 0))
        };
        waiter(&engine, 0, 1).join().unwrap();
        posting.join().unwrap();
        helping.stop();
        assert_eq!(engine.lock().take(1), Some(0));
    });
}

/// Waits without a call of the engine until it is armed: by the helper then.
fn until_armed(feeder: &Feeder) {
    while !feeder.is_armed() {
        thread::yield_now();
    }
}

#[test]
fn the_helper_takes_over_for_an_endpoint_that_is_opened() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        engine.lock().open = false;
        let helping = Helping::start(&engine);
        engine.lock().open = true;
        until_armed(&feeder);
        feeder.push(0, 0);
        until_armed(&feeder);
        engine.lock().open = false;
        helping.stop();
    });
}

#[test]
fn the_helper_takes_over_again_from_one_that_polls_no_more() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        until_armed(&feeder);
        let now = Some(Duration::ZERO);
        assert_eq!(engine.wait_for(1, now, |toy| toy.take(0)), None);
        until_armed(&feeder);
        helping.stop();
    });
}

#[test]
fn helper_follows_endpoints_that_open_and_close() {
    in_every_order(2, || {
        let (engine, feeder) = engine(Duration::ZERO);
        engine.lock().open = false;
        let helping = Helping::start(&engine);
        let waiting = waiter(&engine, 0, 1);
        engine.lock().open = true;
        feeder.push(0, 0);
        waiting.join().unwrap();
        engine.lock().open = false;
        helping.stop();
    });
}

/// Sends a packet, as the front of a send does.
fn send(engine: &Engine) {
    let mut guard = engine.lock();
    let may_hold = guard.may_hold();
    guard.send(may_hold);
    if may_hold {
        guard.send_held_soon();
    }
}

/// Waits without a call of the engine until it has sent so many packets.
fn until_sent(feeder: &Feeder, packets: u64) {
    while feeder.sent() < packets {
        thread::yield_now();
    }
}

#[test]
fn packets_that_are_held_back_are_sent_although_no_call_follows() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        send(&engine);
        until_sent(&feeder, 1);
        // The helper watches, or arms the engine.
        let now = Some(Duration::ZERO);
        assert_eq!(engine.wait_for(1, now, |toy| toy.take(0)), None);
        send(&engine);
        send(&engine);
        until_sent(&feeder, 3);
        // Now the engine is armed.
        until_armed(&feeder);
        send(&engine);
        until_sent(&feeder, 4);
        helping.stop();
    });
}

#[test]
fn two_threads_that_send_have_their_packets_sent() {
    in_every_order(2, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        until_armed(&feeder);
        let sending = [(); 2].map(|()| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || send(&engine))
        });
        join(sending);
        until_sent(&feeder, 2);
        helping.stop();
    });
}

/// A time-out would end the sleep of a helper that watches, and send them; but it does not wait for that.
#[test]
fn a_helper_that_watches_is_rung_once_for_the_packets_that_are_held_back() {
    in_every_order(1, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let doorbells = engine.doorbells().unwrap();
        send(&engine);
        assert_eq!(feeder.sent(), 1, "there is no helper");
        engine.acquire().waiting.helper = HelperState::Watching;
        send(&engine);
        assert_eq!(feeder.sent(), 1);
        assert!(doorbells.helper.silence());
        send(&engine);
        assert!(!doorbells.helper.silence());
    });
}

/// A ring while it watched is over once it has looked.
#[test]
fn a_helper_that_has_looked_can_be_rung_again() {
    in_every_order(3, || {
        let (engine, feeder) = engine(Duration::ZERO);
        let helping = Helping::start(&engine);
        let now = Some(Duration::ZERO);
        assert_eq!(engine.wait_for(1, now, |toy| toy.take(0)), None);
        send(&engine);
        until_sent(&feeder, 1);
        helping.stop();
        assert_eq!(engine.acquire().waiting.held_back, HeldBack::None);
    });
}
