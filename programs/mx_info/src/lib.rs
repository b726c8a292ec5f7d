//! The common part of `mx_info`, `mx_endpoint_info` and `mx_counters`.
//!
//! ```text
//!   mx_info            boards, endpoints, providers, peers     machine
//!   mx_endpoint_info   one block for each endpoint             endpoints
//!   mx_counters        numbers, once or again and again        counters
//!                      for a node exporter, with meanings      prometheus, meaning
//!                                  |
//!            args: which of them   |   text, json: how they are shown
//! ```
//!
//! The three look from outside: at the kernel's interfaces, at libfabric's providers, and at the
//! pages that processes publish about their endpoints (`mx_sys::published`). None of them opens an
//! endpoint. What other processes wrote is shown only after [`text::printable`].

pub mod args;
pub mod counters;
pub mod endpoints;
pub mod json;
pub mod machine;
pub mod meaning;
pub mod prometheus;
pub mod text;
