//! The owner of the method's endpoint.
//!
//! ```text
//!   endpoint --completed--> the host's?  yes: code and length are stored,     --> context's list --> test*
//!                                             the operation leaves its peer's list
//!                                        no:  added to the endpoint's events
//! ```
//!
//! Owns: the peers and unmatched messages; completed operations, each in the list of its context.
//! Out of scope: handshakes, events.

use super::completions::{Completions, Done};
use super::{PostKind, Settings};
use crate::abi::constants::{self as bmi, BMI_MAX_CONTEXTS};
use crate::arrivals::{ArrivalPolicy, HandshakeMessage};
use crate::error::code_of;
use crate::match_layout::{MessageType, VERSION};
use crate::op::blocks::Blocks;
use crate::op::data::{OpData, Role};
use crate::peer::handshake::Greeting;
use crate::peer::state::{Cause, Ready, State};
use crate::peer::table::{PeerKey, Peers};
use mx_proto::flow::Lane;
use mx_proto::ops::Ops;
use mx_proto::{
    Arrival, Event, Events, GreetingRole, Identity, MatchBits, Outcome, Owner, RemoteId, RequestId,
    Source, Status, Target, Verdict,
};
use mx_sys::{MallocBuffer, UserMemory};

/// Number of contexts.
pub const CONTEXTS: usize = BMI_MAX_CONTEXTS as usize;

/// Task that arises inside a call of the endpoint, and that the method does after that call.
#[derive(Debug)]
pub enum DeferredTask {
    /// An internal operation has completed.
    End {
        /// Operation, whose id is stale.
        op: RequestId,
        /// Purpose of the operation.
        role: Role,
        /// Peer of the operation.
        peer: PeerKey,
        /// Result of the operation.
        how: Outcome,
    },
    /// A handshake message has arrived.
    Handshake(HandshakeMessage),
    /// Another message has arrived from a peer some of whose receives were cancelled: if its messages use up most of
    /// its quota here, those for cancelled receives are dropped.
    OverQuota(PeerKey),
}

/// Owner of the method's endpoint: the state that the endpoint calls back into (peers, arrivals, completions).
#[derive(Debug)]
pub struct Host {
    /// Name by which this process introduces itself to peers.
    pub(super) name: String,
    pub(crate) arrivals: ArrivalPolicy,
    pub(crate) peers: Peers,
    /// Completed operations that have not been tested, by context.
    done: [Completions; CONTEXTS],
    /// Contexts with completions since the last [`Self::take_produced`], one bit each.
    produced: u64,
    /// Whether all messages are dropped, as after [`close`](super::Method::close).
    pub(super) discarding: bool,
}

impl Host {
    /// Makes an owner without peers and operations.
    pub fn new(settings: &Settings) -> Self {
        Self {
            name: String::new(),
            arrivals: ArrivalPolicy::new(settings.unexpected_max, settings.class_max),
            peers: Peers::new(settings.peer_limit),
            done: Default::default(),
            produced: 0,
            discarding: false,
        }
    }

    /// Returns the operation with this id; `None` if it was reported.
    #[inline]
    pub(crate) fn find(ops: &Ops<Self>, id: i64, context: i64) -> Option<RequestId> {
        let op = ops.at(ops.places().find(id)?)?;
        let word = ops.data(op)?;
        (i64::from(word.context) == context).then_some(op)
    }

    /// Removes and returns the first completion of a context.
    #[inline]
    pub(super) fn pop(&mut self, ops: &mut Ops<Self>, context: usize) -> Option<Done> {
        self.done[context % CONTEXTS].pop(ops)
    }

    /// Removes and returns the completion of an operation, if it has completed.
    #[inline]
    pub(super) fn take(&mut self, ops: &mut Ops<Self>, op: RequestId) -> Option<Done> {
        if !ops.is_done(op) {
            return None;
        }
        let context = usize::from(ops.data(op)?.context) % CONTEXTS;
        Some(self.done[context].take(ops, op))
    }

    /// Returns whether failed receives may be waiting in a context.
    #[inline(always)]
    pub(crate) fn has_failed_receives(&self, context: i64) -> bool {
        self.done[context as usize % CONTEXTS].has_failed_receives()
    }

