//! The exported functions that all hosts of the method call alike, and the guard of those that differ.
//!
//! ```text
//!   lifecycle   finalize  set_info get_info  open_context close_context  set_host    (initialize's body)
//!      credits  what get_info answers about them
//!      sized    structs that say their own size
//!   address     method_addr_lookup  rev_lookup_unexpected  query_addr_range
//!   memory      memalloc memfree unexpected_free
//!   post        post_send_list post_recv_list cancel                                (bodies of all posts)
//!   test        test testsome testcontext                                           (testunexpected's body)
//!   library     export!, for mx_boundary: a failure becomes a code
//! ```
//!
//! A host's package (`libraries/bmi_mx`, `libraries/bmi_mx_standalone`) adds the functions whose arguments are its
//! own, and the table. Every function may be called from any thread at any time. Codes are negative BMI codes;
//! `docs/c-api.md` lists them for each function. On failure no output is written.
//!
//! Owns: C's argument lists and the codes for wrong arguments.
//! Out of scope: peers, the network.

// The names are C's. What a C caller must keep is said in each function's own words.
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
