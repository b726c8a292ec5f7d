//! The operations of open objects, each one checked step through its table.
//!
//! ```text
//!   fi_recv(ep, ...)
//!     ep->msg        null? ----------------------> -FI_ENOSYS
//!     msg->size      ends before `recv`? --------> -FI_ENOSYS     an older provider
//!     msg->recv      null? ----------------------> -FI_ENOSYS
//!     msg->recv(ep, ...)
//!
//!   objects.rs    close, bind, control, options, names, domains, endpoints
//!   messages.rs   send, receive, tagged, remote memory, cancel
//!   queues.rs     completion queues, address vectors
//!   memory.rs     registrations
//! ```
//!
//! Owns: what libfabric's headers have as inline functions, under their names. The operations are
//! described in `fi_msg(3)` and the rest of the manual.
//!
//! # Safety
//!
//! All of these are unsafe for the same reasons, said once here. The object is open, and of the
//! kind its type says; it may be used from this thread now, by the domain's threading model.
//! Pointers point to what the manual wants, and memory given to an operation stays valid until
//! its completion was read or the endpoint closed. An endpoint's `rma`, `tagged` and `cm` calls
//! need the capability in the info it was opened with: a provider may have allocated no more of
//! the object than that asked for.
//!
//! Calls return 0 or a count, or a negated `FI_E*`.

// The names, and their argument lists, are libfabric's.
#![allow(clippy::too_many_arguments)]
// One contract for all, above.
#![allow(clippy::missing_safety_doc)]

/// The operation in a table, if it is there: an `Option` of the function.
macro_rules! operation {
    ($table:expr, $type:ty, $member:ident) => {{
        let table: *const $type = $table;
        let end =
            std::mem::offset_of!($type, $member) + size_of::<Option<unsafe extern "C" fn()>>();
        if table.is_null() {
            None
        } else {
            // SAFETY: every table begins with its size.
            let size = unsafe { (*table).size };
            if size < end {
                None
            } else {
                // SAFETY: the member lies within the size the provider gave.
                unsafe { (*table).$member }
            }
        }
    }};
}

/// Calls it, or answers `-FI_ENOSYS`.
macro_rules! through {
    ($table:expr, $type:ty, $member:ident, ($($arg:expr),* $(,)?)) => {
        match operation!($table, $type, $member) {
            // SAFETY: the caller's word, as the module's documentation has it.
            Some(call) => unsafe { call($($arg),*) },
            None => -$crate::abi::FI_ENOSYS as _,
        }
    };
}

mod memory;
mod messages;
mod objects;
mod queues;

pub use memory::*;
pub use messages::*;
pub use objects::*;
pub use queues::*;

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_void};
    use std::mem::offset_of;

    use super::*;
    use crate::abi::*;

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

    unsafe extern "C" fn straddr(
        _: *mut fid_av,
        _: *const c_void,
        buf: *mut c_char,
        _: *mut usize,
    ) -> *const c_char {
        buf
    }

    unsafe extern "C" fn readerr(_: *mut fid_cq, buf: *mut fi_cq_err_entry, _: u64) -> isize {
        // SAFETY: the test passes a whole entry.
        isize::from(unsafe { (*buf).src_addr } == FI_ADDR_NOTAVAIL)
    }

    unsafe extern "C" fn refresh(_: *mut fid, command: i32, arg: *mut c_void) -> i32 {
        // SAFETY: the argument of FI_REFRESH.
        let modify = unsafe { *arg.cast::<fi_mr_modify>() };
        i32::from(command == FI_REFRESH && modify.flags == 7 && modify.attr.iov_count == 3)
    }

    const NO_FID: fid = fid {
        fclass: FI_CLASS_EP,
        context: std::ptr::null_mut(),
        ops: std::ptr::null_mut(),
    };

    fn endpoint(msg: *mut fi_ops_msg) -> fid_ep {
        fid_ep {
            fid: NO_FID,
            ops: std::ptr::null_mut(),
            cm: std::ptr::null_mut(),
            msg,
            rma: std::ptr::null_mut(),
            tagged: std::ptr::null_mut(),
            atomic: std::ptr::null_mut(),
            collective: std::ptr::null_mut(),
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
    fn a_member_that_the_tables_size_does_not_cover_is_not_looked_at() {
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
        let mut table = fi_ops_av {
            straddr: Some(straddr),
            ..fi_ops_av::EMPTY
        };
        let mut av = fid_av {
            fid: NO_FID,
            ops: &raw mut table,
        };
        let mut buf: c_char = 0;
        let mut len = 1;
        // SAFETY: the table's `straddr` looks at nothing.
        let words =
            unsafe { fi_av_straddr(&raw mut av, std::ptr::null(), &raw mut buf, &raw mut len) };
        assert_eq!(words, &raw const buf);
        av.ops = std::ptr::null_mut();
        // SAFETY: no table, nothing is called.
        let words =
            unsafe { fi_av_straddr(&raw mut av, std::ptr::null(), &raw mut buf, &raw mut len) };
        assert!(words.is_null());
    }

    #[test]
    fn an_error_entry_has_no_sender_until_the_provider_says_one() {
        let mut table = fi_ops_cq {
            readerr: Some(readerr),
            ..fi_ops_cq::EMPTY
        };
        let mut cq = fid_cq {
            fid: NO_FID,
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
    fn a_registration_is_refreshed_through_control() {
        let mut table = fi_ops {
            control: Some(refresh),
            ..fi_ops::EMPTY
        };
        let ops = &raw mut table;
        let mut object = fid_mr {
            fid: fid { ops, ..NO_FID },
            mem_desc: std::ptr::null_mut(),
            key: 42,
        };
        let mr = &raw mut object;
        // SAFETY: the table's `control` does not follow the segments.
        let answer = unsafe { fi_mr_refresh(mr, std::ptr::null(), 3, 7) };
        assert_eq!(answer, 1);
        // SAFETY: a whole object.
        let key = unsafe { fi_mr_key(mr) };
        assert_eq!(key, 42);
        // SAFETY: a whole object.
        let desc = unsafe { fi_mr_desc(mr) };
        assert!(desc.is_null());
    }
}
