//! Completion queues and address vectors.
//!
//! ```text
//!   fi_cq_read   n > 0          n completions, in the queue's format
//!                -FI_EAGAIN     none now
//!                -FI_EAVAIL     a failed one comes next: fi_cq_readerr
//!
//!   fi_av_insert  addresses --> fi_addr_t --> fi_av_straddr, fi_av_remove
//! ```
//!
//! Owns: calls through `fi_ops_cq` and `fi_ops_av`.

use std::ffi::c_char;

use libc::{c_int, c_void};

use crate::abi::*;

/// Takes up to `count` completions out.
#[inline]
pub unsafe fn fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: an open queue.
    let ops = unsafe { (*cq).ops };
    through!(ops, fi_ops_cq, read, (cq, buf, count))
}

/// Takes the failed operation out, after `-FI_EAVAIL`: 1 when there was one. The entry's
/// `err_data` and `err_data_size` are read first; see [`fi_cq_err_entry`].
#[inline]
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize {
    if !buf.is_null() {
        // A provider from before this member, or asked for an older interface, leaves it alone.
        // SAFETY: a whole entry, by the caller's word.
        unsafe { (*buf).src_addr = FI_ADDR_NOTAVAIL };
    }
    // SAFETY: an open queue.
    let ops = unsafe { (*cq).ops };
    through!(ops, fi_ops_cq, readerr, (cq, buf, flags))
}

/// The provider's words for its error, in `buf` or in memory of its own; null when it has none.
pub unsafe fn fi_cq_strerror(
    cq: *mut fid_cq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: an open queue.
    let ops = unsafe { (*cq).ops };
    match operation!(ops, fi_ops_cq, strerror) {
        // SAFETY: the caller's word.
        Some(call) => unsafe { call(cq, prov_errno, err_data, buf, len) },
        None => std::ptr::null(),
    }
}

/// Adds `count` addresses: how many were, each with its `fi_addr_t`, `FI_ADDR_NOTAVAIL` for
/// those that were not.
#[inline]
pub unsafe fn fi_av_insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open address vector.
    let ops = unsafe { (*av).ops };
    through!(
        ops,
        fi_ops_av,
        insert,
        (av, addr, count, fi_addr, flags, context)
    )
}

/// Takes addresses out.
#[inline]
pub unsafe fn fi_av_remove(
    av: *mut fid_av,
    fi_addr: *mut fi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    // SAFETY: an open address vector.
    let ops = unsafe { (*av).ops };
    through!(ops, fi_ops_av, remove, (av, fi_addr, count, flags))
}

/// An address to be read by people, in `buf`; the length becomes what it takes. Null when the
/// provider cannot.
pub unsafe fn fi_av_straddr(
    av: *mut fid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: an open address vector.
    let ops = unsafe { (*av).ops };
    match operation!(ops, fi_ops_av, straddr) {
        // SAFETY: the caller's word.
        Some(call) => unsafe { call(av, addr, buf, len) },
        None => std::ptr::null(),
    }
}
