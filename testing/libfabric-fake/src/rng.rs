//! Random numbers from a seed: SplitMix64.
//!
//! ```text
//!   state += golden ratio;  output = mix(state)
//! ```

/// A generator; equal seeds give equal sequences on every machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `most`, both included.
    pub(crate) fn upto(&mut self, most: u32) -> u32 {
        if most == 0 {
            0
        } else {
            (self.bits() % (u64::from(most) + 1)) as u32
        }
    }

    /// Returns true with this probability; 0 draws no number, so that an unused fault does not
    /// change a run.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.bits() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.bits() == b.bits()));
    }

    #[test]
    fn bounds_and_probabilities_are_kept() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.upto(7) <= 7));
        assert!((0..1000).all(|_| !rng.chance(0.0)));
        assert!((0..1000).all(|_| rng.chance(1.0)));
        let hits = (0..10_000).filter(|_| rng.chance(0.2)).count();
        assert!((1_700..2_300).contains(&hits), "{hits} of 10000");
    }
}
