//! Port: the interface between an endpoint and a transport, which carries its packets.
//!
//! ```text
//!             send / resume --> Whole, Part, WouldBlock, Down
//!   Endpoint  connect, accept, close, ...                        --> Port
//!             begin, next   --> PortEvent (`round`)
//! ```
//!
//! A port carries *packets* over *links*: a fixed header and a body. A link is reliable and ordered: an accepted packet
//! arrives once, complete and in sequence, or the link goes down. (Ports over datagrams use the reliability layer of
//! this crate.)
//!
//! A packet that `send` rejects has had no effect, so back-pressure needs no undo. A port never calls the endpoint: its
//! events are polled ([`Rounds`]).

use crate::config::SMALL_MAX;
use crate::event::Identity;
use crate::ids::{LinkId, NicId, Route, Target};
use crate::memory::{Memory, Source};
use crate::origin::LinkOrigin;
use crate::round::Rounds;
use crate::secret::Binding;
use crate::time::Instant;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// Length in bytes of every packet's header.
pub const HEADER_LEN: usize = 32;

/// Offset of the body's length (`u32`, little endian) in a header: the only field of a header that a port over a byte
/// stream has to understand.
pub const BODY_LEN_AT: usize = 4;

/// Returns the length of a packet's body in bytes, as its header states it.
#[inline]
pub fn body_len(header: &HeaderBytes) -> usize {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| header[BODY_LEN_AT + at]);
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// Size in bytes of the largest body that every link of every port carries; a link may carry larger ones
/// ([`Limits::packet_max`]).
pub const PACKET_LEAST: usize = 4 << 10;

/// Time that a stranger has to introduce itself: the port drops an incoming link that has not been
/// [accepted](LinkControl::accept) by then. Long enough for half a dozen retransmissions of a lost packet.
pub const ACCEPTED_WITHIN: Duration = Duration::from_secs(5);

/// Header of a packet in wire format (see `wire`).
pub type HeaderBytes = [u8; HEADER_LEN];

/// Measurements of one link's network path, which tools show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkFigures {
    /// Smoothed round-trip time (RFC 6298); `None`: the port measures none.
    pub round_trip: Option<Duration>,
    /// Number of retransmissions, of datagrams or of the kernel's segments.
    pub resent: u32,
    /// Time at which anything last arrived; `None`: nothing has, or the port does not know.
    pub heard_at: Option<Instant>,
    /// Bytes that the peer has acknowledged; `None`: the port does not count them.
    pub sent: Option<u64>,
    /// Bytes received; `None`: the port does not count them.
    pub received: Option<u64>,
}

/// Limits of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest body in bytes that is returned whole ([`PortEvent::Packet`](crate::round::PortEvent::Packet)); at least
    /// [`PACKET_LEAST`].
    pub packet_max: usize,
    /// Largest body in bytes of an eager message, which may exceed `packet_max`, of a port that returns it in parts
    /// ([`PortEvent::Part`](crate::round::PortEvent::Part)). 0: the port returns eager messages whole.
    pub streamed_max: usize,
    /// Largest body in bytes of a Data packet, whose destination is known beforehand.
    pub data_max: usize,
    /// Bytes of a large message that the receiver requests in one packet.
    pub pull_block: usize,
    /// Whether the port can read the peer's memory by itself ([`RemoteMemory::read`]).
    pub remote_read: bool,
    /// Whether a refused read ends the link, so that a peer must be asked to stop before [`RemoteMemory::deregister`].
    pub refusal_ends_link: bool,
    /// Maximum number of data links for a session over this link ([`LinkControl::connect_beside`]); 0: none.
    pub data_links: u32,
}

/// Returns whether a port that has `links` of at most `most` links may add a data link to a session. The last eighth of
/// the slots is reserved for the first links of sessions.
pub fn has_places_beside(links: usize, most: usize) -> bool {
    links < most - most / 8
}

impl Limits {
    /// Returns the size in bytes of the largest message that can be sent with its data; longer ones are offered, and
    /// the receiver pulls them.
    pub fn eager_max(&self) -> usize {
        self.packet_max.min(SMALL_MAX).max(self.streamed_max)
    }
}

