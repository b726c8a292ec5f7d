//! Error handlers for failed calls and requests.
//!
//! ```text
//!   call failed     --+                +-- the endpoint's handler, if it has one
//!                     +--> report -->  +-- else the process's (mx_set_error_handler)
//!   request failed  --+      |         +-- else MX_ERRORS_ARE_FATAL, or MX_ERRORS_RETURN if the variable
//!                            |             MX_ERRORS_ARE_FATAL is 0
//!                            v
//!             its result: the call's return value, or the code of the status
//! ```
//!
//! Handlers are C code: they are called without any lock, and may call MX functions or never return.
//!
//! Owns: the process's handler, the two that come with the library.

use crate::abi::{Handler, mx_error_handler_t, mx_return_t};
use crate::error::Code;
use crate::handles::EndpointHandle;
use crate::status::{Status, StatusCode};
use crate::{library, process};
use libc::c_char;
use mx_sys::stderr;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The process's handler; null for the [`default`].
static OF_PROCESS: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the process's error handler; null restores the default, which ends the process unless `MX_ERRORS_ARE_FATAL` is
/// off. Returns the previous handler, which is never null.
pub fn set(handler: mx_error_handler_t) -> mx_error_handler_t {
    let pointer = handler.map_or(std::ptr::null_mut(), |handler| handler as *mut ());
    let before = OF_PROCESS.swap(pointer, Ordering::AcqRel);
    Some(from_pointer(before).unwrap_or_else(default))
}

/// Returns a handler's address as the number that an endpoint keeps; 0 for null.
pub fn word(handler: mx_error_handler_t) -> usize {
    handler.map_or(0, |handler| handler as usize)
}

/// Returns the handler of a process that has set none, as the environment says since `mx_init`.
fn default() -> Handler {
    match library::settings() {
        Ok(settings) if !settings.errors_are_fatal => returned,
        _ => fatal,
    }
}

/// Reports a failed call, with `text` and `code`, to the error handler of `endpoint`, or the process's if that has
/// none. Returns the handler's result, which the call returns to C.
#[cold]
pub fn report(endpoint: Option<EndpointHandle>, text: &str, code: Code) -> mx_return_t {
    let own = endpoint.and_then(process::error_handler_of);
    let own = from_pointer(own.unwrap_or(0) as *mut ());
    let handler = own.or_else(|| from_pointer(OF_PROCESS.load(Ordering::Acquire)));
    let handler = handler.unwrap_or_else(default);
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let mut text = text.into_bytes_with_nul();
    // SAFETY: a handler that C has set, or one of the library's; the string may be modified until the handler returns.
    unsafe { handler(text.as_mut_ptr().cast(), code as mx_return_t) }
}

/// Reports a failed request to the error handler before its result is handed out. Success and truncation are not
/// reported. A handler that returns another code changes the status code.
#[inline]
pub fn judge(endpoint: EndpointHandle, function: &str, status: &mut Status) {
    const SUCCESS: u32 = StatusCode::Success as u32;
    const TRUNCATED: u32 = StatusCode::Truncated as u32;
    if !matches!(status.code, SUCCESS | TRUNCATED) {
        judge_failed(endpoint, function, status);
    }
}

#[cold]
fn judge_failed(endpoint: EndpointHandle, function: &str, status: &mut Status) {
    let code = StatusCode::of(status.code).map_or(Code::Failure, Code::from);
    let words = StatusCode::words(status.code).to_string_lossy();
    let text = format!(
        "{function}: request with match bits {:#x} failed: {words}",
        status.match_info
    );
    log::debug!("{text}");
    let answer = report(Some(endpoint), &text, code);
    // A handler that returns its code leaves the status as it is.
    if answer != code as mx_return_t {
        status.code = answer;
    }
}

