//! C's arguments as Rust's, and the answer to a failed call.
//!
//! ```text
//!   call fails --> refused --> log, error handler --> mx_return_t
//! ```
//!
//! Owns: the codes of wrong arguments.
//! Out of scope: the guard of each function (`mx_boundary`), the exports, the choice of the handler (see `handler`).

use crate::abi::{MX_INFINITE, MX_MAX_SEGMENTS, mx_request_t, mx_segment_t};
use crate::error::{Code, Error};
use crate::handler;
use crate::handles::{EndpointHandle, RequestHandle};
use libc::c_int;
use mx_boundary::{BadArgument, Library, array, in_range, required};
use mx_sys::UserMemory;
use std::ptr::NonNull;
use std::time::Duration;

/// The library `libmyriexpress`, for its exported functions.
pub(crate) struct Mx;

impl Library for Mx {
    type Error = Error;
    type Owner = EndpointHandle;

    const OF_MESSAGES: &'static [&'static str] = &[
        "mx_buffered",
        "mx_ibuffered",
        "mx_iprobe",
        "mx_irecv",
        "mx_isend",
        "mx_issend",
        "mx_progress",
        "mx_test",
        "mx_test_any",
        "mx_wait",
        "mx_wait_any",
    ];

    const PANICKED: c_int = Code::Failure as c_int;

    /// Reports the error to the handler of the call's endpoint, else to the process's.
    fn refused(function: &'static str, owner: Option<EndpointHandle>, error: Error) -> c_int {
        let text = format!("{function}: {error}");
        log::debug!("{text} ({:?})", error.code());
        handler::report(owner, &text, error.code()) as c_int
    }
}

/// Declares exported functions. The bodies yield `Result<(), Error>`. A function about an endpoint names the argument
/// that has the endpoint after its return type: `, of endpoint`.
macro_rules! export {
    ($($functions:tt)*) => {
        mx_boundary::export! { $crate::boundary::Mx; $($functions)* }
    };
}
pub(crate) use export;

/// Checks a pointer that must not be null, with the given error code.
#[inline]
pub(crate) fn required_or<T>(
    code: Code,
    what: &'static str,
    pointer: *mut T,
) -> Result<NonNull<T>, Error> {
    required(what, pointer).map_err(coded(code))
}

/// Converts an invalid argument to an error with this code.
#[inline]
pub(crate) fn coded(code: Code) -> impl Fn(BadArgument) -> Error {
    move |error| Error::new(code, error.to_string())
}

/// Reads a request that C holds. Returns the place of the handle, and the handle.
///
/// # Safety
///
/// `request` is null, misaligned, or readable.
#[inline]
pub(crate) unsafe fn request(
    request: *mut mx_request_t,
) -> Result<(NonNull<mx_request_t>, RequestHandle), Error> {
    let place = required_or(Code::BadRequest, "request", request)?;
    // SAFETY: not null, aligned, and readable by the caller's promise.
    let handle = unsafe { place.read() };
    Ok((place, handle.into()))
}

/// Converts a time-out; `None`: no limit.
#[inline]
pub(crate) fn timeout(milliseconds: u32) -> Option<Duration> {
    (milliseconds != MX_INFINITE).then(|| Duration::from_millis(milliseconds.into()))
}