/// Body of a packet, lent to the port for one call.
#[derive(Debug)]
pub enum Body<'a, M> {
    /// Bytes of the endpoint.
    Bytes(&'a [u8]),
    /// Part of a posted operation's memory.
    Memory {
        /// Memory of the operation.
        memory: &'a M,
        /// Offset of the first byte to send.
        offset: usize,
        /// Number of bytes to send.
        len: usize,
    },
}

impl<M: Memory> Body<'_, M> {
    /// Returns all bytes of the body if they are contiguous; `None` if they are not, or finding out would cost.
    #[inline]
    pub fn piece(&self) -> Option<&[u8]> {
        match self {
            Body::Bytes(bytes) => Some(bytes),
            Body::Memory {
                memory,
                offset,
                len,
            } => memory.piece(*offset, *len),
        }
    }
}

impl<M> Body<'_, M> {
    /// An empty body.
    pub const EMPTY: Self = Body::Bytes(&[]);

    /// Returns the length of the body in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Memory { len, .. } => *len,
        }
    }

    /// Returns true if the body has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Part of an accepted packet that the port has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The port has taken all of it; the body's memory can be reused.
    Whole,
    /// The port has taken the header and this many bytes of the body, less than all. The link accepts nothing else
    /// until [`Port::resume`] has sent the rest or [`Port::detach`] has handed it over. Only for a [`Body::Memory`]
    /// larger than [`Limits::packet_max`]; a smaller body is taken whole or not at all.
    Part(usize),
}

/// Reason for rejecting a packet, of which nothing has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The link has no room now; [`PortEvent::Writable`](crate::round::PortEvent::Writable) follows when it has.
    WouldBlock,
    /// The link is down; [`PortEvent::Down`](crate::round::PortEvent::Down) reports it, too.
    Down,
}

/// Reason why a link ended or could not be set up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkDown {
    /// No process listens there.
    Refused,
    /// The network has no route to the peer.
    Unreachable,
    /// The peer cannot confirm that we are who we claim to be.
    Denied,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer closed the link in order.
    Closed,
    /// The peer died or cut the link.
    Reset,
    /// The peer violated the protocol.
    Protocol,
    /// The peer cannot be reached over this port, but perhaps over this route. Only for a link that
    /// [`LinkControl::connect`] started and that has not come up; the endpoint connects again.
    Elsewhere(Route),
}

impl fmt::Display for LinkDown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied by the peer",
            Self::TimedOut => "timed out",
            Self::Closed => "closed by the peer",
            Self::Reset => "connection reset",
            Self::Protocol => "protocol violation",
            Self::Elsewhere(_) => "not reachable over this port",
        })
    }
}

/// Reason why a link could not be started; no link was made, and no event follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The network interface is unknown.
    UnknownNic,
    /// The endpoint number is out of range.
    BadEndpoint,
    /// The requested port cannot reach the target.
    NoRoute,
    /// No process has that endpoint open, as the port knows at once.
    Refused,
    /// Descriptors or memory are used up.
    NoResources,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownNic => "unknown network interface",
            Self::BadEndpoint => "endpoint id out of range",
            Self::NoRoute => "no port reaches that address",
            Self::Refused => "no process has that endpoint open",
            Self::NoResources => "out of descriptors or memory",
        })
    }
}

/// Reports a link that could not be started as down.
impl From<ConnectError> for LinkDown {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Refused => Self::Refused,
            ConnectError::UnknownNic
            | ConnectError::BadEndpoint
            | ConnectError::NoRoute
            | ConnectError::NoResources => Self::Unreachable,
        }
    }
}

/// Feature bit in a hello: the sender's session may move from TCP to a fabric of the rdm port.
pub const FABRIC_RDM: u32 = 4;
/// Feature bit in a hello: the sender's session may move from TCP to a fabric of the dgram port.
pub const FABRIC_DGRAM: u32 = 8;

/// Reason why a session that met over TCP stays there instead of moving to a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MoveRefusal {
    /// The peer does not offer the fabric.
    NotOffered,
    /// There is no room for another link at this side or the peer's.
    Full,
    /// The fabric has failed, or does not reach the peer.
    Failed,
    /// The peer's address is on another fabric than ours.
    Differs,
    /// The link over the fabric has ended.
    Ended(LinkDown),
}

