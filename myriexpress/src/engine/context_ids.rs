//! Context ids: a field of the match bits that selects one of an endpoint's consumers.
//!
//! ```text
//!   match bits   63 ........ [ id ] ........ 0       bits = 4, shift = 20
//!                             20..24
//! ```
//!
//! The mask of a receive must cover the field, so that every completion belongs to one id; a thread that waits for one
//! id is not woken for others.
//!
//! Out of scope: requests, threads.

use mx_sys::Interest;

/// Position, in the match bits of an endpoint, of the context id, which selects one of its consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextIds {
    bits: u8,
    shift: u8,
}

/// Number of interest bits for completions: an id's bit is its number modulo this.
const CLASSES: u64 = 60;

/// All interest bits for completions.
pub(crate) const COMPLETIONS: Interest = (1 << CLASSES) - 1;

/// Maximum width of an id in bits (`MX_CONTEXT_ID_BITS_MAX`).
pub const CONTEXT_ID_BITS_MAX: u8 = 16;

impl ContextIds {
    /// Describes an id of `bits` bits from bit `shift` on; `None` if it is wider than [`CONTEXT_ID_BITS_MAX`] or does
    /// not fit into the match bits.
    pub fn new(bits: u8, shift: u8) -> Option<Self> {
        let fits = bits <= CONTEXT_ID_BITS_MAX && u32::from(bits) + u32::from(shift) <= 64;
        fits.then_some(Self { bits, shift })
    }

    /// Returns the mask of the id's match bits.
    #[inline]
    pub fn field(self) -> u64 {
        match self.bits {
            0 => 0,
            bits => ((1 << bits) - 1) << self.shift,
        }
    }

    /// Packs both numbers into a word, never 0 (see [`Self::from_word`]).
    pub(crate) fn to_word(self) -> u32 {
        1 << 16 | u32::from(self.bits) << 8 | u32::from(self.shift)
    }

    /// Unpacks a word of [`Self::to_word`]; `None` for 0.
    #[inline]
    pub(crate) fn from_word(word: u32) -> Option<Self> {
        (word != 0).then_some(Self {
            bits: (word >> 8) as u8,
            shift: word as u8,
        })
    }

    /// Returns the interest bit of completions with these match bits.
    #[inline]
    pub(crate) fn interest(self, match_info: u64) -> Interest {
        match self.bits {
            0 => 1,
            _ => 1 << (((match_info & self.field()) >> self.shift) % CLASSES),
        }
    }

    /// Returns the interest of a thread that waits for completions with these bits under this mask.
    pub(crate) fn interest_in(self, match_info: u64, mask: u64) -> Interest {
        if mask & self.field() == self.field() {
            self.interest(match_info)
        } else {
            COMPLETIONS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_at_most_sixteen_bits_and_ends_within_the_word() {
        assert_eq!(ContextIds::new(0, 0).unwrap().field(), 0);
        assert_eq!(ContextIds::new(0, 64).unwrap().field(), 0);
        assert_eq!(ContextIds::new(16, 48).unwrap().field(), 0xffff << 48);
        assert_eq!(ContextIds::new(4, 8).unwrap().field(), 0xf00);
        for (bits, shift) in [(17, 0), (16, 49), (1, 64), (0, 65), (255, 255)] {
            assert_eq!(ContextIds::new(bits, shift), None, "{bits} {shift}");
        }
    }

    #[test]
    fn mask_over_the_context_field_selects_one_class() {
        let ids = ContextIds::new(8, 4).unwrap();
        assert_eq!(ids.interest(0x3f), 1 << 3);
        assert_eq!(ids.interest((CLASSES + 2) << 4), 1 << 2);
        assert_eq!(ids.interest_in(0x30, 0xff0), 1 << 3);
        assert_eq!(ids.interest_in(0x30, 0x0f0), COMPLETIONS);
        assert_eq!(ContextIds::from_word(ids.to_word()), Some(ids));
        assert_eq!(ContextIds::from_word(0), None);
    }
}
