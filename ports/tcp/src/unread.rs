//! Leaving incomplete packets in the kernel while the memory for them is used up.
//!
//! ```text
//!   kernel    [ packet | packet | pa...  ]  -- peek -->  staging  --> deliver
//!   skip        ------------------>
//!   stays                          -----    read when all of it is there, or nothing more comes
//! ```
//!
//! So an incomplete packet costs only the socket's buffer in the kernel, and a complete one is read
//! however short memory is. As the kernel reports readable sockets repeatedly, a link that waits is
//! watched edge-triggered (`EPOLLET`).
//!
//! Owns: the number of peeked bytes in a buffer, and the number that a link waits for.
//! Out of scope: packets, epoll.

use super::staging::Staging;
use super::sys;
use socket2::Socket;
use std::io;

/// The number of bytes that have to be in the kernel before a link reads on; 0: it does not wait.
#[derive(Debug, Default)]
pub(super) struct ReadThreshold(u32);

impl ReadThreshold {
    /// The link waits.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.0 > 0
    }

    /// All of it is there. `UnexpectedEof`: it will never be.
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

    /// The link waits no longer.
    pub(super) fn stop(&mut self, fd: &Socket) -> io::Result<()> {
        if std::mem::take(&mut self.0) > 0 {
            sys::readable_from(fd, 1)?;
        }
        Ok(())
    }

    /// The link waits for so many bytes.
    fn start(&mut self, fd: &Socket, bytes: usize) -> io::Result<()> {
        self.0 = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        // A large value first, so that the kernel enlarges its buffer.
        sys::readable_from(fd, ROOM)?;
        sys::readable_from(fd, bytes)
    }
}

/// Bytes for which a link that waits has room in the kernel. Of what has been taken in all counts there
/// that lies in one piece with what has not (`sk_buff`, 17 pages of at most 32 KiB), and if that were all
/// of the room, the rest would never come.
const ROOM: usize = 1 << 20;

/// The way in which one turn of a link reads into staging.
#[derive(Debug)]
pub(super) struct Reading {
    /// Undelivered data stays in the kernel.
    pub(super) sparing: bool,
    /// So many bytes at the end of what is staged are the kernel's.
    shown: usize,
    /// The kernel had no more than that.
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

    /// Something in staging is the kernel's.
    #[inline]
    pub(super) fn shows(&self) -> bool {
        self.shown > 0
    }

    /// As [`sys::recv`].
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

    /// Removes delivered bytes from the kernel, and the others from staging. Returns the way to
    /// continue. `whole`: the next packet begins in staging and has so many bytes.
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

/// The peeked bytes that are still in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// Something to go on with.
    Ready,
    /// A part of a packet, for the rest of which the link waits.
    Awaited,
}
