//! The endpoint of a Mercury class: operations, peers and regions.
//!
//! ```text
//!   table --post--> Engine --send, recv, get, put--> Endpoint --completed--> Host: done
//!                     |  <------------- flush: done, events -------------------'
//!                     `--na_cb_completion_add--> Mercury's queue      and the sleeping context is woken
//! ```
//!
//! Match bits: the kind of message in the highest four bits, the number of the receiver's context in bits 32 to 39, the
//! tag in the lower 32.
//!
//! Completions are added to Mercury's queue under the engine's lock, so that a thread that finds none there is woken
//! for the next one. The call into libna only appends to a queue.
//!
//! Owns: the endpoint, the sessions of peers.
//! Out of scope: C's pointers, except those of pending operations, contexts and buffers; threads.

use crate::abi::{
    NA_ACCESS, NA_CANCELED, NA_FAULT, NA_HOSTUNREACH, NA_MSGSIZE, NA_NOMEM, NA_OPNOTSUPPORTED,
    NA_OVERFLOW, NA_PERMISSION, NA_PROTOCOL_ERROR, NA_SUCCESS, na_cb_completion_data,
    na_cb_details, na_cb_type, na_context, na_return,
};
use crate::address::Peer;
use crate::context::Context;
use crate::libna::Libna;
use crate::operation::{NO_DETAILS, Operation, Rest, Room};
use foldhash::fast::RandomState;
use mx_proto::flow::Lane;
use mx_proto::ops::{ChunkedStorage, Ops};
use mx_proto::port::ConnectError;
use mx_proto::{
    Arrival, Config, Endpoint, EndpointId, Event, Events, GreetingRole, Identity, MatchBits,
    MatchMask, Memory, OpKind, Outcome, Owner, PostError, ReceivePosted, RegionKey, RemoteId,
    RequestId, Rights, Route, SendMode, SendPosted, Source, Status, Target, Verdict,
};
use mx_sys::slot::{self, Slot};
use mx_sys::{HostPorts, Interest, MonotonicClock, UserMemory};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Key with which endpoints of this plugin connect, so that other protocols are rejected.
pub(crate) const KEY: u32 = 0x6d78_6e61;

/// Interest bit: a completion was added to a queue.
pub(crate) const COMPLETIONS: Interest = 1;

/// Word of a connect; the words of other operations are pointers.
const CONNECT: u64 = 1;

const UNEXPECTED: u64 = 1 << 60;
const EXPECTED: u64 = 2 << 60;
const CONTEXT_AT: u32 = 32;

/// Maximum number of cancelled receives whose messages are dropped on arrival. Messages beyond it are kept.
const ABANDONED_MAX: usize = 4096;

/// Bytes of a get or put under way at a time: less than the core takes, and enough that the pause behind them is nothing.
const PIECE: usize = 1 << 30;

/// The class's endpoint.
pub(crate) type HostEndpoint = Endpoint<HostPorts, MonotonicClock, Host>;

/// The engine behind its lock.
pub(crate) type NaSlot = Slot<Engine>;

/// The endpoint of a class with its operations, peers and regions; see the module.
pub(crate) struct Engine {
    endpoint: HostEndpoint,
    libna: &'static Libna,
    produced: Interest,
    /// Contexts, whose threads may sleep.
    contexts: Vec<*mut Context>,
    /// Peers by target looked up.
    known: HashMap<Target, Weak<Peer>, RandomState>,
    unexpected_max: usize,
}

// SAFETY: pointers of contexts and operations are used only with the engine's lock, and stay valid until the program
// has destroyed the context, or the operation has completed.
unsafe impl Send for Engine {}

/// The owner of the endpoint.
pub(crate) struct Host {
    done: VecDeque<Done>,
    /// Peers with a session.
    peers: HashMap<RemoteId, Arc<Peer>, RandomState>,
    /// Messages to drop on arrival: the remote and the match bits of each.
    abandoned: HashSet<(RemoteId, u64), RandomState>,
    own: EndpointId,
    route: Route,
}

