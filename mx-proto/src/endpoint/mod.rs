//! An endpoint: turns posted operations into packets and packets into completions.
//!
//! ```text
//!   commands: send recv end connect disconnect             progress
//!        |                                                    |
//!        v                                                    v
//!     Endpoint  <-------------- inbound <------------------ Port::begin, next
//!        |
//!        +--> outbound ------------------------------------> Port::send, resume
//!        +--> as an event requires --------------------------> Port::close, accept, connect, ...
//!        +--> Owner: completed, arrived, memory, ready
//!        +--> next_event: Down, Joined, Due, ...
//! ```
//!
//! Owns: operations, remotes, matching, timers, the port, events not polled out yet, and its owner, the layer above.
//! Out of scope: locks, threads.
//!
//! Order of calls: any. No call blocks, and an owner cannot call its endpoint. The port returns its events one at a
//! time, so the endpoint acts on an event by calling the port directly: it closes a link, or recalls memory, before it
//! reports the completion.

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
use crate::round::{Begun, Next, PortEvent};
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

/// Open endpoint over the transport `P`, with the clock `C`, for the layer above, `O`. Works only within its calls: the
/// caller must call [`Self::progress`] again and again, and poll [`Self::next_event`].
#[derive(Debug)]
pub struct Endpoint<P, C, O: Owner> {
    port: P,
    clock: C,
    /// Whether the port belongs to the parent process and must not be used ([`Self::inherit`]).
    inherited: bool,
    owner: O,
    events: Events<O>,
    config: Config,
    identity: Identity,
    key: u32,
    /// Operations.
    ops: Ops<O>,
    remotes: Remotes,
    /// Spare queues for remotes that have none yet.
    spares: Spares,
    posted: matching::PostedReceives,
    unexpected: UnexpectedQueue<O::Memory>,
    /// Whether the owner had no memory for a message to fetch; no more is requested until the deadline.
    starved: bool,
    /// Claim on memory for one more unexpected message.
    messages: Claim,
    tombstones: tombstones::Tombstones,
    /// Memory that peers may reach.
    regions: Regions<O::Memory>,
    /// Logged refusals of accesses.
    refused_accesses: regions::Refusals,
    /// Time-outs of operations posted from now on.
    timeouts: TimeOuts,
    flow: Flow,
    /// Whether a deadline is set for the end of the present epoch.
    epoch_ends: bool,
    wheel: Wheel<Deadline>,
    liveness: liveness::Liveness,
    /// Remotes with something to send and room to send it; each at most once.
    ready: VecDeque<RemoteId>,
    bound: BoundLinks,
    data_links: data_links::DataLinks,
    moves: moves::Moves,
    order: order::MatchOrder,
    /// Messages whose bodies are arriving, by link.
    streamed: streamed::AllStreamed,
    bodies: streamed::BodyPool,
    introductions: introductions::Introductions,
    challenges: introductions::Challenges,
    /// Number of queued packets without message data, of all remotes together.
    controls: usize,
    stats: Stats,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Opens an endpoint over `port` with this `identity`, and accepts calls from now on. Connects of peers with
    /// another `key` are refused as [`Status::BadKey`]. `owner` is told of everything that happens.
    pub fn new(config: Config, identity: Identity, key: u32, port: P, clock: C, owner: O) -> Self {
        let share = config.source_share;
        let flow = Flow::new(&config.flow());
        let places = Shares::new(config.max_remotes, share);
        let supply = config.supply;
        Self {
            port,
            clock,
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

    /// Returns the name of this endpoint and the number of its life, as peers see them.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the memory accounting that this endpoint asks ([`Config::supply`]).
    pub fn supply(&self) -> Supply {
        self.config.supply
    }

    /// Returns the settings with which the endpoint was opened.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the time after which a silent remote with operations is lost ([`Config::peer_timeout`]); `None`: never.
    pub fn peer_timeout(&self) -> Option<Duration> {
        self.config.peer_timeout
    }

    /// Handles arrived packets and sends what can be sent. Returns true if anything happened. Never blocks. Does
    /// nothing while a message is [being decided](Self::next_deferred).
    #[inline(always)]
    pub fn progress(&mut self) -> bool {
        let begun = self.look();
        self.progress_from(begun)
    }

    /// Does the first part of [`Self::progress`]: begins a round of the port's active links. After [`Begun::Nothing`]
    /// there is nothing to do; after any other value the caller must go on with [`Self::progress_from`].
    #[inline(always)]
    pub fn look(&mut self) -> Begun {
        if self.unexpected.out().is_some() {
            return Begun::Nothing;
        }
        let begun = self.port.begin_active(self.config.poll_budget);
        match begun {
            Begun::Nothing if !self.is_quiet() => Begun::Active,
            _ => begun,
        }
    }

    /// Does the rest of [`Self::progress`], after [`Self::look`] has returned `begun`. Returns true if anything
    /// happened.
    #[inline(always)]
    pub fn progress_from(&mut self, begun: Begun) -> bool {
        let busy = match begun {
            Begun::Nothing => return false,
            // The round is over at once if all the work is elsewhere.
            Begun::Active => self.take_in(),
            Begun::Elsewhere => self.poll_all_ports(),
        };
        if self.is_quiet() {
            return busy;
        }
        self.catch_up() | busy
    }

    /// Polls all ports, and handles expired deadlines.
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

    /// Does the work that is due beside looking at the port.
    #[inline(never)]
    fn catch_up(&mut self) -> bool {
        self.drop_empty_tombstones();
        self.has_work() && self.flush()
    }

    /// Returns whether there is no work beside looking at the port.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        !(self.has_work() | self.has_events() | self.tombstones.has_spent())
    }

    /// Handles the events of a round of the port. Returns true if there were any.
    #[inline(never)]
    fn take_in(&mut self) -> bool {
        loop {
            if let Some(any) = self.take_ordinary().or_else(|| self.take_other()) {
                return any;
            }
        }
    }

    /// Handles one event of a round of the port. At the end of the round returns whether it had any events.
    #[inline(never)]
    fn take_other(&mut self) -> Option<bool> {
        match self.port.next() {
            Next::Event(PortEvent::Packet { link, header }) => self.on_packet(link, &header),
            Next::Event(event) => self.on_event(event),
            Next::End { any } => return Some(any),
        }
        None
    }

    /// Returns the time at which [`Self::progress`] should be called although nothing arrives. `None`: there is no such
    /// time, or a shown message must be [decided](Self::decide) first.
    pub fn deadline(&self) -> Option<Instant> {
        if self.unexpected.out().is_some() {
            return None;
        }
        Instant::earliest([self.wheel.next(), self.port.deadline()])
    }

    /// Returns the time at which a caller that does not call [`Self::progress`] should call [`Self::keep_alive`].
    /// `None`: peers do not time out silent links.
    pub fn keep_alive_due(&self) -> Option<Instant> {
        self.port.keep_alive_due()
    }

    /// Shows peers that this endpoint is alive, without receiving anything: for callers that take long to decide about
    /// a [message](Self::next_deferred), or do not call [`Self::progress`].
    pub fn keep_alive(&mut self) {
        self.port.keep_alive(self.clock.now());
    }

    /// Prepares for sleeping on [`Self::descriptors`], which become readable when something arrives. Returns false if
    /// there is work to do first: the caller must not sleep, but call [`Self::progress`] or [`Self::next_event`].
    pub fn arm(&mut self) -> bool {
        !self.has_events() && self.ready.is_empty() && !self.flow.is_ready() && self.port.arm()
    }

    /// Undoes [`Self::arm`] after sleeping, so that peers need not wake this process.
    pub fn disarm(&mut self) {
        self.port.disarm();
    }

    /// Returns the descriptors to sleep on, which the port keeps; the caller must not close them.
    pub fn descriptors(&self) -> WakeDescriptors {
        self.port.descriptors()
    }

    /// Returns the port, to ask it.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Returns the port, for calls that only its own type has.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Returns the owner, the layer above.
    #[inline]
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// Returns the owner for changing, for example to take what has been reported to it.
    #[inline]
    pub fn owner_mut(&mut self) -> &mut O {
        &mut self.owner
    }

    /// Returns all operations that have not completed, and completed ones that the owner has not freed.
    #[inline]
    pub fn ops(&self) -> &Ops<O> {
        &self.ops
    }

    /// Returns the owner and the table of operations, both for changing: to take completed operations from the owner's
    /// lists and free them.
    #[inline]
    pub fn split(&mut self) -> (&mut O, &mut Ops<O>) {
        (&mut self.owner, &mut self.ops)
    }

    /// Returns the oldest event and removes it; `None` if there is none. After every call that may cause events, the
    /// caller must call this until it returns `None`: operations may have ended that the owner learns of only by such
    /// an event.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event<O::OwnerEvent>> {
        self.events.pop_front()
    }

