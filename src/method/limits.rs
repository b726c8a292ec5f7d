//! How long operations wait for their counterpart, and with whom they wait.
//!
//! ```text
//!   queued    Op::until --> one reminder a peer: when to look through its queues    -BMI_ETIMEDOUT
//!      |  the rest of the time
//!      v
//!   posted    the endpoint's timer of that operation                             -BMI_ETIMEDOUT
//! ```
//!
//! The limits are those of the operation's class and none unless they are set; the peer stays. What
//! has been matched has the endpoint's own time-out.
//!
//! Knows nothing of: handshakes.

use super::{Method, PostKind, QUEUES};
use crate::op::table::{OpIndex, OpList};
use crate::peer::table::{Peer, PeerKey};
use mx_proto::port::Port;
use mx_proto::{Clock, Instant, RequestId};
use mx_sys::UserMemory;
use std::time::Duration;

/// For operations without a limit.
pub(crate) const FOR_EVER: Instant = Instant(u64::MAX);

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    #[inline]
    fn limit(&self, kind: PostKind) -> Option<Duration> {
        match kind {
            PostKind::Send => self.settings.send_timeout,
            PostKind::SendUnexpected => self.settings.unexpected_timeout,
            PostKind::Recv => self.settings.recv_timeout,
        }
    }

    /// An operation has gone to the endpoint as soon as it was posted.
    #[inline]
    pub(crate) fn limit_posted(&mut self, kind: PostKind, request: RequestId) {
        if let Some(limit) = self.limit(kind) {
            self.endpoint.limit_waiting(request, Some(limit));
        }
    }

    /// An operation that has been posted waits in a queue of its peer.
    pub(crate) fn limit_queued(&mut self, index: OpIndex) {
        let limit = self.limit(self.ops.get(index).kind);
        if limit.is_some() {
            self.limit_queued_to(index, limit);
        }
    }

    /// A queued operation waits for so long from now on.
    pub(super) fn limit_queued_to(&mut self, index: OpIndex, limit: Option<Duration>) {
        let now = self.endpoint.clock().now();
        let until = limit.map_or(FOR_EVER, |limit| now.after(limit));
        let op = self.ops.get_mut(index);
        op.until = until;
        let key = op.peer;
        if until != FOR_EVER {
            self.look_at(key, until);
        }
    }

    /// An operation has gone from its queue to the endpoint: it has the rest of its time.
    pub(super) fn limit_rest(&mut self, index: OpIndex, request: RequestId) {
        let until = self.ops.get(index).until;
        if until != FOR_EVER {
            let rest = until.since(self.endpoint.clock().now());
            self.endpoint.limit_waiting(request, Some(rest));
        }
    }

    /// Looks through a peer's queues at `at`, if not before.
    fn look_at(&mut self, key: PeerKey, at: Instant) {
        let Some(peer) = self.peers.get_mut(key) else {
            return;
        };
        let word = key.to_word() | QUEUES;
        if let Some((planned, reminder)) = peer.look_at {
            if planned <= at {
                return;
            }
            self.endpoint.forget_reminder(reminder, word);
        }
        peer.look_at = Some((at, self.endpoint.remind(at, word)));
    }

    /// A peer has got operations that were queued with another one.
    pub(super) fn look_through(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get(key) else {
            return;
        };
        let queued = self.queued_of(peer);
        let soonest = queued.iter().map(|index| self.ops.get(*index).until).min();
        if let Some(soonest) = soonest.filter(|at| *at != FOR_EVER) {
            self.look_at(key, soonest);
        }
    }

    fn queued_of(&self, peer: &Peer) -> Vec<OpIndex> {
        let lists = peer.queues().into_iter();
        lists.flat_map(|list| self.ops.list(list)).collect()
    }

    /// Ends queued operations of a peer's that have waited for too long.
    pub(super) fn expire_queued(&mut self, key: PeerKey, now: Instant) -> bool {
        let Some(peer) = self.peers.get(key) else {
            return false;
        };
        let (mut soonest, mut late) = (FOR_EVER, Vec::new());
        for index in self.queued_of(peer) {
            match self.ops.get(index).until {
                until if until <= now => late.push(index),
                until => soonest = soonest.min(until),
            }
        }
        if soonest != FOR_EVER {
            self.look_at(key, soonest);
        }
        for index in &late {
            self.unqueue(*index);
            let code = self.ops.get(*index).timeout_code();
            self.finish_op(*index, code, 0);
        }
        !late.is_empty()
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

    /// All queues.
    pub(crate) fn queues(&self) -> [&OpList; 3] {
        [
            &self.queued_requests,
            &self.queued_sends,
            &self.queued_recvs,
        ]
    }

    /// All operations that wait in them, which are in none afterwards.
    pub(crate) fn take_queues(&mut self) -> [OpList; 3] {
        [
            std::mem::take(&mut self.queued_requests),
            std::mem::take(&mut self.queued_sends),
            std::mem::take(&mut self.queued_recvs),
        ]
    }

    /// How many that are.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queues().iter().map(|list| list.len() as u32).sum()
    }
}
