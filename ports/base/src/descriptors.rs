//! The limit of open descriptors of this process.

use nix::sys::resource::{Resource, getrlimit};

/// What `RLIMIT_NOFILE` says now. Where that cannot be read: as many as there are numbers.
pub fn most() -> usize {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(usize::MAX, |(soft, _)| {
        usize::try_from(soft).unwrap_or(usize::MAX)
    })
}
