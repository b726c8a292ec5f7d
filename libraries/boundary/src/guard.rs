//! Exported functions, and their answers to C when a call fails.
//!
//! ```text
//!   export! --> guard --> body --Ok--------------------------------------> answer
//!                 |         `----Err---> Library::refused: a line, a code --> answer
//!                 `--panic--> a line, Library::PANICKED ---------------------> answer
//! ```
//!
//! Owns: the guard, the answer of each kind of function to a failure.
//! Out of scope: the checks, codes.

use libc::c_int;
use mx_sys::{cancellation, deferred_log};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A library that C calls.
pub trait Library {
    /// Error of a call.
    type Error;
    /// A handle of the object that a call is about.
    type Owner;

    /// The functions called for each message, which make system calls only in ports or asleep, where cancellation is
    /// disabled anyway.
    const OF_MESSAGES: &'static [&'static str];

    /// Code of a call that has panicked.
    const PANICKED: c_int;

    /// Logs a failed call. Returns the code for C.
    fn refused(function: &'static str, owner: Option<Self::Owner>, error: Self::Error) -> c_int;
}

/// Declares exported functions of a [`Library`], whose type comes first. The bodies yield a `Result` with the input of
/// the [answer](Answer). A function about an object names it after its return type: `, of handle`. Each function also
/// gets a type of the same name.
///
/// A library has a macro of the same name that adds the type; `mk/gen_header` reads the items in that one as plain
/// functions.
#[macro_export]
macro_rules! export {
    ($library:ty; $(
        $(#[$attribute:meta])*
        pub unsafe extern "C" fn $name:ident(
            $($argument:ident: $type:ty),* $(,)?
        ) $(-> $answer:ty)? $(, of $owner:ident)?
        $body:block
    )*) => {$(
        /// Type of the function of that name, for tables.
        #[allow(non_camel_case_types, reason = "C's names")]
        pub type $name = unsafe extern "C" fn($($argument: $type),*) $(-> $answer)?;

        $(#[$attribute])*
        // SAFETY: the names are the library's own, which its tests list.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? {
            let _off = (!const { $crate::is_of_messages::<$library>(stringify!($name)) })
                .then($crate::CancellationDisabled::new);
            $crate::guard::<$library, _, _>(
                stringify!($name),
                None$(.or(Some($owner.into())))?,
                move || -> Result<_, <$library as $crate::Library>::Error> { $body },
            )
        }
    )*};
}

/// Returns whether an exported function is one of [`Library::OF_MESSAGES`], which need not disable thread cancellation.
pub const fn is_of_messages<L: Library>(function: &str) -> bool {
    cancellation::is_one_of(function, L::OF_MESSAGES)
}

/// Return value of an exported function, whose body yields a `Given`.
pub trait Answer<Given = Self>: Sized {
    /// Makes the return value from a result, or from the code of a failure.
    fn of(result: Result<Given, c_int>) -> Self;
}

/// BMI's: 0, a count, or a negative code.
impl Answer for c_int {
    #[inline]
    fn of(result: Result<Self, c_int>) -> Self {
        result.unwrap_or_else(|code| code)
    }
}

/// MX's: 0, or a code.
impl Answer<()> for u32 {
    #[inline]
    fn of(result: Result<(), c_int>) -> Self {
        result.map_or_else(|code| code as Self, |()| 0)
    }
}

impl Answer for () {
    #[inline]
    fn of(_: Result<Self, c_int>) {}
}

impl<T> Answer for *mut T {
    #[inline]
    fn of(result: Result<Self, c_int>) -> Self {
        result.unwrap_or(std::ptr::null_mut())
    }
}

impl<T> Answer for *const T {
    #[inline]
    fn of(result: Result<Self, c_int>) -> Self {
        result.unwrap_or(std::ptr::null())
    }
}

/// Runs the body of an exported function and converts its result for C. An error goes to [`Library::refused`], which
/// returns the code; a panic is logged, and its code is [`Library::PANICKED`]. `owner`: object that the call is about.
#[inline]
pub fn guard<L: Library, Given, A: Answer<Given>>(
    function: &'static str,
    owner: Option<L::Owner>,
    body: impl FnOnce() -> Result<Given, L::Error>,
) -> A {
    let answer = caught(function, move || match body() {
        Ok(given) => A::of(Ok(given)),
        Err(error) => A::of(Err(refused::<L>(function, owner, error))),
    });
    // A panic does not reach an error handler, which could end a process for a fault of this library.
    answer.unwrap_or_else(|| A::of(Err(L::PANICKED)))
}

/// Calls [`Library::refused`]; survives a panic of a logger or an error handler.
#[cold]
#[inline(never)]
fn refused<L: Library>(function: &'static str, owner: Option<L::Owner>, error: L::Error) -> c_int {
    let code = caught(function, || L::refused(function, owner, error));
    code.unwrap_or(L::PANICKED)
}

/// Runs `body`, which is part of an exported function, and writes the log lines that it deferred. `None` after a panic,
/// which is logged.
#[inline]
pub fn caught<R>(function: &'static str, body: impl FnOnce() -> R) -> Option<R> {
    // No state of the body is used after a panic: it owns copies of C's arguments.
    let answer = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => Some(answer),
        Err(payload) => {
            panicked(function, payload);
            None
        }
    };
    deferred_log::flush();
    answer
}

