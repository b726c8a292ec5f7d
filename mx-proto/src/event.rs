//! What an endpoint tells the layer above it.

use crate::ids::{EndpointId, MatchBits, NicId, PartnerId, RequestId, SessionId};
use crate::matching::{Payload, Waiting};
use crate::memory::Source;
use crate::status::{DownReason, Kind, Status};

/// Who an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its network interface.
    pub nic: NicId,
    /// Its number there.
    pub endpoint: EndpointId,
    /// This life of it.
    pub session: SessionId,
}

/// The end of one posted operation. Every request that was `Pending` gives exactly one, unless it
/// was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which request. Stale from now on.
    pub request: RequestId,
    /// What kind of operation it was.
    pub kind: Kind,
    /// The word given when it was posted.
    pub context: u64,
    /// How it ended.
    pub status: Status,
    /// The other side: destination of a send, source of a receive, peer of a connect.
    pub partner: PartnerId,
    /// The message's match bits (a receive: as sent).
    pub bits: MatchBits,
    /// Bytes of the message.
    pub length: u32,
    /// Bytes that were transferred.
    pub transferred: u32,
    /// The other side has heard of it. A send that failed without is as if it had never been posted.
    pub announced: bool,
}

/// What is not the end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A partner is gone, not by our own [`crate::Endpoint::disconnect`]. Its operations have
    /// completed, with completions queued before this event; the id is stale.
    PartnerDown {
        /// Who it was.
        partner: PartnerId,
        /// The word attached to it.
        context: u64,
        /// Its name and session.
        identity: Identity,
        /// Why.
        reason: DownReason,
    },
}

/// A message for which there is no posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Who sent it.
    pub source: PartnerId,
    /// The word attached to the sender, 0 if none.
    pub source_context: u64,
    /// The sender's name and session.
    pub identity: Identity,
    /// Its match bits.
    pub bits: MatchBits,
    /// Its length.
    pub length: u32,
}

/// What is to become of an [`Arrival`].
#[derive(Debug)]
pub enum Verdict<M> {
    /// It waits for a receive as an unexpected message.
    Continue,
    /// It has been consumed, or nobody wants it.
    Finished,
    /// It is decided later, see [`crate::Endpoint::next_deferred`]. Until then nothing further is
    /// taken in; what the same poll still brings is deferred as well, without asking, so that it does
    /// not overtake this one, even if there is a receive for it.
    Defer,
    /// It is to be received into `memory`; a completion with `context` follows.
    Receive {
        /// The buffer.
        memory: M,
        /// The word the completion will carry.
        context: u64,
    },
}

/// A message that waits for a [`Decision`]. It has to come back to [`crate::Endpoint::decide`]: the
/// endpoint takes nothing in before.
#[derive(Debug)]
#[must_use = "the endpoint stands still until the message is decided"]
pub struct Deferred {
    /// What it is.
    pub arrival: Arrival,
    pub(crate) waiting: Waiting,
}

impl Deferred {
    /// All of its bytes; `None` for one that has been offered, whose bytes are still with its sender.
    pub fn body(&self) -> Option<&[u8]> {
        match &self.waiting.payload {
            Payload::Eager(data) => Some(data),
            Payload::Offer { .. } => None,
        }
    }

    /// The same for one that hands out a pointer to whoever may write there.
    pub fn body_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.waiting.payload {
            Payload::Eager(data) => Some(data),
            Payload::Offer { .. } => None,
        }
    }
}

/// What is to become of a [`Deferred`] message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It goes into the oldest posted receive that accepts it, if one has been posted meanwhile;
    /// otherwise it waits for one as an unexpected message.
    Continue,
    /// It has been consumed, or nobody wants it. The sender of an offered message learns of it.
    Finished,
}

/// Decides about messages that match no posted receive, before they become unexpected.
///
/// It answers with a value instead of calling back: the endpoint is busy while it runs.
pub trait Handler<M> {
    /// A message has arrived, with its data or as an offer, and its sender had the credit for it.
    /// Called once for each, before anything else becomes of it, also when it finds a posted receive
    /// or is deferred; not again when a deferred one is decided. `source_context` is the word
    /// attached to its sender, 0 if none.
    #[inline]
    fn arriving(&mut self, _source_context: u64, _bits: MatchBits) {}

    /// `body` is there for messages that came with their data, not for offered ones.
    fn unexpected<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>)
    -> Verdict<M>;
}

/// Keeps everything as unexpected.
#[derive(Debug, Default, Clone, Copy)]
pub struct KeepAll;

impl<M> Handler<M> for KeepAll {
    fn unexpected<B: Source + ?Sized>(&mut self, _: &Arrival, _: Option<&B>) -> Verdict<M> {
        Verdict::Continue
    }
}
