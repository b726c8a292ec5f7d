//! Sequence numbers: 32 bits that wrap.
//!
//! ```text
//!    ... 2^32-2  2^32-1  0  1  2 ...      a precedes b if b is less than half a circle ahead
//! ```
//!
//! Out of scope: windows.

/// Sequence number of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Seq(pub(super) u32);

impl Seq {
    /// Returns the number `count` further on.
    pub(super) fn ahead(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Returns the distance from `earlier` to this number; more than half a circle if it is behind.
    pub(super) fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether this number comes before `other`.
    pub(super) fn precedes(self, other: Self) -> bool {
        self != other && other.since(self) <= u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_across_the_wrap() {
        let last = Seq(u32::MAX);
        assert_eq!(last.ahead(1), Seq(0));
        assert!(last.precedes(Seq(0)));
        assert!(!Seq(0).precedes(last));
        assert!(!last.precedes(last));
        assert_eq!(Seq(3).since(last), 4);
    }

    #[test]
    fn half_a_circle_is_the_limit_of_before() {
        assert!(Seq(0).precedes(Seq(u32::MAX / 2)));
        assert!(!Seq(0).precedes(Seq(u32::MAX / 2 + 1)));
    }
}
