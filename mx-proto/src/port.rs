//! The interface between an endpoint and a port, which carries its packets.
//!
//! ```text
//!             send / resume --> Whole, Part, WouldBlock, Down
//!   Endpoint  connect, accept, close, ...                        --> Port
//!             begin, next   --> PortEvent (`round`)
//! ```
//!
//! A port carries *packets* over *links*: a fixed header and a body. A link is reliable and keeps
//! order: an accepted packet arrives once, complete and in sequence, or the link goes down. (Ports
//! over datagrams use the reliability layer of this crate.)
//!
//! A packet that `send` refused has had no effect, so there is nothing to undo when a port has no
//! room. A port never calls the endpoint: its events are polled out ([`Rounds`]).

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

/// Bytes of every packet's header.
pub const HEADER_LEN: usize = 32;

/// Offset of the body's length (`u32`, little endian) in a header: the one field of a packet's
/// header that a port over a byte stream has to understand.
pub const BODY_LEN_AT: usize = 4;

/// The length of its body, as a packet's header says.
#[inline]
pub fn body_len(header: &HeaderBytes) -> usize {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| header[BODY_LEN_AT + at]);
    u32::from_le_bytes([a, b, c, d]) as usize
}

/// Bytes of a body that every link carries.
pub const PACKET_LEAST: usize = 4 << 10;

/// Time after which a port drops an incoming link that has not been accepted ([`LinkControl::accept`]). A
/// correct caller introduces itself as soon as it can; a lost packet is retransmitted half a dozen
/// times in this time.
pub const ACCEPTED_WITHIN: Duration = Duration::from_secs(5);

/// A packet's header as it stands on the wire (see `wire`).
pub type HeaderBytes = [u8; HEADER_LEN];

/// The network's figures of one link, for tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkFigures {
    /// The smoothed round trip (RFC 6298), where the port measures one.
    pub round_trip: Option<Duration>,
    /// Retransmissions, of datagrams or of the kernel's segments.
    pub resent: u32,
    /// The time at which anything last came.
    pub heard_at: Option<Instant>,
    /// Bytes that the peer has acknowledged, where the port counts them.
    pub sent: Option<u64>,
    /// Bytes that have come, where the port counts them.
    pub received: Option<u64>,
}

/// The limits of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest body that is given out whole ([`PortEvent::Packet`](crate::round::PortEvent::Packet)). At least [`PACKET_LEAST`].
    pub packet_max: usize,
    /// Largest body of an eager message, which may be more than `packet_max`, of a port that gives
    /// it out in parts ([`PortEvent::Part`](crate::round::PortEvent::Part)). 0: the port gives eager messages out whole.
    pub streamed_max: usize,
    /// Largest body of a data packet, the kind whose place is known beforehand.
    pub data_max: usize,
    /// Bytes of a large message that the receiver requests at once.
    pub pull_block: usize,
    /// The port can read the peer's memory by itself ([`RemoteMemory::read`]).
    pub remote_read: bool,
    /// A read that is refused ends the link: a peer is asked to stop before [`RemoteMemory::deregister`].
    pub refusal_ends_link: bool,
    /// Limit of data links that a session over this link has for its bulk data ([`LinkControl::connect_beside`]); 0: none.
    pub data_links: u32,
}

/// Whether a port with so many links, of at most so many, has places for a session's second one: the last eighth is for
/// sessions' own links.
pub fn has_places_beside(links: usize, most: usize) -> bool {
    links < most - most / 8
}

impl Limits {
    /// The largest message that goes with its data.
    pub fn eager_max(&self) -> usize {
        self.packet_max.min(SMALL_MAX).max(self.streamed_max)
    }
}

/// A packet's body, lent to the port for the time of one call.
#[derive(Debug)]
pub enum Body<'a, M> {
    /// Bytes of the endpoint's own.
    Bytes(&'a [u8]),
    /// Part of a posted operation's buffer.
    Memory {
        /// The buffer.
        memory: &'a M,
        /// First byte of it to send.
        offset: usize,
        /// Their number.
        len: usize,
    },
}

