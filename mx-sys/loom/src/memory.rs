//! Memory that threads and processes read of each other without a lock, on a machine that keeps no order by itself.
//!
//! ```text
//!   ring        bodies written before the flag, cells given back before the tail      ports/local/src/ring.rs
//!   room        a producer that waits for room, what it asks for and the tails              the same
//!   page        numbers that change as one, read by another process                   published/publisher.rs, find.rs
//!   list        lines that threads leave for one that writes them                     deferred_log.rs
//! ```
//!
//! Models of those lines, as in [`doorbell`](crate::doorbell), with the orders in which they have them; and with each
//! order left away that something depends on, which must be seen to fail. The table of all of them, those that
//! nothing depends on too, is in the crate's README.

use crate::eventfd::EventFd;
use crate::kernel;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

fn in_every_order(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

/// Whether it fails in some order.
fn fails(body: impl Fn() + Send + Sync + 'static) -> bool {
    std::thread::spawn(|| in_every_order(body)).join().is_err()
}

/// Orders of a store and the load that reads it.
#[derive(Clone, Copy)]
struct Pair(Ordering, Ordering);

/// Each end of each pair left away in turn.
fn weakened<const N: usize>(pairs: [Pair; N]) -> Vec<[Pair; N]> {
    let mut all = Vec::new();
    for at in 0..N {
        let Pair(store, load) = pairs[at];
        for pair in [Pair(Relaxed, load), Pair(store, Relaxed)] {
            let mut weak = pairs;
            weak[at] = pair;
            all.push(weak);
        }
    }
    all
}

/* ---- ring ---- */

const CELLS: usize = 2;
const PACKETS: u64 = 4;

#[derive(Default)]
struct Ring {
    flags: [AtomicU64; CELLS],
    bodies: [UnsafeCell<u64>; CELLS],
    tail: AtomicU64,
}

// SAFETY: the flags and the tail say whose a body is; loom looks whether they do.
unsafe impl Sync for Ring {}

/// `Producer::push` with `look_at_tails`, and `Consumer::peek` with `publish`.
fn ring([flag, tail]: [Pair; 2]) {
    let ring = Arc::new(Ring::default());
    let consuming = {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            for packet in 1..=PACKETS {
                let cell = packet as usize % CELLS;
                while ring.flags[cell].load(flag.1) != packet {
                    thread::yield_now();
                }
                // SAFETY: the flag says that it is ours.
                let body = ring.bodies[cell].with(|body| unsafe { *body });
                assert_eq!(body, packet);
                ring.tail.store(packet, tail.0);
            }
        })
    };
    for packet in 1..=PACKETS {
        let cell = packet as usize % CELLS;
        while packet - ring.tail.load(tail.1) > CELLS as u64 {
            thread::yield_now();
        }
        // SAFETY: the tail says that it is ours.
        ring.bodies[cell].with_mut(|body| unsafe { *body = packet });
        ring.flags[cell].store(packet, flag.0);
    }
    consuming.join().unwrap();
}

const RING: [Pair; 2] = [Pair(Release, Acquire), Pair(Release, Acquire)];

#[test]
fn bodies_are_whole_and_none_is_written_while_it_is_read() {
    in_every_order(|| ring(RING));
}

#[test]
fn each_order_of_the_ring_is_needed() {
    for weak in weakened(RING) {
        assert!(fails(move || ring(weak)));
    }
}

/* ---- room ---- */

struct Room {
    flag: AtomicU64,
    tail: AtomicU64,
    waiting: AtomicU32,
    until: AtomicU64,
    doorbell: EventFd,
    barriers: bool,
}

impl Room {
    fn barrier(&self) {
        if self.barriers {
            fence(SeqCst);
        }
    }

    fn has_room(&self, head: u64) -> bool {
        head - self.tail.load(Acquire) < CELLS as u64
    }

    /// `Consumer::publish`; what it held back.
    fn publish(&self, tail: u64) -> bool {
        self.tail.store(tail, Release);
        self.barrier();
        let waiting = self.waiting.load(Acquire) != 0;
        let enough = waiting && self.until.load(Relaxed) <= tail;
        if enough && self.waiting.swap(0, Relaxed) != 0 {
            self.doorbell.ring();
        }
        waiting && !enough
    }

