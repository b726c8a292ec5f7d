//! The shared library from outside. One program: what they share is compiled once.

#[path = "../../../testing/sim/fixtures/exported.rs"]
mod exported;

mod exports;
mod gossip;
