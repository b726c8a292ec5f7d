//! Where bytes wait for their turn on something that is only so fast.
//!
//! ```text
//!   bytes --> [ waiting ........ | limit ]--> rate bytes a second -->
//!                                 `- what does not fit any more is lost (drop-tail)
//! ```

use mx_proto::Instant;
use std::time::Duration;

/// A queue that is empty to begin with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    /// When the last byte accepted will have left.
    busy_until: Instant,
}

impl Queue {
    /// When the last of `len` bytes that come now will have left; `None`: they do not fit.
    pub fn pass(&mut self, now: Instant, len: usize, rate: u64, limit: usize) -> Option<Instant> {
        let start = self.busy_until.max(now);
        let waiting = start.since(now).as_secs_f64() * rate as f64;
        if waiting + len as f64 > limit as f64 {
            return None;
        }
        let nanos = (len as u64).saturating_mul(1_000_000_000) / rate.max(1);
        self.busy_until = start.after(Duration::from_nanos(nanos));
        Some(self.busy_until)
    }
}

/// A link that all senders to one node share: the switch's port it is connected to.
#[derive(Clone, Copy, Debug)]
pub struct Bottleneck {
    rate: u64,
    limit: usize,
    queue: Queue,
}

impl Bottleneck {
    /// So many bytes a second, and so many that wait at most.
    pub fn new(rate: u64, limit: usize) -> Self {
        Self {
            rate,
            limit,
            queue: Queue::default(),
        }
    }

    /// As [`Queue::pass`]. Calls must come in the order of time.
    pub fn pass(&mut self, now: Instant, len: usize) -> Option<Instant> {
        self.queue.pass(now, len, self.rate, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_and_overflow_is_lost() {
        let mut bottleneck = Bottleneck::new(1000, 20);
        let first = bottleneck.pass(Instant(0), 10).expect("there is room");
        let second = bottleneck.pass(Instant(0), 10).expect("there is room");
        assert_eq!(first, Instant(10_000_000));
        assert_eq!(second.since(first), Duration::from_millis(10));
        assert_eq!(bottleneck.pass(Instant(0), 1), None);
        assert!(bottleneck.pass(first, 10).is_some(), "ten bytes have left");
    }
}
