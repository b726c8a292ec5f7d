//! Orders to a crowd and its answers, a line each.
//!
//! ```text
//!   Order, as JSON  --->    Open, Connect, Ask, Flood: Outcome    Census: a census    Quit: nothing
//! ```

use bmi_host::histogram::Histogram;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Clients of one crowd, by their places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Who {
    /// The first of them.
    pub first: usize,
    /// Their number.
    pub count: usize,
}

/// An order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open so many endpoints more.
    Open(usize),
    /// Connect to the server, all at once, and wait for the answer to a first request each.
    Connect(Who),
    /// Send requests of 8 bytes and wait for the answers, one at a time each, for so long.
    Ask {
        /// The clients.
        who: Who,
        /// For how long.
        time: Duration,
        /// Poll instead of sleeping; for one or a few.
        spin: bool,
    },
    /// Send unexpected messages of 8 bytes without answers, as fast as they go, for so long.
    Flood {
        /// The clients.
        who: Who,
        /// For how long.
        time: Duration,
    },
    /// Say what the process uses.
    Census,
    /// End.
    Quit,
}

/// The result of an order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Endpoints, connections, round trips or messages that were made.
    pub done: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// The time for all of it.
    pub time: Duration,
    /// The time for each.
    pub times: Histogram,
    /// Why there was not more, in words; empty: there was.
    pub why: String,
}

/// An order or its answer as a line.
pub(crate) fn text(what: &impl Serialize) -> String {
    // INVARIANT: plain data.
    serde_json::to_string(what).expect("a text")
}

/// The order or answer of a line.
pub(crate) fn parse<T: DeserializeOwned>(line: &str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|why| format!("'{}': {why}", line.trim_end()))
}
