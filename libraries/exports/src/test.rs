//! Testing for completions.
//!
//! ```text
//!   test            one operation          outcount 0 or 1
//!   testsome        some of a list         their indices in the list
//!   testcontext     any of a context       their ids
//!   testunexpected  unexpected messages
//! ```
//!
//! All return 0 and the number of results in `outcount`; the host counts a call as successful only then. Without a
//! result they wait up to `max_idle_time_ms`. With an `incount` of 0 they write only `outcount`, 0; their arrays may
//! then be NULL.
//!
//! Owns: writing completions to C's arrays.

use crate::Error;
use crate::export;
use crate::lifecycle::context;
use bmi_method::abi::types::{
    bmi_context_id, bmi_error_code_t, bmi_method_unexpected_info, bmi_op_id_t, bmi_size_t,
};
use bmi_method::instance::{self, Done};
use libc::{c_int, c_void};
use mx_boundary::{array, in_range, optional, required, room, write_if};
use std::ptr::NonNull;

export! {
    /// Tests one operation. `actual_size` and `user_ptr` may be NULL.
    ///
    /// Returns 0: if the operation is complete, with `*outcount` 1 and the other outputs written (the id becomes
    /// invalid), else with `*outcount` 0. Returns -BMI_EINVAL for an id that is no operation of that context.
    pub unsafe extern "C" fn BMI_mx_test(
        id: bmi_op_id_t,
        outcount: *mut c_int,
        error_code: *mut bmi_error_code_t,
        actual_size: *mut bmi_size_t,
        user_ptr: *mut *mut c_void,
        max_idle_time_ms: c_int,
        context_id: bmi_context_id,
    ) -> c_int {
        let outcount = required("outcount", outcount)?;
        let mut outputs = Outputs::new(1, error_code, actual_size, user_ptr)?;
        let idle = idle_time(max_idle_time_ms)?;
        let done = instance::test(id, context(context_id)?, idle)?;
        let count = done.is_some().into();
        if let Some(done) = done {
            // SAFETY: C passes one of each.
            unsafe { outputs.push(&done) };
        }
        // SAFETY: C passes a count to write to.
        unsafe { outcount.write(count) };
        Ok(0)
    }

    /// Tests `incount` operations. Ids that are 0 are skipped. Output number *n* is about `id_array[index_array[n]]`.
    /// `actual_size_array` and `user_ptr_array` may be NULL.
    ///
    /// Returns 0, or -BMI_EINVAL if one of the ids is no operation of that context.
    pub unsafe extern "C" fn BMI_mx_testsome(
        incount: c_int,
        id_array: *mut bmi_op_id_t,
        outcount: *mut c_int,
        index_array: *mut c_int,
        error_code_array: *mut bmi_error_code_t,
        actual_size_array: *mut bmi_size_t,
        user_ptr_array: *mut *mut c_void,
        max_idle_time_ms: c_int,
        context_id: bmi_context_id,
    ) -> c_int {
        let outcount = required("outcount", outcount)?;
        let count = capacity(incount)?;
        // SAFETY: C passes `incount` ids, which do not change during the call.
        let ids = unsafe { array("id_array", id_array, count) }?;
        let indexes = room("index_array", index_array, count)?;
        let mut outputs = Outputs::new(count, error_code_array, actual_size_array, user_ptr_array)?;
        let idle = idle_time(max_idle_time_ms)?;
        let context = context(context_id)?;
        let found = instance::test_some(ids, context, idle, move |index, done| {
            // SAFETY: C passes `incount` of each, and there are no more; an index of an array whose length is an int is
            // an int.
            unsafe {
                indexes.add(outputs.used).write(index as c_int);
                outputs.push(&done);
            }
        })?;
        // SAFETY: C passes a count to write to.
        unsafe { outcount.write(found as c_int) };
        Ok(0)
    }

    /// Takes up to `incount` completions of a context, oldest first, but failed sends before the receives that fail
    /// with them. `actual_size_array` and `user_ptr_array` may be NULL. A waiting call ends early if an unexpected
    /// message arrives.
    ///
    /// Returns 0. The loss of a peer never makes this call fail: it appears in the error codes of the peer's
    /// operations.
    pub unsafe extern "C" fn BMI_mx_testcontext(
        incount: c_int,
        out_id_array: *mut bmi_op_id_t,
        outcount: *mut c_int,
        error_code_array: *mut bmi_error_code_t,
        actual_size_array: *mut bmi_size_t,
        user_ptr_array: *mut *mut c_void,
        max_idle_time_ms: c_int,
        context_id: bmi_context_id,
    ) -> c_int {
        let outcount = required("outcount", outcount)?;
        let count = capacity(incount)?;
        let ids = room("out_id_array", out_id_array, count)?;
        let mut outputs = Outputs::new(count, error_code_array, actual_size_array, user_ptr_array)?;
        let idle = idle_time(max_idle_time_ms)?;
        let context = context(context_id)?;
        let found = instance::test_context(context, count, idle, move |done| {
            // SAFETY: C passes `incount` of each, and there are no more.
            unsafe {
                ids.add(outputs.used).write(done.id);
                outputs.push(&done);
            }
        })?;
        // SAFETY: C passes a count to write to.
        unsafe { outcount.write(found as c_int) };
        Ok(0)
    }
}

