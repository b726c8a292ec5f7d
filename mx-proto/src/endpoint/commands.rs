//! The calls of the application to an endpoint.

use super::Endpoint;
use crate::event::{Down, Event, Outcome};
use crate::flow::{self, Flow, Lane, Payment};
use crate::ids::{EntryId, LinkId, MatchBits, MatchMask, RemoteId, RequestId, Route, Target};
use crate::memory::Memory;
use crate::ops::{BucketHead, Form, List, ListKind, NO_REMOTE, Pulling, State};
use crate::origin::Source;
use crate::owner::{Owner, Posting};
use crate::port::{Body, Close, ConnectError, Port, SendError, Sent};
use crate::queues::{Partial, QueuePosition, Queues};
use crate::remote::{COMMAND_LINK, LinkState, Remote, RemoteState, Tx};
use crate::stats::Stats;
use crate::status::{DownReason, Status};
use crate::time::Clock;
use crate::timeouts::{TimeOuts, Timeout};
use crate::unexpected;
use crate::wire;
use std::fmt;
use std::time::Duration;

/// The result of posting a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendPosted {
    /// The send is complete and the memory is the caller's again; no completion follows.
    Complete,
    /// A completion follows.
    Pending(RequestId),
}

/// The result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivePosted {
    /// A message was there already: there is no operation.
    Complete(Outcome),
    /// A completion follows.
    Pending(RequestId),
}

/// The moment at which a send is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When its memory is no longer needed.
    Standard,
    /// At once, from a copy, if it is small and only its link keeps it from going: credits for its data
    /// are there, and what waits before it in its lane are copies. Nothing that is sent later can be
    /// received before it. A copy has no time-out, and is given up only with its remote. Otherwise as
    /// `Standard`.
    Buffered,
    /// When a receive has matched the message (MPI's synchronous mode).
    Synchronous,
}

