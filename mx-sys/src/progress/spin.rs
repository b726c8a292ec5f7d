//! Decides whether a wait polls before it sleeps.
//!
//! ```text
//!   wait ends within the limit    -->  credit = 8        spin at the next waits
//!   wait takes longer, or nothing -->  credit - 1 .. 0   sleep at once
//! ```
//!
//! A sleep adds 25 us and more, so polling for a while pays when an answer is likely to come soon:
//! in an exchange of messages. When nothing happens it never pays. A sleeping thread returns to
//! spinning, because an exchange in which both sides sleep still has its answers within the limit.

use std::time::Duration;

/// Waits that may spin in vain before spinning stops.
const CREDIT: u8 = 8;

/// The memory of how the last waits went.
#[derive(Debug)]
pub(super) struct Spin {
    limit: Duration,
    credit: u8,
}

impl Spin {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, credit: 0 }
    }

    /// The time to poll before sleeping; zero: none.
    #[inline]
    pub(super) fn budget(&self) -> Duration {
        match self.credit {
            0 => Duration::ZERO,
            _ => self.limit,
        }
    }

    /// It has been done, in vain.
    #[inline]
    pub(super) fn on_vain(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }

    /// A wait ended after `waited`, with or without what it was for.
    #[inline]
    pub(super) fn on_end(&mut self, found: bool, waited: Duration) {
        if found && waited < self.limit {
            self.credit = CREDIT;
        } else {
            self.credit = self.credit.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(200);

    #[test]
    fn fast_answers_start_spinning_and_silence_ends_it() {
        let mut spin = Spin::new(LIMIT);
        assert_eq!(spin.budget(), Duration::ZERO);
        spin.on_end(true, LIMIT);
        assert_eq!(spin.budget(), Duration::ZERO);
        spin.on_end(true, LIMIT / 2);
        assert_eq!(spin.budget(), LIMIT);
        for _ in 0..3 {
            spin.on_vain();
            spin.on_end(false, LIMIT);
            assert_eq!(spin.budget(), LIMIT);
        }
        spin.on_vain();
        spin.on_end(true, LIMIT * 9);
        assert_eq!(spin.budget(), Duration::ZERO);
    }

    #[test]
    fn with_a_limit_of_zero_no_thread_ever_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        spin.on_end(true, Duration::ZERO);
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
