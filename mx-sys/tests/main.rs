//! The crate as its users see it: engines, endpoints, interfaces of this machine.
//!
//! Another program, `processes`, has the tests with processes that die.

mod dgram_common;
mod node;
#[path = "../../ports/base/tests/own_network/mod.rs"]
mod own_network;
#[path = "../../testing/sim/fixtures/own_process.rs"]
mod own_process;
mod support;
#[path = "../../ports/tcp/tests/tcp_common/mod.rs"]
mod tcp_common;

mod claims;
mod descriptors_gone;
mod dgram;
mod endpoint;
mod helper;
mod inherit;
mod networks;
mod peers_file;
mod progress;
mod without_fabric;
