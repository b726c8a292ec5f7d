//! The method: one object that turns posted operations into messages and messages into
//! completions.
//!
//! ```text
//!   post    cancel     test*                         lookup  drop
//!     |       |          ^                              |
//!     v       v          |                              v
//!   queues            contexts         Inbox        Peers: states, handshake       Host, the owner
//!     |                  ^               ^              |
//!     v                  |               |              v
//!   +-- records -------- Endpoint (mx-proto) over some port and clock ----+
//! ```
//!
//! It knows no lock, no thread and no C: `instance` puts one behind a lock for the process, and on
//! the simulator several run in one thread.
//!
//! An operation has one record, the endpoint's, and a word of the method's beside it (`../op`). When it is over
//! its owner puts it into the list of its context, and that is all until the host asks.
//!
//! What else the endpoint reports is of three classes (GASNet's), each with a limit to what one call of
//! [`Method::progress`] deals with, so that none keeps the others waiting:
//!
//! ```text
//!   SYS   lost partners, the handshake, credits     need nothing; a storm of callers is taken on
//!   |                                               in portions
//!   SAFE  the ends of what is none of the host's    need nothing
//!   |
//!   AM    unexpected messages                       taken in when their credits are there
//! ```
//!
//! What lends and uses credits is counted as it arrives, before everything. Of one partner's,
//! ends come first, then its loss, then the handshake of its next life, so that nothing is
//! taken for a new life's that belongs to the old one: what is left over of a class keeps those
//! behind it waiting. What we send ourselves, credits included, goes in any case.
//!
//! Owns: everything of one life of the method. The files beside this one hold its parts:
//! `host` what the endpoint tells and whom it is about, `connect` the handshake, `refusals` what nothing comes of,
//! `down` how peers are lost, `conversations` what a lost connection has cut, `limits` how long
//! operations wait, `sending` what sends wait for, `tickets` who may have another one, `bounce` copies of
//! small ones, `gauges` what can be seen of all this, `warnings` which limits were hit, `../op/post`
//! posting, `../cancel` cancelling.

mod bounce;
mod connect;
mod conversations;
mod down;
mod gauges;
mod host;
mod inbound;
mod limits;
mod refusals;

mod sending;
mod tickets;
mod warnings;

pub use gauges::{PeerGauges, Stalled};
use host::End;
pub use host::{CONTEXTS, Done, Host};
pub use inbound::{Handout, Unexpected};
pub(crate) use warnings::{Alarm, Alarms, most_of};

use crate::abi::types::{BMI_addr_t, bmi_method_addr};
use crate::config::{Config, PollLimits, lender_settings};
use crate::error::Error;
use crate::match_layout::PEER_ID_MAX;
use crate::op::word::{Role, Word};
use crate::peer::state::Cause;
use crate::peer::table::{PeerKey, Peers};
use crate::unexpected::{Inbox, Pick};
use libc::c_void;
use mx_proto::ledger::{Lender, LenderSettings};
use mx_proto::port::Port;
use mx_proto::supply::Claim;
use mx_proto::{Clock, Down, Endpoint, Instant, Received, RequestId, Status};
use mx_sys::UserMemory;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::time::Duration;
use tickets::Tickets;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostKind {
    /// A send the receiver has posted a receive for, or will.
    Send,
    /// A send the receiver takes with `testunexpected`.
    SendUnexpected,
    /// A receive.
    Recv,
}

/// An operation to be posted.
#[derive(Debug)]
pub struct Post {
    /// What it does.
    pub kind: PostKind,
    /// With whom.
    pub addr: NonNull<bmi_method_addr>,
    /// Its bytes.
    pub memory: UserMemory,
    /// Its tag.
    pub tag: i32,
    /// The host's word.
    pub user_ptr: *mut c_void,
    /// Where it is reported, 0 to 15.
    pub context: i64,
}