/// A completed operation.
struct Done {
    word: u64,
    how: Outcome,
    /// Sender of an unexpected message; `None` for other operations.
    from: Option<Arc<Peer>>,
}

/// Kinds of messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message for which the receiver has named no sender.
    Unexpected,
    /// A message that the receiver expects from its sender.
    Expected,
}

impl Kind {
    /// Returns the match bits of a message for a context.
    pub(crate) fn bits(self, context: u8, tag: u32) -> u64 {
        let kind = match self {
            Self::Unexpected => UNEXPECTED,
            Self::Expected => EXPECTED,
        };
        kind | u64::from(context) << CONTEXT_AT | u64::from(tag)
    }
}

impl Host {
    /// Makes the owner of an endpoint with that number, whose peers are connected to over `route`.
    pub(crate) fn new(own: EndpointId, route: Route) -> Self {
        Self {
            done: VecDeque::new(),
            peers: HashMap::default(),
            abandoned: HashSet::default(),
            own,
            route,
        }
    }
}

impl Owner for Host {
    type Memory = UserMemory;
    type OpData = u64;
    type OwnerEvent = ();
    type OpStorage = ChunkedStorage<UserMemory, u64>;

    #[inline]
    fn lane(bits: MatchBits) -> Lane {
        match bits.0 & UNEXPECTED {
            0 => Lane::Matched,
            _ => Lane::Unexpected,
        }
    }

    fn greeted(
        &mut self,
        _ops: &Ops<Self>,
        from: GreetingRole,
        who: &Identity,
        remote: RemoteId,
        _greeting: &[u8],
    ) -> Result<u64, Status> {
        if let GreetingRole::Caller(_) = from {
            let peer = Peer::new((who.nic, who.endpoint), self.route, self.own);
            peer.set_remote(Some(remote));
            self.peers.insert(remote, Arc::new(peer));
        }
        Ok(0)
    }

    #[inline]
    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        _events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    ) {
        let word = ops.data(op).copied().unwrap_or_default();
        ops.free(op);
        self.end(word, how);
    }

    fn arrived<B: Source + ?Sized>(
        &mut self,
        _events: &mut Events<Self>,
        arrival: &Arrival,
        _body: Option<&B>,
    ) -> Verdict {
        if !self.abandoned.is_empty() && self.abandoned.remove(&(arrival.source, arrival.bits.0)) {
            return Verdict::Finished;
        }
        Verdict::Continue
    }
}

impl Host {
    fn end(&mut self, word: u64, how: Outcome) {
        let unexpected = how.kind == OpKind::Recv && how.bits.0 & UNEXPECTED != 0;
        let from = unexpected.then(|| self.peers.get(&how.remote).cloned());
        let from = from.flatten();
        self.done.push_back(Done { word, how, from });
    }

    /// Removes the session with a lost peer.
    fn lost(&mut self, remote: RemoteId) {
        if let Some(peer) = self.peers.remove(&remote)
            && peer.remote() == Some(remote)
        {
            peer.set_remote(None);
        }
    }
}

impl slot::Engine for Engine {
    const LIBRARY: &'static str = "na_plugin_mx";
    type Owner = Host;
    type PersistentState = ();

    #[inline]
    fn endpoint(&self) -> &HostEndpoint {
        &self.endpoint
    }

    #[inline]
    fn endpoint_mut(&mut self) -> &mut HostEndpoint {
        &mut self.endpoint
    }

    #[inline]
    fn progress(&mut self, (): &mut ()) -> bool {
        let busy = self.endpoint.progress();
        self.flush();
        busy
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        std::mem::take(&mut self.produced)
    }

    fn on_taken(&mut self, (): &mut ()) {}

    fn forget_threads(_slot: &mut NaSlot) {}

    fn inherit(&mut self) {
        self.endpoint.inherit();
        self.flush();
    }

    fn reopen(
        &mut self,
        _board: Option<u32>,
        config: Config,
        identity: Identity,
        ports: HostPorts,
    ) -> HostPorts {
        self.endpoint.reopen(config, identity, ports)
    }

