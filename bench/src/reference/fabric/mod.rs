//! libfabric itself: its tagged ping-pong and bandwidth between two processes of the benchmark, on
//! the provider and library that the method uses.
//!
//! Owns: starting its processes.
//! Out of scope: libfabric (see `endpoint`), streams of messages (see `stream`).

mod endpoint;
mod offer;
mod stream;

use super::sides::{self, Sides};
use endpoint::Endpoint;
use libfabric_sys::Library;

/// Starts two processes on `provider`, or on the best available one; the result has the provider's
/// exact name.
pub(crate) fn start(provider: Option<&str>, pin: bool) -> Result<Sides, String> {
    let arguments = |command: &mut std::process::Command, number: &str, first: Option<&str>| {
        command.args(["fabric-side", number]);
        if let Some(provider) = first.or(provider) {
            command.args(["--provider", provider]);
        }
    };
    Sides::start(arguments, pin)
}

/// Serves as one of the two until standard input ends.
pub(crate) fn serve(second: bool, provider: Option<&str>) -> Result<(), String> {
    let opened = Library::get()
        .map_err(|error| error.to_string())
        .and_then(|library| Endpoint::open(library, provider));
    sides::serve(second, opened)
}
