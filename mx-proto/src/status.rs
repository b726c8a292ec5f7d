//! Results of operations, and reasons for the loss of remotes.

use crate::port::LinkDown;
use std::fmt;

/// The result of one posted operation. The names are MX's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// All of the message was transferred.
    Success,
    /// The receiver's buffer was smaller than the message; it was filled.
    Truncated,
    /// No progress within the request time-out.
    Timeout,
    /// Cancelled by its owner, or the sender withdrew the message.
    Cancelled,
    /// There is no such endpoint.
    EndpointUnknown,
    /// No process has that endpoint open.
    EndpointClosed,
    /// The remote went away or was disconnected.
    Unreachable,
    /// The remote is another one than before.
    BadSession,
    /// The connection key does not fit.
    BadKey,
    /// The endpoint number is out of range or the peer speaks another protocol version.
    BadEndpoint,
    /// The receiver called off a receive that had already matched this message.
    Aborted,
    /// The peer has no room for another remote.
    NoResources,
    /// A side does not know the site's secret, or has none.
    BadSecret,
    /// The peer does not accept us: the network does not tell it who we are.
    Refused,
    /// No registered region of memory has that key, or it has been deregistered meanwhile.
    NoRegion,
    /// The bytes are not all within the region.
    OutOfRange,
    /// The region may not be read, or not be written.
    NotAllowed,
    /// The peer does not know of registered memory.
    Unsupported,
}

/// The kind of operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpKind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// A connect.
    Connect,
}

/// The way in which a peer broke the protocol, which ends its link. Its texts say what each one is.
#[expect(missing_docs, reason = "their texts")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    NotOurs,
    Oversized,
    TooEarly,
    Length,
    /// Match bits of such receives are given to one remote each.
    Foreign,
    NoCredit,
    /// Or in a slot that is in use, or too large for one, or in two.
    NoSlot,
    NotAsked,
    NotHad,
    Offer,
    Pull,
    Claim,
    Challenge,
    Proof,
    /// A link says wrongly that it is a data link of a session, or carries something else than data.
    Attach,
    /// A packet that has no place in a session's move to a fabric.
    Move,
    /// An access to memory is malformed, or neither side has offered such.
    Access,
    Introduction,
    AnotherName,
    OwnHello,
    OtherReply,
    UnreadIntroductions,
    UnreadReplies,
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

/// The reason for the loss of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The remote said goodbye.
    Disconnected,
    /// Its link ended.
    Link(LinkDown),
    /// The remote, or this endpoint, did not prove to know the site's secret.
    Secret,
    /// There is no memory for its messages.
    NoMemory,
    /// The remote broke the protocol.
    Protocol(Violation),
}

impl DownReason {
    /// The result of the operations that were under way.
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
