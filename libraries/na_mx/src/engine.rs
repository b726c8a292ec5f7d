//! The endpoint of a class of Mercury's: operations, peers and regions.
//!
//! ```text
//!   table --post--> Engine --send, recv, get, put--> Endpoint --completed--> Host: done
//!                     |  <------------- flush: done, events -------------------'
//!                     `--na_cb_completion_add--> Mercury's queue      and the context that sleeps is woken
//! ```
//!
//! Match bits: the kind of message in the highest four bits, the number of the receiver's context in bits 32 to 39, the tag in the
//! lower 32.
//!
//! Completions are added to Mercury's queue under the engine's lock, so that a thread which finds none there is woken for
//! the next one. That call into libna only appends to a queue.
//!
//! Owns: the endpoint, the sessions of peers.
//! Out of scope: pointers of C's but those of operations, contexts and buffers that are under way; threads.

use crate::abi::{
    NA_ACCESS, NA_CANCELED, NA_FAULT, NA_HOSTUNREACH, NA_MSGSIZE, NA_NOMEM, NA_OPNOTSUPPORTED,
    NA_OVERFLOW, NA_PERMISSION, NA_PROTOCOL_ERROR, NA_SUCCESS, na_cb_completion_data,
    na_cb_details, na_cb_type, na_context, na_return,
};
use crate::address::Peer;
use crate::context::Context;
use crate::libna::Libna;
use crate::operation::{NO_DETAILS, Operation, Room};
use foldhash::fast::RandomState;
use mx_proto::flow::Lane;
use mx_proto::ops::{ChunkedStorage, Ops};
use mx_proto::port::ConnectError;
use mx_proto::{
    Arrival, Config, Endpoint, EndpointId, Event, Events, GreetingRole, Identity, MatchBits,
    MatchMask, OpKind, Outcome, Owner, PostError, ReceivePosted, RegionKey, RemoteId, RequestId,
    Rights, Route, SendMode, SendPosted, Source, Status, Target, Verdict,
};
use mx_sys::slot::{self, Slot};
use mx_sys::{HostPorts, Interest, MonotonicClock, UserMemory};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The key with which endpoints of this plugin connect, so that they meet only each other.
pub(crate) const KEY: u32 = 0x6d78_6e61;

/// A completion was added to a queue.
pub(crate) const COMPLETIONS: Interest = 1;

/// The word of a connect. Those of other operations are pointers.
const CONNECT: u64 = 1;

const UNEXPECTED: u64 = 1 << 60;
const EXPECTED: u64 = 2 << 60;
const CONTEXT_AT: u32 = 32;

/// Receives that were called off without a message, whose messages are dropped when they come. Beyond it they are kept.
const ABANDONED_MAX: usize = 4096;

/// The class's endpoint.
pub(crate) type HostEndpoint = Endpoint<HostPorts, MonotonicClock, Host>;

/// The engine behind its lock.
pub(crate) type NaSlot = Slot<Engine>;

/// See the module.
pub(crate) struct Engine {
    endpoint: HostEndpoint,
    libna: &'static Libna,
    produced: Interest,
    /// Contexts, whose threads may sleep.
    contexts: Vec<*mut Context>,
    /// Peers by the target that was looked up.
    known: HashMap<Target, Weak<Peer>, RandomState>,
    unexpected_max: usize,
}

// SAFETY: pointers of contexts and operations are used only with the engine's lock, and the program keeps what they point to
// until it has destroyed the context, or the operation has completed.
unsafe impl Send for Engine {}

/// The owner of the endpoint.
pub(crate) struct Host {
    done: VecDeque<Done>,
    /// Peers with a session.
    peers: HashMap<RemoteId, Arc<Peer>, RandomState>,
    /// Messages that are not wanted any more.
    abandoned: HashSet<(RemoteId, u64), RandomState>,
    own: EndpointId,
    route: Route,
}

/// An operation that has ended.
struct Done {
    word: u64,
    how: Outcome,
    /// The sender of an unexpected message.
    from: Option<Arc<Peer>>,
}

/// The kind of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The receiver does not know the sender.
    Unexpected,
    /// The receiver waits for it.
    Expected,
}

impl Kind {
    /// Match bits of a message for a context.
    pub(crate) fn bits(self, context: u8, tag: u32) -> u64 {
        let kind = match self {
            Self::Unexpected => UNEXPECTED,
            Self::Expected => EXPECTED,
        };
        kind | u64::from(context) << CONTEXT_AT | u64::from(tag)
    }
}

impl Host {
    /// The owner of an endpoint with that number, whose peers are called over `route`.
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

