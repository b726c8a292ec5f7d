//! Threads that wait for different things of one engine: none waits in vain, none is woken for
//! things of another, and none burns a processor.

use crate::support::{BEFORE_SLEEP, Feeder, NEVER, Toy, until, wait};
use mx_proto::Clock;
use mx_sys::clock::MonotonicClock;
use mx_sys::epoll::Epoll;
use mx_sys::{Helper, Shared, Tuning};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

fn shared(spin_us: u64) -> (Arc<Shared<Toy>>, Feeder) {
    let (toy, feeder) = Toy::new(16);
    let spin = Duration::from_micros(spin_us);
    (Arc::new(Shared::new(toy, Tuning { spin }).unwrap()), feeder)
}

/// Waits for the end of each thread. Their scope does so as well, but ThreadSanitizer does not see
/// into the standard library, and sees this.
fn join<'scope>(threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, ()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn two_threads_that_wait_for_different_things_each_get_theirs() {
    for spin in [0, 50] {
        let (shared, feeder) = shared(spin);
        let shared = &shared;
        thread::scope(|scope| {
            let take = |class| {
                move || {
                    (0..200)
                        .map(|_| wait(shared, class, NEVER).unwrap())
                        .collect::<Vec<u64>>()
                }
            };
            let a = scope.spawn(take(0));
            let b = scope.spawn(take(1));
            for item in 0..200 {
                feeder.push((item % 2) as usize, item);
                feeder.push(1 - (item % 2) as usize, item);
                if item % 16 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let want: Vec<u64> = (0..200).collect();
            assert_eq!(a.join().unwrap(), want);
            assert_eq!(b.join().unwrap(), want);
        });
    }
}

#[test]
fn a_waiter_takes_over_when_the_progress_thread_leaves() {
    let (shared, feeder) = shared(0);
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| wait(&shared, 0, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps == 1);
        let waiter = scope.spawn(|| wait(&shared, 1, NEVER));
        until(|| shared.wait_stats().waiter_sleeps == 1);
        feeder.push(0, 7);
        assert_eq!(progress_thread.join().unwrap(), Some(7));
        until(|| shared.wait_stats().progress_thread_sleeps >= 2);
        feeder.push(1, 8);
        assert_eq!(waiter.join().unwrap(), Some(8));
    });
    assert_eq!(shared.wait_stats().handovers, 1);
}

#[test]
fn a_progress_thread_whose_time_is_up_hands_over_too() {
    // Longer each time, until the waiter has fallen asleep before the progress thread's time is
    // over.
    let mut span = Duration::from_millis(100);
    while !hands_over_after(span) {
        span *= 4;
    }
}

/// Returns false if the progress thread returned too early.
fn hands_over_after(span: Duration) -> bool {
    let (shared, feeder) = shared(0);
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| wait(&shared, 0, Some(span)));
        until(|| shared.wait_stats().progress_thread_sleeps >= 1);
        let waiter = scope.spawn(|| wait(&shared, 1, NEVER));
        // The thread sleeps as waiter or as progress thread.
        until(|| shared.wait_stats().waiter_sleeps == 1 || progress_thread.is_finished());
        let followed = shared.wait_stats().waiter_sleeps == 1;
        assert_eq!(progress_thread.join().unwrap(), None);
        feeder.push(1, 8);
        assert_eq!(waiter.join().unwrap(), Some(8));
        assert_eq!(shared.wait_stats().handovers, u64::from(followed));
        followed
    })
}

#[test]
fn time_outs_of_progress_threads_and_waiters_are_kept() {
    let (shared, _feeder) = shared(0);
    let span = Duration::from_millis(60);
    let check = |class| {
        let begin = Instant::now();
        assert_eq!(wait(&shared, class, Some(span)), None);
        let took = begin.elapsed();
        assert!(took >= span && Some(took) < NEVER, "{took:?}");
    };
    thread::scope(|scope| {
        let threads = [0, 1, 2].map(|class| scope.spawn(move || check(class)));
        join(threads);
    });
    // With a time-out of zero it is checked once, and no thread sleeps.
    let (sleeps, mut looks) = (shared.wait_stats().progress_thread_sleeps, 0);
    let look = |toy: &mut Toy| {
        looks += 1;
        toy.take(0)
    };
    assert_eq!(shared.wait_for(1, Some(Duration::ZERO), look), None);
    assert_eq!(
        (looks, shared.wait_stats().progress_thread_sleeps),
        (1, sleeps)
    );
}

