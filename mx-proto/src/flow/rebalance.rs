//! Rebalancing: moves credits to the remotes that request them.
//!
//! ```text
//!   poll:  serve     lends to Poor, then Short, then Wanting, each in order
//!            |  nothing is left to lend, but remotes wait
//!            v
//!          revoke    from a quiet remote at the front of Above: everything above the minimum;
//!            |       from one of Within: everything, while a remote has none;
//!            |       from the front of Above: everything above its share, if it has been idle in this epoch
//!            |       and another remote has less than its share
//!            v
//!          narrow    no remote can be sent a Revoke, and one is Poor or Short: credits received from a remote
//!                    with more than its share are not granted again
//! ```
//!
//! A remote that uses most of its credit limit at a time is lent more even without a request (`enlarge`).
//!
//! The *share* is the even part of each active remote. Rebalancing terminates: while others have less than their share,
//! a served remote gets at most its own; requests beyond the share get only free credits, and no remote is narrowed for
//! them.

use super::credit_fields::Payment;
use super::lender::{AccountList, Lender};
use super::settings::{ASKED_AT_ONCE, MINIMUM, QUIET};
use super::{Accounts, CreditMessage, Flow};
use crate::origin::Source;
use crate::status::Violation;

impl Flow {
    /// Marks the remote as active in this epoch, after it has sent a message or a request. Ends the epoch first if it
    /// has had enough messages.
    #[cold]
    pub fn note_use(&mut self, all: &mut impl Accounts, remote: u32) {
        if self.counts.messages >= self.epochs.until {
            self.end_epoch();
        }
        let epoch = self.epochs.number();
        let Some((account, _)) = all.account(remote) else {
            return;
        };
        if account.used == epoch {
            return;
        }
        account.used = epoch;
        self.epochs.on_active();
        self.at_once = self.epochs.at_once();
        if !account.wants() {
            self.refresh(all, remote);
        }
    }

    /// Moves a remote that has just used its credits to the back of the list for its state.
    fn refresh(&mut self, all: &mut impl Accounts, remote: u32) {
        if let Some((account, _)) = all.account(remote) {
            account.used = self.epochs.number();
        }
        self.lists.put(all, remote, AccountList::Nowhere);
        self.file(all, remote);
    }

    /// Begins a new epoch: the previous one has had enough messages, or has lasted [`EPOCH_TIME`](super::EPOCH_TIME)
    /// while a remote waited. Unanswered Revokes no longer count.
    pub fn end_epoch(&mut self) {
        self.counts.epochs += 1;
        self.epochs.end(self.counts.messages);
        self.at_once = self.epochs.at_once();
        (self.asked, self.expected) = (0, 0);
        self.wake();
    }

    /// Handles a header's request for `credits` more credits, which [`Self::poll`] lends when there are some. Returns
    /// true if the remote has not been told of all that it can use already, and should be at once.
    #[cold]
    pub fn wants(&mut self, all: &mut impl Accounts, remote: u32, credits: u32) -> bool {
        self.counts.wants += 1;
        self.note_use(all, remote);
        let most = self.most;
        let Some((account, _)) = all.account(remote) else {
            return false;
        };
        // The remote has not been told of these yet.
        let due = account.due();
        let told = account.tellable(self.at_once) > 0;
        let room = most.saturating_sub(account.credit_limit());
        let wanted = credits.saturating_sub(due).next_multiple_of(GRAIN);
        self.set_wanted(account, wanted.min(room));
        self.file(all, remote);
        self.wake();
        told
    }

    /// Handles a Return of `credits` credits, the answer to a Revoke. A [`Violation`]: no Revoke was sent, or the
    /// remote did not have so many.
    pub fn returned(
        &mut self,
        all: &mut impl Accounts,
        remote: u32,
        credits: u32,
    ) -> Result<(), Violation> {
        let Some((account, source)) = all.account(remote) else {
            return Ok(());
        };
        let violation = if account.asked == 0 {
            Some(Violation::NotAsked)
        } else if credits > account.unused() {
            Some(Violation::NotHad)
        } else {
            None
        };
        if let Some(violation) = violation {
            self.counts.violations += 1;
            return Err(violation);
        }
        let asked = std::mem::take(&mut account.asked);
        account.arrived = account.arrived.wrapping_add(credits);
        account.taken = account.taken.wrapping_add(credits);
        // `credits` is at most `unused`, which is a part of the credit limit.
        account.credit_limit -= credits as u16;
        // A remote that keeps some counts as having just used them.
        if credits < asked.into() {
            account.used = self.epochs.number();
        }
        self.forget_asked(asked);
        self.pool.take_back(source, credits);
        self.counts.returned += u64::from(credits);
        self.file(all, remote);
        self.wake();
        Ok(())
    }