impl<M: Memory> Body<'_, M> {
    /// Its bytes, if they lie in one piece and that is easily told.
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

    /// Bytes in the body.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Memory { len, .. } => *len,
        }
    }

    /// True when there is not one byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of a packet that the port accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// All of it; the body's bytes are the caller's again.
    Whole,
    /// The header and this many bytes of the body, which is less than all of them. The link takes
    /// nothing else until [`Port::resume`] has brought the rest or [`Port::detach`] has taken it.
    /// Only for a [`Body::Memory`] larger than [`Limits::packet_max`]: a smaller body is taken whole or
    /// not at all.
    Part(usize),
}

/// Reasons for refusing a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No room now. [`PortEvent::Writable`](crate::round::PortEvent::Writable) follows when there is.
    WouldBlock,
    /// The link is gone; [`PortEvent::Down`](crate::round::PortEvent::Down) says so too.
    Down,
}

/// Reasons for the end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkDown {
    /// No process listens there.
    Refused,
    /// There is no route there.
    Unreachable,
    /// The peer does not see that we are who we say we are.
    Denied,
    /// No answer in time.
    TimedOut,
    /// The peer closed it in order.
    Closed,
    /// The peer died or cut it.
    Reset,
    /// The peer sent what no peer of ours sends.
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

/// Reasons why a link could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The network interface is not known here.
    UnknownNic,
    /// The endpoint number is out of range.
    BadEndpoint,
    /// The requested port cannot go there.
    NoRoute,
    /// No process has that endpoint open, and the port knows it at once.
    Refused,
    /// No descriptors or memory left.
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

/// The end of a link that could not even be started.
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

/// Bit of the fabric of the rdm port, in hellos.
pub const FABRIC_RDM: u32 = 4;
/// Bit of the fabric of the dgram port, likewise.
pub const FABRIC_DGRAM: u32 = 8;

/// Reasons why a session does not move to a fabric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MoveRefusal {
    /// The peer does not have it.
    NotOffered,
    /// There is no room for another link.
    Full,
    /// The fabric has failed, or does not lead there.
    Failed,
    /// The peer's address is none of our fabric.
    Differs,
    /// The link over the fabric has ended.
    Ended(LinkDown),
}

impl MoveRefusal {
    /// The reason as it travels.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Full => 1,
            _ => 2,
        }
    }

    /// The reason that has come.
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

/// Ways to close a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// Accepted packets are still delivered, for a bounded time.
    Flush,
    /// At once.
    Now,
}

/// A peer's memory that a port can read by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteKey {
    /// Its beginning, in the port's terms.
    pub address: u64,
    /// The key for it, in the port's terms.
    pub key: u64,
}

/// Descriptors that become readable when a port has something to do while it is armed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeDescriptors {
    /// Links coming and going. Readable whether the port is armed or not.
    pub control: Option<i32>,
    /// Packets. Only to be trusted between [`LinkControl::arm`] and [`LinkControl::disarm`].
    pub data: Option<i32>,
}

/// The links of a port, who is at their other ends, and sleeping: all that has nothing to do with memory.
pub trait LinkControl {
    /// The limits of `link`; any value for a link that is gone.
    fn limits(&self, link: LinkId) -> Limits;

    /// Starts a link to `target`. [`PortEvent::Up`](crate::round::PortEvent::Up) or [`PortEvent::Down`](crate::round::PortEvent::Down) follows, in a later
    /// round.
    fn connect(&mut self, target: Target, now: Instant) -> Result<LinkId, ConnectError>;

