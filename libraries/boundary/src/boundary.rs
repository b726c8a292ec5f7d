//! The boundary between C calls and Rust.
//!
//! ```text
//!   C ---> BMI_mx_test(...)                                   declared with export!
//!            cancellation: off until it returns, but for functions of messages
//!            guard: a panic becomes -BMI_EIO
//!            1 pointers checked    required, optional, room, array, string
//!            2 numbers checked     in_range
//!            3 one Rust call
//!            4 outputs written     only when it succeeded
//!   C <--- 0, a count, or a negative code, and one log line that names the value
//! ```
//!
//! The guard is part of `export!`, which alone gives a function its C name, so it cannot be left
//! out.
//!
//! Owns: the guard, and the answer of each kind of function to a failure.
//! Not here: the checks (`mx_sys::arguments`).

use bmi_method::abi::constants::BMI_EIO;
use bmi_method::error::Error;
use libc::c_int;
use mx_sys::arguments::caught;
pub use mx_sys::arguments::{array, in_range, optional, required, room, string, write_if};
pub use mx_sys::cancellation;

/// Functions that reach no system call but through a port or asleep, where cancellation is off anyway: those of
/// each message.
pub const fn is_of_messages(function: &str) -> bool {
    cancellation::is_one_of(
        function,
        &[
            "BMI_mx_cancel",
            "BMI_mx_memalloc",
            "BMI_mx_memfree",
            "BMI_mx_post_recv",
            "BMI_mx_post_recv_list",
            "BMI_mx_post_send",
            "BMI_mx_post_send_list",
            "BMI_mx_post_sendunexpected",
            "BMI_mx_post_sendunexpected_list",
            "BMI_mx_test",
            "BMI_mx_testcontext",
            "BMI_mx_testsome",
            "BMI_mx_testunexpected",
            "BMI_mx_unexpected_free",
        ],
    )
}

/// Declares exported functions, in this crate or a host's. The bodies yield `Result<return type, Box<Error>>`.
///
/// `mk/gen_header` reads the items in here as plain functions; keep them so.
#[macro_export]
macro_rules! export {
    ($(
        $(#[$attribute:meta])*
        pub unsafe extern "C" fn $name:ident(
            $($argument:ident: $type:ty),* $(,)?
        ) $(-> $answer:ty)?
        $body:block
    )*) => {$(
        $(#[$attribute])*
        // SAFETY: the name has the prefix that is this library's own (`libraries/bmi_mx/tests/exports.rs`).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($argument: $type),*
        ) $(-> $answer)? {
            let _off = (!const { $crate::boundary::is_of_messages(stringify!($name)) })
                .then($crate::boundary::cancellation::Off::new);
            $crate::boundary::guard(
                stringify!($name),
                move || -> Result<_, Box<$crate::Error>> { $body },
            )
        }
    )*};
}
pub use export;

/// The answer of a function that has failed.
pub trait Answer {
    /// For a negative BMI code.
    fn failed(code: c_int) -> Self;
}

impl Answer for c_int {
    #[inline]
    fn failed(code: c_int) -> Self {
        code
    }
}

impl Answer for () {
    #[inline]
    fn failed(_: c_int) -> Self {}
}

impl<T> Answer for *mut T {
    #[inline]
    fn failed(_: c_int) -> Self {
        std::ptr::null_mut()
    }
}

impl<T> Answer for *const T {
    #[inline]
    fn failed(_: c_int) -> Self {
        std::ptr::null()
    }
}

/// Runs `body`; whatever happens in there, C gets an answer.
#[inline]
pub fn guard<T: Answer>(function: &'static str, body: impl FnOnce() -> Result<T, Box<Error>>) -> T {
    let code = match caught(function, body) {
        Some(Ok(answer)) => return answer,
        Some(Err(error)) => {
            refused(function, &error);
            error.code()
        }
        None => -BMI_EIO,
    };
    T::failed(code)
}

/// Says why a call failed.
#[cold]
fn refused(function: &'static str, error: &Error) {
    // A logger that panics must not take the process along.
    caught(function, || {
        log::log!(error.level(), "{function}: {error} ({})", error.code());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_messages_are_known_by_their_names() {
        assert!(is_of_messages("BMI_mx_testcontext") && !is_of_messages("BMI_mx_initialize"));
    }

    #[test]
    fn a_panic_becomes_a_code_or_null_and_stays_inside() {
        let code: c_int = guard("test", || panic!("at {}", 7));
        assert_eq!(code, -BMI_EIO);
        let pointer: *mut u8 = guard("test", || panic!("literal"));
        assert!(pointer.is_null());
        guard("test", || -> Result<(), Box<Error>> {
            std::panic::panic_any(7_u8)
        });
    }
}
