//! The limit of open descriptors of this process.

use nix::sys::resource::{Resource, getrlimit};

/// The limit `RLIMIT_NOFILE`; the largest number if it cannot be read.
pub fn most() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}
