//! Decides whether a wait polls before it sleeps, and when a polling thread offers its processor to others.
//!
//! ```text
//!   wait ends within the limit    -->  score + 1, to 16     8 and more: spin at the next waits
//!   wait takes longer, or nothing -->  score - 2, to 0      less: sleep at once
//!   spin in vain                  -->  score - 2
//!
//!   a spin:  64 polls, then sched_yield after every second one
//!     yield takes 1 ms and more   -->  sleep; no spin at the next 16 waits, twice as many each time, to 1024
//! ```
//!
//! The time of a wait counts from its last event, because a large message arrives in many parts.
//! The limit is halved where polls are system calls: they take more from the thread that is to answer, and an answer
//! through the kernel gains less. (Over tcp the client of a 4 KiB read in OrangeFS takes twice the processor time with
//! the whole limit.)
//!
//! A sleep adds 25 us and more, so polling pays when an answer is likely to arrive soon: in an exchange of messages. A
//! vain spin costs several times as much processor time, so four waits of five have to end within the limit. A sleeping
//! thread returns to spinning, because an exchange in which both sides sleep still has its answers within the limit.
//!
//! The thread that is to answer may need the processor that a spin takes: another thread of the process (a file
//! server's), or another process. Yielding lets them run; without such threads a yield costs a fraction of a
//! microsecond, and yields begin only when an answer is slower than a message over shared memory. A computing program
//! keeps the processor for milliseconds, and the kernel prefers a thread that wakes up to one that yields: beside such
//! a program waits sleep.

use std::time::Duration;

/// Score from which waits spin.
const SPINS: u8 = 8;
/// Highest score.
const BEST: u8 = 16;
/// Loss of score for a wait beyond the limit, and for a spin in vain.
const LOSS: u8 = 2;

/// Number of polls of a spin before the first yield: an exchange of small messages over shared memory takes fewer.
/// Loom's models, whose spins are short, yield at once.
pub(super) const POLLS_BEFORE_YIELDING: u32 = if cfg!(loom) { 1 } else { 64 };
/// Number of polls from one yield to the next.
pub(super) const POLLS_PER_YIELD: u32 = 2;
/// Yield duration that indicates a computing program. Threads that handle messages return the processor sooner.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Number of waits that sleep at once after a long yield: initial value and maximum.
const RESTS: (u16, u16) = (16, 1024);

/// History of recent waits.
#[derive(Debug)]
pub(super) struct Spin {
    limit: Duration,
    score: u8,
    /// Number of waits that the next long yield doubles and makes sleep at once. Decremented for every successful spin.
    rest: u16,
    /// Number of waits left that sleep at once because of a long yield.
    resting: u16,
}

impl Spin {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            score: 0,
            rest: 0,
            resting: 0,
        }
    }

    /// Returns the time to poll before sleeping; zero: sleep at once. `in_memory`: polls make no system calls.
    #[inline]
    pub(super) fn budget(&self, in_memory: bool) -> Duration {
        if self.score < SPINS || self.resting > 0 {
            Duration::ZERO
        } else {
            self.limit(in_memory)
        }
    }

    fn limit(&self, in_memory: bool) -> Duration {
        if in_memory {
            self.limit
        } else {
            self.limit / 2
        }
    }

    /// Records a yield of a spinning thread. Returns whether it was so long that the thread should sleep.
    #[inline]
    pub(super) fn on_yield(&mut self, took: Duration) -> bool {
        let long = took >= LONG_YIELD;
        if long {
            self.rest = (self.rest * 2).clamp(RESTS.0, RESTS.1);
            self.resting = self.rest;
        }
        long
    }

    /// Records a spin that found what it waited for.
    #[inline]
    pub(super) fn on_found(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// Records a spin, or a wait, in vain.
    #[inline]
    pub(super) fn on_vain(&mut self) {
        self.score = self.score.saturating_sub(LOSS);
    }

    /// Records the end of a wait, `waited` after its last event before that end. `found`: whether the wait succeeded;
    /// `in_memory` as in [`Self::budget`].
    #[inline]
    pub(super) fn on_end(&mut self, found: bool, waited: Duration, in_memory: bool) {
        self.resting = self.resting.saturating_sub(1);
        if found && waited < self.limit(in_memory) {
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

    /// Simulates a wait whose answer comes after `waited`. Returns whether the thread spins.
    fn wait(spin: &mut Spin, waited: Duration) -> bool {
        let spins = !spin.budget(true).is_zero();
        if spins && waited >= LIMIT {
            spin.on_vain();
        }
        spin.on_end(true, waited, true);
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
            spin.on_end(true, LIMIT / 2, true);
        }
        assert_eq!(spin.budget(true), LIMIT);
        spin.on_end(false, LIMIT / 2, true);
        assert_eq!(spin.budget(true), Duration::ZERO);
    }

    #[test]
    fn spinning_survives_one_slow_wait_in_ten_not_in_three() {
        let spins_at = |slow: u32| {
            let mut spin = Spin::new(LIMIT);
            let every = |n: u32| if n % slow == 0 { LIMIT } else { LIMIT / 2 };
            let spins = (0..1000).map(|n| wait(&mut spin, every(n)));
            spins.filter(|spins| *spins).count()
        };
        assert!(spins_at(10) > 950, "{}", spins_at(10));
        assert!(spins_at(3) < 100, "{}", spins_at(3));
    }

    /// Returns a spinner in an exchange of fast answers.
    fn spinning() -> Spin {
        let mut spin = Spin::new(LIMIT);
        for _ in 0..BEST {
            wait(&mut spin, LIMIT / 2);
        }
        assert_eq!(spin.budget(true), LIMIT);
        spin
    }

    /// Counts the waits until a thread spins again.
    fn waits_until_it_spins(spin: &mut Spin) -> usize {
        let waits = (0..).take_while(|_| !wait(spin, LIMIT / 2));
        waits.count()
    }

    #[test]
    fn a_short_yield_changes_nothing() {
        let mut spin = spinning();
        assert!(!spin.on_yield(LONG_YIELD - Duration::from_nanos(1)));
        assert_eq!(spin.budget(true), LIMIT);
    }

    #[test]
    fn each_long_yield_stops_spinning_for_longer() {
        let mut spin = spinning();
        let stops = (0..9).map(|_| {
            assert!(spin.on_yield(LONG_YIELD));
            waits_until_it_spins(&mut spin)
        });
        let stops: Vec<_> = stops.collect();
        assert_eq!(stops, [16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
    }

    #[test]
    fn spins_that_find_shorten_the_next_rest() {
        let mut spin = spinning();
        spin.on_yield(LONG_YIELD);
        spin.on_yield(LONG_YIELD);
        waits_until_it_spins(&mut spin);
        for _ in 0..12 {
            spin.on_found();
        }
        spin.on_yield(LONG_YIELD);
        assert_eq!(waits_until_it_spins(&mut spin), 40);
    }

    #[test]
    fn where_polls_are_system_calls_a_wait_has_to_end_sooner() {
        let mut spin = spinning();
        assert_eq!(spin.budget(false), LIMIT / 2);
        for _ in 0..4 {
            spin.on_end(true, LIMIT / 2, true);
        }
        assert_eq!(spin.budget(false), LIMIT / 2);
        for _ in 0..5 {
            spin.on_end(true, LIMIT / 2, false);
        }
        assert_eq!(spin.budget(false), Duration::ZERO);
    }

    #[test]
    fn with_a_limit_of_zero_no_thread_ever_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        for _ in 0..20 {
            spin.on_end(true, Duration::ZERO, true);
        }
        assert_eq!(spin.budget(true), Duration::ZERO);
    }
}
