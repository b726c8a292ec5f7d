//! Limit of open descriptors of this process.

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// Returns the soft `RLIMIT_NOFILE`; `usize::MAX` if it cannot be read.
pub fn most() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}

/// Error of a descriptor limit (`RLIMIT_NOFILE`) that is too low.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorShortage {
    /// Current limit.
    pub limit: usize,
    /// Lowest sufficient limit, given the descriptors that are open now.
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

/// Checks whether this process's limit allows `count` more descriptors now, by opening and closing them: there is no
/// other way to know. Other errors are left to the later open.
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
            // Not this process's limit: the later open reports this error.
            Err(_) => break,
        }
    }
    Ok(())
}
