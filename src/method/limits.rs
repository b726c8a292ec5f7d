//! How long operations wait for their counterpart, and with whom they wait.
//!
//! ```text
//!   an operation   the endpoint's timer of it, in a queue of its peer's and afterwards    -BMI_ETIMEDOUT
//! ```
//!
//! The limits are those of the operation's class and none unless they are set; the peer stays. What
//! has been matched has the endpoint's own time-out.
//!
//! Knows nothing of: handshakes.

use super::{Host, Method, PostKind};
use crate::op::list::OpList;
use crate::peer::table::Peer;
use mx_proto::ops::Ops;
use mx_proto::port::Port;
use mx_proto::{Clock, RequestId};
use mx_sys::UserMemory;
use std::time::Duration;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    #[inline]
    fn limit(&self, kind: PostKind) -> Option<Duration> {
        match kind {
            PostKind::Send => self.settings.send_timeout,
            PostKind::SendUnexpected => self.settings.unexpected_timeout,
            PostKind::Recv => self.settings.recv_timeout,
        }
    }

    /// An operation has been posted.
    #[inline]
    pub(crate) fn limit_posted(&mut self, kind: PostKind, op: RequestId) {
        if let Some(limit) = self.limit(kind) {
            self.endpoint.limit_waiting(op, Some(limit));
        }
    }
}

impl Peer {
    /// The queue that operations of a kind wait in.
    pub(crate) fn queue_of(&mut self, kind: PostKind) -> &mut OpList {
        match kind {
            PostKind::Recv => &mut self.queued_recvs,
            PostKind::Send => &mut self.queued_sends,
            PostKind::SendUnexpected => &mut self.queued_requests,
        }
    }

    /// An operation of the host's waits for the peer from now on, behind those of its kind.
    pub(crate) fn enqueue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.word_mut(op)
            && let Some(kind) = word.kind()
        {
            word.parked = true;
            self.queue_of(kind).push_back(ops, op);
        }
    }

    /// It does so no more. Nothing happens to one that does not.
    pub(crate) fn dequeue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.word_mut(op)
            && let Some(kind) = word.kind()
            && std::mem::take(&mut word.parked)
        {
            self.queue_of(kind).remove(ops, op);
        }
    }

    /// All queues.
    pub(crate) fn queues(&self) -> [&OpList; 3] {
        [
            &self.queued_requests,
            &self.queued_sends,
            &self.queued_recvs,
        ]
    }

    /// All operations that wait in them, which are in none afterwards.
    pub(crate) fn take_queued(&mut self, ops: &mut Ops<Host>) -> Vec<RequestId> {
        let all: Vec<_> = self
            .queues()
            .iter()
            .flat_map(|list| list.all(ops))
            .collect();
        for op in &all {
            self.dequeue(ops, *op);
        }
        all
    }

    /// How many that are.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queues().iter().map(|list| list.len() as u32).sum()
    }
}
