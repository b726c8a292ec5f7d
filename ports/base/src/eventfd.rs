//! A doorbell: a kernel event counter that wakes its sleepers.
//!
//! ```text
//!   ring() --> [ counter ] --readable--> poll / epoll of the sleeper --> silence()
//! ```
//!
//! Owns: the descriptor, closed when it is dropped.
//! Cost: one system call each. `mx-sys/loom` has its own `read` and `write`.

use crate::cancellation::CancellationDisabled;
use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use nix::sys::eventfd::{self, EfdFlags};
use nix::unistd::{read, write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// An `eventfd`, non-blocking and closed on exec.
#[derive(Debug)]
pub struct EventFd {
    fd: CloseOnForkFd,
}

impl EventFd {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let open = || eventfd::EventFd::from_flags(flags).map(OwnedFd::from);
        let fd = CloseOnFork::open(open)?;
        Ok(Self { fd })
    }

    /// Makes it readable. Ringing twice is ringing once.
    pub fn ring(&self) {
        let _off = CancellationDisabled::new();
        // The only failure is a counter that is full, and then it is readable anyway.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it silent. Returns whether it had been rung.
    pub fn silence(&self) -> bool {
        let _off = CancellationDisabled::new();
        read(&self.fd, &mut [0; 8]) == Ok(8)
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
