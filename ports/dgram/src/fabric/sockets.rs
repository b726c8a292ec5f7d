//! Provider sockets, which a child of `fork` would keep bound.
//!
//! ```text
//!   /proc/self/fd --bound to the name of an endpoint of ours--> closed in a child (close_on_fork)
//! ```
//!
//! libfabric has no call for closing them. While a child kept the sockets, its parent could not reopen a broken domain
//! at the same ports. The child no longer uses its copies of libfabric's objects.
//!
//! Out of scope: descriptors of providers without IP addresses.

use super::name::FabricAddress;
use mx_port_base::close_on_fork::{CloseOnFork, no_fork};
use nix::sys::socket::{SockType, SockaddrStorage, getsockname, getsockopt, sockopt};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

/// Sockets of an open endpoint. Dropped before the endpoint closes, and never in a child.
pub(super) type Sockets = Vec<CloseOnFork<BorrowedFd<'static>>>;

/// Returns the sockets bound to this name.
pub(super) fn of(name: &FabricAddress) -> Sockets {
    let (Some(ip), Some(port)) = (name.ip(), name.port()) else {
        return Vec::new();
    };
    let mut no_fork = no_fork();
    let mut found = Vec::new();
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_there = |at: SocketAddr| (at.ip(), at.port()) == (ip, port);
    for number in numbers.filter(|number| bound_to(*number).is_some_and(is_there)) {
        // SAFETY: the provider owns the descriptor until the endpoint closes, which comes after the drop.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if getsockopt(&fd, sockopt::SockType) != Ok(SockType::Datagram) {
            continue;
        }
        match no_fork.keep(fd) {
            Ok(fd) => found.push(fd),
            Err(error) => {
                log::debug!("dgram: a forked child will keep the socket {name:?}: {error}")
            }
        }
    }
    found
}

/// Returns the IP address and port that a socket is bound to.
fn bound_to(fd: RawFd) -> Option<SocketAddr> {
    let name: SockaddrStorage = getsockname(fd).ok()?;
    crate::socket_address(name)
}
