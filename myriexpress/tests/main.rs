//! The library of the API, used from Rust.

#[path = "../../testing/sim/fixtures/counting.rs"]
mod counting;
#[path = "../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod allocations;
mod arguments;
mod header;
mod info;
mod lifecycle;
mod races;
