//! The credits that one remote lends us.
//!
//! ```text
//!   sent ................ allowed            running totals, modulo 2^32
//!     |<----- free ------->|
//!     |<- low ->|                            the least that was free in this epoch of the lender's, and
//!                                            in the one before: what was never needed
//!
//!   Free --- means: no, wanted: some ---> Short --- a header allows more ---> Free
//! ```
//!
//! A message is paid for when it is sent, or when it is copied and reported complete; so a send
//! cancelled before that costs nothing, and a copy always has its credits. A Revoke gets the
//! credits that were not needed in two epochs, and none while messages wait.
//!
//! A header requests credits when twice as many are wanted as were requested since the lender's
//! epoch began; so a lasting want is renewed once an epoch.
//!
//! Totals from the lender need no check here: if it allows too much, messages are only sent
//! earlier.
//!
//! Cost: 24 bytes a remote; `means` and `pay` together are a subtraction, a comparison, a minimum and
//! an addition.

use super::credit_fields::{CreditFields, Payment};
use super::slots::{Lane, Slots};

/// The credits one remote has lent us. The default is one that has lent us none: there are its slots.
#[derive(Clone, Copy, Default, Debug)]
pub struct Borrower {
    /// Running totals: the credits that our messages may have cost, and those that they have.
    allowed: u32,
    sent: u32,
    /// The least that was free: in the epoch before, and in this one. Neither is above what is free.
    low: [u32; 2],
    /// The credits requested in this epoch and not lent at once.
    said: u32,
    /// The lender's, as it was last told.
    epoch: u8,
    /// Messages that went in slots, and those the remote has taken.
    slots_sent: Slots,
    slots_taken: Slots,
    answer: Answer,
}

/// The remote's answer to a request for credits, as far as it counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Answer {
    /// The remote has not been asked since it last allowed more.
    #[default]
    None,
    /// The remote has been asked, and has not answered.
    Awaited,
    /// The remote has been asked, but has allowed more meanwhile: its answer is not for the next request.
    Outrun,
    /// The remote has answered, and allowed no more: for now there are none.
    Refused,
}

impl Borrower {
    /// The remote said, when it introduced itself or answered, what it lends us first.
    pub fn open(opening: u32) -> Self {
        let allowed = opening.min(WANTED_MAX);
        Self {
            allowed,
            low: [allowed; 2],
            ..Self::default()
        }
    }

    /// Credits that may be used now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.allowed.wrapping_sub(self.sent)
    }

    /// The way to pay for a message that costs `cost`, if there is one: credits, or else, if it
    /// costs one, the slot of its lane. An announcement costs one.
    #[inline]
    pub fn payment(&self, cost: u32, lane: Lane) -> Option<Payment> {
        if cost <= self.free() {
            return Some(Payment::Credits(cost));
        }
        self.slot(cost, lane)
    }

    #[cold]
    fn slot(&self, cost: u32, lane: Lane) -> Option<Payment> {
        let free = cost == 1 && self.slots_sent.agree(self.slots_taken, lane);
        free.then_some(Payment::Slot(lane))
    }

    /// The message has left, or been copied. To be called with what [`Self::payment`] has just given.
    #[inline(always)]
    pub fn pay(&mut self, paid: Payment) {
        match paid {
            Payment::Credits(cost) => {
                debug_assert!(cost <= self.free());
                self.sent = self.sent.wrapping_add(cost);
                self.low[1] = self.low[1].min(self.free());
            }
            Payment::Slot(lane) => self.slots_sent.count(lane),
        }
    }

    /// The credits to request in the next header, if all waiting messages, including that of this
    /// header, cost `waiting`; 0 if nothing new is wanted.
    #[inline(always)]
    pub fn wanted(&self, waiting: u32) -> u32 {
        if waiting <= self.free() {
            return 0;
        }
        let missing = (waiting - self.free()).min(WANTED_MAX);
        if missing >= 2 * self.said { missing } else { 0 }
    }

    /// True if there is a request: it is worth a packet of its own if no other can be sent.
    pub fn asks(&self, waiting: u32) -> bool {
        self.wanted(waiting) > 0
    }

    /// True if an answer is to be asked for, as more credits may come with it.
    pub fn awaits_answer(&mut self) -> bool {
        let first = self.answer == Answer::None;
        if first {
            self.answer = Answer::Awaited;
        }
        first
    }

    /// The remote has answered. True if what waits may go on: be announced, or asked for.
    pub fn on_answer(&mut self) -> bool {
        self.answer = match self.answer {
            Answer::Awaited => Answer::Refused,
            Answer::Outrun => Answer::None,
            Answer::None | Answer::Refused => return false,
        };
        true
    }

    /// True if there is nothing to wait for.
    pub fn is_refused(&self) -> bool {
        self.answer == Answer::Refused
    }

    /// A header that said so has left.
    #[inline(always)]
    pub fn on_said(&mut self, wanted: u32) {
        if wanted > 0 {
            self.said = wanted;
            self.low[1] = 0;
        }
    }

    /// A header of the remote's. True when more may be sent than before.
    #[inline]
    pub fn on_credit_fields(&mut self, fields: &CreditFields) -> bool {
        let updated = fields.epoch != self.epoch || fields.slots != self.slots_taken;
        let freed = updated && self.on_update(fields);
        if fields.credit == self.allowed {
            return freed;
        }
        // Totals only grow: anything else is older, or no sense.
        let free = fields.credit.wrapping_sub(self.sent);
        let more = free > self.free() && free <= WANTED_MAX;
        if more {
            // All that was wanted has come at once: as much may be wanted again.
            if free - self.free() >= self.said {
                self.said = 0;
            }
            self.allowed = fields.credit;
            self.answer = match self.answer {
                Answer::None | Answer::Refused => Answer::None,
                Answer::Awaited | Answer::Outrun => Answer::Outrun,
            };
        }
        more || freed
    }

    /// True when a slot is free again.
    #[cold]
    fn on_update(&mut self, fields: &CreditFields) -> bool {
        let free = self.free();
        match fields.epoch.wrapping_sub(self.epoch) {
            0 => {}
            1 => (self.low, self.said) = ([self.low[1], free], 0),
            // A remote that is not told for a whole epoch has not sent enough to be told.
            _ => (self.low, self.said) = ([free; 2], 0),
        }
        self.epoch = fields.epoch;
        let freed = self.slots_taken != fields.slots;
        self.slots_taken = fields.slots;
        freed
    }

    /// The remote asks for so many back, while messages that cost `waiting` wait to go there. Returns
    /// the number that it gets, 0 too.
    pub fn give_back(&mut self, asked: u32, waiting: u32) -> u32 {
        if waiting > 0 {
            return 0;
        }
        let back = asked.min(self.low[0]).min(self.low[1]);
        self.sent = self.sent.wrapping_add(back);
        self.low = self.low.map(|low| low - back);
        back
    }
}

