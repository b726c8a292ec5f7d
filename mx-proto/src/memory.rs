//! Memory: bytes of messages, without pointers.
//!
//! ```text
//!   Memory   a posted operation's buffer: segments of the application (mx-sys),
//!            or a Vec (simulator).   visit() lends its slices, visit_mut() lends them for writing,
//!            pieces() and cells() lend all of them at a time
//!   Source   the body of a packet that has arrived: a slice, or bytes in memory
//!            that another process can still change (copied out, never borrowed)
//! ```

use std::cell::Cell;

/// Buffer of one posted operation: a list of segments seen as one run of bytes.
///
/// An implementation lends its bytes only during a call. The endpoint drops the value when the operation completes;
/// afterwards the bytes must not be accessed.
#[expect(
    clippy::len_without_is_empty,
    reason = "an empty buffer is like any other"
)]
pub trait Memory {
    /// Returns the number of bytes in all segments together.
    fn len(&self) -> usize;

    /// Returns whether dropping the value does nothing.
    #[inline]
    fn is_plain(&self) -> bool {
        false
    }

    /// Returns the bytes that [`Self::visit`] lends, if they are known cheaply to be one piece.
    #[inline]
    fn piece(&self, _offset: usize, _len: usize) -> Option<&[u8]> {
        None
    }

    /// Returns the bytes that [`Self::visit_mut`] lends, if they are known cheaply to be one piece.
    #[inline]
    fn piece_mut(&mut self, _offset: usize, _len: usize) -> Option<&mut [u8]> {
        None
    }

    /// Returns a view of `len` bytes from `offset` on, for an access to registered memory. Both values are used, but
    /// not after the region has been deregistered. `None`: this memory cannot be divided, or there is no room.
    fn part(&self, _offset: usize, _len: usize) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Lends `len` bytes from `offset` on, piece by piece and in order, for reading.
    /// Bytes beyond the end are left out.
    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8]));

    /// Lends `len` bytes from `offset` on, piece by piece and in order, for writing.
    /// Bytes beyond the end are left out.
    fn visit_mut(&mut self, offset: usize, len: usize, visitor: impl FnMut(&mut [u8]));

    /// Returns the pieces that [`Self::visit`] lends, all at a time, for a port that hands them to the kernel in one
    /// call. Empty although there are bytes: this memory lends only one piece at a time.
    fn pieces(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        self.piece(offset, len).into_iter()
    }

    /// Returns the pieces that [`Self::visit_mut`] lends, as cells because the pieces of a buffer may overlap.
    fn cells(&mut self, offset: usize, len: usize) -> impl Iterator<Item = &[Cell<u8>]> {
        let _ = (offset, len);
        std::iter::empty()
    }

    /// Copies up to `len` bytes of `source` from `at` on to `offset`. Returns the number of bytes written.
    #[inline(always)]
    fn fill<S: Source + ?Sized>(
        &mut self,
        offset: usize,
        len: usize,
        source: &S,
        at: usize,
    ) -> usize {
        if let Some(piece) = self.piece_mut(offset, len) {
            source.copy_to(at, piece);
            return piece.len();
        }
        let mut from = at;
        self.visit_mut(offset, len, |piece| {
            source.copy_to(from, piece);
            from += piece.len();
        });
        from - at
    }
}

/// Received bytes in memory of the port, from which they can be copied.
pub trait Source {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns true if there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from offset `at`. Bytes past the end are left as they are.
    fn copy_to(&self, at: usize, into: &mut [u8]);

    /// Returns all bytes in a new vector.
    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

impl Source for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        let have = self.get(at..).unwrap_or(&[]);
        let n = have.len().min(into.len());
        into[..n].copy_from_slice(&have[..n]);
    }
}

impl<S: Source + ?Sized> Source for &S {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        (**self).copy_to(at, into);
    }
}

impl Source for Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self[..].copy_to(at, into);
    }
}

/// Memory owned by itself, for tests and for messages that an endpoint keeps.
impl Memory for Vec<u8> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn piece(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let end = offset.saturating_add(len).min(Self::len(self));
        (offset < end).then(|| &self[offset..end])
    }

    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        self.piece(offset, len).into_iter().for_each(visitor);
    }

    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        let end = offset.saturating_add(len).min(Self::len(self));
        if offset < end {
            visitor(&mut self[offset..end]);
        }
    }

    fn cells(&mut self, offset: usize, len: usize) -> impl Iterator<Item = &[Cell<u8>]> {
        let end = offset.saturating_add(len).min(Self::len(self));
        let piece = (offset < end).then(|| &mut self[offset..end]);
        piece
            .into_iter()
            .map(|piece| Cell::from_mut(piece).as_slice_of_cells())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_past_the_end_writes_only_what_fits() {
        let mut buffer = vec![0u8; 4];
        assert_eq!(buffer.fill(2, 10, &b"abcdef"[..], 1), 2);
        assert_eq!(buffer, b"\0\0bc");
        assert_eq!(buffer.fill(9, 1, &b"abc"[..], 0), 0);
    }

    #[test]
    fn a_slice_never_copies_past_its_end() {
        let mut into = [9u8; 4];
        Source::copy_to(&b"ab"[..], 1, &mut into);
        assert_eq!(into, [b'b', 9, 9, 9]);
        Source::copy_to(&b"ab"[..], 7, &mut into);
        assert_eq!(into, [b'b', 9, 9, 9]);
    }
}
