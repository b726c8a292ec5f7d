//! Breaks a connection from inside the process that has it.
//!
//! ```text
//!   /proc/self/fd --> sockets --> TCP, connected --> one of them: shut down, or reset
//! ```
//!
//! Out of scope: the peer of a connection.

use mx_sim::Rng;
use std::os::fd::RawFd;

/// Breaks one of this process's TCP connections; returns false if there is none. Chance selects the
/// connection, and whether the peer sees an end of the stream or an error.
pub(crate) fn reset_one(rng: &mut Rng) -> bool {
    let connected: Vec<_> = descriptors().into_iter().filter(|fd| is_tcp(*fd)).collect();
    if connected.is_empty() {
        return false;
    }
    let fd = connected[rng.index(connected.len())];
    if rng.chance(0.5) {
        // SAFETY: takes numbers; if the library has closed it meanwhile, nothing happens.
        unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
    } else {
        // SAFETY: all zeros is a valid value.
        let mut unspecified: libc::sockaddr = unsafe { std::mem::zeroed() };
        unspecified.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
        let len = size_of::<libc::sockaddr>() as libc::socklen_t;
        // SAFETY: the address outlives the call. A TCP socket that is connected to `AF_UNSPEC` is reset.
        unsafe { libc::connect(fd, &raw const unspecified, len) };
    }
    true
}

/// Returns all descriptors of this process except the one of the listing.
pub(crate) fn descriptors() -> Vec<RawFd> {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    let number = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok()
    };
    let all: Vec<RawFd> = list.filter_map(number).collect();
    // The listing's own descriptor is closed by now.
    // SAFETY: takes numbers.
    let open = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    all.into_iter().filter(open).collect()
}

/// Returns the number of threads of this process.
pub(crate) fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn is_tcp(fd: RawFd) -> bool {
    let mut address = std::mem::MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: room for any address.
    let rc = unsafe { libc::getpeername(fd, address.as_mut_ptr().cast(), &raw mut len) };
    // SAFETY: zeros, or what the kernel has put there.
    let family = i32::from(unsafe { address.assume_init() }.ss_family);
    rc == 0 && matches!(family, libc::AF_INET | libc::AF_INET6)
}

#[cfg(test)]
mod unit {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_connection_of_this_process_is_broken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        assert!(descriptors().contains(&one.as_raw_fd()));
        assert!(threads() > 0);
        assert!(reset_one(&mut Rng::new(3)));
        // Either end was broken: neither blocks any more.
        let mut byte = [0];
        let _ = one.read(&mut byte);
        let _ = other.read(&mut byte);
    }
}
