//! `libbmi_mx.so`: a BMI network method over MX, for parallel file systems.
//!
//! ```text
//!   C file-system server or client
//!         |  struct bmi_method_ops, BMI_mx_*      ^ address registration, logging
//!         v                                       |
//!   +-- exports -------- boundary -------- host, logging --------------------+
//!   |     |  safe Rust                                                       |
//!   |     v                                                                  |
//!   |  instance: the process-wide method                                     |
//!   |     peers, handshake, operations, completions                          |
//!   +-----|------------------------------------------------------------------+
//!         v
//!      mx-sys -> mx-proto
//! ```
//!
//! The modules below are in groups, separated by empty lines. A module uses its own group and those
//! above, never those below (`tests/layering.rs`). All `unsafe` of the C boundary is in `abi`,
//! `host`, `logging`, `buffer`, `boundary` and `exports`.

pub mod abi;
pub mod peer_name;

pub mod config;
pub mod error;
pub mod host;

pub mod buffer;
pub mod logging;

pub mod match_layout;
// The method's parts know each other's types; see `method`.
pub mod abandoned;
pub mod address;
pub mod address_range;
pub mod cancel;
pub mod method;
pub mod op;
pub mod peer;
pub(crate) mod unmatched;

pub mod instance;

pub(crate) mod boundary;

pub mod exports;

/// The allocator of the libraries that programs load. Test programs have their own.
#[cfg(feature = "reserve")]
#[global_allocator]
static ALLOCATOR: mx_sys::reserve::Reserve = mx_sys::reserve::Reserve;
