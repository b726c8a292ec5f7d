//! Hostile inputs for `mx-proto`, and the properties that must hold for all of them.
//!
//! ```text
//!   testing/fuzz/libfuzzer/targets/*          tests/saved.rs           libFuzzer, or the saved inputs on stable Rust
//!         \                   /
//!          datagram   session   endpoint   introduction      one function of bytes each; panics on a fault
//!             |          |          |
//!             +- Input: bytes as a program           input
//!             +- Program: its steps and checks       program
//!             +- an endpoint and hostile peers       peers, link
//!             +- Net: datagrams in memory            net, user
//!             +- forge: headers with valid sums      forge
//!             `- meter: bytes of heap, by owner      meter
//! ```
//!
//! Owns: the programs' meaning, and the checked properties.
//! Out of scope: libFuzzer. Inputs keep their meaning as long as the steps are not renumbered.

mod datagram;
mod endpoint;
mod forge;
mod input;
mod introduction;
mod link;
mod meter;
mod net;
mod packets;
mod peers;
mod program;
mod session;
mod user;

pub use datagram::datagram;
pub use endpoint::endpoint;
pub use introduction::introduction;
pub use session::session;
