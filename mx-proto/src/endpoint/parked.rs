//! Operations that are posted before the layer above knows with whom.
//!
//! ```text
//!   park ----> Parked: a record, its memory, and in no list of the endpoint's
//!                 | unpark_send, unpark_recv: as if it were posted now
//!                 v
//!              Queued, Draining, Posted, Pulling, or done at once
//! ```
//!
//! They are in whatever lists the layer above has for them, and are ended like all others. How long one may
//! wait is limited as for all others ([`Endpoint::limit_waiting`]); what is left of that goes with it.

use super::commands::{PostError, Posted, Received, SendMode};
use super::{Core, Endpoint};
use crate::event::Outcome;
use crate::ids::{MatchBits, MatchMask, PartnerId, RequestId};
use crate::memory::Memory;
use crate::ops::{NOBODY, State};
use crate::owner::Owner;
use crate::port::Port;
use crate::status::{Kind, Status};
use crate::time::{Clock, Instant};
use crate::timeouts::TimeOuts;
use std::time::Duration;

/// What an operation that is being posted becomes.
pub(super) enum Slot<W> {
    /// A new one, with this word.
    New(W),
    /// One that was parked.
    Parked(RequestId),
}

impl<W> Slot<W> {
    /// Does it need a place?
    #[inline]
    pub(super) const fn is_new(&self) -> bool {
        matches!(self, Self::New(_))
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Makes an operation that nothing is done about: a send, or with `receives` a receive. It has no
    /// time-out. `None` when there are as many as there can be.
    pub fn park(&mut self, memory: O::Memory, receives: bool, word: O::Word) -> Option<RequestId> {
        let state = State::Parked {
            memory: Some(memory),
            receives,
        };
        let timeouts = self.core.timeouts.of_receive();
        self.core.ops.add(word, MatchBits(0), timeouts, state)
    }

    /// Sends what was parked, as [`Self::send`] does. It may complete within this call. After an error
    /// it is parked as before, but for its memory.
    pub fn unpark_send(
        &mut self,
        op: RequestId,
        to: PartnerId,
        bits: MatchBits,
        mode: SendMode,
    ) -> Result<(), PostError> {
        let Some(memory) = self.core.take_parked(op) else {
            return Ok(());
        };
        let due = self.core.stop_timer(op);
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        if let Posted::Complete = self.send_as(to, bits, memory, Slot::Parked(op), mode)? {
            let outcome = Outcome {
                kind: Kind::Send,
                status: Status::Success,
                partner: to,
                bits,
                length: len,
                transferred: len,
                matched: false,
            };
            self.core.end_parked(op, outcome);
        }
        self.limit_rest(op, due);
        Ok(())
    }

    /// Receives into what was parked, as [`Self::recv`] does, or [`Self::recv_from`]. It may complete
    /// within this call. After an error it is parked as before, but for its memory.
    pub fn unpark_recv(
        &mut self,
        op: RequestId,
        from: Option<PartnerId>,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Result<(), PostError> {
        let Some(memory) = self.core.take_parked(op) else {
            return Ok(());
        };
        let due = self.core.stop_timer(op);
        let (what, slot) = ((bits, mask), Slot::Parked(op));
        let received = match from {
            Some(from) => self.recv_of(from, what, memory, slot)?,
            None => self.receive_from(NOBODY, what, memory, slot)?,
        };
        if let Received::Complete(outcome) = received {
            self.core.end_parked(op, outcome);
        }
        self.limit_rest(op, due);
        Ok(())
    }

    fn limit_rest(&mut self, op: RequestId, due: Option<Instant>) {
        if let Some(due) = due {
            // In whole milliseconds, and none more than it had.
            let rest = due.since(self.clock.now()).as_millis() as u64;
            self.limit_waiting(op, Some(Duration::from_millis(rest)));
        }
    }
}

impl<O: Owner> Core<O> {
    /// A new operation, or what becomes of a parked one. `None`: there can be no more.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        slot: Slot<O::Word>,
        bits: MatchBits,
        timeouts: TimeOuts,
        state: State<O::Memory>,
    ) -> Option<RequestId> {
        match slot {
            Slot::New(word) => self.ops.add(word, bits, timeouts, state),
            Slot::Parked(op) => {
                self.ops.unpark(op, bits, timeouts, state);
                Some(op)
            }
        }
    }

    /// Tells when it would have run out.
    fn stop_timer(&mut self, op: RequestId) -> Option<Instant> {
        let timer = self.ops.get_mut(op)?.timer.take()?;
        let due = self.wheel.due(timer);
        self.wheel.clear(timer);
        due
    }

    fn take_parked(&mut self, op: RequestId) -> Option<O::Memory> {
        match &mut self.ops.get_mut(op)?.state {
            State::Parked { memory, .. } => memory.take(),
            _ => None,
        }
    }

    fn end_parked(&mut self, op: RequestId, outcome: Outcome) {
        if self.ops.finish(op) {
            self.owner.completed(&mut self.ops, op, outcome);
        }
    }
}
