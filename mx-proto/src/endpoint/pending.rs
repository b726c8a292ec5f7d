//! Pending operations: posted before their remote is known.
//!
//! ```text
//!   post ----> Pending: a record and its memory, in no list of the endpoint
//!                 | send_pending, recv_pending: as if it were posted now
//!                 v
//!              Queued, Draining, Posted, Pulling, or done at once
//! ```
//!
//! The layer above keeps pending operations in its own lists; they end like all others. Their waiting time can be
//! limited as usual ([`Endpoint::limit_waiting`]), and the limit continues after they are activated.

use super::Endpoint;
use super::commands::{PostError, ReceivePosted, SendMode, SendPosted};
use crate::event::Outcome;
use crate::ids::{MatchBits, MatchMask, RemoteId, RequestId};
use crate::memory::Memory;
use crate::ops::{NO_REMOTE, State};
use crate::owner::{Owner, Posting};
use crate::port::Port;
use crate::status::{OpKind, Status};
use crate::time::{Clock, Instant};
use std::time::Duration;

/// A pending operation that is activated, and its memory.
struct Pending<M>(RequestId, M);

impl<O: Owner> Posting<O> for Pending<O::Memory> {
    fn memory(&mut self) -> &mut O::Memory {
        &mut self.1
    }

    fn begin(self) -> (O::Memory, O::OpData) {
        (self.1, O::OpData::default())
    }

    fn pending(&self) -> Option<RequestId> {
        Some(self.0)
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Makes a pending operation, whose remote is not known yet: a send of `memory`, or with `receives` a receive into
    /// it. The owner activates it with [`Self::send_pending`] or [`Self::recv_pending`], or ends it with [`Self::end`].
    /// Has no time-out. `None`: the table of operations is full.
    pub fn post_pending(
        &mut self,
        memory: O::Memory,
        receives: bool,
        word: O::OpData,
    ) -> Option<RequestId> {
        let state = State::Pending {
            memory: Some(memory),
            receives,
        };
        let timeouts = self.timeouts.of_receive();
        self.ops.add(word, MatchBits(0), timeouts, state)
    }

    /// Activates a pending send: posts it as [`Self::send`] does, under the id that it has. A completion always
    /// follows, perhaps within this call. After an error there is none: the operation is still pending, without its
    /// memory, and the owner ends it. Does nothing if `op` is not pending.
    pub fn send_pending(
        &mut self,
        op: RequestId,
        to: RemoteId,
        bits: MatchBits,
        mode: SendMode,
    ) -> Result<(), PostError> {
        let Some(memory) = self.take_pending(op) else {
            return Ok(());
        };
        let due = self.stop_timer(op);
        let len = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        if let SendPosted::Complete = self.send_new(to, bits, Pending(op, memory), mode)? {
            let outcome = Outcome {
                kind: OpKind::Send,
                status: Status::Success,
                lost: None,
                remote: to,
                bits,
                length: len,
                transferred: len,
                matched: false,
            };
            self.end_pending(op, outcome);
        }
        self.limit_rest(op, due);
        Ok(())
    }

    /// Activates a pending receive: posts it as [`Self::recv`] does, or for `from` as [`Self::recv_from`] does, under
    /// the id that it has. A completion always follows, perhaps within this call. After an error there is none: the
    /// operation is still pending, without its memory, and the owner ends it. Does nothing if `op` is not pending.
    pub fn recv_pending(
        &mut self,
        op: RequestId,
        from: Option<RemoteId>,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Result<(), PostError> {
        let Some(memory) = self.take_pending(op) else {
            return Ok(());
        };
        let due = self.stop_timer(op);
        let from = from.unwrap_or(NO_REMOTE);
        let received = self.recv_from(from, bits, mask, Pending(op, memory))?;
        if let ReceivePosted::Complete(outcome) = received {
            self.end_pending(op, outcome);
        }
        self.limit_rest(op, due);
        Ok(())
    }

    fn limit_rest(&mut self, op: RequestId, due: Option<Instant>) {
        if let Some(due) = due {
            // Round down to whole milliseconds, so that the rest does not exceed the limit.
            let rest = due.since(self.clock.now()).as_millis() as u64;
            self.limit_waiting(op, Some(Duration::from_millis(rest)));
        }
    }

    /// Stops an operation's timer. Returns its deadline, if it had one.
    pub(super) fn stop_timer(&mut self, op: RequestId) -> Option<Instant> {
        let timer = self.ops.get_mut(op)?.timer.take()?;
        let due = self.wheel.due(timer);
        self.wheel.clear(timer);
        due
    }

    fn take_pending(&mut self, op: RequestId) -> Option<O::Memory> {
        match &mut self.ops.get_mut(op)?.state {
            State::Pending { memory, .. } => memory.take(),
            _ => None,
        }
    }

    fn end_pending(&mut self, op: RequestId, outcome: Outcome) {
        if self.ops.finish(op) {
            self.report(op, outcome);
        }
    }
}
