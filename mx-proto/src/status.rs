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
    /// One of the two does not know the site's secret, or has none.
    BadSecret,
    /// The peer does not accept us: the network does not tell it who we are.
    Refused,
}

/// The kind of operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// A connect.
    Connect,
}

/// The reason for the loss of a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// It said goodbye.
    Disconnected,
    /// It came back with another session: the old one is over.
    Restarted,
    /// Its link ended.
    Link(LinkDown),
    /// It, or we, did not prove to know the site's secret.
    Secret,
    /// There is no memory for what it sends.
    NoMemory,
    /// It broke the protocol.
    Protocol(&'static str),
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
            Self::Restarted => f.write_str("the peer restarted"),
            Self::Link(reason) => reason.fmt(f),
            Self::NoMemory => f.write_str("no memory for what it sends"),
            Self::Secret => f.write_str("no proof of the site's secret"),
            Self::Protocol(what) => write!(f, "protocol violation: {what}"),
        }
    }
}
