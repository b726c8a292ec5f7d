//! How many fragments may be in flight: slow start, additive increase, halving.
//!
//! ```text
//!   limit:  16 -> doubles a round trip -> loss: halved -> +1 a round trip ...   time-out: 4
//! ```
//!
//! Knows nothing of: numbers, time. At most one halving per window in flight.

/// The limit of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    limit: u32,
    /// Above it, growth is slow.
    threshold: u32,
    /// Acknowledged since the last slow step.
    credit: u32,
    /// Fragments still to be acknowledged before another loss halves again.
    recovering: u32,
    cap: u32,
}

/// In flight at first: 16, what one pass sends (usnic's figure).
const INITIAL: u32 = 16;
/// Never less: three later arrivals must be possible, or a loss always costs a time-out.
const FLOOR: u32 = 4;

impl Congestion {
    pub(super) fn new(cap: u16) -> Self {
        let cap = u32::from(cap).max(FLOOR);
        Self {
            limit: INITIAL.min(cap),
            threshold: cap,
            credit: 0,
            recovering: 0,
            cap,
        }
    }

    /// Fragments that may be in flight.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// So many have arrived.
    pub(super) fn on_acked(&mut self, fragments: u32) {
        if self.recovering > 0 {
            self.recovering = self.recovering.saturating_sub(fragments);
            return;
        }
        if self.limit < self.threshold {
            self.limit = (self.limit + fragments).min(self.cap);
            return;
        }
        self.credit += fragments;
        if self.credit >= self.limit {
            self.credit -= self.limit;
            self.limit = (self.limit + 1).min(self.cap);
        }
    }

    /// Something was lost while so many were in flight.
    pub(super) fn on_lost(&mut self, in_flight: u32) {
        if self.recovering > 0 {
            return;
        }
        self.limit = (self.limit / 2).max(FLOOR);
        self.threshold = self.limit;
        self.credit = 0;
        self.recovering = in_flight.max(1);
    }

    /// Nothing at all came back.
    pub(super) fn on_timeout(&mut self) {
        self.threshold = (self.limit / 2).max(FLOOR);
        self.limit = FLOOR;
        self.credit = 0;
        self.recovering = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_fast_then_slowly_and_stops_at_the_cap() {
        let mut congestion = Congestion::new(64);
        congestion.on_acked(16);
        assert_eq!(congestion.limit(), 32);
        congestion.on_lost(32);
        assert_eq!(congestion.limit(), 16);
        congestion.on_acked(32);
        congestion.on_acked(16);
        assert_eq!(congestion.limit(), 17);
        (0..10_000).for_each(|_| congestion.on_acked(64));
        assert_eq!(congestion.limit(), 64);
    }

    #[test]
    fn several_losses_of_one_window_halve_once_and_the_floor_holds() {
        let mut congestion = Congestion::new(64);
        congestion.on_lost(16);
        congestion.on_lost(16);
        assert_eq!(congestion.limit(), 8);
        (0..10).for_each(|_| {
            congestion.on_acked(100);
            congestion.on_lost(1);
        });
        assert_eq!(congestion.limit(), FLOOR);
        congestion.on_timeout();
        assert_eq!(congestion.limit(), FLOOR);
    }
}
