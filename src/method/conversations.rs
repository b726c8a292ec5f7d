//! Operations of exchanges that a lost connection has cut ([`crate::peer::conversation`]).
//!
//! ```text
//!   CUT   expected send      fails, and so do the provisional receives        -BMI_ENETRESET
//!         receive            provisional, for at most one peer timeout        -BMI_ENETRESET
//!         unexpected send    OPEN: provisional receives become ordinary
//! ```

use super::Method;
use crate::peer::conversation::Conversation;
use crate::peer::state::{Cause, State};
use crate::peer::table::PeerKey;
use mx_proto::port::Port;
use mx_proto::{Clock, RemoteId, RequestId, Status};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Records that an unexpected message is posted: the receives of its exchange become ordinary.
    #[inline]
    pub(crate) fn open_conversation(&mut self, key: PeerKey) {
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return;
        };
        peer.conversation
            .on_post(matches!(peer.state, State::Ready(_)));
        if std::mem::take(&mut peer.has_provisional) {
            for op in self.provisional(key) {
                if let Some(word) = self.op_data_mut(op) {
                    word.provisional = false;
                }
                self.endpoint.limit_waiting(op, self.settings.recv_timeout);
            }
        }
    }

    /// Records that an unexpected message from `remote`'s connection is handed out.
    #[inline]
    pub(super) fn on_handed_out(&mut self, key: PeerKey, remote: RemoteId) {
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        if peer.conversation == Conversation::Open {
            return;
        }
        let is_of_now = self.session_of(peer, remote).is_some();
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return;
        };
        if is_of_now {
            // Receives that are provisional were posted for an earlier exchange, and stay so.
            peer.conversation = Conversation::Open;
        } else {
            peer.conversation.on_late_message();
        }
    }

    /// Fails an expected send of a cut conversation, and its provisional receives.
    #[cold]
    pub(crate) fn end_cut(&mut self, key: PeerKey, send: RequestId) {
        let code = Cause::Reset.code();
        self.fail(send, code);
        for op in self.provisional(key) {
            // A provisional receive that times out gets the same code.
            self.endpoint.end(op, Status::Timeout);
        }
    }

    /// Records a receive posted in a cut conversation as provisional.
    #[cold]
    pub(crate) fn on_provisional(&mut self, op: RequestId) {
        let Some(word) = self.op_data_mut(op) else {
            return;
        };
        word.provisional = true;
        let key = word.peer;
        if let Some(peer) = self.peers_mut().get_mut(key) {
            peer.has_provisional = true;
        }
        let limits = [self.settings.recv_timeout, self.endpoint.peer_timeout()];
        let limit = limits.into_iter().flatten().min();
        self.endpoint.limit_waiting(op, limit);
    }

    fn provisional(&self, key: PeerKey) -> Vec<RequestId> {
        let Some(peer) = self.peers().get(key) else {
            return Vec::new();
        };
        let ops = self.endpoint.ops();
        let mut found: Vec<_> = ops.all(&peer.pending).collect();
        if let Some(remote) = peer.state.remote() {
            found.extend(self.endpoint.receives_from(remote));
        }
        found.retain(|op| ops.data(*op).is_some_and(|word| word.provisional));
        found
    }
}
