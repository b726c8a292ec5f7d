//! An engine in a child of fork: it is consistent, and no thread waits for it.
//!
//! The test has a process of its own, whose children continue with one of its many threads.

use crate::own_process::in_own_process;
use mx_proto::Instant;
use mx_proto::port::WakeDescriptors;
use mx_sys::{Interest, Progress, Shared, Tuning};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Default)]
struct Counter {
    low: u64,
    high: u64,
    produced: bool,
    forks: u32,
}

impl Counter {
    fn is_whole(&self) -> bool {
        self.low == self.high
    }
}

impl Progress for Counter {
    fn progress(&mut self) -> bool {
        false
    }

    fn take_produced(&mut self) -> Interest {
        if std::mem::take(&mut self.produced) {
            Interest::MAX
        } else {
            0
        }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}

    fn note_control(&mut self) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }

    fn active(&self) -> bool {
        true
    }

    fn in_child(&mut self) {
        self.forks += 1;
    }
}

/// Forks a child, which exits with the number of the first failed step or 0. Returns its status.
fn end_of_child(steps: impl FnOnce() -> Result<(), i32>) -> i32 {
    // SAFETY: the child sets an alarm, calls `steps`, and leaves by `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: no pointers; it ends a child that hangs.
        unsafe { libc::alarm(20) };
        let code = steps().err().unwrap_or(0);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn works_in_a_child(shared: &Shared<Counter>, generation: u32) -> Result<(), i32> {
    let step = |number, holds: bool| if holds { Ok(()) } else { Err(number) };
    step(1, !shared.is_mine())?;
    step(
        2,
        shared.lock().is_whole() && shared.lock().forks == generation,
    )?;
    step(3, shared.retune(Tuning::default()).is_ok())?;
    shared.claim();
    step(4, shared.is_mine())?;
    let nothing = shared.wait_until(Some(Duration::from_millis(5)), |_| None::<()>);
    step(5, nothing.is_none())?;
    // Threads of the child wait and are woken.
    std::thread::scope(|scope| {
        let waiters = [(); 3].map(|()| {
            scope.spawn(|| shared.wait_until(None, |counter| (counter.low > 1 << 60).then_some(())))
        });
        std::thread::sleep(Duration::from_millis(20));
        {
            let mut counter = shared.lock();
            counter.low = u64::MAX;
            counter.produced = true;
        }
        let all = waiters.map(|waiter| waiter.join().ok().flatten());
        step(6, all == [Some(()); 3])
    })
}

#[test]
fn forked_child_continues_despite_waiting_parent_threads() {
    in_own_process!();
    let shared = Shared::new(Counter::default(), Tuning::default()).unwrap();
    let shared: &'static Shared<Counter> = Box::leak(Box::new(shared));
    shared.inherit();
    static OVER: AtomicBool = AtomicBool::new(false);
    let over = |_: &mut Counter| OVER.load(Ordering::Relaxed).then_some(());
    let mut threads: Vec<_> = (0..3)
        .map(|_| std::thread::spawn(move || shared.wait_until(None, over)))
        .collect();
    threads.push(std::thread::spawn(move || {
        while !OVER.load(Ordering::Relaxed) {
            let mut counter = shared.lock();
            counter.low += 1;
            std::thread::yield_now();
            counter.high += 1;
            drop(counter);
            std::thread::yield_now();
        }
        Some(())
    }));
    for _ in 0..10 {
        assert_eq!(end_of_child(|| works_in_a_child(shared, 1)), 0);
    }
    // A child that has not claimed the engine, and the child of that.
    let grandchild = end_of_child(|| match end_of_child(|| works_in_a_child(shared, 2)) {
        0 => Ok(()),
        status => Err(status >> 8 | status),
    });
    assert_eq!(grandchild, 0);
    assert!(shared.is_mine() && shared.lock().is_whole() && shared.lock().forks == 0);
    OVER.store(true, Ordering::Relaxed);
    shared.lock().produced = true;
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Some(()));
    }
}
