//! Memory of a simulated application, which detects forbidden accesses.
//!
//! ```text
//!   application: Buffer --- share() ---> the endpoint's and the ports' handles
//!       give_back(): from here on an access through any handle is a broken promise
//! ```
//!
//! Owns: the bytes, and the moment of their return.
//! Out of scope: operations.

use mx_proto::Memory;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A handle of a buffer; clones refer to the same bytes.
#[derive(Clone, Debug)]
pub struct Buffer {
    inner: Rc<Inner>,
    /// Range of the memory that this handle covers.
    shown: (usize, usize),
}

#[derive(Debug)]
struct Inner {
    bytes: RefCell<Vec<u8>>,
    /// Ends of the pieces in which it is lent, so that code handles several pieces.
    seams: Vec<usize>,
    returned: Cell<bool>,
}

impl Buffer {
    /// Makes memory with these bytes, in one piece.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self::in_pieces(bytes, Vec::new())
    }

    /// Makes memory that is lent in pieces, with cuts at the `seams` (ascending).
    pub fn in_pieces(bytes: Vec<u8>, seams: Vec<usize>) -> Self {
        let shown = (0, bytes.len());
        let inner = Inner {
            bytes: RefCell::new(bytes),
            seams,
            returned: Cell::new(false),
        };
        Self {
            inner: Rc::new(inner),
            shown,
        }
    }

    /// Makes a second handle, for [`crate::Fabric::new`].
    pub fn share(&self) -> Self {
        self.clone()
    }

    /// Ends the operation: an access to the bytes from now on breaks a promise.
    pub fn give_back(&self) {
        self.inner.returned.set(true);
    }

    /// Returns whether the operation has ended.
    pub fn is_back(&self) -> bool {
        self.inner.returned.get()
    }

    /// Copies the bytes, as the application.
    pub fn bytes(&self) -> Vec<u8> {
        self.inner.bytes.borrow().clone()
    }

    /// Returns the bytes in place, for checks of what others do to them.
    pub fn look(&self) -> std::cell::Ref<'_, Vec<u8>> {
        self.inner.bytes.borrow()
    }

    /// Returns the number of handles.
    pub fn handles(&self) -> usize {
        Rc::strong_count(&self.inner)
    }

    /// Calls `each` with the pieces of `offset .. offset + len`.
    fn pieces(&self, offset: usize, len: usize, mut each: impl FnMut(std::ops::Range<usize>)) {
        let (begin, all) = self.shown;
        let end = begin.saturating_add(offset).saturating_add(len).min(all);
        let mut at = begin.saturating_add(offset);
        while at < end {
            let seam = self
                .inner
                .seams
                .iter()
                .copied()
                .find(|seam| *seam > at)
                .unwrap_or(end);
            each(at..seam.min(end));
            at = seam.min(end);
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl Memory for Buffer {
    fn len(&self) -> usize {
        self.shown.1 - self.shown.0
    }

    fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let begin = self.shown.0 + offset;
        let shown = (begin, begin + len);
        assert!(
            !self.is_back() && shown.1 <= self.shown.1,
            "memory that is not there"
        );
        Some(Self {
            shown,
            ..self.clone()
        })
    }

    fn visit(&self, offset: usize, len: usize, mut visitor: impl FnMut(&[u8])) {
        assert!(
            !self.is_back(),
            "memory was read after its operation had completed"
        );
        self.pieces(offset, len, |range| {
            visitor(&self.inner.bytes.borrow()[range])
        });
    }

    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        assert!(
            !self.is_back(),
            "memory was written after its operation had completed"
        );
        self.pieces(offset, len, |range| {
            visitor(&mut self.inner.bytes.borrow_mut()[range])
        });
    }
}

/// Memory in separate pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pieces(pub Vec<Vec<u8>>);

impl Pieces {
    /// Makes memory in one piece.
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self(vec![bytes])
    }

    /// Makes zeros in pieces of these sizes.
    pub fn zeros(sizes: &[usize]) -> Self {
        Self(sizes.iter().map(|size| vec![0; *size]).collect())
    }

    /// Cuts `bytes` into pieces of these sizes, the last one as long as needed.
    pub fn cut(bytes: &[u8], sizes: &[usize]) -> Self {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for size in sizes {
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece.to_vec());
            rest = after;
        }
        pieces.push(rest.to_vec());
        Self(pieces)
    }

    /// Copies all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.concat()
    }

    /// Returns the piece that contains byte `at`, and its offset.
    fn piece_at(&self, at: usize) -> (usize, usize) {
        let mut begin = 0;
        for (index, piece) in self.0.iter().enumerate() {
            if at < begin + piece.len() {
                return (index, begin);
            }
            begin += piece.len();
        }
        (self.0.len(), begin)
    }
}

impl Memory for Pieces {
    fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        self.pieces(offset, len).for_each(visitor);
    }

    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        let (mut begin, end) = (0, offset.saturating_add(len));
        for piece in &mut self.0 {
            let (from, to) = (offset.max(begin), end.min(begin + piece.len()));
            if from < to {
                visitor(&mut piece[from - begin..to - begin]);
            }
            begin += piece.len();
        }
    }

    fn pieces(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let (index, mut begin) = self.piece_at(offset);
        let end = offset.saturating_add(len);
        self.0[index..].iter().filter_map(move |piece| {
            let first = begin;
            begin += piece.len();
            let (from, to) = (offset.max(first), end.min(begin));
            (from < to).then(|| &piece[from - first..to - first])
        })
    }

    fn cells(&mut self, offset: usize, len: usize) -> impl Iterator<Item = &[Cell<u8>]> {
        let (index, mut begin) = self.piece_at(offset);
        let end = offset.saturating_add(len);
        self.0[index..].iter_mut().filter_map(move |piece| {
            let first = begin;
            begin += piece.len();
            let (from, to) = (offset.max(first), end.min(begin));
            let cells = Cell::from_mut(&mut piece[..]).as_slice_of_cells();
            (from < to).then(|| &cells[from - first..to - first])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_lent_in_order_and_end_at_the_seams() {
        let buffer = Buffer::in_pieces((0..10).collect(), vec![3, 7]);
        let mut seen = Vec::new();
        buffer.visit(1, 100, |piece| seen.push(piece.to_vec()));
        assert_eq!(seen, [vec![1, 2], vec![3, 4, 5, 6], vec![7, 8, 9]]);
    }

    #[test]
    #[should_panic(expected = "written after its operation")]
    fn touching_memory_that_came_back_is_noticed() {
        let buffer = Buffer::new(vec![0; 4]);
        let mut other = buffer.share();
        buffer.give_back();
        other.visit_mut(0, 1, |_| {});
    }
}
