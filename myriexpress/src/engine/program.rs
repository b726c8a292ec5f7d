//! The owner of the engine's protocol endpoint: the program's requests, and its peers.
//!
//! ```text
//!   posted --> record of the endpoint + OpData --completed--> done: oldest first --test, test_any--> freed
//!                                               |  |-- hidden (mx_connect): in no order
//!                                               |  `-- forgotten: freed
//!                                               `----- deferred: a connect, or the remote is no peer yet
//! ```
//!
//! A request's handle is its record's id, so it becomes stale with the record. [`Engine`](super::Engine) does deferred
//! work before a call returns.
//!
//! Owns: requests, their order, peers.
//! Out of scope: the endpoint, threads.

use super::peers::Peers;
use super::{HANDLER, Options, UNEXPECTED};
use crate::handles::{Address, PeerKey, REQUESTS_MAX};
use crate::status::{Status, StatusCode};
use mx_proto::ops::{ChunkedStorage, Ops};
use mx_proto::{
    Arrival, Down, EntryId, Event, Events, Identity, MatchBits, MatchIndex, OpKind, Outcome, Owner,
    RemoteId, RequestId, Source, Verdict,
};
use mx_sys::{Interest, MallocBuffer, UserMemory};

/// The engine's part of each operation of the protocol endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpData {
    /// Result; before the end, its known fields.
    pub(super) status: Status,
    pub(super) kind: RequestKind,
    pub(super) whose: CompletionTarget,
    /// Entry in the list of completed requests; `None` before the end, and for hidden requests.
    pub(super) entry: Option<EntryId>,
}

/// Kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum RequestKind {
    /// A receive or a connect.
    #[default]
    Other,
    /// A send.
    Send,
    /// A send short enough to complete without its receiver.
    Small,
}

/// Receiver of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum CompletionTarget {
    /// No receiver, or none any more.
    #[default]
    None,
    /// The program, by handle or by match bits.
    Program,
    /// A call of this library that waits for it.
    Hidden,
}

/// A task that the engine does after the protocol endpoint's call in which it arose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DeferredTask {
    /// A request has ended whose remote may not be a peer yet.
    Ended(RequestId, Outcome),
    /// A message has arrived from a remote without a peer, with this name and life.
    HeardOf(RemoteId, Identity),
}

/// The owner of the protocol endpoint.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) options: Options,
    pub(super) peers: Peers,
    /// Completed requests that wait to be tested, oldest first.
    pub(super) done: MatchIndex<RequestId>,
    /// Events since the last [`Engine::take_produced`](super::Engine::take_produced).
    pub(super) produced: Interest,
    /// Whether a handler is registered, so that messages without a receive are deferred.
    pub(super) deferring: bool,
}

impl OpData {
    /// Returns whether the program, or a call for it, has a handle.
    #[inline]
    pub(super) fn has_handle(&self) -> bool {
        matches!(
            self.whose,
            CompletionTarget::Program | CompletionTarget::Hidden
        )
    }
}

impl Program {
    /// Makes the owner of the endpoint with this identity.
    pub(crate) fn new(own: Identity, options: Options) -> Self {
        Self {
            options,
            peers: Peers::new(own),
            done: MatchIndex::default(),
            produced: 0,
            deferring: false,
        }
    }

    /// Returns the interest bit of completions with these match bits.
    #[inline]
    pub(super) fn class(&self, match_info: u64) -> Interest {
        match self.options.context_ids {
            None => 1,
            Some(ids) => ids.interest(match_info),
        }
    }

    /// Returns the program's address of a peer.
    #[inline]
    pub(super) fn address(&self, key: PeerKey) -> Address {
        Address::new(self.options.handle, key)
    }

    /// Reports a completed request.
    #[inline]
    pub(super) fn finish(
        &mut self,
        ops: &mut Ops<Self>,
        op: RequestId,
        code: StatusCode,
        transferred: u32,
    ) {
        let Some(word) = ops.data_mut(op) else {
            debug_assert!(false, "{op:?} is no request");
            return;
        };
        word.status.code = code as u32;
        word.status.xfer_length = transferred;
        let match_info = word.status.match_info;
        match word.whose {
            CompletionTarget::Program => {
                word.entry = Some(self.done.add(MatchBits(match_info), op))
            }
            CompletionTarget::Hidden => {}
            CompletionTarget::None => {
                ops.free(op);
                return;
            }
        }
        self.produced |= self.class(match_info);
    }

    /// Returns the result of a request and frees it; its handle becomes stale.
    #[inline]
    pub(super) fn hand_out(&mut self, ops: &mut Ops<Self>, op: RequestId) -> Option<Status> {
        let word = ops.data_mut(op)?;
        let status = word.status;
        word.whose = CompletionTarget::None;
        if let Some(entry) = word.entry.take() {
            self.done.remove(entry);
        }
        ops.free(op);
        Some(status)
    }

    /// Completes a request. `from`: the peer, if known only now.
    #[inline]
    pub(super) fn end(
        &mut self,
        ops: &mut Ops<Self>,
        op: RequestId,
        how: Outcome,
        from: Option<PeerKey>,
    ) {
        let Some(word) = ops.data_mut(op) else {
            return;
        };
        let mut code = StatusCode::from(how.status);
        let mut transferred = how.transferred;
        match how.kind {
            // The receiver took only part of a message. The sender of a small one is not told, even if the message was
            // offered for lack of credits.
            OpKind::Send if code == StatusCode::Truncated && word.kind == RequestKind::Small => {
                code = StatusCode::Success;
                transferred = word.status.msg_length;
            }
            OpKind::Recv => {
                word.status.match_info = how.bits.0;
                word.status.msg_length = how.length;
            }
            OpKind::Send | OpKind::Connect => {}
        }
        if let Some(from) = from {
            word.status.source = self.address(from);
        }
        self.finish(ops, op, code, transferred);
    }

    /// Handles the loss of a session.
    pub(super) fn lost(&mut self, down: &Down) {
        self.peers.lost(down.remote);
        let known = self.peers.of_remote(down.remote);
        if let (Some(key), Some(tombstone)) = (known, down.tombstone) {
            self.peers.assign_remote(tombstone, key);
        }
    }
}

impl Owner for Program {
    type Memory = UserMemory;
    type OpData = OpData;
    type OwnerEvent = DeferredTask;
    type OpStorage = ChunkedStorage<UserMemory, OpData, { REQUESTS_MAX as u32 }>;

    fn joins(_: &[u8]) -> bool {
        true
    }

    #[inline]
    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    ) {
        let from = match (how.kind, how.status) {
            (OpKind::Recv, _) => self.peers.of_remote(how.remote),
            // A connect may change which session carries the sends, and so is handled in order with losses.
            (OpKind::Connect, mx_proto::Status::Success) => None,
            _ => return self.end(ops, op, how, None),
        };
        match from {
            Some(_) => self.end(ops, op, how, from),
            None => events.push_back(Event::Owner(DeferredTask::Ended(op, how))),
        }
    }

    #[inline]
    fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Self>,
        arrival: &Arrival,
        _: Option<&B>,
    ) -> Verdict {
        if self.peers.of_remote(arrival.source).is_none() {
            let note = DeferredTask::HeardOf(arrival.source, arrival.identity);
            events.push_back(Event::Owner(note));
        }
        if self.deferring {
            self.produced |= HANDLER;
            return Verdict::Defer;
        }
        self.produced |= UNEXPECTED;
        Verdict::Continue
    }

    fn memory(&mut self, len: usize) -> Option<UserMemory> {
        MallocBuffer::new(len).map(UserMemory::owned)
    }
}
