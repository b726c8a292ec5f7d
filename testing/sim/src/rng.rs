//! Random numbers from a seed: SplitMix64.
//!
//! ```text
//!   state += golden ratio;  output = mix(state)        fork(): a generator of its own
//! ```
//!
//! Not for secrets.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A generator; equal seeds give equal sequences on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts from a seed; any will do.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of a plain remainder is below 2^-32 for every bound used here.
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number of the range, both ends included.
    pub fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        let (low, high) = (*range.start(), *range.end());
        low + self.below((high - low) as u64 + 1) as usize
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A span of at most `most`.
    pub fn span(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }

    /// Picks one of several values.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// A generator of its own, so that two parts do not disturb each other's sequence.
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        let (first, second): (Vec<_>, Vec<_>) =
            (0..100).map(|_| (a.bits(), b.fork().bits())).unzip();
        let mut again = Rng::new(7);
        assert!(first.iter().all(|bits| *bits == again.bits()));
        assert_ne!(first, second);
    }

    #[test]
    fn the_published_first_output_for_seed_zero_comes_out() {
        assert_eq!(Rng::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn bounds_and_probabilities_are_kept() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).all(|_| (3..=5).contains(&rng.within(3..=5))));
        assert!((0..1000).all(|_| !rng.chance(0.0)));
        assert!((0..1000).all(|_| rng.chance(1.0)));
        let hits = (0..10_000).filter(|_| rng.chance(0.2)).count();
        assert!((1_700..2_300).contains(&hits), "{hits} of 10000");
        assert_eq!(rng.below(0), 0);
    }
}
