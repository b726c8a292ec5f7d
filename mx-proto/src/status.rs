//! Results of operations, and reasons for the loss of remotes.

use crate::port::LinkDown;
use std::fmt;

/// Result of a posted operation. The names are MX's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// The whole message was transferred.
    Success,
    /// The receiver's buffer was smaller than the message, and was filled.
    Truncated,
    /// There was no progress within the request time-out.
    Timeout,
    /// The owner cancelled the operation, or the sender withdrew the message.
    Cancelled,
    /// The endpoint does not exist.
    EndpointUnknown,
    /// No process has that endpoint open.
    EndpointClosed,
    /// The remote was lost or disconnected.
    Unreachable,
    /// The remote endpoint has been opened again: it is in another life than before.
    BadSession,
    /// The connection key does not match.
    BadKey,
    /// The endpoint number is out of range, or the peer uses another protocol version.
    BadEndpoint,
    /// The receiver cancelled a receive that had already matched this message, or discarded the message.
    Aborted,
    /// The peer has no room for another remote, or there was no memory for one of its messages.
    NoResources,
    /// Either side does not know the site's secret, or has none.
    BadSecret,
    /// The peer refuses us, because its network does not confirm our address.
    Refused,
    /// No registered region has that key, or the region has been deregistered meanwhile.
    NoRegion,
    /// The range is not within the region.
    OutOfRange,
    /// The region may not be read, or not be written.
    NotAllowed,
    /// The peer does not support registered memory.
    Unsupported,
}

/// Kind of an operation. A put counts as a send, a get as a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// A connect.
    Connect,
}

/// Protocol violation by a peer, which ends its link. `Display` explains each; Length, Offer, Pull, Claim, Challenge
/// and Introduction mean malformed packets of that kind.
#[expect(missing_docs, reason = "their texts")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    NotOurs,
    Oversized,
    /// A message or request before the session has been introduced.
    TooEarly,
    Length,
    /// A message matches a receive posted for another remote. Match bits of such receives belong to one remote each.
    Foreign,
    /// A message that costs more credits than the peer has been lent.
    NoCredit,
    /// A message names no slot, two slots or one that is in use, or is too large for a slot.
    NoSlot,
    /// Credits returned without a Revoke.
    NotAsked,
    /// More credits returned than the peer had.
    NotHad,
    Offer,
    Pull,
    Claim,
    Challenge,
    Proof,
    /// A link falsely claims to be a data link of a session, or carries something other than data.
    Attach,
    /// A packet that has no place in a session's move to a fabric.
    Move,
    /// An access to memory is malformed, or was not offered.
    Access,
    Introduction,
    /// Another introduction on a link, by another endpoint or life than the first.
    AnotherName,
    /// A hello that this endpoint itself sent: the link leads back to it, or a peer repeats it.
    OwnHello,
    /// A reply by another endpoint or life than the one that has answered before.
    OtherReply,
    /// Repeated introductions from a peer that does not read the answers.
    UnreadIntroductions,
    /// Repeated replies from a peer that does not read the answers.
    UnreadReplies,
    /// Repeated questions from a peer that does not read the answers.
    UnreadQuestions,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOurs => "not a packet of this protocol",
            Self::Oversized => "an oversized control packet",
            Self::TooEarly => "a message before the handshake",
            Self::Length => "a message with a wrong length",
            Self::Foreign => "a message that matches a receive for another remote",
            Self::NoCredit => "a message without a credit",
            Self::NoSlot => "a message without a free slot",
            Self::NotAsked => "credits returned without a Revoke",
            Self::NotHad => "more credits returned than lent",
            Self::Offer => "a malformed offer",
            Self::Pull => "a malformed pull",
            Self::Claim => "a malformed claim",
            Self::Challenge => "a malformed challenge",
            Self::Proof => "a proof without a challenge",
            Self::Attach => "an Attach for an unknown session",
            Self::Move => "a packet out of place in a move to a fabric",
            Self::Access => "a malformed access to memory, or one that was not offered",
            Self::Introduction => "a malformed introduction",
            Self::AnotherName => "an introduction under another name",
            Self::OwnHello => "our own introduction",
            Self::OtherReply => "a reply under another name",
            Self::UnreadIntroductions => "introductions without reading the answers",
            Self::UnreadReplies => "replies without reading the answers",
            Self::UnreadQuestions => "questions without reading the answers",
        })
    }
}

/// Reason for the loss of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The remote disconnected.
    Disconnected,
    /// The remote's link ended.
    Link(LinkDown),
    /// The remote, or this endpoint, did not prove that it knows the site's secret.
    Secret,
    /// No memory for the remote's messages.
    NoMemory,
    /// The remote violated the protocol.
    Protocol(Violation),
}

impl DownReason {
    /// Returns the status with which operations in progress end when the remote is lost for this reason.
    pub fn status(self) -> Status {
        match self {
            Self::Link(LinkDown::Refused) => Status::EndpointClosed,
            Self::Link(LinkDown::TimedOut) => Status::Timeout,
            Self::Link(LinkDown::Denied) => Status::Refused,
            Self::Secret => Status::BadSecret,
            Self::NoMemory => Status::NoResources,
            _ => Status::Unreachable,
        }
    }
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str("disconnected by the peer"),
            Self::Link(reason) => reason.fmt(f),
            Self::NoMemory => f.write_str("no memory for its messages"),
            Self::Secret => f.write_str("no proof of the site's secret"),
            Self::Protocol(what) => write!(f, "protocol violation: {what}"),
        }
    }
}
