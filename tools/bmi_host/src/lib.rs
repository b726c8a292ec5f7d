//! How a Rust program loads the BMI/MX method and calls its C entry points.
//!
//! ```text
//!   bmi_mx_perf, bmi_mx_torture ---> Library ---dlopen---> libbmi_mx.so
//!                                       `----> abi::Ops, as a C program sees it
//! ```
//!
//! Owns: the layouts of the C interface, once more and by hand, so that a program of the tools sees
//! what a C program sees and a change of the interface is noticed.
//! Knows nothing of: the library's crates.

pub mod abi;
pub mod codes;
pub mod library;
