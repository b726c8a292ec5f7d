#![forbid(unsafe_code)]
//! Random programs for a few nodes, and the books that tell whether the promises were kept.
//!
//! ```text
//!   seed, Shape --> program --> Steps --> an executor --> messages, completions --> Book
//!                                  ^        simulated nodes: testing/method/sim/random.rs
//!                                  |        real processes:  the program bmi_mx_torture
//!                                shrink <-- it failed
//! ```
//!
//! Owns: the actions of a program, the contents of a message.
//! Out of scope: BMI, processes, networks.

pub mod book;
pub mod program;
pub mod shape;
pub mod shrink;

pub use bmi_host::method::Verb;
pub use book::{Book, Fault, HEADER, Header, Peer, Side, Stream};
pub use program::{Action, Step, pieces, program};
pub use shape::{Shape, Weights};
pub use shrink::shrink;
