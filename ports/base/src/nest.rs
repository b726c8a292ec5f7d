//! One descriptor for several: an epoll instance whose members may be epoll instances themselves.
//!
//! ```text
//!   nest  <-- member 0 (a port's epoll)
//!         <-- member 1 (another port's)      readable while any of them is
//!         <-- member 2 (a doorbell)
//! ```
//!
//! The data nest is the local port's own epoll instance, so that a sleeper learns which link is
//! ready.
//!
//! Owns: the outer descriptor. The members' are borrowed; closing one removes it.

use crate::close_on_fork::CloseOnFork;
use nix::sys::epoll::Epoll;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;

/// Members a nest can have.
pub const MEMBERS: usize = 7;

/// The token of member 0, which is also an index of a link ([`mx_proto::LinkId`] has 29 bits for it): the local
/// port's links, which are in the same instance, stay below.
pub const FIRST_TOKEN: u64 = 1 << 28;

/// The outer descriptor.
#[derive(Debug)]
pub struct Nest(CloseOnFork<Epoll>);

impl Nest {
    /// Without members.
    pub fn new() -> io::Result<Self> {
        Ok(Self(CloseOnFork::epoll()?))
    }

    /// A second handle of an epoll instance that is there already.
    pub fn of(epoll: BorrowedFd<'_>) -> io::Result<Self> {
        let again = || epoll.try_clone_to_owned().map(Epoll);
        Ok(Self(CloseOnFork::open_epoll(again)?))
    }

    /// Adds a member; ports that have nothing to sleep on add nothing.
    pub fn add(&self, member: u8, fd: Option<RawFd>) -> io::Result<()> {
        debug_assert!(usize::from(member) < MEMBERS);
        let Some(fd) = fd else { return Ok(()) };
        let event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: FIRST_TOKEN + u64::from(member),
        };
        self.control(libc::EPOLL_CTL_ADD, fd, event)
    }

    /// Takes a member out. One that is not there, or closed already, is no matter.
    pub fn remove(&self, fd: RawFd) {
        let event = libc::epoll_event { events: 0, u64: 0 };
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, event);
    }

    /// Not by nix's functions, which take descriptors that are open for certain.
    fn control(
        &self,
        what: libc::c_int,
        fd: RawFd,
        mut event: libc::epoll_event,
    ) -> io::Result<()> {
        // SAFETY: `event` outlives the call; which descriptors are open, the kernel knows.
        match unsafe { libc::epoll_ctl(self.raw(), what, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The members that are readable now, one bit each. A system call.
    pub fn readable(&self) -> u8 {
        // SAFETY: plain integers, for which all zeroes is a value.
        let mut events: [libc::epoll_event; MEMBERS] = unsafe { std::mem::zeroed() };
        let count = ready_now(self.raw(), &mut events);
        events
            .iter()
            .take(count)
            .filter_map(|event| Self::member(event.u64))
            .fold(0, |bits, member| bits | 1 << member)
    }

    /// The member with this token.
    pub fn member(token: u64) -> Option<u8> {
        let member = token.checked_sub(FIRST_TOKEN)?;
        u8::try_from(member)
            .ok()
            .filter(|member| usize::from(*member) < MEMBERS)
    }

    /// The descriptor to sleep on.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }

    /// The same by its number.
    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Events of an epoll instance that are there now, and their number. The system call itself: libc's function is a
/// cancellation point, where glibc heeds a `pthread_cancel` of just before although cancellation is off, and this one
/// is called all the time.
pub fn ready_now(epoll: RawFd, events: &mut [libc::epoll_event]) -> usize {
    let no_mask = ptr::null::<libc::sigset_t>();
    // SAFETY: `events` is writable for its length, and the signal mask stays as it is.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait,
            epoll,
            events.as_mut_ptr(),
            events.len() as libc::c_int,
            0,
            no_mask,
            0usize,
        )
    };
    usize::try_from(count).unwrap_or(0)
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

    #[test]
    fn a_member_that_is_closed_is_no_member_and_can_still_be_taken_out() {
        let (nest, gone) = (Nest::new().unwrap(), Nest::new().unwrap());
        // No other test has a descriptor with so high a number.
        let number = 997;
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::dup2(gone.raw(), number) }, number);
        nest.add(0, Some(number)).unwrap();
        nest.remove(number);
        nest.add(1, Some(number)).unwrap();
        // SAFETY: opened above, and no other code has it.
        unsafe { libc::close(number) };
        nest.remove(number);
        let refused = nest.add(2, Some(number)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }
}