/// The arrays that each completion is written to. Their length is the caller's `incount`.
#[derive(Clone)]
struct Outputs {
    errors: NonNull<bmi_error_code_t>,
    sizes: Option<NonNull<bmi_size_t>>,
    user_ptrs: Option<NonNull<*mut c_void>>,
    len: usize,
    /// Number of entries written.
    used: usize,
}

impl Outputs {
    #[inline]
    fn new(
        len: usize,
        errors: *mut bmi_error_code_t,
        sizes: *mut bmi_size_t,
        user_ptrs: *mut *mut c_void,
    ) -> Result<Self, Box<Error>> {
        Ok(Self {
            errors: room("error_code", errors, len)?,
            sizes: optional("actual_size", sizes)?,
            user_ptrs: optional("user_ptr", user_ptrs)?,
            len,
            used: 0,
        })
    }

    /// # Safety
    ///
    /// The arrays have the promised length, and an entry is left.
    #[inline(always)]
    unsafe fn push(&mut self, done: &Done) {
        debug_assert!(self.used < self.len);
        // SAFETY: the caller's promise.
        unsafe {
            self.errors.add(self.used).write(done.error);
            write_if(self.sizes.map(|sizes| sizes.add(self.used)), done.size);
            write_if(
                self.user_ptrs.map(|ptrs| ptrs.add(self.used)),
                done.user_ptr,
            );
        }
        self.used += 1;
    }
}

/// Checks the number of entries of the output arrays.
#[inline]
fn capacity(incount: c_int) -> Result<usize, Box<Error>> {
    Ok(in_range("incount", incount, 0, c_int::MAX.into())? as usize)
}

/// Checks and converts an idle time to microseconds.
#[inline]
fn idle_time(ms: c_int) -> Result<u64, Box<Error>> {
    let ms = in_range("max_idle_time_ms", ms, 0, c_int::MAX.into())?;
    Ok(ms as u64 * 1000)
}

/// Implements the hosts' `BMI_mx_testunexpected`.
///
/// # Safety
///
/// `outcount` is null or writable, and so are `incount` places at `info`.
#[inline(always)]
pub unsafe fn unexpected(
    incount: c_int,
    outcount: *mut c_int,
    info: *mut bmi_method_unexpected_info,
    class: u8,
    max_idle_time_ms: c_int,
) -> Result<c_int, Box<Error>> {
    let outcount = required("outcount", outcount)?;
    let count = capacity(incount)?;
    let infos = room("info", info, count)?;
    let idle = idle_time(max_idle_time_ms)?;
    let mut place = 0;
    let found = instance::test_unexpected(count, class, idle, |message| {
        let info = bmi_method_unexpected_info {
            error_code: message.error,
            addr: message.addr.as_ptr(),
            buffer: message.buffer,
            size: message.size,
            tag: message.tag,
        };
        // SAFETY: the caller's promise, and there are no more.
        unsafe { infos.add(place).write(info) };
        place += 1;
    })?;
    // SAFETY: the caller's promise.
    unsafe { outcount.write(found as c_int) };
    Ok(0)
}
