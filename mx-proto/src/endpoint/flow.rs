//! Credits: the endpoint's side of [`crate::flow`].
//!
//! ```text
//!   a header -- on_credit_fields, wants --.          .-- tell: a Credit, if nothing else goes before it
//!   message --- received --- kept |          |
//!                  `-- consumed --+--> Flow -+-- move_credits: Credits and Revokes, a few a step
//!   Revoke, Return ---------------'          `-- credit_fields, in every packet
//! ```
//!
//! Owns nothing: accounts are in their remotes, everything else in [`Flow`](crate::flow::Flow). The
//! time of an epoch is measured here, while a remote waits for credits.

use super::Endpoint;
use super::deadlines::Deadline;
use crate::flow::{
    Accounts, CREDIT, CreditFields, CreditMessage, EPOCH_TIME, FlowStats, Lender, Payment,
};
use crate::ids::{LinkId, RemoteId, Route};
use crate::origin::Source;
use crate::owner::Owner;
use crate::port::Port;
use crate::queues::Queues;
use crate::remote::{Name, Remotes};
use crate::status::Violation;
use crate::time::{Clock, Instant};
use crate::wire::{Header, Kind};

impl Accounts for Remotes {
    fn account(&mut self, index: u32) -> Option<(&mut Lender, Source)> {
        let remote = self.at_mut(index)?;
        Some((&mut remote.lends, remote.source))
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The balance and counters of flow control.
    pub fn flow_stats(&self) -> FlowStats {
        self.flow.stats()
    }

    /// Bytes of unexpected and undecided messages that wait here with their data.
    pub fn unexpected_bytes(&self) -> usize {
        self.unexpected.bytes()
    }

    /// Bytes that are lent to remotes or taken by their messages, bookkeeping included, and the
    /// limit ([`Config::unexpected_bytes`](crate::Config::unexpected_bytes)). Beyond it there are at
    /// most two messages of a credit each of every remote.
    #[inline]
    pub fn unexpected_usage(&self) -> (usize, usize) {
        let (used, total) = self.flow.used();
        (used as usize * CREDIT, total as usize * CREDIT)
    }

    /// The credits between a remote and us; `None` when the id is stale.
    pub fn account(&self, remote: RemoteId) -> Option<Account> {
        let remote = self.remotes.of(remote)?;
        let lends = &remote.lends;
        Some(Account {
            credit_limit: lends.credit_limit(),
            free: lends.unused(),
            waiting: lends.waiting(),
            owed: lends.due(),
            wanted: lends.wanted(),
            asked: lends.is_asked(),
            send_free: remote.connected().map_or(0, |met| met.borrows.free()),
            send_waiting: remote.queues().map_or(0, Queues::waiting) as u32,
            send_stalled: remote.is_stalled(),
        })
    }

    /// Remotes to which sends wait for credits.
    pub fn stalled(&self) -> usize {
        let remotes = self.remotes.ids().into_iter();
        let remotes = remotes.filter_map(|id| self.remotes.of(id));
        remotes.filter(|remote| remote.is_stalled()).count()
    }

    /// Whether messages without a receive take most of a remote's credit limit, while no more can
    /// be lent to it. When all of it is used, it cannot send any more. Cost: O(n) for n such
    /// messages.
    pub fn is_over_quota(&self, remote: RemoteId) -> bool {
        let held = self.unexpected.held_of(remote);
        let flow = &self.flow;
        let remote = self.remotes.of(remote);
        remote.is_some_and(|it| flow.is_filled(&it.lends, it.source, held))
    }
}

/// The credits between one remote and us.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Lent to it, wherever they are.
    pub credit_limit: u32,
    /// Credits of the limit that the remote can use now, as far as is known here.
    pub free: u32,
    /// Credits that messages of the remote use which wait here.
    pub waiting: u32,
    /// Credits that the remote has not been told of yet.
    pub owed: u32,
    /// The credits it requests besides.
    pub wanted: u32,
    /// The remote has been asked for credits and has not answered.
    pub asked: bool,
    /// Free credits that the remote lends us.
    pub send_free: u32,
    /// Sends to it that wait for the link or for credits.
    pub send_waiting: u32,
    /// Messages for the remote wait for credits.
    pub send_stalled: bool,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// A new remote gets its first credits. It counts as told at once, so that each of many that come
    /// together counts with those before it.
    pub(super) fn add_remote(
        &mut self,
        name: Name,
        source: Source,
        called: Option<Route>,
    ) -> RemoteId {
        let credit_limit = self.flow.first_credits(source);
        let id = self.remotes.add(name, source, called, credit_limit);
        let lent = self.flow.open(&mut self.remotes, id.index(), credit_limit);
        debug_assert!(lent, "there is room for as much as there is room for");
        id
    }

