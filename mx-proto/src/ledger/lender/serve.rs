//! Messages that are not plain, and moving credits to who wants them.
//!
//! ```text
//!   pump:   serve     Without, then Wanting, each in order <-- what can be lent
//!             |  somebody is left, or the bank is low
//!             v
//!           scavenge  Above from the front, until one was used in this epoch:
//!             |         what we owe it is kept, for the rest it is asked (Revoke)
//!             |       Within likewise, when nobody above has any and somebody waits
//!             `----   whoever has more than a fair share, when somebody has nothing
//! ```
//!
//! Why nobody starves: while somebody has nothing and all is lent, somebody else has more than a
//! fair share (all that can be lent, by the number of peers). If that one is quiet it is asked; if
//! not, its messages are taken by the host, and what is above its share is kept then.

use super::{Arrived, Flags, Lender, List, Record, list_of};
use crate::ledger::byte::CreditByte;
use crate::ledger::control::CONTROL_MAX;
use crate::ledger::fault::Fault;

impl Lender {
    /// A paid message that wants something, lies, or is the first or last (`ends`) of an epoch.
    #[cold]
    pub(super) fn arrived_with(
        &mut self,
        peer: u32,
        byte: CreditByte,
        cost: u16,
        ends: bool,
    ) -> Arrived {
        self.on_use(peer);
        let count = cost.min(u16::from(CreditByte::COUNT_MAX)) as u8;
        let failed = byte.count != count && self.strike(peer, Fault::WrongCount);
        if failed {
            // It was paid for, but its sender is to be failed: as if it had not come.
            self.records[peer as usize].waiting -= cost;
        } else if byte.extra != 0 {
            self.want(peer, byte.extra);
            self.pump();
        }
        if ends {
            self.end_epoch();
        }
        if failed { Arrived::Fail } else { Arrived::Paid }
    }

    /// A message of a peer that knows no credits, or was failed, or is not there.
    #[cold]
    pub(super) fn arrived_otherwise(&mut self, peer: u32, cost: u32) -> Arrived {
        let record = &mut self.records[peer as usize];
        if record.flags.any(Flags::FAILED) {
            self.counts.unpaid += 1;
            return Arrived::Fail;
        }
        if !record.flags.any(Flags::OPEN) {
            return self.unpaid(peer);
        }
        // One that is larger than the allotment may come when nothing else of it waits.
        let waiting = u32::from(record.waiting);
        let fits = waiting + cost <= u32::from(self.settings.fixed) || waiting == 0;
        if !fits || cost > u32::from(u16::MAX) || !self.bank.draw(cost) {
            self.counts.held += 1;
            return Arrived::Hold;
        }
        record.waiting += cost as u16;
        self.counts.messages += 1;
        Arrived::Paid
    }

    /// A message that nobody paid for.
    #[cold]
    pub(super) fn unpaid(&mut self, peer: u32) -> Arrived {
        self.counts.unpaid += 1;
        let record = self.records.get(peer as usize);
        let sound = record.is_some_and(Record::is_sound);
        if sound && self.strike(peer, Fault::Unpaid) {
            return Arrived::Fail;
        }
        Arrived::Unpaid
    }

    /// The host took a message of a peer that is gone, knows no credits, or waits for an answer; or
    /// somebody else has nothing.
    #[cold]
    pub(super) fn taken_otherwise(&mut self, peer: u32, cost: u32) {
        let cost = self.settle_estate(peer, cost);
        let record = &mut self.records[peer as usize];
        debug_assert!(
            cost <= u32::from(record.waiting),
            "taken {cost} of {record:?}"
        );
        let cost = cost.min(u32::from(record.waiting)) as u16;
        record.waiting -= cost;
        if !record.flags.any(Flags::KNOWS) {
            self.bank.undraw(cost.into());
            return self.pump();
        }
        record.owed += cost;
        if !self.lists.is_empty(List::Without) {
            self.keep_above_share(peer, cost);
        }
        let record = &self.records[peer as usize];
        if record.flags.any(Flags::ASKED) && record.owed > 0 {
            self.queue_control(peer);
        }
        self.pump();
    }

    /// Pays `cost` out of what messages of earlier lives hold; what is left of it.
    fn settle_estate(&mut self, peer: u32, cost: u32) -> u32 {
        if !self.records[peer as usize].flags.any(Flags::ESTATE) {
            return cost;
        }
        let estate = self.estates.get_mut(&peer);
        let (settled, left) = match estate {
            Some(estate) => {
                let settled = cost.min(*estate);
                *estate -= settled;
                (settled, *estate)
            }
            None => (0, 0),
        };
        self.bank.settle(settled);
        if left == 0 {
            self.estates.remove(&peer);
            self.records[peer as usize].flags.clear(Flags::ESTATE);
        }
        cost - settled
    }

