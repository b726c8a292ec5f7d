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

/// The most pieces of a list: far more than any host passes, few enough that a nonsense count is
/// noticed before its arrays are read.
pub const MAX_LIST: c_int = 65536;

/// Bytes of a message that is small: every port takes so many at once.
const SMALL_MAX: bmi_size_t = 4096;

export! {
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
        let call = PostArgs { id, addr: dest, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes arrays of `list_count`, and keeps the buffers readable until the
        // operation completes.
        unsafe { call.send_list(PostKind::Send, buffer_list, size_list, list_count, total_size) }
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
        let call = PostArgs { id, addr: src, tag, class: 0, user_ptr, context_id };
        // SAFETY: C passes a size to write to, if any.
        unsafe { call.receive(memory, total_actual_size) }
    }

    /// Calls an operation off. It still completes exactly once and must be tested for, at once (a large
    /// send over InfiniBand or RoCE: within milliseconds, two seconds at most): with -BMI_ECANCEL, or as it did when it was
    /// complete already. Its buffer is not touched any more once it is complete. The peer and its other operations stay, also when the message was partly
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
#[derive(Debug)]
pub struct PostArgs {
    /// Gets the operation's id.
    pub id: *mut bmi_op_id_t,
    /// The peer.
    pub addr: *mut bmi_method_addr,
    /// The message's tag.
    pub tag: bmi_msg_tag_t,
    /// The class of an unexpected message.
    pub class: u8,
    /// Given back with the completion.
    pub user_ptr: *mut c_void,
    /// Where it completes.
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

    /// [`Self::send_one`] without its front.
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

    /// The peer and the place of the id, if nothing is wrong with these and the context.
    #[inline(always)]
    fn right(&self) -> Option<(NonNull<bmi_method_addr>, NonNull<bmi_op_id_t>)> {
        let (addr, id) = (NonNull::new(self.addr)?, NonNull::new(self.id)?);
        let aligned = addr.is_aligned() & id.is_aligned();
        (aligned && context(self.context_id).is_ok()).then_some((addr, id))
    }

    /// Sends a small message at once, if no argument is wrong and nothing is in its way. Otherwise returns false, and
    /// nothing has been sent.
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
            // SAFETY: the caller's promise, and the bytes are left alone during the call.
            let body = unsafe { slice::from_raw_parts(buffer.cast::<u8>(), size as usize) };
            instance::send_at_once(addr, body, self.tag, self.context_id)
        }
    }

    /// Posts a receive into one buffer. `actual_size` gets the size of what has arrived already.
    ///
    /// # Safety
    ///
    /// The buffer stays writable, and is left alone, until the operation completes; `actual_size` is null,
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

    /// [`Self::receive_one`] without its front.
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

    /// Posts a receive into one buffer, if no argument is wrong and nothing is unusual. Otherwise returns false, and nothing has
    /// been posted.
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

    /// Checks, posts, and gives the answer for C and the size of what arrived.
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
        // The instance itself writes the id, before another thread can see the completion.
        // SAFETY: C passes an id to write to, which is not used elsewhere during the call.
        let id = unsafe { id.as_mut() };
        match instance::post(post, id)? {
            PostOutcome::Pending => Ok((0, 0)),
            PostOutcome::Complete { size } => Ok((1, size)),
        }
    }

    /// Posts a receive. `actual_size` gets the size of what has arrived already, unless it is null.
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

/// Describes the memory of one buffer.
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
    let pieces = buffers.iter().zip(sizes);
    let pieces = pieces.map(|(&buffer, &size)| (buffer, size as usize));
    // SAFETY: the caller's promise.
    match unsafe { UserMemory::list(pieces) } {
        Ok(memory) if memory.adds_up_to(total) => Ok(memory),
        made => Err(unlike(sizes, total, made.err())),
    }
}

/// Why these sizes are not those of a list of `total` bytes; apart, so that the list is gone through once.
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
