//! An endpoint: turns posted operations into packets and packets into completions.
//!
//! ```text
//!   commands: send recv end connect disconnect             progress
//!        |                                                    |
//!        v                                                    v
//!     Endpoint  <-------------- inbound <------------------ Port::begin, next
//!        |
//!        +--> outbound ------------------------------------> Port::send, resume
//!        +--> whatever an event leads to ------------------> Port::close, accept, connect, ...
//!        +--> Owner: completed, arrived, memory, ready
//!        +--> next_event: Down, Joined, Due, ...
//! ```
//!
//! Owns: operations, remotes, matching, timers, the port, events that have not been polled out, and its own owner, the
//! layer above.
//! Out of scope: locks, threads.
//!
//! Order of calls: any. No call blocks, and an owner cannot call its endpoint. The port hands its events out one at
//! a time, so the endpoint calls it at once when an event leads to that: a link that is to end is closed, and memory
//! recalled, before the completion is reported.

mod bound;
mod claims;
mod commands;
mod data_links;
mod deadlines;
mod deferred;
mod flow;
#[cfg(test)]
mod front_tests;
mod inbound;
mod inbox;
mod inherit;
mod introductions;
mod liveness;
mod moves;
mod order;
mod outbound;
mod pending;
mod regions;
mod rendezvous;
mod sessions;
mod streamed;
mod tombstones;
mod unexpected;
mod view;

pub use commands::{PostError, ReceivePosted, SendMode, SendPosted};
pub use deadlines::Reminder;
pub use deferred::PREVIEW_MAX;
pub use flow::Account;
pub use view::{Phase, RemoteView};

use crate::config::Config;
use crate::event::{Arrival, Down, Event, Identity, Outcome};
use crate::flow::Flow;
use crate::ids::{EndpointId, LinkId, MatchBits, MatchMask, NicId, RemoteId, RequestId, Target};
use crate::matching;
use crate::ops::{ListKind, NO_REMOTE, Ops, STREAMED, State};
use crate::owner::{Events, Owner};
use crate::port::{Close, LinkDown, Port, WakeDescriptors};
use crate::queues::{Control, Partial, Queues, Spares};
use crate::regions::Regions;
use crate::remote::{LinkLimits, Remote, RemoteState, Remotes, Tx};
use crate::round::{Begun, Front, Next, PortEvent};
use crate::shares::Shares;
use crate::stats::Stats;
use crate::status::{DownReason, OpKind, Status};
use crate::supply::{Claim, Supply};
use crate::time::{Clock, Instant};
use crate::timeouts::{TimeOuts, Timeout};
use crate::timer::Wheel;
use crate::unexpected::{OfferTarget, UnexpectedQueue};
use crate::wire;
use bound::BoundLinks;
use deadlines::Deadline;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

