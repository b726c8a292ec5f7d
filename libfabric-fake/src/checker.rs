//! Who broke which rule, and what was counted.
//!
//! ```text
//!   every call --- a rule broken? ---> violations (text)      the test fails on any
//!             `--- an event ---------> stats                  the test compares
//! ```
//!
//! Owns: the list of violations, the counters, checksums of lent memory, canaries.
//! Knows nothing of: what happens to a call that broke a rule; it is refused where a provider
//! would, and goes on where a provider would not have noticed.

/// What happened, for tests that want to see a fault really occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages accepted, injected ones included.
    pub sends: u64,
    /// Of those, injected ones.
    pub injects: u64,
    /// Receives accepted.
    pub receives: u64,
    /// Reads and writes of remote memory accepted.
    pub remotes: u64,
    /// Messages written into a receive's memory.
    pub delivered: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// `-FI_EAGAIN` given to posts, for whatever reason.
    pub again: u64,
    /// Error completions queued.
    pub errors: u64,
    /// Receives cut without an error.
    pub short: u64,
    /// Messages longer than their receive.
    pub truncated: u64,
    /// Accesses to remote memory that were denied.
    pub denied: u64,
    /// Completions that overtook others.
    pub reordered: u64,
    /// Send completions kept back.
    pub late: u64,
    /// Messages that waited for a receive.
    pub unexpected: u64,
    /// Messages not taken in because too many of their peer wait.
    pub stalls: u64,
    /// Registrations refused.
    pub unregistered: u64,
    /// Packets of the provider's own.
    pub empty: u64,
    /// Datagrams that got lost.
    pub lost: u64,
}

/// The most violations kept; a test that breaks one rule breaks it often.
const KEPT: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Checker {
    violations: Vec<String>,
    dropped: usize,
}

impl Checker {
    pub(crate) fn note(&mut self, text: String) {
        if self.violations.len() < KEPT {
            self.violations.push(text);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn list(&self) -> Vec<String> {
        let mut list = self.violations.clone();
        if self.dropped > 0 {
            list.push(format!("and {} more", self.dropped));
        }
        list
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// A stretch of memory, in numbers: what is lent is not dereferenced but to move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Span {
    pub(crate) fn new(start: usize, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) fn end(self) -> usize {
        self.start.saturating_add(self.len)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.len > 0 && other.len > 0 && self.start < other.end() && other.start < self.end()
    }

    pub(crate) fn holds(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// The stretch without its first bytes.
    pub(crate) fn after(self, skip: usize) -> Self {
        let skip = skip.min(self.len);
        Self::new(self.start + skip, self.len - skip)
    }

    /// No more than its first bytes.
    pub(crate) fn first(self, most: usize) -> Self {
        Self::new(self.start, self.len.min(most))
    }
}

/// The stretches without the first `skip` bytes of all of them together.
pub(crate) fn skip(spans: &[Span], mut skip: usize) -> Vec<Span> {
    let mut left = Vec::with_capacity(spans.len());
    for span in spans {
        let taken = skip.min(span.len);
        skip -= taken;
        let rest = span.after(taken);
        if rest.len > 0 {
            left.push(rest);
        }
    }
    left
}

/// The first `most` bytes of all the stretches together.
pub(crate) fn first(spans: &[Span], mut most: usize) -> Vec<Span> {
    let mut head = Vec::with_capacity(spans.len());
    for span in spans {
        let part = span.first(most);
        most -= part.len;
        if part.len > 0 {
            head.push(part);
        }
    }
    head
}

pub(crate) fn total(spans: &[Span]) -> usize {
    spans
        .iter()
        .fold(0, |sum, span| sum.saturating_add(span.len))
}

/// FNV-1a over eight bytes at a time: enough to see a change, quick in debug builds.
pub(crate) struct Sum(u64);

impl Sum {
    pub(crate) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = u64::from_le_bytes([
                word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
            ]);
            self.0 = (self.0 ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(29);
        }
        for byte in words.remainder() {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::new();
        sum.add(bytes);
        sum.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_overlap_only_where_both_have_bytes() {
        let span = Span::new(100, 10);
        assert!(span.overlaps(Span::new(109, 1)));
        assert!(!span.overlaps(Span::new(110, 1)));
        assert!(!span.overlaps(Span::new(105, 0)));
        assert!(span.holds(Span::new(100, 10)) && !span.holds(Span::new(99, 2)));
    }

    #[test]
    fn stretches_are_cut_across_their_borders() {
        let spans = [Span::new(10, 4), Span::new(20, 4)];
        assert_eq!(skip(&spans, 5), [Span::new(21, 3)]);
        assert_eq!(first(&spans, 5), [Span::new(10, 4), Span::new(20, 1)]);
        assert_eq!(total(&spans), 8);
    }

    #[test]
    fn one_changed_bit_changes_the_sum() {
        let mut bytes = [7u8; 100];
        let before = Sum::of(&bytes);
        for index in 0..100 {
            bytes[index] ^= 1;
            assert_ne!(Sum::of(&bytes), before);
            bytes[index] ^= 1;
        }
    }

    #[test]
    fn violations_are_kept_up_to_a_limit() {
        let mut checker = Checker::default();
        (0..KEPT + 3).for_each(|n| checker.note(n.to_string()));
        assert_eq!(checker.list().len(), KEPT + 1);
        assert_eq!(checker.list()[KEPT], "and 3 more");
    }
}