    /// A remote waits for credits: the present epoch ends by time, too.
    #[cold]
    pub(super) fn begin_epoch(&mut self, now: Instant) {
        self.epoch_ends = true;
        let end = now.after(EPOCH_TIME);
        self.wheel.set(now, end, Deadline::Epoch);
    }

    /// Ends an epoch whose time is over.
    pub(super) fn end_epoch(&mut self, now: Instant) {
        self.epoch_ends = false;
        if self.flow.is_waited_for() {
            self.flow.end_epoch();
            self.begin_epoch(now);
        }
    }

    /// Handles the credit fields of a remote's header, except new credits.
    #[cold]
    pub(super) fn note_request(&mut self, from: RemoteId, fields: &CreditFields) {
        if self
            .flow
            .wants(&mut self.remotes, from.index(), fields.wanted)
        {
            self.tell(from);
        }
    }

    /// A message came: how it was paid for.
    #[inline]
    pub(super) fn received(
        &mut self,
        from: RemoteId,
        aux: u32,
        cost: u32,
    ) -> Result<Payment, Violation> {
        let Self { remotes, flow, .. } = self;
        let remote = remotes.of_mut(from).ok_or(Violation::NoCredit)?;
        let paid = Payment::of(aux, cost)?;
        if flow.arrived(&mut remote.lends, paid)? {
            flow.note_use(remotes, from.index());
        }
        Ok(paid)
    }

    /// A message of `source` takes no more room here.
    #[inline(always)]
    pub(super) fn consumed(&mut self, source: RemoteId, paid: Payment) {
        let Self { remotes, flow, .. } = self;
        let Some(remote) = remotes.of_mut(source) else {
            return;
        };
        if remote.is_tombstone() {
            flow.reclaim(remote.source, paid);
            return self.tombstone_read(source);
        }
        if flow.taken(&mut remote.lends, remote.source, paid) {
            self.tell(source);
        }
    }

    /// The remote is to be told our totals, in a packet of their own if no other is sent.
    #[cold]
    pub(super) fn tell(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.standing(Kind::Credit).is_none()
        {
            self.push_control(id, Header::new(Kind::Credit, 0, 0), &[]);
        }
    }

    /// Redistributes credits: so many steps at most, and more the next time.
    pub(super) fn move_credits(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..MOVES_AT_ONCE {
            let Some((place, say)) = self.flow.poll(&mut self.remotes) else {
                break;
            };
            busy = true;
            let Some(id) = self.remotes.at(place) else {
                continue;
            };
            match say {
                CreditMessage::Credit => self.tell(id),
                CreditMessage::Revoke(credits) => {
                    self.push_control(id, Header::new(Kind::Revoke, 0, credits), &[]);
                }
            }
        }
        busy
    }

    /// A remote has answered a Ping: what it has been asked for before has come, or will not. What waits
    /// for credits is announced.
    pub(super) fn on_answer(&mut self, from: RemoteId) {
        if let Some(met) = self.remotes.connected_mut(from)
            && met.borrows.on_answer()
        {
            self.make_ready(from);
        }
    }

    /// A remote wants credits back. While messages wait for it they are kept.
    pub(super) fn on_revoke(&mut self, from: RemoteId, header: &Header) {
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        if remote.standing(Kind::Return).is_some() {
            // One of ours waits for the answer before it asks again.
            self.stats.stale += 1;
            return;
        }
        let waiting = remote.queues().map_or(0, |queues| queues.cost);
        let met = self.remotes.connected_mut(from);
        let credits = met.map_or(0, |met| met.borrows.give_back(header.length, waiting));
        self.push_control(from, Header::new(Kind::Return, 0, credits), &[]);
    }

    /// A remote has answered a Revoke.
    pub(super) fn on_return(&mut self, link: LinkId, from: RemoteId, header: &Header) {
        let back = self
            .flow
            .returned(&mut self.remotes, from.index(), header.length);
        if let Err(violation) = back {
            self.violation(link, violation);
        }
    }
}

/// Messages about credits that one step makes.
const MOVES_AT_ONCE: usize = 8;
