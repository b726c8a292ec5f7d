//! Sockets of the provider, which a child of `fork` would keep bound.
//!
//! ```text
//!   /proc/self/fd --bound to the name of an endpoint of ours--> closed in a child (close_on_fork)
//! ```
//!
//! libfabric has no call for it. A child that kept them could not take its parent's number, nor could
//! another process after the parent's end. Its copies of libfabric's objects are not used any more.
//!
//! Not here: descriptors of providers without IP addresses.

use super::name::FabricAddress;
use mx_port_base::close_on_fork::{CloseOnFork, no_fork};
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};

/// The sockets of an open endpoint. Dropped before it is closed, and in no child.
pub(super) type Sockets = Vec<CloseOnFork<BorrowedFd<'static>>>;

/// Those bound to that name.
pub(super) fn of(name: &FabricAddress) -> Sockets {
    if name.ip().is_none() {
        return Vec::new();
    }
    let mut no_fork = no_fork();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
    {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(fd) = number.filter(|fd| is_bound_to(*fd, name)) else {
            continue;
        };
        // SAFETY: it is the provider's until the endpoint is closed, which comes after the drop.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        match no_fork.keep(fd) {
            Ok(fd) => found.push(fd),
            Err(error) => log::debug!("dgram: children keep {name:?}: {error}"),
        }
    }
    found
}

fn is_bound_to(fd: RawFd, name: &FabricAddress) -> bool {
    let mut address = [0_u8; size_of::<libc::sockaddr_storage>()];
    let mut len = address.len() as libc::socklen_t;
    // SAFETY: an output of that many bytes; whatever the number, the kernel checks it.
    let code = unsafe { libc::getsockname(fd, address.as_mut_ptr().cast(), &raw mut len) };
    let bytes = address.get(..len as usize);
    let of_it = || FabricAddress::new(bytes?).map(|it| (it.ip(), it.port()));
    code == 0 && of_it() == Some((name.ip(), name.port())) && is_datagram(fd)
}

fn is_datagram(fd: RawFd) -> bool {
    let mut kind: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an output of the right type, and its size.
    let code = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut len,
        )
    };
    code == 0 && kind == libc::SOCK_DGRAM
}