/// An open endpoint over port `P`, with clock `C` and owner `O`.
#[derive(Debug)]
pub struct Endpoint<P, C, O: Owner> {
    port: P,
    clock: C,
    /// The last poll has looked at everything.
    looked_around: bool,
    /// The port is another process's: it is told nothing ([`Self::inherit`]).
    inherited: bool,
    owner: O,
    events: Events<O>,
    config: Config,
    identity: Identity,
    key: u32,
    /// All operations.
    ops: Ops<O>,
    remotes: Remotes,
    /// Queues for remotes that have none yet.
    spares: Spares,
    posted: matching::PostedReceives,
    /// Messages that came before their reader.
    unexpected: UnexpectedQueue<O::Memory>,
    /// There is no memory for one that has a turn: no more is asked for until that deadline.
    starved: bool,
    /// Room for one more of them.
    messages: Claim,
    tombstones: tombstones::Tombstones,
    /// Memory that peers may reach.
    regions: Regions<O::Memory>,
    /// Refused accesses that have been logged.
    refused_accesses: regions::Refusals,
    /// The time-outs of what is posted from now on.
    timeouts: TimeOuts,
    flow: Flow,
    /// The end of its present epoch is a deadline.
    epoch_ends: bool,
    wheel: Wheel<Deadline>,
    liveness: liveness::Liveness,
    /// Remotes with something to send and room to send it; each at most once.
    ready: VecDeque<RemoteId>,
    bound: BoundLinks,
    data_links: data_links::DataLinks,
    moves: moves::Moves,
    order: order::MatchOrder,
    /// Messages whose bodies are coming, by the link on which they come.
    streamed: streamed::AllStreamed,
    bodies: streamed::BodyPool,
    introductions: introductions::Introductions,
    challenges: introductions::Challenges,
    /// Packets without message data that wait for remotes, all together.
    controls: usize,
    stats: Stats,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Opens an endpoint with this `identity`, which accepts peers with `key` and reports to
    /// `owner`.
    pub fn new(config: Config, identity: Identity, key: u32, port: P, clock: C, owner: O) -> Self {
        let share = config.source_share;
        let flow = Flow::new(&config.flow());
        let places = Shares::new(config.max_remotes, share);
        let supply = config.supply;
        Self {
            port,
            clock,
            looked_around: true,
            inherited: false,
            owner,
            events: Events::<O>::new(),
            timeouts: TimeOuts {
                transfer: Timeout::new(config.request_timeout),
                waiting: Timeout::new(config.waiting_timeout),
            },
            liveness: liveness::Liveness::new(config.peer_timeout),
            config,
            identity,
            key,
            ops: Ops::default(),
            messages: Claim::new(supply, MESSAGE_COST),
            remotes: Remotes::new(places, Claim::new(supply, REMOTE_COST)),
            spares: Spares::default(),
            posted: matching::PostedReceives::default(),
            unexpected: UnexpectedQueue::default(),
            starved: false,
            tombstones: tombstones::Tombstones::default(),
            regions: Regions::default(),
            refused_accesses: regions::Refusals::default(),
            flow,
            epoch_ends: false,
            wheel: Wheel::new(deadlines::TICK),
            ready: VecDeque::new(),
            bound: BoundLinks::default(),
            data_links: data_links::DataLinks::default(),
            moves: moves::Moves::default(),
            order: order::MatchOrder::default(),
            streamed: streamed::AllStreamed::default(),
            bodies: streamed::BodyPool::default(),
            introductions: introductions::Introductions::default(),
            challenges: introductions::Challenges::default(),
            controls: 0,
            stats: Stats::default(),
        }
    }

    /// The identity of this endpoint.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The supply of memory ([`Config::supply`]).
    pub fn supply(&self) -> Supply {
        self.config.supply
    }

    /// Its settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time after which a silent remote is lost ([`Config::peer_timeout`]).
    pub fn peer_timeout(&self) -> Option<Duration> {
        self.config.peer_timeout
    }

    /// Takes in what has arrived and gives out what can go. Returns true when anything happened.
    /// Never blocks. While a message is [being decided](Self::next_deferred) it does nothing.
    #[inline(always)]
    pub fn progress(&mut self) -> bool {
        let begun = self.look();
        self.progress_from(begun)
    }

    /// The front of [`Self::progress`], which [`Self::progress_from`] goes on with. [`Begun::Nothing`]: there is nothing to do,
    /// and no need to go on.
    #[inline(always)]
    pub fn look(&mut self) -> Begun {
        if self.unexpected.out().is_some() {
            return Begun::Nothing;
        }
        let begun = self.port.begin_active(self.config.poll_budget);
        self.looked_around = begun == Begun::Elsewhere;
        match begun {
            Begun::Nothing if !self.is_quiet() => Begun::Active,
            _ => begun,
        }
    }

    /// Does what [`Self::look`] has found to be done.
    #[inline(always)]
    pub fn progress_from(&mut self, begun: Begun) -> bool {
        let busy = match begun {
            Begun::Nothing => return false,
            // At its end if there is nothing but other work.
            Begun::Active => self.take_in(),
            Begun::Elsewhere => self.poll_all_ports(),
        };
        if self.is_quiet() {
            return busy;
        }
        self.catch_up() | busy
    }