#[test]
fn a_thread_that_takes_something_in_for_others_wakes_them() {
    let (shared, feeder) = shared(0);
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| wait(&shared, 0, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps == 1);
        let waiter = scope.spawn(|| wait(&shared, 1, NEVER));
        until(|| shared.wait_stats().waiter_sleeps == 1);
        // By posting.
        shared.lock().produce(1, 11);
        assert_eq!(waiter.join().unwrap(), Some(11));
        assert_eq!(shared.wait_stats().progress_thread_wakes, 0);
        shared.lock().produce(0, 10);
        assert_eq!(progress_thread.join().unwrap(), Some(10));
        assert_eq!(shared.wait_stats().progress_thread_wakes, 1);

        // By polling for something else.
        let progress_thread = scope.spawn(|| wait(&shared, 2, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps == 2);
        feeder.push(2, 12);
        wait(&shared, 3, Some(Duration::ZERO));
        assert_eq!(progress_thread.join().unwrap(), Some(12));
    });
}

#[test]
fn what_concerns_one_thread_wakes_no_other() {
    let (shared, feeder) = shared(0);
    thread::scope(|scope| {
        let quiet = scope.spawn(|| wait(&shared, 1, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps == 1);
        let busy = scope.spawn(|| (0..500).all(|_| wait(&shared, 0, NEVER).is_some()));
        for item in 0..500 {
            feeder.push(0, item);
        }
        assert!(busy.join().unwrap());
        let before = shared.wait_stats();
        assert_eq!(before.waiter_wakes + before.handovers, before.waiter_sleeps);
        feeder.push(1, 1);
        assert_eq!(quiet.join().unwrap(), Some(1));
    });
}

#[test]
fn a_nearer_deadline_is_noticed_by_a_sleeping_progress_thread() {
    let (shared, _feeder) = shared(0);
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| {
            shared.wait_until(NEVER, |toy| {
                (toy.expired > 0).then_some(MonotonicClock.now())
            })
        });
        until(|| shared.wait_stats().progress_thread_sleeps == 1);
        let deadline = MonotonicClock.now().after(Duration::from_millis(30));
        shared.lock().deadline = Some(deadline);
        let woke = progress_thread.join().unwrap().unwrap();
        assert!(woke >= deadline);
        assert!(woke.since(deadline) < Duration::from_secs(5));
    });
}

#[test]
fn progress_thread_notices_a_new_engine() {
    let (shared, feeder) = shared(0);
    shared.lock().open = false;
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| wait(&shared, 0, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps == 1);
        assert!(!feeder.is_armed());
        shared.lock().open = true;
        until(|| feeder.is_armed());
        feeder.push(0, 3);
        assert_eq!(progress_thread.join().unwrap(), Some(3));
    });
}

/// Closes the set and runs `before`, between the decision to sleep in the set and the sleep.
/// Returns the number of reported losses.
fn losses(before: impl FnOnce(&Shared<Toy>) + 'static) -> u64 {
    let (shared, feeder) = shared(0);
    let set = Epoll::new().unwrap();
    shared.lock().set = Some((set.as_fd().as_raw_fd(), 1));
    let closes = {
        let shared = Arc::clone(&shared);
        move || {
            drop(set);
            before(&shared);
            shared.lock().set = None;
            feeder.push(0, 1);
        }
    };
    BEFORE_SLEEP.set(Some(Box::new(closes)));
    assert_eq!(wait(&shared, 0, NEVER), Some(1));
    shared.lock().losses
}

#[test]
fn an_engine_loses_nothing_of_an_earlier_one() {
    let tuning = Tuning::default();
    let reopens = move |shared: &Shared<Toy>| {
        shared.end();
        shared.lock().retune(tuning).unwrap();
    };
    assert_eq!(losses(|_| ()), 1);
    assert_eq!(losses(reopens), 0);
}

#[test]
fn an_engine_is_armed_only_while_a_thread_sleeps() {
    let (shared, feeder) = shared(0);
    assert!(!feeder.is_armed());
    thread::scope(|scope| {
        let progress_thread = scope.spawn(|| wait(&shared, 0, NEVER));
        until(|| feeder.is_armed());
        // After posts and polls of other threads the engine is still armed for the progress thread.
        drop(shared.lock());
        wait(&shared, 1, Some(Duration::ZERO));
        assert!(feeder.is_armed());
        feeder.push(0, 1);
        assert_eq!(progress_thread.join().unwrap(), Some(1));
    });
    assert!(!feeder.is_armed());
}

