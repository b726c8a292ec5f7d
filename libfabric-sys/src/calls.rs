//! Operations of open objects, each one a checked step through its table.
//!
//! ```text
//!   fi_recv(ep, ...)
//!     ep->msg        null? ----------------------> -FI_ENOSYS
//!     msg->size      ends before `recv`? --------> -FI_ENOSYS     an older provider
//!     msg->recv      null? ----------------------> -FI_ENOSYS
//!     msg->recv(ep, ...)
//! ```
//!
//! Owns: the inline functions of libfabric's headers, under their names. Those that only step through a table are
//! generated with it, in [`crate::abi::tables`]. `fi_msg(3)` and the rest of the manual describe the operations.
//!
//! # Safety
//!
//! All of these functions have one safety contract. The object is open, and of its type's class; this thread may use it
//! now, by the domain's threading model. Pointers satisfy the manual, and memory given to an operation stays valid
//! until its completion was read or the endpoint closed. An endpoint's `rma`, `tagged` and `cm` calls require the
//! capability in the info with which it was opened: a provider may have allocated nothing else.
//!
//! Calls return 0 or a count, or a negated `FI_E*`. `-FI_EAGAIN` of a message operation means: read the completion
//! queue, try again.

// The module has one contract for all.
#![allow(clippy::missing_safety_doc)]

use std::ffi::c_char;

use libc::{c_int, c_void};

pub use crate::abi::tables::operations::*;
use crate::abi::*;

/// Writes to `fd` the descriptor that becomes readable when there may be events: `FI_GETWAIT` of an object opened with
/// `FI_WAIT_FD`, which keeps the descriptor. Sleep on it only after [`fi_trywait`].
#[inline]
pub unsafe fn fi_getwait(fid: *mut fid, fd: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { fi_control(fid, FI_GETWAIT, fd.cast()) }
}

/// Binds an endpoint to a queue or an address vector, before it is enabled. `flags`: directions that a queue serves,
/// `FI_TRANSMIT | FI_RECV`; 0 for an address vector.
#[inline]
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: an endpoint begins with its `fid`.
    unsafe { fi_bind(ep.cast(), to, flags) }
}

/// Enables an endpoint once everything is bound to it; operations may be posted from then on.
#[inline]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: an endpoint begins with its `fid`.
    unsafe { fi_control(ep.cast(), FI_ENABLE, std::ptr::null_mut()) }
}

/// Binds a registration to an endpoint, before it is enabled; for providers with `FI_MR_ENDPOINT`.
#[inline]
pub unsafe fn fi_mr_bind(mr: *mut fid_mr, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: a registration begins with its `fid`.
    unsafe { fi_bind(mr.cast(), to, flags) }
}

/// Enables a registration that has been bound to an endpoint; its key is valid from then on.
#[inline]
pub unsafe fn fi_mr_enable(mr: *mut fid_mr) -> c_int {
    // SAFETY: a registration begins with its `fid`.
    unsafe { fi_control(mr.cast(), FI_ENABLE, std::ptr::null_mut()) }
}

/// Returns the descriptor to pass with local operations on the memory; null if the provider has none.
#[inline]
pub unsafe fn fi_mr_desc(mr: *const fid_mr) -> *mut c_void {
    // SAFETY: an open registration.
    unsafe { (*mr).mem_desc }
}

/// Returns the key for the peer's operations on the memory; `FI_KEY_NOTAVAIL` without one.
#[inline]
pub unsafe fn fi_mr_key(mr: *const fid_mr) -> u64 {
    // SAFETY: an open registration.
    unsafe { (*mr).key }
}

/// Reads the failed operation that `-FI_EAVAIL` announced to `buf` and removes it from the queue; returns 1, or
/// `-FI_EAGAIN` if there is none. `err_data` and `err_data_size` of the entry are inputs as well; see
/// [`fi_cq_err_entry`].
#[inline]
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize {
    if !buf.is_null() {
        // Providers older than this member, or asked for an older interface, do not write it.
        // SAFETY: a whole entry, guaranteed by the caller.
        unsafe { (*buf).src_addr = FI_ADDR_NOTAVAIL };
    }
    // SAFETY: an open queue.
    let ops = unsafe { (*cq).ops };
    match operation!(get ops, fi_ops_cq, readerr) {
        // SAFETY: guaranteed by the caller.
        Some(call) => unsafe { call(cq, buf, flags) },
        None => -FI_ENOSYS as _,
    }
}

