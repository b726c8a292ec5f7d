//! A BMI network method over MX, for parallel file systems, as Rust calls it.
//!
//! ```text
//!   C file-system server or client
//!         |  struct bmi_method_ops, BMI_mx_*      ^ address registration, logging
//!         v                                       |
//!   libraries/*: exported functions               |
//!         |                                       |
//!   +-----|--- host, logging ---------------------'---------+
//!   |     v                                                 |
//!   |  instance: the process-wide method                    |
//!   |     peers, handshake, operations, completions         |
//!   +-----|-------------------------------------------------+
//!         v
//!      mx-sys -> mx-proto
//! ```
//!
//! The modules below are in groups, separated by empty lines. A module uses its own group and those above, never those
//! below (`testing/lints`). All `unsafe` towards the host is in `abi`, `host`, `logging` and `buffer`; no function is
//! exported here.

pub mod abi;
pub mod peer_name;

pub mod config;
pub mod error;
pub mod host;

pub mod buffer;
pub mod logging;

pub mod match_layout;
// The method's parts use each other's types; see `method`.
pub mod address;
pub mod address_range;
pub(crate) mod arrivals;
pub mod cancel;
pub mod cancelled_receives;
pub mod method;
pub mod op;
pub mod peer;

pub mod instance;
