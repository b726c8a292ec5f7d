//! Periodic timer for providers without a wait descriptor.
//!
//! ```text
//!   traffic --> 50 us, 100 us, ... 2 ms, 2 ms, ...    doubles each time a sleeper wakes
//!                                                     and finds nothing
//! ```
//!
//! Owns: the timer and its interval.
//! Out of scope: the polling after it fires.

use mx_port_base::close_on_fork::CloseOnFork;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// The first interval after traffic: about the cost of a wake-up, and a fabric carries some
/// datagrams meanwhile.
const FIRST: Duration = Duration::from_micros(50);

/// The longest interval: the delay it adds to a wake-up, against 500 idle polls a second.
const LONGEST: Duration = Duration::from_millis(2);

/// The timer.
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

    /// Starts the timer. False if the system refuses.
    pub(super) fn start(&mut self) -> bool {
        let after = Expiration::OneShot(self.next.into());
        self.running = self.fd.set(after, TimerSetTimeFlags::empty()).is_ok();
        self.next = (self.next * 2).min(LONGEST);
        self.running
    }

    /// Stops the timer.
    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            // It also clears an expiry.
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
