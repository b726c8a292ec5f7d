//! Receive window: the sequence numbers of one peer's segments that have arrived.
//!
//! ```text
//!        cumulative                              cumulative + capacity
//!            |                                             |
//!   all here )  hole   [here]  hole  [here]                )  rejected
//!               0 0 0   1 1    0 0    1 1 1  0 0 0 ...        a ring of bits
//! ```
//!
//! Owns: a bit for every number, allocated with the first early segment.
//! Out of scope: bytes, fragments, the peer.
//! Cost: detecting and marking are O(1); no memory as long as everything comes in order.

use super::seq::Seq;

/// Number of words of bits in one acknowledgement: one in the header, 16 after it.
pub(super) const SACK_WORDS: usize = 17;

/// Result of looking up a segment in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The segment is the next one in sequence.
    Next,
    /// Earlier segments are missing.
    Early,
    /// The segment has arrived before.
    Duplicate,
    /// The segment is beyond the window.
    Outside,
}

#[derive(Debug)]
pub(super) struct RecvWindow {
    next: Seq,
    /// Bit `seq % (64 * len)` is set for every early number; empty, or a power of two of words with at least `capacity`
    /// bits.
    bits: Box<[u64]>,
    /// Number of set bits.
    early: u32,
    /// Distance from `next` to the end of the last early number; 0 if there is none.
    reach: u32,
    capacity: u16,
}

impl RecvWindow {
    /// Makes a window that expects `first`. `capacity` is at most 32768.
    pub(super) fn new(first: Seq, capacity: u16) -> Self {
        Self {
            next: first,
            bits: Box::default(),
            early: 0,
            reach: 0,
            capacity,
        }
    }

    /// Returns the number up to which everything has arrived.
    #[inline]
    pub(super) fn cumulative(&self) -> Seq {
        self.next
    }

    /// Returns whether an earlier segment is missing before one that has arrived.
    #[inline]
    pub(super) fn has_holes(&self) -> bool {
        self.early > 0
    }

    /// Looks up a number; changes nothing.
    #[inline]
    pub(super) fn verdict(&self, seq: Seq) -> Verdict {
        if seq == self.next {
            return Verdict::Next;
        }
        if seq.precedes(self.next) {
            return Verdict::Duplicate;
        }
        if seq.since(self.next) >= u32::from(self.capacity) {
            return Verdict::Outside;
        }
        let (word, bit) = self.locate(seq);
        match self.bits.get(word) {
            Some(bits) if bits >> bit & 1 != 0 => Verdict::Duplicate,
            _ => Verdict::Early,
        }
    }

    /// Records that a number has arrived, if its verdict is `Next` or `Early`.
    #[inline]
    pub(super) fn mark(&mut self, seq: Seq) {
        match self.verdict(seq) {
            Verdict::Next => {
                self.next = self.next.ahead(1);
                self.reach = self.reach.saturating_sub(1);
                if self.early > 0 {
                    self.pass_over();
                }
            }
            Verdict::Early => self.mark_early(seq),
            Verdict::Duplicate | Verdict::Outside => {}
        }
    }

    /// Writes the early numbers into `out`: bit i of word w stands for `cumulative + 1 + 64 w + i`. Returns the number
    /// of words in use.
    pub(super) fn sack_words(&self, out: &mut [u64; SACK_WORDS]) -> usize {
        // The bit of `next` itself is not included.
        let bits = self.reach.saturating_sub(1);
        let words = (bits.div_ceil(64) as usize).min(SACK_WORDS);
        for (word, slot) in out.iter_mut().take(words).enumerate() {
            let from = 64 * word as u32;
            let left = bits - from;
            let mask = if left < 64 { (1 << left) - 1 } else { u64::MAX };
            *slot = self.window_at(self.next.ahead(1 + from)) & mask;
        }
        out.iter()
            .take(words)
            .rposition(|&word| word != 0)
            .map_or(0, |last| last + 1)
    }

    pub(super) fn shrink(&mut self) {
        if self.early == 0 {
            self.bits = Box::default();
        }
    }

    fn mark_early(&mut self, seq: Seq) {
        if self.bits.is_empty() {
            let words = usize::from(self.capacity).div_ceil(64).next_power_of_two();
            self.bits = vec![0; words].into_boxed_slice();
        }
        let (word, bit) = self.locate(seq);
        self.bits[word] |= 1 << bit;
        self.early += 1;
        self.reach = self.reach.max(seq.since(self.next) + 1);
    }

