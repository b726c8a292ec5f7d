//! Parts of a message that a receive has requested.
//!
//! ```text
//!   0          at     end           at      end     requested        wanted
//!   [ received |.. open |  received | .. open |      )  not requested   )
//! ```
//!
//! A part is the range of one Pull, or of several towards a peer without numbered parts. Its bytes arrive in order,
//! quote its number and begin at its next offset; other bytes are ignored. A message is complete when all of it has
//! been requested and no part is open.
//!
//! Cost: one allocation for each message that is pulled.

use smallvec::SmallVec;

/// Range of bytes that have been requested and have not all arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// Number of the Pull, which the data quotes; 0 towards a peer without data links.
    pub(crate) attempt: u32,
    /// Number of the link on which the data comes; [`NO_LINK`]: to be requested again.
    pub(crate) link: u32,
    /// Offset of the next byte.
    pub(crate) at: u32,
    /// Offset after the last byte.
    pub(crate) end: u32,
}

/// Stands for no link: the part must be requested again.
pub(crate) const NO_LINK: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Parts(Option<Box<SmallVec<[Part; USUAL]>>>);

/// Number of open parts of a message over one link.
const USUAL: usize = 2;

impl Parts {
    #[inline]
    pub(crate) fn open(&self) -> &[Part] {
        self.0.as_deref().map_or(&[], |parts| &parts[..])
    }

    pub(crate) fn open_mut(&mut self) -> &mut [Part] {
        self.0
            .as_deref_mut()
            .map_or(&mut [], |parts| &mut parts[..])
    }

    pub(crate) fn push(&mut self, part: Part) {
        self.0.get_or_insert_default().push(part);
    }

    /// Returns the number of parts that are requested at present.
    pub(crate) fn asked(&self) -> usize {
        let parts = self.open().iter();
        parts.filter(|part| part.link != NO_LINK).count()
    }

    /// Returns the number of bytes outstanding on a link.
    pub(crate) fn awaited(&self, link: u32) -> u32 {
        let parts = self.open().iter().filter(|part| part.link == link);
        parts.map(|part| part.end - part.at).sum()
    }

    /// Removes up to `most` bytes that must be requested again, and returns their range.
    pub(crate) fn take_unasked(&mut self, most: u32) -> Option<(u32, u32)> {
        let nth = self.open().iter().position(|part| part.link == NO_LINK)?;
        let Part { at, end, .. } = self.open()[nth];
        let len = most.min(end - at);
        self.advance(nth, len, NO_LINK);
        Some((at, at + len))
    }

    /// Returns the index of the part of which these bytes are the next ones.
    pub(crate) fn next(&self, attempt: u32, at: u32, len: u32) -> Option<usize> {
        let is_next = |part: &Part| {
            (part.attempt, part.at) == (attempt, at) && len != 0 && len <= part.end - at
        };
        self.open().iter().position(is_next)
    }

    /// Counts bytes of a part that have arrived on that link.
    pub(crate) fn advance(&mut self, nth: usize, len: u32, link: u32) {
        let Some(parts) = self.0.as_deref_mut() else {
            return;
        };
        let part = &mut parts[nth];
        part.at += len;
        part.link = link;
        if part.at == part.end {
            parts.swap_remove(nth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_bytes_of_an_open_part_count() {
        let mut parts = Parts::default();
        for (attempt, at, end) in [(7, 0, 10), (8, 10, 30)] {
            let link = 0;
            parts.push(Part {
                attempt,
                link,
                at,
                end,
            });
        }
        for (attempt, at, len) in [(8, 0, 10), (7, 10, 10), (7, 0, 0), (7, 0, 11), (9, 0, 1)] {
            assert_eq!(parts.next(attempt, at, len), None, "{attempt} {at} {len}");
        }
        assert_eq!(parts.next(8, 10, 20), Some(1));
        parts.advance(1, 15, 3);
        assert_eq!((parts.open()[1].at, parts.open()[1].link), (25, 3));
        assert_eq!(
            (parts.next(8, 10, 1), parts.next(8, 25, 5)),
            (None, Some(1))
        );
        parts.advance(0, 10, 0);
        assert_eq!(parts.open().len(), 1);
        let last = parts.next(8, 25, 5).expect("it is still open");
        parts.advance(last, 5, 3);
        assert!(parts.open().is_empty());
    }

    #[test]
    fn a_part_without_a_link_is_asked_for_again_in_blocks() {
        let mut parts = Parts::default();
        for (link, at) in [(1, 0), (NO_LINK, 30)] {
            let (attempt, end) = (link, at + 25);
            parts.push(Part {
                attempt,
                link,
                at,
                end,
            });
        }
        let taken = [10, 10, 10, 10].map(|most| parts.take_unasked(most));
        assert_eq!(
            taken,
            [Some((30, 40)), Some((40, 50)), Some((50, 55)), None]
        );
        assert_eq!((parts.asked(), parts.open().len()), (1, 1));
    }
}
