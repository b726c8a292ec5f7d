//! A bell: a kernel event counter that wakes whoever sleeps on it.
//!
//! ```text
//!   ring() --> [ counter ] --readable--> poll / epoll of the sleeper --> silence()
//! ```
//!
//! Owns: the descriptor, closed when it is dropped.
//! Knows nothing of: who rings, who sleeps.
//! Cost: one system call each.

use nix::sys::eventfd::EfdFlags;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// An `eventfd`, non-blocking and closed on exec.
#[derive(Debug)]
pub struct EventFd(nix::sys::eventfd::EventFd);

impl EventFd {
    /// A silent one.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Self(nix::sys::eventfd::EventFd::from_flags(flags)?))
    }

    /// Makes it readable. Ringing twice is ringing once.
    pub fn ring(&self) {
        // The only failure is a counter that is full, and then it is readable anyway.
        let _ = self.0.write(1);
    }

    /// Makes it silent. Returns whether it had been rung.
    pub fn silence(&self) -> bool {
        self.0.read().is_ok()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rings_are_one_until_silenced() {
        let bell = EventFd::new().unwrap();
        assert!(!bell.silence());
        bell.ring();
        bell.ring();
        assert!(bell.silence());
        assert!(!bell.silence());
    }
}
