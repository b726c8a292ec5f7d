//! The memory of a message: one piece, or a list of pieces, as of a program that sends every n-th
//! row of a matrix.
//!
//! ```text
//!   one allocation    [ piece ] 64 B [ piece ] 64 B [ piece ] ...    N pieces, one gap fewer
//! ```
//!
//! Pieces have equal sizes; if the size cannot be divided, the first ones have a byte more.
//!
//! Owns: the memory, and the positions of the pieces.
//! Out of scope: sending it (see `messages`, `reference`).

use libc::c_void;

/// Maximum number of pieces of a message.
pub(crate) const MOST_PIECES: usize = 1 << 16;
/// Gap between two pieces, so that they share no cache line.
const GAP: usize = 64;

/// Size of a message, and number of its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) size: usize,
    /// Number of pieces; `None`: one buffer, posted without a list.
    pub(crate) pieces: Option<usize>,
}

impl Layout {
    /// Returns the layout of a message in one buffer.
    pub(crate) const fn whole(size: usize) -> Self {
        Self { size, pieces: None }
    }

    /// Returns the layout, or an error if there are more pieces than bytes.
    pub(crate) fn new(size: usize, pieces: Option<usize>) -> Result<Self, String> {
        match pieces {
            Some(n) if !(1..=MOST_PIECES).contains(&n) => Err(format!(
                "{n} is no number of pieces from 1 to {MOST_PIECES}"
            )),
            Some(n) if n > size => Err(format!("{size} bytes cannot lie in {n} pieces")),
            _ => Ok(Self { size, pieces }),
        }
    }
}

/// A message's memory.
pub(crate) struct Buffer {
    /// Accessed through `starts` only.
    _memory: Vec<u8>,
    starts: Vec<*mut c_void>,
    sizes: Vec<i64>,
    layout: Layout,
}

impl Buffer {
    /// Allocates a buffer full of ones: pages of zeros would be mapped at the first write, which
    /// would be measured.
    pub(crate) fn new(layout: Layout) -> Self {
        let count = layout.pieces.unwrap_or(1);
        let (size, longer) = (layout.size / count, layout.size % count);
        let mut memory = vec![1u8; layout.size + (count - 1) * GAP];
        let start = memory.as_mut_ptr();
        let mut starts = Vec::with_capacity(count);
        let mut sizes = Vec::with_capacity(count);
        let mut at = 0;
        for n in 0..count {
            let size = size + usize::from(n < longer);
            // SAFETY: all pieces and the gaps between them are in the memory.
            starts.push(unsafe { start.add(at) }.cast());
            sizes.push(size as i64);
            at += size + GAP;
        }
        Self {
            _memory: memory,
            starts,
            sizes,
            layout,
        }
    }

    /// Returns the size of the message in bytes.
    pub(crate) fn size(&self) -> usize {
        self.layout.size
    }

    /// Returns whether the message is sent and received as a list.
    #[inline]
    pub(crate) fn is_list(&self) -> bool {
        self.layout.pieces.is_some()
    }

    /// Returns the message, unless it is a list.
    #[inline]
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        if self.is_list() {
            return None;
        }
        self.pieces().next()
    }

    /// Returns the bytes of a message in one buffer, for writing.
    #[inline]
    pub(crate) fn whole_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_list() {
            return None;
        }
        self.pieces_mut().next()
    }

    /// Returns addresses and lengths of the pieces, as the calls with lists take them.
    #[inline]
    pub(crate) fn list(&self) -> (&[*mut c_void], &[i64]) {
        (&self.starts, &self.sizes)
    }

    /// Returns the pieces.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let pieces = self.starts.iter().zip(&self.sizes);
        // SAFETY: each lies in the memory, which lives as long as `self` and is lent with it.
        pieces.map(|(at, len)| unsafe { std::slice::from_raw_parts(at.cast(), *len as usize) })
    }

    /// Returns the pieces, for writing.
    #[inline]
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let pieces = self.starts.iter().zip(&self.sizes);
        // SAFETY: as above, and no two have a byte in common.
        pieces.map(|(at, len)| unsafe { std::slice::from_raw_parts_mut(at.cast(), *len as usize) })
    }
}

#[cfg(test)]
pub(crate) mod unit {
    use super::*;

    impl Buffer {
        /// Fills in bytes that differ between neighbouring positions.
        pub(crate) fn numbered(layout: Layout) -> Self {
            let mut buffer = Self::new(layout);
            let bytes = buffer.pieces_mut().flatten().enumerate();
            bytes.for_each(|(n, byte)| *byte = (n * 7 + n / 251) as u8);
            buffer
        }

        /// Returns the bytes of the message in order.
        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.pieces().flatten().copied().collect()
        }
    }

    #[test]
    fn pieces_lie_apart_and_make_the_whole_message() {
        for (size, pieces) in [
            (1, 1),
            (64, 64),
            (1000, 64),
            (262_144, 64),
            (70_000, MOST_PIECES),
        ] {
            let buffer = Buffer::new(Layout::new(size, Some(pieces)).unwrap());
            let (starts, sizes) = buffer.list();
            assert_eq!((starts.len(), sizes.len()), (pieces, pieces));
            assert_eq!(sizes.iter().sum::<i64>(), size as i64);
            assert!(
                sizes
                    .iter()
                    .all(|len| (sizes[pieces - 1]..=sizes[0]).contains(len))
            );
            assert!(sizes[0] - sizes[pieces - 1] <= 1);
            for n in 1..pieces {
                let end = starts[n - 1] as usize + sizes[n - 1] as usize;
                assert_eq!(starts[n] as usize, end + GAP);
            }
            assert!(buffer.whole().is_none());
        }
    }

    #[test]
    fn one_buffer_is_no_list_and_may_be_empty() {
        for size in [0, 1, 5000] {
            let mut buffer = Buffer::new(Layout::whole(size));
            assert_eq!(buffer.whole().map(<[u8]>::len), Some(size));
            assert_eq!(buffer.whole_mut().map(|bytes| bytes.len()), Some(size));
        }
    }

    #[test]
    fn every_piece_has_a_byte() {
        assert!(Layout::new(64, Some(64)).is_ok());
        let why = Layout::new(63, Some(64)).unwrap_err();
        assert_eq!(why, "63 bytes cannot lie in 64 pieces");
        assert!(Layout::new(1 << 20, Some(MOST_PIECES)).is_ok());
        for bad in [0, MOST_PIECES + 1] {
            assert!(Layout::new(1 << 20, Some(bad)).is_err(), "{bad}");
        }
        assert!(Layout::new(0, None).is_ok());
    }
}
