//! A link and its state.
//!
//! Out of scope: other links, time.

use super::super::frame::FrameKind;
use super::super::sequence::Sequence;
use mx_port_base::incoming::Incoming;
use mx_port_fabric::endpoint_address::EndpointAddress;
use mx_proto::port::LinkDown;
use mx_proto::secret::Binding;
use mx_proto::{Instant, LinkId};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) state: State,
    /// Cookie that frames to us must carry.
    pub(crate) cookie: u64,
    /// `None` only in state `Offered`.
    pub(crate) peer: Option<Peer>,
    /// True if the peer started the link.
    pub(super) called: bool,
    /// Order of the link's frames.
    pub(crate) sequence: Sequence,
    /// Packet that is partly received.
    pub(crate) incoming: Option<Incoming>,
    /// True while the rest of a packet is unsent: it goes before any other.
    pub(crate) midway: bool,
    /// Number of send slots held by the provider.
    pub(crate) slots: u32,
    /// Small frames to be sent before anything else.
    pub(crate) control: VecDeque<Control>,
    /// True if the link is in the port's queue of links without room.
    pub(crate) blocked: bool,
    /// True if the endpoint was refused room, and has to be told when there is some.
    pub(crate) wanted: bool,
    /// Earliest time to retry, unless something happens before ...
    pub(crate) retry_at: Instant,
    /// ... after this pause; zero once the provider had room.
    pub(crate) pause: Duration,
    pub(super) heard: Instant,
    /// True if a Ping has not been answered.
    pub(super) pinged: bool,
    /// Time of the last probe of a peer whose process may have ended; `None`: not probed.
    pub(super) doubted: Option<Instant>,
}

impl Link {
    /// Returns the reason to report if a frame cannot be sent: for the first frame, the fabric does not reach the peer.
    pub(crate) fn broken(&self) -> LinkDown {
        match self.state {
            State::Greeting { .. } => LinkDown::Unreachable,
            _ => LinkDown::Reset,
        }
    }

    /// Returns a value that only both sides know: their cookies, the caller's first.
    pub(crate) fn binding(&self) -> Binding {
        match (self.peer, self.called) {
            (Some(peer), true) => [peer.cookie, self.cookie],
            (Some(peer), false) => [self.cookie, peer.cookie],
            (None, _) => [0; 2],
        }
    }
}

/// State of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The peer has our address, and has not sent Hello.
    Offered,
    /// Hello has been sent, and not been answered.
    Greeting {
        /// Time at which this state ends.
        until: Instant,
    },
    /// The link carries packets.
    Up,
    /// The endpoint has closed the link; accepted frames are leaving.
    Closing {
        /// Time at which this state ends.
        until: Instant,
        /// True if the peer has to answer the Bye. Closing a connection with unread bytes drops the Bye, so frames are
        /// read until the answer comes.
        answer: bool,
    },
}

/// Peer of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Peer's address in the provider's address vector.
    pub(crate) address: u64,
    /// Peer's number for the link.
    pub(crate) link: u32,
    /// Cookie that frames to the peer must carry.
    pub(crate) cookie: u64,
}

impl Peer {
    pub(crate) fn new(address: u64, endpoint_address: &EndpointAddress) -> Self {
        Self {
            address,
            link: endpoint_address.link,
            cookie: endpoint_address.cookie,
        }
    }
}

/// Small frame that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) kind: FrameKind,
    pub(crate) body: SmallVec<[u8; 64]>,
}