    /// A round of the port over everything, and what is due by the clock.
    #[inline(never)]
    fn poll_all_ports(&mut self) -> bool {
        let now = self.clock.now();
        self.drop_empty_tombstones();
        self.port.begin(now, self.config.poll_budget);
        let busy = self.take_in();
        if self.wheel.is_empty() {
            return busy;
        }
        self.expire(now) | busy
    }

    /// Does what is to be done beside looking at the port.
    #[inline(never)]
    fn catch_up(&mut self) -> bool {
        self.drop_empty_tombstones();
        if self.must_begin_epoch() {
            let now = self.clock.now();
            self.begin_epoch(now);
        }
        self.has_work() && self.flush()
    }

    #[inline(always)]
    fn must_begin_epoch(&self) -> bool {
        self.flow.is_waited_for() & !self.epoch_ends
    }

    /// Whether there is nothing to do but to look at the port.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        let due = self.has_work() | self.must_begin_epoch();
        !(due | self.has_events() | self.tombstones.has_spent())
    }

    /// Has the last [`Self::progress`] looked at everything, and not only at what is most often active? Then
    /// it is time for what the layer above does now and then.
    #[inline]
    pub fn looked_around(&self) -> bool {
        self.looked_around
    }

    /// Handles the events of a round of the port.
    #[inline(never)]
    fn take_in(&mut self) -> bool {
        loop {
            match self.port.next_packet() {
                Front::Packet { link, header } => self.on_front_packet(link, &header),
                Front::End { any } => return any,
                Front::Other => {
                    if let Some(any) = self.take_other() {
                        return any;
                    }
                }
            }
        }
    }

    /// Handles one event of a round of the port. Returns its end, if it is over.
    #[inline(never)]
    fn take_other(&mut self) -> Option<bool> {
        match self.port.next() {
            Next::Event(PortEvent::Packet { link, header }) => self.on_packet(link, &header),
            Next::Event(event) => self.on_event(event),
            Next::End { any } => return Some(any),
        }
        None
    }

    /// The time at which [`Self::progress`] should be called although nothing arrives. `None` while
    /// it would do nothing.
    pub fn deadline(&self) -> Option<Instant> {
        if self.unexpected.out().is_some() {
            return None;
        }
        Instant::earliest([self.wheel.next(), self.port.deadline()])
    }

    /// See [`crate::port::LinkControl::keep_alive_due`].
    pub fn keep_alive_due(&self) -> Option<Instant> {
        self.port.keep_alive_due()
    }

    /// Lets peers know that we are there although no packets are polled: for callers that take long to
    /// decide about a [message](Self::next_deferred), or do not call [`Self::progress`].
    pub fn keep_alive(&mut self) {
        self.port.keep_alive(self.clock.now());
    }

    /// Prepares for sleeping on [`Self::descriptors`]. False when there is something to do first.
    pub fn arm(&mut self) -> bool {
        !self.has_events() && self.ready.is_empty() && !self.flow.is_ready() && self.port.arm()
    }

    /// The opposite of [`Self::arm`].
    pub fn disarm(&mut self) {
        self.port.disarm();
    }

    /// The descriptors to sleep on.
    pub fn descriptors(&self) -> WakeDescriptors {
        self.port.descriptors()
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port, to tell it what only its own type knows.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// The layer above.
    #[inline]
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// The layer above, to look at what it has been told.
    #[inline]
    pub fn owner_mut(&mut self) -> &mut O {
        &mut self.owner
    }

    /// All operations that have not completed, and those that have and that the owner has not freed.
    #[inline]
    pub fn ops(&self) -> &Ops<O> {
        &self.ops
    }

    /// The layer above and the operations, to take from the lists of those that have completed.
    #[inline]
    pub fn split(&mut self) -> (&mut O, &mut Ops<O>) {
        (&mut self.owner, &mut self.ops)
    }

    /// Polls out the oldest event. To be called until there is none after every call that may cause events: operations
    /// that the owner does not know to have ended wait in them.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event<O::OwnerEvent>> {
        self.events.pop_front()
    }

    /// Whether events wait to be polled out; then a thread must not sleep.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The loss of a remote, if it has not been polled out.
    pub fn loss_of(&self, remote: RemoteId) -> Option<&Down> {
        self.events.iter().find_map(|event| match event {
            Event::Down(down) if down.remote == remote => Some(down),
            _ => None,
        })
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Receives posted and not matched.
    pub fn posted_receives(&self) -> usize {
        self.posted.len()
    }

    /// Remote endpoints known.
    pub fn remotes(&self) -> usize {
        self.remotes.len()
    }

    /// Introductions of strangers under way.
    pub fn introductions(&self) -> usize {
        self.introductions.len()
    }

    /// Operations that have not completed.
    pub fn requests(&self) -> usize {
        self.ops.under_way()
    }

    /// Looks at the oldest unexpected message that a receive with `bits` and `mask` would accept.
    /// It stays where it is.
    pub fn probe(&mut self, bits: MatchBits, mask: MatchMask) -> Option<Arrival> {
        let oldest = self.unexpected.front(bits, mask)?;
        self.arrival_of(oldest)
    }

    /// The word attached to a remote, 0 if none was; `None` when the id is stale.
    pub fn remote_context(&self, remote: RemoteId) -> Option<u64> {
        self.remotes.of(remote).map(|remote| remote.context)
    }

    /// Attaches a word to a remote. False when the id is stale.
    pub fn set_remote_context(&mut self, remote: RemoteId, context: u64) -> bool {
        let Some(remote) = self.remotes.of_mut(remote) else {
            return false;
        };
        remote.context = context;
        true
    }

    /// All remotes of that name, oldest first, also those that have not answered yet.
    pub fn remotes_of(&self, nic: NicId, endpoint: EndpointId) -> impl Iterator<Item = RemoteId> {
        self.remotes.all_named((nic, endpoint))
    }

    /// The session that was begun from here with that target.
    pub fn called(&self, target: Target) -> Option<RemoteId> {
        self.remotes.called(target)
    }

    /// A remote's name and session; `None` when the id is stale.
    pub fn remote_identity(&self, remote: RemoteId) -> Option<Identity> {
        self.remotes.of(remote).map(Remote::identity)
    }

    #[inline]
    fn has_work(&self) -> bool {
        // Usually nothing is due, so everything is checked without branches in between.
        !self.ready.is_empty() | self.introductions.has_refused() | self.flow.is_ready()
    }

    /// Does the work noted during calls and polls: deferred actions first, as they free memory and
    /// links.
    #[inline(never)]
    fn flush(&mut self) -> bool {
        let mut busy = self.close_refused();
        busy |= self.move_credits();
        busy |= self.fetch();
        busy | self.transmit()
    }

    /// Ends a link, and what came on it that has not been looked at: also what came behind the reason.
    fn close_link(&mut self, link: LinkId, how: Close) {
        let cut = self.forget_link(link);
        self.port.close(link, how);
        self.lose(cut, LinkDown::Closed);
    }

    /// Ends the link of a remote that has been removed.
    fn close_link_of(&mut self, remote: &Remote, how: Close) {
        if let Some((link, _)) = remote.link {
            self.close_link(link, how);
        }
    }

    fn learn_limits(&mut self, id: RemoteId, link: LinkId) {
        let limits = self.port.limits(link);
        if let Some(met) = self.remotes.connected_mut(id) {
            met.link_limits = LinkLimits::of(limits, self.config.eager_max, met.data_links > 0);
            if met.step.is_some() {
                self.port.monitor(link, true);
            }
            self.make_ready(id);
        }
    }

    /// Starts the time-out that an operation has in its present state, if any, afresh; and looks
    /// after its remote.
    fn start_timer(&mut self, id: RequestId, now: Instant) {
        let Some(record) = self.ops.get_mut(id) else {
            return;
        };
        if let Some(timer) = record.timer.take() {
            self.wheel.clear(timer);
        }
        if let Some(timeout) = record.limit().span() {
            let at = now.after(timeout).up_to(deadlines::OPS);
            record.timer = Some(self.wheel.set(now, at, Deadline::Op(id)));
        }
        let to = record.remote;
        if to != NO_REMOTE {
            self.monitor(to, now);
        }
    }

    /// An operation, which is no connect, is with a remote from now on.
    fn attach_op(&mut self, id: RequestId, to: RemoteId) {
        let Self { ops, remotes, .. } = self;
        match remotes.of_mut(to) {
            Some(remote) => ops.attach_op(id.index(), to, false, &mut remote.operations),
            None => ops.record_mut(id.index()).remote = to,
        }
    }

    /// The opposite.
    fn detach_op(&mut self, id: RequestId) {
        let Self { ops, remotes, .. } = self;
        let record = ops.record_mut(id.index());
        let to = std::mem::replace(&mut record.remote, NO_REMOTE);
        if let Some(remote) = remotes.of_mut(to) {
            ops.leave(ListKind::Remote, &mut remote.operations, id.index());
        }
    }

    /// Tells the owner that an operation has ended.
    #[inline(always)]
    fn report(&mut self, id: RequestId, outcome: Outcome) {
        self.owner
            .completed(&mut self.ops, &mut self.events, id, outcome);
    }

    /// Ends an operation and reports it. From here on its memory is not touched.
    fn complete(&mut self, id: RequestId, status: Status, transferred: u32) {
        self.complete_for(id, status, None, transferred);
    }

    /// Ends an operation, perhaps because its remote is lost, and reports it; then the receives that have waited for it.
    #[inline]
    fn complete_for(
        &mut self,
        id: RequestId,
        status: Status,
        lost: Option<DownReason>,
        transferred: u32,
    ) {
        let line = self.leave_order(id);
        self.end_one(id, status, lost, transferred);
        if let Some(line) = line {
            self.report_in_order(line);
        }
    }

    /// Ends an operation and reports it.
    #[inline]
    fn end_one(
        &mut self,
        id: RequestId,
        status: Status,
        lost: Option<DownReason>,
        transferred: u32,
    ) {
        if let Some(fetch) = self.ops.get(id).and_then(|record| record.state.fetches()) {
            return self.end_fetch(id, fetch, status);
        }
        if let Some(outcome) = self.finish_op(id, status, transferred) {
            // A withdrawn send ends with the result that it was withdrawn for.
            let lost = lost.filter(|_| outcome.status == status);
            let outcome = Outcome { lost, ..outcome };
            self.report(id, outcome);
        }
    }

    /// Ends an operation whose end the caller reports. `None`: it is an internal operation.
    fn finish_op(&mut self, id: RequestId, status: Status, transferred: u32) -> Option<Outcome> {
        let record = self.ops.get(id)?;
        let state = &record.state;
        let (kind, length, bits) = match state {
            State::Pulling(pulling) => (OpKind::Recv, pulling.length, pulling.bits),
            State::Posted { .. } => (OpKind::Recv, state.room(), record.bits),
            State::Connecting { .. } => (OpKind::Connect, 0, record.bits),
            State::Pending { receives: true, .. } => (OpKind::Recv, state.room(), record.bits),
            _ => (OpKind::Send, state.room(), record.bits),
        };
        let (status, transferred) = match (state, status) {
            // The receiver has it after all.
            (State::Withdrawn { .. }, Status::Success | Status::Truncated) => (status, transferred),
            (State::Withdrawn { status, .. }, _) => (*status, transferred),
            // Only the report has waited.
            (State::Pulling(pulling), _) if pulling.is_whole() => {
                let received = pulling.wanted;
                (commands::inbound_status(received, pulling.length), received)
            }
            _ => (status, transferred),
        };
        let outcome = Outcome {
            kind,
            status,
            lost: None,
            remote: record.remote,
            bits,
            length,
            transferred,
            matched: matches!(state, State::Pulling(_)),
        };
        let copy = state.is_copy();
        let rests = self.release(id);
        if rests.is_empty() {
            self.ops.finish(id);
        } else if let Some(memory) = self.ops.finish_keeping(id) {
            for (link, Partial { at, end, .. }) in rests {
                self.port.detach(link, &memory, at, end - at);
            }
        }
        if copy {
            self.copy_over(id, &outcome);
            return None;
        }
        Some(outcome)
    }

    /// Lets go of everything an operation still holds but its memory, and takes it out of all lists.
    /// Returns the packets that links have half of.
    fn release(&mut self, id: RequestId) -> SmallVec<[(LinkId, Partial); 1]> {
        let Self {
            port,
            ops,
            remotes,
            spares,
            ..
        } = self;
        let place = id.index();
        let record = ops.record_mut(place);
        if let Some(timer) = record.timer.take() {
            self.wheel.clear(timer);
        }
        if matches!(record.state, State::Posted { .. }) {
            self.posted.remove(ops, id);
        }
        let record = ops.record_mut(place);
        let to = record.remote;
        let mut rests = SmallVec::new();
        let Some(remote) = remotes.of_mut(to) else {
            return rests;
        };
        let tx = remote.tx_link().filter(|_| !self.inherited);
        match &record.state {
            State::Queued { stand, .. } => {
                let lane = O::lane(record.bits);
                if let Some(queues) = remote.queues_mut() {
                    queues.exit(lane, *stand);
                    ops.leave(ListKind::State, &mut queues.lanes[lane as usize], place);
                }
                spares.tidy(&mut remote.queues);
            }
            State::Draining { .. }
            | State::Offered { .. }
            | State::Serving { .. }
            | State::Lending { .. }
            | State::Withdrawn { .. } => {
                if let (Some(link), Some(key)) = (tx, record.state.registered())
                    && let Some(memory) = port.remote_memory(link)
                {
                    memory.deregister(link, key);
                }
                if let (RemoteState::Connected(met), Some(queues)) =
                    (&remote.state, &mut remote.queues)
                {
                    queues.forget(id);
                    let partials = queues.take_partials(id).into_iter();
                    let link_of =
                        |partial: Partial| Some((met.link(partial.link)?.link(), partial));
                    rests = partials.filter_map(link_of).collect();
                }
            }
            State::Pulling(pulling) => {
                self.unexpected
                    .forget_name((to, pulling.send_id), OfferTarget::Pull(id));
                if let (Some(link), true) = (tx, pulling.reading)
                    && let Some(memory) = port.remote_memory(link)
                {
                    memory.recall(link, rendezvous::read_token(id));
                }
            }
            _ => {}
        }
        let transfers = remote.transfers.as_deref_mut();
        let more = transfers.is_some_and(|transfers| transfers.remove(id));
        match ops.record(place).state {
            State::Connecting { .. } => ops.leave(ListKind::State, &mut remote.connects, place),
            _ => ops.leave(ListKind::Remote, &mut remote.operations, place),
        }
        if self.inherited {
            rests.clear();
        }
        if !rests.is_empty() {
            self.make_ready(to);
        }
        if more {
            self.begin_transfers(to);
        }
        rests
    }

    /// Ends an operation that has not run its course, and tells the other side what it must know.
    fn end_unexpected(&mut self, id: RequestId, status: Status, now: Instant) {
        let Some(record) = self.ops.get(id) else {
            return;
        };
        let (word, to) = (id.to_word(), record.remote);
        let farewell = match &record.state {
            State::Withdrawn { .. } => return,
            State::Offered {
                registered: Some(key),
                ..
            }
            | State::Serving {
                registered: Some(key),
                ..
            } if self.remotes.link_limits(to).refusal_ends_link => {
                let key = *key;
                return self.withdraw(id, key, status, now);
            }
            State::Offered { .. } | State::Serving { .. } => {
                Some(wire::Header::new(wire::Kind::Withdraw, word, 0))
            }
            State::Pulling(pulling) if pulling.is_get() => {
                let mut header = wire::Header::new(wire::Kind::Withdraw, word, 0);
                header.aux = wire::OF_GET;
                Some(header)
            }
            // Its sender has nothing more to do with what came at once.
            State::Pulling(pulling) if pulling.send_id != STREAMED => {
                let mut header = wire::Header::new(wire::Kind::Notify, pulling.send_id, 0);
                header.aux = rendezvous::notify_code(Status::Aborted);
                Some(header)
            }
            _ => None,
        };
        let connects = matches!(record.state, State::Connecting { .. });
        self.complete(id, status, 0);
        if let Some(header) = farewell {
            self.push_farewell(to, header);
        }
        if connects {
            self.drop_if_unwanted(to);
        }
    }

    /// Queues a packet without message data for a remote.
    fn push_control(&mut self, to: RemoteId, header: wire::Header, body: &[u8]) {
        if let Some(remote) = self.remotes.of_mut(to) {
            let queues = self.spares.get_or_alloc(&mut remote.queues);
            queues.control.push_back(Control::new(header, body));
            self.controls += 1;
            self.make_ready(to);
        }
    }

    /// Queues a packet without message data for a remote, before all others.
    fn push_control_first(&mut self, to: RemoteId, control: Control) {
        if let Some(remote) = self.remotes.of_mut(to) {
            let queues = self.spares.get_or_alloc(&mut remote.queues);
            queues.control.push_front(control);
            self.controls += 1;
            self.make_ready(to);
        }
    }

    /// Queues what a remote must know of an operation that is over here. One that has read nothing
    /// through thousands of them ends like one that is silent.
    fn push_farewell(&mut self, to: RemoteId, header: wire::Header) {
        self.push_control(to, header, &[]);
        let queues = self.remotes.of(to).and_then(Remote::queues);
        let unread = |queues: &Queues| {
            let kinds = [wire::Kind::Withdraw, wire::Kind::Notify];
            queues.control.len() > FAREWELLS_MAX && queues.count(&kinds) > FAREWELLS_MAX
        };
        if queues.is_some_and(unread) {
            self.fail_remote(to, DownReason::Link(LinkDown::TimedOut));
        }
    }

    /// The link is a remote's from now on.
    fn bind(&mut self, link: LinkId, id: RemoteId) {
        self.bound.bind(link, id);
        self.port.accept(link);
    }

    /// A link is no more, or is about to be closed. Gives the sender of what was coming on it.
    fn forget_link(&mut self, link: LinkId) -> Option<RemoteId> {
        self.bound.forget(link);
        self.challenges.forget(link);
        self.forget_introduction(link);
        self.cut(link)
    }

    /// A remote's link has room again.
    fn open(&mut self, id: RemoteId, link: LinkId) {
        if let Some(met) = self.remotes.connected_mut(id) {
            met.set_tx(Tx::Open(link));
        }
        self.make_ready(id);
    }

    /// Notes that a remote may have something that can go out.
    fn make_ready(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.takes_turn()
        {
            self.ready.push_back(id);
        }
    }
}

/// The cost of a waiting message in the tables, beside its bytes ([`Claim::new`]).
const MESSAGE_COST: usize = 512;
/// The cost of a remote and its link in the tables, including those of the port and of the layer
/// above.
const REMOTE_COST: usize = 4 << 10;

/// Limit of waiting packets to one remote about operations that are over: half a megabyte.
const FAREWELLS_MAX: usize = 4096;
