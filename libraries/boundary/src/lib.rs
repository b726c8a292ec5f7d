//! The boundary between C calls and Rust.
//!
//! ```text
//!   C ---> BMI_mx_test(...), mx_isend(...)                    declared with export!
//!            cancellation: disabled until it returns, except in functions of messages
//!            guard: a panic becomes the library's code for it
//!            1 pointers checked    required, optional, room, array, string
//!            2 numbers checked     in_range
//!            3 one Rust call
//!            4 outputs written     only after success
//!   C <--- the answer, or a code for the error                 Library::refused
//! ```
//!
//! The guard is part of [`export!`], which alone gives a function its C name, so it cannot be left out.
//!
//! Owns: the guard, the checks.
//! Out of scope: the exported functions, the codes of errors.

mod arguments;
mod guard;

pub use arguments::{BadArgument, array, in_range, optional, required, room, string, write_if};
pub use guard::{Answer, Library, caught, guard, is_of_messages};
pub use mx_sys::cancellation::CancellationDisabled;