    /// Returns the code of a receive for a message with that tag from that peer, if it has failed with its peer and the
    /// host has not got it.
    #[inline(always)]
    pub(crate) fn failed_receive(
        &self,
        ops: &Ops<Self>,
        peer: PeerKey,
        tag: u32,
        context: i64,
    ) -> Option<i32> {
        if !self.has_failed_receives(context) {
            return None;
        }
        let done = &self.done[context as usize % CONTEXTS];
        // A cancelled or truncated receive says nothing about a send.
        let alone = [-bmi::BMI_ECANCEL, -bmi::BMI_EMSGSIZE];
        done.failed_receive(ops, |word| {
            (word.peer, word.tag) == (peer, tag) && !alone.contains(&word.error)
        })
    }

    /// Returns the number of completions that wait in a context.
    pub(super) fn done_waiting(&self, context: usize) -> usize {
        self.done[context % CONTEXTS].len()
    }

    /// Returns the contexts with completions since the last call, one bit each.
    #[inline]
    pub(super) fn take_produced(&mut self) -> u64 {
        std::mem::take(&mut self.produced)
    }

    /// Accepts a peer that has connected, with its greeting.
    fn called(&mut self, who: &Identity, remote: RemoteId, greeting: &[u8]) -> Result<u64, Status> {
        let Some(Greeting { version, id, name }) = Greeting::parse(greeting) else {
            log::warn!("{who:?} sent an invalid greeting: rejected");
            return Err(Status::BadEndpoint);
        };
        if version != VERSION || id == 0 {
            log::warn!(
                "{who:?} (id {id}) uses version {version:#x}, ours is {VERSION:#x}: rejected"
            );
            return Err(Status::BadEndpoint);
        }
        if self.discarding {
            // Its session ends with the method's next call.
            return Ok(0);
        }
        // Only for log messages: the transport identifies the peer, not its name.
        let target = Target::auto(who.nic, who.endpoint);
        let Some(key) = self.peers.add_caller(target, name) else {
            let limit = self.peers.limit();
            log::warn!(
                "rejected {who:?}, which calls itself {name:?}: all {limit} peer ids are in use"
            );
            return Err(Status::NoResources);
        };
        if let Some(peer) = self.peers.get_mut(key) {
            log::debug!("{name} (id {}) has called", key.id());
            peer.state
                .become_next(State::Ready(Ready { remote, tx_id: id }));
        }
        Ok(key.to_word())
    }

    /// Records the greeting in a peer's answer.
    fn answered(
        &mut self,
        key: PeerKey,
        connect: RequestId,
        greeting: &[u8],
    ) -> Result<u64, Status> {
        if greeting.is_empty() {
            // A C method. Its handshake follows.
            return Ok(key.to_word());
        }
        let said = Greeting::parse(greeting);
        let Some(Greeting { id, name, .. }) =
            said.filter(|said| said.version == VERSION && said.id != 0)
        else {
            log::warn!(
                "peer {} answered our call with an invalid greeting",
                key.id()
            );
            return Err(Status::BadEndpoint);
        };
        if let Some(peer) = self.peers.get_mut(key)
            && let Some(attempt) = peer.attempts_mut().and_then(|all| all.of(connect))
        {
            attempt.tx_id = Some(id);
            log::debug!("{} (id {}) calls itself {name}", peer.name, key.id());
        }
        Ok(key.to_word())
    }

    /// Records a receive that ended without its message.
    fn give_up(&mut self, key: PeerKey, tag: u32) {
        self.arrivals.cancelled.add(key.id(), tag);
    }

    /// Completes an operation of the host's that has succeeded and is not pending.
    #[inline(always)]
    fn succeeded(&mut self, ops: &mut Ops<Self>, op: RequestId, transferred: u32) {
        let context = ops.completed_data_mut(op).end(0, transferred);
        self.produced |= 1 << context;
        self.done[context].append(ops, op);
    }