/// The largest request that fits a header. No lender allows so many at once, which distinguishes an
/// older total from a newer one.
pub const WANTED_MAX: u32 = (1 << 24) - 1;

#[cfg(test)]
impl Borrower {
    /// The borrower with totals that are larger by `by`.
    pub(super) fn shifted(self, by: u32) -> Self {
        Self {
            allowed: self.allowed.wrapping_add(by),
            sent: self.sent.wrapping_add(by),
            ..self
        }
    }

    pub(super) fn sent(&self) -> u32 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit_fields(credit: u32, epoch: u8, slots: u8) -> CreditFields {
        CreditFields {
            credit,
            epoch,
            slots: Slots::from_byte(slots),
            wanted: 0,
        }
    }

    fn spend(us: &mut Borrower, cost: u32) {
        assert_eq!(
            us.payment(cost, Lane::Matched),
            Some(Payment::Credits(cost))
        );
        us.pay(Payment::Credits(cost));
    }

    #[test]
    fn totals_only_grow_across_their_wrap_and_no_sense_is_left_out() {
        let near = u32::MAX - 2;
        let mut us = Borrower {
            allowed: near,
            sent: near,
            ..Borrower::default()
        };
        for n in 1..10u32 {
            assert!(us.on_credit_fields(&credit_fields(near.wrapping_add(n), 0, 0)));
            assert!(!us.on_credit_fields(&credit_fields(
                near.wrapping_add(n).wrapping_sub(1),
                0,
                0
            )));
            spend(&mut us, 1);
            assert_eq!(us.free(), 0);
        }
        let sent = us.sent;
        assert!(!us.on_credit_fields(&credit_fields(sent.wrapping_add(WANTED_MAX + 1), 0, 0)));
        assert!(!us.on_credit_fields(&credit_fields(sent.wrapping_sub(1), 0, 0)));
        assert!(us.on_credit_fields(&credit_fields(sent.wrapping_add(WANTED_MAX), 0, 0)));
        assert_eq!(us.free(), WANTED_MAX);
        assert_eq!(Borrower::open(u32::MAX).free(), WANTED_MAX);
    }

    #[test]
    fn an_answer_without_credits_is_a_refusal_until_some_come() {
        let mut us = Borrower::open(1);
        assert!(!us.is_refused() && !us.on_answer(), "nothing was asked");
        assert!(us.awaits_answer() && !us.awaits_answer(), "once");
        assert!(!us.is_refused());
        assert!(us.on_answer() && us.is_refused());
        assert!(!us.awaits_answer() && !us.on_answer());
        us.on_credit_fields(&credit_fields(1, 1, 0));
        assert!(us.is_refused(), "no more than before");
        us.on_credit_fields(&credit_fields(2, 1, 0));
        assert!(!us.is_refused());
        // Credits that come before the answer are one, and what comes then is not for the next request.
        assert!(us.awaits_answer());
        us.on_credit_fields(&credit_fields(3, 1, 0));
        assert!(!us.awaits_answer() && !us.is_refused());
        assert!(us.on_answer() && !us.is_refused());
        assert!(us.awaits_answer() && us.on_answer() && us.is_refused());
    }

    #[test]
    fn a_revoke_gets_what_was_not_needed_in_two_epochs() {
        let mut us = Borrower::open(100);
        spend(&mut us, 60);
        us.on_credit_fields(&credit_fields(160, 0, 0));
        // 40 were free at the least in this epoch, 100 in the one before.
        assert_eq!(us.give_back(10, 1), 0, "something waits");
        assert_eq!(us.give_back(10, 0), 10);
        us.on_credit_fields(&credit_fields(160, 1, 0));
        spend(&mut us, 1);
        assert_eq!(us.give_back(1000, 0), 30);
        assert_eq!(us.give_back(1000, 0), 0);
        assert_eq!(us.free(), 59);
        us.on_credit_fields(&credit_fields(160, 2, 0));
        assert_eq!(us.give_back(1000, 0), 59, "one was needed, and is gone");
        assert_eq!((us.free(), us.low), (0, [0, 0]));
    }
}
