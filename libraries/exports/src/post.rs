//! Posting and cancelling.
//!
//! ```text
//!   buffer + size                     \
//!   buffer_list + size_list + count    >  UserMemory  ->  instance::post
//!   (sizes >= 0, sum = total)         /                    0  pending, *id identifies it
//!                                                          1  complete already
//!                                                         <0  rejected, nothing is reported
//! ```
//!
//! Owns: the conversion of C's buffers to [`UserMemory`].

use crate::Error;
use crate::export;
use crate::lifecycle::{MAX_MESSAGE, context};
use bmi_method::abi::types::{
    bmi_buffer_type, bmi_context_id, bmi_hint, bmi_method_addr, bmi_msg_tag_t, bmi_op_id_t,
    bmi_size_t,
};
use bmi_method::instance::{self, Post, PostKind, PostOutcome};
use libc::{c_int, c_void};
use mx_boundary::{array, in_range, optional, required, write_if};
use mx_sys::{SegmentError, UserMemory};
use std::ptr::NonNull;
use std::slice;

/// Maximum number of buffers in a list: far more than any host passes, few enough that a wrong count is noticed before
/// its arrays are read.
pub const MAX_LIST: c_int = 65536;

/// Maximum size in bytes of a message for the front: every port sends that much in one packet.
const SMALL_MAX: bmi_size_t = 4096;

export! {
    /// Posts `BMI_mx_post_send` with `list_count` buffers (0 to 65536), sent as one message. The arrays are not used
    /// after the call, the buffers are. A buffer of 0 bytes may be NULL, and so may the arrays of no buffers.
    ///
    /// Also returns -BMI_EINVAL if the sizes do not add up to `total_size`.
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
        let call = PostArgs { id, addr: dest, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes arrays of `list_count`, and keeps the buffers readable until the
        // operation completes.
        unsafe { call.send_list(PostKind::Send, buffer_list, size_list, list_count, total_size) }
    }

    /// Posts `BMI_mx_post_recv` with `list_count` buffers (0 to 65536), filled one after the other.
    ///
    /// Also returns -BMI_EINVAL if the sizes do not add up to `total_expected_size`.
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
        // SAFETY: C passes arrays of `list_count`; it keeps the buffers writable, and does not access them, until the
        // operation completes.
        let memory = unsafe { list(kind, buffer_list, size_list, list_count, total_expected_size) }?;
        let call = PostArgs { id, addr: src, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes a size to write to, if any.
        unsafe { call.receive(memory, total_actual_size) }
    }

    /// Cancels an operation, which still completes exactly once and must be tested for, at once (a large send over
    /// InfiniBand or RoCE: within milliseconds, at most two seconds): with -BMI_ECANCEL, or with its own result if it
    /// had completed. Its buffer is not accessed after completion. The peer and its other operations stay, even if the
    /// message was partly transferred.
    ///
    /// Does nothing for an operation that was reported: its id may be passed until a post returns it again, for an
    /// operation that would then be cancelled instead.
    ///
    /// Returns 0, or -BMI_EINVAL for a number that never was an operation's id.
    pub unsafe extern "C" fn BMI_mx_cancel(id: bmi_op_id_t, context_id: bmi_context_id) -> c_int {
        instance::cancel(id, context(context_id)?)?;
        Ok(0)
    }
}

/// Arguments of all post functions except the memory.
#[derive(Debug)]
pub struct PostArgs {
    /// Output: the operation's id.
    pub id: *mut bmi_op_id_t,
    /// Address object of the peer.
    pub addr: *mut bmi_method_addr,
    /// Tag of the message.
    pub tag: bmi_msg_tag_t,
    /// Class of an unexpected message, else 0.
    pub class: u8,
    /// The host's pointer, returned with the completion.
    pub user_ptr: *mut c_void,
    /// Context in which the operation completes.
    pub context_id: bmi_context_id,
}

impl PostArgs {
    /// Posts a send of one buffer, expected or not.
    ///
    /// # Safety
    ///
    /// The buffer stays readable until the operation completes.
    #[inline(always)]
    pub unsafe fn send_one(
        self,
        kind: PostKind,
        buffer: *const c_void,
        size: bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        // SAFETY: the caller's promise.
        if kind == PostKind::Send && unsafe { self.send_at_once(buffer, size) } {
            return Ok(1);
        }
        // SAFETY: the caller's promise.
        unsafe { { self }.send_one_in_general(kind, buffer, size) }
    }

    /// Implements [`Self::send_one`] without its front.
    ///
    /// # Safety
    ///
    /// As for [`Self::send_one`].
    #[inline(never)]
    unsafe fn send_one_in_general(
        &self,
        kind: PostKind,
        buffer: *const c_void,
        size: bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        // SAFETY: the caller's promise.
        let memory = unsafe { one(kind, buffer.cast_mut(), size) }?;
        self.send(kind, memory)
    }

    /// Returns the peer and the place of the id if these and the context are valid.
    #[inline(always)]
    fn right(&self) -> Option<(NonNull<bmi_method_addr>, NonNull<bmi_op_id_t>)> {
        let (addr, id) = (NonNull::new(self.addr)?, NonNull::new(self.id)?);
        (id.is_aligned() && context(self.context_id).is_ok()).then_some((addr, id))
    }

