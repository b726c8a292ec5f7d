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
//! The engine has no lock, no thread and no C: `process` puts it behind a lock, and on the simulator several run in one
//! thread. A request is an operation of the protocol endpoint, which reports its end to `Program`; deferred work is
//! done before a call returns.
//!
//! Owns: everything of one endpoint. The other files: `program` the endpoint's owner, `post` posting and cancelling,
//! `results` completions, `turns` the unexpected handler.
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

/// Interest bit: an unexpected message has arrived (see [`Engine::probe`]).
pub(crate) const UNEXPECTED: Interest = 1 << 60;
/// Interest bit: the unexpected handler has to run, or has finished.
pub(crate) const HANDLER: Interest = 1 << 61;
/// Interest bit: [`Engine::wake_up`] was called.
pub(crate) const WAKEUP: Interest = 1 << 62;

/// Options of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The program's handle of the endpoint.
    pub(crate) handle: EndpointHandle,
    /// Key of the protocol endpoint, to connect to itself.
    pub(crate) key: u32,
    /// Maximum length in bytes of a send that completes without its receiver.
    pub(crate) eager_max: usize,
    /// Position of the context id in match bits; `None` without one.
    pub(crate) context_ids: Option<ContextIds>,
    /// See [`Engine::next_generation`].
    pub(crate) generation: u32,
    /// Address of a C function, or 0; not called here.
    pub(crate) error_handler: usize,
}