    /// Completes an operation of the host's that has failed, or was pending.
    #[inline(never)]
    fn on_other_end(&mut self, ops: &mut Ops<Self>, op: RequestId, kind: PostKind, how: Outcome) {
        let Some(word) = ops.data(op) else {
            return;
        };
        let (key, tag) = (word.peer, word.tag);
        let pending = word.pending;
        let mut error = match (how.lost, how.status) {
            (Some(reason), _) => Cause::of_down(reason).code(),
            (None, Status::Timeout) => word.timeout_code(),
            (None, status) => code_of(status),
        };
        if kind == PostKind::Recv
            && !how.matched
            && matches!(how.status, Status::Timeout | Status::Cancelled)
        {
            self.give_up(key, tag);
        }
        if (pending || how.status == Status::Unreachable)
            && let Some(peer) = self.peers.get_mut(key)
        {
            peer.dequeue(ops, op);
            if let State::Disconnect { cause } = peer.state {
                error = cause.code();
            }
        }
        let Some(word) = ops.data_mut(op) else {
            return;
        };
        let context = word.end(error, how.transferred);
        let failed = word.error != 0;
        self.produced |= 1 << context;
        if failed {
            self.done[context].append_failed(ops, op, kind == PostKind::Recv);
        } else {
            self.done[context].append(ops, op);
        }
    }

    /// Frees an internal operation, and notes its end.
    #[cold]
    #[inline(never)]
    fn on_own(ops: &mut Ops<Self>, events: &mut Events<Self>, op: RequestId, how: Outcome) {
        if let Some(word) = ops.data(op)
            && word.role != Role::None
        {
            let (role, peer) = (word.role, word.peer);
            let end = DeferredTask::End {
                op,
                role,
                peer,
                how,
            };
            events.push_back(Event::Owner(end));
        }
        ops.free(op);
    }
}

impl Owner for Host {
    type Memory = UserMemory;
    type OpData = OpData;
    type OwnerEvent = DeferredTask;
    type OpStorage = Blocks;

    /// Handshakes are received at once, like requests; only messages for which a host posts receives may wait for long.
    #[inline]
    fn lane(bits: MatchBits) -> Lane {
        if bits.0 >> 60 == MessageType::Expected as u64 {
            Lane::Matched
        } else {
            Lane::Unexpected
        }
    }

    /// A C method's sessions belong to one peer, as it has one state for both.
    fn joins(greeting: &[u8]) -> bool {
        greeting.is_empty()
    }

    fn greeting(&self, ops: &Ops<Self>, to: GreetingRole) -> Vec<u8> {
        let key = match to {
            GreetingRole::Called(connect) => ops.data(connect).map(|word| word.peer),
            GreetingRole::Caller(context) => Some(PeerKey::from_word(context)),
        };
        // The greeting is empty for a C method, which sent none and is no peer yet.
        let key = key.filter(|key| self.peers.get(*key).is_some());
        key.map_or_else(Vec::new, |key| Greeting::emit(key.id(), &self.name))
    }

    fn greeted(
        &mut self,
        ops: &Ops<Self>,
        from: GreetingRole,
        who: &Identity,
        remote: RemoteId,
        greeting: &[u8],
    ) -> Result<u64, Status> {
        match from {
            GreetingRole::Called(connect) => {
                let key = ops.data(connect).map_or(PeerKey::NONE, |word| word.peer);
                self.answered(key, connect, greeting)
            }
            GreetingRole::Caller(_) if greeting.is_empty() => Ok(0),
            GreetingRole::Caller(_) => self.called(who, remote, greeting),
        }
    }

    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    ) {
        let Some(word) = ops.data_mut(op) else {
            return;
        };
        let Role::Posted(kind) = word.role else {
            return Self::on_own(ops, events, op, how);
        };
        if how.status == Status::Success && !word.pending {
            self.succeeded(ops, op, how.transferred);
        } else {
            self.on_other_end(ops, op, kind, how);
        }
    }

    /// The outcome of the host's receives is stored in their operation data alone.
    #[inline(always)]
    fn received(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        transferred: u32,
        how: impl FnOnce() -> Outcome,
    ) {
        if ops.completed_data_mut(op).is_posted() {
            self.succeeded(ops, op, transferred);
        } else {
            self.completed(ops, events, op, how());
        }
    }

    #[inline]
    fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Self>,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict {
        if self.discarding {
            Verdict::Finished
        } else {
            self.arrivals.arrived(events, arrival, body)
        }
    }

    fn memory(&mut self, len: usize) -> Option<UserMemory> {
        MallocBuffer::new(len).map(UserMemory::owned)
    }

    #[inline]
    fn ready(&mut self, _turn: u32) {
        self.arrivals.ready();
    }
}
