//! The size of the machine's pages: 4 KiB, on 64-bit Arm and Power also 16 or 64.

/// Bytes of a page: a power of two, 4096 or more.
pub fn page_size() -> usize {
    // SAFETY: no pointers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