/// Makes the memory of a segment list. A receive's may be larger than any message.
///
/// # Safety
///
/// `list` is null or readable for `count` segments, and the memory they point to stays valid as [`UserMemory::new`]
/// requires.
#[inline]
pub(crate) unsafe fn segments(list: *mut mx_segment_t, count: u32) -> Result<UserMemory, Error> {
    let most = MX_MAX_SEGMENTS.into();
    in_range("segments_count", count, 0, most).map_err(coded(Code::BadSegCnt))?;
    // SAFETY: the caller's promise; copied before this returns.
    let list = unsafe { array("segments_list", list, count as usize) };
    let list = list.map_err(coded(Code::BadSegList))?;
    if let [only] = list {
        // SAFETY: the caller's promise.
        let memory = unsafe { UserMemory::new(only.segment_ptr, only.segment_length as usize) };
        return memory.map_err(|error| Error::new(Code::BadSegMem, error.to_string()));
    }
    let pieces = list
        .iter()
        .map(|one| (one.segment_ptr, one.segment_length as usize));
    // SAFETY: the caller's promise.
    let memory = unsafe { UserMemory::list(pieces) };
    memory.map_err(|error| Error::new(Code::BadSegMem, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::mx_return_t;
    use crate::handler::tests::{heard, listen};
    use libc::c_void;
    use mx_boundary::guard;
    use mx_proto::Memory;

    fn call(body: impl FnOnce() -> Result<(), Error>) -> mx_return_t {
        guard::<Mx, _, _>("mx_open_endpoint", None, body)
    }

    #[test]
    fn a_panic_is_a_failure_and_not_for_the_handler() {
        let _alone = listen();
        assert_eq!(call(|| panic!("at {}", 7)), 2);
        assert_eq!(heard(), []);
    }

    #[test]
    fn a_refused_call_goes_to_the_handler_with_its_name() {
        let _alone = listen();
        let refuse = || Err(Error::new(Code::Busy, "endpoint 3 is in use"));
        assert_eq!(call(refuse), 7);
        let told = "mx_open_endpoint: endpoint 3 is in use".to_owned();
        assert_eq!(heard(), [(told, Code::Busy as u32)]);
        assert_eq!(call(|| Ok(())), 0);
        assert_eq!(heard(), []);
    }

    #[test]
    fn an_argument_that_cannot_be_used_has_its_codes() {
        let null = std::ptr::null_mut::<u64>();
        let error = required_or(Code::BadInfoVal, "word", null).unwrap_err();
        assert_eq!(error.code(), Code::BadInfoVal);
        assert_eq!(error.to_string(), "word is null");
        let error = Error::from(BadArgument::Null("word"));
        assert_eq!(error.code(), Code::Failure);
    }

    #[test]
    fn a_timeout_of_zero_is_for_ever() {
        assert_eq!(timeout(0), None);
        assert_eq!(timeout(1), Some(Duration::from_millis(1)));
        assert_eq!(
            timeout(u32::MAX),
            Some(Duration::from_millis(u32::MAX.into()))
        );
    }

    fn segment(segment_ptr: *mut c_void, segment_length: u32) -> mx_segment_t {
        mx_segment_t {
            segment_ptr,
            segment_length,
        }
    }

    /// Returns the length of the message, or the code.
    fn of(list: &mut [mx_segment_t]) -> Result<usize, Code> {
        // SAFETY: the memory is never read.
        let memory = unsafe { segments(list.as_mut_ptr(), list.len() as u32) };
        memory
            .map(|memory| memory.len())
            .map_err(|error| error.code())
    }

    #[test]
    fn segments_are_checked_at_below_and_above_each_limit() {
        let null = std::ptr::null_mut();
        let mut byte = 0_u8;
        let good: *mut c_void = (&raw mut byte).cast();
        assert_eq!(of(&mut []), Ok(0));
        assert_eq!(of(&mut [segment(null, 0)]), Ok(0));
        assert_eq!(of(&mut [segment(null, 1)]), Err(Code::BadSegMem));
        assert_eq!(of(&mut [segment(good, u32::MAX)]), Ok(u32::MAX as usize));
        let mut two = [segment(good, u32::MAX - 1), segment(good, 1)];
        assert_eq!(of(&mut two), Ok(u32::MAX as usize));
        two[1].segment_length = 2;
        assert_eq!(of(&mut two), Ok(u32::MAX as usize + 1));
        let mut two = [segment(good, 1), segment(null, 1)];
        assert_eq!(of(&mut two), Err(Code::BadSegMem));
        assert_eq!(of(&mut vec![segment(good, 1); 256]), Ok(256));
        assert_eq!(of(&mut vec![segment(good, 1); 257]), Err(Code::BadSegCnt));
        // SAFETY: no memory is read: the list is empty, null or rejected.
        let (none, missing, many) = unsafe {
            (
                segments(std::ptr::null_mut(), 0),
                segments(std::ptr::null_mut(), 1),
                segments(std::ptr::null_mut(), 257),
            )
        };
        assert_eq!(none.unwrap().len(), 0);
        assert_eq!(missing.unwrap_err().code(), Code::BadSegList);
        assert_eq!(many.unwrap_err().code(), Code::BadSegCnt);
    }
}
