//! Sleeping in the kernel until a descriptor is readable.
//!
//! ```text
//!   control --.
//!   data    --+--> ppoll(.., until) --> which of them are readable
//!   doorbell    --'
//!
//!   a set that all of them are in ---> epoll_pwait2(.., until) --> tokens of those that are
//! ```

use crate::clock::MonotonicClock;
use crate::epoll;
use crate::eventfd::EventFd;
use mx_proto::{Clock, Instant};
use nix::errno::Errno;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tokens of readable descriptors. Empty after a time-out or a signal.
pub(super) type ReadyTokens = SmallVec<[u64; AT_ONCE]>;

/// Reasons why a sleep in an epoll instance failed.
pub(super) enum SleepError {
    /// The kernel rejects `epoll_pwait2`: it is older than Linux 5.11, or a seccomp filter forbids the call.
    NoCall,
    /// The host has closed the epoll instance, or the doorbell in it.
    Lost,
}

/// Sleeps until a descriptor in the epoll instance `set` is readable or `until` has come. `doorbell` is in the set as
/// [`DOORBELL`], and is silenced if it rang.
pub(super) fn sleep_in(
    set: RawFd,
    doorbell: &EventFd,
    until: Option<Instant>,
) -> Result<ReadyTokens, SleepError> {
    /// Set once the kernel has rejected the call; it is not tried again.
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if REFUSED.load(Ordering::Relaxed) {
        return Err(SleepError::NoCall);
    }
    let mut events = epoll::room::<AT_ONCE>();
    let span = until.map(span_until);
    let ready = match epoll::sleep(set, &mut events, span.as_ref()) {
        Ok(ready) => ready,
        Err(error) if says_lost(&error) && watch(set, doorbell).is_err_and(|it| says_lost(&it)) => {
            return Err(SleepError::Lost);
        }
        Err(_) => {
            REFUSED.store(true, Ordering::Relaxed);
            return Err(SleepError::NoCall);
        }
    };
    let told: ReadyTokens = ready.iter().map(|event| event.u64).collect();
    if told.contains(&DOORBELL) {
        doorbell.silence();
    } else if told.is_empty() && !doorbell.is_intact() {
        return Err(SleepError::Lost);
    }
    Ok(told)
}

/// Returns whether a call on a set failed because its descriptor is no longer an epoll instance. A seccomp filter may
/// return these codes, too, but not for every call.
fn says_lost(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL))
}

/// Adds `doorbell` to `set`. Returns false if the kernel has no memory, or `set` is no epoll instance.
pub(super) fn join(set: RawFd, doorbell: &EventFd) -> bool {
    watch(set, doorbell).is_ok()
}

fn watch(set: RawFd, doorbell: &EventFd) -> io::Result<()> {
    epoll::watch(set, doorbell, DOORBELL)
}

/// Epoll token of the doorbell in the set of [`Progress::set`](super::Progress::set); no other descriptor there has it.
pub const DOORBELL: u64 = u64::MAX;

/// Maximum number of tokens returned by one sleep; the others are returned by the next.
const AT_ONCE: usize = 32;

/// Result of a sleep on descriptors.
#[derive(Clone, Copy, Default)]
pub(super) struct SleepOutcome {
    /// The control descriptor is readable.
    pub(super) control: bool,
    /// The host has closed one of the descriptors.
    pub(super) lost: bool,
}

/// Sleeps until one of the descriptors is readable or `until` has come. Silences the doorbell if it rang.
pub(super) fn sleep(
    control: Option<i32>,
    data: Option<i32>,
    doorbell: &EventFd,
    until: Option<Instant>,
) -> SleepOutcome {
    // The kernel skips negative descriptors.
    let entry = |fd: Option<i32>| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [
        entry(control),
        entry(data),
        entry(Some(doorbell.as_raw_fd())),
    ];
    let span = until.map(span_until);
    let span = span.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `fds` has three entries valid for writing, `span` is null or points to a time that outlives the call, and
    // the signal mask stays as it is.
    let count = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            span,
            ptr::null(),
        )
    };
    if count < 0 {
        if Errno::last() != Errno::EINTR {
            // The kernel rejected the call, as with a limit of fewer than three descriptors: pause, or the caller would
            // spin.
            std::thread::sleep(REFUSED);
        }
        return SleepOutcome::default();
    }
    let [control, _, rang] = fds.map(|fd| fd.revents != 0);
    let closed = fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0);
    // A file of the host's that has the number now is not read, and rings for it do not reach this sleeper.
    let lost = closed || ((rang || count == 0) && !doorbell.is_intact());
    if rang && !lost {
        doorbell.silence();
    }
    SleepOutcome { control, lost }
}

/// Length of a sleep while the kernel rejects poll: short for a thread that waits for a message, long beside the
/// processor time of a poll.
const REFUSED: Duration = Duration::from_millis(2);

fn span_until(until: Instant) -> libc::timespec {
    let left = until.since(MonotonicClock.now());
    libc::timespec {
        // Time-outs beyond the range of `time_t` become its maximum.
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    #[test]
    fn a_thread_rests_where_the_kernel_refuses_to_wait() {
        let doorbell = EventFd::new().unwrap();
        // SAFETY: the child changes its limit, sleeps, and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
            let began = MonotonicClock.now();
            let looks = (0..10_000).take_while(|_| {
                sleep(None, None, &doorbell, Some(began.after(10 * REFUSED)));
                MonotonicClock.now().since(began) < 10 * REFUSED
            });
            let rests = looks.count() <= 10;
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!rests)) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