    /// Returns whether [`Self::next_event`] has an event to return; a thread must not sleep then.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the loss of a remote, if the event of it has not been polled yet; `None` otherwise.
    pub fn loss_of(&self, remote: RemoteId) -> Option<&Down> {
        self.events.iter().find_map(|event| match event {
            Event::Down(down) if down.remote == remote => Some(down),
            _ => None,
        })
    }

    /// Returns the clock that the endpoint was opened with.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the counters since the endpoint was opened.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the number of posted receives that no message has matched yet.
    pub fn posted_receives(&self) -> usize {
        self.posted.len()
    }

    /// Returns the number of remotes, including those that have not answered yet and tombstones.
    pub fn remotes(&self) -> usize {
        self.remotes.len()
    }

    /// Returns the number of callers that have been asked to prove that they know the site's secret and have not done
    /// so.
    pub fn introductions(&self) -> usize {
        self.introductions.len()
    }

    /// Returns the number of operations in progress; completed ones do not count.
    pub fn requests(&self) -> usize {
        self.ops.under_way()
    }

    /// Returns a description of the oldest unexpected message that a receive with `bits` and `mask` would accept,
    /// without taking it; `None` if there is none.
    pub fn probe(&mut self, bits: MatchBits, mask: MatchMask) -> Option<Arrival> {
        let oldest = self.unexpected.front(bits, mask)?;
        self.arrival_of(oldest)
    }

