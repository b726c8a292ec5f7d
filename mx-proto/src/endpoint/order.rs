//! Order in which receives are reported.
//!
//! ```text
//!   matched, in this order:   A: pulled      B: with its data      C: pulled        equal bits, one remote
//!   all bytes there:          3rd            1st                   2nd
//!   reported:                 A, B, C when all bytes of A are there
//! ```
//!
//! Programs post several receives with one tag and rely on that order. Large messages are pulled in parts, partly over
//! other links than small messages, so their bytes may be complete later. A receive whose bytes are all there waits
//! until every receive of its line that was matched earlier has ended. If it ends before, for whatever reason, it is
//! reported as received.
//!
//! Owns: lines of receives, by remote and bits. A line begins with a pulled message.
//! Cost: an entry in a hash table for each message that is being pulled; nothing for others.

use super::Endpoint;
use super::commands::inbound_status;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{Pulling, State};
use crate::owner::Owner;
use crate::port::Port;
use crate::status::Status;
use crate::time::{Clock, Instant};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

type MatchKey = (RemoteId, MatchBits);

/// Matched receives that have not been reported, by line, in the order in which they were matched.
#[derive(Debug, Default)]
pub(super) struct MatchOrder {
    lines: HashMap<MatchKey, SmallVec<[RequestId; 2]>, RandomState>,
}

impl MatchOrder {
    /// Returns whether a message of that line must wait for others.
    #[inline(always)]
    pub(super) fn holds(&self, from: RemoteId, bits: MatchBits) -> bool {
        !self.lines.is_empty() && self.has(from, bits)
    }

    #[cold]
    fn has(&self, from: RemoteId, bits: MatchBits) -> bool {
        self.lines.contains_key(&(from, bits))
    }

    fn join(&mut self, line: MatchKey, id: RequestId) {
        self.lines.entry(line).or_default().push(id);
    }

    fn leave(&mut self, line: MatchKey, id: RequestId) {
        if let Entry::Occupied(mut entry) = self.lines.entry(line) {
            entry.get_mut().retain(|other| *other != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    fn first(&self, line: MatchKey) -> Option<RequestId> {
        self.lines.get(&line)?.first().copied()
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Enters a receive that has matched a message into its line, unless it fetches for the inbox.
    fn enter_order(&mut self, id: RequestId, from: RemoteId) {
        if let State::Pulling(pulling) = &self.ops.record(id.index()).state
            && pulling.fetch.is_none()
        {
            self.order.join((from, pulling.bits), id);
        }
    }

    /// Fills a receive, which is in no list, with a matched message and holds the report until earlier ones of its line
    /// have ended.
    #[cold]
    pub(super) fn hold(
        &mut self,
        id: RequestId,
        from: RemoteId,
        bits: MatchBits,
        body: &(impl Source + ?Sized),
    ) {
        let length = body.len() as u32;
        let record = self.ops.record_mut(id.index());
        record.become_next(|mut memory| {
            memory.fill(0, body.len(), body, 0);
            State::Pulling(Pulling::whole(memory, bits, length))
        });
        let now = self.clock.now();
        self.wait_in_order(id, from, now);
        self.stop_timer(id);
    }

    /// Lists a receive that has matched a message with its remote and its line.
    pub(super) fn wait_in_order(&mut self, id: RequestId, from: RemoteId, now: Instant) {
        if !self.ops.record(id.index()).from_one {
            self.attach_op(id, from);
        }
        self.enter_order(id, from);
        self.start_timer(id, now);
    }

    /// Reports a receive whose bytes are all there, or leaves it waiting for earlier ones of its line.
    pub(super) fn arrived_whole(&mut self, id: RequestId, from: RemoteId) {
        let Some(State::Pulling(pulling)) = self.ops.get_mut(id).map(|record| &mut record.state)
        else {
            return;
        };
        pulling.requested = pulling.wanted;
        let (line, received, length) = ((from, pulling.bits), pulling.wanted, pulling.length);
        if self.order.first(line).is_none_or(|first| first == id) {
            self.complete(id, inbound_status(received, length), received);
        } else {
            // Earlier receives of the line have time-outs.
            self.stop_timer(id);
            self.forget_name(id);
        }
    }

    /// Removes a receive that is about to end, or to wait for another message, from its line. Returns the line if later
    /// receives may be reported then.
    #[inline]
    pub(super) fn leave_order(&mut self, id: RequestId) -> Option<MatchKey> {
        if self.order.lines.is_empty() {
            return None;
        }
        let record = self.ops.get(id)?;
        let State::Pulling(pulling) = &record.state else {
            return None;
        };
        let line = (record.remote, pulling.bits);
        self.order.leave(line, id);
        Some(line)
    }

    /// Reports the receives at the head of a line whose bytes are all there.
    pub(super) fn report_in_order(&mut self, line: MatchKey) {
        while let Some(id) = self.order.first(line)
            && let Some(State::Pulling(pulling)) = self.ops.get(id).map(|record| &record.state)
            && pulling.is_whole()
        {
            self.order.leave(line, id);
            self.end_one(id, Status::Success, None, 0);
        }
    }
}
