//! Lender: the credits lent to one remote.
//!
//! ```text
//!   taken ........ arrived ........ told ........ taken + credit limit       running totals, modulo 2^32
//!     |<- waiting ->|<-- unused -->|<--- due --->|
//!     |<------------------- credit limit --------------->|                   what the pool counts
//! ```
//!
//! The remote may spend *unused* credits at any time. *Waiting* credits are held by its messages here. *Due* credits
//! have yet to be announced to it, as far as the limit on credits in flight allows. The remote's own count of unused
//! credits may lag behind, but is never ahead. Messages in slots are not counted here.
//!
//! Out of scope: the pool, other remotes; [`super::Flow`] keeps them consistent.
//!
//! Cost: 32 bytes for each remote. `arrive` is a subtraction, a comparison and an addition.

use super::credit_fields::Payment;
use super::lists::Lists;
use super::slots::{Lane, Slots};
use crate::status::Violation;

/// Credits that this endpoint lends to one remote. The default account has none and is not open.
#[derive(Clone, Copy, Debug)]
pub struct Lender {
    /// Running total of the credits the remote has been told of. `arrived`: those of its messages and Returns; `taken`:
    /// those of messages that have been received or dropped.
    pub(super) told: u32,
    pub(super) arrived: u32,
    pub(super) taken: u32,
    /// Neighbours in the remote's list; see `lists`.
    pub(super) before: u32,
    pub(super) next: u32,
    pub(super) credit_limit: u16,
    /// Further credits that the remote requests; 0 unless it is in a list of remotes that wait.
    pub(super) wanted: u16,
    /// Credits in a Revoke that has not been answered; 0: none.
    pub(super) asked: u16,
    /// Epoch, modulo 2^16, of the remote's last message or request.
    pub(super) used: u16,
    /// Counts of slot messages that have been taken; `slots_told`: as last told to the remote.
    slots_taken: Slots,
    slots_told: Slots,
    pub(super) place: AccountList,
    /// Slots with messages kept here, a bit for each lane.
    kept: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum AccountList {
    /// Does not wait, has more than the minimum; front: longest not used.
    Above,
    /// Does not wait, has the minimum or less.
    Within,
    /// Has its share and waits for more; front: longest waiting.
    Wanting,
    /// Has less than its share and waits for more.
    Short,
    /// Has nothing and waits for credits.
    Poor,
    /// In no list: the remote has nothing, or has been sent a Revoke.
    Nowhere,
}

impl Default for Lender {
    fn default() -> Self {
        Self {
            told: 0,
            arrived: 0,
            taken: 0,
            before: Lists::NO_REMOTE,
            next: Lists::NO_REMOTE,
            credit_limit: 0,
            wanted: 0,
            asked: 0,
            used: 0,
            slots_taken: Slots::default(),
            slots_told: Slots::default(),
            place: AccountList::Nowhere,
            kept: 0,
        }
    }
}

impl Lender {
    /// Makes the account of a remote that has been told this credit limit and last used credits in epoch `used`.
    pub(super) fn open(credit_limit: u16, used: u16) -> Self {
        Self {
            told: credit_limit.into(),
            credit_limit,
            used,
            ..Self::default()
        }
    }

    /// Returns the number of credits lent to the remote, used or not.
    pub fn credit_limit(&self) -> u32 {
        self.credit_limit.into()
    }

    /// Returns how many lent credits are held by messages of the remote that wait here.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.arrived.wrapping_sub(self.taken)
    }

    /// Returns how many lent credits the remote has been told of and has not used, as far as this side knows. Messages
    /// may use them at any time.
    #[inline]
    pub fn unused(&self) -> u32 {
        self.told.wrapping_sub(self.arrived)
    }

    /// Returns how many lent credits the remote has not been told of yet.
    #[inline]
    pub fn due(&self) -> u32 {
        let most = self.taken.wrapping_add(self.credit_limit.into());
        most.wrapping_sub(self.told)
    }

    /// Returns the number of credits that the remote requests beyond its limit; 0 if it does not wait.
    pub fn wanted(&self) -> u32 {
        self.wanted.into()
    }

    /// Returns whether the remote has been sent a Revoke and has not answered.
    pub fn is_asked(&self) -> bool {
        self.asked > 0
    }

    /// Returns the number of the remote's messages, at most one a lane, that came in slots and wait here.
    pub fn in_slots(&self) -> u32 {
        self.kept.count_ones()
    }

    #[inline]
    pub(super) fn arrive(&mut self, paid: Payment) -> Result<(), Violation> {
        match paid {
            Payment::Credits(cost) if cost <= self.unused() => {
                self.arrived = self.arrived.wrapping_add(cost);
                Ok(())
            }
            Payment::Credits(_) => Err(Violation::NoCredit),
            Payment::Slot(lane) => self.arrive_in(lane),
        }
    }

