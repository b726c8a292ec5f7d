//! Credit fields of every header, and the payment for one message.
//!
//! ```text
//!   byte 1   epoch (8)                     of the sender, as a lender
//!   24..28   credit (32)                   running total that the other side's messages may have cost
//!   28..32   slots (2 x 4) | wanted (24)   slot messages taken; credits requested, once an epoch
//!   aux      of an Eager or Offer: bit 0 or 1 if it came in the slot of the matched or unexpected lane
//! ```

use super::borrower::WANTED_MAX;
use super::slots::{Lane, Slots};
use crate::status::Violation;

/// Credit fields of a header, through which the two sides of a session lend each other credits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CreditFields {
    /// Running total, modulo 2^32, of the credits that all messages of the receiver may have cost.
    pub credit: u32,
    /// Running counts of the receiver's slot messages that the sender has taken, so that their slots are free again.
    pub slots: Slots,
    /// Number of the sender's epoch, modulo 256; a borrower requests credits about once in each.
    pub epoch: u8,
    /// Number of credits that the sender requests beyond those it has; 0: no request.
    pub wanted: u32,
}

impl CreditFields {
    /// Returns the fields in wire format: the word of `credit`, the word of `slots` and `wanted`, and the byte of
    /// `epoch`. A larger `wanted` is cut to [`WANTED_MAX`].
    #[inline]
    pub fn words(&self) -> (u32, u32, u8) {
        let wanted = self.wanted.min(WANTED_MAX);
        (
            self.credit,
            u32::from(self.slots.byte()) << 24 | wanted,
            self.epoch,
        )
    }

    /// Makes the fields from the words that [`Self::words`] returns.
    #[inline]
    pub fn from_words(credit: u32, more: u32, epoch: u8) -> Self {
        Self {
            credit,
            slots: Slots::from_byte((more >> 24) as u8),
            epoch,
            wanted: more & WANTED_MAX,
        }
    }
}

/// Means by which a message is paid for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Payment {
    /// Credits, this many.
    Credits(u32),
    /// The slot of this lane.
    Slot(Lane),
}

impl Payment {
    /// Returns the payment of an arrived message, from `aux` of its header and its `cost` in credits (1 for an offer).
    /// [`Violation::NoSlot`]: `aux` names two slots, or the message is too large for a slot.
    #[inline]
    pub fn of(aux: u32, cost: u32) -> Result<Self, Violation> {
        if Self::is_in_credits(aux) {
            return Ok(Self::Credits(cost));
        }
        Self::in_slot(aux & 3, cost)
    }

    /// Returns whether `aux` of a message's header states a payment in credits.
    #[inline]
    pub fn is_in_credits(aux: u32) -> bool {
        aux & 3 == 0
    }

    #[cold]
    fn in_slot(slot: u32, cost: u32) -> Result<Self, Violation> {
        match slot {
            1 if cost == 1 => Ok(Self::Slot(Lane::Matched)),
            2 if cost == 1 => Ok(Self::Slot(Lane::Unexpected)),
            _ => Err(Violation::NoSlot),
        }
    }

    /// Returns the lane in whose slot the message was sent; `None`: it was paid for with credits.
    #[inline]
    pub fn slot(self) -> Option<Lane> {
        match self {
            Self::Credits(_) => None,
            Self::Slot(lane) => Some(lane),
        }
    }

    /// Returns the value for `aux` of the message's header: 0 for credits, or the bit of the slot.
    #[inline]
    pub fn aux(self) -> u32 {
        match self {
            Self::Credits(_) => 0,
            Self::Slot(lane) => 1 << lane as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_fields_are_two_words_and_a_byte_of_a_header() {
        let mut slots = Slots::default();
        slots.count(Lane::Unexpected);
        let fields = CreditFields {
            credit: u32::MAX,
            slots,
            epoch: 255,
            wanted: 0x12_3456,
        };
        let (credit, more, epoch) = fields.words();
        assert_eq!((credit, more, epoch), (u32::MAX, 0x1012_3456, 255));
        assert_eq!(CreditFields::from_words(credit, more, epoch), fields);
        let much = CreditFields {
            wanted: u32::MAX,
            ..fields
        };
        assert_eq!(much.words().1, 0x10ff_ffff);
    }

    #[test]
    fn slot_holds_one_credit_and_a_message_uses_one_slot() {
        for paid in [
            Payment::Slot(Lane::Matched),
            Payment::Slot(Lane::Unexpected),
        ] {
            assert_eq!(Payment::of(paid.aux(), 1), Ok(paid));
            assert_eq!(Payment::of(paid.aux(), 2), Err(Violation::NoSlot));
        }
        assert_eq!(
            Payment::of(Payment::Credits(7).aux(), 7),
            Ok(Payment::Credits(7))
        );
        assert_eq!(Payment::of(3, 1), Err(Violation::NoSlot));
    }
}
