//! Posting, cancelling and forgetting requests.
//!
//! ```text
//!   isend --> peer connected?  yes --> Endpoint::send --> done at once, or pending
//!                |  no: lost           done: unreachable
//!                `- this endpoint      connect first
//! ```
//!
//! A small send completes without its receiver, even if it has to wait for room or for a slow or stopped peer
//! ([`SendMode::Buffered`]): programs send to each other, wait for completion, and then receive.
//!
//! Posting succeeds whatever the state of the peer; the request reports errors.

use super::program::{CompletionTarget, OpData, RequestKind};
use super::{Engine, Peers, check_mask, posted};
use crate::error::{Code, Error};
use crate::handles::{Address, PeerKey, RequestHandle};
use crate::status::{Status, StatusCode};
use mx_proto::port::{ConnectError, Port};
use mx_proto::{
    Clock, EndpointId, MatchBits, MatchMask, Memory, NicId, PostError, ReceivePosted, RemoteId,
    RequestId, SendMode, SendPosted, SessionId, Target,
};
use mx_sys::UserMemory;

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// Sends all of `memory`.
    #[inline]
    pub(crate) fn isend(
        &mut self,
        memory: UserMemory,
        to: Address,
        bits: u64,
        context: usize,
        mode: SendMode,
    ) -> Result<RequestHandle, Error> {
        let length = u32::try_from(memory.len()).map_err(|_| too_long(memory.len()))?;
        let peer = self.peer_of(to)?;
        self.check_room()?;
        let small = mode != SendMode::Synchronous && length as usize <= self.options().eager_max;
        let word = OpData {
            status: posted(to, bits, length, context),
            kind: if small {
                RequestKind::Small
            } else {
                RequestKind::Send
            },
            whose: CompletionTarget::Program,
            entry: None,
        };
        let remote = match self.peers().get(peer).and_then(|peer| peer.remote) {
            Some(remote) => Ok(remote),
            None if peer == Peers::OWN => self.connect_to_self(),
            None => Err(mx_proto::Status::Unreachable),
        };
        let op = match remote {
            Ok(remote) => self.send(word, remote, memory, mode),
            Err(how) => self.over(word, how.into(), 0),
        };
        self.posted(op)
    }

    #[inline]
    fn send(
        &mut self,
        word: OpData,
        remote: RemoteId,
        memory: UserMemory,
        mode: SendMode,
    ) -> Option<RequestId> {
        let bits = MatchBits(word.status.match_info);
        match self.endpoint.send(remote, bits, memory, word, mode) {
            Ok(SendPosted::Complete) => {
                self.over(word, StatusCode::Success, word.status.msg_length)
            }
            Ok(SendPosted::Pending(op)) => {
                self.flush();
                Some(op)
            }
            Err(PostError::TooMany) => None,
            // The length has been checked, and a send has no mask.
            Err(_) => self.over(word, StatusCode::EndpointUnreachable, 0),
        }
    }

    /// Adds a request that ends as soon as it is posted.
    #[inline]
    fn over(&mut self, word: OpData, code: StatusCode, transferred: u32) -> Option<RequestId> {
        let (program, ops) = self.endpoint.split();
        let op = ops.add_done(word)?;
        program.finish(ops, op, code, transferred);
        Some(op)
    }

    /// Returns the handle of a request, if there was a place for it.
    #[inline]
    fn posted(&self, op: Option<RequestId>) -> Result<RequestHandle, Error> {
        op.map(|op| self.name(op)).ok_or_else(|| {
            let waiting = self.endpoint.ops().in_use();
            let what = format!("{waiting} requests are waiting to be tested");
            Error::new(Code::NoResources, what)
        })
    }

    /// Connects the endpoint to itself. Returns the remote for which sends wait.
    #[cold]
    fn connect_to_self(&mut self) -> Result<RemoteId, mx_proto::Status> {
        let own = self.identity();
        let target = Target::auto(own.nic, own.endpoint);
        let (key, word) = (self.options().key, OpData::default());
        let connect = self.endpoint.connect(target, key, MatchBits(0), word);
        connect.map_err(refusal)?;
        // The connecting end is older than the accepting one; strangers may claim the same name.
        let mut named = self.endpoint.remotes_of(own.nic, own.endpoint);
        let remote = named.find(|remote| {
            let who = self.endpoint.remote_identity(*remote);
            who.is_some_and(|who| [SessionId(0), own.session].contains(&who.session))
        });
        drop(named);
        let remote = remote.ok_or(mx_proto::Status::Unreachable)?;
        self.endpoint.owner_mut().peers.connected(own, remote);
        Ok(remote)
    }

    /// Receives the oldest message whose bits agree with `bits` where `mask` has ones.
    #[inline]
    pub(crate) fn irecv(
        &mut self,
        memory: UserMemory,
        bits: u64,
        mask: u64,
        context: usize,
    ) -> Result<RequestHandle, Error> {
        check_mask(bits, mask)?;
        if let Some(ids) = self.options().context_ids
            && mask & ids.field() != ids.field()
        {
            return Err(Error::new(
                Code::BadMatchingForContextIdMask,
                format!(
                    "the mask {mask:#x} does not cover the context id {:#x}",
                    ids.field()
                ),
            ));
        }
        let word = OpData {
            status: posted(Address::NONE, bits, 0, context),
            whose: CompletionTarget::Program,
            ..OpData::default()
        };
        let (bits, mask) = (MatchBits(bits), MatchMask(mask));
        if let Err(refused) = self.check_room()
            && self.endpoint.probe(bits, mask).is_none()
        {
            return Err(refused);
        }
        let op = match self.endpoint.recv(bits, mask, memory, word) {
            Ok(ReceivePosted::Pending(op)) => Some(op),
            Ok(ReceivePosted::Complete(outcome)) => {
                let op = self.endpoint.split().1.add_done(word);
                op.inspect(|op| self.on_ended(*op, outcome))
            }
            Err(PostError::TooMany) => None,
            // The mask has been checked, and a receive has no length.
            Err(_) => self.over(word, StatusCode::Aborted, 0),
        };
        self.flush();
        self.posted(op)
    }

    /// Connects to an endpoint. A hidden connect is reported only to the call that waits for it.
    pub(crate) fn iconnect(
        &mut self,
        (nic, endpoint): (NicId, u32),
        key: u32,
        bits: u64,
        context: usize,
        hidden: bool,
    ) -> Result<RequestHandle, Error> {
        if nic > NicId::MAX {
            let what = format!("{:#x} is no NIC id: it has more than 48 bits", nic.0);
            return Err(Error::new(Code::NicNotFound, what));
        }
        let word = OpData {
            status: posted(Address::NONE, bits, 0, context),
            whose: if hidden {
                CompletionTarget::Hidden
            } else {
                CompletionTarget::Program
            },
            ..OpData::default()
        };
        self.check_room()?;
        let (endpoint, bits) = (EndpointId(endpoint), MatchBits(bits));
        let connect = match self.session_named(nic, endpoint) {
            Some(remote) => self.endpoint.connect_over(remote, key, bits, word),
            None => {
                let target = Target::auto(nic, endpoint);
                self.endpoint.connect(target, key, bits, word)
            }
        };
        let op = match connect {
            Ok(op) => Some(op),
            Err(ConnectError::UnknownNic) => {
                let what = format!("unknown NIC id {:#x}", nic.0);
                return Err(Error::new(Code::NicNotFound, what));
            }
            Err(error) => {
                log::debug!("connect to {:#x} endpoint {}: {error}", nic.0, endpoint.0);
                self.over(word, refusal(error).into(), 0)
            }
        };
        self.flush();
        self.posted(op)
    }

    /// Returns a connected session with the endpoint of that name: of the peer that has the name, or one without a
    /// peer.
    fn session_named(&self, nic: NicId, endpoint: EndpointId) -> Option<RemoteId> {
        let session_of = |peer: Option<PeerKey>| {
            let mut named = self.endpoint.remotes_of(nic, endpoint);
            named.find(|remote| {
                let who = self.endpoint.remote_identity(*remote);
                let has_met = who.is_some_and(|who| who.session != SessionId(0));
                has_met && self.peers().of_remote(*remote) == peer
            })
        };
        match self.peers().named(nic, endpoint) {
            Some(Peers::OWN) => session_of(Some(Peers::OWN)),
            Some(key) => session_of(Some(key)).or_else(|| session_of(None)),
            None => session_of(None),
        }
    }

    /// Cancels a receive or a connect. Returns false if it is matched or answered already, and has to be tested. Sends
    /// cannot be cancelled.
    pub(crate) fn cancel(&mut self, handle: RequestHandle) -> Result<bool, Error> {
        let (op, word) = self.find(handle)?;
        if word.kind != RequestKind::Other {
            return Err(Error::new(
                Code::CancelNotSupported,
                "sends cannot be cancelled",
            ));
        }
        let match_info = word.status.match_info;
        Ok(self.call_off(op, match_info))
    }

    fn call_off(&mut self, op: RequestId, match_info: u64) -> bool {
        let gone = self.endpoint.cancel_unmatched(op);
        if gone {
            self.tell_waiters(match_info);
        }
        self.flush();
        gone
    }

    /// Gives up the result of a request: frees it if it has completed, or else lets the operation continue without
    /// reporting its completion.
    pub(crate) fn forget(&mut self, handle: RequestHandle) -> Result<(), Error> {
        let (op, word) = self.find(handle)?;
        let match_info = word.status.match_info;
        self.give_up(op);
        self.tell_waiters(match_info);
        Ok(())
    }

    /// Wakes other threads that wait for a request removed without a completion.
    fn tell_waiters(&mut self, match_info: u64) {
        let program = self.endpoint.owner_mut();
        program.produced |= program.class(match_info);
    }

    /// Gives up a hidden request. Returns its status if it has ended meanwhile.
    pub(crate) fn abandon(&mut self, handle: RequestHandle) -> Option<Status> {
        let (op, word) = self.find(handle).ok()?;
        let match_info = word.status.match_info;
        if self.call_off(op, match_info) {
            None
        } else {
            self.give_up(op)
        }
    }

    /// Gives up a request whose result is no longer wanted. Returns its status if it has ended.
    fn give_up(&mut self, op: RequestId) -> Option<Status> {
        let ended = self.endpoint.ops().is_done(op);
        self.take(op).filter(|_| ended)
    }

    /// Rejects a request for which there is no memory. The caller admits a receive of a message that is already here:
    /// it frees memory.
    #[inline]
    fn check_room(&mut self) -> Result<(), Error> {
        let waiting = self.endpoint.ops().in_use();
        if self.room.admits(waiting) {
            Ok(())
        } else {
            Err(no_memory(waiting))
        }
    }
}

#[cold]
fn no_memory(waiting: usize) -> Error {
    let what = format!("no memory for a request beside {waiting} others");
    Error::new(Code::NoResources, what)
}

#[cold]
fn too_long(len: usize) -> Error {
    let what = format!("a message of {len} bytes exceeds 4294967295");
    Error::new(Code::BadSegList, what)
}

/// Returns the status of a connect that could not be started.
fn refusal(error: ConnectError) -> mx_proto::Status {
    use mx_proto::Status;
    match error {
        ConnectError::UnknownNic | ConnectError::NoRoute => Status::Unreachable,
        ConnectError::BadEndpoint => Status::BadEndpoint,
        ConnectError::Refused => Status::EndpointClosed,
        ConnectError::NoResources => Status::NoResources,
    }
}
