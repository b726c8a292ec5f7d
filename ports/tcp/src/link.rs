//! A TCP connection and its state.
//!
//! ```text
//!   connect -> Dialling --+                      +--> Lingering --> gone
//!                         +--> Open -- close ----+
//!   accept  -> Greeting --+                      `--> gone
//! ```
//!
//! Owns: the descriptor, bytes received and not delivered, bytes accepted and not sent.
//! Out of scope: epoll, events.
//! Cost: an idle link is one box of some 250 bytes beside its place in the table of all.

use super::receive::Rx;
use super::send::Tx;
use super::sys;
use super::unsent::Unsent;
use mx_proto::origin::Source;
use mx_proto::port::LinkDown;
use mx_proto::time::PeerDeadline;
use mx_proto::{LinkId, table};
use smallvec::SmallVec;
use std::net::SocketAddr;

/// The state of a link.
#[derive(Debug)]
pub(super) enum Phase {
    /// The kernel is connecting.
    Dialling(Box<Dial>),
    /// Accepted, but it has not said yet that it is one of ours.
    Greeting,
    /// Carries packets.
    Open,
    /// Closed by its owner; what was accepted still goes out.
    Lingering,
}

/// A connection being made.
#[derive(Debug)]
pub(super) struct Dial {
    /// Addresses not tried yet, the next one last.
    pub(super) rest: SmallVec<[SocketAddr; 2]>,
    /// The number of the attempt, by which an expired timer of an earlier one is recognised.
    pub(super) attempt: u32,
    /// The time by which this attempt has to succeed.
    pub(super) until: PeerDeadline,
    /// The most telling reason why an address did not answer.
    pub(super) worst: Option<LinkDown>,
}

/// All links of a port.
pub(super) type Table = table::Table<LinkId, Box<Link>>;

/// A TCP connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) fd: sys::TcpSocket,
    pub(super) peer: SocketAddr,
    pub(super) phase: Phase,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    pub(super) unsent: Unsent,
    /// The peer began the link, and the endpoint has not bound it.
    pub(super) stranger: bool,
    /// The source whose share it counts against.
    pub(super) source: Source,
    /// The endpoint has heard of it: it asked for it, or a packet of it was delivered.
    pub(super) known: bool,
    /// The link is in the list of links to read.
    pub(super) queued: bool,
    /// The link is in the list of links read on each poll.
    pub(super) active: bool,
    /// The number of reads since the port last slept, up to that which makes it active; and the
    /// number of that sleep.
    pub(super) reads: u8,
    pub(super) read_after: u32,
    /// The endpoint was told that there is no room and waits for [`mx_proto::round::PortEvent::Writable`].
    pub(super) waiting: bool,
    /// The link waits for room, or the endpoint does.
    pub(super) blocked: bool,
    /// The link is in the list of blocked links.
    pub(super) listed: bool,
    /// Its epoll interest includes room.
    pub(super) watched_for_room: bool,
    /// Its epoll interest is in what is new, because it waits for a whole packet.
    pub(super) watched_by_edge: bool,
    /// Something was sent since the peer was last known to be alive.
    pub(super) doubted: bool,
    /// The time by which the peer has to acknowledge something, if the last check found that it owes that.
    pub(super) owes_until: Option<PeerDeadline>,
    /// Sending failed; what still arrives is delivered, then the link goes down over this.
    pub(super) failed: Option<LinkDown>,
}

impl Link {
    pub(super) fn new(fd: sys::TcpSocket, peer: SocketAddr, phase: Phase) -> Self {
        Self {
            fd,
            peer,
            stranger: false,
            source: Source::TRUSTED,
            known: matches!(phase, Phase::Dialling(_)),
            phase,
            rx: Rx::default(),
            tx: Tx::default(),
            unsent: Unsent::default(),
            queued: false,
            active: false,
            reads: 0,
            read_after: 0,
            waiting: false,
            blocked: false,
            listed: false,
            watched_for_room: false,
            watched_by_edge: false,
            doubted: false,
            owes_until: None,
            failed: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_link_is_small() {
        assert!(size_of::<Link>() <= 320, "{}", size_of::<Link>());
    }
}
