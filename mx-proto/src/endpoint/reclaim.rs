//! Windows go where they are used.
//!
//! ```text
//!   receiver                                               sender
//!   somebody lacks room
//!     quietest partners:  Reclaim(bytes, messages) ------>  nothing waits to go there: spends them
//!                         <---------- Yield(at most these)  on nothing; otherwise yields 0
//!     room  --> those that lack it, oldest first:  Credit
//!
//!   a window:   first --use--> doubled ... at most       (while there is room)
//!                 ^               |  quiet, others lack room: Reclaim
//!                 |               v
//!                 `--next message-- least: FIRST_LEAST bytes, FLOOR messages
//!                                 |  nobody is quiet, others have less than their share:
//!                                 v  what is consumed is not granted again
//!                               share
//! ```
//!
//! *Quiet* is who has sent no message for more than an epoch, and an epoch is so many messages that a
//! busy partner sends several of them. With nobody quiet and everybody at the share nothing moves.
//! The epochs tell as well how many are busy, and so how much may be on its way from each at once
//! ([`share_arrivals`](crate::credit::Budget::share_arrivals)): what came first goes first, and one that sends much must not make
//! the others wait. While nobody lacks room nothing is asked for. A partner that does not answer is not asked again:
//! others are, and what it holds stays its own, within the limit.
//!
//! Cost: 12 bytes a partner here; a message costs a comparison, and once an epoch a place in the list.
//! Nothing looks at all partners, and one step asks at most [`ASKED_AT_ONCE`].

use super::Core;
use crate::credit::{Credit, FIRST_LEAST, MESSAGE_COST};
use crate::ids::{LinkId, PartnerId};
use crate::matching::{Chains, Ends};
use crate::owner::Owner;
use crate::partner::Partner;
use crate::wire::{Header, Kind};
use std::collections::VecDeque;

/// Whose windows could be used better, and who could use them.
#[derive(Debug)]
pub(super) struct Reclaim {
    /// Partners with windows, by their places in the table, quietest first.
    quiet: Chains,
    ends: Ends,
    epoch: u32,
    /// The number of packets at which the next epoch begins.
    until: u64,
    /// Partners that have sent a message in the last epoch, and in this one.
    active: (u32, u32),
    /// Partners that have less than their share for want of room, oldest first; each once.
    lacking: VecDeque<PartnerId>,
}

impl Reclaim {
    pub(super) fn new() -> Self {
        Self {
            quiet: Chains::default(),
            ends: Ends::EMPTY,
            epoch: 0,
            until: 0,
            active: (0, 0),
            lacking: VecDeque::new(),
        }
    }

    /// A message came from a partner; does its place in the list have to change?
    #[inline]
    pub(super) fn is_news(&self, partner: &Partner, packets: u64) -> bool {
        partner.used != self.epoch || packets >= self.until
    }

    fn unlist(&mut self, id: PartnerId, partner: &mut Partner) {
        if std::mem::take(&mut partner.listed) {
            self.quiet.unlink(&mut self.ends, id.index());
        }
    }
}

impl<O: Owner> Core<O> {
    /// A partner has just begun or sent a message: nobody is less quiet.
    #[cold]
    pub(super) fn note_use(&mut self, id: PartnerId) {
        let packets = self.stats.packets_in;
        if packets >= self.reclaim.until {
            let all = self.partners.len() as u64 * EPOCH_EACH;
            self.reclaim.epoch = self.reclaim.epoch.wrapping_add(1);
            self.reclaim.until = packets + all.max(self.config.epoch_packets.into());
            self.reclaim.active = (self.reclaim.active.1, 0);
        }
        let Some(partner) = self.partners.of_mut(id) else {
            return;
        };
        self.reclaim.unlist(id, partner);
        partner.used = self.reclaim.epoch;
        partner.listed = true;
        let (before, now) = &mut self.reclaim.active;
        *now += 1;
        self.budget.share_arrivals(*before.max(now));
        let ends = &mut self.reclaim.ends;
        self.reclaim.quiet.append(ends, id.index());
    }

    /// A partner has been taken out of the table.
    pub(super) fn forget_partner(&mut self, id: PartnerId, partner: &mut Partner) {
        self.reclaim.unlist(id, partner);
        let queues = partner.queues();
        self.controls -= queues.map_or(0, |queues| queues.control.len());
    }

    /// A message with `len` bytes of a partner's has been consumed while others lack room.
    #[cold]
    pub(super) fn share_out(&mut self, id: PartnerId, len: u32) {
        let share = self.budget.share(self.partners.len());
        if let Some(partner) = self.partners.of_mut(id) {
            partner.credit.narrow(len, share);
        }
    }

    /// Does somebody lack room?
    #[inline]
    pub(super) fn anybody_lacks(&self) -> bool {
        !self.reclaim.lacking.is_empty()
    }

    /// And is there some?
    #[inline]
    pub(super) fn can_relieve(&self) -> bool {
        self.anybody_lacks() && self.budget.room() >= RELIEF_LEAST
    }

