//! The tcp port without an endpoint.

#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;
mod starved;
mod tcp;
mod tcp_common;
