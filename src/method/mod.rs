//! The method: one object that turns posted operations into messages and messages into completions.
//!
//! ```text
//!   post    cancel     test*                         lookup  drop
//!     |       |          ^                              |
//!     v       v          |                              v
//!   pending            contexts        ArrivalPolicy  Peers: states, handshake       Host, the owner
//!     |                  ^               ^              |
//!     v                  |               |              v
//!   +-- records -------- Endpoint (mx-proto) over some port and clock ----+
//! ```
//!
//! The method has no lock, no thread and no C pointers: `instance` puts one behind a lock for the process, and on the
//! simulator several run in one thread.
//!
//! An operation has one record, the endpoint's, with the method's data beside it (`../op`). A completed operation stays
//! in the list of its context (`completions`) until the host tests it.
//!
//! Events are polled from the endpoint after each call, in the order in which they happened: an event of a remote's old
//! life is never taken for one of the new. The endpoint's poll limits their number per call.
//!
//! Owns: everything of one opening of the method. The other files: `host` the endpoint's owner, `completions`
//! completions not tested yet, `attempts` connecting, `connect` the handshake, `refusals` rejected connection requests,
//! `down` loss of peers, `inherit` children of fork, `conversations` exchanges cut by a lost connection, `limits` time
//! limits, `names` names of unreachable peers, `gauges` levels, `warnings` low memory, `../op/post` posting,
//! `../cancel` cancelling.

mod attempts;
mod completions;
mod connect;
mod conversations;
mod down;
mod gauges;
mod host;
mod inbound;
mod inherit;
mod limits;
mod names;
mod refusals;
mod warnings;

pub use completions::Done;
pub use gauges::{MethodReport, PeerGauges};
pub use host::{CONTEXTS, DeferredTask, Host};
pub use inbound::{NextUnexpected, Unexpected};
pub use names::NameQuery;

use crate::abi::types::{BMI_addr_t, bmi_method_addr};
use crate::arrivals::ArrivalPolicy;
use crate::config::Config;
use crate::error::Error;
use crate::match_layout::{MessageType, PEER_ID_MAX};
use crate::op::data::{OpData, Role};
use crate::peer::state::Cause;
use crate::peer::table::{PeerKey, Peers};
use libc::c_void;
use mx_proto::port::Port;
use mx_proto::round::Begun;
use mx_proto::supply::Claim;
use mx_proto::{Clock, Down, Endpoint, Event, Instant, RequestId, SendMode};
use mx_sys::UserMemory;
use std::ptr::NonNull;
use std::time::Duration;

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostKind {
    /// A send that matches a posted receive.
    Send,
    /// A send that the receiver takes with `testunexpected`.
    SendUnexpected,
    /// A receive.
    Recv,
}

impl PostKind {
    /// Returns the message type of a send.
    #[inline]
    pub(crate) const fn message_type(self) -> MessageType {
        match self {
            Self::SendUnexpected => MessageType::Unexpected,
            Self::Send | Self::Recv => MessageType::Expected,
        }
    }

    /// Returns the mode of a send. Small expected sends that have to wait are copied, so that a server does not wait
    /// for slow clients. Unexpected sends are not: their wait is the receiver's back-pressure.
    #[inline]
    pub(crate) const fn send_mode(self) -> SendMode {
        match self {
            Self::SendUnexpected => SendMode::Standard,
            Self::Send | Self::Recv => SendMode::Buffered,
        }
    }
}

/// An operation to be posted.
#[derive(Debug)]
pub struct Post {
    /// Kind of the operation.
    pub kind: PostKind,
    /// Address object of the peer.
    pub addr: NonNull<bmi_method_addr>,
    /// Buffer of the message.
    pub memory: UserMemory,
    /// Tag of the message.
    pub tag: i32,
    /// Class of an unexpected message; 0 where the host has no classes.
    pub class: u8,
    /// The host's pointer, returned with the completion.
    pub user_ptr: *mut c_void,
    /// Context in which the operation is reported, 0 to 15.
    pub context: i64,
}

/// Result of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostOutcome {
    /// The operation is in progress, and a test call will report it.
    Pending,
    /// The operation is complete, and no test call will report it.
    Complete {
        /// Bytes transferred.
        size: i64,
    },
}

/// The part of the configuration that concerns the method itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time limit of connecting to a peer, handshake included; `None`: no limit.
    pub connect_timeout: Option<Duration>,
    /// Time after which an unmatched expected send is cancelled; `None`: not while the peer lives.
    pub send_timeout: Option<Duration>,
    /// Time after which an unexpected send is cancelled that its receiver has no room for; `None`: not while the peer
    /// lives.
    pub unexpected_timeout: Option<Duration>,
    /// Time after which an unmatched receive is cancelled; `None`: not while the peer lives.
    pub recv_timeout: Option<Duration>,
    /// Size limit of unexpected messages, in bytes.
    pub unexpected_max: usize,
    /// Largest class of unexpected messages; 0 where the host has no classes.
    pub class_max: u8,
    /// Maximum number of peers.
    pub peer_limit: u32,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            connect_timeout: config.connect_timeout,
            send_timeout: config.send_timeout,
            unexpected_timeout: config.unexpected_timeout,
            recv_timeout: config.recv_timeout,
            unexpected_max: config.mx.endpoint.fetched_max as usize,
            class_max: crate::host::facts().class_max,
            peer_limit: PEER_ID_MAX,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&Config::default())
    }
}

