//! UCX: its tagged messages between two processes of ours, over shared memory or TCP.
//!
//! | order   | as `ucx_perftest`'s | how                                                       |
//! |---------|---------------------|-----------------------------------------------------------|
//! | latency | `tag_lat`           | the receive is posted first, both sides progress           |
//! | stream  | `tag_bw`            | 64 under way on either side, nothing acknowledged between  |
//!
//! The library is looked for when it is measured; nothing is linked to it.
//!
//! Owns: how its processes are started.
//! Out of scope: its calls (see `endpoint`), streams of messages (see `stream`).

mod abi;
mod endpoint;
mod stream;

pub(crate) use endpoint::Endpoint;

use super::sides::{self, Sides};
use crate::args::Port;

/// Its name in tables.
pub(crate) const NAME: &str = "UCX";
/// The largest message it is measured with: larger ones it announces, and fetches in ways that the
/// two transports named here are not made for.
pub(crate) const LARGEST: usize = 8 << 10;

/// Starts two processes on the transport a port is measured beside. An error says why there are none.
pub(crate) fn start(port: Port, pin: bool) -> Result<Sides, String> {
    let transport = transport(port).ok_or("no transport of UCX's for this port")?;
    let arguments = |command: &mut std::process::Command, number: &str, _: Option<&str>| {
        command.args(["ucx-side", number]);
        command.env(TRANSPORT, transport);
    };
    Sides::start(arguments, pin)
}

/// Serves as one of them until standard input ends.
pub(crate) fn serve(second: bool) -> Result<(), String> {
    sides::serve(second, Endpoint::open())
}

/// UCX's setting that names the transports it may use.
pub(crate) const TRANSPORT: &str = "UCX_TLS";

/// UCX's transport for the port.
pub(crate) fn transport(port: Port) -> Option<&'static str> {
    match port {
        Port::Local => Some("posix"),
        Port::Tcp => Some("tcp"),
        Port::Rdm | Port::Dgram => None,
    }
}
