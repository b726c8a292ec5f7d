//! The limit of open descriptors of this process.

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// The limit `RLIMIT_NOFILE`; the largest number if it cannot be read.
pub fn most() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}

/// The limit is too low.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorShortage {
    /// The limit.
    pub limit: usize,
    /// The least that it has to be, as many descriptors as are open now.
    pub needed: usize,
}

impl fmt::Display for DescriptorShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(
            f,
            "RLIMIT_NOFILE is {limit}, it has to be {needed} at least: raise it with ulimit -n or LimitNOFILE="
        )
    }
}

/// Whether so many more descriptors could be opened now. The only way to know is to try.
pub fn room_for(count: usize) -> Result<(), DescriptorShortage> {
    let mut taken: Vec<OwnedFd> = Vec::with_capacity(count);
    while taken.len() < count {
        let one = match taken.first() {
            None => socket(
                AddressFamily::Unix,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC,
                None,
            )
            .map_err(io::Error::from),
            Some(first) => first.try_clone(),
        };
        match one {
            Ok(one) => taken.push(one),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                let limit = most();
                let needed = limit.saturating_add(count - taken.len());
                return Err(DescriptorShortage { limit, needed });
            }
            // Not the limit's fault: what needs them says so.
            Err(_) => break,
        }
    }
    Ok(())
}
