//! The binary interface that the host was compiled with: C types, the ops table's layout,
//! constants.
//!
//! ```text
//!   types.rs      the scalars and small structs every call passes
//!   ops.rs        struct bmi_method_ops, 200 bytes, 25 entries
//!   constants.rs  info keys, flags, error codes
//! ```
//!
//! Owns: the binary interface of OrangeFS 2.10 on 64-bit Linux, asserted at compile time.

// C's names are kept so that the generated header, the host's sources and this code say the same.
#![allow(non_camel_case_types)]
// C's argument lists are as long as they are; cbindgen wants them spelled out in the table.
#![allow(clippy::type_complexity)]

pub mod constants;
pub mod ops;
pub mod types;
