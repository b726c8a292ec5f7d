//! Page size of this machine: 4 KiB; on 64-bit Arm and Power also 16 or 64 KiB.

/// Returns the bytes of a page: a power of two, at least 4096.
pub fn page_size() -> usize {
    // SAFETY: no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
