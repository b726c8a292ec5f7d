//! Periodic timer for providers without a wait descriptor.
//!
//! ```text
//!   traffic --> 50 us, 100 us, ... 2 ms, 2 ms, ...    doubles at each start,
//!                                                     until traffic resets it
//! ```
//!
//! Owns: the timer and its interval.
//! Out of scope: polling after the timer fires.

use mx_port_base::close_on_fork::CloseOnFork;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// First interval after traffic: about the cost of a wake-up, during which a fabric carries some datagrams.
const FIRST: Duration = Duration::from_micros(50);

/// Longest interval: bounds the added latency of a wake-up, at the price of 500 idle polls a second.
const LONGEST: Duration = Duration::from_millis(2);

/// Timer with a growing interval.
#[derive(Debug)]
pub(super) struct PollTimer {
    fd: CloseOnFork<TimerFd>,
    next: Duration,
    running: bool,
}

impl PollTimer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let fd = CloseOnFork::open(|| TimerFd::new(ClockId::CLOCK_MONOTONIC, flags))?;
        Ok(Self {
            fd,
            next: FIRST,
            running: false,
        })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Resets the interval after traffic.
    pub(super) fn quicken(&mut self) {
        self.next = FIRST;
    }

    /// Starts the timer. Returns false if the kernel refuses.
    pub(super) fn start(&mut self) -> bool {
        let after = Expiration::OneShot(self.next.into());
        self.running = self.fd.set(after, TimerSetTimeFlags::empty()).is_ok();
        self.next = (self.next * 2).min(LONGEST);
        self.running
    }

    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            // `unset` also clears an expiry.
            let _ = self.fd.unset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires(poll_timer: &PollTimer, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd {
            fd: poll_timer.raw(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
    }

    #[test]
    fn it_fires_once_started_and_not_when_stopped() {
        let mut poll_timer = PollTimer::new().unwrap();
        assert!(!fires(&poll_timer, 0));
        for _ in 0..10 {
            assert!(poll_timer.start());
            assert!(fires(&poll_timer, 10_000));
            poll_timer.stop();
            assert!(!fires(&poll_timer, 0));
        }
        assert_eq!(poll_timer.next, LONGEST);
        poll_timer.quicken();
        assert_eq!(poll_timer.next, FIRST);
    }
}