impl Post {
    /// Its bytes, which are an operation's from now on.
    #[inline]
    pub(crate) fn take_memory(&mut self) -> UserMemory {
        std::mem::replace(&mut self.memory, UserMemory::empty())
    }
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posted {
    /// It is under way, and will be reported once.
    Pending,
    /// It is done, and will not be reported.
    Complete {
        /// Bytes transferred.
        size: i64,
    },
}

/// What of the configuration concerns the method itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the handshake with a peer may take.
    pub connect_timeout: Option<Duration>,
    /// How long a send may wait for its receiver.
    pub send_timeout: Option<Duration>,
    /// The same for an unexpected one.
    pub unexpected_timeout: Option<Duration>,
    /// How long a receive may wait for its message.
    pub recv_timeout: Option<Duration>,
    /// The largest unexpected message.
    pub unexpected_max: usize,
    /// Messages up to this many bytes go with their data.
    pub eager_max: u32,
    /// Bytes that unexpected messages may take up here; `credits.total` follows from it.
    pub unexpected_memory: usize,
    /// Who may leave how much here unasked.
    pub credits: LenderSettings,
    /// Sends that the endpoint has at a time.
    pub send_tickets: u32,
    /// Bytes of small sends that are copied because they have to wait.
    pub bounce_bytes: usize,
    /// What one call deals with at most.
    pub poll: PollLimits,
    /// Peers at most.
    pub peer_limit: u32,
}

impl Settings {
    /// Lets unexpected messages of at most `largest` bytes take up `memory` bytes here in all.
    pub fn limit_unexpected(&mut self, memory: usize, largest: usize) {
        self.unexpected_max = largest;
        self.unexpected_memory = memory;
        self.credits = lender_settings(memory, largest, self.credits);
    }
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            send_timeout: config.send_timeout,
            unexpected_timeout: config.unexpected_timeout,
            recv_timeout: config.recv_timeout,
            unexpected_max: config.unexpected_max,
            unexpected_memory: config.unexpected_memory,
            eager_max: u32::try_from(config.mx.endpoint.eager_max).unwrap_or(u32::MAX),
            credits: config.lender(),
            send_tickets: config.send_tickets,
            bounce_bytes: config.bounce_bytes,
            poll: config.poll,
            peer_limit: PEER_ID_MAX,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&Config::default())
    }
}

/// A running method over port `P` with clock `C`.
#[derive(Debug)]
pub struct Method<P, C> {
    pub(crate) endpoint: Endpoint<P, C, Host>,
    pub(crate) settings: Settings,
    /// What we call ourselves in CONN_REQ.
    name: String,
    /// Room for one more of them.
    pub(crate) room: Claim,
    /// Sends that the endpoint has.
    pub(crate) tickets: Tickets,
    /// Copies of small sends.
    pub(crate) bounce: bounce::Bounce,
    /// What they had to wait for.
    pub(crate) stalls: gauges::Stalls,
    /// Bytes for early messages at the endpoint that are worth a warning.
    early_alarm: usize,
    /// Peers with something to send that may be able to go.
    line: VecDeque<PeerKey>,
    /// What is about credits and waits for the end of a handshake.
    early: Vec<(PeerKey, sending::Early)>,
    /// Names of dead peers the host has to be told.
    forgotten: Vec<BMI_addr_t>,
    /// A thread is telling the host of a new peer.
    registering: bool,
}

/// What all tables have for an operation, the endpoint's included ([`Claim::new`]).
pub(crate) const OPERATION_COST: usize = 2 << 10;

