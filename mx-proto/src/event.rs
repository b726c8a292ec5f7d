//! Events that an endpoint reports to the layer above, and questions that it asks.

use crate::ids::{EndpointId, EntryId, MatchBits, NicId, RemoteId, SessionId};
use crate::status::{DownReason, OpKind, Status};

/// Name of an endpoint and the number of its present life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Network interface of the endpoint.
    pub nic: NicId,
    /// Number of the endpoint on that interface.
    pub endpoint: EndpointId,
    /// Number of this life of the endpoint; a restarted process has the same name and another number.
    pub session: SessionId,
}

impl Identity {
    /// Returns the part that stays the same in all lives of the endpoint.
    pub(crate) fn name(&self) -> (NicId, EndpointId) {
        (self.nic, self.endpoint)
    }
}

/// Result of an operation that has ended.
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
    /// Match bits of the message, for a receive those that the sender gave; for a connect those given with it.
    pub bits: MatchBits,
    /// Length of the message in bytes; for a receive without a match the size of its buffer.
    pub length: u32,
    /// Number of bytes transferred; less than `length` if the buffer was too small or the operation failed.
    pub transferred: u32,
    /// Whether a message had been matched to the receive, even if not all of it was received. A receive cancelled
    /// without a match took no message: the next one goes to other receives.
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
    /// Owner's word for the remote ([`crate::Endpoint::set_remote_context`]), 0 if none was set.
    pub context: u64,
    /// Name and session of the remote.
    pub identity: Identity,
    /// Reason for the loss.
    pub reason: DownReason,
    /// Id under which the remote's messages continue to exist; `None` if there are none.
    pub tombstone: Option<RemoteId>,
}

/// Event of an endpoint, which the caller polls with [`crate::Endpoint::next_event`]. Events come in the order in which
/// they happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<N> {
    /// The owner added this event itself while it judged a message or handled the end of an operation.
    Owner(N),
    /// A remote is lost, other than by our own [`crate::Endpoint::disconnect`]; its operations have ended before.
    Down(Down),
    /// Two remotes turned out to belong to one process; the event may be repeated. From now on both have one context
    /// word: that of `other`, or that of `one` if `other` has none. If both sides join sessions, this event, perhaps by
    /// way of a third remote, comes before anything else of a second remote of that process: a message, or the end of a
    /// connect.
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

/// Description of an arrived message for which no receive is posted.
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
    /// The message has been consumed, or is not wanted: it is dropped. A send whose data was not transferred completes
    /// as [`Status::Truncated`].
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

/// Message taken from the inbox ([`crate::Endpoint::next_message`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<M> {
    /// Turn in which the message waited, as the owner gave it in [`Verdict::Inbox`].
    pub turn: u32,
    /// Sender; a stale id if the remote has been removed meanwhile.
    pub source: RemoteId,
    /// Match bits of the message.
    pub bits: MatchBits,
    /// Data of the message, in memory that the owner provided ([`crate::Owner::memory`]); now the caller's.
    pub memory: M,
}

/// Deferred message whose [`Decision`] is due. The caller must pass it to [`crate::Endpoint::decide`]; until then the
/// endpoint receives nothing.
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

    /// Returns the data of the message, writable, for an owner that hands out a pointer; `None` as in [`Self::body`].
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
    /// The message has been consumed, or is not wanted: it is dropped. A send whose data was not transferred completes
    /// as [`Status::Truncated`].
    Finished,
}