    /// The session with a peer is over.
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

/// Beginning and end, peers.
impl Engine {
    /// An engine over an endpoint, for unexpected messages of at most so many bytes.
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

    /// Ends everything.
    pub(crate) fn close(&mut self) {
        self.endpoint.close();
        self.flush();
    }

    /// Whether a session has not ended.
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

    /// Returns the peer at a target, the same one for all look-ups of it.
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

    /// Ends the session with a peer that the program has removed, with the program's last reference: the one that comes back
    /// here. The other one is the session's.
    pub(crate) fn forget(&mut self, peer: &Arc<Peer>) {
        if let Some(remote) = peer.remote()
            && Arc::strong_count(peer) <= 2
        {
            self.endpoint.disconnect(remote);
            self.endpoint.owner_mut().lost(remote);
        }
    }

    /// Returns the session with a peer, which begins if there is none.
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

/// Operations.
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

    /// Posts a receive for an unexpected message of a context, into the room that the operation has.
    pub(crate) fn receive_unexpected(&mut self, op: &mut Operation) -> Result<(), na_return> {
        let Room { start, len } = op.room;
        let multi = op.kind == na_cb_type::MultiRecvUnexpected;
        let len = if multi {
            len.min(self.unexpected_max)
        } else {
            len
        };
        // SAFETY: the program leaves the buffer to this library until the operation has completed.
        let memory = unsafe { UserMemory::new(start.cast(), len) };
        let memory = memory.map_err(|_| NA_FAULT)?;
        let (bits, mask) = (MatchBits(op.bits), MatchMask(!u64::from(u32::MAX)));
        let received = self.endpoint.recv(bits, mask, memory, word_of(op));
        self.received(op, received)
    }

    /// Reads a peer's region, or writes into it: as the operation's kind says.
    pub(crate) fn transfer(
        &mut self,
        op: &mut Operation,
        peer: &Arc<Peer>,
        region: (RegionKey, u64),
        memory: UserMemory,
    ) -> Result<(), na_return> {
        let remote = self.remote_of(peer)?;
        let what = (memory, word_of(op));
        let posted = match op.kind {
            na_cb_type::Put => self.endpoint.put(remote, region, what),
            _ => self.endpoint.get(remote, region, what),
        };
        self.posted(op, posted)
    }

    /// Calls an operation off: it completes with [`Self::settle`], unless it has completed already.
    pub(crate) fn cancel(&mut self, op: &mut Operation) {
        if let Some(request) = op.request {
            op.cancelled = true;
            self.endpoint.end(request, Status::Cancelled);
        }
    }

    /// Calls an operation off that is being destroyed: no completion of it is added.
    pub(crate) fn abandon(&mut self, op: &mut Operation) {
        if op.request.is_some() {
            op.context = ptr::null_mut();
            self.cancel(op);
        }
    }

    /// Lets peers reach memory.
    pub(crate) fn register(&mut self, memory: UserMemory, rights: Rights) -> RegionKey {
        self.endpoint.register(memory, rights)
    }

    /// Ends all access to a region. Returns whether there was one.
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

    /// Does what calls of the endpoint have left: ends operations, forgets lost peers.
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
        // SAFETY: the word of an operation that is under way: the program keeps it until it has completed.
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
            _ => self.end(op, ret, NO_DETAILS),
        }
    }

    /// A receive for unexpected messages has ended. Messages that fail with their senders are no concern of the program's: the
    /// receive goes on.
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
            // The lower half.
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

    /// Tells Mercury that an operation is over.
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
        // SAFETY: the program keeps the context while operations of it are under way.
        let own = unsafe { (*context).plugin_context.cast::<Context>() };
        // SAFETY: as above; the engine is locked.
        if let Some(own) = unsafe { own.as_mut() } {
            own.on_completion();
        }
        self.produced |= COMPLETIONS;
    }

    /// Whether a context's thread may sleep now; the endpoint and other threads wake it.
    pub(crate) fn falls_asleep(&mut self, context: &mut Context) -> bool {
        if context.take_completions() || !self.endpoint.arm() {
            return false;
        }
        context.fall_asleep(self.endpoint.deadline());
        true
    }

    /// Does what posts have left, after each: ends operations, and wakes threads that sleep although there is something to do.
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

/// Messages of a multi-receive begin at multiples of this.
const ALIGNMENT: usize = 8;

fn word_of(op: &mut Operation) -> u64 {
    ptr::from_mut(op).expose_provenance() as u64
}

fn operation_of(word: u64) -> *mut Operation {
    ptr::with_exposed_provenance_mut(word as usize)
}

/// The code of a post that was refused.
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

/// The code of an operation's end.
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