    fn leave_port(self) {
        self.endpoint.leave_port();
    }
}

/// Start and end, peers.
impl Engine {
    /// Makes an engine over an endpoint. `unexpected_max`: maximum size of unexpected messages, in bytes.
    pub(crate) fn new(
        endpoint: HostEndpoint,
        libna: &'static Libna,
        unexpected_max: usize,
    ) -> Self {
        Self {
            endpoint,
            libna,
            produced: 0,
            contexts: Vec::new(),
            known: HashMap::default(),
            unexpected_max,
        }
    }

    /// Polls the endpoint while it is being closed.
    pub(crate) fn poll(&mut self) -> bool {
        let busy = self.endpoint.progress();
        self.flush();
        busy
    }

    /// Ends all operations and sessions.
    pub(crate) fn close(&mut self) {
        self.endpoint.close();
        self.flush();
    }

    /// Returns whether a link is still open.
    pub(crate) fn lingers(&self) -> bool {
        use mx_proto::port::LinkControl;
        self.endpoint.port().link_count() > 0
    }

    /// Adds a context.
    pub(crate) fn add_context(&mut self, context: *mut Context) {
        self.contexts.push(context);
    }

    /// Removes a context.
    pub(crate) fn remove_context(&mut self, context: *mut Context) {
        self.contexts.retain(|of| *of != context);
    }

    /// Returns the peer at a target, the same for all look-ups of it.
    pub(crate) fn peer_at(&mut self, target: Target) -> Arc<Peer> {
        if let Some(known) = self.known.get(&target).and_then(Weak::upgrade) {
            known.removed.store(false, Ordering::Relaxed);
            return known;
        }
        self.known.retain(|_, peer| peer.strong_count() > 0);
        let own = self.endpoint.identity().endpoint;
        let name = (target.nic, target.endpoint);
        let peer = Arc::new(Peer::new(name, target.route, own));
        self.known.insert(target, Arc::downgrade(&peer));
        peer
    }

    /// Ends the session with a peer that the program has removed, once the program returns its last reference. The
    /// other remaining reference is the session's.
    pub(crate) fn forget(&mut self, peer: &Arc<Peer>) {
        if let Some(remote) = peer.remote()
            && Arc::strong_count(peer) <= 2
        {
            self.endpoint.disconnect(remote);
            self.endpoint.owner_mut().lost(remote);
        }
    }

    /// Returns the session with a peer, beginning one if necessary.
    #[inline]
    fn remote_of(&mut self, peer: &Arc<Peer>) -> Result<RemoteId, na_return> {
        match peer.remote() {
            Some(remote) => Ok(remote),
            None => self.call(peer),
        }
    }

    #[cold]
    fn call(&mut self, peer: &Arc<Peer>) -> Result<RemoteId, na_return> {
        let target = peer.target();
        let called = self.endpoint.connect(target, KEY, MatchBits(0), CONNECT);
        let remote = called.map(|_| self.endpoint.called(target));
        match remote {
            Ok(Some(remote)) => {
                peer.set_remote(Some(remote));
                self.endpoint
                    .owner_mut()
                    .peers
                    .insert(remote, Arc::clone(peer));
                Ok(remote)
            }
            Ok(None) => Err(NA_HOSTUNREACH),
            Err(error) => {
                log::debug!("{}: {error}", peer.text());
                Err(match error {
                    ConnectError::NoResources => NA_NOMEM,
                    _ => NA_HOSTUNREACH,
                })
            }
        }
    }
}

/// Posting, cancelling and completing operations.
impl Engine {
    /// Sends a message.
    pub(crate) fn send(
        &mut self,
        op: &mut Operation,
        peer: &Arc<Peer>,
        bits: u64,
        memory: UserMemory,
    ) -> Result<(), na_return> {
        let remote = self.remote_of(peer)?;
        let what = (memory, word_of(op));
        let sent = self
            .endpoint
            .send_new(remote, MatchBits(bits), what, SendMode::Standard);
        self.posted(op, sent)
    }