    /// Advances `next` over numbers that have arrived without a hole, a word at a time.
    fn pass_over(&mut self) {
        while self.early > 0 {
            let here = self.window_at(self.next).trailing_ones();
            if here == 0 {
                return;
            }
            // Not beyond the end of a word, so that only one word changes.
            let (word, bit) = self.locate(self.next);
            let here = here.min(64 - bit);
            let mask = if here < 64 { (1 << here) - 1 } else { u64::MAX };
            self.bits[word] &= !(mask << bit);
            self.early -= here;
            self.next = self.next.ahead(here);
            self.reach = self.reach.saturating_sub(here);
        }
    }

    /// Returns word and bit of a number; the word is out of range if there are no bits.
    #[inline]
    fn locate(&self, seq: Seq) -> (usize, u32) {
        let words = self.bits.len();
        ((seq.0 / 64) as usize & words.wrapping_sub(1), seq.0 % 64)
    }

    /// Returns the bits of the 64 numbers from `seq` on.
    fn window_at(&self, seq: Seq) -> u64 {
        if self.bits.is_empty() {
            return 0;
        }
        let (word, bit) = self.locate(seq);
        let low = self.bits[word] >> bit;
        if bit == 0 {
            return low;
        }
        let after = (word + 1) & (self.bits.len() - 1);
        low | self.bits[after] << (64 - bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const START: Seq = Seq(u32::MAX - 9);

    fn sack(window: &RecvWindow) -> Vec<u64> {
        let mut words = [u64::MAX; SACK_WORDS];
        let used = window.sack_words(&mut words);
        words[..used].to_vec()
    }

    #[test]
    fn a_hole_is_told_and_closed() {
        let mut window = RecvWindow::new(START, 1024);
        for i in [1, 3, 4, 70] {
            assert_eq!(window.verdict(START.ahead(i)), Verdict::Early);
            window.mark(START.ahead(i));
            assert_eq!(window.verdict(START.ahead(i)), Verdict::Duplicate);
        }
        assert_eq!(sack(&window), [0b1101, 1 << 5]);
        window.mark(START);
        assert_eq!(window.cumulative(), START.ahead(2));
        assert_eq!(sack(&window), [0b11, 1 << 3]);
        window.mark(START.ahead(2));
        assert_eq!(window.cumulative(), START.ahead(5));
        assert_eq!(sack(&window), [0, 1]);
        (5..70).for_each(|i| window.mark(START.ahead(i)));
        assert_eq!(window.cumulative(), START.ahead(71));
        assert!(sack(&window).is_empty() && !window.has_holes());
        window.shrink();
        assert!(window.bits.is_empty());
    }

    #[test]
    fn segments_beyond_an_acknowledgements_bits_are_omitted() {
        let mut window = RecvWindow::new(START, 32_768);
        window.mark(START.ahead(1088));
        assert_eq!(sack(&window).last(), Some(&(1 << 63)));
        let mut window = RecvWindow::new(START, 32_768);
        window.mark(START.ahead(1089));
        assert!(sack(&window).is_empty() && window.has_holes());
        window.mark(START.ahead(32_767));
        window.mark(START.ahead(1));
        assert_eq!(sack(&window), [1]);
    }

    #[test]
    fn any_order_gives_what_a_set_of_numbers_gives() {
        let mut random = 1u64;
        for capacity in [3u16, 64, 100, 1024] {
            let mut window = RecvWindow::new(START, capacity);
            let (mut here, mut next) = (BTreeSet::new(), 0u32);
            for _ in 0..20_000 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                // Mostly near the edge, so that it moves.
                let span = if random >> 60 < 12 {
                    6
                } else {
                    u64::from(capacity) + 4
                };
                let at = next
                    .wrapping_sub(2)
                    .wrapping_add(((random >> 33) % span) as u32);
                let ahead = at.wrapping_sub(next);
                let expected = match ahead {
                    0 => Verdict::Next,
                    ahead if ahead > u32::MAX / 2 || here.contains(&at) => Verdict::Duplicate,
                    ahead if ahead >= u32::from(capacity) => Verdict::Outside,
                    _ => Verdict::Early,
                };
                assert_eq!(window.verdict(START.ahead(at)), expected);
                window.mark(START.ahead(at));
                if matches!(expected, Verdict::Next | Verdict::Early) {
                    here.insert(at);
                }
                while here.remove(&next) {
                    next += 1;
                }
                assert_eq!(window.cumulative(), START.ahead(next));
                assert_eq!(window.has_holes(), !here.is_empty());
                let mut words = [0u64; SACK_WORDS];
                for bit in here.iter().map(|at| (at - next - 1) as usize) {
                    words[bit / 64] |= 1 << (bit % 64);
                }
                let used = words
                    .iter()
                    .rposition(|&word| word != 0)
                    .map_or(0, |last| last + 1);
                assert_eq!(sack(&window), words[..used]);
            }
        }
    }
}
