//! Opening an endpoint anew in a child of `fork`, as its parent opened it.
//!
//! ```text
//!   fork --> the parent ends:      its endpoint is free after a moment, and is opened
//!        `-> the parent goes on:   it is in use; the first attempt waits, and others fail at once
//! ```
//!
//! Owns: what an endpoint was opened with.

use super::host::HostPorts;
use super::open::{EndpointChoice, OpenError, OpenOptions};
use crate::progress::Tuning;
use mx_proto::Identity;
use std::time::{Duration, Instant};

/// The options an endpoint was opened with, and is to be opened with again.
#[derive(Clone, Debug)]
pub struct ReopenOptions {
    options: OpenOptions,
    /// Tuning of its waiting threads.
    pub tuning: Tuning,
    /// The endpoint has a helper thread.
    pub helper: bool,
    /// For the parent to let go.
    timeout: Duration,
}

/// The first attempt waits so long for the parent, which ends right after the fork if it daemonizes.
const PARENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of attempts meanwhile.
const TRY_EVERY: Duration = Duration::from_millis(10);

impl ReopenOptions {
    /// A request for the endpoint of now, or with [`EndpointChoice::Any`] for any that is free.
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

    /// The number of the board that was asked for.
    pub fn board(&self) -> Option<u32> {
        self.options.board
    }

    /// For one attempt; those after it do not wait.
    pub fn attempt(&mut self) -> Self {
        let attempt = self.clone();
        self.timeout = Duration::ZERO;
        attempt
    }

    /// Opens it.
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

    /// Records that the endpoint is open: a child of this process waits again.
    pub fn opened(self) -> Self {
        Self {
            timeout: PARENT_TIMEOUT,
            ..self
        }
    }
}
