//! Suspended session: the state of an idle one, in a fraction of the memory (see `roster`).
//!
//! ```text
//!   Session --suspend--> SuspendedSession        nothing in flight, no ACK, Ping or probe due
//!           <--resume---
//! ```
//!
//! A suspended session has the cookies, the sequence numbers, and the properties of the path: round-trip time, window
//! (halved after so long a pause), datagram size. Everything else is as in a new session.

use super::super::pmtu::{Found, Pmtu};
use super::super::reliable_config::ReliableConfig;
use super::super::rtt::{Rtt, SavedRtt};
use super::super::seq::Seq;
use super::super::timers::Timer;
use super::{Caller, Session, State};
use crate::port::LinkFigures;
use crate::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::reliability) struct SuspendedSession {
    ours: u64,
    theirs: u64,
    proof: u64,
    heard_at: Instant,
    progress_at: Instant,
    pinged_at: Instant,
    path: SavedRtt,
    size: Found,
    /// Number of our next segment; `awaited`: of the peer's next.
    next: Seq,
    awaited: Seq,
    next_fragment: u32,
    /// Peer's receive window in bytes.
    peer_window: u32,
    advertised: u32,
    window: u32,
    slow_start: bool,
    resent: u32,
    moved: [u64; 2],
}

impl SuspendedSession {
    pub(in crate::reliability) fn cookies(&self) -> (u64, u64) {
        (self.ours, self.theirs)
    }

    pub(in crate::reliability) fn figures(&self) -> LinkFigures {
        LinkFigures {
            round_trip: self.path.srtt(),
            resent: self.resent,
            heard_at: Some(self.heard_at),
            sent: Some(self.moved[0]),
            received: Some(self.moved[1]),
        }
    }
}

impl Session {
    /// Returns the suspended form of an idle session. `None`: something is not finished.
    pub(in crate::reliability) fn suspend(&self) -> Option<SuspendedSession> {
        let timers = [Timer::Resend, Timer::Ask, Timer::Reordering, Timer::Ack];
        let done = self.state == State::Open
            && !self.unconfirmed
            && !self.fin
            && self.answers.is_empty()
            && self.keep_alive.is_settled()
            && self.recovery.asked.is_none()
            && self.recovery.send.is_empty()
            && !self.recv.has_holes()
            && !timers.iter().any(|timer| self.timers.is_set(*timer));
        if !done {
            return None;
        }
        Some(SuspendedSession {
            ours: self.ours,
            theirs: self.theirs,
            proof: self.proof,
            heard_at: self.keep_alive.heard_at,
            progress_at: self.keep_alive.progress_at,
            pinged_at: self.keep_alive.pinged_at,
            path: self.recovery.rtt.remembered(),
            size: self.pmtu.found()?,
            next: self.recovery.send.first(),
            awaited: self.recv.cumulative(),
            next_fragment: self.next_fragment,
            peer_window: u32::try_from(self.recovery.send.open_bytes()).unwrap_or(u32::MAX),
            advertised: self.advertised,
            window: u32::try_from(self.recovery.congestion.window()).unwrap_or(u32::MAX),
            slow_start: self.recovery.congestion.is_slow_start(),
            resent: self.resent,
            moved: self.moved,
        })
    }

    /// Makes a session from its suspended form, for a port with this `datagram_max` and `config`.
    pub(in crate::reliability) fn resume(
        suspended: &SuspendedSession,
        datagram_max: usize,
        config: &ReliableConfig,
    ) -> Self {
        let caller = Caller {
            cookie: suspended.theirs,
            first: suspended.awaited,
        };
        let heard_at = suspended.heard_at;
        let mut session = Self::new(
            heard_at,
            suspended.ours,
            suspended.next,
            Some(caller),
            datagram_max,
            config,
        );
        session.next_fragment = suspended.next_fragment;
        session.pmtu = Pmtu::recalled(datagram_max, suspended.size);
        let recovery = &mut session.recovery;
        recovery
            .send
            .on_window(suspended.next, suspended.peer_window);
        recovery.rtt = Rtt::recalled(config, heard_at, suspended.path);
        let congestion = &mut recovery.congestion;
        congestion.set_segment(session.pmtu.size());
        congestion.resume(suspended.window.into(), suspended.slow_start);
        session.advertised = suspended.advertised;
        session.keep_alive.progress_at = suspended.progress_at;
        session.keep_alive.pinged_at = suspended.pinged_at;
        session.proof = suspended.proof;
        session.resent = suspended.resent;
        session.moved = suspended.moved;
        session
    }

    /// Returns whether anything of ours was in flight after `since`.
    #[inline]
    pub(in crate::reliability) fn has_sent_since(&self, since: Instant) -> bool {
        self.keep_alive.progress_at > since
    }
}
