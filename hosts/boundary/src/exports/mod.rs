//! The exported functions: one for every entry of the ops table, and `bmi_mx_set_host`.
//!
//! ```text
//!   lifecycle   initialize finalize  set_info get_info  open_context close_context  set_host
//!      options  what initialize takes from its last argument
//!      credits  what get_info answers about them
//!      sized    structs that say their own size
//!   address     method_addr_lookup  rev_lookup_unexpected  query_addr_range
//!   memory      memalloc memfree unexpected_free
//!   post        post_send post_recv post_sendunexpected, their list forms, cancel
//!   test        test testsome testcontext testunexpected
//!   ops         bmi_mx_ops, method_interface
//! ```
//!
//! Every function may be called from any thread at any time. Codes are negative BMI codes;
//! `docs/c-api.md` lists them for each function. On failure no output is written.
//!
//! Owns: C's argument lists and the codes for wrong arguments.
//! Not here: peers, the network.

// The names are C's. What a C caller must keep is said in each function's own words.
#![allow(non_snake_case, clippy::missing_safety_doc)]

pub mod address;
mod credits;
pub mod lifecycle;
pub mod memory;
pub mod ops;
#[cfg(not(feature = "standalone"))]
mod options;
pub mod post;
mod sized;
pub mod test;
