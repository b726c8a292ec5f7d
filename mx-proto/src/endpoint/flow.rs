//! Credits: the endpoint's side of [`crate::flow`].
//!
//! ```text
//!   a header -- on_credit_fields, wants --.          .-- tell: a Credit, if nothing else goes before it
//!   message --- received --- kept |          |
//!                  `-- consumed --+--> Flow -+-- move_credits: Credits and Revokes, a few a step
//!   Revoke, Return ---------------'          `-- credit_fields, in every packet
//! ```
//!
//! Owns nothing: accounts are in their remotes, everything else is in [`Flow`](crate::flow::Flow). While a remote waits
//! for credits, this module measures the time of an epoch.

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
    /// Returns the present balance and the counters of flow control.
    pub fn flow_stats(&self) -> FlowStats {
        self.flow.stats()
    }

    /// Returns the number of bytes of messages that came with their data and wait here for a receive or a decision,
    /// bookkeeping not included.
    pub fn unexpected_bytes(&self) -> usize {
        self.unexpected.bytes()
    }

    /// Returns two numbers of bytes: those lent to remotes or used by their messages, bookkeeping included, and the
    /// limit ([`Config::unexpected_bytes`](crate::Config::unexpected_bytes)). Up to two messages of one credit from
    /// each remote are not included.
    #[inline]
    pub fn unexpected_usage(&self) -> (usize, usize) {
        let (used, total) = self.flow.used();
        (used as usize * CREDIT, total as usize * CREDIT)
    }

    /// Returns the credits between a remote and this endpoint; `None` if the id is stale.
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

    /// Returns the number of remotes to which sends wait for credits of theirs.
    pub fn stalled(&self) -> usize {
        let remotes = self.remotes.ids().into_iter();
        let remotes = remotes.filter_map(|id| self.remotes.of(id));
        remotes.filter(|remote| remote.is_stalled()).count()
    }

    /// Returns whether unexpected messages use three quarters or more of a remote's credit limit while no more can be
    /// lent to it. When they use all of it, the remote cannot send any more. Cost: O(n) for n such messages.
    pub fn is_over_quota(&self, remote: RemoteId) -> bool {
        let held = self.unexpected.held_of(remote);
        let flow = &self.flow;
        let remote = self.remotes.of(remote);
        remote.is_some_and(|it| flow.is_filled(&it.lends, it.source, held))
    }
}

/// Credits between one remote and this endpoint, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Account {
    /// Credits lent to the remote, used or not.
    pub credit_limit: u32,
    /// Credits of the limit that the remote can use now, as far as this side knows.
    pub free: u32,
    /// Credits used by messages of the remote that wait here.
    pub waiting: u32,
    /// Credits of the limit that the remote has not been told of yet and cannot use.
    pub owed: u32,
    /// Credits that the remote requests beyond its limit; 0: none.
    pub wanted: u32,
    /// Whether the remote has been asked to return credits and has not answered.
    pub asked: bool,
    /// Credits of the remote that this endpoint can still spend on sends to it.
    pub send_free: u32,
    /// Number of sends to the remote that wait for the link or for credits.
    pub send_waiting: u32,
    /// Whether sends to the remote wait for credits.
    pub send_stalled: bool,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Adds a remote and lends it its first credits. They count as told at once, so that each of many remotes that
    /// connect together gets its share of what is left.
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

    /// Starts the timer that ends the present epoch, if a remote waits for credits and it has none.
    fn time_epoch(&mut self, now: Instant) {
        if self.flow.is_waited_for() && !self.epoch_ends {
            self.epoch_ends = true;
            let end = now.after(EPOCH_TIME);
            self.wheel.set(now, end, Deadline::Epoch);
        }
    }

    pub(super) fn end_epoch(&mut self, now: Instant) {
        self.epoch_ends = false;
        if self.flow.is_waited_for() {
            self.flow.end_epoch();
            self.time_epoch(now);
        }
    }

    /// Handles a remote's request for credits in a header.
    #[cold]
    pub(super) fn note_request(&mut self, from: RemoteId, fields: &CreditFields) {
        if self
            .flow
            .wants(&mut self.remotes, from.index(), fields.wanted)
        {
            self.tell(from);
        }
        let now = self.clock.now();
        self.time_epoch(now);
    }

    /// Charges an arrived message to its remote, and returns how it was paid for.
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

    /// Returns the credits of a message of `source` that no longer uses memory here.
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

    /// Makes sure that the remote is told our totals: with another packet, or with a Credit if no other is sent.
    #[cold]
    pub(super) fn tell(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.standing(Kind::Credit).is_none()
        {
            self.push_control(id, Header::new(Kind::Credit, 0, 0), &[]);
        }
    }

    /// Redistributes credits in a bounded number of steps; the rest follows next time.
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

    /// Handles an answer to a Ping: the credits requested before it have come, or will not. Messages that waited for
    /// them are announced.
    pub(super) fn on_answer(&mut self, from: RemoteId) {
        if let Some(met) = self.remotes.connected_mut(from)
            && met.borrows.on_answer()
        {
            self.make_ready(from);
        }
    }

    /// Handles a Revoke: returns credits, except those that queued messages need.
    pub(super) fn on_revoke(&mut self, from: RemoteId, header: &Header) {
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        if remote.standing(Kind::Return).is_some() {
            // Our peers wait for the answer before they revoke again.
            self.stats.stale += 1;
            return;
        }
        let waiting = remote.queues().map_or(0, |queues| queues.cost);
        let met = self.remotes.connected_mut(from);
        let credits = met.map_or(0, |met| met.borrows.give_back(header.length, waiting));
        self.push_control(from, Header::new(Kind::Return, 0, credits), &[]);
    }

    /// Handles the answer to a Revoke.
    pub(super) fn on_return(&mut self, link: LinkId, from: RemoteId, header: &Header) {
        let back = self
            .flow
            .returned(&mut self.remotes, from.index(), header.length);
        if let Err(violation) = back {
            self.violation(link, violation);
        }
    }
}

/// Maximum number of credit messages made in one step.
const MOVES_AT_ONCE: usize = 8;
