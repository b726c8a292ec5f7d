//! An owner that queues what it is told, for tests that look at it afterwards.
//!
//! ```text
//!   completed, down --> Queue --next_completion, next_down, take--> test
//! ```

use mx_proto::ops::{Chunks, Ops};
use mx_proto::{Arrival, Down, Memory, Outcome, Owner, RequestId, Source, Verdict};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

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
    pub fn keep<O: Owner<Word = u64>>(&mut self, ops: &mut Ops<O>, op: RequestId, how: Outcome) {
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

    /// The oldest completion that has not been fetched.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The oldest loss of a remote that has not been fetched.
    pub fn next_down(&mut self) -> Option<Down> {
        self.downs.pop_front()
    }

    /// Keeps the loss of a remote, for an owner that has this in it.
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

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.keep(ops, op, how);
    }

    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.keep_down(down);
    }

    fn arrived<B: Source + ?Sized>(&mut self, _: &Arrival, _: Option<&B>) -> Verdict {
        Verdict::Continue
    }

    fn has_events(&self) -> bool {
        !(self.completions.is_empty() && self.downs.is_empty())
    }
}
