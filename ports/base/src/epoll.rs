//! An epoll instance: descriptors with tokens, and which of them are ready. The only wrapper of epoll in the project.
//!
//! ```text
//!   add(fd, token, READABLE) --> ready()  now       the tokens
//!                                sleep()  or later
//! ```
//!
//! Control calls go through libc because nix takes only descriptors that are certainly open, and a peer's or a
//! provider's may already be closed. Polls and sleeps are direct system calls: libc's functions are cancellation points
//! at which glibc acts on an earlier `pthread_cancel` even with cancellation disabled, and disabling it around each
//! would cost too much.
//!
//! Owns: the epoll descriptor. Descriptors in it are borrowed; closing one removes it.

use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int};
use nix::errno::Errno;
use nix::sys::epoll::EpollCreateFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;

/// Event of a descriptor: a set of the conditions below, and the token under which the descriptor was added.
pub type Event = libc::epoll_event;

/// Returns an array for `N` events, zeroed in bulk: element by element would be compiled to a store each.
#[inline(always)]
pub fn room<const N: usize>() -> [Event; N] {
    // SAFETY: plain integers, for which all zeroes is a value.
    unsafe { std::mem::zeroed() }
}

/// Condition that data can be read, or the end of the stream (`EPOLLIN`).
pub const READABLE: u32 = libc::EPOLLIN as u32;
/// Condition that data can be written (`EPOLLOUT`).
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// Condition that the other side has closed its sending direction (`EPOLLRDHUP`).
pub const ENDED: u32 = libc::EPOLLRDHUP as u32;
/// Flag for a descriptor that is added: each change is reported once, edge-triggered (`EPOLLET`).
pub const ONCE: u32 = libc::EPOLLET as u32;

/// An owned epoll instance.
#[derive(Debug)]
pub struct Epoll(CloseOnForkFd);

impl Epoll {
    /// Creates an instance without descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = EpollCreateFlags::EPOLL_CLOEXEC;
        let open = || nix::sys::epoll::Epoll::new(flags).map(|epoll| epoll.0);
        Ok(Self(CloseOnFork::open(open)?))
    }

    /// Creates another owner of an existing instance, by duplicating its descriptor: both see the same descriptors in
    /// it.
    pub fn of(epoll: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(CloseOnFork::open(|| epoll.try_clone_to_owned())?))
    }

    /// Adds `fd`, which stays the caller's. `events`: conditions to report, with `token`. Fails if `fd` is in the
    /// instance already.
    pub fn add(&self, fd: &impl AsRawFd, token: u64, events: u32) -> io::Result<()> {
        control(self.raw(), EPOLL_CTL_ADD, fd.as_raw_fd(), token, events)
    }

    /// Replaces the token and the conditions to report of a descriptor in the instance.
    pub fn modify(&self, fd: &impl AsRawFd, token: u64, events: u32) -> io::Result<()> {
        control(self.raw(), EPOLL_CTL_MOD, fd.as_raw_fd(), token, events)
    }

    /// Removes a descriptor; one that is absent or closed is ignored. Closing alone is not enough: a child process may
    /// have inherited the descriptor, and it would still be reported.
    pub fn remove(&self, fd: &impl AsRawFd) {
        let _ = control(self.raw(), EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0);
    }

    /// Returns the current events without waiting, as many as `events` has room for; none if the descriptor is no
    /// longer an epoll instance. One system call.
    pub fn ready<'a>(&self, events: &'a mut [Event]) -> &'a [Event] {
        let no_mask = ptr::null::<libc::sigset_t>();
        let (at, len) = (events.as_mut_ptr(), events.len() as c_int);
        // SAFETY: `events` is writable for its length, and the signal mask stays as it is.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.raw(),
                at,
                len,
                0,
                no_mask,
                0usize,
            )
        };
        &events[..usize::try_from(count).unwrap_or(0)]
    }

    /// Returns false if the host has closed the descriptor, unless the number is another anonymous file's by now.
    pub fn is_intact(&self) -> bool {
        self.0.is_intact()
    }

    /// Borrows the descriptor, to duplicate it with [`Self::of`].
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns the descriptor to sleep on.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Adds `fd`, reported when readable, to the instance with the descriptor `epoll`.
pub fn watch(epoll: RawFd, fd: &impl AsRawFd, token: u64) -> io::Result<()> {
    control(epoll, EPOLL_CTL_ADD, fd.as_raw_fd(), token, READABLE)
}

/// Waits on the instance with the descriptor `epoll` for events, for at most `span`; `None`: without a timeout. Returns
/// none on a timeout or signal. Fails with `EBADF` or `EINVAL` if the descriptor is no epoll instance, and with
/// `ENOSYS` before Linux 5.11.
pub fn sleep<'a>(
    epoll: RawFd,
    events: &'a mut [Event],
    span: Option<&libc::timespec>,
) -> io::Result<&'a [Event]> {
    let (at, len) = (events.as_mut_ptr(), events.len() as c_int);
    let span = span.map_or(ptr::null(), ptr::from_ref);
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: `events` is writable for its length, `span` is null or points to a time that outlives the call, and
    // the signal mask stays as it is.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll,
            at,
            len,
            span,
            no_mask,
            0usize,
        )
    };
    match Errno::result(count) {
        Ok(count) => Ok(&events[..count as usize]),
        Err(Errno::EINTR) => Ok(&[]),
        Err(error) => Err(error.into()),
    }
}

fn control(epoll: RawFd, what: c_int, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
    let mut event = Event { events, u64: token };
    // SAFETY: `event` outlives the call; which descriptors are open, the kernel knows.
    Errno::result(unsafe { libc::epoll_ctl(epoll, what, fd, &raw mut event) })?;
    Ok(())
}
