//! Reopening an endpoint in a child of `fork`, as its parent opened it.
//!
//! ```text
//!   fork --> the parent exits:      its endpoint is free after a moment, and is opened
//!        `-> the parent continues:  it is in use; the first attempt waits, later ones fail at once
//! ```
//!
//! Owns: the options of the endpoint.

use super::host::HostPorts;
use super::open::{EndpointChoice, OpenError, OpenOptions};
use crate::progress::Tuning;
use mx_proto::Identity;
use std::time::{Duration, Instant};

/// Options with which an endpoint was opened and is to be opened again.
#[derive(Clone, Debug)]
pub struct ReopenOptions {
    options: OpenOptions,
    /// Settings of waiting threads.
    pub tuning: Tuning,
    /// Whether the endpoint has a helper thread.
    pub helper: bool,
    /// Time to wait for the parent to close the endpoint.
    timeout: Duration,
}

/// Time that the first attempt waits for the parent, which exits right after the fork if it daemonizes.
const PARENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between attempts.
const TRY_EVERY: Duration = Duration::from_millis(10);

impl ReopenOptions {
    /// Returns options for the given endpoint, or with [`EndpointChoice::Any`] for any free one.
    pub fn new(
        options: OpenOptions,
        endpoint: EndpointChoice,
        tuning: Tuning,
        helper: bool,
    ) -> Self {
        Self {
            options: OpenOptions {
                endpoint,
                ..options
            },
            tuning,
            helper,
            timeout: PARENT_TIMEOUT,
        }
    }

    /// Returns the requested board number.
    pub fn board(&self) -> Option<u32> {
        self.options.board
    }

    /// Returns the options for one attempt; later attempts do not wait.
    pub fn attempt(&mut self) -> Self {
        let attempt = self.clone();
        self.timeout = Duration::ZERO;
        attempt
    }

    /// Opens the endpoint, waiting while its number is in use.
    pub fn open(&self) -> Result<(Box<HostPorts>, Identity), OpenError> {
        let until = Instant::now() + self.timeout;
        loop {
            match HostPorts::open(self.options.clone()) {
                Err(OpenError::InUse { .. }) if Instant::now() < until => {
                    std::thread::sleep(TRY_EVERY);
                }
                other => return other,
            }
        }
    }

    /// Records that the endpoint is open: the first attempt in a child waits again.
    pub fn opened(self) -> Self {
        Self {
            timeout: PARENT_TIMEOUT,
            ..self
        }
    }
}
