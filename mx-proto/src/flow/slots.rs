//! Slots: one small message in each lane that needs no credit.
//!
//! ```text
//!   sender      sent  3 ------ message, slot bit of its lane ------> arrived 3
//!   may use it again  <------- header: taken 3 --------------------- taken   3
//! ```
//!
//! Counts are running, modulo 16, two in a byte of every header; one is under way or waits at a time.

/// Messages that wait apart from each other: those that a receive is expected for, and the others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Messages that a receive takes.
    Matched = 0,
    /// Unexpected messages (BMI's word).
    Unexpected = 1,
}

impl Lane {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Matched, Self::Unexpected];
}

/// A count for each lane.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Slots(u8);

impl Slots {
    /// As it stands in a header.
    #[inline]
    pub fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// For a header.
    #[inline]
    pub fn byte(self) -> u8 {
        self.0
    }

    /// Are the counts of this lane the same?
    #[inline]
    pub(super) fn agree(self, other: Self, lane: Lane) -> bool {
        (self.0 ^ other.0) & mask(lane) == 0
    }

    /// Counts a message in a slot.
    #[inline]
    pub(super) fn count(&mut self, lane: Lane) {
        let mask = mask(lane);
        let more = self.0.wrapping_add(mask & 0x11);
        self.0 = (self.0 & !mask) | (more & mask);
    }
}

fn mask(lane: Lane) -> u8 {
    0x0f << (4 * lane as u8)
}
