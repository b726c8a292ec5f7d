//! A link: a session, its packets, and its state at the layer above.
//!
//! Out of scope: other links.

use super::packet::{DatagramKind, Header};
use super::parts::PartialSend;
use super::reassembly::Reassembly;
use super::reliable_config::ReliableConfig;
use super::senders::Senders;
use super::service::Channel;
use super::session::Session;
use crate::time::{Instant, PeerDeadline};
use crate::timer::TimerId;

/// A session and what the layer above knows of it.
#[derive(Debug)]
pub(super) struct Link<A> {
    /// Address of the peer's command channel.
    pub(super) address: A,
    /// Address of the peer's data channel, once we have heard of it.
    pub(super) data: Option<A>,
    /// Bytes that may go there before it has been proven: as many as came from there, if it was a
    /// datagram that told us of it.
    pub(super) data_credit: usize,
    pub(super) session: Session,
    pub(super) reassembly: Reassembly,
    /// The layer above has heard of it, or began it.
    pub(super) known: bool,
    /// The peer began the session.
    pub(super) called: bool,
    /// The time until which an incoming link is to be bound, so that a peer that only opens sessions
    /// does not fill the table; `None` once it is.
    pub(super) trial: Option<PeerDeadline>,
    /// Payloads are summed; `None`: the service has not been asked yet.
    pub(super) sum: Option<bool>,
    /// The needs of the packet that found no room.
    pub(super) blocked: Option<Need>,
    /// The packet of which a part has been taken.
    pub(super) midway: Option<PartialSend>,
    /// The epoch in which it last brought data.
    pub(super) active: u64,
    /// The last epoch in which it was counted as a sender of bulk data.
    pub(super) counted: u64,
    pub(super) timer: Option<(Instant, TimerId)>,
    pub(super) dirty: bool,
    pub(super) backlogged: bool,
}

/// Largest packet that is taken in from a link that is not bound; many times an introduction.
pub(super) const INTRODUCTION_MAX: u32 = 256;

/// Links on trial at the same time.
pub(super) const TRIALS_MAX: usize = 32 << 10;

/// A packet's needs of a link's send window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    pub(super) segments: usize,
    pub(super) bytes: usize,
}

impl<A: Copy + Eq> Link<A> {
    /// True if it is not bound, and this is more than an introduction.
    #[inline]
    pub(super) fn is_too_early(&self, header: &Header, payload: &[u8]) -> bool {
        self.trial.is_some()
            && (header.whole > INTRODUCTION_MAX || header.whole as usize != payload.len())
    }

    /// A link that we began, so that the layer above knows of it, or (`known` is false) that the peer began.
    pub(super) fn new(address: A, session: Session, known: bool) -> Self {
        Self {
            address,
            data: None,
            data_credit: 0,
            session,
            reassembly: Reassembly::new(0),
            known,
            called: !known,
            trial: None,
            sum: None,
            blocked: None,
            midway: None,
            active: 0,
            counted: 0,
            timer: None,
            dirty: false,
            backlogged: false,
        }
    }

    /// Whether the peer's datagrams come from there. Where its data channel is, a Probe tells, as
    /// long as none of ours has been answered there.
    #[inline]
    pub(super) fn is_home(
        &self,
        (channel, from): (Channel, A),
        kind: DatagramKind,
        same_host: fn(A, A) -> bool,
    ) -> bool {
        match channel {
            Channel::Command => self.address == from || same_host(self.address, from),
            Channel::Data if self.data == Some(from) => true,
            Channel::Data => kind == DatagramKind::Probe && !self.session.pmtu.data_proven(),
        }
    }

    /// Notes that data has come, and counts the link as a sender in this epoch if its packet is more than a tiny one.
    #[inline]
    pub(super) fn note_data(
        &mut self,
        now: Instant,
        header: &Header,
        senders: &mut Senders,
        config: &ReliableConfig,
    ) {
        self.active = senders.enter(now);
        if header.whole as usize > config.tiny && self.counted != self.active {
            self.counted = self.active;
            senders.count();
        }
    }

    /// The send window can take this.
    #[inline]
    pub(super) fn has_room(&self, need: Need, config: &ReliableConfig) -> bool {
        self.session.recovery.send.free() >= need.segments
            && (self.session.recovery.send.queued_bytes() == 0 || need.bytes <= self.room(config))
    }

    /// Bytes that the send window still takes.
    #[inline]
    pub(super) fn room(&self, config: &ReliableConfig) -> usize {
        let queued = self.session.recovery.send.queued_bytes() as usize;
        self.send_limit(config).saturating_sub(queued)
    }

    /// Bytes that may wait here for their acknowledgement: what can be under way, and as much again
    /// so that the wire does not run dry. Bytes that wait longer leave the cache.
    fn send_limit(&self, config: &ReliableConfig) -> usize {
        let twice = 2 * self.session.recovery.congestion.window() as usize;
        twice.clamp((256 << 10).min(config.send_bytes), config.send_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::seq::Seq;
    use super::*;

    #[test]
    fn tiny_packets_do_not_divide_the_receive_window() {
        let (now, config) = (Instant(1), ReliableConfig::default());
        let mut senders = Senders::new(4 << 20, 1 << 20);
        let link = || {
            let session = Session::new(now, 1, Seq(0), None, 1472, &config);
            Link::new(0_u8, session, true)
        };
        let mut header = Header::new(DatagramKind::Data, 1, 1);
        for (whole, share) in [(768, 1 << 20), (769, 1 << 20), (769, 1 << 19), (1, 1 << 19)] {
            header.whole = whole;
            let mut link = link();
            for _ in 0..3 {
                link.note_data(now, &header, &mut senders, &config);
            }
            assert_eq!(senders.share(), share, "{whole}");
        }
    }

    /// A suspended one takes a sixth of that, see `roster`.
    #[test]
    fn memory_of_an_idle_link_is_small() {
        let size = size_of::<Link<(usize, u8)>>();
        assert!(size <= 1536, "a link takes {size} bytes");
    }
}
