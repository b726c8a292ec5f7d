//! An engine for tests and benchmarks of `progress`: items arrive on a wire and are sorted by
//! class.
//!
//! ```text
//!   Feeder (any thread) --push--> [ wire ] --progress--> [ class 0 | class 1 | ... ] --take-->
//!                          |  rings the doorbell when the engine is armed, as a port's peer does
//! ```

#![allow(dead_code, reason = "every test binary uses another part of it")]

use mx_proto::port::WakeDescriptors;
use mx_proto::{Clock, Instant};
use mx_sys::clock::MonotonicClock;
use mx_sys::eventfd::EventFd;
use mx_sys::lock::Mutex;
use mx_sys::{Interest, Progress, Shared};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant as RealInstant};

#[derive(Debug)]
pub(crate) struct Wire {
    items: Mutex<VecDeque<(usize, u64)>>,
    doorbell: EventFd,
    control: EventFd,
    armed: AtomicBool,
    pub(crate) rings: AtomicU64,
    /// Number of packets that the engine has sent.
    sent: AtomicU64,
}

/// The source of items.
#[derive(Clone, Debug)]
pub(crate) struct Feeder {
    pub(crate) wire: Arc<Wire>,
}

impl Feeder {
    pub(crate) fn push(&self, class: usize, item: u64) {
        let mut items = self.wire.items.lock();
        items.push_back((class, item));
        if self.wire.armed.swap(false, Ordering::SeqCst) {
            self.wire.rings.fetch_add(1, Ordering::Relaxed);
            self.wire.doorbell.ring();
        }
    }

    /// Rings the descriptor of connections.
    pub(crate) fn knock(&self) {
        self.wire.control.ring();
    }

    /// Returns the number of packets that the engine has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.wire.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.wire.armed.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(crate) struct Toy {
    wire: Arc<Wire>,
    done: Vec<VecDeque<u64>>,
    produced: Interest,
    pub(crate) deadline: Option<Instant>,
    pub(crate) expired: u64,
    noted: bool,
    /// Number of packets that are held back.
    held: u64,
    pub(crate) knocks: u64,
    pub(crate) polls: u64,
    pub(crate) open: bool,
    /// The epoll instance to sleep in, and its number.
    pub(crate) set: Option<(RawFd, u64)>,
    /// Number of reports that the host has closed the descriptors.
    pub(crate) losses: u64,
}

thread_local! {
    /// Runs once in this thread, without the lock, before the next sleep in the kernel.
    pub(crate) static BEFORE_SLEEP: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

impl Toy {
    pub(crate) fn new(classes: usize) -> (Self, Feeder) {
        let wire = Arc::new(Wire {
            items: Mutex::default(),
            doorbell: EventFd::new().unwrap(),
            control: EventFd::new().unwrap(),
            armed: AtomicBool::new(false),
            rings: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        });
        let toy = Self {
            wire: Arc::clone(&wire),
            done: vec![VecDeque::new(); classes],
            produced: 0,
            deadline: None,
            expired: 0,
            noted: false,
            held: 0,
            knocks: 0,
            polls: 0,
            open: true,
            set: None,
            losses: 0,
        };
        (toy, Feeder { wire })
    }

    pub(crate) fn take(&mut self, class: usize) -> Option<u64> {
        self.done[class].pop_front()
    }

    /// Sends a packet, which may be held back.
    pub(crate) fn send(&mut self, may_hold: bool) {
        self.held += 1;
        if !may_hold {
            self.send_held();
        }
    }

    /// Completes an operation of this process.
    pub(crate) fn produce(&mut self, class: usize, item: u64) {
        self.done[class].push_back(item);
        self.produced |= 1 << class;
    }
}

impl Progress for Toy {
    fn progress(&mut self) -> bool {
        self.polls += 1;
        let mut some = false;
        self.send_held();
        if self
            .deadline
            .is_some_and(|deadline| deadline <= MonotonicClock.now())
        {
            self.deadline = None;
            self.expired += 1;
            some = true;
        }
        if std::mem::take(&mut self.noted) {
            self.knocks += u64::from(self.wire.control.silence());
        }
        let items = std::mem::take(&mut *self.wire.items.lock());
        for (class, item) in items {
            some = true;
            self.produce(class, item);
        }
        some
    }

    fn take_produced(&mut self) -> Interest {
        std::mem::take(&mut self.produced)
    }

    fn arm(&mut self) -> bool {
        let items = self.wire.items.lock();
        if !items.is_empty() {
            return false;
        }
        // Clears a ring for items that another thread has taken in since.
        self.wire.doorbell.silence();
        self.wire.armed.store(true, Ordering::SeqCst);
        true
    }

    fn disarm(&mut self) {
        let _items = self.wire.items.lock();
        if !self.wire.armed.swap(false, Ordering::SeqCst) {
            self.wire.doorbell.silence();
        }
    }

    fn note_control(&mut self) {
        self.noted = true;
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: Some(self.wire.control.as_raw_fd()),
            data: Some(self.wire.doorbell.as_raw_fd()),
        }
    }

    fn active(&self) -> bool {
        self.open
    }

    fn holds(&self) -> bool {
        self.held > 0
    }

    fn send_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.wire.sent.fetch_add(held, Ordering::SeqCst);
    }

    fn set(&self) -> Option<(RawFd, u64)> {
        self.set
    }

    fn lose(&mut self) {
        self.losses += 1;
    }

    fn give_back_due() -> Option<Instant> {
        if let Some(run) = BEFORE_SLEEP.take() {
            run();
        }
        None
    }
}

/// Long enough that reaching it means a lost wake-up.
pub(crate) const NEVER: Option<Duration> = Some(Duration::from_secs(20));

pub(crate) fn wait(shared: &Shared<Toy>, class: usize, timeout: Option<Duration>) -> Option<u64> {
    shared.wait_for(1 << class, timeout, |toy| toy.take(class))
}

/// Waits until `sign` holds, which another thread has to cause.
pub(crate) fn until(sign: impl Fn() -> bool) {
    let begin = RealInstant::now();
    while !sign() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "never came about"
        );
        thread::sleep(Duration::from_micros(200));
    }
}
