//! Events that an endpoint reports to the layer above, and questions that it asks.

use crate::ids::{EndpointId, EntryId, MatchBits, NicId, RemoteId, SessionId};
use crate::status::{DownReason, OpKind, Status};

/// The identity of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Its network interface.
    pub nic: NicId,
    /// Its number there.
    pub endpoint: EndpointId,
    /// Number of this life of the endpoint.
    pub session: SessionId,
}

impl Identity {
    /// The part that stays the same in all of its lives.
    pub(crate) fn name(&self) -> (NicId, EndpointId) {
        (self.nic, self.endpoint)
    }
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The kind of operation.
    pub kind: OpKind,
    /// The result.
    pub status: Status,
    /// The reason for the loss of the remote with which the operation ended; `None`: it ended for another reason.
    pub lost: Option<DownReason>,
    /// The other side: destination of a send, source of a receive, peer of a connect.
    pub remote: RemoteId,
    /// The message's match bits (a receive: as sent).
    pub bits: MatchBits,
    /// Bytes of the message.
    pub length: u32,
    /// Bytes that were transferred.
    pub transferred: u32,
    /// A receive that had a message, whole or not. One that is called off without leaves its message,
    /// should it still come, to others.
    pub matched: bool,
}

impl Outcome {
    /// The outcome of a receive which has got `transferred` bytes of a message.
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

/// The loss of a remote, whose id is stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Down {
    /// The remote.
    pub remote: RemoteId,
    /// The word attached to it.
    pub context: u64,
    /// Its name and session.
    pub identity: Identity,
    /// The reason.
    pub reason: DownReason,
    /// The name that its messages have from now on, if any stay.
    pub tombstone: Option<RemoteId>,
}

/// An event of an endpoint that its owner polls out with [`crate::Endpoint::next_event`], in the order in which they happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<N> {
    /// The owner has noted this when it was asked about a message or told of the end of an operation.
    Owner(N),
    /// A remote is gone, not by our own [`crate::Endpoint::disconnect`]; its operations have ended before.
    Down(Down),
    /// Two remotes are of one process; perhaps repeated. Both have one word from now on: that of `other`, or that of
    /// `one` if `other` has none. If both sides join sessions, this comes, perhaps by way of a third remote, before
    /// anything of a second remote of that process: a message, or a connect's end.
    Joined {
        /// The first remote.
        one: RemoteId,
        /// The second remote.
        other: RemoteId,
        /// Name and session of the first remote.
        who: Identity,
    },
    /// An undecided message can perhaps be had from [`crate::Endpoint::next_deferred`], and could not before: the bytes of
    /// one have been fetched.
    Decidable,
    /// The time of the [reminder](crate::Endpoint::remind) with this word has come.
    Due(u64),
}

/// A message for which there is no posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The sender.
    pub source: RemoteId,
    /// The word attached to the sender, 0 if none.
    pub source_context: u64,
    /// The sender's name and session.
    pub identity: Identity,
    /// Its match bits.
    pub bits: MatchBits,
    /// Its length.
    pub length: u32,
}

/// The owner's decision about an [`Arrival`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The message waits for a receive as an unexpected message.
    Continue,
    /// The message has been consumed, or is not wanted.
    Finished,
    /// The message is decided later, see [`crate::Endpoint::next_deferred`]. What comes until then is deferred as
    /// well, without asking, so that it does not overtake this one, even if there is a receive for it.
    Defer,
    /// The message goes to the inbox and is handed out whole by [`crate::Endpoint::next_message`]; an
    /// offered message is fetched first. One that is larger than
    /// [`Config::fetched_max`](crate::Config::fetched_max) is dropped.
    Inbox {
        /// Among which others it has its turn: a small number.
        turn: u32,
    },
}

/// A message that is handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<M> {
    /// The turn that it was for.
    pub turn: u32,
    /// The sender; stale if it is gone meanwhile.
    pub source: RemoteId,
    /// Its match bits.
    pub bits: MatchBits,
    /// All of its bytes.
    pub memory: M,
}

/// A message that waits for a [`Decision`]. It has to come back to [`crate::Endpoint::decide`]: the
/// endpoint takes nothing in before.
#[derive(Debug)]
#[must_use = "the endpoint stands still until the message is decided"]
pub struct Deferred {
    /// The message.
    pub arrival: Arrival,
    pub(crate) id: EntryId,
    pub(crate) body: Option<Vec<u8>>,
}

impl Deferred {
    /// All of its bytes; `None` for one that has been offered, and of which the bytes are still with its
    /// sender: because they are more than [`PREVIEW_MAX`](crate::PREVIEW_MAX), or there is no memory
    /// for them.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// The bytes that have come with the message, writable, for an owner that hands out a pointer.
    pub fn body_mut(&mut self) -> Option<&mut [u8]> {
        self.body.as_deref_mut()
    }
}

/// The decision about a [`Deferred`] message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The message goes into the oldest posted receive that accepts it, if one has been posted meanwhile;
    /// otherwise it waits for one as an unexpected message.
    Continue,
    /// The message has been consumed, or is not wanted. The sender of an offered message is told.
    Finished,
}
