//! Whether a large message goes with its data or asks first.
//!
//! ```text
//!   sent with its data --- the peer's next words say that it was taken --> the next may go so, too
//!                     `--- another one is to go, and they have not ------> ASKED ask first, then one tries again
//! ```
//!
//! What comes before its receive is copied twice, through memory of the receiver's that is new each time; a
//! message that asks waits for a round trip and for nobody's memory. As long as each is taken before the next
//! one goes, as in a conversation, going at once is better. In a stream the receiver falls behind sooner or
//! later: 256 KiB over tcp then take a quarter to a third more of its processor.
//!
//! Owns: the answer for one peer.
//! Not here: credits, which both kinds pay.

use crate::flow::Borrower;

/// Smaller ones never ask for this reason: the question costs as much as the second copy.
pub(crate) const BULK: u32 = 128 << 10;

/// As many ask before another one tries.
const ASKED: u8 = 8;

/// The large messages to one peer.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Bulk {
    /// The last one is known to be taken when the peer allows so many credits in all.
    taken_at: Option<u32>,
    /// So many more ask.
    asks: u8,
}

impl Bulk {
    /// Whether a message of `len` bytes asks first.
    #[inline(always)]
    pub(crate) fn asks_first(&self, len: u32, borrows: &Borrower) -> bool {
        len > BULK && self.is_behind(borrows)
    }

    #[inline(never)]
    fn is_behind(&self, borrows: &Borrower) -> bool {
        self.asks > 0
            || self
                .taken_at
                .is_some_and(|total| !borrows.has_reached(total))
    }

    /// One of `len` bytes has gone with its data, which cost so much.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, len: u32, cost: u32, borrows: &Borrower) {
        if len > BULK {
            self.taken_at = Some(borrows.allowed().wrapping_add(cost));
        }
    }

    /// One of `len` bytes has asked.
    pub(crate) fn on_asked(&mut self, len: u32) {
        if len > BULK && (self.asks > 0 || self.taken_at.is_some()) {
            self.asks = self.asks.checked_sub(1).unwrap_or(ASKED - 1);
            if self.asks == 0 {
                self.taken_at = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{CreditFields, Lane, cost};

    const LARGE: u32 = 256 << 10;

    /// A peer that has lent enough.
    fn lent() -> Borrower {
        Borrower::open(1 << 20)
    }

    fn send(bulk: &mut Bulk, borrows: &mut Borrower) {
        assert!(!bulk.asks_first(LARGE, borrows));
        let paid = borrows.means(cost(LARGE), Lane::Matched);
        borrows.pay(paid.unwrap());
        bulk.on_sent(LARGE, cost(LARGE), borrows);
    }

    fn allow(borrows: &mut Borrower, credits: u32) {
        borrows.on_credit_fields(&CreditFields {
            credit: borrows.allowed().wrapping_add(credits),
            ..CreditFields::default()
        });
    }

    #[test]
    fn in_a_conversation_none_asks() {
        let (mut bulk, mut borrows) = (Bulk::default(), lent());
        for _ in 0..100 {
            send(&mut bulk, &mut borrows);
            allow(&mut borrows, cost(LARGE));
        }
    }

    #[test]
    fn behind_one_that_waits_some_ask_and_then_one_tries_again() {
        let (mut bulk, mut borrows) = (Bulk::default(), lent());
        for _ in 0..3 {
            send(&mut bulk, &mut borrows);
            allow(&mut borrows, cost(LARGE) - 1);
            for _ in 0..ASKED {
                assert!(!bulk.asks_first(BULK, &borrows));
                assert!(bulk.asks_first(LARGE, &borrows));
                bulk.on_asked(BULK);
                bulk.on_asked(LARGE);
                allow(&mut borrows, 1);
            }
        }
    }

    #[test]
    fn one_that_asks_for_another_reason_changes_nothing() {
        let (mut bulk, mut borrows) = (Bulk::default(), lent());
        bulk.on_asked(LARGE);
        send(&mut bulk, &mut borrows);
    }
}