    /// Those that have waited longest for room get what there is of it.
    pub(super) fn relieve(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..ASKED_AT_ONCE {
            if !self.can_relieve() {
                break;
            }
            let Some(id) = self.reclaim.lacking.pop_front() else {
                break;
            };
            busy = true;
            if let Some(partner) = self.partners.of_mut(id) {
                partner.lacking = false;
                partner.credit.begin_afresh();
                self.widen(id, 0);
            }
        }
        busy
    }

    /// A partner's window has turned out to be too small: it gets a larger one, as far as there is
    /// room, and is told. Tells what was missing. `wish`: it has only offered so many bytes.
    fn widen(&mut self, id: PartnerId, wish: u32) -> usize {
        let Some(partner) = self.partners.of_mut(id) else {
            return 0;
        };
        partner.credit.widen(wish, &self.budget);
        let missing = partner.credit.trim(&self.budget);
        let now = partner.credit.terms(&self.budget, true);
        if !partner.credit_queued && partner.credit.terms(&self.budget, false) != now {
            partner.credit_queued = true;
            self.push_control(id, Header::new(Kind::Credit, 0, 0), &[]);
        }
        missing
    }

    /// The same for one that has just used it; if there is no room, others are asked for theirs.
    #[cold]
    pub(super) fn replenish(&mut self, id: PartnerId, wish: u32) {
        let missing = self.widen(id, wish);
        if missing == 0 {
            return;
        }
        self.stats.short += 1;
        self.ask_back(missing);
        let share = self.budget.share(self.partners.len());
        if let Some(partner) = self.partners.of_mut(id)
            && !partner.lacking
            && partner.credit.is_below(share, &self.budget)
        {
            partner.lacking = true;
            self.reclaim.lacking.push_back(id);
        }
    }

    /// A message of `len` bytes has been offered. If it is one that goes with its data, and its sender
    /// had no bytes for it, it gets more of them.
    pub(super) fn note_wish(&mut self, from: PartnerId, len: u32) {
        let small = len as usize <= self.config.eager_max;
        if small
            && let Some(partner) = self.partners.of(from)
            && !partner.credit_queued
            && partner.credit.lacked(len)
        {
            self.replenish(from, len);
        }
    }

    /// Asks the quietest partners for `missing` bytes of their windows, bookkeeping included.
    fn ask_back(&mut self, missing: usize) {
        let keep = self.budget.share(self.partners.len()).0 / 2;
        let keep = keep.min(FIRST_LEAST);
        let mut asked = 0;
        for _ in 0..ASKED_AT_ONCE {
            if asked >= missing {
                return;
            }
            let quietest = self.reclaim.ends.oldest();
            let Some(id) = quietest.and_then(|index| self.partners.at(index)) else {
                return;
            };
            let Some(partner) = self.partners.of_mut(id) else {
                return;
            };
            if self.reclaim.epoch.wrapping_sub(partner.used) < QUIET {
                return;
            }
            // It is back in the list when it is used.
            self.reclaim.unlist(id, partner);
            let (bytes, messages) = partner.credit.reclaimable(keep);
            let worth = bytes as usize + messages as usize * MESSAGE_COST;
            if partner.asked || worth == 0 {
                continue;
            }
            partner.asked = true;
            asked += worth;
            self.stats.reclaims += 1;
            let mut header = Header::new(Kind::Reclaim, 0, bytes);
            header.aux = messages;
            self.push_control(id, header, &[]);
        }
    }

    /// A partner would like to have a part of our window back. Who has messages for it keeps it.
    pub(super) fn on_reclaim(&mut self, from: PartnerId, header: &Header) {
        let Some(partner) = self.partners.of_mut(from) else {
            return;
        };
        if partner.yield_queued {
            // One of ours waits for the answer before it asks again.
            self.stats.stale += 1;
            return;
        }
        let (bytes, messages) = match partner.has_pending() {
            true => (0, 0),
            false => partner.credit.give_up(header.length, header.aux),
        };
        partner.yield_queued = true;
        let mut answer = Header::new(Kind::Yield, 0, bytes);
        answer.aux = messages;
        self.push_control(from, answer, &[]);
    }

    /// A partner has answered a Reclaim.
    pub(super) fn on_yield(&mut self, link: LinkId, cookie: u64, from: PartnerId, header: &Header) {
        let Self {
            partners, budget, ..
        } = self;
        let Some(partner) = partners.of_mut(from) else {
            return;
        };
        let asked = std::mem::take(&mut partner.asked);
        if !asked {
            return self.violation(link, cookie, "a yield that nobody asked for");
        }
        if !partner.credit.on_yield(header.length, header.aux, budget) {
            return self.violation(link, cookie, "a yield of more than its window");
        }
        self.stats.yielded += u64::from(header.length);
    }

    /// What a new partner begins with. It is granted at once, so that each of many that come together
    /// counts with those before it.
    pub(super) fn new_credit(&mut self) -> Credit {
        Credit::opened(&mut self.budget)
    }
}

/// Partners that one step asks, or relieves.
const ASKED_AT_ONCE: usize = 8;
/// Epochs after which a partner is quiet: at least one whole one.
const QUIET: u32 = 2;
/// Packets of an epoch for each partner: the busy ones send more than this.
const EPOCH_EACH: u64 = 8;
/// Room with which it is worth telling somebody.
const RELIEF_LEAST: usize = 2 * MESSAGE_COST;