    /// Starts another link to the address at the other end of `link`, which we began. [`PortEvent::Up`](crate::round::PortEvent::Up)
    /// or [`PortEvent::Down`](crate::round::PortEvent::Down) follows.
    fn connect_beside(&mut self, _link: LinkId, _now: Instant) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoRoute)
    }

    /// Whether there are places enough that a session may have a second link, such as this one that a peer began.
    fn has_places_beside(&self, _link: LinkId) -> bool {
        true
    }

    /// Bits of the fabrics to which the session that is met on `link` may move. `called`: we have begun the link, and it is the one
    /// that its target asks for.
    fn fabrics(&self, _link: LinkId, _called: bool) -> u32 {
        0
    }

    /// Whether the target of a link that we began asks for a fabric and nothing else.
    fn must_move(&self, _link: LinkId) -> bool {
        false
    }

    /// Makes an end of a link over a fabric for the peer of `link`, if there has to be one before it is used. Returns our
    /// address for that peer.
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

    /// The session of a link that we began does not move.
    fn decline_move(&mut self, _link: LinkId, _why: MoveRefusal) {}

    /// Asks whether the process of the peer of `link` is still there, and ends the link soon if it does not answer. False: the port
    /// cannot.
    fn probe_peer(&mut self, _link: LinkId, _now: Instant) -> bool {
        false
    }

    /// Small packets that are sent from now on may be held, to leave together: with the next packet that is not held, the next
    /// round, [`Self::arm`], [`Self::close`] or [`Self::send_held`]. They count as sent. `may` is false: no further ones.
    #[inline]
    fn hold(&mut self, _may: bool) {}

    /// Whether packets are held: [`Self::send_held`] has to be called soon, if no round begins.
    #[inline]
    fn holds(&self) -> bool {
        false
    }

    /// Sends the packets that are held.
    fn send_held(&mut self) {}

    /// Accepts a link: its peer has been met. One that a stranger began and that is not accepted goes down
    /// ([`ACCEPTED_WITHIN`]).
    fn accept(&mut self, _link: LinkId) {}

    /// Whether a link that returned [`SendError::WouldBlock`] has room again. Called before a send;
    /// implemented by ports that can find out cheaply. Others only call [`PortEvent::Writable`](crate::round::PortEvent::Writable).
    #[inline]
    fn has_room(&mut self, _link: LinkId) -> bool {
        false
    }

    /// Ends a link. Nothing of it follows: no packet that came before and has not been given out, no
    /// [`PortEvent::Down`](crate::round::PortEvent::Down). Unknown links are ignored.
    fn close(&mut self, link: LinkId, how: Close);

    /// The time at which a round should begin although nothing arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Prepares for sleeping: from now on anything that arrives makes a descriptor of
    /// [`LinkControl::descriptors`] readable. Returns false when something is already there, in which
    /// case the caller polls again instead of sleeping.
    fn arm(&mut self) -> bool;

    /// The opposite of [`LinkControl::arm`]: the caller polls again, peers need not wake it.
    fn disarm(&mut self);

    /// The descriptors to sleep on.
    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors::default()
    }

    /// Number of links that others have an end of, those under way and those lingering included.
    fn link_count(&self) -> usize {
        0
    }

    /// Makes the next round look for links coming and going, because the control descriptor is readable.
    fn note_control(&mut self) {}

    /// The other end of `link`, according to the network. It says that it is `claimed`, and a port that
    /// cannot have strangers believes that.
    fn link_origin(&self, _link: LinkId, claimed: &Identity) -> LinkOrigin {
        LinkOrigin::trusted(claimed)
    }
    /// Whether that interface is one of this machine's. A peer says that it has called us there.
    fn has_interface(&self, _nic: NicId) -> bool {
        true
    }

    /// A value that both ends of `link` know and that differs from that of any other link: proofs
    /// of the site's secret cover it, so that they are not valid on another link. Constant while
    /// the link is up.
    fn binding(&self, _link: LinkId) -> Binding {
        [0; 2]
    }

    /// Says whether operations wait for the peer of `link`. A port whose peers' deaths show only
    /// when something is sent to them then sends something now and then, where that tells.
    fn monitor(&mut self, _link: LinkId, _wanted: bool) {}

    /// The time at which anything last came from the peer of `link`, also if no packet was
    /// complete. `None`: the port knows only of packets.
    fn heard_at(&self, _link: LinkId) -> Option<Instant> {
        None
    }

    /// The time at which [`LinkControl::keep_alive`] should be called instead of a round, by an
    /// endpoint that polls no packets at present. `None`: peers do not time out silent links.
    fn keep_alive_due(&self) -> Option<Instant> {
        None
    }

    /// Lets peers that would take silence for our end know that there is none, and takes nothing
    /// in.
    fn keep_alive(&mut self, _now: Instant) {}
}

