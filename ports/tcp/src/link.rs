//! A TCP connection and its state.
//!
//! ```text
//!   connect -> Dialling --+                      +--> Lingering --> removed
//!                         +--> Open -- close ----+
//!   accept  -> Greeting --+                      `--> removed
//! ```
//!
//! Owns: the descriptor, received bytes not yet delivered, accepted bytes not yet sent.
//! Out of scope: epoll, events.
//! Cost: an idle link is one box of 200 bytes and its table entry.

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

/// State of a link.
#[derive(Debug)]
pub(super) enum Phase {
    /// The kernel is connecting.
    Dialling(Box<Dial>),
    /// Accepted; the peer's preamble is not complete yet.
    Greeting,
    /// Carries packets.
    Open,
    /// Closed by the endpoint; accepted bytes are still sent.
    Lingering,
}

/// Connection attempt.
#[derive(Debug)]
pub(super) struct Dial {
    /// Addresses not tried yet, the next one last.
    pub(super) rest: SmallVec<[SocketAddr; 2]>,
    /// Number of the attempt, which identifies expired timers of earlier ones.
    pub(super) attempt: u32,
    /// Time by which this attempt has to succeed.
    pub(super) until: PeerDeadline,
    /// Most specific reason why an address did not answer.
    pub(super) worst: Option<LinkDown>,
}

/// Links of a port.
pub(super) type Table = table::Table<LinkId, Box<Link>>;

/// TCP connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) fd: sys::TcpSocket,
    pub(super) peer: SocketAddr,
    pub(super) phase: Phase,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    pub(super) unsent: Unsent,
    /// True for a link that the peer started until the endpoint binds it.
    pub(super) stranger: bool,
    /// Source whose share the link counts against.
    pub(super) source: Source,
    /// True once the endpoint knows the link: it requested it, or got a packet from it.
    pub(super) known: bool,
    /// True if the link is queued to be read.
    pub(super) queued: bool,
    /// True if the link is read on each poll.
    pub(super) active: bool,
    /// Number of reads since the port last slept, up to `poll_set::READS`, which makes the link active; and the number
    /// of that sleep.
    pub(super) reads: u8,
    pub(super) read_after: u32,
    /// True if the endpoint waits for [`mx_proto::round::PortEvent::Writable`].
    pub(super) waiting: bool,
    /// True if the link or the endpoint waits for room.
    pub(super) blocked: bool,
    /// True if the link is in the list of blocked links.
    pub(super) listed: bool,
    /// True if its epoll interest includes room.
    pub(super) watched_for_room: bool,
    /// True if the link is watched edge-triggered, because it waits for a whole packet.
    pub(super) watched_by_edge: bool,
    /// True if something was sent since the peer was last known to be alive.
    pub(super) doubted: bool,
    /// Time by which the peer has to acknowledge something; `None` unless the last check found that it is overdue.
    pub(super) owes_until: Option<PeerDeadline>,
    /// Reason for a failure to send; arrived packets are still delivered, then the link goes down.
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
        assert!(size_of::<Link>() <= 200, "{}", size_of::<Link>());
    }
}
