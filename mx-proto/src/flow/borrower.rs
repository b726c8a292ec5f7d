//! Borrower: the credits that one remote lends to this endpoint.
//!
//! ```text
//!   sent ................ allowed            running totals, modulo 2^32
//!     |<----- free ------->|
//!     |<- low ->|                            least that was free in this epoch of the lender, and
//!                                            in the one before: credits that were never needed
//!
//!   enough --- payment: None; a header requests more ---> short --- a header allows more ---> enough
//! ```
//!
//! A message is paid for when it is sent, or when it is copied and reported complete. A send cancelled before that
//! costs nothing, and a copy always has its credits. A Revoke gets the credits that were not needed for two epochs, and
//! none while messages wait.
//!
//! A header requests credits when at least twice as many are missing as were last requested in the lender's epoch. A
//! lasting shortage is therefore reported once an epoch.
//!
//! Totals from the lender need no check here: if it allows too much, messages are only sent earlier.
//!
//! Cost: 24 bytes for each remote; `payment` and `pay` together are a subtraction, a comparison, a minimum and
//! an addition.

use super::credit_fields::{CreditFields, Payment};
use super::slots::{Lane, Slots};

/// Credits that one remote lends to this endpoint. The default account has none, so that only messages in slots, which
/// cost no credit, can be sent.
#[derive(Clone, Copy, Default, Debug)]
pub struct Borrower {
    /// Running total of the credits that our messages may cost; `sent`: that they have cost.
    allowed: u32,
    sent: u32,
    /// Least number of free credits in the previous epoch, and in this one; neither exceeds `free`.
    low: [u32; 2],
    /// Credits last requested in this epoch and not granted at once; 0: none.
    said: u32,
    /// Epoch of the lender, as it was last reported.
    epoch: u8,
    /// Messages sent in slots; `slots_taken`: those that the remote has taken.
    slots_sent: Slots,
    slots_taken: Slots,
    answer: Answer,
}

/// State of the answer to a request for credits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Answer {
    /// The remote has not been asked since it last allowed more.
    #[default]
    None,
    /// The remote has been asked and has not answered.
    Awaited,
    /// The remote has been asked, but has allowed more meanwhile, so its answer does not concern the next request.
    Outrun,
    /// The remote has answered without allowing more: no credits for now.
    Refused,
}

impl Borrower {
    /// Makes the account of a new session with the number of credits that the remote lent in its hello.
    pub fn open(opening: u32) -> Self {
        let allowed = opening.min(WANTED_MAX);
        Self {
            allowed,
            low: [allowed; 2],
            ..Self::default()
        }
    }

    /// Returns the number of credits that can be spent now.
    #[inline]
    pub fn free(&self) -> u32 {
        self.allowed.wrapping_sub(self.sent)
    }

    /// Returns how to pay for a message of `cost` credits: with credits, or with the slot of its lane if it costs one.
    /// An offer costs one. `None`: the message must wait. Changes nothing; [`Self::pay`] follows.
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

    /// Pays for a message that has been sent or copied, with the payment that [`Self::payment`] has just returned.
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

    /// Returns the number of credits to request in the next header; 0 for no request. `waiting` is the cost of all
    /// queued messages, including that of this header.
    ///
    /// A request is due if credits are missing, and at least twice as many as were last requested in this epoch.
    #[inline(always)]
    pub fn wanted(&self, waiting: u32) -> u32 {
        if waiting <= self.free() {
            return 0;
        }
        let missing = (waiting - self.free()).min(WANTED_MAX);
        if missing >= 2 * self.said { missing } else { 0 }
    }

    /// Returns whether a request for credits is due ([`Self::wanted`]), so that the caller sends a Credit packet if no
    /// other can be sent.
    pub fn asks(&self, waiting: u32) -> bool {
        self.wanted(waiting) > 0
    }

    /// Returns true if the caller should send the remote a Ping, because its answer shows whether more credits come,
    /// and notes that an answer is awaited. Returns false until both the answer and more credits have come.
    pub fn awaits_answer(&mut self) -> bool {
        let first = self.answer == Answer::None;
        if first {
            self.answer = Answer::Awaited;
        }
        first
    }

    /// Handles the remote's Pong. Returns true if an answer was awaited, so that waiting messages can be announced, or
    /// credits requested again.
    pub fn on_answer(&mut self) -> bool {
        self.answer = match self.answer {
            Answer::Awaited => Answer::Refused,
            Answer::Outrun => Answer::None,
            Answer::None | Answer::Refused => return false,
        };
        true
    }

    /// Returns whether the remote's last answer lent no more credits. Messages then stop waiting for credits and are
    /// announced instead, until the remote lends more.
    pub fn is_refused(&self) -> bool {
        self.answer == Answer::Refused
    }

    /// Records that a header requested `wanted` credits more than are free, so that later headers do not repeat the
    /// request. 0: the header requested none, and nothing changes.
    #[inline(always)]
    pub fn on_said(&mut self, wanted: u32) {
        if wanted > 0 {
            self.said = wanted;
            self.low[1] = 0;
        }
    }

    /// Applies the credit fields of a header from the remote. Returns true if more messages can be sent than before,
    /// with credits or in slots. Older or invalid totals are ignored.
    #[inline]
    pub fn on_credit_fields(&mut self, fields: &CreditFields) -> bool {
        let updated = fields.epoch != self.epoch || fields.slots != self.slots_taken;
        let freed = updated && self.on_update(fields);
        if fields.credit == self.allowed {
            return freed;
        }
        // Totals only grow: any other value is older, or invalid.
        let free = fields.credit.wrapping_sub(self.sent);
        let more = free > self.free() && free <= WANTED_MAX;
        if more {
            // All requested credits have come at once, so as many may be requested again.
            if self.said != 0 && free - self.free() >= self.said {
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

    /// Applies a new epoch or new slots. Returns true if a slot is free again.
    #[cold]
    fn on_update(&mut self, fields: &CreditFields) -> bool {
        let free = self.free();
        match fields.epoch.wrapping_sub(self.epoch) {
            0 => {}
            1 => (self.low, self.said) = ([self.low[1], free], 0),
            // A remote that was told of no change for a whole epoch has sent little.
            _ => (self.low, self.said) = ([free; 2], 0),
        }
        self.epoch = fields.epoch;
        let freed = self.slots_taken != fields.slots;
        self.slots_taken = fields.slots;
        freed
    }

    /// Handles a Revoke of `asked` credits: returns those that were not needed during the last two epochs, and 0 if
    /// messages of cost `waiting` are queued for the remote. The caller sends the number in a Return; the credits are
    /// gone.
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

/// Largest number of credits that a header can request (24 bits). No lender allows more at once, so older totals can be
/// told from newer ones.
pub const WANTED_MAX: u32 = (1 << 24) - 1;

#[cfg(test)]
impl Borrower {
    /// Returns the borrower with totals larger by `by`.
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
        // Credits that come before the answer are an answer themselves, and the late answer does not concern the next
        // request.
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
        // At least 40 were free in this epoch, and 100 in the one before.
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
