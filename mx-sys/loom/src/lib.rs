//! `mx-sys`'s way of waiting, in every order in which threads can meet.
//!
//! ```text
//!   progress; ports/base: fork, eventfd, clock      as they are
//!        |  lock::{Mutex, Condvar}          libc::{ppoll, clock_gettime, ..}, nix::unistd::{read, write}
//!        v                                  v
//!   locks of loom's                    kernel: real eventfds; who sleeps, sleeps in loom
//! ```
//!
//! Loom runs a model again and again, each time with the threads in another order, and fails when
//! none of them can go on: that is what a lost wake-up is. A time-out that is waited for is over at
//! once, after all other threads had a turn; so nothing here may rely on one.
//!
//! Out of scope: ports. What their shared memory adds is in `doorbell` and `memory`.

#![cfg(test)]
#![allow(
    dead_code,
    reason = "models use only a part of what they take from mx-sys"
)]

// The sources name these crates, and mean what follows.
extern crate self as libc;
extern crate self as mx_reserve;
extern crate self as mx_sys;
extern crate self as nix;

#[path = "../../../ports/base/src/clock.rs"]
pub mod clock;
#[path = "../../../ports/base/src/eventfd.rs"]
pub mod eventfd;
#[path = "../../../ports/base/src/fork.rs"]
pub mod fork;
#[path = "../../../ports/base/src/futex.rs"]
pub mod futex;
#[path = "../../src/progress/mod.rs"]
pub mod progress;

mod doorbell;
#[cfg(test)]
mod futex_model;
mod kernel;
mod memory;

/// No memory is kept back here.
pub fn prepare_thread() {}
/// The helper runs in loom's threads, never in the system's.
mod thread {
    use std::io;
    use std::thread::JoinHandle;

    pub(crate) const PROGRESS_STACK: usize = 0;

    pub(crate) fn start<T: Send + 'static>(
        _name: &str,
        _stack: usize,
        _run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
/// No thread is cancelled.
mod cancellation {
    pub(crate) struct CancellationDisabled;

    impl CancellationDisabled {
        pub(crate) fn new() -> Self {
            Self
        }
    }
}
/// Nothing is logged.
mod deferred_log {
    pub(crate) fn say_helpers() {}
}
/// Nor is there a set of descriptors to sleep in.
mod epoll {
    use std::io;
    use std::os::fd::{AsRawFd, RawFd};

    pub(crate) fn room<const N: usize>() -> [libc_real::epoll_event; N] {
        [libc_real::epoll_event { events: 0, u64: 0 }; N]
    }

    pub(crate) fn watch(_epoll: RawFd, _fd: &impl AsRawFd, _token: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn sleep<'a>(
        _epoll: RawFd,
        _events: &'a mut [libc_real::epoll_event],
        _span: Option<&libc_real::timespec>,
    ) -> io::Result<&'a [libc_real::epoll_event]> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
/// Nor does anything fork.
mod close_on_fork {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

    #[derive(Debug)]
    pub(crate) struct CloseOnForkFd(OwnedFd);

    pub(crate) struct CloseOnFork;

    impl CloseOnFork {
        pub(crate) fn open(
            open: impl FnOnce() -> nix_real::Result<OwnedFd>,
        ) -> io::Result<CloseOnForkFd> {
            Ok(CloseOnForkFd(open()?))
        }
    }

    impl CloseOnForkFd {
        pub(crate) fn is_intact(&self) -> bool {
            true
        }
    }

    impl AsFd for CloseOnForkFd {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsRawFd for CloseOnForkFd {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}
#[path = "sync.rs"]
pub mod lock;
/// The calls of nix that loom has to know of.
pub mod unistd {
    pub use crate::kernel::{read, write};
}

pub use kernel::{clock_gettime, ppoll, sysconf};
pub use libc_real::*;
pub use nix_real::{errno, sys};
pub use progress::{Helper, Interest, Progress, Shared, Tuning};
