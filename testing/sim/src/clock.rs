//! Virtual time: stands still until it is advanced.
//!
//! Clones show the same time.

use mx_proto::{Clock, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A clock that only the simulation or the test advances.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now: Arc<AtomicU64>,
}

impl VirtualClock {
    /// Makes a clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances to `to`; an earlier time than now is ignored.
    pub fn advance_to(&self, to: Instant) {
        self.now.fetch_max(to.0, Relaxed);
    }

    /// Advances by `span`.
    pub fn advance(&self, span: Duration) {
        self.advance_to(self.now().after(span));
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        Instant(self.now.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_goes_back_and_clones_agree() {
        let clock = VirtualClock::new();
        let other = clock.clone();
        clock.advance_to(Instant(5));
        clock.advance_to(Instant(3));
        assert_eq!(other.now(), Instant(5));
    }
}
