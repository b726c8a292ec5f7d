//! Time limits of unmatched operations.
//!
//! ```text
//!   an operation   the endpoint's timer, while it is pending and afterwards    -BMI_ETIMEDOUT
//! ```
//!
//! Each kind of operation has its limit, none by default; the peer stays connected. A matched operation has the
//! endpoint's own time-out.
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

    /// Starts the time limit of a posted operation.
    #[inline]
    pub(crate) fn limit_posted(&mut self, kind: PostKind, op: RequestId) {
        if let Some(limit) = self.limit(kind) {
            self.endpoint.limit_waiting(op, Some(limit));
        }
    }
}

impl Peer {
    /// Appends an operation of the host's to the peer's queue.
    pub(crate) fn enqueue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.data_mut(op) {
            word.pending = true;
            ops.append(&mut self.pending, op);
        }
    }

    /// Removes an operation of the host's from the peer's queue, if it is there.
    pub(crate) fn dequeue(&mut self, ops: &mut Ops<Host>, op: RequestId) {
        if let Some(word) = ops.data_mut(op)
            && std::mem::take(&mut word.pending)
        {
            ops.remove(&mut self.pending, op);
        }
    }

    /// Removes and returns all operations in the peer's queue.
    pub(crate) fn take_pending(&mut self, ops: &mut Ops<Host>) -> Vec<RequestId> {
        let all: Vec<_> = ops.all(&self.pending).collect();
        for op in &all {
            self.dequeue(ops, *op);
        }
        all
    }

    /// Returns the number of operations in the peer's queue.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.pending.len() as u32
    }
}
