//! An owner that queues what it is told, for tests that look at it afterwards.
//!
//! ```text
//!   completed, down --> Queue --next_completion, next_down, take--> test
//!   arrived, memory, joined --> Verdicts
//! ```

use mx_proto::flow::Lane;
use mx_proto::ops::{Chunks, Ops};
use mx_proto::{
    Arrival, Down, Identity, MatchBits, Memory, Outcome, Owner, RemoteId, RequestId, Source,
    Verdict,
};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The end of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request; its id is stale from now on.
    pub request: RequestId,
    /// The word given when it was posted.
    pub context: u64,
    /// The result.
    pub outcome: Outcome,
}

impl Deref for Completion {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.outcome
    }
}

impl Completion {
    /// That of a receive that got its message when it was posted: it names no request.
    pub fn at_once(outcome: Outcome, context: u64) -> Self {
        Self {
            request: RequestId::new(u32::MAX, 0),
            context,
            outcome,
        }
    }
}

/// The decisions of an owner about messages; those of [`Owner`].
pub trait Verdicts<M> {
    /// Whether a session is joined with others of its process.
    fn joins(_greeting: &[u8]) -> bool {
        false
    }

    /// The lane of a message to be sent.
    fn lane(_bits: MatchBits) -> Lane {
        Lane::Matched
    }

    /// Decides about a message that no receive accepts.
    fn arrived<B: Source + ?Sized>(&mut self, _arrival: &Arrival, _body: Option<&B>) -> Verdict {
        Verdict::Continue
    }

    /// Returns memory for a message of the inbox.
    fn memory(&mut self, _len: usize) -> Option<M> {
        None
    }

    /// Notes that a message of a turn can be had from the inbox.
    fn ready(&mut self, _turn: u32) {}

    /// Notes that two remotes are of one process.
    fn joined(&mut self, _one: RemoteId, _other: RemoteId) {}

    /// Notes that an operation is over, before its completion can be fetched.
    fn completed(&mut self, _how: &Outcome) {}
}

/// Keeps every message for a later receive.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keep;

impl<M> Verdicts<M> for Keep {}

/// An owner that queues all events.
#[derive(Debug)]
pub struct Queue<M, V = Keep> {
    verdicts: V,
    completions: VecDeque<Completion>,
    downs: VecDeque<Down>,
    memory: PhantomData<M>,
}

impl<M, V: Default> Default for Queue<M, V> {
    fn default() -> Self {
        Self::new(V::default())
    }
}

impl<M, V> Queue<M, V> {
    /// An owner without events.
    pub fn new(verdicts: V) -> Self {
        Self {
            verdicts,
            completions: VecDeque::new(),
            downs: VecDeque::new(),
            memory: PhantomData,
        }
    }

    /// The oldest completion that has not been fetched.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The oldest loss of a remote that has not been fetched.
    pub fn next_down(&mut self) -> Option<Down> {
        self.downs.pop_front()
    }

    /// The completion of one operation, which stays.
    pub fn peek(&self, request: RequestId) -> Option<&Completion> {
        let mut all = self.completions.iter();
        all.find(|completion| completion.request == request)
    }

    /// The completion of one operation, out of its turn.
    pub fn take(&mut self, request: RequestId) -> Option<Completion> {
        let mut all = self.completions.iter();
        let at = all.position(|completion| completion.request == request)?;
        self.completions.remove(at)
    }
}

impl<M, V> Deref for Queue<M, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.verdicts
    }
}

impl<M, V> DerefMut for Queue<M, V> {
    fn deref_mut(&mut self) -> &mut V {
        &mut self.verdicts
    }
}

impl<M: Memory + fmt::Debug, V: Verdicts<M>> Owner for Queue<M, V> {
    type Memory = M;
    type Word = u64;
    type Places = Chunks<M, u64>;

    fn joins(greeting: &[u8]) -> bool {
        V::joins(greeting)
    }

    fn lane(bits: MatchBits) -> Lane {
        V::lane(bits)
    }

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.verdicts.completed(&how);
        if let Some(context) = ops.word(op).copied() {
            let completion = Completion {
                request: op,
                context,
                outcome: how,
            };
            self.completions.push_back(completion);
            ops.free(op);
        }
    }

    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.downs.push_back(down);
    }

    fn joined(&mut self, one: RemoteId, other: RemoteId, _: Identity) {
        self.verdicts.joined(one, other);
    }

    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>) -> Verdict {
        self.verdicts.arrived(arrival, body)
    }

    fn memory(&mut self, len: usize) -> Option<M> {
        self.verdicts.memory(len)
    }

    fn ready(&mut self, turn: u32) {
        self.verdicts.ready(turn);
    }

    fn has_events(&self) -> bool {
        !(self.completions.is_empty() && self.downs.is_empty())
    }
}
