//! One descriptor for several: an epoll instance whose members may be epoll instances themselves.
//!
//! ```text
//!   nest  <-- member 0 (a port's epoll)
//!         <-- member 1 (another port's)      readable while any of them is
//!         <-- member 2 (a doorbell)
//! ```
//!
//! The data nest is the local port's own set, so that who sleeps in it is told which link rang.
//!
//! Owns: the outer descriptor. The members' are borrowed; whoever closes one leaves the nest.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Members a nest can have.
const MEMBERS: usize = 5;

/// The token of member 0. Below it, as far as their indices go, are the local port's links.
const FIRST_TOKEN: u64 = 1 << 29;

/// The outer descriptor.
#[derive(Debug)]
pub struct Nest {
    fd: OwnedFd,
}

impl Nest {
    /// Without members.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// A second handle of an epoll instance that is there already.
    pub fn of(epoll: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = epoll.try_clone_to_owned()?;
        Ok(Self { fd })
    }

    /// Adds a member; ports that have nothing to sleep on add nothing.
    pub fn add(&self, member: u8, fd: Option<RawFd>) -> io::Result<()> {
        debug_assert!(usize::from(member) < MEMBERS);
        let Some(fd) = fd else { return Ok(()) };
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: FIRST_TOKEN + u64::from(member),
        };
        // SAFETY: `event` is valid for reading.
        let code = unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        if code < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Takes a member out. One that is not there, or closed already, is no matter.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: no pointers; the kernel knows which descriptors are open.
        unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                std::ptr::null_mut(),
            )
        };
    }

    /// Which members are readable now, one bit each. A system call.
    pub fn readable(&self) -> u8 {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MEMBERS];
        // SAFETY: `events` is valid for writing as many entries as it has.
        let count = unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), MEMBERS as i32, 0)
        };
        let count = usize::try_from(count).unwrap_or(0);
        events
            .iter()
            .take(count)
            .filter_map(|event| Self::member(event.u64))
            .fold(0, |bits, member| bits | 1 << member)
    }

    /// Which member has this token.
    pub fn member(token: u64) -> Option<u8> {
        let member = token.checked_sub(FIRST_TOKEN)?;
        u8::try_from(member)
            .ok()
            .filter(|member| usize::from(*member) < MEMBERS)
    }

    /// What to sleep on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The same by its number.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn a_nest_says_which_member_is_readable_also_through_another_nest() {
        let (outer, inner) = (Nest::new().unwrap(), Nest::new().unwrap());
        let doorbells = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        inner.add(0, Some(doorbells[0].as_raw_fd())).unwrap();
        outer.add(1, Some(inner.raw())).unwrap();
        outer.add(2, Some(doorbells[1].as_raw_fd())).unwrap();
        outer.add(3, None).unwrap();
        assert_eq!(outer.readable(), 0);
        doorbells[0].ring();
        assert_eq!(outer.readable(), 0b10);
        doorbells[1].ring();
        assert_eq!(outer.readable(), 0b110);
        doorbells[0].silence();
        assert_eq!(outer.readable(), 0b100);
    }
}
