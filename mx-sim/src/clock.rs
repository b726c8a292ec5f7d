//! Virtual time: stands still until somebody moves it.
//!
//! Knows nothing of: what happens when. Clones show the same time.

use mx_proto::{Clock, Instant};
use std::cell::Cell;
use std::rc::Rc;

/// A clock that only the simulation moves.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now: Rc<Cell<Instant>>,
}

impl VirtualClock {
    /// A clock at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves to `to`; an earlier time than now is ignored.
    pub fn advance_to(&self, to: Instant) {
        if to > self.now.get() {
            self.now.set(to);
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.now.get()
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
