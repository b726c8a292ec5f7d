//! The MX C API over `mx-sys`.
//!
//! ```text
//!   C program ---> exports    pointers and numbers checked, panics caught      (boundary)
//!                    |        error handlers, init and finalize, names, get_info
//!                    v
//!                  process    endpoints of the process, one lock each, waiting, handler runs
//!                    v
//!                  engine     requests, completions, peers; pure but for its port and clock
//!                    v
//!                  mx-proto   matching, eager, rendezvous          mx-sys   ports, progress
//! ```
//!
//! Modules use their own group and those above it.

pub(crate) mod numbers;

pub mod error;
pub mod handles;
pub mod status;

mod engine;

pub mod process;

pub mod abi;

pub mod handler;
pub mod info;
pub mod library;
pub mod names;

pub(crate) mod boundary;

pub mod exports;
