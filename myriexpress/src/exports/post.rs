//! Posting messages and cancelling them.
//!
//! ```text
//!   segments --> UserMemory --> process --> handle --> *request, or forgotten if that is NULL
//! ```

use crate::abi::{mx_endpoint_addr_t, mx_endpoint_t, mx_request_t, mx_return_t, mx_segment_t};
use crate::boundary::{export, request, segments, timeout};
use crate::error::{Code, Error};
use crate::handles::{EndpointHandle, RequestHandle};
use crate::process::{self, SendMode};
use libc::c_void;
use mx_boundary::{optional, required};
use mx_proto::Memory;

export! {
    /// Posts a send of the segments as one message, and stores its handle in `*request`. The segment list is copied;
    /// the buffers must stay unchanged until the request completes. With NULL the request is forgotten (see
    /// `mx_forget`).
    pub unsafe extern "C" fn mx_isend(
        endpoint: mx_endpoint_t,
        segments_list: *mut mx_segment_t,
        segments_count: u32,
        dest_endpoint: mx_endpoint_addr_t,
        match_info: u64,
        context: *mut c_void,
        request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        let (list, mode) = ((segments_list, segments_count), SendMode::Buffered);
        // SAFETY: C keeps the list for the call, and the buffers until the request completes; the request is null, or
        // writable.
        unsafe { send(endpoint, list, dest_endpoint, match_info, context, request, mode) }
    }

    /// Posts a synchronous send: does what `mx_isend` does, but the request completes only after a receive has taken
    /// the message.
    pub unsafe extern "C" fn mx_issend(
        endpoint: mx_endpoint_t,
        segments_list: *mut mx_segment_t,
        segments_count: u32,
        dest_endpoint: mx_endpoint_addr_t,
        match_info: u64,
        context: *mut c_void,
        request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        let (list, mode) = ((segments_list, segments_count), SendMode::Synchronous);
        // SAFETY: C keeps the list for the call, and the buffers until the request completes; the request is null, or
        // writable.
        unsafe { send(endpoint, list, dest_endpoint, match_info, context, request, mode) }
    }

    /// Posts a receive for the oldest message whose match bits, masked with `match_mask`, equal `match_info`. The
    /// library writes to the segments until the request completes; a longer message is truncated. `request` as for
    /// `mx_isend`.
    pub unsafe extern "C" fn mx_irecv(
        endpoint: mx_endpoint_t,
        segments_list: *mut mx_segment_t,
        segments_count: u32,
        match_info: u64,
        match_mask: u64,
        context: *mut c_void,
        request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        // SAFETY: C keeps the list for the call, and the buffers until the request completes.
        let memory = unsafe { segments(segments_list, segments_count) }?;
        let context = context.expose_provenance();
        let post = |ep, forget| process::irecv(ep, memory, match_info, match_mask, context, forget);
        // SAFETY: null, or a writable output of C.
        unsafe { posted(endpoint, request, post) }
    }

    /// Cancels a receive that is not matched, or a connect that is not answered. `*result` 1: cancelled; the request
    /// never completes, its buffer can be reused, and `*request` is NULL. 0: too late; test the request. A send cannot
    /// be cancelled.
    pub unsafe extern "C" fn mx_cancel(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let result = required("result", result)?;
        // SAFETY: null, or readable for C.
        let (place, handle) = unsafe { self::request(request) }?;
        let gone = process::cancel(endpoint.into(), handle)?;
        if gone {
            // SAFETY: writable for C; it has just been read.
            unsafe { place.write(std::ptr::null_mut()) };
        }
        // SAFETY: a writable output of C; checked above.
        unsafe { result.write(gone.into()) };
        Ok(())
    }

    /// Gives up the result of a request: its completion is never reported, and `*request` becomes NULL. The operation
    /// itself continues and may use the buffer until it ends, which no call reports, or until the endpoint is closed.
    pub unsafe extern "C" fn mx_forget(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or readable for C.
        let (place, handle) = unsafe { self::request(request) }?;
        process::forget(endpoint.into(), handle)?;
        // SAFETY: writable for C; it has just been read.
        unsafe { place.write(std::ptr::null_mut()) };
        Ok(())
    }

    /// Sets the time in milliseconds that a send or connect may take without progress before it completes with an
    /// error: of `request`, or with NULL of all requests posted later.
    pub unsafe extern "C" fn mx_set_request_timeout(
        endpoint: mx_endpoint_t,
        request: mx_request_t,
        milli_seconds: u32,
    ) -> mx_return_t, of endpoint {
        let one = (!request.is_null()).then(|| RequestHandle::from(request));
        process::set_timeout(endpoint.into(), one, timeout(milli_seconds))
    }
}

/// Implements both kinds of send.
///
/// # Safety
///
/// As for [`segments`], and `request` is null, misaligned, or writable.
#[inline]
unsafe fn send(
    endpoint: mx_endpoint_t,
    (list, count): (*mut mx_segment_t, u32),
    to: mx_endpoint_addr_t,
    match_info: u64,
    context: *mut c_void,
    request: *mut mx_request_t,
    mode: SendMode,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let memory = unsafe { segments(list, count) }?;
    let (len, most) = (memory.len(), u32::MAX);
    if len > most as usize {
        let text = format!("a message of {len} bytes, {most} at most");
        return Err(Error::new(Code::BadSegList, text));
    }
    let context = context.expose_provenance();
    let post = |ep, forget| process::isend(ep, memory, to, match_info, context, mode, forget);
    // SAFETY: the caller's promise.
    unsafe { posted(endpoint, request, post) }
}

/// Posts a request and stores its handle in `place`; forgets it if `place` is null.
///
/// # Safety
///
/// `place` is null, misaligned, or writable.
#[inline]
pub(super) unsafe fn posted(
    endpoint: mx_endpoint_t,
    place: *mut mx_request_t,
    post: impl FnOnce(EndpointHandle, bool) -> Result<RequestHandle, Error>,
) -> Result<(), Error> {
    let place = optional("request", place)?;
    let handle = post(endpoint.into(), place.is_none())?;
    if let Some(place) = place {
        // SAFETY: the caller's promise; checked above.
        unsafe { place.write(handle.into()) };
    }
    Ok(())
}
