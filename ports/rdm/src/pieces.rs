//! Memory cut into contiguous pieces.
//!
//! ```text
//!   segments   [ a: 40 KiB ][ b: 3 MiB                        ][ c: 100 KiB ]
//!   pieces     [ 40 KiB    ][ 1 MiB ][ 1 MiB ][ 1 MiB         ][ 100 KiB    ]
//!                            ^ a piece never crosses segments, nor is it longer than `most`
//! ```
//!
//! Owns: the position.

use super::remote::Segments;

/// Memory that is handed out piece by piece, in order.
#[derive(Debug)]
pub(super) struct Pieces {
    segments: Segments,
    /// Segment of the next piece, and the offset in it.
    segment: usize,
    at: usize,
    /// Bytes handed out so far.
    taken: usize,
    most: usize,
}

/// Contiguous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) start: *mut u8,
    pub(super) len: usize,
    /// Offset from the beginning of the whole memory, in bytes.
    pub(super) offset: usize,
    /// Segment that contains the piece.
    pub(super) segment: usize,
}

impl Pieces {
    /// Creates pieces of at most `most` bytes, at least 1; segments must not be empty.
    pub(super) fn new(segments: Segments, most: usize) -> Self {
        Self {
            segments,
            segment: 0,
            at: 0,
            taken: 0,
            most: most.max(1),
        }
    }

    /// Returns the number of remaining pieces.
    pub(super) fn left(&self) -> usize {
        let mut at = self.at;
        let mut count = 0;
        for (_, len) in self.segments.get(self.segment..).unwrap_or(&[]) {
            count += (len - at).div_ceil(self.most);
            at = 0;
        }
        count
    }

    /// Returns the next piece.
    pub(super) fn peek(&self) -> Option<Piece> {
        let &(start, len) = self.segments.get(self.segment)?;
        Some(Piece {
            start: start.wrapping_add(self.at),
            len: (len - self.at).min(self.most),
            offset: self.taken,
            segment: self.segment,
        })
    }

    /// Advances past the piece that [`Pieces::peek`] returned.
    pub(super) fn advance(&mut self) {
        let Some(piece) = self.peek() else {
            return;
        };
        self.taken += piece.len;
        self.at += piece.len;
        if self.at >= self.segments[self.segment].1 {
            self.at = 0;
            self.segment += 1;
        }
    }

    /// Drops the remaining pieces.
    pub(super) fn finish(&mut self) {
        self.segment = self.segments.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::without_provenance_mut as at;

    fn cut(lens: &[usize], most: usize) -> Vec<(usize, usize, usize)> {
        let mut start = 0x1_0000;
        let mut segments = Segments::new();
        for len in lens {
            segments.push((at(start), *len));
            start += 0x1_0000;
        }
        let mut pieces = Pieces::new(segments, most);
        let mut cut = Vec::new();
        while let Some(piece) = pieces.peek() {
            let left = pieces.left();
            pieces.advance();
            assert_eq!(pieces.left(), left - 1);
            assert_eq!(piece.start.addr() >> 16, piece.segment + 1);
            cut.push((piece.start.addr() & 0xffff, piece.len, piece.offset));
        }
        cut
    }

    #[test]
    fn pieces_follow_each_other_and_never_cross_a_segment() {
        assert_eq!(
            cut(&[3, 10, 4], 4),
            [(0, 3, 0), (0, 4, 3), (4, 4, 7), (8, 2, 11), (0, 4, 13)]
        );
        assert_eq!(cut(&[8], 8), [(0, 8, 0)]);
        assert_eq!(cut(&[], 8), []);
    }

    #[test]
    fn nothing_comes_after_the_end_was_called() {
        let mut pieces = Pieces::new(Segments::from_slice(&[(at(16), 10)]), 4);
        pieces.advance();
        pieces.finish();
        assert_eq!((pieces.peek(), pieces.left()), (None, 0));
        pieces.advance();
        assert_eq!(pieces.peek(), None);
    }
}
