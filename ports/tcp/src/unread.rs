//! Leaving incomplete packets in the kernel while the memory for them is used up.
//!
//! ```text
//!   kernel    [ packet | packet | pa...  ]  -- peek -->  staging  --> deliver
//!   skip        ------------------>
//!   stays                          -----    read when the packet is complete, or at the end of the stream
//! ```
//!
//! An incomplete packet then costs only the socket's buffer in the kernel, and a complete one is read however short
//! memory is. Because the kernel reports readable sockets repeatedly, a waiting link is watched edge-triggered
//! (`EPOLLET`).
//!
//! Owns: the number of peeked bytes in a buffer, and the number that a link waits for.
//! Out of scope: packets, epoll.

use super::staging::Staging;
use super::sys;
use socket2::Socket;
use std::io;

/// Number of bytes that have to be in the kernel before a link continues to read; 0: it does not wait.
#[derive(Debug, Default)]
pub(super) struct ReadThreshold(u32);

impl ReadThreshold {
    /// Returns true if the link waits.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.0 > 0
    }

    /// Returns whether all of the bytes have arrived, and then stops waiting. Fails with `UnexpectedEof` if they never
    /// will.
    #[cold]
    pub(super) fn look(&mut self, fd: &Socket) -> io::Result<bool> {
        if sys::unread(fd)? < self.0 as usize {
            if !sys::finished(fd) {
                return Ok(false);
            }
            let error = fd.take_error()?;
            return Err(error.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        }
        self.stop(fd)?;
        Ok(true)
    }

    /// Stops waiting.
    pub(super) fn stop(&mut self, fd: &Socket) -> io::Result<()> {
        if std::mem::take(&mut self.0) > 0 {
            sys::readable_from(fd, 1)?;
        }
        Ok(())
    }

    /// Starts to wait for `bytes`.
    fn start(&mut self, fd: &Socket, bytes: usize) -> io::Result<()> {
        self.0 = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        // A large value first, so that the kernel enlarges its buffer.
        sys::readable_from(fd, ROOM)?;
        sys::readable_from(fd, bytes)
    }
}

/// Receive buffer in the kernel for a waiting link, in bytes. Delivered bytes still count while they share an `sk_buff`
/// (17 pages of at most 32 KiB) with undelivered ones; if they filled the buffer, the rest of the packet would never
/// arrive.
const ROOM: usize = 1 << 20;

/// State of the reads of one visit of a link.
#[derive(Debug)]
pub(super) struct Reading {
    /// True if undelivered data stays in the kernel.
    pub(super) sparing: bool,
    /// Number of bytes at the end of the staged ones that were only peeked.
    shown: usize,
    /// True if the kernel had no more than those.
    all: bool,
}

impl Reading {
    pub(super) fn new(sparing: bool) -> Self {
        Self {
            sparing,
            shown: 0,
            all: false,
        }
    }

    /// Returns true if some staged bytes were only peeked.
    #[inline]
    pub(super) fn shows(&self) -> bool {
        self.shown > 0
    }

    /// Reads like [`sys::recv`], or only peeks.
    #[inline]
    pub(super) fn recv(&mut self, fd: &Socket, into: &mut [u8]) -> io::Result<usize> {
        if !self.sparing {
            return sys::recv(fd, into);
        }
        let n = sys::peek(fd, into)?;
        self.shown = n;
        self.all = n < into.len();
        Ok(n)
    }

    /// Removes delivered bytes from the kernel, and undelivered ones from staging. `whole`: length of the next packet,
    /// if it begins in staging.
    #[cold]
    pub(super) fn skip_delivered(
        &mut self,
        fd: &Socket,
        staging: &mut Staging,
        whole: Option<usize>,
        awaited: &mut ReadThreshold,
    ) -> io::Result<Rest> {
        let left = staging.len().min(self.shown);
        let done = std::mem::take(&mut self.shown) - left;
        if done > 0 && sys::skip(fd, staging.spent(done))? != done {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        staging.leave(left);
        match whole {
            _ if left == 0 => Ok(Rest::Nothing),
            Some(whole) if self.all => {
                awaited.start(fd, whole.saturating_sub(staging.len()))?;
                Ok(Rest::Awaited)
            }
            _ => Ok(Rest::Ready),
        }
    }
}

/// State of peeked bytes that are still in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    Nothing,
    /// Undelivered bytes with which to continue.
    Ready,
    /// A part of a packet, for the rest of which the link waits.
    Awaited,
}
