//! Registrations of memory.
//!
//! ```text
//!   fi_mr_reg --> fid_mr -- mem_desc --> local operations      with FI_MR_LOCAL
//!                   |    `- key -------> the peer's operations
//!                   `- fi_mr_bind, fi_mr_enable                with FI_MR_ENDPOINT
//! ```
//!
//! Owns: calls through `fi_ops_mr`, and those of `fi_ops` that are for registrations.
//! Not here: the choice of what to register, closing (`fi_close`).

use libc::{c_int, c_void, iovec};

use super::objects::{bind, fi_control};
use crate::abi::*;

/// Registers one segment.
#[inline]
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain.
    let ops = unsafe { (*domain).mr };
    through!(
        ops,
        fi_ops_mr,
        reg,
        (
            domain.cast(),
            buf,
            len,
            access,
            offset,
            requested_key,
            flags,
            mr,
            context
        )
    )
}

/// Joins a registration to an endpoint.
#[inline]
pub unsafe fn fi_mr_bind(mr: *mut fid_mr, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: a registration begins with its `fid`.
    unsafe { bind(mr.cast(), to, flags) }
}

/// Makes a registration ready, once bound.
#[inline]
pub unsafe fn fi_mr_enable(mr: *mut fid_mr) -> c_int {
    // SAFETY: a registration begins with its `fid`.
    unsafe { fi_control(mr.cast(), FI_ENABLE, std::ptr::null_mut()) }
}

/// The descriptor for local operations on the memory.
#[inline]
pub unsafe fn fi_mr_desc(mr: *const fid_mr) -> *mut c_void {
    // SAFETY: an open registration.
    unsafe { (*mr).mem_desc }
}

/// The key for the peer's operations on the memory; `FI_KEY_NOTAVAIL` when it has none.
#[inline]
pub unsafe fn fi_mr_key(mr: *const fid_mr) -> u64 {
    // SAFETY: an open registration.
    unsafe { (*mr).key }
}

/// Tells the provider that the pages behind these segments have changed.
pub unsafe fn fi_mr_refresh(mr: *mut fid_mr, iov: *const iovec, count: usize, flags: u64) -> c_int {
    let attr = fi_mr_attr {
        mr_iov: iov,
        iov_count: count,
        ..fi_mr_attr::EMPTY
    };
    let mut modify = fi_mr_modify { flags, attr };
    // SAFETY: a registration begins with its `fid`; the argument of `FI_REFRESH`.
    unsafe { fi_control(mr.cast(), FI_REFRESH, (&raw mut modify).cast()) }
}