    /// Books a message that has arrived and has been taken at once. Returns false, and changes nothing, if the remote
    /// does not have the credits, or should be told of its new ones at once.
    #[inline(always)]
    pub(super) fn pass(&mut self, cost: u32, at_once: u32) -> bool {
        let (paid, mut after) = (Payment::Credits(cost), Self { ..*self });
        if after.arrive(paid).is_err() {
            return false;
        }
        after.take(paid);
        let passes = !after.is_overdue(at_once);
        if passes {
            *self = after;
        }
        passes
    }

    /// Books a message that arrived in a slot. A slot is free again only when its remote has been told so, so a remote
    /// that reads nothing has one message.
    #[cold]
    fn arrive_in(&mut self, lane: Lane) -> Result<(), Violation> {
        let bit = 1 << lane as u8;
        if self.kept & bit != 0 || !self.slots_told.agree(self.slots_taken, lane) {
            return Err(Violation::NoSlot);
        }
        self.kept |= bit;
        Ok(())
    }

    /// Books the end of a message: it has been received or dropped.
    #[inline]
    pub(super) fn take(&mut self, paid: Payment) {
        match paid {
            Payment::Credits(cost) => {
                debug_assert!(cost <= self.waiting(), "taken {cost} of {self:?}");
                self.taken = self.taken.wrapping_add(cost);
            }
            Payment::Slot(lane) => {
                debug_assert!(self.kept & 1 << lane as u8 != 0);
                self.kept &= !(1 << lane as u8);
                self.slots_taken.count(lane);
            }
        }
    }

    /// Returns the credits that the remote could be told of, if each remote may have `at_once` in flight.
    #[inline]
    pub(super) fn tellable(&self, at_once: u32) -> u32 {
        self.due().min(at_once.saturating_sub(self.unused()))
    }

    /// Returns the total and the slot counts for a header that is sent now.
    #[inline]
    pub(super) fn total(&self, at_once: u32) -> (u32, Slots) {
        let total = self.told.wrapping_add(self.tellable(at_once));
        (total, self.slots_taken)
    }

    /// Returns the totals of the previous header.
    pub(super) fn same_total(&self) -> (u32, Slots) {
        (self.told, self.slots_told)
    }

    /// Records that a header with these totals has been sent.
    #[inline(always)]
    pub(super) fn on_told(&mut self, total: u32, slots: Slots) {
        (self.told, self.slots_told) = (total, slots);
    }

    /// Returns whether to tell the remote at once, in a packet of its own: more is due than it has unused, and that is
    /// little; or a slot is free again.
    #[inline]
    pub(super) fn is_overdue(&self, at_once: u32) -> bool {
        self.slots_told != self.slots_taken
            || (self.due() > self.unused() && self.has_little(at_once))
    }

    /// Returns whether the remote has few unused credits, compared with those that may be in flight.
    #[inline]
    pub(super) fn has_little(&self, at_once: u32) -> bool {
        self.unused() < at_once / 4
    }

    /// Returns whether the remote has sent nothing for this many epochs; `epoch` is the present one.
    #[inline]
    pub(super) fn is_idle_for(&self, epochs: u16, epoch: u16) -> bool {
        epoch.wrapping_sub(self.used) >= epochs
    }

    pub(super) fn wants(&self) -> bool {
        self.wanted > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_32_bytes() {
        assert_eq!(size_of::<Lender>(), 32);
    }

    #[test]
    fn slot_is_busy_until_its_message_is_taken() {
        let mut them = Lender::default();
        for n in 1..=40u32 {
            for lane in Lane::ALL {
                assert_eq!(them.arrive(Payment::Slot(lane)), Ok(()));
                assert_eq!(them.arrive(Payment::Slot(lane)), Err(Violation::NoSlot));
            }
            them.on_told(0, them.slots_taken);
            assert!(them.in_slots() == 2 && !them.is_overdue(80));
            them.take(Payment::Slot(Lane::Unexpected));
            assert!(them.is_overdue(80));
            // Until the remote is told, the slot is not free again.
            assert_eq!(them.same_total(), (0, them.slots_told));
            let early = them.arrive(Payment::Slot(Lane::Unexpected));
            assert_eq!(early, Err(Violation::NoSlot));
            them.on_told(0, them.slots_taken);
            assert!(!them.is_overdue(80));
            them.take(Payment::Slot(Lane::Matched));
            them.on_told(0, them.slots_taken);
            assert_eq!(u32::from(them.slots_taken.byte()), n % 16 * 0x11);
        }
        assert_eq!(them.in_slots(), 0);
    }
}