impl MoveRefusal {
    /// Returns the code of the reason for the wire.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Full => 1,
            _ => 2,
        }
    }

    /// Returns the reason of a code from the wire.
    pub(crate) fn of_code(code: u32) -> Self {
        match code {
            1 => Self::Full,
            _ => Self::Failed,
        }
    }
}

impl fmt::Display for MoveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("the peer has no such fabric"),
            Self::Full => f.write_str("no room for another link"),
            Self::Failed => f.write_str("the fabric has failed"),
            Self::Differs => f.write_str("the peer is on another fabric"),
            Self::Ended(reason) => write!(f, "the link over the fabric: {reason}"),
        }
    }
}

/// Way to close a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Deliver accepted packets first, within a bounded time.
    Flush,
    /// Close at once.
    Now,
}

/// Key to a sender's memory, made with [`RemoteMemory::register`]; the receiver's port reads that memory with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// Start of the memory, in the port's terms.
    pub address: u64,
    /// Key of the memory, in the port's terms.
    pub key: u64,
}

/// Descriptors that become readable when an armed port has something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeDescriptors {
    /// Descriptor for links that come and go, readable whether the port is armed or not; `None`: there is none.
    pub control: Option<i32>,
    /// Descriptor for packets, valid only between [`LinkControl::arm`] and [`LinkControl::disarm`]; `None`: there is
    /// none.
    pub data: Option<i32>,
}

/// Links of a port, their peers, and sleeping: everything that does not depend on the type of memory.
pub trait LinkControl {
    /// Returns the limits of `link`; any value for a link that is down.
    fn limits(&self, link: LinkId) -> Limits;

    /// Starts a link to `target`. [`PortEvent::Up`](crate::round::PortEvent::Up) or
    /// [`PortEvent::Down`](crate::round::PortEvent::Down) follows in a later round.
    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError>;

