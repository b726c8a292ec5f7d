//! The rdm port without an endpoint, and in complete simulations.

mod direct;
#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod kept;
mod rdm;
mod sim_rdm;
