//! An epoll instance: descriptors with tokens, and those of them that are ready. The only one of the project.
//!
//! ```text
//!   add(fd, token, READABLE) --> ready()  now       the tokens
//!                                sleep()  or later
//! ```
//!
//! The calls are libc's: nix takes only descriptors that are open for certain, and a peer's or a provider's may be
//! closed already. Looking and sleeping are the system calls themselves: libc's functions are cancellation points,
//! where glibc heeds a `pthread_cancel` of just before although cancellation is off, and these are called all the time.
//!
//! Owns: the outer descriptor. Those in it are borrowed; closing one removes it.

use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, c_int};
use nix::errno::Errno;
use nix::sys::epoll::EpollCreateFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;

/// Something that happened to a descriptor.
pub type Event = libc::epoll_event;

/// Room for so many. Zeroes at once: written out, one by one would be.
#[inline(always)]
pub fn room<const N: usize>() -> [Event; N] {
    // SAFETY: plain integers, for which all zeroes is a value.
    unsafe { std::mem::zeroed() }
}

/// There is something to read, or the end.
pub const READABLE: u32 = libc::EPOLLIN as u32;
/// There is room to write.
pub const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The other side has finished.
pub const ENDED: u32 = libc::EPOLLRDHUP as u32;
/// Each change is reported once.
pub const ONCE: u32 = libc::EPOLLET as u32;

/// The outer descriptor.
#[derive(Debug)]
pub struct Epoll(CloseOnForkFd);

impl Epoll {
    /// Without descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = EpollCreateFlags::EPOLL_CLOEXEC;
        let open = || nix::sys::epoll::Epoll::new(flags).map(|epoll| epoll.0);
        Ok(Self(CloseOnFork::open(open)?))
    }

    /// A second handle of an instance that is there already.
    pub fn of(epoll: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(CloseOnFork::open(|| epoll.try_clone_to_owned())?))
    }

    /// Reports these events of `fd` from now on.
    pub fn add(&self, fd: &impl AsRawFd, token: u64, events: u32) -> io::Result<()> {
        control(self.raw(), EPOLL_CTL_ADD, fd.as_raw_fd(), token, events)
    }

    /// Reports others of a descriptor that is in it.
    pub fn modify(&self, fd: &impl AsRawFd, token: u64, events: u32) -> io::Result<()> {
        control(self.raw(), EPOLL_CTL_MOD, fd.as_raw_fd(), token, events)
    }

    /// Takes one out; that it is not there, or closed already, is no matter. Closing it is not enough: a child
    /// process may have inherited it, and then it would still be reported.
    pub fn remove(&self, fd: &impl AsRawFd) {
        let _ = control(self.raw(), EPOLL_CTL_DEL, fd.as_raw_fd(), 0, 0);
    }

    /// The events that are there now; none if the descriptor is no epoll instance any more. A system call.
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

    /// False when the host has closed the descriptor, and its number is no anonymous file's.
    pub fn is_intact(&self) -> bool {
        self.0.is_intact()
    }

    /// For a second handle.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The descriptor to sleep on.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Reports from now on when `fd` is readable, in the instance of that number.
pub fn watch(epoll: RawFd, fd: &impl AsRawFd, token: u64) -> io::Result<()> {
    control(epoll, EPOLL_CTL_ADD, fd.as_raw_fd(), token, READABLE)
}

/// Waits in the instance of that number until something is there, for `span` at most. Nothing: the time was up, or
/// a signal came. Fails with `EBADF` or `EINVAL` when the number is no epoll instance any more, and before Linux 5.11.
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
