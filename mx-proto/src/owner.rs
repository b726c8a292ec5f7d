//! Owner: the layer above an endpoint.
//!
//! ```text
//!   caller ---- send recv end connect progress ------> Endpoint -- completed greeted arrived memory ready --> Owner
//!     ^                                                   |                                                    |
//!     '-- next_event: Down Joined Decidable Due Owner -- queue <---------------------- owner events -----------'
//! ```
//!
//! The endpoint owns its owner. It asks the owner within the call in which something happens, and reports the ends of
//! operations to it directly, because that costs least. The owner's functions cannot reach the endpoint. Whatever they
//! leave to the caller of the endpoint, they add to the [events](Event), which that caller polls afterwards.

use crate::event::{Arrival, Event, Identity, Outcome, Verdict};
use crate::flow::Lane;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{OpStorage, Ops};
use crate::status::Status;
use std::collections::VecDeque;
use std::fmt;

/// Queue of an endpoint's events, oldest first. The endpoint and its owner append events;
/// [`Endpoint::next_event`](crate::Endpoint::next_event) removes them.
pub type Events<O> = VecDeque<Event<<O as Owner>::OwnerEvent>>;

/// Layer above an endpoint: the endpoint asks it for decisions and reports completions to it, within its own calls. The
/// functions must not block and cannot reach the endpoint.
pub trait Owner: Sized {
    /// Memory of operations.
    type Memory: Memory + fmt::Debug;

    /// Owner's data of each operation.
    type OpData: Default + fmt::Debug;

    /// Storage of records, with the owner's data beside them.
    type OpStorage: OpStorage<Self::Memory, Self::OpData>;

    /// Event of the owner's own ([`Event::Owner`]).
    type OwnerEvent: fmt::Debug;

    /// Returns whether a session whose peer sends this greeting is joined with other sessions of its process
    /// ([`Event::Joined`]).
    fn joins(_greeting: &[u8]) -> bool {
        false
    }

    /// Returns the greeting to send in the hello of a call or of its answer. More than
    /// [`GREETING_MAX`](crate::wire::GREETING_MAX) bytes are cut off.
    fn greeting(&self, _ops: &Ops<Self>, _to: GreetingRole) -> Vec<u8> {
        Vec::new()
    }

    /// Handles the greeting in the hello of a new session's peer, which is empty if its owner sends none. Returns the
    /// word for the remote. An error refuses a peer that has called, with that status; for a peer that was called it
    /// ends the session.
    fn greeted(
        &mut self,
        _ops: &Ops<Self>,
        _from: GreetingRole,
        _who: &Identity,
        _remote: RemoteId,
        _greeting: &[u8],
    ) -> Result<u64, Status> {
        Ok(0)
    }

    /// Returns the lane for a message to be sent: matched, for a posted receive, or unexpected. Neither lane waits for
    /// the other. An owner that sends only one kind uses one lane.
    #[inline]
    fn lane(_bits: MatchBits) -> Lane {
        Lane::Matched
    }

    /// Handles the end of an operation: called once for every request that was `Pending`, except those cancelled with
    /// [`cancel_unmatched`](crate::Endpoint::cancel_unmatched). The endpoint releases its memory before the current
    /// call returns, once a port that uses it has been told. The record and the data in it stay until the owner
    /// [frees](Ops::free) them, now or later.
    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    );

    /// Handles the end of a posted receive that has got its whole message, as [`Self::completed`] does; `how` returns
    /// the outcome.
    #[inline(always)]
    fn received(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        _transferred: u32,
        how: impl FnOnce() -> Outcome,
    ) {
        self.completed(ops, events, op, how());
    }

    /// Judges a message that no posted receive accepts. `body`: the data of the message, `None` if it was only offered.
    fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Self>,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict;

    /// Returns memory of `len` bytes with any contents, for a message of the [inbox](Verdict::Inbox) or for a copy of a
    /// send. `None`: there is none now.
    fn memory(&mut self, _len: usize) -> Option<Self::Memory> {
        None
    }

    /// Handles one more message of this turn that the inbox can return: called once for each message.
    #[inline]
    fn ready(&mut self, _turn: u32) {}
}

/// Receiver or sender of a greeting, from the view of this endpoint, with a number by which the owner finds the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GreetingRole {
    /// Side that we called, with the request id of our connect.
    Called(RequestId),
    /// Side that called us, with the owner's word for the remote, 0 before there is one.
    Caller(u64),
}

/// Memory and owner's data of an operation that is being posted. [`Self::begin`] moves both into the table of
/// operations; a post that returns that it is complete has used the memory and does not call it.
pub trait Posting<O: Owner> {
    /// Returns the memory of the operation.
    fn memory(&mut self) -> &mut O::Memory;

    /// Begins the operation: returns its memory and the owner's data for it.
    fn begin(self) -> (O::Memory, O::OpData);

    /// Returns the pending operation that this posting activates; `None`: it is a new one.
    #[inline]
    fn pending(&self) -> Option<RequestId> {
        None
    }
}

impl<O: Owner> Posting<O> for (O::Memory, O::OpData) {
    #[inline]
    fn memory(&mut self) -> &mut O::Memory {
        &mut self.0
    }

    #[inline]
    fn begin(self) -> (O::Memory, O::OpData) {
        self
    }
}