    /// Posts a receive for a message from one peer.
    pub(crate) fn receive_expected(
        &mut self,
        op: &mut Operation,
        peer: &Arc<Peer>,
        bits: u64,
        memory: UserMemory,
    ) -> Result<(), na_return> {
        let remote = self.remote_of(peer)?;
        op.bits = bits;
        let abandoned = &mut self.endpoint.owner_mut().abandoned;
        if !abandoned.is_empty() {
            abandoned.remove(&(remote, bits));
        }
        let what = (memory, word_of(op));
        let mask = MatchMask::EXACT;
        let received = self.endpoint.recv_from(remote, MatchBits(bits), mask, what);
        self.received(op, received)
    }

    /// Posts a receive for an unexpected message of a context, into the operation's room.
    pub(crate) fn receive_unexpected(&mut self, op: &mut Operation) -> Result<(), na_return> {
        let Room { start, len } = op.room;
        let multi = op.kind == na_cb_type::MultiRecvUnexpected;
        let len = if multi {
            len.min(self.unexpected_max)
        } else {
            len
        };
        // SAFETY: the buffer belongs to this library until the operation has completed.
        let memory = unsafe { UserMemory::new(start.cast(), len) };
        let memory = memory.map_err(|_| NA_FAULT)?;
        let (bits, mask) = (MatchBits(op.bits), MatchMask(!u64::from(u32::MAX)));
        let received = self.endpoint.recv(bits, mask, memory, word_of(op));
        self.received(op, received)
    }

    /// Reads from a peer's region, or writes to it, as the operation's kind says.
    pub(crate) fn transfer(
        &mut self,
        op: &mut Operation,
        peer: &Arc<Peer>,
        region: (RegionKey, u64),
        memory: UserMemory,
    ) -> Result<(), na_return> {
        let remote = self.remote_of(peer)?;
        let rest = Rest {
            remote,
            region,
            memory,
        };
        self.transfer_piece(op, rest)
    }

    /// Begins the next piece of a get or put, of at most [`PIECE`] bytes. The piece behind it begins when it has ended.
    fn transfer_piece(&mut self, op: &mut Operation, what: Rest) -> Result<(), na_return> {
        let Rest {
            remote,
            region,
            mut memory,
        } = what;
        if memory.len() > PIECE {
            let (key, offset) = region;
            let offset = offset.checked_add(PIECE as u64).ok_or(NA_OVERFLOW)?;
            let left = memory.part(PIECE, memory.len() - PIECE);
            op.rest = Some(Box::new(Rest {
                remote,
                region: (key, offset),
                memory: left.ok_or(NA_NOMEM)?,
            }));
            memory = memory.part(0, PIECE).ok_or(NA_NOMEM)?;
        }
        let what = (memory, word_of(op));
        let posted = match op.kind {
            na_cb_type::Put => self.endpoint.put(remote, region, what),
            _ => self.endpoint.get(remote, region, what),
        };
        self.posted(op, posted)
    }

    /// Cancels an operation: unless it has completed, it completes with [`Self::settle`].
    pub(crate) fn cancel(&mut self, op: &mut Operation) {
        if let Some(request) = op.request {
            op.cancelled = true;
            self.endpoint.end(request, Status::Cancelled);
        }
    }

    /// Cancels an operation that is being destroyed, without adding a completion.
    pub(crate) fn abandon(&mut self, op: &mut Operation) {
        if op.request.is_some() {
            op.context = ptr::null_mut();
            self.cancel(op);
        }
    }

    /// Registers memory for access by peers.
    pub(crate) fn register(&mut self, memory: UserMemory, rights: Rights) -> RegionKey {
        self.endpoint.register(memory, rights)
    }

    /// Deregisters a region. Returns whether it was registered.
    pub(crate) fn deregister(&mut self, key: RegionKey) -> bool {
        self.endpoint.deregister(key)
    }