    /// Somebody has nothing: of credits that have just come free here, those above the peer's fair
    /// share stay.
    fn keep_above_share(&mut self, peer: u32, credits: u16) {
        let record = &self.records[peer as usize];
        let above = u32::from(record.loan).saturating_sub(self.share());
        let kept = above.min(credits.into()) as u16;
        self.keep(peer, kept);
        self.file(peer);
    }

    /// Credits that are owed to the peer stay with us instead; `kept` is at most that.
    fn keep(&mut self, peer: u32, kept: u16) {
        let record = &mut self.records[peer as usize];
        record.owed -= kept;
        record.loan -= kept;
        record.kept += kept;
        self.bank.give_back(kept);
        self.counts.kept += u64::from(kept);
    }

    /// The peer has sent something: it is not quiet.
    pub(super) fn on_use(&mut self, peer: u32) {
        let record = &mut self.records[peer as usize];
        record.quiet = 0;
        if record.flags.any(Flags::USED) {
            return;
        }
        record.flags.set(Flags::USED);
        if let Some(list @ (List::Above | List::Within)) = list_of(record) {
            self.lists.push(&mut self.records, peer, list);
        }
    }

    /// The peer wants more.
    pub(super) fn want(&mut self, peer: u32, credits: u16) {
        self.counts.wants += 1;
        let wanted = credits.min(self.allowed(peer));
        let record = &mut self.records[peer as usize];
        if wanted > record.wanted {
            self.wanted += u32::from(wanted - record.wanted);
            record.wanted = wanted;
        }
        self.file(peer);
    }

    /// What may be lent to the peer on top of what it has. Who has nothing is allowed one.
    fn allowed(&self, peer: u32) -> u16 {
        let record = &self.records[peer as usize];
        let room = self.settings.maximum.saturating_sub(record.loan);
        let epoch = self.settings.lend_limit.saturating_sub(record.given);
        room.min(epoch).max(u16::from(record.loan == 0))
    }

    /// Puts the peer in the list that it belongs in; it keeps its place if it is there already.
    pub(super) fn file(&mut self, peer: u32) {
        let record = &mut self.records[peer as usize];
        if !record.is_sound() {
            return self.lists.remove(&mut self.records, peer);
        }
        if record.loan == 0 && record.wanted == 0 && record.flags.any(Flags::ASKED) {
            // Nothing of it is here or there: a Want that was met otherwise is not any more.
            record.wanted = 1;
            self.wanted += 1;
        }
        let list = if record.wanted > 0 {
            let has = record.loan > 0;
            Some(if has { List::Wanting } else { List::Without })
        } else if record.flags.any(Flags::REVOKING) || record.loan == 0 {
            None
        } else if record.loan > self.settings.minimum {
            Some(List::Above)
        } else {
            Some(List::Within)
        };
        match list {
            Some(list) if list_of(record) == Some(list) => {}
            Some(list) => self.lists.push(&mut self.records, peer, list),
            None => self.lists.remove(&mut self.records, peer),
        }
    }

    pub(super) fn nobody_wants(&self) -> bool {
        self.lists.is_empty(List::Without) && self.lists.is_empty(List::Wanting)
    }

    /// Moves what is to be moved. Nothing, unless somebody wants or has just got some.
    #[inline]
    pub(super) fn pump(&mut self) {
        if self.demand || !self.nobody_wants() {
            self.balance();
        }
    }

    #[cold]
    fn balance(&mut self) {
        loop {
            self.serve();
            // What was kept can be lent at once; whoever is asked answers later.
            if !self.scavenge() {
                break;
            }
        }
    }

    /// Lends what there is to those who wait, in order.
    fn serve(&mut self) {
        loop {
            let without = self.lists.front(List::Without);
            let Some(peer) = without.or_else(|| self.lists.front(List::Wanting)) else {
                break;
            };
            self.demand = true;
            let available = self.bank.available().min(u16::MAX.into()) as u16;
            if available == 0 {
                break;
            }
            self.records[peer as usize].age(self.epochs.number());
            let allowed = self.allowed(peer);
            let record = &self.records[peer as usize];
            self.lend(peer, record.wanted.min(allowed).min(available));
        }
    }

    /// Lends to one peer; with that it wants no more.
    fn lend(&mut self, peer: u32, credits: u16) {
        self.bank.lend(credits);
        self.counts.granted += u64::from(credits);
        let record = &mut self.records[peer as usize];
        self.wanted -= u32::from(record.wanted);
        record.wanted = 0;
        record.loan += credits;
        record.given = record.given.saturating_add(credits);
        // Who has just been lent some is not asked for them.
        record.flags.set(Flags::USED);
        // To the peer, what was kept is still under way: it comes home now.
        let home = credits.min(record.kept);
        record.kept -= home;
        record.owed += home;
        record.due += credits - home;
        if record.flags.any(Flags::ASKED) && record.owed + record.due > 0 {
            self.queue_control(peer);
        }
        self.file(peer);
    }

