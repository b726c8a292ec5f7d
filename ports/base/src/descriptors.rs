//! How many descriptors this process may have open.
//!
//! Knows nothing of: who has them.

/// What `RLIMIT_NOFILE` says now. Where that cannot be read: as many as there are numbers.
pub fn most() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable and outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}
