//! Random numbers that a seed repeats.

/// SplitMix64: what it gives depends on the seed and on nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to one less than `n`; 0 when that is nothing.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }

    /// From `least` to `most`, each power of two as often as any other: small ones are not drowned
    /// by large ones.
    pub(crate) fn spread(&mut self, least: usize, most: usize) -> usize {
        let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
        let share = self.below(1 << 24) as f64 / f64::from(1 << 24);
        let value = (low + (high - low) * share).exp() as usize;
        value.clamp(least, most.max(least))
    }

    /// The same things in another order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_within_their_limits() {
        let (mut one, mut other) = (Dice::new(7), Dice::new(7));
        for _ in 0..1000 {
            let n = one.spread(64, 4096);
            assert_eq!(n, other.spread(64, 4096));
            assert!((64..=4096).contains(&n), "{n}");
            assert!(one.below(3) < 3);
            other.below(3);
        }
        assert_eq!((one.below(0), one.spread(5, 5)), (0, 5));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut things: Vec<usize> = (0..50).collect();
        Dice::new(1).shuffle(&mut things);
        assert_ne!(things, (0..50).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..50).collect::<Vec<_>>());
    }
}