/// Returns the provider's text for its error, in `buf` or in its own memory; null without one.
pub unsafe fn fi_cq_strerror(
    cq: *mut fid_cq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: an open queue.
    let ops = unsafe { (*cq).ops };
    match operation!(get ops, fi_ops_cq, strerror) {
        // SAFETY: guaranteed by the caller.
        Some(call) => unsafe { call(cq, prov_errno, err_data, buf, len) },
        None => std::ptr::null(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_void};
    use std::mem::offset_of;

    use super::*;

    unsafe extern "C" fn send(
        _: *mut fid_ep,
        _: *const c_void,
        len: usize,
        _: *mut c_void,
        _: fi_addr_t,
        _: *mut c_void,
    ) -> isize {
        len as isize
    }

    unsafe extern "C" fn strerror(
        _: *mut fid_cq,
        _: i32,
        _: *const c_void,
        buf: *mut c_char,
        _: usize,
    ) -> *const c_char {
        buf
    }

    unsafe extern "C" fn readerr(_: *mut fid_cq, buf: *mut fi_cq_err_entry, _: u64) -> isize {
        // SAFETY: the test passes a whole entry.
        isize::from(unsafe { (*buf).src_addr } == FI_ADDR_NOTAVAIL)
    }

    fn endpoint(msg: *mut fi_ops_msg) -> fid_ep {
        fid_ep {
            msg,
            ..fid_ep::EMPTY
        }
    }

    fn send_through(ep: &mut fid_ep) -> isize {
        let none = std::ptr::null_mut();
        // SAFETY: the table's `send` looks at nothing but the length.
        unsafe { fi_send(ep, std::ptr::null(), 5, none, 0, none) }
    }

    #[test]
    fn an_operation_that_is_there_is_called() {
        let mut table = fi_ops_msg {
            send: Some(send),
            ..fi_ops_msg::EMPTY
        };
        assert_eq!(send_through(&mut endpoint(&raw mut table)), 5);
    }

    #[test]
    fn without_a_table_or_a_member_the_answer_is_enosys() {
        let mut table = fi_ops_msg::EMPTY;
        assert_eq!(
            send_through(&mut endpoint(&raw mut table)),
            -(FI_ENOSYS as isize)
        );
        assert_eq!(
            send_through(&mut endpoint(std::ptr::null_mut())),
            -(FI_ENOSYS as isize)
        );
    }

    #[test]
    fn members_beyond_the_table_size_are_not_read() {
        let covered = offset_of!(fi_ops_msg, send) + size_of::<usize>();
        for (size, expected) in [
            (0, -(FI_ENOSYS as isize)),
            (covered - 1, -(FI_ENOSYS as isize)),
            (covered, 5),
        ] {
            let mut table = fi_ops_msg {
                size,
                send: Some(send),
                ..fi_ops_msg::EMPTY
            };
            assert_eq!(
                send_through(&mut endpoint(&raw mut table)),
                expected,
                "size {size}"
            );
        }
    }

    #[test]
    fn words_that_are_not_there_are_null() {
        let mut table = fi_ops_cq {
            strerror: Some(strerror),
            ..fi_ops_cq::EMPTY
        };
        let mut cq = fid_cq {
            fid: fid::EMPTY,
            ops: &raw mut table,
        };
        let mut buf: c_char = 0;
        // SAFETY: the table's `strerror` looks at nothing.
        let words = unsafe { fi_cq_strerror(&raw mut cq, 1, std::ptr::null(), &raw mut buf, 1) };
        assert_eq!(words, &raw const buf);
        cq.ops = std::ptr::null_mut();
        // SAFETY: no table, nothing is called.
        let words = unsafe { fi_cq_strerror(&raw mut cq, 1, std::ptr::null(), &raw mut buf, 1) };
        assert!(words.is_null());
    }

    #[test]
    fn an_error_entry_has_no_sender_until_the_provider_says_one() {
        let mut table = fi_ops_cq {
            readerr: Some(readerr),
            ..fi_ops_cq::EMPTY
        };
        let mut cq = fid_cq {
            fid: fid::EMPTY,
            ops: &raw mut table,
        };
        let mut entry = fi_cq_err_entry {
            src_addr: 3,
            ..fi_cq_err_entry::EMPTY
        };
        // SAFETY: the table's `readerr` reads the entry.
        assert_eq!(unsafe { fi_cq_readerr(&raw mut cq, &raw mut entry, 0) }, 1);
    }

    #[test]
    fn a_registration_tells_its_key_and_descriptor() {
        let mut object = fid_mr {
            key: 42,
            ..fid_mr::EMPTY
        };
        let mr = &raw mut object;
        // SAFETY: a whole object.
        let key = unsafe { fi_mr_key(mr) };
        assert_eq!(key, 42);
        // SAFETY: a whole object.
        let desc = unsafe { fi_mr_desc(mr) };
        assert!(desc.is_null());
    }
}
