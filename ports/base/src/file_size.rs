//! Calls that would end the process with SIGXFSZ or SIGPIPE: growing files beyond `RLIMIT_FSIZE`, writing to broken
//! pipes.
//!
//! ```text
//!   ftruncate, write above the limit --> EFBIG, and SIGXFSZ to this thread, which ends the process
//!   write to a pipe without a reader --> EPIPE, and SIGPIPE, likewise
//!                                              `--> blocked during the call, then discarded
//! ```
//!
//! The host's `ulimit -f` is meant for its own files. A call of this library that exceeds it fails with an error.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::ftruncate;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;

/// Sets a file's length to `len` bytes. Fails with `EFBIG`, without a signal, above the process's limit.
pub fn grow(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let _quiet = SigxfszBlocked::new();
    Ok(ftruncate(fd, len as libc::off_t)?)
}

/// Guard that blocks SIGXFSZ and SIGPIPE for this thread while it exists, so that a failed write is only an error.
/// Those raised meanwhile are discarded on drop.
pub struct SigxfszBlocked {
    before: SigSet,
    /// Signals that were not pending at the start: those that arrive are discarded on drop.
    ours: SigSet,
}

const SIGNALS: [Signal; 2] = [Signal::SIGXFSZ, Signal::SIGPIPE];

impl SigxfszBlocked {
    /// Blocks the signals from now on.
    #[expect(
        clippy::new_without_default,
        reason = "it changes the thread that it is made in"
    )]
    pub fn new() -> Self {
        let both = SigSet::from_iter(SIGNALS);
        let before = both.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: writable, and an empty set as it is.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            SigSet::from_sigset_t_unchecked(pending.assume_init())
        };
        let ours = SIGNALS.into_iter().filter(|it| !pending.contains(*it));
        Self {
            before: before.unwrap_or_else(|_| SigSet::empty()),
            ours: ours.collect(),
        }
    }
}

impl Drop for SigxfszBlocked {
    fn drop(&mut self) {
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (ours, nothing) = (self.ours.as_ref(), ptr::null_mut());
        // SAFETY: the set is that of `new`, and the time outlives the call.
        while unsafe { libc::sigtimedwait(ours, nothing, &raw const at_once) } > 0 {}
        let _ = self.before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::Region;

    /// Runs `body` in a child process and checks its exit status.
    fn in_child(body: impl FnOnce() -> bool) {
        // SAFETY: the child makes system calls and memory of its own, and ends without clean-up.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let good = body();
            // SAFETY: ends this process.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "signal {}", status & 0x7f);
    }

    fn limit_to(bytes: u64) {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a limit that is readable.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    }

    fn refused(len: usize) -> bool {
        let made = Region::create(c"test", len);
        made.is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG))
    }

    #[test]
    fn memory_above_the_limit_of_files_is_an_error_and_no_signal() {
        for limit in [0, 4096, 500 << 10] {
            in_child(|| {
                limit_to(limit);
                let fits = limit == 0 || Region::create(c"test", limit as usize).is_ok();
                // A signal raised afterwards finds the thread unblocked.
                refused(limit as usize + 4096) && refused(1 << 20) && fits && unblocked()
            });
        }
    }

    fn unblocked() -> bool {
        let mut now = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: `now` is writable; the set of before is not asked to change.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), libc::SIGXFSZ) == 0
        }
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error_and_no_signal() {
        in_child(|| {
            let mut ends = [0; 2];
            // SAFETY: `ends` is writable, and so the descriptors are ours; one byte is readable.
            unsafe {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                libc::pipe(ends.as_mut_ptr());
                libc::close(ends[0]);
                let _quiet = SigxfszBlocked::new();
                libc::write(ends[1], c"x".as_ptr().cast(), 1) == -1
            }
        });
    }

    #[test]
    fn a_signal_that_was_pending_stays_the_hosts() {
        in_child(|| {
            limit_to(0);
            let hold = SigxfszBlocked::new();
            // SAFETY: a signal to this thread, which has it blocked.
            unsafe { libc::raise(libc::SIGXFSZ) };
            let refused = refused(4096);
            let mut now = MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: `now` is writable.
            let still = unsafe {
                libc::sigpending(now.as_mut_ptr());
                libc::sigismember(now.as_ptr(), libc::SIGXFSZ) == 1
            };
            drop(hold);
            refused && still && unblocked()
        });
    }
}
