//! Slots: each lane has one for a small message that needs no credit.
//!
//! ```text
//!   sender      sent  3 ------ message, slot bit of its lane ------> arrived 3
//!   may send again    <------- header: taken 3 --------------------- taken   3
//! ```
//!
//! Counts are running, modulo 16, two in a byte of every header; one message per lane is in flight or waits at a time.

/// Queue of messages to one remote: those for which it has or will post a receive, and unexpected ones. Neither waits
/// for the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Messages that match a posted receive.
    Matched = 0,
    /// Unexpected messages (BMI's word).
    Unexpected = 1,
}

impl Lane {
    /// Both lanes.
    pub const ALL: [Self; 2] = [Self::Matched, Self::Unexpected];
}

/// Running number of each lane's slot messages, modulo 16, both in one byte. A slot carries a small message that needs
/// no credit.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Slots(u8);

impl Slots {
    /// Makes the counts from their byte in a header; every byte is valid.
    #[inline]
    pub fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// Returns the byte that carries both counts in a header.
    #[inline]
    pub fn byte(self) -> u8 {
        self.0
    }

    #[inline]
    pub(super) fn agree(self, other: Self, lane: Lane) -> bool {
        (self.0 ^ other.0) & mask(lane) == 0
    }

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
