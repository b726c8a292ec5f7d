//! Start, end, error handlers and texts.
//!
//! Out of scope: endpoints.

use crate::abi::{mx_error_handler_t, mx_return_t, mx_status_code_t};
use crate::boundary::export;
use crate::error::Code;
use crate::status::StatusCode;
use crate::{handler, library};
use libc::{c_char, c_int};

/// Error handler that prints the error and ends the process.
// SAFETY: the name is the library's own.
#[unsafe(no_mangle)]
pub static MX_ERRORS_ARE_FATAL: mx_error_handler_t = Some(handler::fatal);

/// Error handler that lets the failed call return its code.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub static MX_ERRORS_RETURN: mx_error_handler_t = Some(handler::returned);

export! {
    /// Starts the library, or increments its use count and returns `MX_ALREADY_INITIALIZED`. The macro `mx_init()`
    /// passes the header's `MX_API` as `api`.
    pub unsafe extern "C" fn mx__init_api(api: c_int) -> mx_return_t {
        library::init(api)
    }

    /// Decrements the use count of the library. The last call closes all endpoints and ends the library; inside an
    /// unexpected handler it fails.
    pub unsafe extern "C" fn mx_finalize() -> mx_return_t {
        library::finalize()
    }
}

// The following three have no code to return and cannot fail.

/// Sets the error handler of endpoints that have none of their own, and of calls without an endpoint; NULL restores the
/// default. Returns the previous handler.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_set_error_handler(handler: mx_error_handler_t) -> mx_error_handler_t {
    handler::set(handler)
}

/// Returns the text of a return code: a constant string, never NULL.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_strerror(return_code: mx_return_t) -> *const c_char {
    Code::words(return_code).as_ptr()
}

/// Returns the text of a status code: a constant string, never NULL.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_strstatus(status: mx_status_code_t) -> *const c_char {
    StatusCode::words(status).as_ptr()
}