    #[inline]
    fn posted(
        &mut self,
        op: &mut Operation,
        posted: Result<SendPosted, PostError>,
    ) -> Result<(), na_return> {
        match posted {
            Ok(SendPosted::Complete) => self.end(op, NA_SUCCESS, NO_DETAILS),
            Ok(SendPosted::Pending(request)) => op.request = Some(request),
            Err(error) => return Err(refused(error)),
        }
        Ok(())
    }

    #[inline]
    fn received(
        &mut self,
        op: &mut Operation,
        received: Result<ReceivePosted, PostError>,
    ) -> Result<(), na_return> {
        match received {
            Ok(ReceivePosted::Pending(request)) => op.request = Some(request),
            Ok(ReceivePosted::Complete(outcome)) => {
                let word = word_of(op);
                self.endpoint.owner_mut().end(word, outcome);
            }
            Err(error) => return Err(refused(error)),
        }
        Ok(())
    }

    /// Does the work deferred by calls of the endpoint: completes operations, removes lost peers.
    #[inline]
    fn flush(&mut self) {
        loop {
            while let Some(done) = self.endpoint.owner_mut().done.pop_front() {
                self.finish(done);
            }
            match self.endpoint.next_event() {
                Some(Event::Down(down)) => self.endpoint.owner_mut().lost(down.remote),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn finish(&mut self, done: Done) {
        let Done { word, how, from } = done;
        if word == CONNECT {
            if how.status != Status::Success {
                self.endpoint.owner_mut().lost(how.remote);
            }
            return;
        }
        // SAFETY: the word of a pending operation: the program keeps it until it has completed.
        let op = unsafe { &mut *operation_of(word) };
        op.request = None;
        let ret = code_of(&how);
        match op.kind {
            na_cb_type::RecvUnexpected | na_cb_type::MultiRecvUnexpected => {
                self.finish_unexpected(op, &how, from, ret);
            }
            na_cb_type::RecvExpected => {
                if how.status == Status::Cancelled && !how.matched {
                    let abandoned = &mut self.endpoint.owner_mut().abandoned;
                    if abandoned.len() < ABANDONED_MAX {
                        abandoned.insert((how.remote, op.bits));
                    }
                }
                let actual_buf_size = how.transferred as usize;
                self.end(
                    op,
                    ret,
                    na_cb_details {
                        actual_buf_size,
                        ..NO_DETAILS
                    },
                );
            }
            _ => {
                let next = op.rest.take().map(|rest| match ret {
                    _ if op.cancelled => Err(NA_CANCELED),
                    NA_SUCCESS => self.transfer_piece(op, *rest),
                    code => Err(code),
                });
                match next {
                    Some(Ok(())) => {}
                    Some(Err(code)) => self.end(op, code, NO_DETAILS),
                    None => self.end(op, ret, NO_DETAILS),
                }
            }
        }
    }

    /// Completes a receive for unexpected messages. If the message is lost with its sender, posts the receive again
    /// instead of reporting that to the program.
    fn finish_unexpected(
        &mut self,
        op: &mut Operation,
        how: &Outcome,
        from: Option<Arc<Peer>>,
        ret: na_return,
    ) {
        if op.cancelled || how.status == Status::EndpointClosed {
            return self.end(op, NA_CANCELED, NO_DETAILS);
        }
        let (NA_SUCCESS, Some(from)) = (ret, from) else {
            log::warn!(
                "an unexpected message of {} bytes is lost: {:?}",
                how.length,
                how.status
            );
            if let Err(code) = self.receive_unexpected(op) {
                self.end(op, code, NO_DETAILS);
            }
            return;
        };
        let len = how.transferred as usize;
        let mut details = na_cb_details {
            actual_buf_size: len,
            source: Arc::into_raw(from).cast_mut().cast(),
            // The lower half of the match bits.
            tag: how.bits.0 as u32,
            actual_buf: op.room.start.cast(),
            last: true,
        };
        if op.kind == na_cb_type::RecvUnexpected {
            return self.end(op, ret, details);
        }
        let used = len.next_multiple_of(ALIGNMENT).min(op.room.len);
        op.room = Room {
            start: op.room.start.wrapping_add(used),
            len: op.room.len - used,
        };
        if op.room.len < self.unexpected_max {
            return self.end(op, ret, details);
        }
        details.last = false;
        let data = op.one_of_several(ret, details);
        self.add(op.context, data);
        if let Err(code) = self.receive_unexpected(op) {
            self.end(op, code, NO_DETAILS);
        }
    }

    /// Reports the end of an operation to Mercury.
    fn end(&mut self, op: &mut Operation, ret: na_return, details: na_cb_details) {
        let context = op.context;
        let data = op.end(ret, details);
        if !context.is_null() {
            self.add(context, data);
        }
    }

    #[inline]
    fn add(&mut self, context: *mut na_context, data: *mut na_cb_completion_data) {
        // SAFETY: the context in which the operation was posted, and data that stays until Mercury takes it.
        unsafe { (self.libna.completion_add)(context, data) };
        // SAFETY: the program keeps the context while it has pending operations.
        let own = unsafe { (*context).plugin_context.cast::<Context>() };
        // SAFETY: as above; the engine is locked.
        if let Some(own) = unsafe { own.as_mut() } {
            own.on_completion();
        }
        self.produced |= COMPLETIONS;
    }

    /// Returns whether a context's thread may sleep now; the endpoint and other threads will wake it.
    pub(crate) fn falls_asleep(&mut self, context: &mut Context) -> bool {
        if context.take_completions() || !self.endpoint.arm() {
            return false;
        }
        context.fall_asleep(self.endpoint.deadline());
        true
    }

    /// Does the work deferred by posts, after each: completes operations, and wakes sleeping threads if the endpoint
    /// has work to do.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.flush();
        // SAFETY: contexts leave the list before they are destroyed; the engine is locked.
        let sleeps = |context: &*mut Context| unsafe { (**context).sleeps() };
        if self.contexts.iter().any(sleeps) && !self.endpoint.arm() {
            for context in &self.contexts {
                // SAFETY: as above.
                unsafe { (**context).wake() };
            }
        }
    }
}

/// Alignment in bytes of the messages of a multi-receive.
const ALIGNMENT: usize = 8;

fn word_of(op: &mut Operation) -> u64 {
    ptr::from_mut(op).expose_provenance() as u64
}

fn operation_of(word: u64) -> *mut Operation {
    ptr::with_exposed_provenance_mut(word as usize)
}

/// Returns the code of a rejected post.
#[cold]
fn refused(error: PostError) -> na_return {
    match error {
        PostError::UnknownRemote => NA_HOSTUNREACH,
        PostError::TooLarge(_) => NA_MSGSIZE,
        PostError::TooMany => NA_NOMEM,
        PostError::NoRegions => NA_OPNOTSUPPORTED,
        PostError::BadMask => NA_PROTOCOL_ERROR,
    }
}

/// Returns the code of a completed operation.
fn code_of(how: &Outcome) -> na_return {
    if how.lost.is_some() {
        return NA_HOSTUNREACH;
    }
    match how.status {
        Status::Success => NA_SUCCESS,
        Status::Truncated => NA_MSGSIZE,
        Status::Cancelled | Status::Aborted => NA_CANCELED,
        Status::Timeout
        | Status::EndpointUnknown
        | Status::EndpointClosed
        | Status::Unreachable
        | Status::BadSession => NA_HOSTUNREACH,
        Status::BadKey | Status::BadEndpoint => NA_PROTOCOL_ERROR,
        Status::NoResources => NA_NOMEM,
        Status::BadSecret | Status::Refused => NA_ACCESS,
        Status::NoRegion => NA_FAULT,
        Status::OutOfRange => NA_OVERFLOW,
        Status::NotAllowed => NA_PERMISSION,
        Status::Unsupported => NA_OPNOTSUPPORTED,
    }
}
