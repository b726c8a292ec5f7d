//! Testing requests, and probing for messages.
//!
//! ```text
//!   process ---> None           *result = 0, nothing else is written
//!           ---> Some(status)   handler (when it failed) --> *status, *request = NULL, *result = 1
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
    /// Whether a request is done.
    pub unsafe extern "C" fn mx_test(
        ep: mx_endpoint_t,
        request: *mut mx_request_t,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of ep {
        let out = Outputs::new(status, result)?;
        // SAFETY: null, or C's to read.
        let (place, handle) = unsafe { self::request(request) }?;
        let ended = process::test(ep.into(), handle)?;
        // SAFETY: C's to write to.
        unsafe { out.give("mx_test", ep.into(), ended, Some(place)) };
        Ok(())
    }

    /// As `mx_test`, but waits.
    pub unsafe extern "C" fn mx_wait(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        timeout: u32,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::new(status, result)?;
        // SAFETY: null, or C's to read.
        let (place, handle) = unsafe { self::request(request) }?;
        let ended = process::wait_for(endpoint.into(), handle, self::timeout(timeout))?;
        // SAFETY: C's to write to.
        unsafe { out.give("mx_wait", endpoint.into(), ended, Some(place)) };
        Ok(())
    }

    /// The oldest request that is done and matches.
    pub unsafe extern "C" fn mx_test_any(
        endpoint: mx_endpoint_t,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::new(status, result)?;
        let ended = process::test_any(endpoint.into(), match_info, match_mask)?;
        // SAFETY: C's to write to.
        unsafe { out.give("mx_test_any", endpoint.into(), ended, None) };
        Ok(())
    }

    /// As `mx_test_any`, but waits.
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
        // SAFETY: C's to write to.
        unsafe { out.give("mx_wait_any", endpoint.into(), ended, None) };
        Ok(())
    }

    /// The oldest request that is done.
    pub unsafe extern "C" fn mx_ipeek(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or C's to write to.
        unsafe { peek(endpoint, Some(Duration::ZERO), request, result) }
    }

    /// As `mx_ipeek`, but waits.
    pub unsafe extern "C" fn mx_peek(
        endpoint: mx_endpoint_t,
        timeout: u32,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or C's to write to.
        unsafe { peek(endpoint, self::timeout(timeout), request, result) }
    }

    /// The oldest unexpected message that matches.
    pub unsafe extern "C" fn mx_iprobe(
        endpoint: mx_endpoint_t,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::of_probe(status, result);
        // SAFETY: C's to write to.
        unsafe { probe(endpoint, Some(Duration::ZERO), match_info, match_mask, out?) }
    }

    /// As `mx_iprobe`, but waits.
    pub unsafe extern "C" fn mx_probe(
        endpoint: mx_endpoint_t,
        timeout: u32,
        match_info: u64,
        match_mask: u64,
        status: *mut mx_status_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        let out = Outputs::of_probe(status, result);
        // SAFETY: C's to write to.
        unsafe { probe(endpoint, self::timeout(timeout), match_info, match_mask, out?) }
    }

    /// Whether a send's buffer is free again.
    pub unsafe extern "C" fn mx_ibuffered(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or C's to read and to write to.
        unsafe { buffered(endpoint, Some(Duration::ZERO), request, result) }
    }

    /// As `mx_ibuffered`, but waits.
    pub unsafe extern "C" fn mx_buffered(
        endpoint: mx_endpoint_t,
        request: *mut mx_request_t,
        timeout: u32,
        result: *mut u32,
    ) -> mx_return_t, of endpoint {
        // SAFETY: null, or C's to read and to write to.
        unsafe { buffered(endpoint, self::timeout(timeout), request, result) }
    }

    /// The pointer a request was posted with.
    pub unsafe extern "C" fn mx_context(
        request: *mut mx_request_t,
        context: *mut *mut c_void,
    ) -> mx_return_t {
        let context = required("context", context)?;
        // SAFETY: null, or C's to read.
        let (_, handle) = unsafe { self::request(request) }?;
        let posted_with = process::context_of(handle)?;
        // SAFETY: C's to write to; checked above.
        unsafe { context.write(with_exposed_provenance_mut(posted_with)) };
        Ok(())
    }
}

/// Where C wants a status.
struct Outputs {
    /// `None`: a probe whose answer is the result alone.
    status: Option<NonNull<mx_status_t>>,
    result: NonNull<u32>,
}

impl Outputs {
    #[inline]
    fn new(status: *mut mx_status_t, result: *mut u32) -> Result<Self, Error> {
        Ok(Self {
            // Without it a request that failed would look like any other.
            status: Some(required("status", status)?),
            result: required("result", result)?,
        })
    }

    /// A probe's.
    fn of_probe(status: *mut mx_status_t, result: *mut u32) -> Result<Self, Error> {
        Ok(Self {
            status: optional("status", status)?,
            result: required("result", result)?,
        })
    }

    /// Hands a request's end out; `request` is where C holds its handle.
    ///
    /// # Safety
    ///
    /// All of them may be written to.
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
    /// Both may be written to.
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
/// `out` may be written to.
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
/// The pointers are null or may be read and written to.
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
/// The pointers are null or may be written to.
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
