//! Operations of exchanges that a lost connection has cut ([`crate::peer::conversation`]).
//!
//! ```text
//!   CUT   expected send      ends, and the provisional receives with it       -BMI_ENETRESET
//!         receive            provisional, for one peer timeout at most        -BMI_ENETRESET
//!         unexpected send    OPEN: provisional receives become ordinary
//! ```
//!
//! Knows nothing of: how connections are lost.

use super::Method;
use crate::op::table::{Op, OpIndex, Stage};
use crate::peer::conversation::Conversation;
use crate::peer::state::{Cause, State};
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, PartnerId, Status};
use mx_sys::UserMemory;
use std::time::Duration;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// An unexpected message is posted: what the host has posted for its exchange may wait.
    #[inline]
    pub(crate) fn open_conversation(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key) else {
            return;
        };
        peer.conversation
            .on_post(matches!(peer.state, State::Ready(_)));
        if std::mem::take(&mut peer.has_provisional) {
            for index in self.provisional(key) {
                self.ops.get_mut(index).provisional = false;
                self.limit_recv(index, self.settings.recv_timeout);
            }
        }
    }

    /// An unexpected message that came over `partner`'s connection is handed out.
    #[inline]
    pub(super) fn on_handed_out(&mut self, key: PeerKey, partner: PartnerId) {
        let Some(peer) = self.peers.get_mut(key) else {
            return;
        };
        if peer.conversation == Conversation::Open {
            return;
        }
        if peer.state.partner() == Some(partner) {
            // Receives that are provisional were posted for something else, and stay so.
            peer.conversation = Conversation::Open;
        } else {
            peer.conversation.on_late_message();
        }
    }

    /// An expected send of a conversation that is cut has ended; nothing else of it can go on.
    #[cold]
    pub(crate) fn end_cut(&mut self, key: PeerKey, send: OpIndex) {
        let code = Cause::Reset.code();
        self.done.push(&mut self.ops, send, code, 0);
        for index in self.provisional(key) {
            // One that is provisional has the same code when its time is over.
            self.call_off(index, code, Status::Timeout);
        }
    }

    /// A receive has been posted in a conversation that is cut.
    #[cold]
    pub(crate) fn on_provisional(&mut self, index: OpIndex) {
        let op = self.ops.get_mut(index);
        op.provisional = true;
        let key = op.peer;
        if let Some(peer) = self.peers.get_mut(key) {
            peer.has_provisional = true;
        }
        let limits = [self.settings.recv_timeout, self.endpoint.peer_timeout()];
        self.limit_recv(index, limits.into_iter().flatten().min());
    }

    /// Limits how long a receive waits from now on, in its queue and at the endpoint.
    fn limit_recv(&mut self, index: OpIndex, limit: Option<Duration>) {
        match self.ops.get(index).stage {
            Stage::Queued => self.limit_queued_to(index, limit),
            Stage::Posted(request) => {
                self.endpoint.limit_waiting(request, limit);
            }
            Stage::Free | Stage::Done => {}
        }
    }

    fn provisional(&self, key: PeerKey) -> Vec<OpIndex> {
        let Some(peer) = self.peers.get(key) else {
            return Vec::new();
        };
        let mut found = self.ops.list(&peer.queued_recvs);
        if let Some(partner) = peer.state.partner() {
            let posted = self.endpoint.receives_from(partner);
            found.extend(posted.map(|word| OpIndex::from_number(*word as u32)));
        }
        found.retain(|index| self.ops.get(*index).provisional);
        found
    }
}

impl Op {
    /// The code of an operation whose time is over.
    pub(crate) fn timeout_code(&self) -> i32 {
        if self.provisional {
            Cause::Reset.code()
        } else {
            Cause::TimedOut.code()
        }
    }
}
