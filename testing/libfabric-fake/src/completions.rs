//! The C calls that read a completion queue.
//!
//! ```text
//!   fi_cq_read(buf, n) --> progress --> entries in the queue's format, up to the first failed one
//!   fi_cq_readerr      --> the failed one
//! ```
//!
//! Owns: formats, and the calls on an open queue.
//! Out of scope: the order of completions.

use std::ffi::{c_char, c_void};
use std::os::fd::AsRawFd;

use libc::c_int;
use libfabric_sys::abi::*;

use crate::objects::{Id, code, enter};
use crate::shape::Wait;
use crate::state::State;

/// Value of fields without a meaning.
pub(crate) const RUBBISH: u64 = 0xbad2_bad2_bad2_bad2;

/// Offset of the provider's own error numbers from libfabric's.
const PROV_ERRNO: c_int = 5000;

pub(crate) unsafe extern "C" fn control(
    object: *mut fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    let control = |state: &mut State, id: Id| {
        if state.domain(id).shape.wait == Wait::WhenBound && state.endpoints_of(id).is_empty() {
            return code(FI_EOPBADSTATE);
        }
        match (command, &state.queues[&id].fd) {
            (FI_GETWAIT, Some(fd)) if !arg.is_null() => {
                // SAFETY: FI_GETWAIT of a queue with a descriptor takes a pointer to a c_int.
                unsafe { arg.cast::<c_int>().write(fd.as_raw_fd()) };
                0
            }
            _ => code(FI_ENOSYS),
        }
    };
    // SAFETY: an object of a fake.
    unsafe { enter(object.cast(), FI_CLASS_CQ, "fi_control", control) as c_int }
}

pub(crate) unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    let read = |state: &mut State, id: Id| {
        if let Err(error) = state.before_read(id) {
            return error;
        }
        if count > 0 && buf.is_null() {
            return state.violated(FI_EINVAL, "fi_cq_read into null".to_owned());
        }
        state.stats.looks += 1;
        let size = state.queues[&id].entry_size();
        let mut taken = 0;
        while taken < count {
            let Some(entry) = state.take(id, false) else {
                break;
            };
            let whole = fi_cq_tagged_entry {
                op_context: entry.context as *mut c_void,
                flags: entry.flags,
                len: entry.len,
                buf: entry.buf as *mut c_void,
                data: RUBBISH,
                tag: RUBBISH,
            };
            let to = buf.cast::<u8>().wrapping_add(taken * size);
            // SAFETY: `count` entries of the queue's format, each the beginning of this one.
            unsafe { std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), to, size) };
            taken += 1;
        }
        let next = state.queues[&id].entries.front();
        let failed = next.is_some_and(|entry| entry.failure.is_some());
        match taken {
            0 if failed => code(FI_EAVAIL),
            0 => code(FI_EAGAIN),
            _ => taken as isize,
        }
    };
    // SAFETY: an object of a fake.
    unsafe { enter(cq.cast(), FI_CLASS_CQ, "fi_cq_read", read) }
}

pub(crate) unsafe extern "C" fn readerr(
    cq: *mut fid_cq,
    buf: *mut fi_cq_err_entry,
    _flags: u64,
) -> isize {
    let read = |state: &mut State, id: Id| {
        let Some(entry) = state.take(id, true) else {
            return code(FI_EAGAIN);
        };
        let (error, olen) = entry.failure.unwrap_or_default();
        let negative = state.rng.chance(state.faults.negative);
        // SAFETY: an entry, by the call's contract. Written member by member: a library of an older
        // version does not write the members that came later.
        let Some(out) = (unsafe { buf.as_mut() }) else {
            return state.violated(FI_EINVAL, "fi_cq_readerr into null".to_owned());
        };
        out.op_context = entry.context as *mut c_void;
        out.flags = entry.flags;
        out.len = entry.len;
        out.buf = entry.buf as *mut c_void;
        out.data = RUBBISH;
        out.tag = RUBBISH;
        out.olen = olen;
        out.err = if negative { -error } else { error };
        out.prov_errno = PROV_ERRNO + error;
        out.err_data_size = 0;
        1
    };
    // SAFETY: an object of a fake.
    unsafe { enter(cq.cast(), FI_CLASS_CQ, "fi_cq_readerr", read) }
}

pub(crate) unsafe extern "C" fn strerror(
    _cq: *mut fid_cq,
    _prov_errno: c_int,
    _err_data: *const c_void,
    _buf: *mut c_char,
    _len: usize,
) -> *const c_char {
    c"an error the fake made up".as_ptr()
}
