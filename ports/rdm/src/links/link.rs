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

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) state: State,
    /// The cookie that frames to us must carry.
    pub(crate) cookie: u64,
    /// `None` only while it is offered.
    pub(crate) peer: Option<Peer>,
    /// The peer began the link.
    pub(super) called: bool,
    /// The order of its frames.
    pub(crate) sequence: Sequence,
    /// The packet of which more is to come.
    pub(crate) incoming: Option<Incoming>,
    /// The packet sent last has not left as a whole: the rest comes before any other.
    pub(crate) midway: bool,
    /// Send slots with the provider.
    pub(crate) slots: u32,
    /// Small frames that wait to go out, before anything else.
    pub(crate) control: VecDeque<Control>,
    /// The link stands in the port's queue of links that had no room.
    pub(crate) blocked: bool,
    /// The endpoint was refused room and has to be told when there is some.
    pub(crate) wanted: bool,
    /// Before that the provider is not asked for room again, unless something has happened ...
    pub(crate) retry_at: Instant,
    /// ... and how long that was the last time. Nothing, once it has had room.
    pub(crate) pause: Duration,
    pub(super) heard: Instant,
    /// The peer has been asked whether it is there.
    pub(super) pinged: bool,
    /// Its process may have gone: it was asked for an answer at once, then.
    pub(super) doubted: Option<Instant>,
}

impl Link {
    /// The reason of its end if a frame cannot be sent: if that is the first one, the fabric does not lead there.
    pub(crate) fn broken(&self) -> LinkDown {
        match self.state {
            State::Greeting { .. } => LinkDown::Unreachable,
            _ => LinkDown::Reset,
        }
    }

    /// A value that only both sides know: their cookies, the caller's first.
    pub(crate) fn binding(&self) -> Binding {
        match (self.peer, self.called) {
            (Some(peer), true) => [peer.cookie, self.cookie],
            (Some(peer), false) => [self.cookie, peer.cookie],
            (None, _) => [0; 2],
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The peer has our address, and has not said Hello.
    Offered,
    /// We have said Hello.
    Greeting {
        /// The end of this state.
        until: Instant,
    },
    /// The link carries packets.
    Up,
    /// The endpoint has done with it; what it accepted is leaving.
    Closing {
        /// The end of this state.
        until: Instant,
        /// The peer has to answer the Bye. Closing a connection with unread bytes drops the Bye, so
        /// frames are read until the answer comes.
        answer: bool,
    },
}

/// The other side of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its address in the provider's address vector.
    pub(crate) address: u64,
    /// Its number for the link.
    pub(crate) link: u32,
    /// The cookie that frames to it must carry.
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

/// A frame without a packet, waiting to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) kind: FrameKind,
    pub(crate) body: SmallVec<[u8; 64]>,
}
