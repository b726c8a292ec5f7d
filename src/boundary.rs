//! The boundary between C calls and Rust.
//!
//! ```text
//!   C ---> BMI_mx_test(...)                                   declared with export!
//!            guard: a panic becomes -BMI_EIO
//!            1 pointers checked    required, optional, string
//!            2 numbers checked     in_range
//!            3 one Rust call
//!            4 outputs written     only when it succeeded
//!   C <--- 0, a count, or a negative code, and one log line that names the value
//! ```
//!
//! The guard is part of `export!`, which alone gives a function its C name, so it cannot be left
//! out.
//!
//! Owns: the guard, the range check (pointers, strings, panics: `mx_sys::arguments`), the answer of
//! each kind of function to a failure.

use crate::abi::constants::BMI_EIO;
use crate::error::Error;
use libc::c_int;
use mx_sys::arguments::panicked;
pub(crate) use mx_sys::arguments::{optional, required, string};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Declares exported functions. The bodies yield `Result<return type, Box<Error>>`.
///
/// `tools/gen_header` reads the items in here as plain functions; keep them so.
macro_rules! export {
    ($(
        $(#[$attribute:meta])*
        pub unsafe extern "C" fn $name:ident(
            $($(#[$condition:meta])* $argument:ident: $type:ty),* $(,)?
        ) $(-> $answer:ty)?
        $body:block
    )*) => {$(
        $(#[$attribute])*
        // SAFETY: the name has the prefix that is this library's own (`tests/exports.rs`).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($(#[$condition])* $argument: $type),*
        ) $(-> $answer)? {
            $crate::boundary::guard(
                stringify!($name),
                move || -> Result<_, Box<$crate::error::Error>> { $body },
            )
        }
    )*};
}
pub(crate) use export;

/// The answer of a function that has failed.
pub(crate) trait Answer {
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
pub(crate) fn guard<T: Answer>(
    function: &'static str,
    body: impl FnOnce() -> Result<T, Box<Error>>,
) -> T {
    // Nothing of the body's is looked at again after a panic: it owns copies of C's arguments.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            refused(function, &error);
            T::failed(error.code())
        }
        Err(payload) => {
            panicked(function, payload);
            T::failed(-BMI_EIO)
        }
    }
}

/// Says why a call failed.
#[cold]
fn refused(function: &str, error: &Error) {
    // A logger that panics must not take the process along.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        log::log!(error.level(), "{function}: {error} ({})", error.code());
    }));
}

/// A number from `min` to `max`.
#[inline]
pub(crate) fn in_range(
    what: &'static str,
    value: impl Into<i64>,
    min: i64,
    max: i64,
) -> Result<i64, Box<Error>> {
    let value = value.into();
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(out_of_range(what, value, min, max))
    }
}

#[cold]
fn out_of_range(what: &'static str, value: i64, min: i64, max: i64) -> Box<Error> {
    Error::invalid(format!("{what} {value} is out of range ({min} to {max})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::constants::BMI_EINVAL;

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

    #[test]
    fn a_payload_that_panics_when_dropped_stays_inside_too() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        let code: c_int = guard("test", || std::panic::panic_any(Bomb));
        assert_eq!(code, -BMI_EIO);
    }

    #[test]
    fn numbers_are_checked_at_both_ends() {
        for value in [0_i64, 15] {
            assert_eq!(in_range("context_id", value, 0, 15).unwrap(), value);
        }
        for value in [-1_i64, 16, i64::MIN, i64::MAX] {
            let error = in_range("context_id", value, 0, 15).unwrap_err();
            assert_eq!(error.code(), -BMI_EINVAL);
            let text = format!("context_id {value} is out of range (0 to 15)");
            assert_eq!(error.to_string(), text);
        }
    }
}
