//! Orders to a crowd and its answers, one line each.
//!
//! ```text
//!   Order, as JSON  --->    Open, Connect, Ask, Flood: Outcome    Census: a census    Quit: nothing
//! ```

use bmi_host::histogram::Histogram;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Range of clients of one crowd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Who {
    /// Index of the first client.
    pub first: usize,
    /// Number of clients.
    pub count: usize,
}

/// An order to a crowd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open that many more endpoints.
    Open(usize),
    /// Connect to the server, all at once, and wait for the answer to one request each.
    Connect(Who),
    /// Send requests of 8 bytes and wait for the answers, each client one at a time.
    Ask {
        /// The clients.
        who: Who,
        /// Duration.
        time: Duration,
        /// Poll instead of sleeping; for one client or a few.
        spin: bool,
    },
    /// Send unexpected messages of 8 bytes without answers, as fast as possible.
    Flood {
        /// The clients.
        who: Who,
        /// Duration.
        time: Duration,
    },
    /// Report the process's resources.
    Census,
    /// End.
    Quit,
}

/// Result of an order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of endpoints, connections, round trips or messages.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// Duration of all of it.
    pub time: Duration,
    /// Durations of the single round trips.
    pub times: Histogram,
    /// Reason why fewer were made than ordered; empty if none were missing.
    pub why: String,
}

/// Formats an order or its answer as a line.
pub(crate) fn text(what: &impl Serialize) -> String {
    // INVARIANT: plain data.
    serde_json::to_string(what).expect("a text")
}

/// Parses a line.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|why| format!("'{}': {why}", line.trim_end()))
}
