//! The handshake, step by step (docs/hosts.md, Handshake of the C method).
//!
//! ```text
//!   this method connects                           the peer connects
//!   post: transport connect with greeting          greeting arrives: a new peer, READY
//!   done: greeting in the answer: READY            greeting in the answer
//!
//!   the C bmi_mx has no greeting in its hello
//!   done: CONN_REQ ->                              CONN_REQ arrives: a new peer, READY
//!   CONN_ACK arrives: READY                        CONN_ACK ->
//! ```
//!
//! Each connection is one session and one peer. Two processes that connect to each other are two peers to each other,
//! each with its own session, as over `bmi_tcp`; a peer that has connected is never called back.
//!
//! Operations posted before READY are pending, and are then posted in the same order.

use super::{Method, PostKind};
use crate::abi::constants::{BMI_EMSGSIZE, BMI_ENOMEM};
use crate::abi::types::bmi_method_addr;
use crate::arrivals::HandshakeMessage;
use crate::error::{Error, code_of};
use crate::match_layout::{MATCH, MessageType, Refusal, VERSION, bits, with_class};
use crate::op::data::{OpData, Role};
use crate::peer::conversation::Conversation;
use crate::peer::handshake::{Answer, ConnReq};
use crate::peer::state::{Cause, Ready, State, WaitState};
use crate::peer::table::{Peer, PeerKey};
use crate::peer_name::PeerName;
use mx_proto::port::Port;
use mx_proto::{
    Clock, EndpointId, Identity, MatchBits, NicId, Outcome, PostError, RemoteId, SendMode,
    SendPosted, Status, Target,
};
use mx_sys::{MallocBuffer, UserMemory};

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Returns the peer of an address object. If the object has none yet, attaches it to the peer at the first of
    /// `nics` (interfaces that `name` resolves to, best first), which is added if necessary. `looked_up`: the object
    /// comes from a look-up, not from `initialize`.
    pub fn attach(
        &mut self,
        addr: *mut bmi_method_addr,
        name: &PeerName,
        nics: &[NicId],
        looked_up: bool,
    ) -> Result<PeerKey, Box<Error>> {
        if let Some(known) = self.peers().of_addr(addr) {
            return Ok(known);
        }
        let Some(&nic) = nics.first() else {
            return Err(Error::unknown_address(addr));
        };
        // The listen address may have no endpoint number.
        let own = self.endpoint.identity().endpoint;
        let target = Target {
            nic,
            endpoint: name.endpoint.map_or(own, EndpointId),
            route: name.route,
        };
        let key = self.peer_for(target, name)?;
        self.peers_mut().attach(addr, key, nics.into(), looked_up);
        Ok(key)
    }

    fn peer_for(&mut self, target: Target, name: &PeerName) -> Result<PeerKey, Box<Error>> {
        if let Some(key) = self.peers().called(target) {
            return Ok(key);
        }
        let limit = self.peers().limit();
        let key = self.peers_mut().add(target, &name.to_string());
        key.ok_or_else(|| Error::new(BMI_ENOMEM, format!("all {limit} peer ids are in use")))
    }

    /// Connects again after the connection was cut while CONN_REQ waited for its answer. Returns false if that was the
    /// second time.
    pub(super) fn retry(&mut self, key: PeerKey, cause: Cause) -> bool {
        let Some(peer) = self.peers().get(key) else {
            return false;
        };
        let State::Wait(WaitState::Requested { cut: None, .. }) = peer.state else {
            return false;
        };
        log::debug!("{} cut the connection; trying again", peer.name);
        self.begin_connect(key, Some(cause)).is_ok()
    }

    /// Sends CONN_REQ to a peer without a greeting in its hello.
    pub(super) fn on_reached(&mut self, key: PeerKey, remote: RemoteId, cut: Option<Cause>) {
        let Some(word) = self.endpoint.remote_context(remote) else {
            return self.disconnect(key, Cause::Reset);
        };
        let caller = PeerKey::from_word(word);
        if caller != key && self.peers().get(caller).is_some() {
            return self.has_called_before(key, caller);
        }
        self.endpoint.set_remote_context(remote, key.to_word());
        self.move_to(key, State::Wait(WaitState::Requested { remote, cut }));
        let body = ConnReq::emit(&self.endpoint.owner().name);
        let bits = bits(MessageType::ConnReq, key.id(), VERSION);
        self.send_handshake(key, remote, bits, &body);
    }

    /// Merges two peers: the C method that was connected to has connected, too, and keeps one state for both.
    fn has_called_before(&mut self, key: PeerKey, caller: PeerKey) {
        let (host, ops) = self.endpoint.split();
        let Some(peer) = host.peers.get_mut(key) else {
            return;
        };
        log::debug!(
            "{} (id {}) is the peer with id {}",
            peer.name,
            key.id(),
            caller.id()
        );
        let (pending, begun) = (
            peer.take_pending(ops),
            peer.conversation == Conversation::Begun,
        );
        host.peers.hand_over(key, caller);
        if let Some(peer) = host.peers.get_mut(caller) {
            for op in pending {
                if let Some(word) = ops.data_mut(op) {
                    word.peer = caller;
                }
                peer.enqueue(ops, op);
            }
            if begun {
                peer.conversation.on_post(true);
            }
        }
        let cause = Cause::Reset;
        self.move_to(key, State::Disconnect { cause });
        self.move_to(key, State::Init);
        self.maybe_remove(key);
        self.post_pending(caller);
    }

    fn send_handshake(&mut self, key: PeerKey, remote: RemoteId, bits: MatchBits, body: &[u8]) {
        let memory = match body {
            [] => UserMemory::empty(),
            body => match MallocBuffer::copy_of(body) {
                Some(buffer) => UserMemory::owned(buffer),
                None => return self.disconnect(key, Cause::NoRoom),
            },
        };
        let word = OpData::own(Role::Handshake, key);
        let sent = self
            .endpoint
            .send(remote, bits, memory, word, SendMode::Standard);
        match sent {
            Ok(SendPosted::Complete) => {}
            Ok(SendPosted::Pending(_)) => {
                if let Some(peer) = self.peers_mut().get_mut(key) {
                    peer.handshake_waits = true;
                }
            }
            Err(_) => self.disconnect(key, Cause::Reset),
        }
    }

    /// Handles the completion of a handshake message that had to wait.
    pub(super) fn on_handshake_sent(&mut self, key: PeerKey, how: &Outcome) {
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return;
        };
        if peer.state.remote() != Some(how.remote) {
            return;
        }
        peer.handshake_waits = false;
        // The loss of a remote is reported as a separate event.
        if !matches!(how.status, Status::Success | Status::Unreachable) {
            self.disconnect(key, Cause::of_connect(how.status));
        }
    }

    /// Handles a CONN_REQ or CONN_ACK.
    pub(super) fn on_handshake(&mut self, message: &HandshakeMessage) {
        // A lost remote has no identity.
        let Some(identity) = self.endpoint.remote_identity(message.remote) else {
            return;
        };
        match message.fields.kind {
            Some(MessageType::ConnReq) => self.on_conn_req(message, identity),
            _ => self.on_conn_ack(message, identity),
        }
    }

    fn on_conn_req(&mut self, message: &HandshakeMessage, identity: Identity) {
        let theirs = message.fields.tag;
        if theirs != VERSION {
            let why = format_args!("speaks version {theirs:#x}, we speak {VERSION:#x}");
            return self.refuse(message.remote, Refusal::Version, why);
        }
        let request = match ConnReq::parse(&message.body) {
            Ok(request) if message.fields.id != 0 => request,
            Ok(_) => {
                let why = "sent a connection request without an id";
                return self.refuse(message.remote, Refusal::Malformed, why);
            }
            Err(reason) => {
                let why = format_args!("sent a connection request with {reason}");
                return self.refuse(message.remote, Refusal::Malformed, why);
            }
        };
        let ready = Ready {
            remote: message.remote,
            tx_id: message.fields.id,
        };
        let context = self.endpoint.remote_context(message.remote).unwrap_or(0);
        let known = PeerKey::from_word(context);
        if self.peers().get(known).is_some() {
            return self.on_conn_req_again(known, ready);
        }
        // Only for log messages: the transport identifies the peer, not its name.
        let (target, name) = (Target::auto(identity.nic, identity.endpoint), request.name);
        match self.peers_mut().add_caller(target, name) {
            Some(key) => self.become_ready(key, ready, true),
            None => {
                let limit = self.peers().limit();
                let why = format_args!("calls itself {name:?}: all {limit} peer ids are in use");
                self.refuse(message.remote, Refusal::NoRoom, why);
            }
        }
    }

    /// Handles a CONN_REQ on a peer's existing connection.
    fn on_conn_req_again(&mut self, key: PeerKey, ready: Ready) {
        let Some(peer) = self.peers().get(key) else {
            return;
        };
        let Some(remote) = self.session_of(peer, ready.remote) else {
            return;
        };
        let ready = Ready { remote, ..ready };
        // The peer has forgotten this process without disconnecting; their session continues.
        if matches!(peer.state, State::Ready(_)) && self.calls_again(key) {
            return;
        }
        // An answer that has not been sent yet answers this request, too.
        let waits = self
            .peers()
            .get(key)
            .is_some_and(|peer| peer.handshake_waits);
        self.become_ready(key, ready, !waits);
    }

    /// Returns the session of a peer if `remote` is that session or joined with it.
    pub(super) fn session_of(&self, peer: &Peer, remote: RemoteId) -> Option<RemoteId> {
        let session = peer.state.remote()?;
        self.endpoint.are_joined(session, remote).then_some(session)
    }

    fn on_conn_ack(&mut self, message: &HandshakeMessage, identity: Identity) {
        let context = self.endpoint.remote_context(message.remote).unwrap_or(0);
        let key = PeerKey::from_word(context);
        let Some(peer) = self.peers().get(key) else {
            log::debug!("{identity:?} answered a connection request that we did not send; dropped");
            return;
        };
        if self.session_of(peer, message.remote).is_none() {
            return;
        }
        let answer = Answer::of(message.fields);
        match (peer.state, answer) {
            (State::Wait(WaitState::Requested { remote, .. }), Answer::Accepted { tx_id }) => {
                self.become_ready(key, Ready { remote, tx_id }, false);
            }
            // CONN_REQ has brought the id already.
            (_, Answer::Accepted { .. }) => {}
            (_, refusal) => {
                log::warn!("{} ({identity:?}): {refusal}", peer.name);
                let cause = match refusal {
                    Answer::Refused { answer } if answer == Refusal::NoRoom as i32 => Cause::NoRoom,
                    _ => Cause::Protocol,
                };
                self.disconnect(key, cause);
            }
        }
    }

    /// Finishes the handshake: pending operations are posted, in order.
    pub(super) fn become_ready(&mut self, key: PeerKey, ready: Ready, acknowledge: bool) {
        let remote = ready.remote;
        self.endpoint.set_remote_context(remote, key.to_word());
        self.move_to(key, State::Ready(ready));
        let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) else {
            return;
        };
        peer.conversation.on_ready();
        if acknowledge {
            let bits = bits(MessageType::ConnAck, key.id(), VERSION);
            self.send_handshake(key, remote, bits, &[]);
        }
        self.post_pending(key);
    }

    /// Posts pending operations to the endpoint, if the peer is ready.
    fn post_pending(&mut self, key: PeerKey) {
        loop {
            let (host, ops) = self.endpoint.split();
            let Some(peer) = host.peers.get_mut(key) else {
                return;
            };
            let State::Ready(Ready { remote, tx_id, .. }) = peer.state else {
                return;
            };
            let Some(op) = ops.first(&peer.pending) else {
                return;
            };
            peer.dequeue(ops, op);
            let Some(word) = ops.data(op) else {
                return;
            };
            let (kind, tag, class) = (word.kind(), word.tag, word.class);
            let posted = match kind.unwrap_or(PostKind::Recv) {
                PostKind::Recv => {
                    let bits = bits(MessageType::Expected, key.id(), tag);
                    self.endpoint.recv_pending(op, Some(remote), bits, MATCH)
                }
                kind => {
                    let bits = with_class(bits(kind.message_type(), tx_id, tag), class);
                    let mode = kind.send_mode();
                    self.endpoint.send_pending(op, remote, bits, mode)
                }
            };
            if let Err(error) = posted {
                self.fail(op, code_of_post(error));
            }
        }
    }
}

/// Returns the completion code for an operation that the endpoint rejected.
pub(crate) fn code_of_post(error: PostError) -> i32 {
    match error {
        PostError::UnknownRemote => Cause::Reset.code(),
        PostError::TooLarge(_) => -BMI_EMSGSIZE,
        PostError::TooMany => -BMI_ENOMEM,
        PostError::NoRegions => code_of(Status::Unsupported),
        PostError::BadMask => code_of(Status::Aborted),
    }
}
