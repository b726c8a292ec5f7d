//! Interfaces of this machine, as the kernel reports them.

mod own_network;
#[path = "../../../testing/sim/fixtures/own_process.rs"]
mod own_process;

mod forked_watch;
mod networks;
