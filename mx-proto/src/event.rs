//! Events that an endpoint reports to the layer above, and questions that it asks.

use crate::ids::{EndpointId, EntryId, MatchBits, NicId, RemoteId, SessionId};
use crate::status::{DownReason, OpKind, Status};

/// Identity of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Network interface of the endpoint.
    pub nic: NicId,
    /// Number of the endpoint on that interface.
    pub endpoint: EndpointId,
    /// Number of this life of the endpoint.
    pub session: SessionId,
}

impl Identity {
    /// Returns the part that stays the same in all lives of the endpoint.
    pub(crate) fn name(&self) -> (NicId, EndpointId) {
        (self.nic, self.endpoint)
    }
}

/// Result of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Kind of the operation.
    pub kind: OpKind,
    /// Result of the operation.
    pub status: Status,
    /// Reason for the loss of the remote, if the operation ended with it; `None` otherwise.
    pub lost: Option<DownReason>,
    /// Peer: destination of a send, source of a receive, peer of a connect.
    pub remote: RemoteId,
    /// Match bits of the message; of a receive, as the sender gave them.
    pub bits: MatchBits,
    /// Length of the message in bytes.
    pub length: u32,
    /// Number of bytes transferred.
    pub transferred: u32,
    /// Whether a receive had matched a message, whole or not. If a receive is cancelled without a match, a message that
    /// arrives later goes to other receives.
    pub matched: bool,
}

impl Outcome {
    /// Returns the outcome of a receive that got `transferred` bytes of a message.
    #[inline]
    pub(crate) fn received(
        status: Status,
        remote: RemoteId,
        bits: MatchBits,
        transferred: u32,
        length: u32,
    ) -> Self {
        Self {
            kind: OpKind::Recv,
            status,
            lost: None,
            remote,
            bits,
            length,
            transferred,
            matched: true,
        }
    }
}

/// Loss of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Down {
    /// Id of the lost remote, which is stale.
    pub remote: RemoteId,
    /// Owner's word for the remote.
    pub context: u64,
    /// Name and session of the remote.
    pub identity: Identity,
    /// Reason for the loss.
    pub reason: DownReason,
    /// Id under which the remote's messages continue to exist; `None` if there are none.
    pub tombstone: Option<RemoteId>,
}

/// Event of an endpoint. The owner polls events with [`crate::Endpoint::next_event`], in the order in which they
/// happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<N> {
    /// The owner added this event itself while it judged a message or handled the end of an operation.
    Owner(N),
    /// A remote is lost, other than by our own [`crate::Endpoint::disconnect`]; its operations have ended before.
    Down(Down),
    /// Two remotes belong to one process; the event may be repeated. Both have one word from now on: that of `other`,
    /// or that of `one` if `other` has none. If both sides join sessions, this event, perhaps by way of a third remote,
    /// comes before anything else of a second remote of that process: a message, or the end of a connect.
    Joined {
        /// The first remote.
        one: RemoteId,
        /// The second remote.
        other: RemoteId,
        /// Name and session of the first remote.
        who: Identity,
    },
    /// [`crate::Endpoint::next_deferred`] may return a message now that it could not return before: its data has been
    /// fetched.
    Decidable,
    /// A [reminder](crate::Endpoint::remind) with this word is due.
    Due(u64),
}

/// Message for which no receive is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Sender of the message.
    pub source: RemoteId,
    /// Owner's word for the sender, 0 if none was set.
    pub source_context: u64,
    /// Name and session of the sender.
    pub identity: Identity,
    /// Match bits of the message.
    pub bits: MatchBits,
    /// Length of the message in bytes.
    pub length: u32,
}

/// Decision of the owner about an [`Arrival`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The message waits for a receive as an unexpected message.
    Continue,
    /// The message has been consumed, or is not wanted.
    Finished,
    /// The message is decided later; see [`crate::Endpoint::next_deferred`]. Until then, all arriving messages are
    /// deferred, too, without asking, so that none overtakes this one, even if a receive is posted for it.
    Defer,
    /// The message goes to the inbox, and [`crate::Endpoint::next_message`] returns it whole; the data of an offered
    /// message is fetched first. A message larger than [`Config::fetched_max`](crate::Config::fetched_max) is dropped.
    Inbox {
        /// Turn in the rotation: a small number shared by messages that keep their order.
        turn: u32,
    },
}

/// A message taken from the inbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<M> {
    /// Turn in which the message waited.
    pub turn: u32,
    /// Sender; a stale id if the remote has been removed meanwhile.
    pub source: RemoteId,
    /// Match bits of the message.
    pub bits: MatchBits,
    /// Data of the message.
    pub memory: M,
}

/// A message that waits for a [`Decision`]. It must be returned to [`crate::Endpoint::decide`]; until then the endpoint
/// receives nothing.
#[derive(Debug)]
#[must_use = "the endpoint stands still until the message is decided"]
pub struct Deferred {
    /// Description of the message.
    pub arrival: Arrival,
    pub(crate) id: EntryId,
    pub(crate) body: Option<Vec<u8>>,
}

impl Deferred {
    /// Returns the data of the message. `None` if the message was offered and its data is still with the sender,
    /// because it is longer than [`PREVIEW_MAX`](crate::PREVIEW_MAX) or there is no memory for it.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// Returns the data of the message, writable, for an owner that hands out a pointer.
    pub fn body_mut(&mut self) -> Option<&mut [u8]> {
        self.body.as_deref_mut()
    }
}

/// Decision about a [`Deferred`] message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The message goes into the oldest posted receive that accepts it, if one has been posted meanwhile; otherwise it
    /// waits as an unexpected message.
    Continue,
    /// The message has been consumed, or is not wanted. The sender of an offered message is told.
    Finished,
}