    fn sleep(&self) {
        let mut fds = libc_real::pollfd {
            fd: self.doorbell.as_raw_fd(),
            events: libc_real::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, no time-out, no mask.
        unsafe { kernel::ppoll(&raw mut fds, 1, ptr::null(), ptr::null()) };
        self.doorbell.silence();
    }
}

/// `Producer::set_waiting`, and `Consumer::publish` with `finish`.
fn room(barriers: bool) {
    let room = Arc::new(Room {
        flag: AtomicU64::new(0),
        tail: AtomicU64::new(0),
        waiting: AtomicU32::new(0),
        until: AtomicU64::new(0),
        doorbell: EventFd::new().unwrap(),
        barriers,
    });
    let consuming = {
        let room = Arc::clone(&room);
        thread::spawn(move || {
            let (mut tail, mut held) = (0, false);
            while tail < PACKETS {
                if room.flag.load(Acquire) > tail {
                    tail += 1;
                    held = room.publish(tail);
                } else {
                    // Empty.
                    if held && room.waiting.swap(0, Relaxed) != 0 {
                        room.doorbell.ring();
                    }
                    held = false;
                    thread::yield_now();
                }
            }
        })
    };
    for head in 0..PACKETS {
        while !room.has_room(head) {
            room.until.store(head, Relaxed);
            room.waiting.swap(1, Release);
            room.barrier();
            if room.has_room(head) {
                room.waiting.swap(0, Release);
                break;
            }
            room.sleep();
        }
        room.flag.store(head + 1, Release);
    }
    consuming.join().unwrap();
}

#[test]
fn who_waits_for_room_is_rung_or_sees_it() {
    in_every_order(|| room(true));
}

#[test]
fn without_the_barriers_one_waits_for_room_for_ever() {
    assert!(fails(|| room(false)));
}

/* ---- page ---- */

#[derive(Default)]
struct Page {
    sequence: AtomicU64,
    values: [AtomicU64; 2],
}

/// `Publisher::update`, and `find::read`, which gets its words from the kernel in no order.
fn page(writers_fence: bool, readers_fence: bool, even: Ordering) {
    let page = Arc::new(Page::default());
    let writing = {
        let page = Arc::clone(&page);
        thread::spawn(move || {
            for update in 1..=2 {
                page.sequence.store(2 * update - 1, Relaxed);
                if writers_fence {
                    fence(Release);
                }
                page.values
                    .iter()
                    .for_each(|value| value.store(update, Relaxed));
                page.sequence.store(2 * update, even);
            }
        })
    };
    let read = || {
        let [first, second] = [0, 1].map(|at| page.values[at].load(Relaxed));
        (first, page.sequence.load(Relaxed), second)
    };
    let once = read();
    if readers_fence {
        fence(SeqCst);
    }
    let (first, sequence, second) = read();
    if once == (first, sequence, second) && sequence % 2 == 0 {
        assert_eq!((first, second), (sequence / 2, sequence / 2));
    }
    writing.join().unwrap();
}

#[test]
fn what_is_read_twice_with_an_even_number_is_whole() {
    in_every_order(|| page(true, true, Release));
}

#[test]
fn each_order_of_a_page_is_needed() {
    assert!(fails(|| page(false, true, Release)));
    assert!(fails(|| page(true, false, Release)));
    assert!(fails(|| page(true, true, Relaxed)));
}

/* ---- list ---- */

struct Line {
    text: UnsafeCell<u64>,
    before: *mut Self,
}

/// `Lines::put` by two threads, and `Lines::say`.
fn list(Pair(put, take): Pair) {
    let latest = Arc::new(AtomicPtr::new(ptr::null_mut()));
    let putting = [1, 2].map(|text| {
        let latest = Arc::clone(&latest);
        thread::spawn(move || {
            let line = Box::into_raw(Box::new(Line {
                text: UnsafeCell::new(text),
                before: ptr::null_mut(),
            }));
            let _ = latest.fetch_update(put, Relaxed, |before| {
                // SAFETY: this thread's, until it is in the list.
                unsafe { (*line).before = before };
                Some(line)
            });
        })
    });
    let mut texts = 0;
    while texts < 3 {
        let mut line: *mut Line = latest.swap(ptr::null_mut(), take);
        if line.is_null() {
            thread::yield_now();
        }
        while !line.is_null() {
            // SAFETY: taken out of the list by this thread.
            let taken = unsafe { Box::from_raw(line) };
            // SAFETY: as above.
            texts += taken.text.with(|text| unsafe { *text });
            line = taken.before;
        }
    }
    for thread in putting {
        thread.join().unwrap();
    }
}

#[test]
fn lines_are_whole_when_they_are_said() {
    in_every_order(|| list(Pair(Release, Acquire)));
}

#[test]
fn both_orders_of_the_list_are_needed() {
    for [weak] in weakened([Pair(Release, Acquire)]) {
        assert!(fails(move || list(weak)));
    }
}
