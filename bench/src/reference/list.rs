//! `sendmsg` and `recvmsg`: lists through a bare socket.

use std::io::{Error, IoSlice, IoSliceMut, Result};
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// Maximum number of pieces in one call of the kernel.
pub(crate) const IOV_MAX: usize = 1024;

/// Sends as much of the first `IOV_MAX` pieces as the kernel accepts; returns the number of bytes.
pub(super) fn send(socket: &impl AsRawFd, pieces: &[IoSlice<'_>]) -> Result<usize> {
    let header = header(pieces.as_ptr().cast_mut().cast(), pieces.len());
    // SAFETY: an open socket; an `IoSlice` is an `iovec`, of memory that is lent for the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, 0) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

/// Receives into the first `IOV_MAX` pieces; returns the number of bytes.
pub(super) fn recv(socket: &impl AsRawFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize> {
    let mut header = header(pieces.as_mut_ptr().cast(), pieces.len());
    // SAFETY: as above, and the memory is lent to be written to.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    usize::try_from(received).map_err(|_| Error::last_os_error())
}

fn header(pieces: *mut libc::iovec, count: usize) -> libc::msghdr {
    libc::msghdr {
        msg_name: null_mut(),
        msg_namelen: 0,
        msg_iov: pieces,
        msg_iovlen: count.min(IOV_MAX),
        msg_control: null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}
