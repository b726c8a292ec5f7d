//! Loss of peers, and their reconnection.
//!
//! ```text
//!   cause ---> DISCONNECT   by this method: pending operations complete, then those of the endpoint
//!                  |        a loss:         those of the endpoint have completed; pending ones follow
//!                  v
//!                INIT       the next post reconnects; a peer that had connected to us ends here
//!                  |
//!                  v  no address object, no message waiting
//!               removed       its id is reused after a delay
//! ```

use super::attempts::NEXT;
use super::{Host, Method};
use crate::abi::types::bmi_method_addr;
use crate::match_layout::turns_of;
use crate::peer::state::{Cause, State, WaitState};
use crate::peer::table::{HostRegistration, PeerKey};
use mx_proto::port::Port;
use mx_proto::{Clock, RemoteId, RequestId, SessionId, Status};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Changes a peer's state; every change goes through here.
    pub(crate) fn move_to(&mut self, key: PeerKey, next: State) {
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        log::debug!("{} (id {}): {} -> {next}", peer.name, key.id(), peer.state);
        let (before, after) = (peer.state.is_wait(), next.is_wait());
        let connects = peer.state == State::Wait(WaitState::Connecting);
        let limit = self.settings.connect_timeout;
        let until = limit.filter(|_| after && !before);
        let until = until.map(|span| {
            let at = self.endpoint.clock().now().after(span);
            (at, self.endpoint.remind(at, key.to_word()))
        });
        let Host {
            peers, arrivals, ..
        } = self.endpoint.owner_mut();
        let Some(peer) = peers.get_mut(key) else {
            return;
        };
        peer.state.become_next(next);
        let over = match (before, after) {
            (false, true) => {
                let wait = peer.wait.get_or_insert_default();
                std::mem::replace(&mut wait.until, until)
            }
            (true, false) => peer.wait.as_mut().and_then(|wait| wait.until.take()),
            _ => None,
        };
        if let State::Disconnect { .. } = next {
            peer.conversation.on_loss();
            peer.name_doubted = true;
            arrivals.cancelled.forget(key.id());
        }
        let tried = peer.attempts_mut().filter(|_| connects);
        let tried = tried.map(std::mem::take);
        peer.wait.take_if(|_| !after);
        if next.remote().is_none() {
            (peer.handshake_waits, peer.again) = (false, 0);
        }
        if let Some((_, reminder)) = over {
            self.endpoint.forget_reminder(reminder, key.to_word());
        }
        if let Some((_, reminder)) = tried.and_then(|attempts| attempts.next) {
            self.endpoint
                .forget_reminder(reminder, key.to_word() | NEXT);
        }
    }

    /// Disconnects a peer: all its operations complete with `cause`, and the peer is told if reachable. Does nothing in
    /// INIT.
    pub(crate) fn disconnect(&mut self, key: PeerKey, cause: Cause) {
        let (host, ops) = self.endpoint.split();
        let Some(peer) = host.peers.get_mut(key) else {
            return;
        };
        if peer.state == State::Init {
            return;
        }
        log::info!("{} (id {}) is down: {cause}", peer.name, key.id());
        let remote = peer.state.remote();
        let pending = peer.take_pending(ops);
        self.call_off(key, |_| false);
        self.move_to(key, State::Disconnect { cause });
        for op in pending {
            self.fail(op, cause.code());
        }
        if let Some(remote) = remote {
            let identity = self.endpoint.remote_identity(remote);
            // All its operations end before this returns.
            self.end_session(remote);
            if let Some(identity) = identity {
                self.end_joined(key, identity.session);
            }
        }
        self.move_to(key, State::Init);
        self.tell_dead(key);
        self.maybe_remove(key);
    }

    /// Ends the sessions joined with a C method's ended session.
    pub(super) fn end_joined(&mut self, key: PeerKey, life: SessionId) {
        let is_joined =
            |remote: &RemoteId| self.endpoint.remote_context(*remote) == Some(key.to_word());
        let joined: Vec<_> = self.endpoint.joined_of(life).filter(is_joined).collect();
        for remote in joined {
            self.end_session(remote);
        }
    }

    /// Ends a session and detaches it from its peer.
    fn end_session(&mut self, remote: RemoteId) {
        self.endpoint.set_remote_context(remote, 0);
        self.endpoint.disconnect(remote);
    }

    /// Schedules telling the host that the peer is lost, if the host knows it and has not been told.
    pub(super) fn tell_dead(&mut self, key: PeerKey) {
        if let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key)
            && let HostRegistration::Known {
                name, forgotten, ..
            } = &mut peer.inbound
            && !std::mem::replace(forgotten, true)
        {
            self.forgotten.push(*name);
        }
    }

    /// Ends an operation, held by the endpoint in no queue, with this code.
    pub(crate) fn fail(&mut self, op: RequestId, code: i32) {
        if let Some(word) = self.op_data_mut(op) {
            word.set_end(code, 0);
        }
        self.endpoint.end(op, Status::Unreachable);
    }

    /// Removes a peer that is no longer referenced.
    pub(crate) fn maybe_remove(&mut self, key: PeerKey) {
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        let wanted = !peer.objects.is_empty() || peer.state != State::Init;
        if !wanted && !self.holds_messages(key.id()) {
            log::debug!("{} (id {}) is gone", peer.name, key.id());
            self.arrivals_mut().cancelled.forget(key.id());
            self.peers_mut().remove(key);
        }
    }

    /// Drops an address object that the host no longer uses. With its last object a peer is disconnected: its
    /// operations end with -BMI_ENETRESET, and its unexpected messages are dropped.
    pub fn drop_addr(&mut self, addr: *mut bmi_method_addr) {
        if let Some(peer) = self.peers().at_addr(addr)
            && let HostRegistration::Known {
                addr: known, name, ..
            } = peer.inbound
            && known == addr
        {
            // The host has noticed the loss itself, and its id of the peer is no longer valid.
            self.forgotten.retain(|forgotten| *forgotten != name);
        }
        let Some(key) = self.peers_mut().detach(addr) else {
            return;
        };
        let last = self
            .peers()
            .get(key)
            .is_some_and(|peer| peer.objects.is_empty());
        if last {
            self.disconnect(key, Cause::Reset);
            turns_of(key.id(), self.settings.class_max)
                .for_each(|turn| self.endpoint.forget_messages(turn));
            self.handle_events();
            self.maybe_remove(key);
        }
    }

    /// Returns whether the host may drop the object of a peer that connected to this process: the peer must be lost and
    /// have no messages left.
    pub fn may_drop(&self, addr: *mut bmi_method_addr) -> bool {
        self.peers().at_addr(addr).is_some_and(|peer| {
            let came = matches!(peer.inbound, HostRegistration::Known { addr: known, .. } if known == addr);
            came && peer.state == State::Init && !self.holds_messages(peer.key.id())
        })
    }

    /// Returns whether an unexpected message of a peer is here or waits to be fetched.
    fn holds_messages(&self, id: u32) -> bool {
        turns_of(id, self.settings.class_max).any(|turn| self.endpoint.holds_messages(turn))
    }
}
