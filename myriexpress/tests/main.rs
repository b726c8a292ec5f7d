//! The API's library as Rust code sees it.

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
