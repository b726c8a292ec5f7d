//! Unexpected messages in the endpoint ([`crate::unexpected`]): keeps them, fetches offered ones, and returns their
//! credits.
//!
//! ```text
//!   arrives --Verdict--> keep                          finish, fill_unexpected: taken out, credits returned
//!                         |                                               ^
//!        undecided, small |                         .-- undecided: shown -+
//!        in a turn, drawn `--> begin_fetch --> end_fetch -- in a turn: next_message
//! ```
//!
//! A fetch is an internal operation: its end is not reported to the owner, and its owner's data is the default.
//!
//! A message's credits become free when it is taken out. If its sender is lost before, they are a tombstone's in the
//! pool.

use super::Endpoint;
use super::commands::inbound_status;
use crate::event::{Event, Verdict};
use crate::flow::cost;
use crate::ids::{EntryId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{Fetch, Pulling, State};
use crate::owner::Owner;
use crate::port::Port;
use crate::status::Status;
use crate::time::{Clock, Instant};
use crate::timeouts::TimeOuts;
use crate::unexpected::{Body, Stage, UnexpectedMessage};

/// Returns memory of the owner filled with these bytes. `None`: the owner has none.
pub(super) fn filled<O: Owner, B: Source + ?Sized>(owner: &mut O, body: &B) -> Option<O::Memory> {
    let len = body.len();
    let mut memory = owner.memory(len)?;
    debug_assert_eq!(memory.len(), len, "memory of another length");
    memory.fill(0, len, body, 0);
    Some(memory)
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Puts a new message where the owner's verdict wants it.
    pub(super) fn keep(&mut self, id: EntryId, verdict: Verdict) {
        let Some(message) = self.unexpected.get(id) else {
            return;
        };
        let (source, length) = (message.source, message.length);
        let offered = message.send_id.is_some();
        match verdict {
            Verdict::Finished => return self.finish(id, inbound_status(0, length)),
            Verdict::Continue => self.unexpected.await_receive(id),
            Verdict::Defer => self.unexpected.defer(id),
            Verdict::Inbox { .. } if offered && !self.flow.may_draw(cost(length) - 1) => {
                log::debug!(
                    "{source:?} offers {length} bytes, above the limit for fetched messages"
                );
                return self.finish(id, Status::Aborted);
            }
            Verdict::Inbox { turn } => {
                if self.unexpected.await_turn(id, turn) {
                    self.owner.ready(turn);
                }
                if offered {
                    self.flow.await_draw();
                }
            }
        }
        if let Some(remote) = self.remotes.of(source)
            && self.flow.is_overdue(&remote.lends)
        {
            self.tell(source);
        }
    }

    /// Copies a message into a receive that is in no list, or begins to pull it.
    pub(super) fn fill_unexpected(&mut self, op: RequestId, id: EntryId, now: Instant) {
        let Some(message) = self.take_out(id) else {
            return;
        };
        let (source, bits, length) = (message.source, message.bits, message.length);
        let (offered, offer) = (message.send_id.is_some(), message.offer());
        let Body::Bytes(data) = message.body else {
            return self.match_offer(op, source, offer, bits, length, now);
        };
        let transferred = self.ops.record(op.index()).state.room().min(length);
        self.fill_receive(op, source, bits, &data);
        if offered {
            let told = inbound_status(transferred, length);
            self.finish_offer(source, offer.0, transferred, told);
        }
        self.bodies.give_back(data);
    }

    /// Removes a message that has been consumed by other means than a receive, or is not wanted. If it was offered, its
    /// send ends with `told`.
    pub(super) fn finish(&mut self, id: EntryId, told: Status) {
        if let Some(message) = self.take_out(id)
            && let Some(send_id) = message.send_id
        {
            self.finish_offer(message.source, send_id, 0, told);
        }
    }

    /// Removes a message in any stage and returns its credits. The sender is not told.
    pub(super) fn take_out(&mut self, id: EntryId) -> Option<UnexpectedMessage<O::Memory>> {
        let turn = self
            .unexpected
            .get(id)
            .and_then(|it| self.unexpected.turn_of(it));
        let (message, ready) = self.unexpected.remove(id)?;
        if let Some(turn) = turn {
            self.on_ready(turn, ready);
        }
        self.pay_back(&message);
        Some(message)
    }

    /// Returns the credits of a message that has been taken out.
    pub(super) fn pay_back(&mut self, message: &UnexpectedMessage<O::Memory>) {
        if message.drawn != 0 {
            self.flow.undraw(message.drawn);
        }
        match message.tombstone {
            Some(from) => self.flow.reclaim(from, message.paid),
            None => self.consumed(message.source, message.paid),
        }
    }

    /// Tells the owner that `count` more messages of a turn are ready. Messages behind them may be fetched now.
    pub(super) fn on_ready(&mut self, turn: u32, count: u32) {
        for _ in 0..count {
            self.owner.ready(turn);
        }
        if self.unexpected.inbox_stats().waiting > 0 {
            self.flow.await_draw();
        }
    }

    /// Begins to fetch the data of a message, for which `drawn` credits have been drawn. Returns false if there is no
    /// memory for the data, or no room for an operation.
    pub(super) fn begin_fetch(&mut self, id: EntryId, drawn: u32, now: Instant) -> bool {
        let Some(message) = self.unexpected.get(id).filter(|_| self.ops.has_room()) else {
            return false;
        };
        let (source, bits, length) = (message.source, message.bits, message.length);
        let mut offer = message.offer();
        let mut timeouts = self.timeouts;
        if message.stage == Stage::Undecided {
            // The data of a message that is only shown is not read from remote memory.
            (offer.1, timeouts) = (None, TimeOuts::NONE);
        }
        let Some(memory) = self.owner.memory(length as usize) else {
            return false;
        };
        debug_assert_eq!(memory.len(), length as usize, "memory of another length");
        let mut pulling = Pulling::new(memory, offer, bits, length, None);
        pulling.fetch = Some(Fetch::of(id.index()));
        let state = State::Pulling(pulling);
        let op = self.ops.add(O::OpData::default(), bits, timeouts, state);
        let Some(op) = op else {
            debug_assert!(false, "there is room");
            return false;
        };
        self.unexpected.begin(id, op, drawn);
        self.begin_pull(op, source, now);
        true
    }

    /// Handles the end of a fetch. A message whose data cannot be had stays only if it is undecided.
    pub(super) fn end_fetch(&mut self, op: RequestId, fetch: Fetch, status: Status) {
        if fetch == Fetch::ACCESS {
            return self.end_access(op);
        }
        let rests = self.release(op);
        debug_assert!(rests.is_empty(), "half of what we receive");
        let memory = self.ops.finish_keeping(op);
        self.ops.free(op);
        let Some((id, message)) = self.unexpected.at(fetch.place()) else {
            return;
        };
        let turn = self.unexpected.turn_of(message);
        let memory = memory.filter(|_| status == Status::Success);
        match (turn, memory) {
            (Some(turn), Some(memory)) => {
                let ready = self.unexpected.end(id, Body::Memory(memory));
                self.on_ready(turn, ready);
            }
            (Some(_), None) => {
                log::debug!("an offered message is lost: {status:?}");
                self.take_out(id);
            }
            (None, memory) => {
                let here = memory.map(|memory| {
                    let mut here = Vec::with_capacity(memory.len());
                    memory.visit(0, memory.len(), |piece| here.extend_from_slice(piece));
                    Body::Bytes(here)
                });
                self.unexpected.end(id, here.unwrap_or(Body::Unavailable));
                self.events.push_back(Event::Decidable);
            }
        }
    }

    /// Stops a fetch in progress. A message of the inbox is dropped with it.
    pub(super) fn stop_fetch(&mut self, id: EntryId) {
        if let Some(op) = self.unexpected.get(id).and_then(UnexpectedMessage::fetch) {
            self.complete(op, Status::Cancelled, 0);
        }
    }
}
