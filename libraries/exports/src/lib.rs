//! The exported functions that all hosts of the method share, and the guard of those that differ.
//!
//! ```text
//!   lifecycle   finalize  set_info get_info  open_context close_context  set_host    (initialize's body)
//!      credits  get_info's answers about credits
//!      sized    structs that contain their own size
//!   address     method_addr_lookup  rev_lookup_unexpected  query_addr_range
//!   memory      memalloc memfree unexpected_free
//!   post        post_send_list post_recv_list cancel                                (bodies of all posts)
//!   test        test testsome testcontext                                           (testunexpected's body)
//!   library     export!, for mx_boundary: a failure becomes a code
//! ```
//!
//! A host's package (`libraries/bmi_mx`, `libraries/bmi_mx_standalone`) adds the functions with its own argument lists,
//! and the table. Every function may be called from any thread at any time. Codes are negative BMI codes;
//! `docs/c-api.md` lists them for each function. On failure no output is written.
//!
//! Owns: C's argument lists and the codes for wrong arguments.
//! Out of scope: peers, the network.

// C's names. Each function's documentation says what a C caller must keep to.
#![allow(non_snake_case, clippy::missing_safety_doc)]

pub use bmi_method::error::Error;
pub use library::Bmi;
#[doc(hidden)]
pub use mx_boundary;

mod library;

mod credits;
mod sized;

pub mod address;
pub mod lifecycle;
pub mod memory;
pub mod post;
pub mod test;
