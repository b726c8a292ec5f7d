//! Checks of C's arguments.

use libc::c_char;
use std::fmt;
use std::ptr::NonNull;

/// An invalid argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadArgument {
    /// A required pointer is null.
    Null(&'static str),
    /// A pointer is not aligned for its type.
    Misaligned {
        /// Name of the argument.
        what: &'static str,
        /// Value of the pointer.
        address: usize,
    },
    /// A string has no NUL within its limit.
    TooLong {
        /// Name of the argument.
        what: &'static str,
        /// Maximum length in bytes, the NUL included.
        limit: usize,
    },
    /// A string is not UTF-8.
    NotUtf8 {
        /// Name of the argument.
        what: &'static str,
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// A number is too small or too large.
    OutOfRange {
        /// Name of the argument.
        what: &'static str,
        /// Value as given.
        value: i64,
        /// Smallest legal value.
        min: i64,
        /// Largest legal value.
        max: i64,
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

    #[cold]
    fn out_of_range(what: &'static str, value: i64, min: i64, max: i64) -> Self {
        Self::OutOfRange {
            what,
            value,
            min,
            max,
        }
    }
}

impl fmt::Display for BadArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(what) => write!(f, "{what} is null"),
            Self::Misaligned { what, address } => write!(f, "{what} {address:#x} is not aligned"),
            Self::TooLong { what, limit } => {
                write!(f, "{what} is not terminated within {limit} bytes")
            }
            Self::NotUtf8 { what, at } => write!(f, "{what} is not UTF-8 at byte {at}"),
            Self::OutOfRange {
                what,
                value,
                min,
                max,
            } => write!(f, "{what} {value} is out of range ({min} to {max})"),
        }
    }
}

impl std::error::Error for BadArgument {}

/// Checks a pointer that must be aligned and not null. `what`: name of the argument, for the error.
#[inline]
pub fn required<T>(what: &'static str, pointer: *mut T) -> Result<NonNull<T>, BadArgument> {
    match NonNull::new(pointer) {
        Some(pointer) if pointer.is_aligned() => Ok(pointer),
        _ => Err(BadArgument::pointer(what, pointer.addr())),
    }
}

/// Checks a pointer that must be aligned, but may be null (`None`). `what`: name of the argument, for the error.
#[inline]
pub fn optional<T>(what: &'static str, pointer: *mut T) -> Result<Option<NonNull<T>>, BadArgument> {
    if pointer.is_aligned() {
        Ok(NonNull::new(pointer))
    } else {
        Err(BadArgument::pointer(what, pointer.addr()))
    }
}

/// Checks a pointer to `count` entries to write. Null is legal for 0 entries; the result must not be written to then.
#[inline]
pub fn room<T>(
    what: &'static str,
    pointer: *mut T,
    count: usize,
) -> Result<NonNull<T>, BadArgument> {
    if count == 0 {
        return Ok(NonNull::dangling());
    }
    required(what, pointer)
}

/// Writes an output that C may omit: has no effect if `place` is `None`.
///
/// # Safety
///
/// `place` is writable.
#[inline]
pub unsafe fn write_if<T>(place: Option<NonNull<T>>, value: T) {
    if let Some(place) = place {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Checks an array of `count` entries. Null is legal for 0 entries.
///
/// # Safety
///
/// If not null and aligned, `start` has `count` entries that do not change.
#[inline]
pub unsafe fn array<'a, T>(
    what: &'static str,
    start: *const T,
    count: usize,
) -> Result<&'a [T], BadArgument> {
    let start = room(what, start.cast_mut(), count)?;
    // SAFETY: aligned; the caller promises `count` entries, or `count` is 0.
    Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), count) })
}

/// Returns the number if it is between `min` and `max`, both legal; fails otherwise.
#[inline]
pub fn in_range(
    what: &'static str,
    value: impl Into<i64>,
    min: i64,
    max: i64,
) -> Result<i64, BadArgument> {
    let value = value.into();
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(BadArgument::out_of_range(what, value, min, max))
}

/// Returns a C string of at most `limit` bytes, its NUL included; fails if it is null, longer, or not UTF-8.
///
/// # Safety
///
/// `text` is null, or readable up to its NUL or for `limit` bytes.
pub unsafe fn string<'a>(
    what: &'static str,
    text: *const c_char,
    limit: usize,
) -> Result<&'a str, BadArgument> {
    if text.is_null() {
        return Err(BadArgument::Null(what));
    }
    // SAFETY: readable as far as strnlen looks (the caller's promise).
    let len = unsafe { libc::strnlen(text, limit) };
    if len == limit {
        return Err(BadArgument::TooLong { what, limit });
    }
    // SAFETY: strnlen has just read these bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        BadArgument::NotUtf8 { what, at }
    })
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
    fn an_array_of_no_entries_may_be_anywhere() {
        let mut words = [1_u64, 2];
        let odd = (&raw mut words).cast::<u8>().wrapping_add(1).cast();
        for pointer in [std::ptr::null_mut::<u64>(), odd] {
            assert!(room("words", pointer, 0).is_ok());
            assert!(room("words", pointer, 1).is_err());
            // SAFETY: nothing is read.
            unsafe {
                assert_eq!(array("words", pointer, 0), Ok(&[][..]));
                assert!(array("words", pointer, 1).is_err());
            }
        }
        // SAFETY: the array has two entries.
        let both = unsafe { array("words", &raw const words[0], 2) };
        assert_eq!(both, Ok(&[1, 2][..]));
    }

    #[test]
    fn numbers_are_checked_at_both_ends() {
        for value in [0_i64, 15] {
            assert_eq!(in_range("context_id", value, 0, 15), Ok(value));
        }
        for value in [-1_i64, 16, i64::MIN, i64::MAX] {
            let error = in_range("context_id", value, 0, 15).unwrap_err();
            let text = format!("context_id {value} is out of range (0 to 15)");
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn strings_end_within_their_limit_and_are_utf8() {
        // SAFETY: all of them are NUL-terminated, or longer than the limit.
        unsafe {
            assert_eq!(string("id", c"abc".as_ptr(), 4), Ok("abc"));
            let error = string("id", std::ptr::null(), 4).unwrap_err();
            assert_eq!(error, BadArgument::Null("id"));
            let error = string("id", c"abc".as_ptr(), 3).unwrap_err();
            assert_eq!(error.to_string(), "id is not terminated within 3 bytes");
            let error = string("id", c"ab\xff".as_ptr(), 10).unwrap_err();
            assert_eq!(error.to_string(), "id is not UTF-8 at byte 2");
        }
    }
}
