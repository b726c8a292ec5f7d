//! Posting and cancelling.
//!
//! ```text
//!   buffer + size                     \
//!   buffer_list + size_list + count    >  UserMemory  ->  instance::post
//!   (sizes >= 0, sum = total)         /                    0  pending, *id names it
//!                                                          1  complete already
//!                                                         <0  refused, nothing follows
//! ```
//!
//! Owns: the conversion of C's buffers to one run of bytes.

use super::lifecycle::{MAX_MESSAGE, context};
use crate::abi::types::{
    bmi_buffer_type, bmi_context_id, bmi_hint, bmi_method_addr, bmi_msg_tag_t, bmi_op_id_t,
    bmi_size_t,
};
use crate::boundary::{array, export, in_range, optional, required, write_if};
use crate::error::Error;
use crate::instance::{self, Post, PostKind, Posted};
use libc::{c_int, c_void};
use mx_sys::UserMemory;

/// The most pieces of a list: far more than any host passes, few enough that a nonsense count is
/// noticed before its arrays are read.
pub const MAX_LIST: c_int = 65536;

export! {
    /// Posts a send that the receiver expects. The buffer must stay as it is until the operation
    /// completes. 0 bytes are legal, with any buffer, also NULL.
    ///
    /// Returns 0 when it is under way: `*id` names it, and a test call reports it. Returns 1 when
    /// it is complete already: no test call reports it. Returns a negative code when it was
    /// refused: nothing is ever reported for it. `buffer_type` and `hints` are not looked at.
    #[cfg(not(feature = "standalone"))]
    pub unsafe extern "C" fn BMI_mx_post_send(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer: *const c_void,
        size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        // SAFETY: C keeps the buffer readable until the operation completes.
        let memory = unsafe { one(PostKind::Send, buffer.cast_mut(), size) }?;
        let call = Call { id, addr: dest, tag, class: 0, user_ptr, context_id };
        call.post("dest", PostKind::Send, memory).map(|(answer, _)| answer)
    }

    /// Posts a send that the receiver does not expect; it takes it with
    /// `BMI_mx_testunexpected`. Otherwise as `BMI_mx_post_send`. Messages larger than
    /// `BMI_MX_UNEXPECTED_MAX` (docs/tuning.md) get -BMI_EMSGSIZE.
    #[cfg(not(feature = "standalone"))]
    pub unsafe extern "C" fn BMI_mx_post_sendunexpected(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer: *const c_void,
        size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        // SAFETY: C keeps the buffer readable until the operation completes.
        let memory = unsafe { one(PostKind::SendUnexpected, buffer.cast_mut(), size) }?;
        let call = Call { id, addr: dest, tag, class: 0, user_ptr, context_id };
        call.post("dest", PostKind::SendUnexpected, memory).map(|(answer, _)| answer)
    }

    /// Posts a receive for the next message from `src` with `tag`. The buffer belongs to the
    /// method until the operation completes. A peer that was never connected is waited for.
    ///
    /// Returns as `BMI_mx_post_send` does; with 1, `*actual_size`, unless it is NULL, is what arrived. A
    /// message longer than `expected_size` fills the buffer and completes with -BMI_EMSGSIZE. The buffer may
    /// be larger than any message.
    #[cfg(not(feature = "standalone"))]
    pub unsafe extern "C" fn BMI_mx_post_recv(
        id: *mut bmi_op_id_t,
        src: *mut bmi_method_addr,
        buffer: *mut c_void,
        expected_size: bmi_size_t,
        actual_size: *mut bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        // SAFETY: C keeps the buffer writable, and leaves it alone, until the operation completes.
        let memory = unsafe { one(PostKind::Recv, buffer, expected_size) }?;
        let call = Call { id, addr: src, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes a size to write to, if any.
        unsafe { call.receive(memory, actual_size) }
    }

    /// `BMI_mx_post_send` from `list_count` buffers (0 to 65536), sent as one message. The arrays
    /// may go when the call returns, the buffers may not. A buffer of 0 bytes may be NULL, and so may the
    /// arrays of no buffers.
    ///
    /// Also returns -BMI_EINVAL when the sizes do not add up to `total_size`.
    pub unsafe extern "C" fn BMI_mx_post_send_list(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer_list: *const *const c_void,
        size_list: *const bmi_size_t,
        list_count: c_int,
        total_size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        // SAFETY: C passes arrays of `list_count`, and keeps the buffers readable until the
        // operation completes.
        let memory = unsafe { list(PostKind::Send, buffer_list.cast(), size_list, list_count, total_size) }?;
        let call = Call { id, addr: dest, tag, class: 0, user_ptr, context_id };
        call.post("dest", PostKind::Send, memory).map(|(answer, _)| answer)
    }

    /// `BMI_mx_post_recv` into `list_count` buffers (0 to 65536), filled one after the other.
    ///
    /// Also returns -BMI_EINVAL when the sizes do not add up to `total_expected_size`.
    pub unsafe extern "C" fn BMI_mx_post_recv_list(
        id: *mut bmi_op_id_t,
        src: *mut bmi_method_addr,
        buffer_list: *const *mut c_void,
        size_list: *const bmi_size_t,
        list_count: c_int,
        total_expected_size: bmi_size_t,
        total_actual_size: *mut bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        let _ = (buffer_type, hints);
        let kind = PostKind::Recv;
        // SAFETY: C passes arrays of `list_count`; it keeps the buffers writable, and leaves them
        // alone, until the operation completes.
        let memory = unsafe { list(kind, buffer_list, size_list, list_count, total_expected_size) }?;
        let call = Call { id, addr: src, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes a size to write to, if any.
        unsafe { call.receive(memory, total_actual_size) }
    }

    /// `BMI_mx_post_sendunexpected` from `list_count` buffers (0 to 65536), sent as one message. With the
    /// stand-alone BMI only a `BMI_mx_testunexpected` for the same `class` hands it out.
    ///
    /// Also returns -BMI_EINVAL when the sizes do not add up to `total_size`.
    pub unsafe extern "C" fn BMI_mx_post_sendunexpected_list(
        id: *mut bmi_op_id_t,
        dest: *mut bmi_method_addr,
        buffer_list: *const *const c_void,
        size_list: *const bmi_size_t,
        list_count: c_int,
        total_size: bmi_size_t,
        buffer_type: bmi_buffer_type,
        tag: bmi_msg_tag_t,
        #[cfg(feature = "standalone")]
        class: u8,
        user_ptr: *mut c_void,
        context_id: bmi_context_id,
        hints: bmi_hint,
    ) -> c_int {
        #[cfg(not(feature = "standalone"))]
        let class = 0;
        let _ = (buffer_type, hints);
        let kind = PostKind::SendUnexpected;
        // SAFETY: C passes arrays of `list_count`, and keeps the buffers readable until the
        // operation completes.
        let memory = unsafe { list(kind, buffer_list.cast(), size_list, list_count, total_size) }?;
        let call = Call { id, addr: dest, tag, class, user_ptr, context_id };
        call.post("dest", kind, memory).map(|(answer, _)| answer)
    }

    /// Calls an operation off. It still completes exactly once and must be tested for, at once:
    /// with -BMI_ECANCEL, or as it did when it was complete already. Its buffer is not touched
    /// any more. The peer and its other operations stay, also when the message was partly
    /// transferred.
    ///
    /// Nothing happens to one that was reported: its id may be passed until a post gives it out again, for
    /// an operation that would be called off instead.
    ///
    /// Returns 0, or -BMI_EINVAL for a number that never was an operation's id.
    pub unsafe extern "C" fn BMI_mx_cancel(id: bmi_op_id_t, context_id: bmi_context_id) -> c_int {
        instance::cancel(id, context(context_id)?)?;
        Ok(0)
    }
}

/// The arguments of all post functions beside the memory.
struct Call {
    id: *mut bmi_op_id_t,
    addr: *mut bmi_method_addr,
    tag: bmi_msg_tag_t,
    class: u8,
    user_ptr: *mut c_void,
    context_id: bmi_context_id,
}

impl Call {
    /// Checks, posts, and gives the answer for C and the size of what arrived.
    #[inline(always)]
    fn post(
        self,
        side: &'static str,
        kind: PostKind,
        memory: UserMemory,
    ) -> Result<(c_int, bmi_size_t), Box<Error>> {
        let mut id = required("id", self.id)?;
        let post = Post {
            kind,
            addr: required(side, self.addr)?,
            memory,
            tag: self.tag,
            class: self.class,
            user_ptr: self.user_ptr,
            context: context(self.context_id)?,
        };
        // The instance itself writes the id, before another thread can see the completion.
        // SAFETY: C passes an id to write to, which is not used elsewhere during the call.
        let id = unsafe { id.as_mut() };
        match instance::post(post, id)? {
            Posted::Pending => Ok((0, 0)),
            Posted::Complete { size } => Ok((1, size)),
        }
    }

    /// Posts a receive. `actual_size` gets the size of what has arrived already, unless it is null.
    ///
    /// # Safety
    ///
    /// `actual_size` is null, misaligned, or writable.
    #[inline(always)]
    unsafe fn receive(
        self,
        memory: UserMemory,
        actual_size: *mut bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        let actual_size = optional("actual_size", actual_size)?;
        let (answer, size) = self.post("src", PostKind::Recv, memory)?;
        if answer == 1 {
            // SAFETY: checked above, and the caller's promise.
            unsafe { write_if(actual_size, size) };
        }
        Ok(answer)
    }
}

/// The size of a buffer. What is sent is no larger than the largest message; what receives may be.
#[inline(always)]
fn message_size(kind: PostKind, what: &'static str, size: bmi_size_t) -> Result<usize, Box<Error>> {
    let size = in_range(what, size, 0, i64::MAX)?;
    let limit = i64::from(MAX_MESSAGE);
    if size <= limit || kind == PostKind::Recv {
        Ok(size as usize)
    } else {
        Err(Error::too_large(size, limit))
    }
}

/// One buffer.
///
/// # Safety
///
/// As for [`UserMemory::new`].
#[cfg(not(feature = "standalone"))]
#[inline(always)]
unsafe fn one(
    kind: PostKind,
    buffer: *mut c_void,
    size: bmi_size_t,
) -> Result<UserMemory, Box<Error>> {
    let size = message_size(kind, "size", size)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { UserMemory::new(buffer, size) }?)
}

/// Several buffers as one run of bytes.
///
/// # Safety
///
/// The arrays have `count` entries when `count` is in range, and stay as they are during the call; the
/// buffers as for [`UserMemory::list`].
unsafe fn list(
    kind: PostKind,
    buffers: *const *mut c_void,
    sizes: *const bmi_size_t,
    count: c_int,
    total: bmi_size_t,
) -> Result<UserMemory, Box<Error>> {
    let count = in_range("list_count", count, 0, MAX_LIST.into())? as usize;
    // SAFETY: the caller's promise.
    let buffers = unsafe { array("buffer_list", buffers, count) }?;
    // SAFETY: the caller's promise.
    let sizes = unsafe { array("size_list", sizes, count) }?;
    let total = message_size(kind, "total_size", total)? as i64;
    let mut sum = 0_i64;
    for (index, &size) in sizes.iter().enumerate() {
        if size < 0 {
            return Err(Error::invalid(format!("segment {index} has size {size}")));
        }
        sum = sum.saturating_add(size);
    }
    if sum != total {
        let what = format!("total size {total} but the list has {sum} bytes");
        return Err(Error::invalid(what));
    }
    let pieces = buffers.iter().zip(sizes);
    let pieces = pieces.map(|(&buffer, &size)| (buffer, size as usize));
    // SAFETY: the caller's promise.
    Ok(unsafe { UserMemory::list(pieces) }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::{BMI_EINVAL, BMI_EMSGSIZE};

    #[test]
    fn sizes_that_do_not_add_up_are_named() {
        let mut bytes = [0_u8; 9];
        let buffer = bytes.as_mut_ptr().cast::<c_void>();
        // SAFETY: arrays of one, and memory of nine bytes.
        let error = unsafe { list(PostKind::Send, &raw const buffer, &9, 1, 7) }.unwrap_err();
        assert_eq!(error.to_string(), "total size 7 but the list has 9 bytes");
        assert_eq!(error.code(), -BMI_EINVAL);
    }

    #[test]
    fn what_receives_may_be_larger_than_any_message_and_no_larger_than_memory() {
        let limit = bmi_size_t::from(MAX_MESSAGE);
        for kind in [PostKind::Send, PostKind::SendUnexpected] {
            assert_eq!(message_size(kind, "size", limit).unwrap(), limit as usize);
            let error = message_size(kind, "size", limit + 1).unwrap_err();
            assert_eq!(error.code(), -BMI_EMSGSIZE);
        }
        for size in [limit + 1, bmi_size_t::MAX] {
            let taken = message_size(PostKind::Recv, "size", size).unwrap();
            assert_eq!(taken, size as usize);
        }
        let mut byte = 0_u8;
        let twice = [(&raw mut byte).cast::<c_void>(); 2];
        let sizes = [bmi_size_t::MAX; 2];
        // SAFETY: arrays of two; the memory is not used.
        let list = unsafe {
            list(
                PostKind::Recv,
                &raw const twice[0],
                &raw const sizes[0],
                2,
                bmi_size_t::MAX,
            )
        };
        assert_eq!(list.unwrap_err().code(), -BMI_EINVAL);
    }
}
