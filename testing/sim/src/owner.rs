//! An owner whose events a test looks at afterwards.
//!
//! ```text
//!   next_event --take_events--> Queue --next_completion, next_down--> test
//!                                 `-- seen, joined --> Verdicts <-- arrived, memory
//! ```

use mx_proto::flow::Lane;
use mx_proto::ops::{ChunkedStorage, Ops};
use mx_proto::port::Port;
use mx_proto::{
    Arrival, Clock, Down, Endpoint, Event, Events, MatchBits, Memory, OpKind, Outcome, Owner,
    RemoteId, RequestId, Source, Status, Verdict,
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
    /// The result of a receive that got its message when it was posted: it names no request.
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

    /// Notes that a message with these bits has come from a remote, or a connect to it has been answered.
    fn seen(&mut self, _remote: RemoteId, _bits: MatchBits) {}
}

/// A note of a [`Queue`] among the events.
#[derive(Clone, Copy, Debug)]
pub enum QueueEvent {
    /// An operation is over.
    Completed(Completion),
    /// A message with these bits has come from a remote, and no receive accepts it.
    Arrived(RemoteId, MatchBits),
}

/// Keeps every message for a later receive.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keep;

impl<M> Verdicts<M> for Keep {}

/// An owner that keeps what has been polled out until it is fetched.
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

    /// Returns the completion of one operation, which stays.
    pub fn peek(&self, request: RequestId) -> Option<&Completion> {
        let mut all = self.completions.iter();
        all.find(|completion| completion.request == request)
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
    type OpData = u64;
    type OwnerEvent = QueueEvent;
    type OpStorage = ChunkedStorage<M, u64>;

    fn joins(greeting: &[u8]) -> bool {
        V::joins(greeting)
    }

    fn lane(bits: MatchBits) -> Lane {
        V::lane(bits)
    }

    fn completed(
        &mut self,
        ops: &mut Ops<Self>,
        events: &mut Events<Self>,
        op: RequestId,
        how: Outcome,
    ) {
        if let Some(context) = ops.data(op).copied() {
            let completion = Completion {
                request: op,
                context,
                outcome: how,
            };
            events.push_back(Event::Owner(QueueEvent::Completed(completion)));
            ops.free(op);
        }
    }

    fn arrived<B: Source + ?Sized>(
        &mut self,
        events: &mut Events<Self>,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict {
        let note = QueueEvent::Arrived(arrival.source, arrival.bits);
        events.push_back(Event::Owner(note));
        self.verdicts.arrived(arrival, body)
    }

    fn memory(&mut self, len: usize) -> Option<M> {
        self.verdicts.memory(len)
    }

    fn ready(&mut self, turn: u32) {
        self.verdicts.ready(turn);
    }
}

/// An endpoint whose owner is a [`Queue`].
pub trait Reports {
    /// Polls out all events.
    fn take_events(&mut self);

    /// The oldest completion that has not been fetched.
    fn next_completion(&mut self) -> Option<Completion>;

    /// The oldest loss of a remote that has not been fetched.
    fn next_down(&mut self) -> Option<Down>;

    /// The completion of one operation, out of its turn.
    fn take_completion(&mut self, request: RequestId) -> Option<Completion>;
}

impl<P, C, M, V> Reports for Endpoint<P, C, Queue<M, V>>
where
    P: Port<M>,
    C: Clock,
    M: Memory + fmt::Debug,
    V: Verdicts<M>,
{
    fn take_events(&mut self) {
        while let Some(event) = self.next_event() {
            let queue = self.owner_mut();
            match event {
                Event::Owner(QueueEvent::Completed(completion)) => {
                    let how = &completion.outcome;
                    if how.kind != OpKind::Send && how.status == Status::Success {
                        queue.verdicts.seen(how.remote, how.bits);
                    }
                    queue.completions.push_back(completion);
                }
                Event::Owner(QueueEvent::Arrived(source, bits)) => {
                    queue.verdicts.seen(source, bits)
                }
                Event::Down(down) => queue.downs.push_back(down),
                Event::Joined { one, other, .. } => queue.verdicts.joined(one, other),
                Event::Decidable | Event::Due(_) => {}
            }
        }
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.take_events();
        self.owner_mut().completions.pop_front()
    }

    fn next_down(&mut self) -> Option<Down> {
        self.take_events();
        self.owner_mut().downs.pop_front()
    }

    fn take_completion(&mut self, request: RequestId) -> Option<Completion> {
        self.take_events();
        let completions = &mut self.owner_mut().completions;
        let at = completions.iter().position(|of| of.request == request)?;
        completions.remove(at)
    }
}
