//! Time-out for the other side.

use std::time::{Duration, Instant};

/// Maximum time without an event.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Polls without an event between two readings of the clock.
const LOOKS: u32 = 1 << 16;

/// A time-out that reads the clock rarely.
#[derive(Default)]
pub(crate) struct Timeout {
    empty: u32,
    since: Option<Instant>,
}

impl Timeout {
    /// Called when a poll found nothing; fails when that has lasted for too long.
    #[inline]
    pub(crate) fn try_again(&mut self, name: &str) -> Result<(), String> {
        self.empty += 1;
        if self.empty < LOOKS {
            return Ok(());
        }
        self.empty = 0;
        match self.since.get_or_insert_with(Instant::now).elapsed() {
            passed if passed > TIMEOUT => Err(format!("{name}: nothing happened for {TIMEOUT:?}")),
            _ => Ok(()),
        }
    }
}