    /// Those who want something have just said so.
    #[cold]
    pub(super) fn renew_wishes(&mut self) {
        for _ in 0..self.lists.len(List::Wanting) {
            let Some(peer) = self.lists.front(List::Wanting) else {
                break;
            };
            self.records[peer as usize].age(self.epochs.number());
            self.on_use(peer);
            self.lists.push(&mut self.records, peer, List::Wanting);
        }
    }

    /// Drops the wishes of those who have something and have not been heard of for a while.
    pub(super) fn forget_old_wishes(&mut self) {
        while let Some(peer) = self.lists.front(List::Wanting) {
            let record = &mut self.records[peer as usize];
            if record.idle_epochs(self.epochs.number()) < WISH_EPOCHS {
                break;
            }
            self.wanted -= u32::from(record.wanted);
            record.wanted = 0;
            self.file(peer);
        }
    }

    /// Credits that are missing, beyond those that have been asked for.
    fn needed(&self) -> u32 {
        let low = if self.demand { self.settings.low() } else { 0 };
        let there = self.bank.available() + self.revokes.credits();
        self.wanted.saturating_add(low).saturating_sub(there)
    }

    /// Collects from quiet peers. True when something came in at once.
    fn scavenge(&mut self) -> bool {
        let mut kept = false;
        for _ in 0..LOOK_AT {
            if !self.revokes.has_room(self.settings.scavenge) {
                break;
            }
            let needed = self.needed();
            if needed == 0 {
                self.demand = !self.nobody_wants();
                break;
            }
            let Some((peer, floor)) = self.quietest() else {
                // Everybody who was quiet has been asked: not again in this epoch.
                self.demand = !self.nobody_wants();
                break;
            };
            kept |= self.ask(peer, floor, needed);
        }
        kept && !self.nobody_wants()
    }

    /// The peer that has not used its credits for longest, and what it may keep.
    fn quietest(&mut self) -> Option<(u32, u16)> {
        if let Some(peer) = self.quiet_front(List::Above) {
            return Some((peer, self.settings.minimum));
        }
        if self.lists.is_empty(List::Without) {
            return None;
        }
        if let Some(peer) = self.quiet_front(List::Within) {
            return Some((peer, 0));
        }
        self.above_share()
    }

    /// Nobody is quiet and somebody has nothing: a peer with more than its fair share, which may have
    /// used some in this epoch and does not need them now.
    fn above_share(&mut self) -> Option<(u32, u16)> {
        let share = self.share();
        for _ in 0..PASS_OVER {
            let peer = self.lists.front(List::Above)?;
            let record = &self.records[peer as usize];
            let floor = share.max(self.settings.minimum.into());
            if !record.flags.any(Flags::SPENT) && u32::from(record.loan) > floor {
                return Some((peer, floor.min(u16::MAX.into()) as u16));
            }
            self.lists.remove(&mut self.records, peer);
            self.file(peer);
        }
        None
    }

    /// What each peer could have, were all that can be lent spread evenly.
    fn share(&self) -> u32 {
        self.bank.lendable() / self.peers.max(1)
    }

    fn quiet_front(&mut self, list: List) -> Option<u32> {
        let peer = self.lists.front(list)?;
        let record = &mut self.records[peer as usize];
        record.age(self.epochs.number());
        let busy = record.flags.any(Flags::USED.and(Flags::SPENT));
        (!busy).then_some(peer)
    }

    /// Takes what we have of the peer's, and asks it for the rest. True when we had something.
    fn ask(&mut self, peer: u32, floor: u16, needed: u32) -> bool {
        let record = &mut self.records[peer as usize];
        let limit = self.settings.revoke_limit.saturating_sub(record.revoked);
        let most = (record.loan - floor).min(limit);
        let most = u32::from(most).min(needed).min(CONTROL_MAX.into()) as u16;
        // It does not know of these yet.
        let due = most.min(record.due);
        record.due -= due;
        record.loan -= due;
        self.bank.give_back(due);
        let owed = (most - due).min(record.owed);
        self.keep(peer, owed);
        let record = &mut self.records[peer as usize];
        record.revoked += due + owed;
        let asked = (most - due - owed).min(record.free());
        if asked > 0 {
            record.flags.set(Flags::REVOKING);
            self.revokes.add(peer, asked);
            self.counts.revoked += u64::from(asked);
            self.queue_control(peer);
            self.file(peer);
        } else {
            record.flags.set(Flags::SPENT);
            // To the back, whatever list that is now.
            self.lists.remove(&mut self.records, peer);
            self.file(peer);
        }
        due + owed > 0
    }
}

/// Peers that are looked at in one go. More may have nothing to give than one call has time for; the
/// next call goes on with the rest.
const LOOK_AT: usize = 512;

/// Peers that have no more than their share and are passed over, for each that is looked for.
const PASS_OVER: usize = 8;

/// Epochs after which somebody who has credits, and wanted more, does not want them any more.
const WISH_EPOCHS: u16 = 2;
