//! Undecided messages: one that matched no receive, and those behind it.
//!
//! ```text
//!   arrival, unmatched or --> [ oldest ... youngest ] -- next --> out, being decided -- back -->
//!   behind one that was                   `-- withdraw, forget: its sender takes it back, or is gone
//! ```
//!
//! Owns: their bytes, except those of the one that is out.
//! Cost: removing from the middle is a linear search; there are only the messages of one poll.

use crate::flow::Paid;
use crate::ids::RemoteId;
use crate::matching::Waiting;
use crate::origin::Source;
use std::collections::VecDeque;

/// A message that is being decided elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    from: RemoteId,
    pub(crate) paid: Paid,
    /// Its sender has gone, and what it costs is a tombstone from there.
    pub(crate) tombstone: Option<Source>,
}

/// All undecided messages of one endpoint. Every one is younger than every unexpected message.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    queue: VecDeque<Waiting>,
    /// One has been handed out and has not come back.
    out: Option<Out>,
    /// All of them. Every call of progress asks whether it is 0.
    count: usize,
}

impl Undecided {
    /// Nothing waits and nothing is out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of waiting messages, including the one that is out.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// One waits and can be handed out.
    pub(crate) fn waits(&self) -> bool {
        self.out.is_none() && !self.queue.is_empty()
    }

    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.queue.push_back(waiting);
        self.recount();
    }

    /// Takes out the oldest; `None` while one is out.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        if self.out.is_some() {
            return None;
        }
        let next = self.queue.pop_front();
        self.recount();
        next
    }

    /// Records that the message from [`Self::next`] is out for a decision.
    pub(crate) fn hand_out(&mut self, source: RemoteId, paid: Paid) {
        debug_assert!(self.out.is_none(), "two messages are being decided");
        self.out = Some(Out {
            from: source,
            paid,
            tombstone: None,
        });
        self.recount();
    }

    /// It is decided. `None` when none was out.
    pub(crate) fn take_back(&mut self) -> Option<Out> {
        let was_out = self.out.take();
        self.recount();
        was_out
    }

    /// Takes out the offer `send_id` of `source`.
    pub(crate) fn withdraw(&mut self, source: RemoteId, send_id: u64) -> Option<Waiting> {
        let mut all = self.queue.iter();
        let at = all.position(|waiting| waiting.is_offer(source, send_id))?;
        let found = self.queue.remove(at);
        self.recount();
        found
    }

    /// The number of complete messages from `source`.
    pub(crate) fn whole_of(&self, source: RemoteId) -> usize {
        let all = self.queue.iter();
        all.filter(|waiting| waiting.is_whole_of(source)).count()
    }

    /// Puts another name on the oldest `count` whole messages from `source`.
    pub(crate) fn rename(&mut self, source: RemoteId, to: RemoteId, count: usize) {
        let all = self.queue.iter_mut();
        for waiting in all
            .filter(|waiting| waiting.is_whole_of(source))
            .take(count)
        {
            waiting.source = to;
        }
    }

    /// Takes out everything from `source` that is `wanted`.
    pub(crate) fn forget(
        &mut self,
        source: RemoteId,
        wanted: impl Fn(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let goes = |waiting: &Waiting| waiting.source == source && wanted(waiting);
        let mut gone = Vec::new();
        for _ in 0..self.queue.len() {
            if let Some(waiting) = self.queue.pop_front() {
                if goes(&waiting) {
                    gone.push(waiting);
                } else {
                    self.queue.push_back(waiting);
                }
            }
        }
        self.recount();
        gone
    }

    /// The message that is being decided, if it is from `source`.
    pub(crate) fn out_of(&mut self, source: RemoteId) -> Option<&mut Out> {
        self.out.as_mut().filter(|out| out.from == source)
    }

    fn recount(&mut self) {
        self.count = self.queue.len() + usize::from(self.out.is_some());
    }
}
