//! What a kernel tells of this machine's interfaces.

mod own_network;
#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod forked_watch;
mod networks;
