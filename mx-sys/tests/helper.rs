//! The helper thread, in a process of its own, so that its processor time can be measured.

use crate::own_process::in_own_process;
use crate::support::{NEVER, Toy, until, wait};
use mx_proto::Clock;
use mx_sys::clock::MonotonicClock;
use mx_sys::{Helper, Shared, Tuning};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the helper's processor time so far, in nanoseconds.
fn helper_time() -> u64 {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if std::fs::read_to_string(task.join("comm")).is_ok_and(|c| c == "mx-progress\n") {
            let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
            return stat.split(' ').next().unwrap().parse().unwrap();
        }
    }
    panic!("no helper thread");
}

#[test]
fn the_helper_takes_over_stands_down_and_sleeps() {
    in_own_process!();
    let (toy, feeder) = Toy::new(16);
    let shared = Arc::new(Shared::new(toy, Tuning::default()).unwrap());
    let mut helper = Helper::start(Arc::clone(&shared)).unwrap();

    // The application computes; the helper processes packets and connections.
    until(|| feeder.is_armed());
    feeder.push(0, 5);
    until(|| shared.lock().polls > 0 && shared.wait_stats().helper_arms >= 2);
    assert_eq!(shared.lock().take(0), Some(5));
    feeder.knock();
    until(|| shared.lock().knocks == 1);

    // A posted operation does not disturb the helper, and a nearer deadline does.
    assert_eq!(shared.wait_stats().stand_downs, 0);
    shared.lock().deadline = Some(MonotonicClock.now().after(Duration::from_millis(5)));
    until(|| shared.lock().expired == 1);

    // The application polls: the helper stands down once, and peers need not ring.
    until(|| feeder.is_armed());
    let rings = feeder.wire.rings.load(Ordering::Relaxed);
    let begin = Instant::now();
    let mut item = 0;
    // The machine may keep this thread from polling for so long that the helper takes over.
    let (mut last, mut gaps) = (begin, 0);
    while begin.elapsed() < Duration::from_millis(100) {
        feeder.push(1, item);
        assert_eq!(wait(&shared, 1, Some(Duration::ZERO)), Some(item));
        item += 1;
        gaps += u64::from(last.elapsed() > Duration::from_millis(5));
        last = Instant::now();
    }
    let stats = shared.wait_stats();
    let most = 3 + 2 * gaps;
    assert!(stats.stand_downs <= most, "{stats:?} in {item} polls");
    let rung = feeder.wire.rings.load(Ordering::Relaxed) - rings;
    assert!(rung <= most, "{rung} rings in {item} polls");

    // Connections are processed without a call.
    feeder.knock();
    until(|| shared.lock().knocks == 2);

    // While idle or blocked, the helper uses almost no processor time.
    until(|| feeder.is_armed());
    let before = helper_time();
    thread::sleep(Duration::from_millis(500));
    let idle = helper_time() - before;
    assert!(idle < 500_000_000 / 100, "{idle} ns of 500 ms while idle");
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&shared, 2, NEVER));
        until(|| shared.wait_stats().progress_thread_sleeps > stats.progress_thread_sleeps);
        let before = helper_time();
        thread::sleep(Duration::from_millis(500));
        let blocked = helper_time() - before;
        assert!(
            blocked < 500_000_000 / 100,
            "{blocked} ns of 500 ms while blocked"
        );
        feeder.push(2, 1);
        assert_eq!(sleeper.join().unwrap(), Some(1));
    });

    // The endpoint is closed and opened again.
    shared.lock().open = false;
    until(|| !feeder.is_armed());
    shared.lock().open = true;
    until(|| feeder.is_armed());

    let begin = Instant::now();
    helper.stop();
    assert!(Some(begin.elapsed()) < NEVER);
    assert!(!feeder.is_armed());
    feeder.push(3, 9);
    assert_eq!(wait(&shared, 3, NEVER), Some(9));
}