#[test]
fn in_a_fast_exchange_no_thread_sleeps() {
    let (shared, feeder) = shared(1_000_000);
    let rounds = 2_000;
    let stop = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut answered = 0;
            while !stop.load(Ordering::Acquire) {
                while answered < asked.load(Ordering::Acquire) {
                    feeder.push(0, answered);
                    answered += 1;
                }
                thread::yield_now();
            }
        });
        for item in 0..rounds {
            asked.store(item + 1, Ordering::Release);
            assert_eq!(wait(&shared, 0, NEVER), Some(item));
        }
        stop.store(true, Ordering::Release);
        join([answering]);
    });
    let stats = shared.wait_stats();
    let sleeps = stats.progress_thread_sleeps;
    // Waits that sleep at once, because another program used the processor for long.
    let rests: u64 = (0..stats.long_yields).map(|n| 16 << n.min(6)).sum();
    assert!(
        sleeps <= 1 + rounds / 100 + rests,
        "{sleeps} sleeps in {rounds} rounds, {rests} of rest"
    );
}

#[test]
fn a_thread_goes_on_polling_while_anything_happens() {
    let (shared, feeder) = shared(1_000_000);
    let feeder = &feeder;
    let before = thread::scope(|scope| {
        // Fast answers, until a wait polls.
        let polls = |item: &u64| *item < 16 || shared.wait_stats().spins == 0;
        for item in (0..).take_while(polls) {
            let answering = scope.spawn(move || {
                thread::sleep(Duration::from_millis(1));
                feeder.push(1, item);
            });
            assert_eq!(wait(&shared, 1, NEVER), Some(item));
            join([answering]);
        }
        let before = shared.wait_stats();
        let answering = scope.spawn(|| {
            for item in 0..8 {
                thread::sleep(Duration::from_millis(150));
                feeder.push(0, item);
            }
            feeder.push(1, u64::MAX);
        });
        assert_eq!(wait(&shared, 1, NEVER), Some(u64::MAX));
        join([answering]);
        before
    });
    let after = shared.wait_stats();
    // A program that uses the processor for long ends a spin, too, and the waits after it sleep.
    let ended = after.long_yields - before.long_yields;
    assert!(
        after.vain_spins - before.vain_spins <= ended,
        "{before:?} {after:?}"
    );
    if after.long_yields == 0 {
        assert_eq!(after.spins, before.spins + 1);
    }
}

/// Every item reaches a thread that waits for its class, whatever the threads do.
#[test]
fn nothing_is_lost_between_many_threads() {
    const ITEMS: u64 = 20_000;
    for (spin, helper) in [(0, false), (20, false), (20, true)] {
        let (shared, feeder) = shared(spin);
        let _helper = helper.then(|| Helper::start(Arc::clone(&shared)).unwrap());
        let taken = AtomicU64::new(0);
        let sum = AtomicU64::new(0);
        let note = |item: u64| {
            sum.fetch_add(item, Ordering::Relaxed);
            taken.fetch_add(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..6usize {
                let (shared, note, taken) = (&shared, &note, &taken);
                threads.push(scope.spawn(move || {
                    let class = thread % 4;
                    let mut turn = thread;
                    while taken.load(Ordering::Relaxed) < ITEMS {
                        turn += 1;
                        let timeout = match turn % 5 {
                            0 => Duration::ZERO,
                            1 => Duration::from_micros(30),
                            // Short, so that threads whose class has no more items notice the end.
                            _ => Duration::from_millis(100),
                        };
                        if let Some(item) = wait(shared, class, Some(timeout)) {
                            note(item);
                        }
                    }
                }));
            }
            for part in 0..2 {
                let (shared, feeder) = (&shared, &feeder);
                threads.push(scope.spawn(move || {
                    for item in (part..ITEMS).step_by(2) {
                        let class = (item as usize / 3) % 4;
                        match item % 7 {
                            0 => shared.lock().produce(class, item),
                            _ => feeder.push(class, item),
                        }
                        if item % 64 < 2 {
                            thread::sleep(Duration::from_micros(100));
                        }
                    }
                }));
            }
            join(threads);
        });
        assert_eq!(taken.load(Ordering::Relaxed), ITEMS);
        assert_eq!(sum.load(Ordering::Relaxed), ITEMS * (ITEMS - 1) / 2);
    }
}

/// A lost wake-up makes this test hang: no thread has a time-out, and an item comes only when the
/// one before it has been taken.
#[test]
fn no_wake_up_is_lost_one_item_at_a_time() {
    const ROUNDS: u64 = 3_000;
    let (shared, feeder) = shared(5);
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        let (shared, taken) = (&shared, &taken);
        let threads = [0, 1, 2].map(|class| {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    assert!(wait(shared, class, NEVER).is_some());
                    taken.fetch_add(1, Ordering::Release);
                }
            })
        });
        for item in 0..ROUNDS * 3 {
            feeder.push((item % 3) as usize, item);
            let begin = Instant::now();
            while taken.load(Ordering::Acquire) <= item {
                assert!(Some(begin.elapsed()) < NEVER, "a wake-up was lost");
                thread::yield_now();
            }
        }
        join(threads);
    });
}