    /// Returns whether [`Self::poll`] may have something to do, or a fetch waits for credits that are now free.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Lends free credits to waiting remotes, or revokes unused ones. Returns the index of a remote and the message to
    /// send to it; `None` if there is none now. Called a few times in a row while [`Self::is_ready`].
    pub fn poll(&mut self, all: &mut impl Accounts) -> Option<(u32, CreditMessage)> {
        for _ in 0..LOOKED_AT {
            let told = if !self.ready {
                return None;
            } else if let Some(remote) = self.servable(all) {
                self.serve(all, remote)
            } else if let Some((remote, floor)) = self.find(all) {
                self.ask(all, remote, floor)
            } else {
                self.ready = false;
                None
            };
            if told.is_some() {
                return told;
            }
        }
        None
    }

    /// Returns the first waiting remote, if there are credits for it or its request is stale.
    fn servable(&self, all: &mut impl Accounts) -> Option<u32> {
        let places = [AccountList::Poor, AccountList::Short, AccountList::Wanting];
        let remote = places.iter().find_map(|place| self.lists.front(*place))?;
        let (account, _) = all.account(remote)?;
        let stale = account.is_idle_for(QUIET, self.epochs.number());
        (stale || self.pool.available() > 0).then_some(remote)
    }

    /// Lends credits to a waiting remote, or drops its request.
    fn serve(&mut self, all: &mut impl Accounts, remote: u32) -> Option<(u32, CreditMessage)> {
        let (epoch, share) = (self.epochs.number(), self.share());
        let others = self.lists.len(AccountList::Poor) + self.lists.len(AccountList::Short) > 1;
        let (account, source) = all.account(remote)?;
        let part = if account.place != AccountList::Wanting && others {
            share.saturating_sub(account.credit_limit()).max(1)
        } else {
            self.most
        };
        let credits = account.wanted().min(part).min(self.pool.room(source));
        if account.is_idle_for(QUIET, epoch) || credits == 0 {
            // The remote is silent, or its source has its full share.
            self.set_wanted(account, 0);
            self.file(all, remote);
            return None;
        }
        // `wanted` was bounded so that the sum is at most the largest credit limit.
        self.lend(account, source, credits);
        self.set_wanted(account, account.wanted() - credits);
        // The remote waits for the credits, unless it has plenty.
        let told = account.has_little(self.at_once) && account.tellable(self.at_once) > 0;
        // If the remote wants more, it goes to the back; a Revoke must not ask for credits that were just lent.
        self.refresh(all, remote);
        told.then_some((remote, CreditMessage::Credit))
    }

    /// Selects a remote to revoke credits from, if too few are free. Returns it and the number it may keep.
    fn find(&self, all: &mut impl Accounts) -> Option<(u32, u32)> {
        let enough = self.pool.available() + self.expected;
        if self.asked >= ASKED_AT_ONCE || self.wanted <= enough.into() {
            return None;
        }
        let mut idle_for = |epochs, place| {
            let remote = self.lists.front(place)?;
            let (account, _) = all.account(remote)?;
            let idle = account.is_idle_for(epochs, self.epochs.number());
            idle.then_some((remote, account.credit_limit()))
        };
        let poor = self.lists.len(AccountList::Poor) > 0;
        if let Some((remote, _)) = idle_for(QUIET, AccountList::Above) {
            return Some((remote, if poor { 0 } else { MINIMUM }));
        }
        if poor && let Some((remote, _)) = idle_for(QUIET, AccountList::Within) {
            return Some((remote, 0));
        }
        let share = self.share().max(MINIMUM);
        let (remote, credit_limit) = idle_for(1, AccountList::Above)?;
        (credit_limit > share && self.is_any_remote_short()).then_some((remote, share))
    }

