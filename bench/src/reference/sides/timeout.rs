//! When the other side is given up.

use std::time::{Duration, Instant};

/// The time that may pass without an event.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Looks that found nothing between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// Looks at the clock now and then only.
#[derive(Default)]
pub(crate) struct Timeout {
    empty: u32,
    since: Option<Instant>,
}

impl Timeout {
    /// Nothing has happened again; an error when that goes on for too long.
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
