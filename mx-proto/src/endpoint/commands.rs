//! Calls of the application to an endpoint.

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

/// Result of posting a send, get or put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendPosted {
    /// The send is complete and the memory can be reused; no completion follows.
    Complete,
    /// The operation with this id uses the memory until the call in which [`Owner::completed`] reports its end returns.
    Pending(RequestId),
}

/// Result of posting a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivePosted {
    /// A message had already arrived and is in the memory now, as far as it fits; no operation was made and no
    /// completion follows.
    Complete(Outcome),
    /// The operation with this id uses the memory until the call in which [`Owner::completed`] reports its end returns.
    Pending(RequestId),
}

/// Condition for the completion of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// Complete when the send's memory is no longer needed.
    Standard,
    /// Complete at once, from a copy, if the message is small and waits only for its link: there are credits for its
    /// data, and everything queued before it in its lane is a copy. No message sent later can be received before it. A
    /// copy has no time-out and is dropped only with its remote. Other messages are sent as `Standard`.
    Buffered,
    /// Complete only after a receive has matched the message (MPI's synchronous mode).
    Synchronous,
}

/// Reason for refusing a post. No operation was made, and the endpoint does not use the memory any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The remote id is stale.
    UnknownRemote,
    /// The message has this many bytes, more than 2^32 - 1.
    TooLarge(usize),
    /// The match bits of a receive have bits outside its mask.
    BadMask,
    /// The table of operations is full. The post can be repeated when operations have been freed.
    TooMany,
    /// The remote does not support registered memory.
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
    /// Posts a send of all of `memory` to a remote. [`SendPosted`] tells whether the memory can be reused at once or
    /// only after a completion; `word` is the owner's data of the operation, dropped if none is made.
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

    /// Posts a send of all of `what`'s memory, as [`Self::send`] does. The memory and the owner's data are moved into
    /// an operation only if the send cannot complete at once.
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
        // If the port takes only a part, the rest needs a record.
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

    /// Sends a message if nothing is in its way: the remote is connected, nothing is queued for it, its link has room,
    /// there are credits, and the message is small enough to carry its data. Returns true if the send is complete:
    /// `body` can be reused, and no completion follows. Otherwise nothing has been sent, and the caller continues with
    /// [`Self::send_new`].
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
        // Before the link is known, so are not its limits.
        let most = small_max.max(self.remotes.link_limits(to).eager_max as usize);
        let memory = what.memory();
        // No more than the cost of the largest eager message.
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

    /// Checks again a link that had no room. If it has some now, queued messages are sent first.
    #[cold]
    fn look_for_room(&mut self, to: RemoteId, link: LinkId) {
        if self.port.has_room(link) {
            self.open(to, link);
            self.flush();
        }
    }

    /// Posts a receive for the oldest message of any remote whose bits agree with `bits` where `mask` has ones. `word`
    /// is the owner's data of the operation, dropped if none is made because a message had already arrived.
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

    /// Posts a receive as [`Self::recv`] does, for messages of one remote. If the remote is lost, the receive ends,
    /// too. A message of another remote that the receive would accept is a violation and ends that remote's link,
    /// unless both remotes are joined.
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

    /// Posts a receive as [`Self::recv_from`] does, if it is the ordinary case: the remote is connected and monitored,
    /// and no message waits for a receive. Otherwise returns `None` without having posted anything, and the caller
    /// continues with [`Self::recv_from`] and a new posting. `bits` must have no bits outside the mask.
    #[inline(always)]
    pub fn recv_at_once(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
        what: impl Posting<O>,
    ) -> Option<RequestId> {
        let remote = self.remotes.of_mut(from)?;
        debug_assert_eq!(mask.apply(bits), bits);
        if !remote.is_monitored() || self.unexpected.unexpected() != 0 {
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
            // Messages of other remotes have been refused.
            self.flush();
        }
        early
    }

    /// Returns the receives in progress that were posted for messages of this remote only, matched or not, oldest
    /// first.
    pub fn receives_from(&self, remote: RemoteId) -> impl Iterator<Item = RequestId> {
        let ops = &self.ops;
        let remote = self.remotes.of(remote);
        let kin = remote
            .into_iter()
            .flat_map(|of| ops.of_list(ListKind::Remote, &of.operations));
        kin.filter(|id| ops.record(id.index()).from_one)
    }

    /// Discards the oldest unexpected message that a receive with `bits` and `mask` would accept. If its data was not
    /// transferred, its send ends as `told`: [`Status::Truncated`] or [`Status::Aborted`]. Returns false if there is no
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

    /// Receives a message that has already arrived.
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
                    // A joined session's message may be of another remote than `from`.
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

    /// Cancels an operation. The operation completes as `status`, and its memory is not touched after this returns. The
    /// exception is a send that its receiver may be reading, over a port where refusing that ends the link
    /// ([`refusal_ends_link`](crate::port::Limits::refusal_ends_link)): it completes when the receiver has stopped, or
    /// after 2 s, as `status` or as the receiver reports. The sender of a matched message is told that the message was
    /// not wanted. Returns false if there is no such operation, for example because it has completed.
    pub fn end(&mut self, request: RequestId, status: Status) -> bool {
        let known = self.ops.get(request).is_some();
        if known {
            let now = self.clock.now();
            self.end_unexpected(request, status, now);
            self.flush();
        }
        known
    }

    /// Cancels a request that has had no effect yet: a receive that no message has matched, or a connect without an
    /// answer. The request disappears without a completion. Operations that end with it, such as sends to a remote
    /// whose last connect it was, complete as usual. Returns false for any other request and changes nothing.
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

    /// Returns the number of sends to a remote of which nothing has been sent yet: they wait for their turn, the link
    /// or credits. 0 if the id is stale.
    pub fn queued_for(&self, remote: RemoteId) -> usize {
        let remote = self.remotes.of(remote);
        let queues = remote.and_then(Remote::queues);
        queues.map_or(0, Queues::waiting)
    }

    /// Sets the longest time without progress of operations posted from now on: sends, matched or not, connects, and
    /// matched receives. An operation that exceeds it ends as [`Status::Timeout`]. `None`: unlimited.
    pub fn set_request_timeout(&mut self, timeout: Option<Duration>) {
        let timeout = Timeout::new(timeout);
        self.timeouts = TimeOuts {
            transfer: timeout,
            waiting: timeout,
        };
    }

    /// Sets the longest time without progress of one operation, counted from now, in place of the request time-out. For
    /// a receive it begins to count when a message has matched. `None`: unlimited. Returns false if the operation has
    /// completed.
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

    /// Limits the time, counted from now, that an operation waits for its counterpart: a send for its turn and a
    /// receiver, a receive for a message. An operation that exceeds it ends as [`Status::Timeout`]; the remote stays.
    /// `None`: unlimited. A receive whose message is withdrawn waits from the beginning. Returns false if the operation
    /// is matched or has completed.
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

    /// Begins a new session with a remote endpoint, even if there is one. `key` must be the key that the other endpoint
    /// was opened with. The operation completes when the peer has answered or cannot be reached; its [`Outcome`] has
    /// the remote, and `bits` unchanged.
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

    /// Connects over the session that this endpoint began with that target, or begins one if there is none. Completes
    /// as [`Self::call`] does.
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

    /// Connects over an existing session, for example with a peer that has called us and may not be reachable under its
    /// name. Completes as [`Self::call`] does. [`ConnectError::Refused`]: the remote is lost.
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

    /// Sends the connect to the remote, now or when a link is up.
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

    /// Retries a connect whose remote was removed with the endpoint's next life, if there is one.
    fn connect_again(&mut self, id: RequestId, target: Target) {
        // The connect may have been cancelled meanwhile.
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

    /// Connects over `route`, which the port named when the first route failed.
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

    /// Ends the session with a remote: its operations complete as [`Status::Unreachable`], its unreceived messages are
    /// dropped, the peer is notified, and `remote` becomes stale. Copies of buffered sends are sent before if the link
    /// has room.
    pub fn disconnect(&mut self, remote: RemoteId) {
        self.part(remote, Status::Unreachable);
        self.flush();
    }

    fn part(&mut self, id: RemoteId, status: Status) {
        // Copies are complete for their sender: send them if the link has room by now.
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
            // If the link has no room, its end tells the peer.
            let _ = self.port.send(link, &header, Body::EMPTY);
        }
        self.close_link_of(&remote, Close::Flush);
    }

    /// Disconnects all remotes and ends every operation: all complete as [`Status::EndpointClosed`]. The peers are
    /// notified.
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

    /// Copies a message that waits only for its link, and pays its credits; see [`SendMode::Buffered`]. `None`: no copy
    /// was made.
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
        // Leave room for one more record: the owner may keep the completed operation's.
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

    /// Frees a copy that has been sent, or whose remote has been removed.
    #[cold]
    pub(super) fn copy_over(&mut self, id: RequestId, how: &Outcome) {
        self.flow.uncopy(flow::cost(how.length));
        if how.status != Status::Success {
            let (length, to) = (how.length, how.remote);
            log::warn!("{length} bytes to remote {to:?} are lost although their send was complete");
        }
        self.ops.free(id);
    }

    /// Queues the rest of a packet that the link has taken a part of, and marks the link as blocked.
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

    /// Makes an operation with a remote, other than a connect. `None`: the table is full.
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

    /// Removes a remote from everything. Its operations complete with this status, and the reason if the remote is
    /// lost. With `keep`, its messages stay as far as a tombstone may hold them.
    pub(super) fn remove_remote(
        &mut self,
        id: RemoteId,
        (status, lost): (Status, Option<DownReason>),
        keep: bool,
    ) -> Option<Remote> {
        // The slot may have been reused.
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

    /// Returns the oldest operation of a remote; connects come last.
    fn next_of(&self, id: RemoteId) -> Option<RequestId> {
        let remote = self.remotes.of(id)?;
        let op = self.ops.first(&remote.operations);
        op.or_else(|| self.ops.first(&remote.connects))
    }

    /// Returns whether connects to a session that turns out to have ended are retried. An endpoint may be reopened
    /// right after it was closed, and the connects then mean the new one. None of them was this remote's first, so each
    /// answers for the end of another session.
    fn connects_again(&self, id: RemoteId, reason: DownReason) -> bool {
        self.remotes.of(id).is_some_and(|remote| {
            self.config.connect_again
                && remote.connected().is_some()
                && !matches!(reason, DownReason::Protocol(_) | DownReason::Secret)
        })
    }

    /// Ends a remote for this reason. Connects to it may be retried with the endpoint's next life.
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

    /// Removes a lost remote and reports the loss. The caller closes its link; its messages stay if `keep`, as far as a
    /// tombstone may hold them.
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

/// Returns the status of a receive that got `transferred` of `length` bytes.
pub(super) fn inbound_status(transferred: u32, length: u32) -> Status {
    if transferred < length {
        Status::Truncated
    } else {
        Status::Success
    }
}

/// Sends a message eagerly to a remote for which nothing is queued, if its link has room and there are credits. `None`:
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
    // Cannot truncate: messages have at most 2^32 - 1 bytes.
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
