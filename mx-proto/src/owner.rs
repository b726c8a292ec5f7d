//! The layer above an endpoint.
//!
//! ```text
//!   Owner ---- send recv end connect progress ----> Endpoint
//!     ^                                                |
//!     '-- completed down arrived memory ready due ------'
//! ```
//!
//! The endpoint owns its owner and reports events to it in the call in which they happen, also in a
//! post or a cancel. The functions of the owner cannot reach the endpoint; what is to be done about
//! an event is done afterwards by the caller of the endpoint.

use crate::event::{Arrival, Completion, Down, Outcome, Verdict};
use crate::flow::Lane;
use crate::ids::{MatchBits, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{Chunks, Ops, Places};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

/// The layer above an endpoint: receives its events.
pub trait Owner: Sized {
    /// Memory of operations.
    type Memory: Memory + fmt::Debug;

    /// The owner's part of each operation.
    type Word: Default + fmt::Debug;

    /// The storage of records, with the owner's words beside them.
    type Places: Places<Self::Memory, Self::Word>;

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
    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome);

    /// A remote is gone, not by our own [`disconnect`](crate::Endpoint::disconnect). Its operations
    /// have completed; the id is stale.
    fn down(&mut self, ops: &mut Ops<Self>, down: Down);

    /// No posted receive accepts a message. `body` is there for messages that came with their data,
    /// not for offered ones.
    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>) -> Verdict;

    /// Memory of `len` bytes, with nothing particular in it: for a message of the [inbox](Verdict::Inbox), or
    /// for a copy of a send. `None`: there is none now.
    fn memory(&mut self, _len: usize) -> Option<Self::Memory> {
        None
    }

    /// A message of this turn can be had from the inbox: told once for each that can, and could not
    /// before.
    #[inline]
    fn ready(&mut self, _turn: u32) {}

    /// An undecided message can perhaps be had from [`next_deferred`](crate::Endpoint::next_deferred), and
    /// could not before: the bytes of one have been fetched.
    #[inline]
    fn decidable(&mut self) {}

    /// A time has come that was set with [`remind`](crate::Endpoint::remind).
    #[inline]
    fn due(&mut self, _word: u64) {}

    /// Whether events wait to be handled; then a thread must not sleep.
    fn has_events(&self) -> bool;
}

/// The contents of an operation, moved into a record only if the operation does not complete at
/// once.
pub trait Posting<O: Owner> {
    /// Its bytes.
    fn memory(&mut self) -> &mut O::Memory;

    /// It does: the bytes, and the owner's word for it.
    fn begin(self) -> (O::Memory, O::Word);

    /// The operation that it is already, with its word. Its remote was not known until now.
    #[inline(always)]
    fn pending(&self) -> Option<RequestId> {
        None
    }
}

impl<O: Owner> Posting<O> for (O::Memory, O::Word) {
    #[inline(always)]
    fn memory(&mut self) -> &mut O::Memory {
        &mut self.0
    }

    #[inline(always)]
    fn begin(self) -> (O::Memory, O::Word) {
        self
    }
}

/// An owner that queues all events, and keeps every message for a later receive.
#[derive(Debug)]
pub struct Queue<M> {
    completions: VecDeque<Completion>,
    downs: VecDeque<Down>,
    memory: PhantomData<M>,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Self {
            completions: VecDeque::new(),
            downs: VecDeque::new(),
            memory: PhantomData,
        }
    }
}

impl<M> Queue<M> {
    /// Keeps what an owner whose words are contexts has been told of an operation, and frees that.
    #[inline]
    pub fn keep<O: Owner<Word = u64>>(&mut self, ops: &mut Ops<O>, op: RequestId, how: Outcome) {
        if let Some(context) = ops.word(op).copied() {
            self.completions.push_back(how.of(op, context));
            ops.free(op);
        }
    }

    /// The oldest completion that has not been fetched.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The oldest loss of a remote that has not been fetched.
    #[inline]
    pub fn next_down(&mut self) -> Option<Down> {
        self.downs.pop_front()
    }

    /// Keeps the loss of a remote, for an owner that has this in it.
    #[inline]
    pub fn keep_down(&mut self, down: Down) {
        self.downs.push_back(down);
    }

    /// The completion of one operation, out of its turn.
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        let mut all = self.completions.iter();
        let at = all.position(|completion| completion.request == request)?;
        self.completions.remove(at)
    }
}

impl<M: Memory + fmt::Debug> Owner for Queue<M> {
    type Memory = M;
    type Word = u64;
    type Places = Chunks<M, u64>;

    #[inline]
    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.keep(ops, op, how);
    }

    #[inline]
    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.keep_down(down);
    }

    fn arrived<B: Source + ?Sized>(&mut self, _: &Arrival, _: Option<&B>) -> Verdict {
        Verdict::Continue
    }

    #[inline]
    fn has_events(&self) -> bool {
        !(self.completions.is_empty() && self.downs.is_empty())
    }
}
