//! The credits lent to one remote.
//!
//! ```text
//!   taken ........ arrived ........ told ........ taken + credit limit       running totals, modulo 2^32
//!     |<- waiting ->|<-- unused -->|<--- due --->|
//!     |<------------------- credit limit --------------->|                   what the pool counts
//! ```
//!
//! *Unused* credits the remote may spend at any time; *waiting* ones are in its messages here;
//! *due* ones it has yet to be told of, as many as may be on their way at once. The remote's own
//! count of unused lags behind by those on their way, and is never ahead. Messages in slots are not
//! counted here.
//!
//! Out of scope: the pool, other remotes; [`super::Flow`] keeps them consistent.
//!
//! Cost: 32 bytes a remote. `arrive` is a subtraction, a comparison and an addition.

use super::credit_fields::Payment;
use super::lists::Lists;
use super::slots::{Lane, Slots};
use crate::status::Violation;

/// The account of one remote. The default is one that has been lent nothing, and is not open.
#[derive(Clone, Copy, Debug)]
pub struct Lender {
    /// Running totals: credits it has been told of, those of its messages and Returns, and those of
    /// received ones.
    pub(super) told: u32,
    pub(super) arrived: u32,
    pub(super) taken: u32,
    /// Neighbours in its list; see `lists`.
    pub(super) before: u32,
    pub(super) next: u32,
    pub(super) credit_limit: u16,
    /// The credits it requests besides; not 0 exactly while it is in a list of those that want.
    pub(super) wanted: u16,
    /// A Revoke for so many is under way.
    pub(super) asked: u16,
    /// The epoch, modulo 2^16, in which a message of its last came, or a request.
    pub(super) used: u16,
    /// Its messages in slots that have been taken, and what it has been told of that.
    slots_taken: Slots,
    slots_told: Slots,
    pub(super) place: AccountList,
    /// Slots with messages kept here, a bit for each lane.
    kept: u8,
}

/// The list that an account is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum AccountList {
    /// Quiet, with more than the minimum; front: longest not used.
    Above,
    /// Quiet, with some.
    Within,
    /// Has its share, and wants more; front: longest waiting.
    Wanting,
    /// Has some, less than its share, and wants more.
    Short,
    /// Has none and wants some.
    Poor,
    /// None: it has nothing, or is being asked.
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
    /// The account of a remote that has been told this credit limit, and has used nothing since that epoch.
    pub(super) fn open(credit_limit: u16, used: u16) -> Self {
        Self {
            told: credit_limit.into(),
            credit_limit,
            used,
            ..Self::default()
        }
    }

    /// Credits that have been lent to it, wherever they are.
    pub fn credit_limit(&self) -> u32 {
        self.credit_limit.into()
    }

    /// Credits of the limit that messages hold which wait here.
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.arrived.wrapping_sub(self.taken)
    }

    /// Credits of the limit that the remote may use at any time.
    #[inline]
    pub fn unused(&self) -> u32 {
        self.told.wrapping_sub(self.arrived)
    }

    /// Credits of the limit that the remote has not been told of.
    #[inline]
    pub fn due(&self) -> u32 {
        let most = self.taken.wrapping_add(self.credit_limit.into());
        most.wrapping_sub(self.told)
    }

    /// The credits it requests besides and waits for.
    pub fn wanted(&self) -> u32 {
        self.wanted.into()
    }

    /// Whether the remote has been asked for credits in this epoch, and has not answered.
    pub fn is_asked(&self) -> bool {
        self.asked > 0
    }

    /// Messages of its in slots that wait here.
    pub fn in_slots(&self) -> u32 {
        self.kept.count_ones()
    }

    /// A message came.
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

    /// A slot is free again when its remote has been told so: a remote that reads nothing has one
    /// message.
    #[cold]
    fn arrive_in(&mut self, lane: Lane) -> Result<(), Violation> {
        let bit = 1 << lane as u8;
        if self.kept & bit != 0 || !self.slots_told.agree(self.slots_taken, lane) {
            return Err(Violation::NoSlot);
        }
        self.kept |= bit;
        Ok(())
    }

    /// Records that a message of the remote is over.
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

    /// The credits it could be told of, if one remote may have so many on their way at once.
    #[inline]
    pub(super) fn tellable(&self, at_once: u32) -> u32 {
        self.due().min(at_once.saturating_sub(self.unused()))
    }

    /// The total for a header that leaves now, and the slots.
    #[inline]
    pub(super) fn total(&self, at_once: u32) -> (u32, Slots) {
        let total = self.told.wrapping_add(self.tellable(at_once));
        (total, self.slots_taken)
    }

    /// The totals of the header before.
    pub(super) fn same_total(&self) -> (u32, Slots) {
        (self.told, self.slots_told)
    }

    /// A header that says so has left.
    #[inline(always)]
    pub(super) fn on_told(&mut self, total: u32, slots: Slots) {
        (self.told, self.slots_told) = (total, slots);
    }

    /// True if the remote should be told at once, by a packet of its own: more is due than it has
    /// unused, and that is little; or a slot is free again.
    #[inline]
    pub(super) fn is_overdue(&self, at_once: u32) -> bool {
        self.slots_told != self.slots_taken
            || (self.due() > self.unused() && self.has_little(at_once))
    }

    /// True if it has few unused credits, compared with those that may be in flight.
    #[inline]
    pub(super) fn has_little(&self, at_once: u32) -> bool {
        self.unused() < at_once / 4
    }

    /// Has nothing come of it for so many epochs, when this is the number of the present one?
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
            // Before it is told it is not free again.
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