    /// Returns the number that the owner has attached to a remote, 0 if none was set; `None` if the id is stale.
    pub fn remote_context(&self, remote: RemoteId) -> Option<u64> {
        self.remotes.of(remote).map(|remote| remote.context)
    }

    /// Attaches a number of the owner's to a remote, its context, which events and messages of it carry. Returns false
    /// if the id is stale.
    pub fn set_remote_context(&mut self, remote: RemoteId, context: u64) -> bool {
        let Some(remote) = self.remotes.of_mut(remote) else {
            return false;
        };
        remote.context = context;
        true
    }

    /// Returns all sessions with endpoints of that name, oldest first, including those that have not answered yet;
    /// tombstones are left out.
    pub fn remotes_of(&self, nic: NicId, endpoint: EndpointId) -> impl Iterator<Item = RemoteId> {
        self.remotes.all_named((nic, endpoint))
    }

    /// Returns the session that this endpoint began with that target, answered or not; `None` if there is none now.
    pub fn called(&self, target: Target) -> Option<RemoteId> {
        self.remotes.called(target)
    }

    /// Returns a remote's name and the number of its life, 0 before it has answered; `None` if the id is stale.
    pub fn remote_identity(&self, remote: RemoteId) -> Option<Identity> {
        self.remotes.of(remote).map(Remote::identity)
    }

