//! One peer, as its lender knows it.
//!
//! ```text
//!   loan = free at the peer, or under way to or from it
//!        + waiting   held by messages that the host has not taken
//!        + owed      taken: to go home
//!        + due       lent on top: the peer has not been told
//!   kept    no more of the loan, but to the peer still under way: first to go home when it is
//!           lent more. loan + kept is never above the settings' maximum or first loan.
//! ```
//!
//! `given`, `revoked` and some flags belong to the epoch in `aged`; a record is brought up to date
//! when it is next touched, so the end of an epoch costs nothing here.
//!
//! Cost: 32 bytes.

use super::super::borrower::DECAY;
use super::super::byte::{CreditByte, code_within};

/// One peer. All zeros: nobody.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Record {
    pub(super) loan: u16,
    pub(super) waiting: u16,
    pub(super) owed: u16,
    pub(super) due: u16,
    /// How many more it wants; not zero exactly while it is in a list of those who want.
    pub(super) wanted: u16,
    /// Lent on top lately.
    pub(super) given: u16,
    /// Taken back lately.
    pub(super) revoked: u16,
    pub(super) kept: u16,
    /// The epoch, modulo 2^16, that the record is up to date with.
    aged: u16,
    pub(super) strikes: u8,
    /// Revokes with an E that it answered since it last used or wanted any.
    pub(super) quiet: u8,
    pub(super) flags: Flags,
    /// The list that it is in, with its neighbours there; see `lists`.
    pub(super) list: u8,
    pub(super) previous: u32,
    pub(super) next: u32,
}

/// What is true of a peer, beside its numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Flags(u16);

impl Flags {
    /// It is there.
    pub(super) const OPEN: Self = Self(1);
    /// It knows credits.
    pub(super) const KNOWS: Self = Self(1 << 1);
    /// It sent a message or a Want in this epoch.
    pub(super) const USED: Self = Self(1 << 2);
    /// It has nothing more to give in this epoch.
    pub(super) const SPENT: Self = Self(1 << 3);
    /// It has not been told that an epoch ended.
    pub(super) const EPOCH: Self = Self(1 << 4);
    /// Its Want is unanswered.
    pub(super) const ASKED: Self = Self(1 << 5);
    /// It is asked for credits: there is an entry among the revokes.
    pub(super) const REVOKING: Self = Self(1 << 6);
    /// It is among those that control messages are to be sent to.
    pub(super) const QUEUED: Self = Self(1 << 7);
    /// Its lies are used up.
    pub(super) const FAILED: Self = Self(1 << 8);
    /// Messages of its earlier lives wait.
    pub(super) const ESTATE: Self = Self(1 << 9);

    /// Are any of these set?
    #[inline]
    pub(super) fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    /// Both.
    #[inline]
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(super) fn set(&mut self, which: Self) {
        self.0 |= which.0;
    }

    #[inline]
    pub(super) fn clear(&mut self, which: Self) {
        self.0 &= !which.0;
    }

    /// Clears it; was it set?
    #[inline]
    pub(super) fn take(&mut self, which: Self) -> bool {
        let was = self.any(which);
        self.clear(which);
        was
    }
}

impl Record {
    /// A peer that opens in this epoch.
    pub(super) fn open(epoch: u32, loan: u16, knows: bool, estate: bool) -> Self {
        let mut flags = Flags::OPEN;
        if knows {
            flags.set(Flags::KNOWS);
        }
        if estate {
            flags.set(Flags::ESTATE);
        }
        Self {
            loan,
            aged: epoch as u16,
            flags,
            ..Self::default()
        }
    }

    /// Is it open, does it know credits, and is there nothing against it?
    #[inline]
    pub(super) fn is_sound(&self) -> bool {
        let of = Flags::OPEN.and(Flags::KNOWS).and(Flags::FAILED);
        self.flags.0 & of.0 == Flags::OPEN.and(Flags::KNOWS).0
    }

    /// Credits that it can use, as far as is known here.
    #[inline]
    pub(super) fn free(&self) -> u16 {
        // Every credit of the loan is in one place only.
        self.loan - self.waiting - self.owed - self.due
    }

    /// Brings it up to date with the epoch.
    #[inline]
    pub(super) fn age(&mut self, epoch: u32) {
        if self.aged != epoch as u16 {
            self.decay(epoch as u16);
        }
    }

    #[cold]
    fn decay(&mut self, epoch: u16) {
        // After 2^16 epochs nothing seems to have passed. Then the peer is spared for one more.
        let shift = u32::from(epoch.wrapping_sub(self.aged)).saturating_mul(DECAY);
        self.given = self.given.checked_shr(shift).unwrap_or(0);
        self.revoked = self.revoked.checked_shr(shift).unwrap_or(0);
        self.flags.clear(Flags::USED.and(Flags::SPENT));
        self.flags.set(Flags::EPOCH);
        self.aged = epoch;
    }

    /// Is there nothing that a message to it would take along in this epoch?
    #[inline]
    pub(super) fn has_nothing_to_carry(&self, epoch: u32) -> bool {
        let told = self.aged == epoch as u16 && !self.flags.any(Flags::EPOCH);
        self.owed == 0 && self.due == 0 && told
    }

    /// What a message to it takes along.
    pub(super) fn ride(&mut self, epoch: u32) -> CreditByte {
        self.age(epoch);
        let count = self.owed.min(u16::from(CreditByte::COUNT_MAX));
        self.owed -= count;
        let extra = code_within(self.due);
        self.due -= extra;
        CreditByte {
            epoch: self.flags.take(Flags::EPOCH),
            extra,
            count: count as u8,
        }
    }

    /// Epochs since anything happened with it, modulo 2^16.
    pub(super) fn idle_epochs(&self, epoch: u32) -> u16 {
        (epoch as u16).wrapping_sub(self.aged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_32_bytes() {
        assert_eq!(size_of::<Record>(), 32);
    }

    #[test]
    fn figures_lose_three_quarters_with_every_epoch_passed() {
        let mut record = Record::open(7, 10, true, false);
        (record.given, record.revoked) = (1000, 65);
        record
            .flags
            .set(Flags::USED.and(Flags::SPENT).and(Flags::ASKED));
        record.age(7);
        assert_eq!((record.given, record.revoked), (1000, 65));
        assert!(!record.flags.any(Flags::EPOCH) && record.flags.any(Flags::USED));
        record.age(8);
        assert_eq!((record.given, record.revoked), (250, 16));
        assert!(record.flags.any(Flags::EPOCH) && record.flags.any(Flags::ASKED));
        assert!(!record.flags.any(Flags::USED) && !record.flags.any(Flags::SPENT));
        record.age(10);
        assert_eq!((record.given, record.revoked), (15, 1));
        record.given = u16::MAX;
        record.age(10 + 8);
        assert_eq!(record.given, 0);
    }

    #[test]
    fn epochs_are_counted_across_their_wrap() {
        let mut record = Record::open(u32::from(u16::MAX), 0, true, false);
        record.given = 64;
        record.age(1 << 16);
        assert_eq!(record.given, 16);
        assert_eq!(record.idle_epochs((1 << 16) + 3), 3);
    }
}
