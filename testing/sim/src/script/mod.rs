//! A network of which a test has every packet in its hands, and on which it may play any peer.
//!
//! ```text
//!   Endpoint -- ScriptedPort --[ end 0 ===== cable ===== end 1 ]-- ScriptedPort -- Endpoint
//!                                  |  events wait here    |
//!                                 tell, inject        or the test: Script::on_sent
//! ```
//!
//! A [`LinkId`]'s index is the number of its cable, its generation the end: 0 began it. An end belongs to a
//! node's port or to the test. A port takes in events in the order in which they came.
//!
//! Owns: the cables, the events that wait at their ends, the memory that a port reads for its peer.
//! Knows nothing of: what packets mean, clocks.
//! Cost: that of an event does not grow with the number of cables.

mod net;
mod port;

pub use net::{End, Net, ScriptedNet, link};
pub use port::ScriptedPort;

use mx_proto::origin::LinkOrigin;
use mx_proto::port::{ConnectError, HeaderBytes, Limits, LinkDown, RemoteKey, RemoteUse};
use mx_proto::secret::Binding;
use mx_proto::{Identity, LinkId, Memory, NicId, Target};
use std::fmt;

/// The two ends of a cable: the number of a node, or `None` for the test.
pub type Ends = [Option<usize>; 2];

/// A test's settings of its ports, and its view of what they send.
pub trait Script: Default + fmt::Debug {
    /// The memory of operations.
    type Memory: Memory + fmt::Debug;

    /// Returns the limits of every link.
    fn limits(&self) -> Limits;

    /// Returns the far end of a link that `node` starts, and the first event at its own.
    fn connect(
        &mut self,
        _node: usize,
        _target: Target,
    ) -> Result<(Option<usize>, Option<Event>), ConnectError> {
        Err(ConnectError::NoResources)
    }

    /// Answers [`mx_proto::port::LinkControl::link_origin`].
    fn seen(&self, _link: LinkId, _ends: Ends, claimed: &Identity) -> LinkOrigin {
        LinkOrigin::trusted(claimed)
    }

    /// Returns whether an interface is one of a node's.
    fn has_interface(&self, _node: usize, _nic: NicId) -> bool {
        true
    }

    /// Answers [`mx_proto::port::LinkControl::binding`].
    fn binding(&self, _link: LinkId) -> Binding {
        [0; 2]
    }

    /// Returns whether a link has no room for a packet, or for the rest of one, whatever the peer has read.
    fn refuses(&mut self, _link: LinkId, _header: &HeaderBytes) -> bool {
        false
    }

    /// Returns the number of bytes that a port takes at once of a body in memory that is larger than
    /// [`Limits::packet_max`], or (not `first`) of the rest of one.
    fn part(&self, len: usize, _first: bool) -> usize {
        len
    }

    /// Returns the way in which a port hands over a body of `len` bytes.
    fn delivery(&self, _len: usize) -> Delivery {
        Delivery::Whole
    }

    /// Records a packet that a port has accepted, or the first part of it.
    fn on_sent(&mut self, link: LinkId, header: &HeaderBytes, body: &[u8]);

    /// Records a call of a port that can read its peer's memory.
    fn on_remote_call(&mut self, _call: RemoteCall<'_, Self::Memory>) {}
}

/// A call of [`mx_proto::port::RemoteMemory`].
#[derive(Debug)]
pub enum RemoteCall<'a, M> {
    /// A key is not valid any more.
    Deregister(RemoteKey),
    /// A read with this token goes to memory. It ends when the test says so.
    Read(u64, &'a M),
    /// The read with this token need not go on.
    Stop(u64),
    /// The read with this token has to let go of its memory.
    Recall(u64),
}

/// The way in which a port hands over a packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// The sink is not asked for a place.
    Whole,
    /// The body is written at once where the sink says.
    Placed {
        /// The sink is told that the packet begins.
        begin: bool,
    },
    /// The sink is asked when the packet begins, and again for the second half ([`Net::halts`]).
    Halves,
}

/// An event that waits at a port's end.
#[derive(Clone, Debug)]
pub enum Event {
    /// The link can carry packets.
    Up,
    /// The link has room again.
    Writable,
    /// A packet has arrived.
    Packet(HeaderBytes, Vec<u8>, Delivery),
    /// Bytes of a remote read are moving.
    Activity(RemoteUse),
    /// A remote read with this token has ended, well or not.
    Read(u64, bool),
    /// The link is gone. Events behind it are dropped.
    Down(LinkDown),
}
