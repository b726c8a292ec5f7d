//! Access to the user's memory.
//!
//! ```text
//!   gather(spans)          spans ----> Vec
//!   scatter(spans, bytes)  Vec ------> spans
//!   fill(span, pattern)    pattern --> span
//! ```
//!
//! Owns: every access to memory that was lent to the provider.
//! Out of scope: the check that an access is allowed. Memory that its user freed too early is
//! accessed all the same, as an adapter would.

use crate::checker::Span;

/// Returns the bytes of the spans, one after the other.
pub(crate) fn gather(spans: &[Span]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(crate::checker::total(spans));
    for span in spans.iter().filter(|span| span.len > 0) {
        // SAFETY: libfabric's contract obliges the poster or registrant to keep the memory valid
        // until the operation ends; it has not ended.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(span.start as *const u8, span.len)
        });
    }
    bytes
}

/// Writes as many bytes as fit into the spans.
pub(crate) fn scatter(spans: &[Span], mut bytes: &[u8]) {
    for span in spans {
        let (now, later) = bytes.split_at(span.len.min(bytes.len()));
        if !now.is_empty() {
            // SAFETY: as in `gather`, and writable: it was posted or registered for writing. It
            // does not overlap `now`, which is the fake's own.
            unsafe {
                std::ptr::copy_nonoverlapping(now.as_ptr(), span.start as *mut u8, now.len());
            }
        }
        bytes = later;
    }
}

/// Returns a checksum of the spans' bytes.
pub(crate) fn sum(spans: &[Span]) -> u64 {
    crate::checker::sum(&gather(spans))
}

/// Writes a pattern that depends on the seed.
pub(crate) fn fill(span: Span, seed: u64) {
    scatter(&[span], &pattern(span.len, seed));
}

/// Returns true if the pattern is unchanged.
pub(crate) fn is_filled(span: Span, seed: u64) -> bool {
    gather(&[span]) == pattern(span.len, seed)
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let byte = |index: usize| 0xa5 ^ (seed as u8) ^ (index as u8).wrapping_mul(29);
    (0..len).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_and_come_back_across_stretches() {
        let mut memory = [0u8; 16];
        let start = memory.as_mut_ptr() as usize;
        let spans = [Span::new(start, 3), Span::new(start + 8, 4)];
        scatter(&spans, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(gather(&spans), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(memory[3..8], [0; 5]);
    }

    #[test]
    fn a_pattern_is_known_again_until_touched() {
        let mut memory = [0u8; 16];
        let span = Span::new(memory.as_mut_ptr() as usize, 16);
        fill(span, 3);
        assert!(is_filled(span, 3) && !is_filled(span, 4));
        scatter(&[span.after(15)], &[0]);
        assert!(!is_filled(span, 3));
    }
}
