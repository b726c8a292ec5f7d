//! Code shared by the tools: calls of the BMI/MX method's C entry points, and histograms of
//! durations.
//!
//! ```text
//!   bmi_mx_perf, bmi_mx_torture, bmi_mx_crowd ---> Method ---> abi::Ops, as a C program sees it
//!                                                     `-- Library --dlopen--> libbmi_mx.so
//! ```
//!
//! Owns: the layouts of the C interface, written a second time by hand, so that a tool sees what a
//! C program sees and a change of the interface is noticed.
//! Out of scope: the library's crates.

pub mod abi;
pub mod codes;
pub mod histogram;
pub mod library;
pub mod method;