/// Carries packets over links. `M` is the type of application memory bodies come from.
pub trait Port<M: Memory>: LinkControl + Rounds<M> {
    /// Sends one packet. The body's length is already in the header.
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError>;

    /// Brings more of a body of which [`Sent::Part`] was taken: `len` bytes of `memory` from
    /// `offset` on, which end where that body ends.
    fn resume(
        &mut self,
        link: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError>;

    /// The memory of a body of which [`Sent::Part`] was taken is about to go: the port copies the
    /// rest, `len` bytes from `offset` on, sends it by itself, and does not read the memory again.
    /// (The packet has to end, and with its true bytes: the receiver may be complete with it.)
    fn detach(&mut self, link: LinkId, memory: &M, offset: usize, len: usize);

    /// The memory of the peer of `link` that the port reads by itself, and ours that it lets the peer read; `None`: it cannot.
    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        None
    }
}

/// Memory that peers read by themselves: a link's messages without a copy ([`Limits::remote_read`]).
pub trait RemoteMemory<M> {
    /// Lets the peer of `link` read `memory` by itself, under `token`. `None`: it cannot.
    fn register(&mut self, link: LinkId, memory: &M, token: u64) -> Option<RemoteKey>;

    /// Ends what [`Self::register`] began: when it returns, that memory is not read any more.
    fn deregister(&mut self, link: LinkId, key: RemoteKey);

    /// Starts reading memory that the peer registered. [`PortEvent::RemoteRead`](crate::round::PortEvent::RemoteRead) follows with the
    /// token. An error means that the port would rather not, now or for this message.
    fn read(&mut self, link: LinkId, read: RemoteRead<'_, M>) -> Result<(), SendError>;

    /// The result of a [`Self::read`] is not wanted: it may end early, and is reported as always.
    fn stop(&mut self, link: LinkId, token: u64);

    /// Lets go of the memory of a [`Self::read`]: when it returns, the
    /// port touches it no more, and no report with that token follows. The link may go down over it.
    fn recall(&mut self, link: LinkId, token: u64);
}

/// A read of the peer's memory ([`RemoteMemory::read`]).
#[derive(Debug)]
pub struct RemoteRead<'a, M> {
    /// The peer's registration.
    pub key: RemoteKey,
    /// First byte of it to read.
    pub from: usize,
    /// The destination.
    pub memory: &'a mut M,
    /// Their offset there.
    pub at: usize,
    /// The length.
    pub len: usize,
    /// Comes back with [`PortEvent::RemoteRead`](crate::round::PortEvent::RemoteRead).
    pub token: u64,
}

/// An end of a remote read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteUse {
    /// Ours: the token of [`RemoteMemory::read`].
    Reading(u64),
    /// The peer's, of memory of ours: the token of [`RemoteMemory::register`].
    Registered(u64),
}

/// The destination of a packet's body.
#[derive(Debug)]
pub struct Place<'a, M> {
    /// The memory.
    pub memory: Destination<'a, M>,
    /// The offset at which the body begins. All of the body fits.
    pub offset: usize,
}

/// Memory that a port reads a body into.
#[derive(Debug)]
pub enum Destination<'a, M> {
    /// The posted receive's buffer, or memory of the owner's.
    Memory(&'a mut M),
    /// Bytes of the endpoint's own.
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

/// The cells of a [`Destination`].
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
