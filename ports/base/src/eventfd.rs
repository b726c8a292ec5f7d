//! Doorbell: a kernel event counter that wakes its sleepers.
//!
//! ```text
//!   ring() --> [ counter ] --readable--> poll / epoll of the sleeper --> silence()
//! ```
//!
//! Owns: the descriptor, closed on drop.
//! Cost: `ring` and `silence` are one system call each. `mx-sys/loom` replaces `read` and `write`.

use crate::cancellation::CancellationDisabled;
use crate::close_on_fork::{CloseOnFork, CloseOnForkFd};
use nix::sys::eventfd::{self, EfdFlags};
use nix::unistd::{read, write};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A non-blocking `eventfd`, closed on exec and in a child of fork.
#[derive(Debug)]
pub struct EventFd {
    fd: CloseOnForkFd,
}

impl EventFd {
    /// Creates a doorbell that has not been rung.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let open = || eventfd::EventFd::from_flags(flags).map(OwnedFd::from);
        let fd = CloseOnFork::open(open)?;
        Ok(Self { fd })
    }

    /// Makes the descriptor readable. Ringing twice equals ringing once.
    pub fn ring(&self) {
        let _off = CancellationDisabled::new();
        // `write` fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Resets the doorbell. Returns whether it had been rung.
    pub fn silence(&self) -> bool {
        let _off = CancellationDisabled::new();
        read(&self.fd, &mut [0; 8]) == Ok(8)
    }

    /// Returns false if the host has closed the descriptor, unless the number is another anonymous file's by now.
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