    #[inline]
    fn has_work(&self) -> bool {
        // Usually nothing is due, so all conditions are checked without branches.
        !self.ready.is_empty() | self.introductions.has_refused() | self.flow.is_ready()
    }

    /// Does the work noted during calls and polls. Deferred actions come first, because they free memory and links.
    #[inline(never)]
    fn flush(&mut self) -> bool {
        let mut busy = self.close_refused();
        busy |= self.move_credits();
        busy |= self.fetch();
        busy | self.transmit()
    }

    /// Closes a link, and drops a message whose body is still arriving on it.
    fn close_link(&mut self, link: LinkId, how: Close) {
        let cut = self.forget_link(link);
        self.port.close(link, how);
        self.lose(cut, LinkDown::Closed);
    }

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

    /// Starts the time-out of an operation's present state afresh, if it has one, and monitors its remote.
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

    /// Lists an operation other than a connect with its remote.
    fn attach_op(&mut self, id: RequestId, to: RemoteId) {
        let Self { ops, remotes, .. } = self;
        match remotes.of_mut(to) {
            Some(remote) => ops.attach_op(id.index(), to, false, &mut remote.operations),
            None => ops.record_mut(id.index()).remote = to,
        }
    }

    /// Takes an operation off its remote's list.
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

    /// Ends an operation and reports it. Its memory is not touched afterwards.
    fn complete(&mut self, id: RequestId, status: Status, transferred: u32) {
        self.complete_for(id, status, None, transferred);
    }

    /// Ends an operation, perhaps because its remote is lost, and reports it; then reports the receives that have
    /// waited for it.
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
            // A withdrawn send ends with the status for which it was withdrawn.
            let lost = lost.filter(|_| outcome.status == status);
            let outcome = Outcome { lost, ..outcome };
            self.report(id, outcome);
        }
    }

    /// Ends an operation; the caller reports it. `None`: it was a buffered copy, or it does not exist.
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
            // The receiver did get the message.
            (State::Withdrawn { .. }, Status::Success | Status::Truncated) => (status, transferred),
            (State::Withdrawn { status, .. }, _) => (*status, transferred),
            // All bytes had arrived; only the report had to wait.
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

    /// Releases everything that an operation holds but its memory, and takes it out of all lists. Returns the packets
    /// of which links have taken a part.
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

    /// Ends an operation early, and tells the peer if it must know.
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
            // A message that came with its data needs no Notify.
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

    /// Queues a packet about an operation that has ended here. A remote that leaves thousands of them unread ends like
    /// a silent one.
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

    fn bind(&mut self, link: LinkId, id: RemoteId) {
        self.bound.bind(link, id);
        self.port.accept(link);
    }

    /// Forgets a link that is down or about to be closed. Returns the sender of a message whose body was arriving on
    /// it.
    fn forget_link(&mut self, link: LinkId) -> Option<RemoteId> {
        self.bound.forget(link);
        self.challenges.forget(link);
        self.forget_introduction(link);
        self.cut(link)
    }

    /// Marks a remote's link as having room again.
    fn open(&mut self, id: RemoteId, link: LinkId) {
        if let Some(met) = self.remotes.connected_mut(id) {
            met.set_tx(Tx::Open(link));
        }
        self.make_ready(id);
    }

    /// Gives a remote a turn to send, unless it has one.
    fn make_ready(&mut self, id: RemoteId) {
        if let Some(remote) = self.remotes.of_mut(id)
            && remote.takes_turn()
        {
            self.ready.push_back(id);
        }
    }
}

/// Bytes that an unexpected message may need in the tables, beside its data ([`Claim::new`]).
const MESSAGE_COST: usize = 512;
/// Bytes that a remote and its link may need in the tables, including those of the port and of the layer above.
const REMOTE_COST: usize = 4 << 10;

/// Maximum number of packets about ended operations that wait for one remote: half a megabyte.
const FAREWELLS_MAX: usize = 4096;
