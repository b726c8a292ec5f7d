//! libfabric itself: its tagged ping-pong and bandwidth between two processes of ours, on the same
//! provider and library that the method uses.
//!
//! Owns: how its processes are started.
//! Out of scope: libfabric (see `endpoint`), streams of messages (see `stream`).

mod endpoint;
mod offer;
mod stream;

use super::sides::{self, Sides};
use endpoint::Endpoint;
use libfabric_sys::Library;

/// Starts two processes on `provider`, or on the best there is; the name is the provider's exact
/// one.
pub(crate) fn start(provider: Option<&str>, pin: bool) -> Result<Sides, String> {
    let arguments = |command: &mut std::process::Command, number: &str, first: Option<&str>| {
        command.args(["fabric-side", number]);
        if let Some(provider) = first.or(provider) {
            command.args(["--provider", provider]);
        }
    };
    Sides::start(arguments, pin)
}

/// Serves as one of them until standard input ends.
pub(crate) fn serve(second: bool, provider: Option<&str>) -> Result<(), String> {
    let opened = Library::get()
        .map_err(|error| error.to_string())
        .and_then(|library| Endpoint::open(library, provider));
    sides::serve(second, opened)
}