/// Logs a panic. Survives a panic of the logger, or of the payload's drop.
#[cold]
fn panicked(function: &str, payload: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        log::error!("{function}: panicked: {}", panic_text(&*payload));
        drop(payload);
    }));
}

/// Returns the text of a panic.
fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("unknown panic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A library whose errors are the codes.
    struct Own;

    thread_local!(static REFUSED: Cell<Option<(&'static str, u8)>> = const { Cell::new(None) });

    impl Library for Own {
        type Error = c_int;
        type Owner = u8;
        const OF_MESSAGES: &'static [&'static str] = &["own_send"];
        const PANICKED: c_int = -5;

        fn refused(function: &'static str, owner: Option<u8>, error: c_int) -> c_int {
            assert_ne!(error, -9, "refused");
            REFUSED.set(Some((function, owner.unwrap_or(0))));
            error
        }
    }

    fn answer<Given, A: Answer<Given>>(body: impl FnOnce() -> Result<Given, c_int>) -> A {
        guard::<Own, Given, A>("own_call", Some(7), body)
    }

    #[test]
    fn success_returns_the_value_and_failure_a_code_or_null() {
        assert_eq!(answer::<_, c_int>(|| Ok(3)), 3);
        assert_eq!(answer::<_, u32>(|| Ok(())), 0);
        assert_eq!(REFUSED.take(), None);
        assert_eq!(answer::<_, c_int>(|| Err(-4)), -4);
        assert_eq!(REFUSED.take(), Some(("own_call", 7)));
        assert_eq!(answer::<_, u32>(|| Err(4)), 4);
        assert!(answer::<_, *mut u8>(|| Err(-4)).is_null());
        assert!(answer::<_, *const u8>(|| Err(-4)).is_null());
        answer::<(), ()>(|| Err(-4));
    }

    #[test]
    fn panics_become_codes_even_in_an_error_handler() {
        assert_eq!(answer::<_, c_int>(|| panic!("at {}", 7)), -5);
        assert!(answer::<_, *mut u8>(|| panic!("literal")).is_null());
        answer::<_, ()>(|| std::panic::panic_any(7_u8));
        assert_eq!(REFUSED.take(), None);
        assert_eq!(answer::<_, c_int>(|| Err(-9)), -5);
    }

    #[test]
    fn functions_of_messages_are_known_by_their_names() {
        assert!(is_of_messages::<Own>("own_send") && !is_of_messages::<Own>("own_sen"));
    }

    #[test]
    fn panics_stay_inside_even_if_their_payload_panics() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(caught("test", || 7), Some(7));
        assert_eq!(caught("test", || panic!("at {}", 7)), None::<()>);
        let bomb = caught("test", || std::panic::panic_any(Bomb));
        assert_eq!(bomb, None::<()>);
    }

    #[test]
    fn a_panic_says_what_it_was_given() {
        assert_eq!(panic_text(&"literal"), "literal");
        assert_eq!(panic_text(&String::from("at 7")), "at 7");
        assert_eq!(panic_text(&7_u8), "unknown panic");
    }
}
