//! The local port without an endpoint, in one process and in several.

mod common;
#[path = "../../../testing/sim/fixtures/counting.rs"]
mod counting;
#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;
mod signal;

mod fast_path;
mod idle;
mod processes;
