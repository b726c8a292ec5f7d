//! Sets of descriptors that wake a sleeper.
//!
//! ```text
//!   control: listener, handshakes, hang-ups ---.
//!   data:    wake-ups ------------------------ +--> a sleeper's poll(2) or epoll, as one fd each
//! ```
//!
//! Owns: one `epoll` descriptor.

use mx_port_base::close_on_fork::{CloseOnFork, CloseOnForkFd};
use mx_port_base::nest::ready_now;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The events to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Interest {
    /// Something to read, or the end.
    Readable,
    /// Something new to read, once.
    Doorbell,
    /// The same, or room to write.
    DoorbellOrRoom,
    /// The end only.
    HangUp,
    /// Nothing, for the time being.
    Nothing,
}

/// A set of descriptors, each with a token.
#[derive(Debug)]
pub(super) struct Epoll(CloseOnForkFd);

/// Tokens of descriptors that are ready, at most [`BATCH`].
pub(super) type Ready = smallvec::SmallVec<[u64; BATCH]>;

impl Epoll {
    pub(super) fn new() -> io::Result<Self> {
        let fd = CloseOnFork::open(|| {
            // SAFETY: plain system call.
            let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: `fd` is a fresh descriptor, not owned elsewhere.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        });
        Ok(Self(fd?))
    }

    /// Puts `fd` into the set.
    pub(super) fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what is waited for.
    pub(super) fn modify(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Takes `fd` out. Closing it is not enough: a child process may have inherited it, and then
    /// the set would go on reporting it.
    pub(super) fn remove(&self, fd: RawFd) {
        // SAFETY: a null event is allowed for this operation.
        unsafe { libc::epoll_ctl(self.raw(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Tokens of what is ready now; does not wait.
    pub(super) fn ready(&self) -> Ready {
        // SAFETY: `epoll_event` is plain integers, for which all zeroes is a value.
        let mut events: [libc::epoll_event; BATCH] = unsafe { std::mem::zeroed() };
        let count = ready_now(self.raw(), &mut events);
        events.iter().take(count).map(|event| event.u64).collect()
    }

    /// For a second handle.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// For sleeping on.
    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => libc::EPOLLIN | libc::EPOLLRDHUP,
            Interest::Doorbell => libc::EPOLLIN | libc::EPOLLET,
            Interest::DoorbellOrRoom => libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET,
            Interest::HangUp => libc::EPOLLRDHUP,
            Interest::Nothing => 0,
        };
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        // SAFETY: `event` is valid for the time of the call.
        if unsafe { libc::epoll_ctl(self.raw(), what, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Descriptors looked at in one go.
pub(super) const BATCH: usize = 32;
