//! Interfaces of this machine, as its kernel tells of them.

mod own_network;
#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod forked_watch;
mod networks;
