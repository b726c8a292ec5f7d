//! Mercury's contexts, and the descriptor on which their threads sleep.
//!
//! ```text
//!   poll_get_fd --> set { the endpoint's descriptors, doorbell, timer }
//!   poll_try_wait:  a completion since the last poll? work for the endpoint?   no: the thread may sleep
//!   poll            ends the sleep; progress
//! ```
//!
//! A completion of a context whose thread sleeps rings its doorbell, whichever thread has caused it. The timer covers
//! the endpoint's deadlines.
//!
//! Every field but the number changes under the engine's lock.

use mx_proto::{Clock, Instant};
use mx_sys::MonotonicClock;
use mx_sys::epoll::{Epoll, READABLE};
use mx_sys::eventfd::EventFd;
use nix_timer::Timer;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Number chosen by the program.
    pub(crate) id: u8,
    completions: u64,
    reported: u64,
    sleeps: bool,
    sleep: Option<Sleep>,
}

/// Descriptors of a context's sleep.
#[derive(Debug)]
struct Sleep {
    set: Epoll,
    doorbell: EventFd,
    timer: Timer,
    due: Option<Instant>,
    rang: bool,
}

impl Context {
    /// Makes a context with that number.
    pub(crate) fn new(id: u8) -> Self {
        Self {
            id,
            completions: 0,
            reported: 0,
            sleeps: false,
            sleep: None,
        }
    }

    /// Returns the descriptor to sleep on, made at the first call. `ports`: the endpoint's set.
    pub(crate) fn descriptor(&mut self, ports: RawFd) -> io::Result<RawFd> {
        if self.sleep.is_none() {
            let sleep = Sleep {
                set: Epoll::new()?,
                doorbell: EventFd::new()?,
                timer: Timer::new()?,
                due: None,
                rang: false,
            };
            sleep.set.add(&Raw(ports), 0, READABLE)?;
            sleep.set.add(&sleep.doorbell, 1, READABLE)?;
            sleep.set.add(&sleep.timer, 2, READABLE)?;
            self.sleep = Some(sleep);
        }
        let sleep = self.sleep.as_ref();
        Ok(sleep.map_or(-1, |sleep| sleep.set.raw()))
    }

    /// Counts a completion added to this context's queue, and wakes its thread.
    #[inline]
    pub(crate) fn on_completion(&mut self) {
        self.completions += 1;
        if self.sleeps {
            self.wake();
        }
    }

    /// Returns whether completions have been added since the last call.
    #[inline]
    pub(crate) fn take_completions(&mut self) -> bool {
        std::mem::replace(&mut self.reported, self.completions) != self.completions
    }

    /// Returns whether a thread may be asleep.
    #[inline]
    pub(crate) fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Records that a thread goes to sleep, at the latest until `due`.
    pub(crate) fn fall_asleep(&mut self, due: Option<Instant>) {
        self.sleeps = true;
        if let Some(sleep) = &mut self.sleep
            && sleep.due != due
        {
            sleep.due = due;
            sleep
                .timer
                .set(due.map(|due| due.since(MonotonicClock.now())));
        }
    }

    /// Records that the thread is awake. Returns whether it was recorded as sleeping.
    #[inline]
    pub(crate) fn wake_up(&mut self) -> bool {
        let slept = std::mem::take(&mut self.sleeps);
        if slept && let Some(sleep) = &mut self.sleep {
            if std::mem::take(&mut sleep.rang) {
                sleep.doorbell.silence();
            }
            let due = sleep.due.is_some_and(|due| due <= MonotonicClock.now());
            if due {
                sleep.due = None;
                sleep.timer.set(None);
            }
        }
        slept
    }

    /// Wakes a sleeping thread.
    #[cold]
    pub(crate) fn wake(&mut self) {
        if self.sleeps
            && let Some(sleep) = &mut self.sleep
            && !std::mem::replace(&mut sleep.rang, true)
        {
            sleep.doorbell.ring();
        }
    }
}

struct Raw(RawFd);

impl AsRawFd for Raw {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

mod nix_timer {
    //! A timer as a descriptor.

    use libc::{CLOCK_MONOTONIC, TFD_CLOEXEC, TFD_NONBLOCK, itimerspec, timespec};
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::ptr;
    use std::time::Duration;

    /// A timer descriptor, readable when the timer has expired.
    #[derive(Debug)]
    pub(super) struct Timer(OwnedFd);

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            // SAFETY: takes no pointers.
            let fd = unsafe { libc::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a descriptor that has just been opened.
            Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
        }

        /// Sets the time from now, or stops the timer. Either silences the descriptor.
        pub(super) fn set(&self, span: Option<Duration>) {
            // All zeroes stop the timer.
            let span = span.map(|span| span.max(Duration::from_nanos(1)));
            let value = span.map_or(
                timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                |span| timespec {
                    tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: span.subsec_nanos().into(),
                },
            );
            let new = itimerspec {
                it_interval: timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                },
                it_value: value,
            };
            // SAFETY: an open descriptor, and a time.
            unsafe {
                libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const new, ptr::null_mut())
            };
        }
    }

    impl AsRawFd for Timer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}
