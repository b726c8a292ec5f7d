//! Records violations of the rules, and counts events.
//!
//! ```text
//!   every call --- a rule broken? ---> violations (text)      the test fails on any
//!             `--- an event ---------> stats                  the test compares
//! ```
//!
//! Owns: the counters, spans and checksums of lent memory.
//! Out of scope: the effect on a call that breaks a rule: it is rejected if a provider would reject
//! it, and goes on if a provider would not notice.

use std::hash::{DefaultHasher, Hasher};

/// Counters of events, for tests that check that a fault really occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages accepted, including injected ones.
    pub sends: u64,
    /// Number of injected sends.
    pub injects: u64,
    /// Bytes in them, without prefixes.
    pub sent: u64,
    /// Reads and writes of remote memory accepted.
    pub remotes: u64,
    /// Completions read, including failed ones.
    pub completions: u64,
    /// Reads of completion queues.
    pub looks: u64,
    /// Registrations created.
    pub registrations: u64,
    /// Results `-FI_EAGAIN` of posts, for any reason.
    pub again: u64,
    /// Error completions queued.
    pub errors: u64,
    /// Receives truncated without an error.
    pub short: u64,
    /// Accesses to remote memory that were denied.
    pub denied: u64,
    /// Completions that were reordered.
    pub reordered: u64,
    /// Messages that waited for a receive.
    pub unexpected: u64,
    /// Messages held back because too many of their sender were waiting.
    pub stalls: u64,
    /// Registrations that failed.
    pub unregistered: u64,
    /// Datagrams that were lost.
    pub lost: u64,
}

/// A span of memory, as numbers: lent memory is dereferenced only to move it.
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

    /// Returns the span without its first bytes.
    pub(crate) fn after(self, skip: usize) -> Self {
        let skip = skip.min(self.len);
        Self::new(self.start + skip, self.len - skip)
    }

    /// Returns the first bytes of the span, at most `most`.
    pub(crate) fn first(self, most: usize) -> Self {
        Self::new(self.start, self.len.min(most))
    }
}

/// Returns the spans without their first `skip` bytes altogether.
pub(crate) fn skip(spans: &[Span], mut skip: usize) -> Vec<Span> {
    let rest = spans.iter().map(|span| {
        let taken = skip.min(span.len);
        skip -= taken;
        span.after(taken)
    });
    rest.filter(|span| span.len > 0).collect()
}

/// Returns the first `most` bytes of all spans together.
pub(crate) fn first(spans: &[Span], mut most: usize) -> Vec<Span> {
    let head = spans.iter().map(|span| {
        let part = span.first(most);
        most -= part.len;
        part
    });
    head.filter(|span| span.len > 0).collect()
}

pub(crate) fn total(spans: &[Span]) -> usize {
    spans
        .iter()
        .fold(0, |sum, span| sum.saturating_add(span.len))
}

/// Returns a checksum that detects changes.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
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
        let before = sum(&bytes);
        for index in 0..100 {
            bytes[index] ^= 1;
            assert_ne!(sum(&bytes), before);
            bytes[index] ^= 1;
        }
    }
}
