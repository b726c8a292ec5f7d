//! Where all credits are.
//!
//! ```text
//!                 lend                 bequeath (the peer is gone, its messages wait)
//!          .------------> lent --------------------.
//!        bank <-----------'  give back             v
//!          |<----------------------------------- estates     settle
//!          `------------> drawn                    ^
//!          ^---------------'   `-------------------' (of a peer that knows no credits)
//! ```
//!
//! `bank + drawn + lent + estates == total`, always. Lending leaves `bank + drawn + estates` at the
//! reserve or more, and what is drawn or an estate comes back when the host takes messages: so a
//! draw of up to the reserve always comes through in time.
//!
//! Knows nothing of: peers.

/// The balance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bank {
    total: u32,
    reserve: u32,
    bank: u32,
    drawn: u32,
    lent: u32,
    estates: u32,
}

impl Bank {
    /// Everything is banked.
    pub(super) fn new(total: u32, reserve: u32) -> Self {
        Self {
            total,
            reserve,
            bank: total,
            drawn: 0,
            lent: 0,
            estates: 0,
        }
    }

    /// What can be lent.
    #[inline]
    pub(super) fn available(&self) -> u32 {
        let unlent = self.bank + self.drawn + self.estates;
        unlent.saturating_sub(self.reserve).min(self.bank)
    }

    /// Lends what was [`Self::available`].
    pub(super) fn lend(&mut self, credits: u16) {
        debug_assert!(u32::from(credits) <= self.available());
        self.move_out(u32::from(credits));
        self.lent += u32::from(credits);
        self.check();
    }

    /// Credits of a loan are here again.
    pub(super) fn give_back(&mut self, credits: u16) {
        self.lent -= u32::from(credits);
        self.bank += u32::from(credits);
        self.check();
    }

    /// Takes credits for a message; false when there are not enough.
    pub(super) fn draw(&mut self, credits: u32) -> bool {
        if credits > self.bank {
            return false;
        }
        self.move_out(credits);
        self.drawn += credits;
        self.check();
        true
    }

    /// The host has the message.
    pub(super) fn undraw(&mut self, credits: u32) {
        debug_assert!(credits <= self.drawn, "undrawn {credits} of {self:?}");
        let credits = credits.min(self.drawn);
        self.drawn -= credits;
        self.bank += credits;
        self.check();
    }

    /// Credits of a loan are now held by messages of nobody.
    pub(super) fn bequeath(&mut self, credits: u16) {
        self.lent -= u32::from(credits);
        self.estates += u32::from(credits);
        self.check();
    }

    /// Drawn credits are now held by messages of nobody.
    pub(super) fn bequeath_drawn(&mut self, credits: u16) {
        self.drawn -= u32::from(credits);
        self.estates += u32::from(credits);
        self.check();
    }

    /// The host has messages of nobody.
    pub(super) fn settle(&mut self, credits: u32) {
        self.estates -= credits;
        self.bank += credits;
        self.check();
    }

    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// What could be lent if nobody had anything.
    pub(super) fn lendable(&self) -> u32 {
        self.total.saturating_sub(self.reserve)
    }

    pub(super) fn banked(&self) -> u32 {
        self.bank
    }

    pub(super) fn drawn(&self) -> u32 {
        self.drawn
    }

    pub(super) fn lent(&self) -> u32 {
        self.lent
    }

    pub(super) fn estates(&self) -> u32 {
        self.estates
    }

    fn move_out(&mut self, credits: u32) {
        self.bank -= credits;
    }

    #[inline]
    fn check(&self) {
        debug_assert_eq!(
            self.bank + self.drawn + self.lent + self.estates,
            self.total,
            "{self:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lending_leaves_the_reserve_which_draws_may_use() {
        let mut bank = Bank::new(100, 30);
        assert_eq!(bank.available(), 70);
        bank.lend(70);
        assert_eq!(bank.available(), 0);
        assert!(!bank.draw(31));
        assert!(bank.draw(30));
        assert!(!bank.draw(1));
        assert_eq!(bank.available(), 0);
        bank.undraw(10);
        assert_eq!((bank.available(), bank.banked()), (0, 10));
        bank.give_back(15);
        // 45 are not lent, 20 of them drawn.
        assert_eq!((bank.available(), bank.banked()), (15, 25));
    }

    #[test]
    fn messages_of_nobody_hold_their_credits_until_the_host_has_them() {
        let mut bank = Bank::new(100, 10);
        bank.lend(50);
        assert!(bank.draw(20));
        bank.bequeath(40);
        bank.give_back(10);
        bank.bequeath_drawn(20);
        assert_eq!((bank.estates(), bank.banked(), bank.drawn()), (60, 40, 0));
        bank.settle(60);
        assert_eq!((bank.estates(), bank.banked(), bank.lent()), (0, 100, 0));
    }

    #[test]
    fn a_reserve_above_the_total_lends_nothing() {
        let bank = Bank::new(10, 20);
        assert_eq!((bank.available(), bank.lendable()), (0, 0));
    }
}