/// Reasons for refusing a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The remote id is stale.
    UnknownRemote,
    /// A message has at most 2^32 - 1 bytes; this one has so many.
    TooLarge(usize),
    /// The match bits have bits outside the mask.
    BadMask,
    /// There are as many operations as there can be.
    TooMany,
    /// The remote does not know of registered memory.
    NoRegions,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRemote => f.write_str("no such remote"),
            Self::TooLarge(len) => write!(f, "message of {len} bytes exceeds 4294967295"),
            Self::BadMask => f.write_str("match bits lie outside the mask"),
            Self::TooMany => f.write_str("too many operations"),
            Self::NoRegions => f.write_str("the remote does not know of registered memory"),
        }
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Sends all of `memory` to a remote. `word`: the owner's, of the operation that it becomes.
    #[inline]
    pub fn send(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        memory: O::Memory,
        word: O::OpData,
        mode: SendMode,
    ) -> Result<SendPosted, PostError> {
        self.send_new(to, bits, (memory, word), mode)
    }

    /// Sends a message that becomes an operation only if it has to.
    #[inline(always)]
    pub fn send_new(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        mut what: impl Posting<O>,
        mode: SendMode,
    ) -> Result<SendPosted, PostError> {
        let len = what.memory().len();
        let len = u32::try_from(len).map_err(|_| PostError::TooLarge(len))?;
        let gone = PostError::UnknownRemote;
        let mut remote = self.remotes.of_mut(to).ok_or(gone)?;
        if let Some(Tx::Blocked(link)) = remote.tx() {
            self.look_for_room(to, link);
            remote = self.remotes.of_mut(to).ok_or(gone)?;
        }
        let (ops, flow) = (&mut self.ops, &self.flow);
        // A message that the port takes a part of needs a record.
        if what.pending().is_none() && !ops.has_room() {
            return Err(PostError::TooMany);
        }
        if mode != SendMode::Synchronous && remote.is_clear() {
            let body = Body::Memory {
                memory: what.memory(),
                offset: 0,
                len: len as usize,
            };
            let counted = (flow, &mut self.stats);
            match send_eager::<_, O>(&mut self.port, counted, remote, bits, body) {
                Some(Sent::Whole) => return Ok(SendPosted::Complete),
                Some(Sent::Part(at)) => return self.finish_later(to, bits, what, (at, len)),
                None => {}
            }
        }
        if remote.is_tombstone() {
            return Err(PostError::UnknownRemote);
        }
        self.queue(to, bits, what, mode)
    }

    /// Sends a small message at once, if nothing is in its way: the remote is met, nothing waits for it, and there are room in
    /// its link and credits. Otherwise returns false, nothing has been sent, and [`Self::send_new`] is to be called.
    #[inline(always)]
    pub fn send_at_once(&mut self, to: RemoteId, bits: MatchBits, body: &[u8]) -> bool {
        let Some(remote) = self.remotes.of_mut(to) else {
            return false;
        };
        let (flow, stats) = (&self.flow, &mut self.stats);
        let body = Body::Bytes(body);
        remote.is_clear()
            && send_eager::<_, O>(&mut self.port, (flow, stats), remote, bits, body).is_some()
    }

    #[cold]
    #[inline(never)]
    fn finish_later(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        what: impl Posting<O>,
        (at, len): (usize, u32),
    ) -> Result<SendPosted, PostError> {
        let form = Form::Plain;
        let state = |memory| State::Draining { memory, form };
        let id = self.begin(to, bits, what, state);
        let id = id.ok_or(PostError::TooMany)?;
        let (link, request, end) = (COMMAND_LINK, id, len as usize);
        let rest = Partial {
            link,
            request,
            at,
            end,
        };
        self.save_partial_packet(to, rest);
        let now = self.clock.now();
        self.start_timer(id, now);
        Ok(SendPosted::Pending(id))
    }

    #[inline(never)]
    fn queue(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        mut what: impl Posting<O>,
        mode: SendMode,
    ) -> Result<SendPosted, PostError> {
        let small_max = self.config.small_max();
        // The link may not be known yet, and then its limits are not.
        let most = small_max.max(self.remotes.link_limits(to).eager_max as usize);
        let memory = what.memory();
        // Not above the largest eager one.
        let cost = if mode != SendMode::Synchronous && memory.len() <= most {
            flow::cost(memory.len() as u32)
        } else {
            1
        };
        if mode == SendMode::Buffered
            && memory.len() <= small_max
            && let Some(copy) = self.copy(to, O::lane(bits), memory, cost)
        {
            let copy = (copy, O::OpData::default());
            self.enqueue_send(to, bits, copy, (Form::Copied, cost))?;
            return Ok(SendPosted::Complete);
        }
        let form = match mode {
            SendMode::Synchronous => Form::Synchronous,
            SendMode::Standard | SendMode::Buffered => Form::Plain,
        };
        let id = self.enqueue_send(to, bits, what, (form, cost))?;
        Ok(SendPosted::Pending(id))
    }

    fn enqueue_send(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        what: impl Posting<O>,
        (form, cost): (Form, u32),
    ) -> Result<RequestId, PostError> {
        let stand = QueuePosition::NOWHERE;
        let state = |memory| State::Queued { memory, stand };
        let id = self.begin(to, bits, what, state);
        let id = id.ok_or(PostError::TooMany)?;
        self.stats.queued += 1;
        let Self {
            ops,
            remotes,
            spares,
            ..
        } = self;
        let now = self.clock.now();
        let record = ops.record_mut(id.index());
        if form == Form::Copied {
            (record.timeout, record.waiting) = (Timeout::FOR_EVER, Timeout::FOR_EVER);
        }
        if let Some(remote) = remotes.of_mut(to) {
            let (queues, lane) = (spares.get_or_alloc(&mut remote.queues), O::lane(bits));
            if let State::Queued { stand, .. } = &mut record.state {
                *stand = queues.enter(lane, form, cost, now);
            }
            ops.join(
                ListKind::State,
                &mut queues.lanes[lane as usize],
                id.index(),
            );
        }
        self.start_timer(id, now);
        self.make_ready(to);
        self.flush();
        Ok(id)
    }

    /// The link had no room when it was last asked. If it has some now, what waits goes first.
    #[cold]
    fn look_for_room(&mut self, to: RemoteId, link: LinkId) {
        if self.port.has_room(link) {
            self.open(to, link);
            self.flush();
        }
    }

    /// Receives the oldest message whose bits agree with `bits` where `mask` has ones. `word`: the
    /// owner's, of the operation that it becomes.
    #[inline]
    pub fn recv(
        &mut self,
        bits: MatchBits,
        mask: MatchMask,
        memory: O::Memory,
        word: O::OpData,
    ) -> Result<ReceivePosted, PostError> {
        self.recv_from(NO_REMOTE, bits, mask, (memory, word))
    }

    /// Posts a receive that becomes an operation only if it has to, for messages of one remote only: the
    /// receive ends with that remote. Another remote that sends a message that it would accept commits a
    /// violation.
    #[inline(always)]
    pub fn recv_from(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
        what: impl Posting<O>,
    ) -> Result<ReceivePosted, PostError> {
        let mut remote = self.remotes.of_mut(from);
        if remote.as_ref().is_none_or(|remote| remote.is_tombstone()) && from != NO_REMOTE {
            return Err(PostError::UnknownRemote);
        }
        if mask.apply(bits) != bits {
            return Err(PostError::BadMask);
        }
        if what.pending().is_none() && !self.ops.has_room() {
            return Err(PostError::TooMany);
        }
        if self.unexpected.unexpected() != 0 && self.unexpected.front(bits, mask).is_some() {
            if let Some(early) = self.unexpected_from(from, bits, mask) {
                return self.recv_unexpected(early, from, (bits, mask), what);
            }
            remote = self.remotes.of_mut(from);
        }
        let ops = &mut self.ops;
        let posted = &mut self.posted;
        let position = posted.reserve(mask);
        let state = |memory| State::Posted {
            memory,
            position,
            head: BucketHead::NONE,
        };
        let timeouts = self.timeouts.of_receive();
        let id = ops.enter(what, (bits, timeouts), state);
        let id = id.ok_or(PostError::TooMany)?;
        posted.enter(ops, id.index());
        if let Some(remote) = remote {
            ops.attach_op(id.index(), from, true, &mut remote.operations);
            if !remote.is_monitored() {
                self.begin_monitoring(from);
            }
        }
        Ok(ReceivePosted::Pending(id))
    }

    /// The front of [`Self::recv_from`], for a post that is no operation yet: the remote is met and monitored, and no message
    /// waits for a receive. Otherwise returns `None`, nothing has been posted, and [`Self::recv_from`] is to be called.
    #[inline(always)]
    pub fn recv_at_once(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
        what: impl Posting<O>,
    ) -> Option<RequestId> {
        let remote = self.remotes.of_mut(from)?;
        let ordinary = remote.is_monitored() && self.unexpected.unexpected() == 0;
        if !ordinary || mask.apply(bits) != bits {
            return None;
        }
        let position = self.posted.reserve(mask);
        let timeouts = self.timeouts.of_receive();
        let kin = (from, &mut remote.operations);
        let id = (self.ops).enter_receive(what, (bits, timeouts), position, kin)?;
        (self.posted).enter_at(&mut self.ops, id.index(), bits, position);
        Some(id)
    }

    fn unexpected_from(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Option<EntryId> {
        let early = self.find_unexpected(from, bits, mask);
        if early.is_none() && self.has_work() {
            // Others' messages have been refused.
            self.flush();
        }
        early
    }

    /// The receives for messages of one remote only, oldest first.
    pub fn receives_from(&self, remote: RemoteId) -> impl Iterator<Item = RequestId> {
        let ops = &self.ops;
        let remote = self.remotes.of(remote);
        let kin = remote
            .into_iter()
            .flat_map(|of| ops.of_list(ListKind::Remote, &of.operations));
        kin.filter(|id| ops.record(id.index()).from_one)
    }

    /// Throws away the oldest message that is here already and agrees. The send of one that was only
    /// offered ends with `told`: [`Status::Truncated`] or [`Status::Aborted`]. False when there is no
    /// such message.
    pub fn discard(&mut self, bits: MatchBits, mask: MatchMask, told: Status) -> bool {
        let Some(early) = self.unexpected.front(bits, mask) else {
            return false;
        };
        self.finish(early, told);
        if self.has_work() {
            self.flush();
        }
        true
    }

    /// Receives a message that is here already.
    #[inline(never)]
    fn recv_unexpected(
        &mut self,
        early: EntryId,
        from: RemoteId,
        (own, mask): (MatchBits, MatchMask),
        mut what: impl Posting<O>,
    ) -> Result<ReceivePosted, PostError> {
        let gone = PostError::UnknownRemote;
        let message = self.take_out(early).ok_or(gone)?;
        let (source, bits, length) = (message.source, message.bits, message.length);
        let offer = message.offer();
        let done = match message.body {
            unexpected::Body::Bytes(data) if !self.order.holds(source, bits) => {
                let transferred = what.memory().fill(0, data.len(), &data[..], 0) as u32;
                let status = inbound_status(transferred, length);
                let outcome = Outcome::received(status, source, bits, transferred, length);
                self.bodies.give_back(data);
                ReceivePosted::Complete(outcome)
            }
            body => {
                let position = Some(self.posted.reserve(mask));
                let state = |mut memory: O::Memory| match &body {
                    unexpected::Body::Bytes(data) => {
                        memory.fill(0, data.len(), &data[..], 0);
                        State::Pulling(Pulling::whole(memory, bits, length))
                    }
                    _ => State::Pulling(Pulling::new(memory, offer, bits, length, position)),
                };
                let timeouts = self.timeouts.of_receive();
                let id = self.ops.enter(what, (own, timeouts), state);
                let id = id.ok_or(PostError::TooMany)?;
                if from != NO_REMOTE {
                    // Of a joined session it may be another one.
                    self.ops.record_mut(id.index()).from_one = true;
                    self.attach_op(id, source);
                }
                let now = self.clock.now();
                match body {
                    unexpected::Body::Bytes(data) => {
                        self.bodies.give_back(data);
                        self.wait_in_order(id, source, now);
                        self.stop_timer(id);
                    }
                    _ => self.begin_pull(id, source, now),
                }
                ReceivePosted::Pending(id)
            }
        };
        if self.has_work() {
            self.flush();
        }
        Ok(done)
    }

    /// Calls an operation off. It completes as `status`, and its memory will not be touched again: before
    /// this returns, but for a send that its receiver may be reading, over a port where refusing that ends
    /// the link ([`refusal_ends_link`](crate::port::Limits::refusal_ends_link)). That one completes when the receiver has stopped, or after 2 s,
    /// as `status` or as the receiver says that it has ended.
    /// The sender of a message that had been matched learns that it was not wanted. False when there
    /// is no such operation: it has completed, or never was.
    pub fn end(&mut self, request: RequestId, status: Status) -> bool {
        let known = self.ops.get(request).is_some();
        if known {
            let now = self.clock.now();
            self.end_unexpected(request, status, now);
            self.flush();
        }
        known
    }

    /// Calls a request off if nothing has come of it: a receive that no message has matched, a
    /// connect without an answer. It is then gone as if it had never been posted, without a
    /// completion; what ends with it, as sends to a remote whose last connect it was, has its own.
    /// False, and nothing has changed, for any other request.
    pub fn cancel_unmatched(&mut self, request: RequestId) -> bool {
        let Some(record) = self.ops.get(request) else {
            return false;
        };
        let remote = record.remote;
        let connects = matches!(record.state, State::Connecting { .. });
        if !connects && !matches!(record.state, State::Posted { .. }) {
            return false;
        }
        let taken = self.finish_op(request, Status::Cancelled, 0);
        debug_assert!(taken.is_some_and(|outcome| !outcome.matched));
        self.ops.free(request);
        if connects {
            self.drop_if_unwanted(remote);
        }
        self.flush();
        true
    }

    /// Sends to a remote that wait for their turn, for the link or for credit.
    pub fn queued_for(&self, remote: RemoteId) -> usize {
        let remote = self.remotes.of(remote);
        let queues = remote.and_then(Remote::queues);
        queues.map_or(0, Queues::waiting)
    }

    /// Sets the time that operations posted from now on may go without any progress: sends, whether
    /// they have been matched or not, connects, and matched receives. `None`: unlimited.
    pub fn set_request_timeout(&mut self, timeout: Option<Duration>) {
        let timeout = Timeout::new(timeout);
        self.timeouts = TimeOuts {
            transfer: timeout,
            waiting: timeout,
        };
    }

    /// Sets the time-out of an operation, counted from now. False when it has completed.
    pub fn set_timeout_of(&mut self, request: RequestId, timeout: Option<Duration>) -> bool {
        let Some(posted) = self.ops.get_mut(request) else {
            return false;
        };
        posted.timeout = Timeout::new(timeout);
        posted.touched = false;
        match posted.state {
            State::Posted { .. } => return true,
            State::Pulling(_) => {}
            _ => posted.waiting = posted.timeout,
        }
        let now = self.clock.now();
        self.start_timer(request, now);
        true
    }

    /// Limits the time that one operation waits for its counterpart, counted from now: a send for
    /// its turn and a receiver, a receive for a message. Then it ends as [`Status::Timeout`], and
    /// the remote stays. `None`: unlimited. A receive whose message is withdrawn waits from the
    /// beginning. Returns false if the operation is matched or has completed.
    pub fn limit_waiting(&mut self, request: RequestId, limit: Option<Duration>) -> bool {
        let Some(posted) = self.ops.get_mut(request) else {
            return false;
        };
        if !posted.state.is_waiting() {
            return false;
        }
        posted.waiting = Timeout::new(limit);
        posted.touched = false;
        let now = self.clock.now();
        self.start_timer(request, now);
        true
    }

    /// Begins a session with a remote endpoint. The completion carries the remote and `bits`.
    pub fn call(
        &mut self,
        target: Target,
        key: u32,
        bits: MatchBits,
        word: O::OpData,
    ) -> Result<RequestId, ConnectError> {
        if !self.ops.has_room() {
            return Err(ConnectError::NoResources);
        }
        let to = self.begin_session(target)?;
        self.begin_connect(to, key, bits, word)
    }

    /// Connects over the session that was begun from here with that target; if there is none, [calls](Self::call).
    pub fn connect(
        &mut self,
        target: Target,
        key: u32,
        bits: MatchBits,
        word: O::OpData,
    ) -> Result<RequestId, ConnectError> {
        match self.remotes.called(target) {
            Some(known) => self.connect_over(known, key, bits, word),
            None => self.call(target, key, bits, word),
        }
    }

    /// Connects over a session that stands; one that has called us need not be reachable under its name.
    pub fn connect_over(
        &mut self,
        to: RemoteId,
        key: u32,
        bits: MatchBits,
        word: O::OpData,
    ) -> Result<RequestId, ConnectError> {
        if self.remotes.living(to).is_none() {
            return Err(ConnectError::Refused);
        }
        self.begin_connect(to, key, bits, word)
    }

    fn begin_connect(
        &mut self,
        to: RemoteId,
        key: u32,
        bits: MatchBits,
        word: O::OpData,
    ) -> Result<RequestId, ConnectError> {
        let timeouts = self.timeouts;
        let state = State::Connecting { key };
        let id = self.ops.add(word, bits, timeouts, state);
        let id = id.ok_or(ConnectError::NoResources)?;
        self.introduce(to, id);
        let now = self.clock.now();
        self.start_timer(id, now);
        self.flush();
        Ok(id)
    }

    /// The connect is told to the remote, now or when a link is up.
    fn introduce(&mut self, to: RemoteId, id: RequestId) {
        let Self { ops, remotes, .. } = self;
        if let Some(remote) = remotes.of_mut(to) {
            ops.record_mut(id.index()).remote = to;
            ops.join(ListKind::State, &mut remote.connects, id.index());
            if let Some(link) = remote.link_up() {
                self.send_connect(to, link, id);
            }
        }
    }

    /// A connect whose remote has gone goes to the endpoint's next life, if there is one.
    fn connect_again(&mut self, id: RequestId, target: Target) {
        // It may have been cancelled meanwhile.
        if self.ops.get(id).is_none() {
            return;
        }
        let remote = self.remotes.called(target);
        match remote.map_or_else(|| self.begin_session(target), Ok) {
            Ok(remote) => {
                self.introduce(remote, id);
                let now = self.clock.now();
                self.monitor(remote, now);
            }
            Err(error) => {
                log::debug!("retrying the connect to {target:?}: {error}");
                let reason = DownReason::Link(error.into());
                self.complete(id, reason.status(), 0);
            }
        }
    }

    fn begin_session(&mut self, target: Target) -> Result<RemoteId, ConnectError> {
        if !self.remotes.may_add(Source::TRUSTED) {
            return Err(ConnectError::NoResources);
        }
        let link = self.port.connect(target, self.clock.now())?;
        let name = (target.nic, target.endpoint);
        let id = self.add_remote(name, Source::TRUSTED, Some(target.route));
        self.attach(id, link);
        Ok(id)
    }

    fn attach(&mut self, id: RemoteId, link: LinkId) {
        if let Some(remote) = self.remotes.of_mut(id) {
            remote.link = Some((link, LinkState::Dialled));
        }
        self.bind(link, id);
    }

    /// Connects over `route`, which the port named when its own failed.
    pub(super) fn connect_elsewhere(&mut self, id: RemoteId, route: Route) {
        let Some(remote) = self.remotes.of(id) else {
            return;
        };
        match self.port.connect(remote.target(route), self.clock.now()) {
            Ok(link) => self.attach(id, link),
            Err(error) => {
                log::debug!("remote {id:?}: {error}");
                let reason = DownReason::Link(error.into());
                self.fail_remote(id, reason);
            }
        }
    }

    /// Ends the session with a remote: its operations complete as unreachable, its unreceived
    /// messages are dropped, it is told, and `remote` becomes stale.
    pub fn disconnect(&mut self, remote: RemoteId) {
        self.part(remote, Status::Unreachable);
        self.flush();
    }

    fn part(&mut self, id: RemoteId, status: Status) {
        // There may be room by now for what is complete for its sender.
        let copies = |remote: &Remote| Some(remote.queues()?.has_copies());
        if self.remotes.of(id).and_then(copies) == Some(true) {
            self.stay_to_part(id);
            self.burst_of(id, COMMAND_LINK);
        }
        let Some(remote) = self.remove_remote(id, (status, None), false) else {
            return;
        };
        if let Some(link) = remote.tx_link() {
            let header = wire::Header::new(wire::Kind::Disconnect, 0, 0).emit();
            // Without room for it, the closed link says the same.
            let _ = self.port.send(link, &header, Body::EMPTY);
        }
        self.close_link_of(&remote, Close::Flush);
    }

    /// Ends everything: remotes are told, links closed, every request completes as closed.
    pub fn close(&mut self) {
        for remote in self.remotes.ids() {
            self.part(remote, Status::EndpointClosed);
        }
        let left: Vec<_> = self.ops.iter().map(|(id, _)| id).collect();
        for id in left {
            self.complete(id, Status::EndpointClosed, 0);
        }
        self.flush();
    }

    /// A copy of a message that can go as soon as its link has room, paid for; see [`SendMode::Buffered`].
    fn copy(
        &mut self,
        to: RemoteId,
        lane: Lane,
        memory: &O::Memory,
        cost: u32,
    ) -> Option<O::Memory> {
        let Self { flow, owner, .. } = self;
        let remote = self.remotes.of_mut(to)?;
        let most = self.config.copies;
        let RemoteState::Connected(met) = &mut remote.state else {
            return None;
        };
        let queues = remote.queues.as_deref();
        let goes = memory.len() <= met.link_limits.eager_max as usize
            && cost <= met.borrows.free()
            && queues.map_or(most > 0, |all| all.takes_copy(lane, most));
        // An owner that keeps a record of a completed operation has room for that one, too.
        if !goes || !self.ops.has_room_for(2) || !flow.copy(cost) {
            return None;
        }
        let Some(mut copy) = owner.memory(memory.len()) else {
            flow.uncopy(cost);
            return None;
        };
        met.borrows.pay(Payment::Credits(cost));
        let mut at = 0;
        memory.visit(0, memory.len(), |piece| {
            at += copy.fill(at, piece.len(), piece, 0);
        });
        debug_assert_eq!((at, copy.len()), (memory.len(), memory.len()));
        Some(copy)
    }

    /// A copy has gone, or its remote has.
    #[cold]
    pub(super) fn copy_over(&mut self, id: RequestId, how: &Outcome) {
        self.flow.uncopy(flow::cost(how.length));
        if how.status != Status::Success {
            let (length, to) = (how.length, how.remote);
            log::warn!("{length} bytes to remote {to:?} are lost although their send was complete");
        }
        self.ops.free(id);
    }

    /// The link to a remote has taken a part of a packet.
    pub(super) fn save_partial_packet(&mut self, to: RemoteId, rest: Partial) {
        if let Some(remote) = self.remotes.of_mut(to) {
            self.spares
                .get_or_alloc(&mut remote.queues)
                .set_partial(rest);
            if let RemoteState::Connected(met) = &mut remote.state {
                met.tx = Tx::Blocked(met.tx.link());
            }
        }
    }

    /// A new operation with a remote, which is no connect. `None`: there can be no more.
    pub(super) fn begin(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        what: impl Posting<O>,
        state: impl FnOnce(O::Memory) -> State<O::Memory>,
    ) -> Option<RequestId> {
        let id = self.ops.enter(what, (bits, self.timeouts), state)?;
        self.attach_op(id, to);
        Some(id)
    }

    /// Takes a remote out of everything; its operations complete with this result, and the reason if it is lost. Its
    /// messages stay if `keep`, those that may.
    pub(super) fn remove_remote(
        &mut self,
        id: RemoteId,
        (status, lost): (Status, Option<DownReason>),
        keep: bool,
    ) -> Option<Remote> {
        // Its place may be another's by now.
        self.remotes.of(id)?;
        while let Some(op) = self.next_of(id) {
            self.complete_for(op, status, lost, 0);
        }
        self.cut_all(id);
        self.end_data_links(id);
        self.end_move(id);
        self.close_account(id, keep);
        let remote = self.remotes.take(id)?;
        self.controls -= remote.queues().map_or(0, |queues| queues.control.len());
        match &remote.state {
            RemoteState::Connecting { .. } => {}
            RemoteState::Connected(met) => {
                if let Some(timer) = met.step {
                    self.wheel.clear(timer);
                }
                self.stats.remotes_down += 1;
            }
            RemoteState::Tombstone { messages, .. } => self.tombstones.gone(*messages),
        }
        Some(remote)
    }

    /// The oldest of a remote's operations, connects last.
    fn next_of(&self, id: RemoteId) -> Option<RequestId> {
        let remote = self.remotes.of(id)?;
        let op = self.ops.first(&remote.operations);
        op.or_else(|| self.ops.first(&remote.connects))
    }

    /// Do connects go on that went to a session which turns out to have ended? An endpoint may be
    /// opened again right after it was closed, and is meant then. None of them was this remote's
    /// first, so each answers for the end of another session.
    fn connects_again(&self, id: RemoteId, reason: DownReason) -> bool {
        self.remotes.of(id).is_some_and(|remote| {
            self.config.connect_again
                && remote.connected().is_some()
                && !matches!(reason, DownReason::Protocol(_) | DownReason::Secret)
        })
    }

    /// A remote is gone, for a reason of its own. Connects to it may go on with its address's next life.
    pub(super) fn fail_remote(&mut self, id: RemoteId, reason: DownReason) {
        let mut again = List::EMPTY;
        if self.connects_again(id, reason)
            && let Some(remote) = self.remotes.of_mut(id)
        {
            again = std::mem::take(&mut remote.connects);
        }
        let Some(remote) = self.end_remote(id, reason, true) else {
            return;
        };
        while let Some(connect) = self.ops.first(&again) {
            self.ops.leave(ListKind::State, &mut again, connect.index());
            self.connect_again(connect, remote.target(remote.called.unwrap_or(Route::AUTO)));
        }
        self.close_link_of(&remote, Close::Now);
    }

    /// Dissolves a remote that is gone, and says so. Its link is the caller's; its messages stay if
    /// `keep`, those that may.
    pub(super) fn end_remote(
        &mut self,
        id: RemoteId,
        reason: DownReason,
        keep: bool,
    ) -> Option<Remote> {
        let remote = self.remove_remote(id, (reason.status(), Some(reason)), keep)?;
        let tombstone = self.tombstones.made.take();
        let identity = remote.identity();
        log::debug!("remote {id:?} ({identity:?}) is down: {reason}");
        if remote.connected().is_some() {
            let down = Down {
                remote: id,
                context: remote.context,
                identity,
                reason,
                tombstone,
            };
            self.events.push_back(Event::Down(down));
        }
        Some(remote)
    }
}

