//! Socket options of type `int` that `nix` and `socket2` do not name.
//!
//! Out of scope: sockets.

use libc::{c_int, socklen_t};
use nix::errno::Errno;
use std::io;
use std::os::fd::AsRawFd;

const LEN: socklen_t = size_of::<c_int>() as socklen_t;

/// Sets a socket option of type `int` (`setsockopt`).
pub fn set(fd: &impl AsRawFd, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    let at = (&raw const value).cast();
    // SAFETY: the value is an `int` that outlives the call, and the length is its size.
    Errno::result(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, LEN) })?;
    Ok(())
}

/// Returns the value of a socket option of type `int` (`getsockopt`).
pub fn get(fd: &impl AsRawFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let (mut value, mut len) = (0, LEN);
    let at = (&raw mut value).cast();
    // SAFETY: the value is an `int` and the length its size; both outlive the call.
    Errno::result(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut len) })?;
    Ok(value)
}
