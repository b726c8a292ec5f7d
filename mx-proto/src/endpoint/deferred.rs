//! Messages about which the layer above decides outside of [`Endpoint::progress`].
//!
//! ```text
//!                      progress                next_deferred                  decide
//!   arrival --> posted receive? --> Defer --> posted receive? --> shown ----> Continue: posted receive?
//!                    |                             |                |               |         |
//!                    v                             v                v Finished      v         v
//!                 received                      received          consumed      received   unexpected
//! ```
//!
//! A message of at most [`PREVIEW_MAX`] bytes is shown with its data. If it was only offered, these are
//! fetched first, and its sender is told nothing before the decision. Messages of other remotes pass
//! meanwhile, so that a stopped one delays no other.
//!
//! While a message is undecided, those that come are undecided, too, so none overtakes it. The sender
//! has credits for them, as for unexpected ones: a layer that decides late stalls them no earlier
//! than one that receives late. While one is shown no packets are polled. Posting, cancelling, connecting
//! and disconnecting continue, also from inside the handler.

use super::Endpoint;
use super::commands::inbound_status;
use super::inbound::MatchResult;
use crate::event::{Decision, Deferred};
use crate::ids::EntryId;
use crate::owner::Owner;
use crate::port::Port;
use crate::time::{Clock, Instant};
use crate::unexpected::Body;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// The number of undecided messages: those that wait for [`Self::next_deferred`] and the one
    /// that has not come back to [`Self::decide`]. While the latter is out, [`Self::progress`] does
    /// nothing.
    #[inline]
    pub fn undecided(&self) -> usize {
        self.unexpected.undecided()
    }

    /// The oldest undecided message; `None` when there is none, and while another one is out. While the
    /// bytes of a message are on their way it is passed by, with those behind it from the same remote;
    /// [`Event::Decidable`](crate::Event::Decidable) follows. A message for which a receive has been posted
    /// meanwhile goes into that receive instead, so this may cause completions.
    pub fn next_deferred(&mut self) -> Option<Deferred> {
        let mut next = None;
        let now = self.clock.now();
        while let Some(id) = self.next_to_show(now) {
            if self.receive(id) {
                continue;
            }
            if let Some(arrival) = self.arrival_of(id) {
                let body = self.unexpected.show(id);
                next = Some(Deferred { arrival, id, body });
                break;
            }
            debug_assert!(false, "a message outlived its remote");
            self.take_out(id);
        }
        if self.has_work() {
            self.flush();
        }
        next
    }

    /// Decides about all that wait for it, in their order: [`Decision::Continue`]. The one that is out, if
    /// any, is decided by [`Self::decide`].
    pub fn keep_undecided(&mut self) {
        while let Some(oldest) = self.unexpected.oldest_undecided() {
            self.stop_fetch(oldest);
            self.go_on(oldest);
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// Carries out the decision about a message from [`Self::next_deferred`]. A message of a remote
    /// that is gone is dropped, and so is one from before [`Self::inherit`].
    pub fn decide(&mut self, deferred: Deferred, decision: Decision) {
        let Deferred { id, body, .. } = deferred;
        if self.unexpected.out() != Some(id) {
            return;
        }
        if let (Some(body), Some(message)) = (body, self.unexpected.get_mut(id)) {
            message.body = Body::Bytes(body);
        }
        let message = self.unexpected.get(id);
        let told = message.map(|it| inbound_status(0, it.length));
        match (decision, told) {
            _ if message.is_some_and(|it| it.tombstone.is_some()) => _ = self.take_out(id),
            (Decision::Finished, Some(told)) => self.finish(id, told),
            _ => self.go_on(id),
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// A message goes into a receive, or is unexpected. Only credits limit those: bytes that have been
    /// fetched are not kept.
    fn go_on(&mut self, id: EntryId) {
        if self.receive(id) {
            return;
        }
        if let Some(message) = self.unexpected.get_mut(id)
            && message.send_id.is_some()
            && !matches!(message.body, Body::AtSender(_))
        {
            message.body = Body::AtSender(None);
        }
        self.unexpected.await_receive(id);
    }

    /// Gives a message to the oldest posted receive that accepts it, if there is one. True: it has gone.
    fn receive(&mut self, id: EntryId) -> bool {
        let Some(message) = self.unexpected.get(id) else {
            return true;
        };
        match self.find_receive(message.source, message.bits) {
            MatchResult::Receive(op) => {
                let now = self.clock.now();
                self.fill_unexpected(op, id, now);
            }
            MatchResult::Foreign => self.refuse_unexpected(id),
            MatchResult::Nothing => return false,
        }
        true
    }

    /// The next message to be shown. The bytes of those before it are asked for, or on their way.
    fn next_to_show(&mut self, now: Instant) -> Option<EntryId> {
        loop {
            let next = self.unexpected.next_undecided()?;
            let message = self.unexpected.get(next)?;
            let fetches = (1..=PREVIEW_MAX).contains(&message.length)
                && matches!(message.body, Body::AtSender(_))
                && self.unexpected.may_preview()
                && self.remotes.living(message.source).is_some()
                && self.begin_fetch(next, 0, now);
            if !fetches {
                return Some(next);
            }
        }
    }
}

/// Bytes of the largest message that is always shown with its data. Programs for MX count on as much.
pub const PREVIEW_MAX: u32 = 4096;
