//! UCX: its tagged messages between two processes of the benchmark, over shared memory or TCP.
//!
//! | order   | as `ucx_perftest`'s | how                                                       |
//! |---------|---------------------|-----------------------------------------------------------|
//! | latency | `tag_lat`           | the receive is posted first, both sides progress           |
//! | stream  | `tag_bw`            | 64 under way on either side, nothing acknowledged between  |
//!
//! The library is loaded when it is measured, never linked.
//!
//! Owns: starting its processes.
//! Out of scope: its calls (see `endpoint`), streams of messages (see `stream`).

mod abi;
mod endpoint;
mod stream;

pub(crate) use endpoint::Endpoint;

use super::sides::{self, Sides};
use crate::args::Port;

/// Name in tables.
pub(crate) const NAME: &str = "UCX";
/// Largest measured message: UCX announces larger ones, and fetches them in ways for which the two
/// transports named here are not made.
pub(crate) const LARGEST: usize = 8 << 10;

/// Starts two processes on the transport that corresponds to a port. An error tells why that is not
/// possible.
pub(crate) fn start(port: Port, pin: bool) -> Result<Sides, String> {
    let transport = transport(port).ok_or("no transport of UCX's for this port")?;
    let arguments = |command: &mut std::process::Command, number: &str, _: Option<&str>| {
        command.args(["ucx-side", number]);
        command.env(TRANSPORT, transport);
    };
    Sides::start(arguments, pin)
}

/// Serves as one of the two until standard input ends.
pub(crate) fn serve(second: bool) -> Result<(), String> {
    sides::serve(second, Endpoint::open())
}

/// Setting of UCX that names the transports it may use.
pub(crate) const TRANSPORT: &str = "UCX_TLS";

/// Returns UCX's transport for the port.
pub(crate) fn transport(port: Port) -> Option<&'static str> {
    match port {
        Port::Local => Some("posix"),
        Port::Tcp => Some("tcp"),
        Port::Rdm | Port::Dgram => None,
    }
}
