//! An open endpoint as MX programs see it.
//!
//! ```text
//!   isend irecv iconnect cancel      test test_any peek        probe      disconnect decompose
//!        |                               ^                       ^             |
//!        |          Program:   done (MatchIndex)   unexpected messages   Peers |
//!        v                               ^                       |             v
//!   +------------------- Endpoint (mx-proto) over some port and clock -----------+
//! ```
//!
//! The engine has no lock, no thread and no C: `process` puts it behind a lock, and on the simulator
//! several run in one thread. A request is an operation of the protocol endpoint, which reports its
//! end to `Program`; follow-up work is done before a call returns.
//!
//! Owns: everything of one endpoint. The other files: `program` the endpoint's owner, `post`
//! posting and cancelling, `results` completions, `turns` the unexpected handler.
//! Cost: posting and testing a small message allocate nothing once the tables have grown.

mod context_ids;
mod peers;
mod post;
mod program;
mod results;
mod turns;

pub use context_ids::{CONTEXT_ID_BITS_MAX, ContextIds};
pub use turns::{UnexpectedFunction, UnexpectedHandler};

pub(crate) use context_ids::COMPLETIONS;
pub(crate) use program::Program;
pub(crate) use turns::HandlerTurn;

use crate::error::{Code, Error};
use crate::handles::{Address, EndpointHandle, PeerKey, RequestHandle};
use crate::status::{Status, StatusCode};
use mx_proto::port::Port;
use mx_proto::supply::Claim;
use mx_proto::{Clock, Config, Endpoint, Event, Identity, OpKind, Outcome, RemoteId, RequestId};
use mx_sys::{Interest, UserMemory};
use peers::{Peer, Peers};
use program::{DeferredTask, OpData};
use std::time::Duration;
use turns::Handling;

/// An unexpected message has come (see [`Engine::probe`]).
pub(crate) const UNEXPECTED: Interest = 1 << 60;
/// The unexpected handler is wanted, or has finished.
pub(crate) const HANDLER: Interest = 1 << 61;
/// [`Engine::wake_up`] was called.
pub(crate) const WAKEUP: Interest = 1 << 62;

/// Options of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The program's handle of the endpoint.
    pub(crate) handle: EndpointHandle,
    /// The key the protocol endpoint was made with, to connect to oneself.
    pub(crate) key: u32,
    /// The longest message that is sent without waiting for its receiver.
    pub(crate) eager_max: usize,
    /// Whether match bits carry a context id.
    pub(crate) context_ids: Option<ContextIds>,
    /// See [`Engine::next_generation`].
    pub(crate) generation: u32,
    /// A C function, or 0: only handed through.
    pub(crate) error_handler: usize,
}

