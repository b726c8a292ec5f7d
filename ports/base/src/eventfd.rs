//! A doorbell: a kernel event counter that wakes its sleepers.
//!
//! ```text
//!   ring() --> [ counter ] --readable--> poll / epoll of the sleeper --> silence()
//! ```
//!
//! Owns: the descriptor, closed when it is dropped.
//! Cost: one system call each. They are `libc`'s, for which `mx-sys/loom` has its own.

use crate::cancellation::Off;
use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An `eventfd`, non-blocking and closed on exec.
#[derive(Debug)]
pub struct EventFd {
    fd: CloseOnForkFd,
}

impl EventFd {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        let fd = CloseOnFork::open(|| {
            // SAFETY: no pointers; the result is checked.
            let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: a fresh descriptor, not owned elsewhere.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })?;
        Ok(Self { fd })
    }

    /// Makes it readable. Ringing twice is ringing once.
    pub fn ring(&self) {
        let _off = Off::new();
        let one = 1u64;
        // The only failure is a counter that is full, and then it is readable anyway.
        // SAFETY: eight bytes at `one` are readable.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it silent. Returns whether it had been rung.
    pub fn silence(&self) -> bool {
        let _off = Off::new();
        let mut count = 0u64;
        // SAFETY: eight bytes at `count` are writable.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        got == 8
    }

    /// False when the host has closed the descriptor, and its number is no anonymous file's.
    pub fn is_intact(&self) -> bool {
        self.fd.is_intact()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rings_are_one_until_silenced() {
        let doorbell = EventFd::new().unwrap();
        assert!(!doorbell.silence());
        doorbell.ring();
        doorbell.ring();
        assert!(doorbell.silence());
        assert!(!doorbell.silence());
    }
}