    /// Implements the front of [`Self::send_one`]: sends a small message at once if the arguments are valid and nothing
    /// else waits. Returns false if nothing was sent.
    ///
    /// # Safety
    ///
    /// As for [`Self::send_one`].
    #[inline(always)]
    unsafe fn send_at_once(&self, buffer: *const c_void, size: bmi_size_t) -> bool {
        let Some((addr, _)) = self.right().filter(|_| !buffer.is_null()) else {
            return false;
        };
        (0..=SMALL_MAX).contains(&size) && {
            // SAFETY: the caller's promise, and the bytes do not change during the call.
            let body = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), size as usize) };
            instance::send_at_once(addr, body, self.tag, self.context_id)
        }
    }

    /// Posts a receive into one buffer. `actual_size` gets the size of a message that has arrived already.
    ///
    /// # Safety
    ///
    /// The buffer stays writable, and is not accessed, until the operation completes; `actual_size` is null,
    /// misaligned, or writable.
    #[inline(always)]
    pub unsafe fn receive_one(
        self,
        buffer: *mut c_void,
        size: bmi_size_t,
        actual_size: *mut bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        // SAFETY: the caller's promise.
        if unsafe { self.receive_at_once(buffer, size, actual_size) } {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        unsafe { { self }.receive_one_in_general(buffer, size, actual_size) }
    }

    /// Implements [`Self::receive_one`] without its front.
    ///
    /// # Safety
    ///
    /// As for [`Self::receive_one`].
    #[inline(never)]
    unsafe fn receive_one_in_general(
        &self,
        buffer: *mut c_void,
        size: bmi_size_t,
        actual_size: *mut bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        // SAFETY: the caller's promise.
        let memory = unsafe { one(PostKind::Recv, buffer, size) }?;
        // SAFETY: the caller's promise.
        unsafe { self.receive(memory, actual_size) }
    }

    /// Implements the front of [`Self::receive_one`]: posts the receive if the arguments are valid and
    /// [`instance::recv_at_once`] does. Returns false if nothing was posted.
    ///
    /// # Safety
    ///
    /// As for [`Self::receive_one`].
    #[inline(always)]
    unsafe fn receive_at_once(
        &self,
        buffer: *mut c_void,
        size: bmi_size_t,
        actual_size: *mut bmi_size_t,
    ) -> bool {
        let Some((addr, mut id)) = self.right().filter(|_| !buffer.is_null()) else {
            return false;
        };
        size >= 0 && actual_size.is_aligned() && {
            let (memory, told) = ((buffer, size as usize), (self.user_ptr, self.context_id));
            // SAFETY: the caller's promise, and C passes an id to write to.
            unsafe { instance::recv_at_once(addr, memory, self.tag, told, id.as_mut()) }
        }
    }

    /// Posts a send of `count` buffers, expected or not.
    ///
    /// # Safety
    ///
    /// The arrays have `count` entries, and the buffers stay readable until the operation completes.
    #[inline(always)]
    pub unsafe fn send_list(
        self,
        kind: PostKind,
        buffers: *const *const c_void,
        sizes: *const bmi_size_t,
        count: c_int,
        total: bmi_size_t,
    ) -> Result<c_int, Box<Error>> {
        // SAFETY: the caller's promise.
        let memory = unsafe { list(kind, buffers.cast(), sizes, count, total) }?;
        self.send(kind, memory)
    }

    #[inline(always)]
    fn send(&self, kind: PostKind, memory: UserMemory) -> Result<c_int, Box<Error>> {
        self.post("dest", kind, memory).map(|(answer, _)| answer)
    }

    /// Checks the arguments and posts. Returns C's return value, and the size of a completed operation.
    #[inline(always)]
    fn post(
        &self,
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
        // The instance itself writes the id, before another thread can see the completion. SAFETY: C passes an id to
        // write to, which is not used elsewhere during the call.
        let id = unsafe { id.as_mut() };
        match instance::post(post, id)? {
            PostOutcome::Pending => Ok((0, 0)),
            PostOutcome::Complete { size } => Ok((1, size)),
        }
    }

    /// Posts a receive. `actual_size`, unless null, gets the size of a message that has arrived already.
    ///
    /// # Safety
    ///
    /// `actual_size` is null, misaligned, or writable.
    #[inline(always)]
    unsafe fn receive(
        &self,
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

/// Checks the size of a buffer. Only receives may exceed the largest message.
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

/// Makes the memory of one buffer.
///
/// # Safety
///
/// As for [`UserMemory::new`].
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

/// Makes the memory of several buffers, end to end.
///
/// # Safety
///
/// The arrays have `count` entries if `count` is in range, and do not change during the call; the buffers as for
/// [`UserMemory::list`].
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
    let pieces = buffers.iter().zip(sizes);
    let pieces = pieces.map(|(&buffer, &size)| (buffer, size as usize));
    // SAFETY: the caller's promise.
    match unsafe { UserMemory::list(pieces) } {
        Ok(memory) if memory.adds_up_to(total) => Ok(memory),
        made => Err(unlike(sizes, total, made.err())),
    }
}

/// Returns the error of a list that is invalid or not `total` bytes long. Not inlined: valid lists are visited once.
#[cold]
fn unlike(sizes: &[bmi_size_t], total: i64, error: Option<SegmentError>) -> Box<Error> {
    let mut sum = 0_i64;
    for (index, &size) in sizes.iter().enumerate() {
        if size < 0 {
            return Error::invalid(format!("segment {index} has size {size}"));
        }
        sum = sum.saturating_add(size);
    }
    match error {
        Some(error) if sum == total => error.into(),
        _ => Error::invalid(format!("total size {total} but the list has {sum} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bmi_method::abi::constants::{BMI_EINVAL, BMI_EMSGSIZE};

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
    fn receives_may_exceed_any_message_but_not_memory() {
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
