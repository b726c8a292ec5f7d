//! Deferred messages: the layer above decides about them outside of [`Endpoint::progress`].
//!
//! ```text
//!                      progress                next_deferred                  decide
//!   arrival --> posted receive? --> Defer --> posted receive? --> shown ----> Continue: posted receive?
//!                    |                             |                |               |         |
//!                    v                             v                v Finished      v         v
//!                 received                      received          consumed      received   unexpected
//! ```
//!
//! A message of at most [`PREVIEW_MAX`] bytes is shown with its data. The data of an offered one is fetched first, and
//! its sender learns nothing before the decision. Messages of other remotes are shown meanwhile, so a stopped remote
//! delays no other.
//!
//! While any message is undecided, every arriving message becomes undecided, too, so none overtakes it. Its sender has
//! credits for these messages, as for unexpected ones: a layer that decides late stalls senders no earlier than one
//! that receives late. While a message is shown, no packets are polled. Posting, cancelling, connecting and
//! disconnecting continue to work, also from inside the handler.

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
    /// Returns the number of undecided messages: those that wait for [`Self::next_deferred`], and the one that it has
    /// shown and that has not come back to [`Self::decide`]. While a message is shown, [`Self::progress`] does nothing.
    #[inline]
    pub fn undecided(&self) -> usize {
        self.unexpected.undecided()
    }

    /// Shows the oldest undecided message; `None` if there is none, or while another is shown. The caller must pass the
    /// message to [`Self::decide`]. A message whose data is being fetched is skipped, with all later ones of its
    /// remote; [`Event::Decidable`](crate::Event::Decidable) follows. A message for which a receive has been posted
    /// meanwhile goes into that receive instead, so the call may cause completions.
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

    /// Decides [`Decision::Continue`] about all undecided messages, in their order, except a shown one, which is left
    /// to [`Self::decide`].
    pub fn keep_undecided(&mut self) {
        while let Some(oldest) = self.unexpected.oldest_undecided() {
            self.stop_fetch(oldest);
            self.go_on(oldest);
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// Carries out the owner's decision about the message that [`Self::next_deferred`] has shown. The message is
    /// dropped if its remote has been removed, or if it was shown before [`Self::inherit`].
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

    /// Hands a message to a posted receive, or keeps it as unexpected. Fetched data is dropped, because credits limit
    /// the data of unexpected messages.
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

    /// Gives a message to the oldest posted receive that accepts it. Returns true if the message is settled.
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

    /// Returns the next message to show, and begins to fetch the data of those before it.
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

/// Size in bytes of the largest message that is always shown with its data. Programs for MX rely on this much.
pub const PREVIEW_MAX: u32 = 4096;