    /// Starts another link to the address at the other end of `link`, which we began.
    /// [`PortEvent::Up`](crate::round::PortEvent::Up) or [`PortEvent::Down`](crate::round::PortEvent::Down) follows.
    fn connect_beside(&mut self, _link: LinkId, _now: Instant) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoRoute)
    }

    /// Returns whether there are slots enough for a session's second link, such as this one that a peer began.
    fn has_places_beside(&self, _link: LinkId) -> bool {
        true
    }

    /// Returns the feature bits of the fabrics to which the session on `link` may move, 0 for none. `called`: we began
    /// the link, and the answer is what its target asks for; otherwise the answer is what this side has open.
    fn fabrics(&self, _link: LinkId, _called: bool) -> u32 {
        0
    }

    /// Returns whether the target of a link that we began asks for a fabric and nothing else.
    fn must_move(&self, _link: LinkId) -> bool {
        false
    }

    /// Prepares a link over a fabric to the peer of `link`: makes our end of it, if one is needed before use, and
    /// returns our address for that peer.
    fn offer(
        &mut self,
        _link: LinkId,
        _fabric: u32,
        _now: Instant,
    ) -> Result<(Option<LinkId>, Vec<u8>), MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Starts a link over a fabric to the peer of `link`, which has sent this address.
    /// [`PortEvent::Up`](crate::round::PortEvent::Up) or [`PortEvent::Down`](crate::round::PortEvent::Down) follows.
    fn call(
        &mut self,
        _link: LinkId,
        _fabric: u32,
        _address: &[u8],
        _now: Instant,
    ) -> Result<LinkId, MoveRefusal> {
        Err(MoveRefusal::Failed)
    }

    /// Notes that the session of a link that we began does not move.
    fn decline_move(&mut self, _link: LinkId, _why: MoveRefusal) {}

    /// Asks whether the process of the peer of `link` is alive, and ends the link soon if it does not answer. Returns
    /// false if the port cannot.
    fn probe_peer(&mut self, _link: LinkId, _now: Instant) -> bool {
        false
    }

    /// Lets the port hold small packets from now on and send them together: with the next packet that is not held, the
    /// next round, [`Self::arm`], [`Self::close`] or [`Self::send_held`]. Held packets count as sent. `may` false: hold
    /// no further packets.
    #[inline]
    fn hold(&mut self, _may: bool) {}

    /// Returns whether packets are held: [`Self::send_held`] must be called soon, unless a round begins.
    #[inline]
    fn holds(&self) -> bool {
        false
    }

    /// Sends the held packets.
    fn send_held(&mut self) {}

    /// Accepts a link: its peer is known. A stranger's link that is not accepted goes down ([`ACCEPTED_WITHIN`]).
    fn accept(&mut self, _link: LinkId) {}

    /// Returns whether a link that returned [`SendError::WouldBlock`] has room again. Called before a send, and
    /// implemented by ports that can find out cheaply; others only report
    /// [`PortEvent::Writable`](crate::round::PortEvent::Writable).
    #[inline]
    fn has_room(&mut self, _link: LinkId) -> bool {
        false
    }

    /// Closes a link. No event of it follows: no packet that arrived before and has not been returned, and no
    /// [`PortEvent::Down`](crate::round::PortEvent::Down). Unknown links are ignored.
    fn close(&mut self, link: LinkId, how: Close);

    /// Returns the time at which a round should begin although nothing arrives; `None`: no such time.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Prepares for sleeping: from now on anything that arrives makes one of [`LinkControl::descriptors`] readable.
    /// Returns false if something has arrived already; the caller then polls again instead of sleeping.
    fn arm(&mut self) -> bool;

    /// Undoes [`LinkControl::arm`]: the caller polls again, and peers need not wake it.
    fn disarm(&mut self);

    /// Returns the descriptors to sleep on.
    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }

    /// Returns the number of links with other processes, including those being set up and those lingering.
    fn link_count(&self) -> usize {
        0
    }

    /// Makes the next round look for links that come and go, because the control descriptor is readable.
    fn note_control(&mut self) {}

    /// Returns the other end of `link`, according to the network. The peer claims to be `claimed`, and a port that
    /// cannot have strangers believes it.
    fn link_origin(&self, _link: LinkId, claimed: &Identity) -> LinkOrigin {
        LinkOrigin::trusted(claimed)
    }
    /// Returns whether an interface belongs to this machine. A peer says that it has called us there.
    fn has_interface(&self, _nic: NicId) -> bool {
        true
    }

    /// Returns a value that both ends of `link` know and that no other link has. Proofs of the site's secret cover it,
    /// so they are not valid on another link. Constant while the link is up.
    fn binding(&self, _link: LinkId) -> Binding {
        [0; 2]
    }

    /// Tells the port whether operations wait for the peer of `link`. If a peer's death shows only when something is
    /// sent, the port then sends something from time to time.
    fn monitor(&mut self, _link: LinkId, _wanted: bool) {}

    /// Returns the time at which anything last came from the peer of `link`, even if no packet was complete. `None`:
    /// the port knows only of packets.
    fn heard_at(&self, _link: LinkId) -> Option<Instant> {
        None
    }

    /// Returns the time at which an endpoint that polls no packets should call [`LinkControl::keep_alive`]. `None`:
    /// peers do not time out silent links.
    fn keep_alive_due(&self) -> Option<Instant> {
        None
    }

    /// Sends keep-alives to peers that would otherwise time out this endpoint. Receives nothing.
    fn keep_alive(&mut self, _now: Instant) {}
}

/// Transport of an endpoint: sends packets over links. [`LinkControl`] opens and closes the links, [`Rounds`] receives.
/// `M` is the type of application memory that bodies are read from and written to.
pub trait Port<M: Memory>: LinkControl + Rounds<M> {
    /// Sends one packet. The header already contains the body's length.
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError>;

    /// Sends more of a body of which a part was taken ([`Sent::Part`]): `len` bytes of `memory` from `offset` on, which
    /// are all that is left of that body.
    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError>;

    /// Takes over the rest of a body of which a part was taken ([`Sent::Part`]), because its memory is about to be
    /// released: the port copies `len` bytes from `offset` on, sends them by itself, and does not read the memory
    /// again. (The packet must be completed with its true bytes, because they may complete the receive.)
    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize);

    /// Returns the access to memory of the peer of `link`, and of our memory to the peer; `None`: the port has none.
    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        None
    }
}

/// Access to memory across a link without copies ([`Limits::remote_read`]): the receiver's port reads a large message
/// directly from the sender's memory.
pub trait RemoteMemory<M> {
    /// Registers `memory` for reads by the peer of `link`, under `token`. `None`: the port cannot.
    fn register(&mut self, link: LinkId, memory: &M, token: u64) -> Option<RemoteKey>;

