//! The layer above an endpoint.
//!
//! ```text
//!   caller ---- send recv end connect progress ------> Endpoint -- completed greeted arrived memory ready --> Owner
//!     ^                                                   |                                                    |
//!     '-- next_event: Down Joined Decidable Due Owner -- queue <---------------------- owner events -----------'
//! ```
//!
//! The endpoint owns its owner. In the call in which it happens it asks what it must know at once, and tells the ends of
//! operations, which cost least that way. The functions of the owner cannot reach the endpoint: what one of them leaves to
//! the caller of the endpoint it notes among the [events](Event), which that caller polls out afterwards.

use crate::event::{Arrival, Event, Identity, Outcome, Verdict};
use crate::flow::Lane;
use crate::ids::{MatchBits, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{OpStorage, Ops};
use crate::status::Status;
use std::collections::VecDeque;
use std::fmt;

/// Events that have not been polled out, oldest first.
pub type Events<O> = VecDeque<Event<<O as Owner>::OwnerEvent>>;

/// The layer above an endpoint.
pub trait Owner: Sized {
    /// Memory of operations.
    type Memory: Memory + fmt::Debug;

    /// The owner's part of each operation.
    type OpData: Default + fmt::Debug;

    /// The storage of records, with the owner's words beside them.
    type OpStorage: OpStorage<Self::Memory, Self::OpData>;

    /// An event of the owner's own ([`Event::Owner`]).
    type OwnerEvent: fmt::Debug;

    /// Whether a session whose peer says this in its hello is joined with others of its process ([`Event::Joined`]).
    fn joins(_greeting: &[u8]) -> bool {
        false
    }

    /// The bytes that this side says of itself in the hello of a call, or of its answer; more than
    /// [`GREETING_MAX`](crate::wire::GREETING_MAX) are cut off.
    fn greeting(&self, _ops: &Ops<Self>, _to: GreetingRole) -> Vec<u8> {
        Vec::new()
    }

    /// The peer of a session that begins has said this of itself; it is empty if its owner says nothing. Returns the word that the
    /// remote has from now on. An error refuses a peer that has called, with that status; of one that was called it ends the session.
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

    /// The lane of a message to be sent: matched, for a posted receive, or unexpected. Neither lane
    /// waits for the other. An owner that sends only one kind uses one lane.
    #[inline]
    fn lane(_bits: MatchBits) -> Lane {
        Lane::Matched
    }

    /// An operation is over: once for every request that was `Pending`, but for those that
    /// [`cancel_unmatched`](crate::Endpoint::cancel_unmatched) takes back. Its memory is let go of
    /// when the call returns in which this happens, once a port that has it has been told. Its record, and the word with it, is the owner's until that [frees](Ops::free) it,
    /// now or later.
    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    );

    /// [`Self::completed`] of a posted receive that has all of its message, whose outcome is `how`.
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

    /// No posted receive accepts a message. `body` is there for messages that came with their data,
    /// not for offered ones.
    fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Self>,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict;

    /// Memory of `len` bytes, with nothing particular in it: for a message of the [inbox](Verdict::Inbox), or
    /// for a copy of a send. `None`: there is none now.
    fn memory(&mut self, _len: usize) -> Option<Self::Memory> {
        None
    }

    /// A message of this turn can be had from the inbox: told once for each that can, and could not
    /// before.
    #[inline]
    fn ready(&mut self, _turn: u32) {}
}

/// The other side of a session, whom a greeting goes to or comes from, with what the owner finds its peer by: the
/// request id of our connect (`Called`), or the remote's context word, 0 before it has one (`Caller`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GreetingRole {
    /// The side that is called, by this connect.
    Called(RequestId),
    /// The side that calls. In an answer: with the word that its remote has.
    Caller(u64),
}

/// The contents of an operation, moved into a record only if the operation does not complete at
/// once.
pub trait Posting<O: Owner> {
    /// Its bytes.
    fn memory(&mut self) -> &mut O::Memory;

    /// Begins the operation: returns its bytes, and the owner's word for it.
    fn begin(self) -> (O::Memory, O::OpData);

    /// The operation that it is already, with its word. Its remote was not known until now.
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