/// The result of a receive that got `transferred` of `length` bytes.
pub(super) fn inbound_status(transferred: u32, length: u32) -> Status {
    if transferred < length {
        Status::Truncated
    } else {
        Status::Success
    }
}

/// Sends a message with its data to a remote for which nothing waits, if its link has room and there are credits. `None`:
/// nothing has been sent.
#[inline(always)]
fn send_eager<P: Port<O::Memory>, O: Owner>(
    port: &mut P,
    (flow, stats): (&Flow, &mut Stats),
    remote: &mut Remote,
    bits: MatchBits,
    body: Body<'_, O::Memory>,
) -> Option<Sent> {
    let RemoteState::Connected(met) = &mut remote.state else {
        return None;
    };
    let Tx::Open(link) = met.tx else {
        return None;
    };
    // Messages have at most 2^32 - 1 bytes.
    let len = body.len() as u32;
    let cost = flow::cost(len);
    if len > met.link_limits.eager_max {
        return None;
    }
    let paid = met.borrows.payment(cost, O::lane(bits))?;
    let mut header = wire::Header::new(wire::Kind::Eager, bits.0, len);
    (header.body_len, header.aux) = (len, paid.aux());
    header.credit_fields = flow.credit_fields(&remote.lends, &met.borrows, cost);
    match port.send(link, &header.emit(), body) {
        Ok(sent) => {
            Flow::on_told(&mut remote.lends, &mut met.borrows, &header.credit_fields);
            met.borrows.pay(paid);
            stats.packets_out += 1;
            stats.eager_out += 1;
            Some(sent)
        }
        Err(SendError::WouldBlock | SendError::Down) => {
            met.tx = Tx::Blocked(link);
            None
        }
    }
}