/// Running BMI method over port `P` with clock `C`: its endpoint, peers and operations. No call blocks; the caller
/// provides the lock.
#[derive(Debug)]
pub struct Method<P, C> {
    pub(crate) endpoint: Endpoint<P, C, Host>,
    pub(crate) settings: Settings,
    /// Memory claimed for one more operation.
    pub(crate) room: Claim,
    /// Bytes of unexpected messages above which a warning is logged.
    memory_alarm: usize,
    /// The host's ids of lost peers that it has not been told of.
    forgotten: Vec<BMI_addr_t>,
    /// Names to be resolved again.
    questions: Vec<NameQuery>,
    /// Whether a thread is registering a new peer with the host.
    registering: bool,
}

/// Bytes that an operation may need in all tables, including the endpoint's ([`Claim::new`]).
pub(crate) const OPERATION_COST: usize = 2 << 10;

/// Bit of [`Method::take_produced`] for unexpected messages; the lower ones are the contexts.
pub const UNEXPECTED_READY: u64 = 1 << 16;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// Makes a method over `endpoint`, which must have been made with [`crate::match_layout::KEY`]. `name`: the name by
    /// which this process introduces itself to peers.
    pub fn new(settings: Settings, name: String, mut endpoint: Endpoint<P, C, Host>) -> Self {
        endpoint.owner_mut().name = name;
        let room = Claim::new(endpoint.supply(), OPERATION_COST);
        Self {
            memory_alarm: warnings::most_of_lent(
                endpoint.unexpected_usage().1,
                settings.unexpected_max,
            ),
            endpoint,
            settings,
            room,
            forgotten: Vec::new(),
            questions: Vec::new(),
            registering: false,
        }
    }

    /// Returns the protocol endpoint that the method uses.
    pub fn endpoint(&self) -> &Endpoint<P, C, Host> {
        &self.endpoint
    }

    /// Returns the protocol endpoint that the method uses, to arm and disarm it and to reach its port.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<P, C, Host> {
        &mut self.endpoint
    }

    #[inline]
    pub(crate) fn unmatched(&self) -> &ArrivalPolicy {
        &self.endpoint.owner().arrivals
    }

    #[inline]
    pub(crate) fn arrivals_mut(&mut self) -> &mut ArrivalPolicy {
        &mut self.endpoint.owner_mut().arrivals
    }

    /// Returns the table of peers.
    pub fn peers(&self) -> &Peers {
        &self.endpoint.owner().peers
    }

    #[inline]
    pub(crate) fn peers_mut(&mut self) -> &mut Peers {
        &mut self.endpoint.owner_mut().peers
    }

    /// Returns the number of operations posted and not reported.
    pub fn operations(&self) -> usize {
        self.endpoint.ops().places().shown()
    }

    /// Returns the number of unexpected messages available now.
    pub fn unexpected(&self) -> usize {
        self.endpoint.messages()
    }

    /// Returns the number of completions that wait in a context.
    pub fn done_waiting(&self, context: i64) -> usize {
        self.endpoint.owner().done_waiting(context as usize)
    }

    /// Receives what has arrived and sends what can be sent. Never blocks. Returns whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        let begun = self.endpoint.look();
        self.progress_from(begun)
    }

    /// Implements the front of [`Self::progress`]. Returns [`Begun::Nothing`] if there is no work, and no need to
    /// continue.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Begun {
        self.endpoint.look()
    }

    /// Does the work that [`Self::look`] has found.
    #[inline(always)]
    pub(crate) fn progress_from(&mut self, begun: Begun) -> bool {
        let busy = self.endpoint.progress_from(begun);
        if begun == Begun::Elsewhere {
            self.watch_memory();
        }
        if self.endpoint.has_events() {
            self.handle_events();
            return true;
        }
        busy
    }

    /// Returns the time at which [`Self::progress`] should be called even if nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        self.endpoint.deadline()
    }

    /// Returns, and clears, the events since the last call: a bit for each context with new completions, and
    /// [`UNEXPECTED_READY`].
    #[inline]
    pub fn take_produced(&mut self) -> u64 {
        let host = self.endpoint.owner_mut();
        let mut produced = host.take_produced();
        if host.arrivals.take_produced() {
            produced |= UNEXPECTED_READY;
        }
        produced
    }

    /// Removes and returns the completion of operation `id`; `None` if it has not completed. Fails if there is no such
    /// operation in `context`.
    #[inline]
    pub fn take_done(&mut self, id: i64, context: i64) -> Result<Option<Done>, Box<Error>> {
        let op = self.find(id, context)?;
        let (host, ops) = self.endpoint.split();
        Ok(host.take(ops, op))
    }

    /// Returns whether completed operations wait in a context.
    #[inline]
    pub fn has_done(&self, context: i64) -> bool {
        self.endpoint.owner().done_waiting(context as usize) != 0
    }

    /// Removes and returns the first completion of a context; `None` if there is none.
    #[inline]
    pub fn pop_done(&mut self, context: i64) -> Option<Done> {
        let (host, ops) = self.endpoint.split();
        host.pop(ops, context as usize)
    }

    /// Drops the completions of a context that no test call has taken. Operations in progress continue.
    pub fn close_context(&mut self, context: i64) {
        let mut dropped = 0;
        while self.pop_done(context).is_some() {
            dropped += 1;
        }
        if dropped > 0 {
            log::debug!("closed context {context} with {dropped} unreported completions");
        }
    }

    /// Returns whether there are lost peers that the host has not been told of.
    #[inline]
    pub fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Returns whether there is work after [`Self::progress`] for which the caller has to release the lock.
    #[inline]
    pub(crate) fn has_rest(&self) -> bool {
        self.has_forgotten() | self.has_questions()
    }

    /// Removes and returns the host's ids of peers lost since the last call, for the caller to pass to the host's
    /// `forget` function without the lock.
    pub fn take_forgotten(&mut self) -> Vec<BMI_addr_t> {
        std::mem::take(&mut self.forgotten)
    }

    /// Disconnects all peers, which are told, and ends all operations without a completion. [`Self::leave`] sends the
    /// last packets.
    pub fn close(&mut self) {
        self.endpoint.close();
        self.forget_events();
        self.endpoint.owner_mut().discarding = true;
    }

    /// Sends the last packets after [`Self::close`], when no other function may be called. New peers are rejected, and
    /// messages still queued for a peer are never sent. Returns whether anything happened.
    pub fn leave(&mut self) -> bool {
        let busy = self.endpoint.progress();
        if self.endpoint.remotes() > 0 {
            self.close();
        }
        self.forget_events();
        busy
    }

    #[inline]
    pub(crate) fn find(&self, id: i64, context: i64) -> Result<RequestId, Box<Error>> {
        Host::find(self.endpoint.ops(), id, context).ok_or_else(|| unknown_operation(id, context))
    }

    /// Returns the method's data of an operation.
    #[inline]
    pub(crate) fn op_data_mut(&mut self, op: RequestId) -> Option<&mut OpData> {
        self.endpoint.split().1.data_mut(op)
    }

    /// Handles the endpoint's events.
    #[inline(never)]
    pub(crate) fn handle_events(&mut self) {
        while let Some(event) = self.endpoint.next_event() {
            match event {
                Event::Owner(DeferredTask::End {
                    op,
                    role,
                    peer,
                    how,
                }) => match role {
                    Role::Handshake => self.on_handshake_sent(peer, &how),
                    Role::Connect => self.on_connected(peer, op, &how),
                    // The loss of the remote is a separate event.
                    Role::None | Role::Posted(_) => {}
                },
                Event::Owner(DeferredTask::Handshake(message)) => self.on_handshake(&message),
                Event::Owner(DeferredTask::OverQuota(key)) => self.shed(key),
                Event::Down(down) => self.on_down(&down),
                Event::Due(word) => self.on_due(word),
                Event::Joined { .. } | Event::Decidable => {}
            }
        }
    }

    /// Drops the endpoint's events: of all that has happened only completions still matter.
    fn forget_events(&mut self) {
        while self.endpoint.next_event().is_some() {}
    }

    fn on_down(&mut self, down: &Down) {
        let key = PeerKey::from_word(down.context);
        let of_now = self
            .peers()
            .get(key)
            .is_some_and(|peer| peer.state.remote() == Some(down.remote));
        let cause = Cause::of_down(down.reason);
        if of_now {
            self.end_joined(key, down.identity.session);
        }
        if of_now && !(cause == Cause::Reset && self.retry(key, cause)) {
            self.disconnect(key, cause);
        }
    }

    /// Handles the reminder of a peer's handshake.
    #[cold]
    fn on_due(&mut self, word: u64) {
        if self.on_next_due(word) {
            return;
        }
        let now = self.endpoint.clock().now();
        let key = PeerKey::from_word(word);
        let peer = self.peers_mut().get_mut(key);
        // Another reminder may have been set meanwhile.
        let wait = peer.and_then(|peer| peer.wait.as_mut());
        if wait.is_none_or(|wait| wait.until.take_if(|(at, _)| *at <= now).is_none()) {
            return;
        }
        let mut cause = Cause::TimedOut;
        if let (Some(peer), Some(span)) = (self.peers().get(key), self.settings.connect_timeout) {
            if let Some(wait) = &peer.wait {
                cause = wait.attempts.cause_of_failure(cause);
            }
            let ms = span.as_millis();
            log::warn!(
                "{}: no answer within {ms} ms (BMI_MX_CONNECT_TIMEOUT_MS); giving up",
                peer.name
            );
        }
        self.disconnect(key, cause);
    }
}

#[cold]
fn unknown_operation(id: i64, context: i64) -> Box<Error> {
    Error::invalid(format!("{id:#x} is no operation of context {context}"))
}
