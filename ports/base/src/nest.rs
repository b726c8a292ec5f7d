//! A descriptor for several: an epoll instance whose members may be epoll instances themselves.
//!
//! ```text
//!   nest  <-- member 0 (a port's epoll)
//!         <-- member 1 (another port's)      readable while any of them is
//!         <-- member 2 (a doorbell)
//! ```
//!
//! The data nest is the local port's own epoll instance, so that a sleeper learns which link is
//! ready. Nests are not members of nests: Linux lets five epoll instances watch one another in a row, and the host has
//! instances of its own around ours.
//!
//! Out of scope: the descriptors.

use crate::epoll::{self, Epoll, READABLE};
use crate::ports::PORTS;
use std::io;
use std::os::fd::RawFd;

/// Maximum number of members of a nest, numbered from 0: two descriptors of each port, for data and control, and the
/// one for changes of interfaces.
pub const MEMBERS: usize = 2 * PORTS.len() + 1;

const _: () = assert!(MEMBERS <= u16::BITS as usize);

/// Token of member 0; member n has `FIRST_TOKEN + n`. No link of the local port, whose links are in the same instance
/// under their ids, has such a token: it keeps the indexes of its links below this number.
pub const FIRST_TOKEN: u64 = 1 << 28;

impl Epoll {
    /// Adds a descriptor as member number `member`, to be reported when readable. Does nothing for `None`: the port has
    /// no descriptor to sleep on.
    pub fn join(&self, member: u8, fd: Option<RawFd>) -> io::Result<()> {
        debug_assert!(usize::from(member) < MEMBERS);
        let token = FIRST_TOKEN + u64::from(member);
        fd.map_or(Ok(()), |fd| self.add(&fd, token, READABLE))
    }

    /// Returns the members that are readable now, as bit n for member n, without waiting. One system call.
    pub fn readable(&self) -> u16 {
        let mut events = epoll::room::<MEMBERS>();
        let ready = self.ready(&mut events).iter();
        ready
            .filter_map(|event| member(event.u64))
            .fold(0, |bits, member| bits | 1 << member)
    }
}

/// Returns the number of the member with this token; `None` for other tokens, such as those of links.
pub fn member(token: u64) -> Option<u8> {
    let member = token.checked_sub(FIRST_TOKEN)?;
    u8::try_from(member)
        .ok()
        .filter(|member| usize::from(*member) < MEMBERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;
    use std::os::fd::AsRawFd;

    #[test]
    fn nested_epoll_reports_the_readable_member() {
        let (outer, inner) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        let doorbells = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        inner.join(0, Some(doorbells[0].as_raw_fd())).unwrap();
        outer.join(1, Some(inner.raw())).unwrap();
        outer.join(2, Some(doorbells[1].as_raw_fd())).unwrap();
        outer.join(3, None).unwrap();
        assert_eq!(outer.readable(), 0);
        doorbells[0].ring();
        assert_eq!(outer.readable(), 0b10);
        doorbells[1].ring();
        assert_eq!(outer.readable(), 0b110);
        doorbells[0].silence();
        assert_eq!(outer.readable(), 0b100);
    }

    #[test]
    fn closed_member_is_gone_and_can_still_be_removed() {
        let (nest, gone) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        // No other test has a descriptor with so high a number.
        let number = 997;
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { libc::dup2(gone.raw(), number) }, number);
        nest.join(0, Some(number)).unwrap();
        nest.remove(&number);
        nest.join(1, Some(number)).unwrap();
        // SAFETY: opened above, and no other code has it.
        unsafe { libc::close(number) };
        nest.remove(&number);
        let refused = nest.join(2, Some(number)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    }
}
