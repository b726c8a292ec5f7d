//! Periodic timer for providers without a wait descriptor.
//!
//! ```text
//!   traffic --> 50 us, 100 us, ... 2 ms, 2 ms, ...    doubles each time a sleeper wakes
//!                                                     and finds nothing
//! ```
//!
//! Owns: the timer and its interval.
//! Not here: the polling after it fires.

use mx_port_base::close_on_fork::{CloseOnFork, CloseOnForkFd};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The first interval after traffic: about the cost of a wake-up, and a fabric carries some
/// datagrams meanwhile.
const FIRST: Duration = Duration::from_micros(50);

/// The longest interval: the delay it adds to a wake-up, against 500 idle polls a second.
const LONGEST: Duration = Duration::from_millis(2);

/// The timer.
#[derive(Debug)]
pub(super) struct PollTimer {
    fd: CloseOnForkFd,
    next: Duration,
    running: bool,
}

impl PollTimer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        let fd = CloseOnFork::open(|| {
            // SAFETY: no pointers; the result is checked.
            let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a fresh descriptor, not owned elsewhere.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })?;
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
        self.running = self.set(self.next);
        self.next = (self.next * 2).min(LONGEST);
        self.running
    }

    /// Stops the timer.
    pub(super) fn stop(&mut self) {
        if std::mem::take(&mut self.running) {
            // Setting it also clears an expiry.
            self.set(Duration::ZERO);
        }
    }

    fn set(&self, after: Duration) -> bool {
        let time = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: 0,
                // At most `LONGEST`.
                tv_nsec: i64::from(after.subsec_nanos()),
            },
        };
        let none = std::ptr::null_mut();
        // SAFETY: a timer, and a whole `struct itimerspec`.
        unsafe { libc::timerfd_settime(self.raw(), 0, &raw const time, none) == 0 }
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