/// An open endpoint over port `P` with clock `C`.
#[derive(Debug)]
pub(crate) struct Engine<P, C> {
    endpoint: Endpoint<P, C, Program>,
    /// Memory claimed for one more request.
    room: Claim,
    handling: Handling,
    /// Whether the program has disabled progress.
    disabled: bool,
    wakeups: u64,
}

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// Makes an engine over `endpoint`.
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

    /// Returns the first generation of the next engine in the same slot, so that no request handle of this one is valid
    /// there.
    pub(crate) fn next_generation(&self) -> u32 {
        self.endpoint.ops().next_generation()
    }

    /// Returns the protocol endpoint.
    pub(crate) fn endpoint(&self) -> &Endpoint<P, C, Program> {
        &self.endpoint
    }

    /// Returns the protocol endpoint, to arm and disarm it and to reach its port.
    pub(crate) fn endpoint_mut(&mut self) -> &mut Endpoint<P, C, Program> {
        &mut self.endpoint
    }

    /// Returns the maximum length in bytes of a small message, whatever the ports' limits.
    pub(crate) fn eager_max(&self) -> usize {
        self.options().eager_max
    }

    /// Returns the error handler: the address of a C function, or 0.
    pub(crate) fn error_handler(&self) -> usize {
        self.options().error_handler
    }

    #[inline]
    fn options(&self) -> &Options {
        &self.endpoint.owner().options
    }

    /// Returns the endpoint's identity.
    pub(crate) fn identity(&self) -> Identity {
        self.endpoint.identity()
    }

    /// Returns the number of requests with a handle.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> usize {
        use mx_proto::ops::OpStorage;
        let ops = self.endpoint.ops();
        let all = (0..ops.places().len()).filter_map(|place| ops.at(place));
        all.filter(|op| ops.data(*op).unwrap().has_handle()).count()
    }

    /// Receives what has arrived and sends what can be sent, unless the program's handler is deciding about a message.
    /// Never blocks. Returns whether anything happened.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        if self.is_halted() {
            return self.keep_alive();
        }
        let busy = self.endpoint.progress();
        self.flush();
        busy
    }

    /// Sends keep-alives, so that peers do not time out. Always returns false.
    #[cold]
    fn keep_alive(&mut self) -> bool {
        self.endpoint.keep_alive();
        false
    }

    /// Returns whether nothing may be received: while the handler runs, or progress is disabled. The thread that ends
    /// this wakes sleepers, because their descriptors change.
    #[inline]
    pub(crate) fn is_halted(&self) -> bool {
        self.disabled || self.running().is_some()
    }

    /// Enables or disables progress. A running handler is not stopped.
    pub(crate) fn set_progression(&mut self, on: bool) {
        self.disabled = !on;
        // Waiters must check again: there may be a handler to run.
        self.produce(HANDLER);
    }

    /// Returns the events since the last call: see [`COMPLETIONS`], [`UNEXPECTED`], [`HANDLER`], [`WAKEUP`].
    #[inline]
    pub(crate) fn take_produced(&mut self) -> Interest {
        std::mem::take(&mut self.endpoint.owner_mut().produced)
    }

    /// Records events.
    fn produce(&mut self, what: Interest) {
        self.endpoint.owner_mut().produced |= what;
    }

    /// Makes every waiting thread return.
    pub(crate) fn wake_up(&mut self) {
        self.wakeups += 1;
        self.produce(WAKEUP);
    }

    /// Returns the number of calls of [`Engine::wake_up`].
    #[inline]
    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// Sets the time-out of requests posted from now on; `None`: no limit.
    pub(crate) fn set_request_timeout(&mut self, timeout: Option<Duration>) {
        self.endpoint.set_request_timeout(timeout);
    }

    /// Sets the time-out of one request from now on. A receive that is not matched has no limit all the same.
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

    /// Returns the endpoint's own address.
    pub(crate) fn own_address(&self) -> Address {
        self.endpoint.owner().address(Peers::OWN)
    }

    /// Returns name and life of a peer.
    pub(crate) fn decompose(&self, address: Address) -> Result<Identity, Error> {
        self.connected(address).map(|peer| peer.identity)
    }

    /// Returns the pointer attached to a peer, 0 for none.
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

    /// Disconnects a peer and removes it. Its operations complete as unreachable, its unexpected messages are dropped.
    /// Does nothing for a peer that was disconnected before.
    pub(crate) fn disconnect(&mut self, address: Address) -> Result<(), Error> {
        let key = self.peer_of(address)?;
        let Some(peer) = self.peers().get(key) else {
            return Ok(());
        };
        let (nic, endpoint) = (peer.identity.nic, peer.identity.endpoint);
        // The peer may be connecting again already, in a session that has not sent a message yet.
        let named = self.endpoint.remotes_of(nic, endpoint);
        let coming = named.filter(|coming| self.peers().of_remote(*coming).is_none());
        let ended: Vec<_> = peer.sessions().chain(coming).collect();
        // Requests that end now still report the peer's address.
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

    /// Prepares the endpoint for closing: nothing is held back any more. Returns true while sends that the program
    /// takes for complete have not left.
    pub(crate) fn last_sends(&mut self) -> bool {
        self.set_handler(None);
        self.disabled = false;
        self.endpoint.flow_stats().copies > 0
    }

    /// Closes the endpoint: peers are told, and requests end without a completion.
    pub(crate) fn close(&mut self) {
        self.endpoint.close();
    }

    /// Ends the parent's operations in a child of `fork`: every request completes as unreachable, and every peer is
    /// lost. Nothing may be posted until [`Self::reopen`].
    pub(crate) fn inherit(&mut self) {
        self.endpoint.inherit();
        self.flush();
        self.produce(HANDLER);
    }

    /// Continues over `port`; returns the old port.
    pub(crate) fn reopen(&mut self, config: Config, identity: Identity, port: P) -> P {
        self.endpoint.owner_mut().peers.set_own(identity);
        self.endpoint.reopen(config, identity, port)
    }

    /// Drops everything but the port, which is leaked.
    pub(crate) fn leave_port(self) {
        self.endpoint.leave_port();
    }

    /// Does the work deferred by calls of the protocol endpoint.
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

    /// Handles the end of a receive or a connect: the remote becomes a peer.
    fn on_ended(&mut self, op: RequestId, how: Outcome) {
        if how.kind == OpKind::Connect {
            self.endpoint.owner_mut().peers.answered(how.remote);
        }
        let from = self.peer_of_remote(how.remote).or_else(|| {
            // The remote may be lost already.
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

    /// Returns whether the remote belongs to another peer behind the same address.
    fn is_of_another(&self, remote: RemoteId, key: PeerKey) -> bool {
        let known = self.peers().of_remote(remote);
        known.is_some_and(|known| known != key)
    }

    /// Returns the peer of a remote.
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
        // A tombstone says nothing about the peer's current connection.
        let key = peers.remembered(identity);
        peers.assign_remote(remote, key);
        Some(key)
    }

    /// Returns the address of a remote's peer.
    #[inline]
    fn source(&mut self, remote: RemoteId) -> Address {
        let key = self.peer_of_remote(remote);
        key.map_or(Address::NONE, |key| self.endpoint.owner().address(key))
    }

    /// Returns the peer of an address from the program; it may be removed already.
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
        // The handle got a slot when the engine was made.
        RequestHandle::new(self.options().handle.slot().unwrap_or_default(), op)
    }

    /// Returns the program's request behind a handle.
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

/// Checks that no match bit is outside the mask, where it could match nothing.
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

/// Returns a status with the fields known at posting.
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

/// Bytes that a request may need in all tables, including the protocol endpoint's ([`Claim::new`]).
const REQUEST_COST: usize = 2 << 10;

#[cfg(test)]
mod tests;
