//! Sleeping in the kernel until a descriptor is readable.
//!
//! ```text
//!   control --.
//!   data    --+--> ppoll(.., until) --> which of them are readable
//!   bell    --'
//! ```
//!
//! Knows nothing of: who sleeps and why.

use crate::clock::MonotonicClock;
use crate::eventfd::EventFd;
use mx_proto::{Clock, Instant};
use std::os::fd::AsRawFd;
use std::ptr;

/// What ended a sleep. All false: the time was up, or a signal came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Woken {
    pub(super) control: bool,
    pub(super) data: bool,
    pub(super) bell: bool,
}

/// Sleeps until one of the descriptors is readable or `until` has come. A bell that rang is
/// silenced.
pub(super) fn sleep(
    control: Option<i32>,
    data: Option<i32>,
    bell: &EventFd,
    until: Option<Instant>,
) -> Woken {
    // The kernel skips negative descriptors.
    let entry = |fd: Option<i32>| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [entry(control), entry(data), entry(Some(bell.as_raw_fd()))];
    let span = until.map(|until| {
        let left = until.since(MonotonicClock.now());
        libc::timespec {
            // A time-out longer than the kernel's clock can count is as good as the longest.
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `fds` are three entries valid for writing, `span` is null or points to a time that
    // outlives the call, and the signal mask stays as it is.
    let count = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            span,
            ptr::null(),
        )
    };
    if count <= 0 {
        return Woken::default();
    }
    let woken = Woken {
        control: fds[0].revents != 0,
        data: fds[1].revents != 0,
        bell: fds[2].revents != 0,
    };
    if woken.bell {
        bell.silence();
    }
    woken
}
