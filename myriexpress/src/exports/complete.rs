//! Testing requests, and probing for messages.
//!
//! ```text
//!   process ---> None           *result = 0, no other output is written
//!           ---> Some(status)   handler (after a failure) --> *status, *request = NULL, *result = 1
//! ```

use crate::abi::{mx_endpoint_t, mx_request_t, mx_return_t, mx_status_t};
use crate::boundary::{export, request, required_or, timeout};
use crate::error::{Code, Error};
use crate::handler;
use crate::handles::{EndpointHandle, RequestHandle};
use crate::process;
use crate::status::Status;
use libc::c_void;
use mx_boundary::{optional, required, write_if};
use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::time::Duration;

export! {
    /// Tests a request without waiting. `*result` 1: completed; `*status` is its result, and `*request` becomes NULL.
    /// 0: not completed; nothing else is written.
    pub unsafe extern "C" fn mx_test(
        ep: mx_endpoint_t,
        request: *mut mx_request_t,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of ep {
        let out = Outputs::new(status, result)?;
        // SAFETY: null, or readable for C.
        let (place, handle) = unsafe { self::request(request) }?;
        let ended = process::test(ep.into(), handle)?;
        // SAFETY: writable outputs of C.
        unsafe { out.give("mx_test", ep.into(), ended, Some(place)) };
        Ok(())
    }

    /// Does what `mx_test` does, but waits at most `timeout` milliseconds (`MX_INFINITE`: no limit). `*result` 0:
    /// time-out, or `mx_wakeup`.
    pub unsafe extern "C" fn mx_wait(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        timeout: u32,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::new(status, result)?;
        // SAFETY: null, or readable for C.
        let (place, handle) = unsafe { self::request(request) }?;
        let ended = process::wait_for(endpoint.into(), handle, self::timeout(timeout))?;
        // SAFETY: writable outputs of C.
        unsafe { out.give("mx_wait", endpoint.into(), ended, Some(place)) };
        Ok(())
    }

    /// Tests for the oldest completed request whose match bits, masked with `match_mask`, equal `match_info`. `*result`
    /// 1: `*status` is its result, and its handle is stale from now on. 0: none; `*status` is unchanged.
    pub unsafe extern "C" fn mx_test_any(
        endpoint: mx_endpoint_t,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::new(status, result)?;
        let ended = process::test_any(endpoint.into(), match_info, match_mask)?;
        // SAFETY: writable outputs of C.
        unsafe { out.give("mx_test_any", endpoint.into(), ended, None) };
        Ok(())
    }

    /// Does what `mx_test_any` does, but waits, with `timeout` and `*result` as for `mx_wait`. Each request is reported
    /// to one of the waiting threads.
    pub unsafe extern "C" fn mx_wait_any(
        endpoint: mx_endpoint_t,
        timeout: u32,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::new(status, result)?;
        let timeout = self::timeout(timeout);
        let ended = process::wait_any(endpoint.into(), match_info, match_mask, timeout)?;
        // SAFETY: writable outputs of C.
        unsafe { out.give("mx_wait_any", endpoint.into(), ended, None) };
        Ok(())
    }

    /// Stores the handle of the oldest completed request in `*request`, without reporting its result: the request still
    /// has to be tested. `*result` 0: no request has completed.
    pub unsafe extern "C" fn mx_ipeek(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or writable outputs of C.
        unsafe { peek(endpoint, Some(Duration::ZERO), request, result) }
    }

    /// Does what `mx_ipeek` does, but waits for a completed request, with `timeout` and `*result` as for `mx_wait`.
    pub unsafe extern "C" fn mx_peek(
        endpoint: mx_endpoint_t,
        timeout: u32,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or writable outputs of C.
        unsafe { peek(endpoint, self::timeout(timeout), request, result) }
    }

    /// Looks for the oldest unexpected message that a receive with `match_info` and `match_mask` would match, and
    /// leaves it in the queue. `*result` 1: `*status`, unless NULL, has its source, match bits and length. 0: none.
    pub unsafe extern "C" fn mx_iprobe(
        endpoint: mx_endpoint_t,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::of_probe(status, result);
        // SAFETY: writable outputs of C.
        unsafe { probe(endpoint, Some(Duration::ZERO), match_info, match_mask, out?) }
    }

    /// Does what `mx_iprobe` does, but waits for such a message, with `timeout` and `*result` as for `mx_wait`.
    pub unsafe extern "C" fn mx_probe(
        endpoint: mx_endpoint_t,
        timeout: u32,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::of_probe(status, result);
        // SAFETY: writable outputs of C.
        unsafe { probe(endpoint, self::timeout(timeout), match_info, match_mask, out?) }
    }

    /// Tests whether a send's buffer can be reused (`*result` 1). The request still has to be tested.
    pub unsafe extern "C" fn mx_ibuffered(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or readable and writable for C.
        unsafe { buffered(endpoint, Some(Duration::ZERO), request, result) }
    }

    /// Does what `mx_ibuffered` does, but waits until the buffer can be reused, with `timeout` and `*result` as for
    /// `mx_wait`.
    pub unsafe extern "C" fn mx_buffered(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        timeout: u32,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or readable and writable for C.
        unsafe { buffered(endpoint, self::timeout(timeout), request, result) }
    }

    /// Stores the `context` pointer with which a request was posted in `*context`. Fails for a request whose result has
    /// been reported.
    pub unsafe extern "C" fn mx_context(
        request: *mut mx_request_t,
        context: *mut *mut c_void,
    ) -> mx_return_t {
        let context = required("context", context)?;
        // SAFETY: null, or readable for C.
        let (_, handle) = unsafe { self::request(request) }?;
        let posted_with = process::context_of(handle)?;
        // SAFETY: a writable output of C; checked above.
        unsafe { context.write(with_exposed_provenance_mut(posted_with)) };
        Ok(())
    }
}

/// C's output for a status.
struct Outputs {
    /// `None` for a probe without a status.
    status: Option<NonNull<mx_status_t>>,
    result: NonNull<u32>,
}

impl Outputs {
    #[inline]
    fn new(status: *mut mx_status_t, result: *mut u32) -> Result<Self, Error> {
        Ok(Self {
            // Required: without the status a failed request would look like any other.
            status: Some(required("status", status)?),
            result: required("result", result)?,
        })
    }

    /// Checks the outputs of a probe.
    fn of_probe(status: *mut mx_status_t, result: *mut u32) -> Result<Self, Error> {
        Ok(Self {
            status: optional("status", status)?,
            result: required("result", result)?,
        })
    }

    /// Reports the end of a request. `request`: the place of C's handle.
    ///
    /// # Safety
    ///
    /// All places are writable.
    #[inline]
    unsafe fn give(
        self,
        function: &str,
        ep: EndpointHandle,
        ended: Option<Status>,
        request: Option<NonNull<mx_request_t>>,
    ) {
        let ended = ended.map(|mut status| {
            handler::judge(ep, function, &mut status);
            status
        });
        if let (Some(_), Some(request)) = (&ended, request) {
            // SAFETY: the caller's promise.
            unsafe { request.write(std::ptr::null_mut()) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.write(ended) };
    }

    /// # Safety
    ///
    /// Both places are writable.
    #[inline]
    unsafe fn write(self, found: Option<Status>) {
        if let Some(found) = found {
            // SAFETY: the caller's promise.
            unsafe { write_if(self.status, found) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.result.write(found.is_some().into()) };
    }
}

/// # Safety
///
/// `out` is writable.
unsafe fn probe(
    endpoint: mx_endpoint_t,
    timeout: Option<Duration>,
    match_info: u64,
    match_mask: u64,
    out: Outputs,
) -> Result<(), Error> {
    let found = process::probe(endpoint.into(), match_info, match_mask, timeout)?;
    // SAFETY: the caller's promise.
    unsafe { out.write(found) };
    Ok(())
}

/// # Safety
///
/// The pointers are null or readable and writable.
unsafe fn buffered(
    endpoint: mx_endpoint_t,
    timeout: Option<Duration>,
    request: *mut mx_request_t,
    result: *mut u32,
) -> Result<(), Error> {
    let result = required("result", result)?;
    // SAFETY: the caller's promise.
    let (_, handle) = unsafe { self::request(request) }?;
    let buffered = process::wait_buffered(endpoint.into(), handle, timeout)?;
    // SAFETY: the caller's promise; checked above.
    unsafe { result.write(buffered.into()) };
    Ok(())
}

/// # Safety
///
/// The pointers are null or writable.
unsafe fn peek(
    endpoint: mx_endpoint_t,
    timeout: Option<Duration>,
    request: *mut mx_request_t,
    result: *mut u32,
) -> Result<(), Error> {
    let result = required("result", result)?;
    let request = required_or(Code::BadRequest, "request", request)?;
    let found: Option<RequestHandle> = process::peek(endpoint.into(), timeout)?;
    if let Some(handle) = found {
        // SAFETY: the caller's promise; checked above.
        unsafe { request.write(handle.into()) };
    }
    // SAFETY: the caller's promise; checked above.
    unsafe { result.write(found.is_some().into()) };
    Ok(())
}
