//! The binary interface that all hosts were compiled with: C types, constants. Each host's table is in its own package
//! (`libraries/`).
//!
//! ```text
//!   types.rs      scalars and small structs that calls pass
//!   constants.rs  info keys, flags, error codes
//! ```
//!
//! Owns: what OrangeFS and the stand-alone BMI have in common on 64-bit Linux, asserted at compile time.

// C's names are kept: the generated header, the host's sources and this code use the same ones.
#![allow(non_camel_case_types)]

pub mod constants;
pub mod types;