/// Implements `MX_ERRORS_ARE_FATAL`: prints one line on stderr, and ends the process.
///
/// # Safety
///
/// `text` is null or a C string.
pub unsafe extern "C" fn fatal(text: *mut c_char, ret: mx_return_t) -> mx_return_t {
    let what = if text.is_null() {
        "MX".into()
    } else {
        // SAFETY: a C string (the caller's promise).
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    let words = Code::words(ret).to_string_lossy();
    stderr::say_text(&format_args!(
        "libmyriexpress: {what}: {words} (code {ret})"
    ));
    std::process::exit(1)
}

/// Implements `MX_ERRORS_RETURN`: returns `ret`, so that the failed call returns its code.
///
/// # Safety
///
/// No requirement: the arguments are not dereferenced.
pub unsafe extern "C" fn returned(_text: *mut c_char, ret: mx_return_t) -> mx_return_t {
    ret
}

/// Converts a stored pointer, a handler or null.
fn from_pointer(pointer: *mut ()) -> mx_error_handler_t {
    // SAFETY: null is None, and everything else was a function of this type when it was stored.
    unsafe { std::mem::transmute::<*mut (), mx_error_handler_t>(pointer) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parking_lot::{Mutex, MutexGuard};
    use std::cell::RefCell;

    thread_local! {
        static HEARD: RefCell<Vec<(String, u32)>> = const { RefCell::new(Vec::new()) };
    }

    /// Records its arguments, and returns 7 for `Busy`.
    unsafe extern "C" fn listening(text: *mut c_char, ret: mx_return_t) -> mx_return_t {
        // SAFETY: `report` passes a C string.
        let text = unsafe { CStr::from_ptr(text) };
        let text = text.to_str().unwrap().to_owned();
        HEARD.with(|heard| heard.borrow_mut().push((text, ret)));
        if ret == Code::Busy as u32 { 7 } else { ret }
    }

    /// Sets the process's handler for one test at a time; clears this thread's records.
    pub(crate) fn listen() -> MutexGuard<'static, ()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        HEARD.with(|heard| heard.borrow_mut().clear());
        set(Some(listening));
        guard
    }

    /// Returns and clears the recorded errors.
    pub(crate) fn heard() -> Vec<(String, u32)> {
        HEARD.with(|heard| std::mem::take(&mut *heard.borrow_mut()))
    }

    #[test]
    fn set_handler_returns_the_old_one_and_null_is_fatal() {
        let _alone = listen();
        assert_eq!(word(set(None)), word(Some(listening)));
        assert_eq!(word(set(Some(returned))), word(Some(fatal)));
        assert_eq!(word(set(Some(fatal))), word(Some(returned)));
        assert_eq!(word(None), 0);
    }

    #[test]
    fn the_answer_of_the_handler_is_what_the_caller_gets() {
        let _alone = listen();
        assert_eq!(report(None, "mx_test: so\0so", Code::BadRequest), 13);
        assert_eq!(report(None, "busy", Code::Busy), 7);
        let told = [("mx_test: so so".to_owned(), 13), ("busy".to_owned(), 20)];
        assert_eq!(heard(), told);
    }

    #[test]
    fn failed_request_keeps_its_status_unless_handler_changes_it() {
        let _alone = listen();
        let endpoint = EndpointHandle(0);
        let mut status = Status {
            code: StatusCode::BadKey as u32,
            source: crate::handles::Address::NONE,
            match_info: 0xab,
            msg_length: 0,
            xfer_length: 0,
            context: 0,
        };
        judge(endpoint, "mx_test", &mut status);
        assert_eq!(status.code, StatusCode::BadKey as u32);
        let (text, code) = heard().remove(0);
        assert_eq!(code, Code::BadConnectionKey as u32);
        assert!(text.contains("0xab"), "{text}");
        for good in [StatusCode::Success, StatusCode::Truncated] {
            status.code = good as u32;
            judge(endpoint, "mx_test", &mut status);
            assert_eq!(status.code, good as u32);
        }
        assert_eq!(heard(), []);
    }
}
