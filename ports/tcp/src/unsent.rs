//! Bound of the unsent bytes that the kernel keeps for a link.
//!
//! ```text
//!   sendmsg --> [ not sent yet: as much as the link sends in 2 ms ] --> [ in flight ] --> peer
//!                 `-- full: the port waits for room, and urgent packets go first
//! ```
//!
//! The kernel lets a socket buffer grow to megabytes, which take tens of milliseconds over 1 Gbit/s; a short message
//! posted meanwhile would wait for all of them. So a link that has been full limits the unsent bytes in the kernel
//! (`TCP_NOTSENT_LOWAT`), derived from the rate at which the peer has acknowledged bytes; packets of bulk data become
//! half as long. Bytes in flight do not count. Over loopback and fast networks the bound exceeds the kernel's own
//! limit, and nothing changes.
//!
//! Owns: the bound of one link.
//! Cost: nothing for a link that has never been full; two system calls for every 32 times that it is.

use super::sys::{self, Progress};
use socket2::Socket;

/// Bound of a link; allocated when the link is first full.
#[derive(Debug, Default)]
pub(super) struct Unsent(Option<Box<Bound>>);

#[derive(Debug, Default)]
struct Bound {
    /// Maximum unsent bytes in the kernel; 0: no bound.
    bytes: u32,
    /// Number of times that the kernel had no room.
    full: u32,
    /// Progress of the link when its rate was last measured.
    before: Progress,
}

impl Unsent {
    /// Returns the maximum of unsent bytes in the kernel; `None`: no bound.
    pub(super) fn bound(&self) -> Option<u32> {
        let bytes = self.0.as_ref()?.bytes;
        (bytes > 0).then_some(bytes)
    }

    /// Counts that the kernel has no room for a link's bytes, and adapts the bound now and then.
    pub(super) fn note_full(&mut self, socket: &Socket) {
        self.0.get_or_insert_default().note_full(socket);
    }
}

impl Bound {
    fn note_full(&mut self, socket: &Socket) {
        self.full = self.full.wrapping_add(1);
        if !self.full.is_power_of_two() && self.full % LOOK_EVERY != 0 {
            return;
        }
        let Some(now) = sys::progress(socket) else {
            return;
        };
        let Some(bytes) = bound_after(self.before, now) else {
            return;
        };
        self.before = now;
        let differs = bytes.abs_diff(self.bytes) > self.bytes / 4;
        // A kernel without the option has no bound.
        if differs && sys::bound_unsent(socket, bytes).is_ok() {
            self.bytes = bytes;
        }
    }
}

/// Returns the bound from the rate between two measurements; 0: no bound. `None`: too little time has passed.
fn bound_after(before: Progress, now: Progress) -> Option<u32> {
    let busy_us = now.busy_us.wrapping_sub(before.busy_us);
    let bytes = now.acked.wrapping_sub(before.acked);
    let rate_ms = bytes.saturating_mul(1000).checked_div(busy_us)?;
    let bytes = rate_ms.saturating_mul(UNSENT_MS);
    (busy_us >= SPAN_US).then(|| match bytes {
        BOUND_MOST.. => 0,
        bytes => bytes.max(BOUND_LEAST) as u32,
    })
}

/// Milliseconds of a link's rate that may wait in the kernel: a thread that takes longer to send more leaves the link
/// idle.
const UNSENT_MS: u64 = 2;
/// Minimum bound in bytes, so that slow links cost no more wake-ups than fast ones.
const BOUND_LEAST: u64 = 128 << 10;
/// Bytes from which the kernel's own limit applies instead (`tcp_wmem`, usually 4 MiB).
const BOUND_MOST: u64 = 3 << 20;
/// Minimum sending time for a measurement, in microseconds: acknowledgements arrive in bursts.
const SPAN_US: u64 = 4000;
/// Times that a link is full between two measurements.
const LOOK_EVERY: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_two_milliseconds_of_the_rate_within_limits() {
        let before = Progress {
            acked: 1 << 40,
            busy_us: 77_000,
        };
        let after = |acked, busy_us| {
            let now = Progress {
                acked: before.acked + acked,
                busy_us: before.busy_us + busy_us,
            };
            bound_after(before, now)
        };
        assert_eq!(after(1_250_000, 10_000), Some(250_000));
        assert_eq!(after(62_500, 10_000), Some(128 << 10));
        assert_eq!(after(50_000_000, 10_000), Some(0));
        assert_eq!(after(u64::MAX / 2, 10_000), Some(0));
        assert_eq!(after(125_000, 1000), None);
        assert_eq!(after(125_000, 0), None);
    }
}
