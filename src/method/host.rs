//! What the method's endpoint tells, and whom it tells it of.
//!
//! Owns: the inbox and the peers; completions and lost partners that the method has not looked at, and which
//! sends wait no more.
//! Knows nothing of: handshakes.

use super::Settings;
use crate::peer::table::Peers;
use crate::unexpected::Inbox;
use mx_proto::ops::{Chunks, Ops};
use mx_proto::owner::Queue;
use mx_proto::{Arrival, Down, MatchBits, Outcome, Owner, RequestId, Source, Verdict};
use mx_sys::UserMemory;

/// The method's owner of its endpoint.
#[derive(Debug)]
pub struct Host {
    pub(crate) inbox: Inbox,
    pub(crate) peers: Peers,
    pub(super) ends: Queue<UserMemory>,
    /// Sends that waited for their turn and do so no more, in no particular order.
    pub(super) departed: Vec<RequestId>,
    /// Messages are of no interest any more.
    pub(super) deaf: bool,
}

impl Host {
    /// Nothing yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            inbox: Inbox::new(settings.credits, settings.unexpected_max),
            peers: Peers::new(settings.peer_limit),
            ends: Queue::default(),
            departed: Vec::new(),
            deaf: false,
        }
    }
}

impl Owner for Host {
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

    fn has_news(&self) -> bool {
        self.ends.has_news()
    }
}