/// An open endpoint over port `P` with clock `C`.
#[derive(Debug)]
pub(crate) struct Engine<P, C> {
    endpoint: Endpoint<P, C, Program>,
    /// Room for one more request.
    room: Claim,
    handling: Handling,
    /// The program has forbidden progress.
    disabled: bool,
    wakeups: u64,
}

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// An engine that uses `endpoint`.
    pub(crate) fn new(mut endpoint: Endpoint<P, C, Program>) -> Self {
        let (program, ops) = endpoint.split();
        ops.begin_with(program.options.generation);
        Self {
            room: Claim::new(endpoint.supply(), REQUEST_COST),
            endpoint,
            handling: Handling::default(),
            disabled: false,
            wakeups: 0,
        }
    }

    /// The first generation of the next engine with the same slot, so that no handle of a request
    /// of this one is valid there.
    pub(crate) fn next_generation(&self) -> u32 {
        self.endpoint.ops().next_generation()
    }

    /// The protocol endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint<P, C, Program> {
        &self.endpoint
    }

    /// The protocol endpoint, to arm and disarm it and to reach its port.
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint<P, C, Program> {
        &mut self.endpoint
    }

    /// The longest message that is small, whatever the ports carry.
    pub(crate) fn eager_max(&self) -> usize {
        self.options().eager_max
    }

    /// The error handler: a C function, or 0.
    pub(crate) fn error_handler(&self) -> usize {
        self.options().error_handler
    }

    #[inline]
    fn options(&self) -> &Options {
        &self.endpoint.owner().options
    }

    /// Its identity.
    pub(crate) fn identity(&self) -> Identity {
        self.endpoint.identity()
    }

    /// Requests the program has not taken back.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        use mx_proto::ops::OpStorage;
        let ops = self.endpoint.ops();
        let all = (0..ops.places().len()).filter_map(|place| ops.at(place));
        all.filter(|op| ops.data(*op).unwrap().has_handle()).count()
    }

    /// Takes in what has arrived and gives out what can go, unless the program's handler is deciding
    /// about a message. Never blocks. Returns whether anything happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        if self.is_halted() {
            return self.keep_alive();
        }
        let busy = self.endpoint.progress();
        self.flush();
        busy
    }

    /// Peers that would take silence for our end hear of us. Never anything to come back for.
    #[cold]
    fn keep_alive(&mut self) -> bool {
        self.endpoint.keep_alive();
        false
    }

    /// Whether nothing may be taken in: while the handler runs, or until the program allows it. The thread that ends that wakes
    /// sleepers, because their descriptors change.
    #[inline]
    pub(crate) fn is_halted(&self) -> bool {
        self.disabled || self.running().is_some()
    }

    /// Forbids progress, or allows it again. A handler that runs is not stopped by it.
    pub(crate) fn set_progression(&mut self, on: bool) {
        self.disabled = !on;
        // Waiters must look again: there may be a handler to run.
        self.produce(HANDLER);
    }

    /// New events since the last call: see [`COMPLETIONS`], [`UNEXPECTED`], [`HANDLER`],
    /// [`WAKEUP`].
    #[inline]
    pub(crate) fn take_produced(&mut self) -> Interest {
        std::mem::take(&mut self.endpoint.owner_mut().produced)
    }

    /// Something has come up.
    fn produce(&mut self, what: Interest) {
        self.endpoint.owner_mut().produced |= what;
    }

    /// Every thread that waits for something is to come back.
    pub(crate) fn wake_up(&mut self) {
        self.wakeups += 1;
        self.produce(WAKEUP);
    }

    /// The number of calls of [`Engine::wake_up`].
    #[inline]
    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// For requests posted from now on; `None`: never.
    pub(crate) fn set_request_timeout(&mut self, timeout: Option<Duration>) {
        self.endpoint.set_request_timeout(timeout);
    }

    /// For one request from now on. A receive that nothing has matched waits for ever all the same.
    pub(crate) fn set_timeout_of(
        &mut self,
        request: RequestHandle,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let (op, _) = self.find(request)?;
        if !self.endpoint.ops().is_done(op) {
            self.endpoint.set_timeout_of(op, timeout);
            self.flush();
        }
        Ok(())
    }

    /// The endpoint's own address.
    pub(crate) fn own_address(&self) -> Address {
        self.endpoint.owner().address(Peers::OWN)
    }

    /// Name and life of a peer.
    pub(crate) fn decompose(&self, address: Address) -> Result<Identity, Error> {
        self.connected(address).map(|peer| peer.identity)
    }

    /// The pointer attached to a peer, 0 if none was.
    pub(crate) fn peer_context(&self, address: Address) -> Result<usize, Error> {
        self.connected(address).map(|peer| peer.context)
    }

    fn connected(&self, address: Address) -> Result<&Peer, Error> {
        let key = self.peer_of(address)?;
        self.peers().get(key).ok_or_else(disconnected)
    }

    /// Attaches a pointer to a peer.
    pub(crate) fn set_peer_context(
        &mut self,
        address: Address,
        context: usize,
    ) -> Result<(), Error> {
        let key = self.peer_of(address)?;
        if self.endpoint.owner_mut().peers.set_context(key, context) {
            Ok(())
        } else {
            Err(disconnected())
        }
    }

    /// Ends the connection with a peer and forgets it. What is under way with it completes as
    /// unreachable, its unexpected messages are thrown away. A peer that has been disconnected
    /// before is left alone.
    pub(crate) fn disconnect(&mut self, address: Address) -> Result<(), Error> {
        let key = self.peer_of(address)?;
        let Some(peer) = self.peers().get(key) else {
            return Ok(());
        };
        let (nic, endpoint) = (peer.identity.nic, peer.identity.endpoint);
        // It may be on its way back already, as a session that has not been heard.
        let named = self.endpoint.remotes_of(nic, endpoint);
        let coming = named.filter(|coming| self.peers().of_remote(*coming).is_none());
        let ended: Vec<_> = peer.sessions().chain(coming).collect();
        // Requests that end with it are reported under its name.
        for remote in ended {
            self.endpoint.disconnect(remote);
        }
        for tombstone in self.endpoint.tombstones_of(nic, endpoint) {
            if !self.is_of_another(tombstone, key) {
                self.endpoint.forget_tombstone(tombstone);
            }
        }
        self.flush();
        self.endpoint.owner_mut().peers.remove(key);
        Ok(())
    }

    /// Nothing is kept back any more: the endpoint is about to be closed, and what the program takes
    /// for sent has to leave first. True while there is such.
    pub(crate) fn last_sends(&mut self) -> bool {
        self.set_handler(None);
        self.disabled = false;
        self.endpoint.flow_stats().copies > 0
    }

    /// Ends everything: peers are told, requests are gone without a completion.
    pub(crate) fn close(&mut self) {
        self.endpoint.close();
    }

    /// In a child of `fork`: every request ends as unreachable, and every peer is lost. Until
    /// [`Self::reopen`] nothing may be posted.
    pub(crate) fn inherit(&mut self) {
        self.endpoint.inherit();
        self.flush();
        self.produce(HANDLER);
    }

    /// Goes on over `port`; that of before comes back.
    pub(crate) fn reopen(&mut self, config: Config, identity: Identity, port: P) -> P {
        self.endpoint.owner_mut().peers.set_own(identity);
        self.endpoint.reopen(config, identity, port)
    }

    /// Drops everything but the port, which stays in memory as it is.
    pub(crate) fn leave_port(self) {
        self.endpoint.leave_port();
    }

    /// Follow-up work after calls of the protocol endpoint.
    #[inline]
    fn flush(&mut self) {
        while let Some(event) = self.endpoint.next_event() {
            self.handle(event);
        }
    }

    #[cold]
    fn handle(&mut self, event: Event<DeferredTask>) {
        let program = self.endpoint.owner_mut();
        match event {
            Event::Owner(DeferredTask::Ended(op, how)) => self.on_ended(op, how),
            Event::Owner(DeferredTask::HeardOf(remote, identity)) => {
                if program.peers.of_remote(remote).is_none() {
                    program.peers.connected(identity, remote);
                }
            }
            Event::Down(down) => program.lost(&down),
            Event::Joined { one, other, who } => program.peers.joined(one, other, who),
            Event::Decidable => self.produce(HANDLER),
            Event::Due(_) => {}
        }
    }

    /// A receive has ended, or a connect has been answered: the other side is a peer from now on.
    fn on_ended(&mut self, op: RequestId, how: Outcome) {
        if how.kind == OpKind::Connect {
            self.endpoint.owner_mut().peers.answered(how.remote);
        }
        let from = self.peer_of_remote(how.remote).or_else(|| {
            // It may be gone since.
            let identity = self.endpoint.loss_of(how.remote)?.identity;
            Some(self.endpoint.owner_mut().peers.remembered(identity))
        });
        let (program, ops) = self.endpoint.split();
        program.end(ops, op, how, from);
    }

    #[inline]
    fn peers(&self) -> &Peers {
        &self.endpoint.owner().peers
    }

    /// The remote is another peer, behind the same address.
    fn is_of_another(&self, remote: RemoteId, key: PeerKey) -> bool {
        let known = self.peers().of_remote(remote);
        known.is_some_and(|known| known != key)
    }

    /// The peer behind a remote.
    #[inline]
    fn peer_of_remote(&mut self, remote: RemoteId) -> Option<PeerKey> {
        let known = self.peers().of_remote(remote);
        known.or_else(|| self.new_peer_of_remote(remote))
    }

    #[cold]
    fn new_peer_of_remote(&mut self, remote: RemoteId) -> Option<PeerKey> {
        let identity = self.endpoint.remote_identity(remote)?;
        let tombstone = self.endpoint.is_tombstone(remote);
        let peers = &mut self.endpoint.owner_mut().peers;
        if !tombstone {
            return Some(peers.connected(identity, remote));
        }
        // A tombstone says nothing about the peer's connection now.
        let key = peers.remembered(identity);
        peers.assign_remote(remote, key);
        Some(key)
    }

    /// The address of the peer behind a remote.
    #[inline]
    fn source(&mut self, remote: RemoteId) -> Address {
        let key = self.peer_of_remote(remote);
        key.map_or(Address::NONE, |key| self.endpoint.owner().address(key))
    }

    /// The peer of an address from the program; it need not be connected any more.
    #[inline]
    fn peer_of(&self, address: Address) -> Result<PeerKey, Error> {
        if address.endpoint() == self.options().handle
            && let Some(key) = address.peer()
            && self.peers().existed(key)
        {
            return Ok(key);
        }
        Err(Error::new(
            Code::BadEndpoint,
            "the address is none this endpoint gave out",
        ))
    }

    #[inline]
    fn name(&self, op: RequestId) -> RequestHandle {
        // An engine's handle has been given a slot when it was made.
        RequestHandle::new(self.options().handle.slot().unwrap_or_default(), op)
    }

    /// The program's request behind a handle.
    #[inline]
    fn find(&self, handle: RequestHandle) -> Result<(RequestId, &OpData), Error> {
        let ops = self.endpoint.ops();
        if let Some(op) = ops.at(handle.place())
            && self.name(op) == handle
            && let Some(word) = ops.data(op)
            && word.has_handle()
        {
            return Ok((op, word));
        }
        Err(Error::new(
            Code::BadRequest,
            format!("{:#x} is no request of this endpoint", handle.0),
        ))
    }
}

#[cold]
fn disconnected() -> Error {
    Error::new(Code::BadEndpoint, "the address has been disconnected")
}

/// Bits outside the mask could match nothing.
#[inline]
fn check_mask(match_info: u64, mask: u64) -> Result<(), Error> {
    match match_info & !mask {
        0 => Ok(()),
        _ => Err(Error::new(
            Code::BadMatchMask,
            format!("match bits {match_info:#x} lie outside the mask {mask:#x}"),
        )),
    }
}

/// A status as far as it is known when the request is posted.
#[inline]
fn posted(source: Address, match_info: u64, msg_length: u32, context: usize) -> Status {
    Status {
        code: StatusCode::Success as u32,
        source,
        match_info,
        msg_length,
        xfer_length: 0,
        context,
    }
}

/// The cost of a request in all tables, including the protocol endpoint's ([`Claim::new`]).
const REQUEST_COST: usize = 2 << 10;

#[cfg(test)]
mod tests;