    /// Takes back what a remote has above `floor`: due credits without asking, as the remote has not been told of them,
    /// and the rest by a Revoke.
    fn ask(
        &mut self,
        all: &mut impl Accounts,
        remote: u32,
        floor: u32,
    ) -> Option<(u32, CreditMessage)> {
        let (account, source) = all.account(remote)?;
        let over = account.credit_limit().saturating_sub(floor);
        self.narrow(account, source, over);
        let over = account.credit_limit().saturating_sub(floor);
        let asked = over.min(account.unused());
        if asked == 0 {
            self.refresh(all, remote);
            return None;
        }
        // `asked` is at most the credit limit.
        account.asked = asked as u16;
        self.counts.revoked += u64::from(asked);
        self.asked += 1;
        self.expected += asked;
        self.lists.put(all, remote, AccountList::Nowhere);
        Some((remote, CreditMessage::Revoke(asked)))
    }

    /// Lowers a credit limit above the share by the cost of a message that has been taken. Called while no Revoke is
    /// outstanding and a remote has less than its share.
    #[cold]
    pub(super) fn narrow_to_share(&mut self, account: &mut Lender, source: Source, paid: Payment) {
        let Payment::Credits(cost) = paid else { return };
        let over = account.credit_limit().saturating_sub(self.share());
        if self.narrow(account, source, over.min(cost)) > 0 {
            self.ready = true;
        }
    }

    /// Takes back up to `credits` of the due credits and returns their number.
    fn narrow(&mut self, account: &mut Lender, source: Source, credits: u32) -> u32 {
        let less = credits.min(account.due());
        account.credit_limit -= less as u16;
        self.pool.take_back(source, less);
        self.counts.narrowed += u64::from(less);
        less
    }

    /// Lends the difference to a remote that has fewer unused than due credits, so that the next update can be
    /// piggybacked. Only while no remote waits, and a new one would get all of the first credits.
    #[cold]
    pub(super) fn enlarge(&mut self, account: &mut Lender, source: Source) {
        if self.wanted > 0
            || account.credit_limit() <= MINIMUM
            || self.first_credits(source) < self.first
        {
            return;
        }
        let more = account.due().saturating_sub(account.unused());
        let more = more.min(self.most.saturating_sub(account.credit_limit()));
        let more = more.min(self.pool.room(source));
        self.lend(account, source, more);
    }

    /// Lends credits for which there is room; the sum is at most the largest credit limit.
    fn lend(&mut self, account: &mut Lender, source: Source, credits: u32) {
        self.pool.lend(source, credits);
        self.counts.granted += u64::from(credits);
        account.credit_limit += credits as u16;
    }

    /// Puts the remote in the list for its state; it keeps its position if it is in that list already.
    pub(super) fn file(&mut self, all: &mut impl Accounts, remote: u32) {
        let share = self.share();
        let Some((account, _)) = all.account(remote) else {
            return;
        };
        let place = if account.wants() {
            match account.credit_limit() {
                0 => AccountList::Poor,
                // Tolerate a quarter, because the share changes a little all the time.
                credit_limit if credit_limit < share - share / 4 => AccountList::Short,
                _ => AccountList::Wanting,
            }
        } else if account.asked > 0 || account.credit_limit == 0 {
            AccountList::Nowhere
        } else if account.credit_limit() > MINIMUM {
            AccountList::Above
        } else {
            AccountList::Within
        };
        if account.place != place {
            self.lists.put(all, remote, place);
        }
    }

    pub(super) fn set_wanted(&mut self, account: &mut Lender, credits: u32) {
        self.wanted += u64::from(credits);
        self.wanted -= u64::from(account.wanted);
        // `credits` is at most the largest credit limit.
        account.wanted = credits as u16;
    }

    /// Ends the wait for a remote's answer to a Revoke of this or an earlier epoch.
    pub(super) fn forget_asked(&mut self, credits: u16) {
        self.asked = self.asked.saturating_sub(1);
        self.expected = self.expected.saturating_sub(credits.into());
    }

    /// Requests a poll after credits became free or were requested.
    pub(super) fn wake(&mut self) {
        self.ready |= self.wanted != 0 || self.missing != 0;
    }

    pub(super) fn is_any_remote_short(&self) -> bool {
        self.lists.len(AccountList::Poor) + self.lists.len(AccountList::Short) > 0
    }

    /// Returns the even share of each active remote in all lendable credits.
    fn share(&self) -> u32 {
        (self.pool.lendable() / self.epochs.active()).max(1)
    }
}

/// Granularity of requests. One credit is not worth an update, and a remote with exactly what it uses would lack one
/// whenever its messages change a little.
const GRAIN: u32 = 8;

/// Maximum number of remotes examined in one poll; many requests may be stale.
const LOOKED_AT: u32 = 64;
