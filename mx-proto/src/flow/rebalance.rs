//! Moves credits to the remotes that request them.
//!
//! ```text
//!   poll:  serve     lends to Poor, then Short, then Wanting, each in order
//!            |  requests are left
//!            v
//!          ask       a Revoke to a quiet remote at the front of Above, for all above the minimum;
//!            |       to one of Within, for everything, while a remote has none;
//!            |       to one of Above that has more than its share and leaves most of it unused
//!            v
//!          narrow    no remote to ask, and one is Poor or Short: credits received from a remote with
//!                    more than its share are not granted again
//! ```
//!
//! Without requests, a remote that uses most of its credit limit at a time is lent more (`enlarge`).
//!
//! The *share* is the even part of each active remote. This terminates: while others have less than
//! their share, a served remote gets at most its own; requests beyond the share get only free credits,
//! and no remote is narrowed for them.

use super::credit_fields::{Paid, Violation};
use super::lender::{Lender, Place};
use super::lists::Lists;
use super::settings::{ASKED_AT_ONCE, MINIMUM, QUIET};
use super::{Accounts, Flow, Say};
use crate::origin::Source;

impl Flow {
    /// Marks the remote as active in this epoch: it has sent something.
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
            self.lists.put(all, remote, Place::Nowhere);
            self.file(all, remote);
        }
    }

    /// Ends the epoch: [`EPOCH_TIME`](super::EPOCH_TIME) has passed while a remote waited.
    pub fn end_epoch(&mut self) {
        self.counts.epochs += 1;
        self.epochs.end(self.counts.messages);
        self.at_once = self.epochs.at_once();
        (self.asked, self.expected) = (0, 0);
        self.wake();
    }

    /// Handles a header's request for credits. True if the remote should be told its due ones at once.
    #[cold]
    pub fn wants(&mut self, all: &mut impl Accounts, remote: u32, credits: u32) -> bool {
        self.counts.wants += 1;
        self.note_use(all, remote);
        let most = self.most;
        let Some((account, _)) = all.account(remote) else {
            return false;
        };
        // The remote has not been told of these.
        let due = account.due();
        let told = account.tellable(self.at_once) > 0;
        let room = most.saturating_sub(account.credit_limit());
        let wanted = credits.saturating_sub(due).next_multiple_of(GRAIN);
        self.set_wanted(account, wanted.min(room));
        self.file(all, remote);
        self.wake();
        told
    }

    /// Handles a Return, the answer to a Revoke.
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
        // At most what is unused, which is a part of the credit limit.
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

    /// True if there is something to [poll](Self::poll).
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Moves credits; returns the next remote to tell. Called while it [may](Self::is_ready) return
    /// one, a few times a step.
    pub fn poll(&mut self, all: &mut impl Accounts) -> Option<(u32, Say)> {
        if !self.ready {
            return None;
        }
        let next = self.serve(all).or_else(|| self.ask(all));
        if next.is_none() {
            // After many stale requests, servable ones may follow.
            self.ready = self.pool.available() > 0 && self.first_waiting().is_some();
        }
        next
    }

    /// Lends to waiting remotes, in order, until one has to be told.
    fn serve(&mut self, all: &mut impl Accounts) -> Option<(u32, Say)> {
        let (epoch, share) = (self.epochs.number(), self.share());
        for _ in 0..LOOKED_AT {
            let remote = self.first_waiting()?;
            let others = self.lists.len(Place::Poor) + self.lists.len(Place::Short) > 1;
            let available = self.pool.available();
            let (account, source) = all.account(remote)?;
            let stale = account.is_idle_for(QUIET, epoch);
            if available == 0 && !stale {
                return None;
            }
            let part = if account.place != Place::Wanting && others {
                share.saturating_sub(account.credit_limit()).max(1)
            } else {
                self.most
            };
            let credits = account.wanted().min(part).min(self.pool.room(source));
            if stale || credits == 0 {
                // The remote is silent, or its source has its full share.
                self.set_wanted(account, 0);
                self.file(all, remote);
                continue;
            }
            self.pool.lend(source, credits);
            self.counts.granted += u64::from(credits);
            // `wanted` was bounded so that the sum is at most the largest credit limit.
            account.credit_limit += credits as u16;
            // A Revoke must not ask for what was just lent.
            account.used = epoch;
            let left = account.wanted() - credits;
            // The remote waits for them, unless it has plenty.
            let told = account.has_little(self.at_once) && account.tellable(self.at_once) > 0;
            self.set_wanted(account, left);
            // Moves it to the back if it wants more.
            self.lists.put(all, remote, Place::Nowhere);
            self.file(all, remote);
            if told {
                return Some((remote, Say::Credit));
            }
        }
        None
    }

    fn first_waiting(&self) -> Option<u32> {
        let places = [Place::Poor, Place::Short, Place::Wanting];
        places.iter().find_map(|place| self.lists.front(*place))
    }

    /// Asks one remote to return credits, if too few are free.
    fn ask(&mut self, all: &mut impl Accounts) -> Option<(u32, Say)> {
        while self.asked < ASKED_AT_ONCE
            && self.wanted > (self.pool.available() + self.expected).into()
        {
            let (remote, floor) = self.find(all)?;
            let (account, source) = all.account(remote)?;
            // Due credits can be taken without asking: the remote has not been told of them.
            let over = account.credit_limit().saturating_sub(floor);
            let due = over.min(account.due());
            // Both are at most the credit limit.
            account.credit_limit -= due as u16;
            account.asked = (over - due).min(account.unused()) as u16;
            let asked = u32::from(account.asked);
            self.pool.take_back(source, due);
            self.counts.narrowed += u64::from(due);
            self.counts.revoked += u64::from(asked);
            if asked > 0 {
                self.lists.put(all, remote, Place::Nowhere);
                self.asked += 1;
                self.expected += asked;
                return Some((remote, Say::Revoke(asked)));
            }
            self.pass_over(all, remote);
            if due > 0
                && let Some(told) = self.serve(all)
            {
                return Some(told);
            }
        }
        None
    }

    /// Moves a remote with nothing to return to the back, as if it had just used its credits.
    fn pass_over(&mut self, all: &mut impl Accounts, remote: u32) {
        if let Some((account, _)) = all.account(remote) {
            account.used = self.epochs.number();
        }
        self.lists.put(all, remote, Place::Nowhere);
        self.file(all, remote);
    }

    /// Selects a remote to ask, and the credits that it may keep.
    fn find(&mut self, all: &mut impl Accounts) -> Option<(u32, u32)> {
        let epoch = self.epochs.number();
        let mut quiet = |lists: &Lists, place| {
            let remote = lists.front(place)?;
            let (account, _) = all.account(remote)?;
            account.is_idle_for(QUIET, epoch).then_some(remote)
        };
        if let Some(remote) = quiet(&self.lists, Place::Above) {
            let poor = self.lists.len(Place::Poor) > 0;
            return Some((remote, if poor { 0 } else { MINIMUM }));
        }
        if self.lists.len(Place::Poor) > 0
            && let Some(remote) = quiet(&self.lists, Place::Within)
        {
            return Some((remote, 0));
        }
        if !self.is_any_remote_short() {
            return None;
        }
        let share = self.share().max(MINIMUM);
        for _ in 0..PASS_OVER {
            let remote = self.lists.front(Place::Above)?;
            let (account, _) = all.account(remote)?;
            let idle =
                account.is_idle_for(1, epoch) && 2 * account.unused() > account.credit_limit();
            if account.credit_limit() > share && idle {
                return Some((remote, share));
            }
            self.lists.put(all, remote, Place::Above);
        }
        None
    }

    /// Reduces a credit limit above the share by the cost of the message just taken; called while no
    /// remote is quiet and one has less than its share.
    #[cold]
    pub(super) fn narrow(&mut self, account: &mut Lender, source: Source, paid: Paid) {
        let Paid::Credits(cost) = paid else { return };
        let over = account.credit_limit().saturating_sub(self.share());
        let less = over.min(cost).min(account.due());
        account.credit_limit -= less as u16;
        self.pool.take_back(source, less);
        self.counts.narrowed += u64::from(less);
        self.ready |= less > 0;
    }

    /// Lends the difference to a remote with less unused than due, so that next time the update can be
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
        self.pool.lend(source, more);
        self.counts.granted += u64::from(more);
        // At most the largest credit limit.
        account.credit_limit += more as u16;
    }

    /// Puts the remote in the list for its state; it keeps its place if it is already there.
    pub(super) fn file(&mut self, all: &mut impl Accounts, remote: u32) {
        let share = self.share();
        let Some((account, _)) = all.account(remote) else {
            return;
        };
        let place = if account.wants() {
            match account.credit_limit() {
                0 => Place::Poor,
                // A quarter of tolerance: the share changes a little all the time.
                credit_limit if credit_limit < share - share / 4 => Place::Short,
                _ => Place::Wanting,
            }
        } else if account.asked > 0 || account.credit_limit == 0 {
            Place::Nowhere
        } else if account.credit_limit() > MINIMUM {
            Place::Above
        } else {
            Place::Within
        };
        if account.place != place {
            self.lists.put(all, remote, place);
        }
    }

    pub(super) fn set_wanted(&mut self, account: &mut Lender, credits: u32) {
        self.wanted += u64::from(credits);
        self.wanted -= u64::from(account.wanted);
        // At most the largest credit limit.
        account.wanted = credits as u16;
    }

    /// Ends the wait for a remote's answer to a Revoke, of this epoch or an earlier one.
    pub(super) fn forget_asked(&mut self, credits: u16) {
        self.asked = self.asked.saturating_sub(1);
        self.expected = self.expected.saturating_sub(credits.into());
    }

    /// Requests a poll after credits came free or were requested.
    pub(super) fn wake(&mut self) {
        self.ready |= self.wanted != 0 || self.missing != 0;
    }

    pub(super) fn is_any_remote_short(&self) -> bool {
        self.lists.len(Place::Poor) + self.lists.len(Place::Short) > 0
    }

    /// The even share of each active remote in all lendable credits.
    fn share(&self) -> u32 {
        (self.pool.lendable() / self.epochs.active()).max(1)
    }
}

/// Granularity of requests. One credit is not worth an update, and a remote with exactly what it uses
/// would miss one whenever its messages change a little.
const GRAIN: u32 = 8;

/// Requests examined in one step; many may be stale.
const LOOKED_AT: u32 = 64;

/// Remotes skipped in one search because they have no more than their share, or use it.
const PASS_OVER: usize = 8;
