//! When the next train may go: a bucket that fills at the rate of the window.
//!
//! ```text
//!   rate = 1.25 (slow start: 2) * window / round trip
//!        |
//!        v
//!   +---------+  at most 64 KiB, or 1 ms at that rate
//!   | credit  |
//!   +---------+ ---> a train takes its bytes out
//! ```
//!
//! Owns: the credit. Knows nothing of: what is sent, the congestion controller.

use super::rtt::Rtt;
use crate::time::Instant;

/// The bucket of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    /// Bytes that may go at once.
    credit: u64,
    /// When it was last filled.
    filled_at: Instant,
}

impl Pacer {
    /// A full one.
    pub(super) fn new() -> Self {
        Self {
            credit: QUANTUM,
            filled_at: Instant(0),
        }
    }

    /// When `bytes` may go; `None`: now. A train larger than the bucket goes when that is full.
    pub(super) fn wait_until(
        &mut self,
        now: Instant,
        bytes: u64,
        window: u64,
        slow_start: bool,
        rtt: &Rtt,
    ) -> Option<Instant> {
        // Before the first measurement the initial window is all there is.
        let round = rtt.smoothed()?.as_nanos() as u64;
        let gain = if slow_start { 8 } else { 5 };
        let window = window.min(WINDOW_MAX);
        // Bytes in four milliseconds, so that small rates do not vanish.
        let per_ms = (window * gain * 1_000_000 / (round.max(1) * 4)).max(1);
        let depth = per_ms.max(QUANTUM);
        let passed = now.since(self.filled_at).as_nanos() as u64;
        let gained = u128::from(per_ms) * u128::from(passed) / 1_000_000;
        let gained = u64::try_from(gained).unwrap_or(u64::MAX);
        if gained > 0 {
            self.credit = self.credit.saturating_add(gained).min(depth);
            self.filled_at = now;
        }
        let missing = bytes.min(depth).saturating_sub(self.credit);
        if missing == 0 {
            return None;
        }
        let nanos = u128::from(missing) * 1_000_000 / u128::from(per_ms);
        Some(Instant(
            now.0.saturating_add(nanos as u64).saturating_add(1),
        ))
    }

    /// They went.
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(bytes);
    }
}

/// Least depth of the bucket: one train of the largest datagrams. Shorter ones would save the
/// network nothing, and cost a system call each.
const QUANTUM: u64 = 64 << 10;

/// Keeps the product in range.
const WINDOW_MAX: u64 = 1 << 32;
