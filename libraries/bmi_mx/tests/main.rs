//! Tests of the shared library from outside, in one program, so that shared parts are compiled once.

#[path = "../../../testing/sim/fixtures/exported.rs"]
mod exported;

mod exports;
mod gossip;
