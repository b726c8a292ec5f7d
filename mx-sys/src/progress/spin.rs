//! Decides whether a wait polls before it sleeps.
//!
//! ```text
//!   wait ends within the limit    -->  score + 1, to 16     8 and more: spin at the next waits
//!   wait takes longer, or nothing -->  score - 2, to 0      less: sleep at once
//!   spin in vain                  -->  score - 2
//! ```
//!
//! A sleep adds 25 us and more, so polling for a while pays when an answer is likely to come soon:
//! in an exchange of messages. A spin in vain takes several times as much from the processor, which the
//! thread that is to answer may need: so four waits of five have to end within the limit. A sleeping thread
//! returns to spinning, because an exchange in which both sides sleep still has its answers within the limit.

use std::time::Duration;

/// The score from which on waits spin.
const SPINS: u8 = 8;
/// The highest score.
const BEST: u8 = 16;
/// The part of the score that is lost for a wait beyond the limit, and for a spin in vain.
const LOSS: u8 = 2;

/// The memory of how the last waits went.
#[derive(Debug)]
pub(super) struct Spin {
    limit: Duration,
    score: u8,
}

impl Spin {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, score: 0 }
    }

    /// The time to poll before sleeping; zero: none.
    #[inline]
    pub(super) fn budget(&self) -> Duration {
        if self.score < SPINS {
            Duration::ZERO
        } else {
            self.limit
        }
    }

    /// A spin, or a wait, was in vain.
    #[inline]
    pub(super) fn on_vain(&mut self) {
        self.score = self.score.saturating_sub(LOSS);
    }

    /// A wait ended after `waited`, with or without what it was for.
    #[inline]
    pub(super) fn on_end(&mut self, found: bool, waited: Duration) {
        if found && waited < self.limit {
            self.score = (self.score + 1).min(BEST);
        } else {
            self.on_vain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(200);

    /// Whether the thread spins at a wait whose answer comes after `waited`.
    fn wait(spin: &mut Spin, waited: Duration) -> bool {
        let spins = !spin.budget().is_zero();
        if spins && waited >= LIMIT {
            spin.on_vain();
        }
        spin.on_end(true, waited);
        spins
    }

    #[test]
    fn fast_answers_start_spinning_and_slow_ones_end_it() {
        let mut spin = Spin::new(LIMIT);
        let spins =
            |spin: &mut Spin, waited| (0..20).map(|_| wait(spin, waited)).collect::<Vec<_>>();
        let begun = spins(&mut spin, LIMIT / 2);
        assert_eq!(begun.iter().position(|spins| *spins), Some(8));
        assert!(begun[8..].iter().all(|spins| *spins));
        let ended = spins(&mut spin, LIMIT);
        assert_eq!(ended.iter().filter(|spins| **spins).count(), 3);
        assert!(!ended[3..].contains(&true));
    }

    #[test]
    fn a_wait_without_a_result_counts_as_a_slow_one() {
        let mut spin = Spin::new(LIMIT);
        for _ in 0..8 {
            spin.on_end(true, LIMIT / 2);
        }
        assert_eq!(spin.budget(), LIMIT);
        spin.on_end(false, LIMIT / 2);
        assert_eq!(spin.budget(), Duration::ZERO);
    }

    #[test]
    fn one_slow_answer_of_ten_goes_on_spinning_and_one_of_three_does_not() {
        let spins_at = |slow: u32| {
            let mut spin = Spin::new(LIMIT);
            let every = |n: u32| if n % slow == 0 { LIMIT } else { LIMIT / 2 };
            let spins = (0..1000).map(|n| wait(&mut spin, every(n)));
            spins.filter(|spins| *spins).count()
        };
        assert!(spins_at(10) > 950, "{}", spins_at(10));
        assert!(spins_at(3) < 100, "{}", spins_at(3));
    }

    #[test]
    fn with_a_limit_of_zero_no_thread_ever_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..20 {
            spin.on_end(true, Duration::ZERO);
        }
        assert_eq!(spin.budget(), Duration::ZERO);
    }
}
