//! Argument checks and panic handling for both C interfaces.

use libc::c_char;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// An invalid argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadArgument {
    /// A pointer that must not be null is.
    Null(&'static str),
    /// A pointer is not aligned for what it points to.
    Misaligned {
        /// The argument.
        what: &'static str,
        /// Its value.
        address: usize,
    },
    /// A string has no end within what is ever looked at.
    TooLong {
        /// The argument.
        what: &'static str,
        /// Bytes it may have, its NUL included.
        limit: usize,
    },
    /// A string is not UTF-8.
    NotUtf8 {
        /// The argument.
        what: &'static str,
        /// The first byte that is wrong, from 0.
        at: usize,
    },
}

impl BadArgument {
    #[cold]
    fn pointer(what: &'static str, address: usize) -> Self {
        match address {
            0 => Self::Null(what),
            _ => Self::Misaligned { what, address },
        }
    }
}

impl fmt::Display for BadArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(what) => write!(f, "{what} is null"),
            Self::Misaligned { what, address } => write!(f, "{what} {address:#x} is not aligned"),
            Self::TooLong { what, limit } => write!(f, "{what} has no end within {limit} bytes"),
            Self::NotUtf8 { what, at } => write!(f, "{what} is not UTF-8 at byte {at}"),
        }
    }
}

impl std::error::Error for BadArgument {}

/// A pointer that must be there.
#[inline]
pub fn required<T>(what: &'static str, pointer: *mut T) -> Result<NonNull<T>, BadArgument> {
    match NonNull::new(pointer) {
        Some(pointer) if pointer.is_aligned() => Ok(pointer),
        _ => Err(BadArgument::pointer(what, pointer.addr())),
    }
}

/// A pointer that may be null.
#[inline]
pub fn optional<T>(what: &'static str, pointer: *mut T) -> Result<Option<NonNull<T>>, BadArgument> {
    if pointer.is_aligned() {
        Ok(NonNull::new(pointer))
    } else {
        Err(BadArgument::pointer(what, pointer.addr()))
    }
}

/// A string of at most `limit` bytes, its NUL included; `None` for a null pointer.
///
/// # Safety
///
/// `text` is null, or readable up to its NUL or for `limit` bytes.
pub unsafe fn string<'a>(
    what: &'static str,
    text: *const c_char,
    limit: usize,
) -> Result<Option<&'a str>, BadArgument> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: readable as far as strnlen looks (the caller's promise).
    let len = unsafe { libc::strnlen(text, limit) };
    if len == limit {
        return Err(BadArgument::TooLong { what, limit });
    }
    // SAFETY: strnlen has just read these bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    std::str::from_utf8(bytes).map(Some).map_err(|error| {
        let at = error.valid_up_to();
        BadArgument::NotUtf8 { what, at }
    })
}

/// Logs a panic that was caught in an exported function. Neither a logger nor a payload that panics takes
/// the process along.
#[cold]
pub fn panicked(function: &str, payload: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        log::error!("{function}: panicked: {}", panic_text(&*payload));
        drop(payload);
    }));
}

/// The text of a panic.
fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("unknown panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_checked_for_null_and_alignment() {
        let mut word = 0_u64;
        assert!(required("word", &raw mut word).is_ok());
        let null = std::ptr::null_mut::<u64>();
        let error = required("word", null).unwrap_err();
        assert_eq!(error.to_string(), "word is null");
        assert_eq!(optional("word", null), Ok(None));
        let odd = (&raw mut word).cast::<u8>().wrapping_add(1).cast::<u64>();
        let error = required("word", odd).unwrap_err();
        assert!(error.to_string().ends_with("is not aligned"), "{error}");
        assert_eq!(optional("word", odd), Err(error));
    }

    #[test]
    fn strings_end_within_their_limit_and_are_utf8() {
        // SAFETY: all of them are NUL-terminated, or longer than the limit.
        unsafe {
            assert_eq!(string("id", c"abc".as_ptr(), 4), Ok(Some("abc")));
            assert_eq!(string("id", std::ptr::null(), 4), Ok(None));
            let error = string("id", c"abc".as_ptr(), 3).unwrap_err();
            assert_eq!(error.to_string(), "id has no end within 3 bytes");
            let error = string("id", c"ab\xff".as_ptr(), 10).unwrap_err();
            assert_eq!(error.to_string(), "id is not UTF-8 at byte 2");
        }
    }

    #[test]
    fn a_panic_says_what_it_was_given() {
        assert_eq!(panic_text(&"literal"), "literal");
        assert_eq!(panic_text(&String::from("at 7")), "at 7");
        assert_eq!(panic_text(&7_u8), "unknown panic");
    }
}
