//! Buffers.
//!
//! Owns: nothing. The memory comes from `buffer`.

use crate::Error;
use crate::export;
use bmi_method::abi::types::{bmi_op_type, bmi_size_t};
use bmi_method::buffer;
use libc::{c_int, c_void};
use mx_boundary::in_range;

export! {
    /// Allocates a buffer of `size` bytes for messages, aligned to a page if it is a page or more; for 0 bytes a unique
    /// address, as from malloc. Its contents are undefined. `send_recv` is ignored. Any other memory may be posted,
    /// too.
    ///
    /// Returns NULL if `size` is negative or memory is short.
    pub unsafe extern "C" fn BMI_mx_memalloc(
        size: bmi_size_t,
        send_recv: bmi_op_type,
    ) -> *mut c_void {
        let _ = send_recv;
        let size = in_range("size", size, 0, i64::MAX)? as usize;
        buffer::allocate(size).ok_or_else(|| Error::no_memory("a buffer", size))
    }

    /// Frees a buffer of `BMI_mx_memalloc`. NULL is legal. `size` and `send_recv` are ignored.
    ///
    /// Returns 0, or -BMI_EINVAL if the buffer was freed before and the library can tell.
    pub unsafe extern "C" fn BMI_mx_memfree(
        buffer: *mut c_void,
        size: bmi_size_t,
        send_recv: bmi_op_type,
    ) -> c_int {
        let _ = (size, send_recv);
        // SAFETY: C passes a pointer from BMI_mx_memalloc that it has not freed yet.
        if unsafe { buffer::release(buffer) } {
            Ok(0)
        } else {
            Err(Error::invalid(format!("buffer {buffer:p} was given back before")))
        }
    }

    /// Frees the buffer of an unexpected message from `BMI_mx_testunexpected`. NULL is legal.
    ///
    /// Returns 0.
    pub unsafe extern "C" fn BMI_mx_unexpected_free(buffer: *mut c_void) -> c_int {
        // SAFETY: C passes a buffer of `testunexpected`, which came from malloc, or null.
        unsafe { libc::free(buffer) };
        Ok(0)
    }
}
