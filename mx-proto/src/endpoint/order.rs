//! The order in which receives are reported.
//!
//! ```text
//!   matched, in this order:   A: pulled      B: with its data      C: pulled        equal bits, one remote
//!   all bytes there:          3rd            1st                   2nd
//!   reported:                 A, B, C when those of A are there
//! ```
//!
//! Programs post several receives with one tag and count on that order. Bytes of large messages have other links than small
//! messages, and come in turns. A receive whose bytes are all there waits for those of its line that were matched
//! before it; it is reported as what it is, whatever ends it.
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

/// The remote and the match bits of the messages of a line.
type MatchKey = (RemoteId, MatchBits);

/// Receives that have been matched and not reported, by line, in the order in which they were matched.
#[derive(Debug, Default)]
pub(super) struct MatchOrder {
    lines: HashMap<MatchKey, SmallVec<[RequestId; 2]>, RandomState>,
}

impl MatchOrder {
    /// Whether a message of that line has to wait for others.
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

    /// Removes a receive from its line.
    fn leave(&mut self, line: MatchKey, id: RequestId) {
        if let Entry::Occupied(mut entry) = self.lines.entry(line) {
            entry.get_mut().retain(|other| *other != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// The receive whose turn it is to be reported.
    fn first(&self, line: MatchKey) -> Option<RequestId> {
        self.lines.get(&line)?.first().copied()
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// A receive has matched a message.
    fn enter_order(&mut self, id: RequestId, from: RemoteId) {
        if let State::Pulling(pulling) = &self.ops.record(id.index()).state
            && pulling.fetch.is_none()
        {
            self.order.join((from, pulling.bits), id);
        }
    }

    /// A receive that is in no list has matched a message that is here, and is to wait for others of its line.
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

    /// A receive has matched a message, and is to be reported in its turn.
    pub(super) fn wait_in_order(&mut self, id: RequestId, from: RemoteId, now: Instant) {
        if !self.ops.record(id.index()).from_one {
            self.attach_op(id, from);
        }
        self.enter_order(id, from);
        self.start_timer(id, now);
    }

    /// All bytes of a receive are there: it is reported, or waits for others of its line.
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
            // Those before it have time-outs.
            self.stop_timer(id);
            self.forget_name(id);
        }
    }

    /// A receive is about to end, or to wait for another message. Returns its line, if others of it may be reported then.
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

    /// Reports those first ones of a line whose bytes are all there.
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
