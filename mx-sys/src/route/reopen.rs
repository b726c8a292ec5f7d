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

/// Options with which an endpoint was opened, kept to open it again in a child of `fork`.
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
    /// Returns options with `endpoint` in place of the number in `options`; [`EndpointChoice::Any`] lets a child open
    /// another number than its parent's.
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

    /// Returns the requested board number; `None` if none was requested.
    pub fn board(&self) -> Option<u32> {
        self.options.board
    }

    /// Returns the options for the next attempt to open. The first attempt waits for the parent to close the endpoint;
    /// this call makes later ones fail at once instead.
    pub fn attempt(&mut self) -> Self {
        let attempt = self.clone();
        self.timeout = Duration::ZERO;
        attempt
    }

    /// Opens the endpoint. While its number is in use, the first attempt retries for two seconds; later ones fail at
    /// once.
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

    /// Returns these options after the endpoint has been opened, so that the first attempt in another child waits
    /// again.
    pub fn opened(self) -> Self {
        Self {
            timeout: PARENT_TIMEOUT,
            ..self
        }
    }
}
