//! Time limits of unmatched operations.
//!
//! ```text
//!   an operation   the endpoint's timer of it, pending and afterwards    -BMI_ETIMEDOUT
//! ```
//!
//! The limits are those of the operation's class, none by default; the peer stays. A matched
//! operation has the endpoint's own time-out.
//!
//! Out of scope: handshakes.

use super::{Host, Method, PostKind};
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
    /// An operation of the host's waits for the peer from now on, behind the others.
    pub(crate) fn enqueue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.data_mut(op) {
            word.pending = true;
            ops.append(&mut self.pending, op);
        }
    }

    /// Takes an operation of the host's out of the queue of the peer, if it waits there.
    pub(crate) fn dequeue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.data_mut(op)
            && std::mem::take(&mut word.pending)
        {
            ops.remove(&mut self.pending, op);
        }
    }

    /// All operations that do, which are in no list afterwards.
    pub(crate) fn take_pending(&mut self, ops: &mut Ops<Host>) -> Vec<RequestId> {
        let all: Vec<_> = ops.all(&self.pending).collect();
        for op in &all {
            self.dequeue(ops, *op);
        }
        all
    }

    /// Their number.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.pending.len() as u32
    }
}
