//! Link: a session, its packets, and its state at the layer above.
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

/// A session, with its reassembly and the state that the layer above sees.
#[derive(Debug)]
pub(super) struct Link<A> {
    /// Address of the peer's command channel.
    pub(super) address: A,
    /// Address of the peer's data channel; `None` until it is known.
    pub(super) data: Option<A>,
    /// Bytes that may be sent to the data channel before it has been proven: if a datagram revealed its address, as
    /// many as came from there.
    pub(super) data_credit: usize,
    pub(super) session: Session,
    pub(super) reassembly: Reassembly,
    /// Whether the layer above knows the link, or began it.
    pub(super) known: bool,
    /// Whether the peer began the session.
    pub(super) called: bool,
    /// Time until which an incoming link must be accepted, so that a peer that only opens sessions does not fill the
    /// table; `None` once it is accepted, or if we began it.
    pub(super) trial: Option<PeerDeadline>,
    /// Whether payloads have a checksum; `None`: the service has not been asked yet.
    pub(super) sum: Option<bool>,
    /// Need of the packet that found no room; `None`: the link is not blocked.
    pub(super) blocked: Option<Need>,
    /// Packet of which a part has been taken.
    pub(super) midway: Option<PartialSend>,
    /// Epoch in which the link last brought data.
    pub(super) active: u64,
    /// Last epoch in which the link was counted as a sender of bulk data.
    pub(super) counted: u64,
    pub(super) timer: Option<(Instant, TimerId)>,
    pub(super) dirty: bool,
    pub(super) backlogged: bool,
}

/// Largest packet in bytes that is received over a link that is not accepted; many times an introduction.
pub(super) const INTRODUCTION_MAX: u32 = 256;

/// Maximum number of links that are not accepted yet.
pub(super) const TRIALS_MAX: usize = 32 << 10;

/// Space that a packet needs in a link's send window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    pub(super) segments: usize,
    pub(super) bytes: usize,
}

impl<A: Copy + Eq> Link<A> {
    /// Returns whether the link is not accepted yet, and this is more than an introduction.
    #[inline]
    pub(super) fn is_too_early(&self, header: &Header, payload: &[u8]) -> bool {
        self.trial.is_some()
            && (header.whole > INTRODUCTION_MAX || header.whole as usize != payload.len())
    }

    /// Makes a link. `known`: we began it, so the layer above knows of it; otherwise the peer began it.
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

    /// Returns whether the peer's datagrams come from this address. A Probe may reveal the address of its data channel,
    /// as long as none of our Probes has been answered there.
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

    /// Records that data has come, and counts the link as a sender in this epoch if its packet is not tiny.
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

    /// Returns whether the send window has room for a packet.
    #[inline]
    pub(super) fn has_room(&self, need: Need, config: &ReliableConfig) -> bool {
        self.session.recovery.send.free() >= need.segments
            && (self.session.recovery.send.queued_bytes() == 0 || need.bytes <= self.room(config))
    }

    /// Returns the number of bytes that the send window still takes.
    #[inline]
    pub(super) fn room(&self, config: &ReliableConfig) -> usize {
        let queued = self.session.recovery.send.queued_bytes() as usize;
        self.send_limit(config).saturating_sub(queued)
    }

    /// Returns how many unacknowledged bytes may be kept: as many as can be in flight, and as many again so that the
    /// link stays busy. Bytes that wait longer leave the cache.
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

    /// A suspended link takes a sixth of that; see `roster`.
    #[test]
    fn memory_of_an_idle_link_is_small() {
        let size = size_of::<Link<(usize, u8)>>();
        assert!(size <= 1536, "a link takes {size} bytes");
    }
}
