//! What the endpoint has reported and the method has not looked at.
//!
//! Owns: the inbox, completions, lost partners, and which sends wait no more.
//! Knows nothing of: peers and operations, which are the method's.

use super::Settings;
use crate::unexpected::Inbox;
use mx_proto::ops::{Chunks, Ops};
use mx_proto::owner::Queue;
use mx_proto::{Arrival, Down, MatchBits, Outcome, Owner, RequestId, Source, Verdict};
use mx_sys::UserMemory;

/// The method's owner of its endpoint.
#[derive(Debug)]
pub struct Reports {
    pub(crate) inbox: Inbox,
    pub(crate) ends: Queue<UserMemory>,
    /// Sends that waited for their turn and do so no more, in no particular order.
    pub(super) departed: Vec<RequestId>,
    /// What was to be remembered by now, see [`Method::on_due`](super::Method::on_due).
    pub(super) due: Vec<u64>,
    /// Messages are of no interest any more.
    pub(super) deaf: bool,
}

impl Reports {
    /// Nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            inbox: Inbox::new(settings.credits, settings.unexpected_max),
            ends: Queue::default(),
            departed: Vec::new(),
            due: Vec::new(),
            deaf: false,
        }
    }

    /// Something waits to be looked at.
    #[inline]
    pub(super) fn has_todo(&self) -> bool {
        self.ends.has_news() || !self.departed.is_empty() || self.inbox.has_todo()
    }
}

impl Owner for Reports {
    type Memory = UserMemory;
    type Word = u64;
    type Places = Chunks<UserMemory, u64>;

    #[inline]
    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.ends.keep(ops, op, how);
    }

    #[inline]
    fn down(&mut self, down: Down) {
        self.ends.down(down);
    }

    #[inline]
    fn arriving(&mut self, source_context: u64, bits: MatchBits) {
        self.inbox.arriving(source_context, bits);
    }

    #[inline]
    fn arrived<B: Source + ?Sized>(
        &mut self,
        arrival: &Arrival,
        body: Option<&B>,
    ) -> Verdict<UserMemory> {
        match self.deaf {
            true => Verdict::Finished,
            false => self.inbox.arrived(arrival, body),
        }
    }

    #[inline]
    fn departed(&mut self, send: RequestId) {
        self.departed.push(send);
    }

    fn due(&mut self, word: u64) {
        self.due.push(word);
    }

    fn has_news(&self) -> bool {
        self.ends.has_news() || !self.due.is_empty()
    }
}