    /// Undoes [`Self::register`]: when it returns, the memory is no longer read.
    fn deregister(&mut self, link: LinkId, key: RemoteKey);

    /// Starts to read memory that the peer registered. [`PortEvent::RemoteRead`](crate::round::PortEvent::RemoteRead)
    /// follows with the token, and until then the port may write to the destination. After an error nothing has been
    /// started, and the caller requests the data in packets instead.
    fn read(&mut self, link: LinkId, read: RemoteRead<'_, M>) -> Result<(), SendError>;

    /// Notes that the result of a [`Self::read`] is not wanted. The read may end early, and its end is reported as
    /// usual.
    fn stop(&mut self, link: LinkId, token: u64);

    /// Releases the memory of a [`Self::read`]: when it returns, the port no longer touches the memory, and no report
    /// with that token follows. The link may go down over it.
    fn recall(&mut self, link: LinkId, token: u64);
}

/// Request to read the peer's memory ([`RemoteMemory::read`]).
#[derive(Debug)]
pub struct RemoteRead<'a, M> {
    /// Key that the peer sent with its offer.
    pub key: RemoteKey,
    /// Offset of the first byte to read.
    pub from: usize,
    /// Destination memory.
    pub memory: &'a mut M,
    /// Offset of the first byte in the destination.
    pub at: usize,
    /// Number of bytes to read.
    pub len: usize,
    /// Token that [`PortEvent::RemoteRead`](crate::round::PortEvent::RemoteRead) reports.
    pub token: u64,
}

/// Direct read of memory over a link, identified by its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteUse {
    /// Read of the peer's memory by our port, with the token of [`RemoteMemory::read`].
    Reading(u64),
    /// Read of our memory by the peer, with the token of [`RemoteMemory::register`].
    Registered(u64),
}

/// Destination to which a port writes a packet's body.
#[derive(Debug)]
pub struct Place<'a, M> {
    /// Memory to write to.
    pub memory: Destination<'a, M>,
    /// Offset in `memory` at which the body begins; the whole body fits.
    pub offset: usize,
}

/// Memory that a [`Place`] refers to.
#[derive(Debug)]
pub enum Destination<'a, M> {
    /// Memory of a posted receive, or of the owner.
    Memory(&'a mut M),
    /// Bytes of the endpoint.
    Bytes(&'a mut Vec<u8>),
}

impl<M: Memory> Memory for Destination<'_, M> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Memory(memory) => memory.len(),
            Self::Bytes(bytes) => Memory::len(*bytes),
        }
    }

    #[inline]
    fn visit(&self, offset: usize, len: usize, visitor: impl FnMut(&[u8])) {
        match self {
            Self::Memory(memory) => memory.visit(offset, len, visitor),
            Self::Bytes(bytes) => bytes.visit(offset, len, visitor),
        }
    }

    #[inline]
    fn visit_mut(&mut self, offset: usize, len: usize, visitor: impl FnMut(&mut [u8])) {
        match self {
            Self::Memory(memory) => memory.visit_mut(offset, len, visitor),
            Self::Bytes(bytes) => bytes.visit_mut(offset, len, visitor),
        }
    }

    #[inline]
    fn cells(&mut self, offset: usize, len: usize) -> impl Iterator<Item = &[Cell<u8>]> {
        match self {
            Self::Memory(memory) => Cells::Memory(memory.cells(offset, len)),
            Self::Bytes(bytes) => Cells::Bytes(bytes.cells(offset, len)),
        }
    }
}

/// Cells of a [`Destination`].
enum Cells<A, B> {
    Memory(A),
    Bytes(B),
}

impl<'a, A, B> Iterator for Cells<A, B>
where
    A: Iterator<Item = &'a [Cell<u8>]>,
    B: Iterator<Item = &'a [Cell<u8>]>,
{
    type Item = &'a [Cell<u8>];

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Memory(cells) => cells.next(),
            Self::Bytes(cells) => cells.next(),
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Memory(cells) => cells.size_hint(),
            Self::Bytes(cells) => cells.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_little_endian_at_its_place() {
        let mut bytes = [0; HEADER_LEN];
        bytes[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(body_len(&bytes), 0x0403_0201);
    }
}
