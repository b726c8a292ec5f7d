//! The doorbells of a ring in shared memory: a side that says that it sleeps is rung.
//!
//! ```text
//!   Producer::push                           LocalPort::arm
//!     flag.store(lap, Release)                 sleeping.swap(1, Relaxed)
//!     barrier::light                           barrier::heavy
//!     sleeping.load, swap(0) --1--> ring       flag.load(Acquire) --there--> not asleep
//! ```
//!
//! A model of those lines of `ports/local`, not the lines: theirs lie in memory of the kernel's,
//! where loom has no atomics. `Consumer::publish` and `Producer::set_waiting` are the same with the
//! sides exchanged. The kernel's barrier (`membarrier`) is a fence in both sides here, which is what
//! it is for; that it is one is the kernel's promise and not shown.

use crate::eventfd::EventFd;
use crate::kernel;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// Packets are numbered from 1; the flag says which is there.
const PACKETS: u64 = 2;

struct Link {
    flag: AtomicU64,
    sleeping: AtomicU32,
    doorbell: EventFd,
    /// Whether the barriers are there.
    barriers: bool,
}

impl Link {
    fn barrier(&self) {
        if self.barriers {
            fence(Ordering::SeqCst);
        }
    }

    /// `Producer::push` and `LocalPort::after_push`.
    fn push(&self, packet: u64) {
        self.flag.store(packet, Ordering::Release);
        self.barrier();
        if self.sleeping.load(Ordering::Relaxed) != 0
            && self.sleeping.swap(0, Ordering::Relaxed) != 0
        {
            self.doorbell.ring();
        }
    }

    fn is_ready(&self, packet: u64) -> bool {
        self.flag.load(Ordering::Acquire) >= packet
    }

    /// `Consumer::set_sleeping`.
    fn set_sleeping(&self, sleeping: u32) {
        self.sleeping.swap(sleeping, Ordering::Relaxed);
    }

    /// `LocalPort::arm`. False: there is something.
    fn arm(&self, packet: u64) -> bool {
        self.set_sleeping(1);
        self.barrier();
        if self.is_ready(packet) {
            self.set_sleeping(0);
            return false;
        }
        true
    }

    /// In the set, which tells of each ring once.
    fn sleep(&self) {
        let mut fds = libc_real::pollfd {
            fd: self.doorbell.as_raw_fd(),
            events: libc_real::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, no time-out, no mask.
        unsafe { kernel::ppoll(&raw mut fds, 1, std::ptr::null(), std::ptr::null()) };
        self.doorbell.silence();
    }
}

fn in_every_order(barriers: bool) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let link = Arc::new(Link {
            flag: AtomicU64::new(0),
            sleeping: AtomicU32::new(0),
            doorbell: EventFd::new().unwrap(),
            barriers,
        });
        let consuming = {
            let link = Arc::clone(&link);
            thread::spawn(move || {
                for packet in 1..=PACKETS {
                    while !link.is_ready(packet) {
                        if link.arm(packet) {
                            link.sleep();
                            link.set_sleeping(0);
                        }
                    }
                }
            })
        };
        for packet in 1..=PACKETS {
            link.push(packet);
        }
        consuming.join().unwrap();
    });
}

#[test]
fn who_falls_asleep_while_a_packet_comes_is_rung_or_sees_it() {
    in_every_order(true);
}

/// Without the barriers a wake-up is lost, and the model sees it.
#[test]
#[should_panic(expected = "deadlock")]
fn without_the_barriers_one_sleeps_for_ever() {
    in_every_order(false);
}