/// The bit of [`Method::take_produced`] for unexpected messages; those below are the contexts.
pub const UNEXPECTED_READY: u64 = 1 << 16;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// A method that calls itself `name` and uses `endpoint`, which must have been made with
    /// [`crate::match_layout::KEY`].
    pub fn new(settings: Settings, name: String, endpoint: Endpoint<P, C, Host>) -> Self {
        let room = Claim::new(endpoint.supply(), OPERATION_COST);
        Self {
            early_alarm: warnings::most_of_lent(endpoint.unexpected_usage().1),
            endpoint,
            tickets: Tickets::new(settings.send_tickets),
            bounce: bounce::Bounce::new(settings.bounce_bytes),
            stalls: gauges::Stalls::default(),
            line: VecDeque::new(),
            early: Vec::new(),
            settings,
            name,
            room,
            forgotten: Vec::new(),
            registering: false,
        }
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The endpoint below.
    pub fn endpoint(&self) -> &Endpoint<P, C, Host> {
        &self.endpoint
    }

    /// The endpoint below, to arm and disarm it and to reach its port.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<P, C, Host> {
        &mut self.endpoint
    }

    /// Unexpected messages, and the credits they are paid with.
    #[inline]
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.endpoint.owner().inbox
    }

    /// The same, to take some out.
    #[inline]
    pub(crate) fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.endpoint.owner_mut().inbox
    }

    /// The peers, to look at.
    pub fn peers(&self) -> &Peers {
        &self.endpoint.owner().peers
    }

    #[inline]
    pub(crate) fn peers_mut(&mut self) -> &mut Peers {
        &mut self.endpoint.owner_mut().peers
    }

    /// Operations posted and not handed out.
    pub fn operations(&self) -> usize {
        self.endpoint.ops().places().shown()
    }

    /// Unexpected messages that can be had now.
    pub fn unexpected(&self) -> usize {
        self.inbox().len()
    }

    /// What is lent to whom.
    pub fn lender(&self) -> &Lender {
        &self.inbox().lender
    }

    /// Messages of handshakes that are not over, and what was said about credits meanwhile.
    pub fn handshakes_kept(&self) -> usize {
        self.inbox().notes() + self.early.len()
    }

    /// Bytes of unexpected messages that wait here, a little overhead for each included.
    pub fn unexpected_bytes(&self) -> usize {
        self.inbox().bytes()
    }

    /// Completions that wait in a context.
    pub fn done_waiting(&self, context: i64) -> usize {
        self.endpoint.owner().done_waiting(context as usize)
    }

    /// Takes in what has arrived and gives out what can go. Never blocks. Returns whether anything
    /// happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let busy = self.endpoint.progress();
        let todo = self.endpoint.owner().has_todo() || !self.line.is_empty();
        (busy || todo || self.endpoint.looked_around()) && self.follow_up(busy, todo)
    }

    /// What comes after a call of the endpoint, if there is anything. `busy`: it has found something.
    /// `todo`: there is something to drain.
    #[inline(never)]
    fn follow_up(&mut self, mut busy: bool, todo: bool) -> bool {
        if busy {
            self.watch_memory();
        }
        if todo {
            busy |= self.drain_within(self.settings.poll);
        } else {
            self.endpoint.owner_mut().ended.clear();
        }
        if self.inbox().wants_more() {
            busy |= self.pick_up();
        }
        if self.endpoint.looked_around() {
            if let Some(at) = self.inbox().lender.deadline() {
                busy |= self.tend_credits(at);
            } else {
                self.inbox_mut().lender.rest();
            }
        }
        while let Some(key) = self.inbox_mut().pop_crowd() {
            self.relieve(key);
        }
        while let Some(word) = self.endpoint.owner_mut().due.pop() {
            busy |= self.on_due(word);
        }
        if self.inbox().alarms.pending() {
            self.warn();
        }
        busy
    }

    /// When [`Self::progress`] wants to be called although nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        let credits = self.inbox().lender.deadline();
        let hungry = self.inbox().is_hungry();
        let again = hungry.then(|| self.endpoint.clock().now().after(HUNGER));
        let all = [self.endpoint.deadline(), credits, again];
        all.into_iter().flatten().min()
    }

    /// What has come up since the last call: a bit for each context with completions, and
    /// [`UNEXPECTED_READY`].
    #[inline]
    pub fn take_produced(&mut self) -> u64 {
        let host = self.endpoint.owner_mut();
        let mut produced = host.take_produced();
        if host.inbox.take_produced() {
            produced |= UNEXPECTED_READY;
        }
        produced
    }

    /// The end of operation `id`, if it has come.
    #[inline]
    pub fn take_done(&mut self, id: i64, context: i64) -> Result<Option<Done>, Box<Error>> {
        let op = self.find(id, context)?;
        let (host, ops) = self.endpoint.split();
        Ok(host.take(ops, op))
    }

    /// Are there completed operations in a context?
    #[inline]
    pub fn has_done(&self, context: i64) -> bool {
        self.endpoint.owner().done_waiting(context as usize) != 0
    }

    /// The oldest completed operation of a context.
    #[inline]
    pub fn pop_done(&mut self, context: i64) -> Option<Done> {
        let (host, ops) = self.endpoint.split();
        host.pop(ops, context as usize)
    }

    /// Completions that nobody picks up any more.
    pub fn close_context(&mut self, context: i64) {
        let mut dropped = 0;
        while self.pop_done(context).is_some() {
            dropped += 1;
        }
        if dropped > 0 {
            log::debug!("context {context} closed with {dropped} completions nobody asked for");
        }
    }

    /// Are there peers that have died and that the host has not been told of?
    #[inline]
    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Names of dead peers, once each, for the host's `forget` function.
    pub fn take_forgotten(&mut self) -> Vec<BMI_addr_t> {
        std::mem::take(&mut self.forgotten)
    }

    /// Ends everything: peers are told, operations are gone without a completion. What was sent last
    /// may still have to leave: that is [`Self::leave`].
    pub fn close(&mut self) {
        self.endpoint.close();
        let host = self.endpoint.owner_mut();
        host.ends.clear();
        host.downs.clear();
        host.todo.clear();
        host.deaf = true;
    }

    /// The only thing to be called after [`Self::close`]: gives out what can go. Whoever comes now is
    /// turned away, and what waited in the queues of a peer never goes. Returns whether anything
    /// happened.
    pub fn leave(&mut self) -> bool {
        let busy = self.endpoint.progress();
        if self.endpoint.partners() > 0 {
            self.close();
        }
        busy
    }

    #[inline]
    pub(crate) fn find(&self, id: i64, context: i64) -> Result<RequestId, Box<Error>> {
        Host::find(self.endpoint.ops(), id, context).ok_or_else(|| unknown_operation(id, context))
    }

    /// What it keeps of an operation.
    #[inline]
    pub(crate) fn word(&self, op: RequestId) -> Option<&Word> {
        self.endpoint.ops().word(op)
    }

    /// The same to change it.
    #[inline]
    pub(crate) fn word_mut(&mut self, op: RequestId) -> Option<&mut Word> {
        self.endpoint.split().1.word_mut(op)
    }

    /// Takes in everything the endpoint has to say.
    #[inline]
    pub(crate) fn drain(&mut self) -> bool {
        self.drain_within(PollLimits::NONE)
    }

    /// As much of it as `limits` allows. Returns whether anything happened.
    #[inline]
    fn drain_within(&mut self, mut limits: PollLimits) -> bool {
        let mut busy = false;
        self.endpoint.owner_mut().ended.clear();
        loop {
            while limits.safe > 0
                && let Some(end) = self.endpoint.owner_mut().ends.pop_front()
            {
                limits.safe -= 1;
                self.on_end(&end);
                busy = true;
            }
            if limits.safe == 0 {
                return busy;
            }
            if let Some(down) = self.endpoint.owner_mut().downs.pop_front() {
                self.on_down(&down);
            } else if let Some(key) = self.endpoint.owner_mut().todo.pop() {
                self.line_up(key);
                if let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) {
                    self.stalls.settle(peer);
                }
                self.look_after(key);
            } else if limits.sys > 0
                && let Some(note) = self.inbox_mut().pop_note()
            {
                self.on_note(note);
                limits.sys -= 1;
            } else if limits.sys > 0
                && let Some((peer, tiding)) = self.inbox_mut().pop_tiding()
            {
                // Which came after the notes.
                self.on_tiding(peer, tiding);
            } else if self.has_turns() && self.serve_line()
                || self.inbox().lender.has_errands() && self.lend()
            {
                // Which may have completed something.
            } else {
                return busy;
            }
            busy = true;
        }
    }

    /// What is due about credits although nothing has come.
    #[cold]
    fn tend_credits(&mut self, at: Instant) -> bool {
        self.inbox_mut().now = self.endpoint.clock().now();
        at <= self.inbox_mut().now && {
            let (host, crowds) = self.endpoint.owner_and_crowds();
            let peers = &host.peers;
            let crowded = move |id| {
                let peer = peers.with_id(id).and_then(|key| peers.get(key));
                let partner = peer.and_then(|peer| peer.state.partner());
                partner.is_some_and(&crowds)
            };
            let inbox = &mut host.inbox;
            inbox.lender.tick_unless(inbox.now, crowded);
            self.drain()
        }
    }

    /// An operation that is none of the host's is over.
    #[cold]
    fn on_end(&mut self, end: &End) {
        match end.role {
            Role::Fetch => self.inbox_mut().on_received(end.number, &end.how),
            Role::Handshake => self.on_handshake_sent(end.peer, &end.how),
            Role::Connect => self.on_connected(end.peer, end.op, &end.how),
            Role::Copy => self.on_bounced(end.peer, &end.how),
            // The other side's loss is told by itself.
            Role::Control | Role::Posted(_) => {}
        }
    }

    fn on_down(&mut self, down: &Down) {
        let key = PeerKey::from_word(down.context);
        let of_now = self
            .peers()
            .get(key)
            .is_some_and(|peer| peer.state.partner() == Some(down.partner));
        let cause = Cause::of_down(down.reason);
        if of_now && !(cause == Cause::Reset && self.retry(key)) {
            self.disconnect(key, cause, false);
        }
    }

    /// Receives messages that were left at the endpoint, as far as there is room.
    #[cold]
    fn pick_up(&mut self) -> bool {
        let mut busy = false;
        // Who has no right to more is passed by, once.
        let mut passed = 0;
        let mut left = self.settings.poll.am;
        while left > 0 {
            let Some((peer, bits, mask)) = self.inbox_mut().wanted() else {
                break;
            };
            let Some(arrival) = self.endpoint.probe(bits, mask) else {
                self.inbox_mut().has_all(peer);
                continue;
            };
            let (memory, context) = match self.inbox_mut().pick_up(&arrival) {
                Pick::Receive(memory, context) => (memory, context),
                Pick::Drop => {
                    self.endpoint.discard(bits, mask, Status::Truncated);
                    (busy, passed) = (true, 0);
                    left -= 1;
                    continue;
                }
                Pick::Next if passed < self.inbox().held().min(PASSED_BY) => {
                    passed += 1;
                    continue;
                }
                Pick::Next | Pick::Wait => {
                    self.inbox_mut().tried();
                    break;
                }
            };
            (busy, passed) = (true, 0);
            left -= 1;
            // Only this message: the buffer is made for it, whoever may come next.
            let word = Word::fetch(context);
            if let Some(Received::Complete(how)) =
                self.endpoint.recv_present(bits, mask, memory, word)
            {
                self.inbox_mut().on_received(context, &how);
            }
        }
        if busy {
            self.drain();
        }
        busy
    }

    /// The time has come that the reminder of a peer's handshake was set to. Returns whether it was late.
    #[cold]
    fn on_due(&mut self, word: u64) -> bool {
        let now = self.endpoint.clock().now();
        let key = PeerKey::from_word(word);
        let peer = self.peers_mut().get_mut(key);
        // Another one may have been set meanwhile.
        if peer.is_none_or(|peer| peer.wait_until.take_if(|(at, _)| *at <= now).is_none()) {
            return false;
        }
        self.disconnect(key, Cause::TimedOut, true);
        self.drain();
        true
    }
}

/// Peers that are passed by in one go because too much of theirs waits here: when that is taken, the
/// next have their turn.
const PASSED_BY: usize = 64;

/// After so long memory that there was not is asked for once more.
const HUNGER: Duration = Duration::from_millis(10);

#[cold]
fn unknown_operation(id: i64, context: i64) -> Box<Error> {
    Box::new(Error::UnknownOperation { id, context })
}

/// How an operation of the host's ends.
#[inline]
pub(crate) fn code_of(status: Status) -> i32 {
    match status {
        Status::Success => 0,
        other => Error::Transfer(other).code(),
    }
}
