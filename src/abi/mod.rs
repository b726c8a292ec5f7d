//! The binary interface that all hosts were compiled with: C types, constants. Each host's table is in its own
//! package (`hosts/`).
//!
//! ```text
//!   types.rs      the scalars and small structs every call passes
//!   constants.rs  info keys, flags, error codes
//! ```
//!
//! Owns: what OrangeFS and the stand-alone BMI have alike on 64-bit Linux, asserted at compile time.

// C's names are kept so that the generated header, the host's sources and this code say the same.
#![allow(non_camel_case_types)]

pub mod constants;
pub mod types;
