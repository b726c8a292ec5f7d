//! Session with a peer: its state, its sequence numbers, its acknowledgements.
//!
//! ```text
//!   Connecting --Welcome--> Open --close--> Closing --all acknowledged--> over
//!      |                  |  ^              |
//!      |     a stranger's |  `- OPENING     |        the called side has no state before the
//!      |                  |                 |        caller has proven its address
//!      +---- silence, Reset ----------------+-------------------> over
//!
//!   on_header, on_segment    arrivals              transmit   segments and control to send
//!   on_timer                 time-outs             deadline   of the next timer
//! ```
//!
//! Owns: the state, both windows, and one each of: timers, recovery, keep_alive, answers, ack_policy, pacer, pmtu.
//! Out of scope: packets of the endpoint, addresses, other sessions.

mod suspended;

use super::ack_policy::AckPolicy;
use super::answers::Answers;
use super::keep_alive::{KeepAlive, TRIES_BEFORE_GIVING_UP};
use super::pacer::Pacer;
use super::packet::{ASK, DATAGRAM_HEADER, DatagramKind, FIN, Header, OPENING, SACK_WORDS};
use super::pmtu::Pmtu;
use super::recovery::{Recovery, stamp};
use super::recv_window::{RecvWindow, Verdict};
use super::reliable_config::ReliableConfig;
use super::send_buffer::SendBuffer;
use super::seq::Seq;
use super::timers::{Timer, Timers};
use crate::port::{LinkDown, LinkFigures};
use crate::stats::ReliableStats;
use crate::time::Instant;
use std::time::Duration;
pub(super) use suspended::SuspendedSession;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) ours: u64,
    /// Peer's cookie, 0 until it is known.
    pub(super) theirs: u64,
    state: State,
    /// Whether we called, and nothing that belongs to the session has been heard yet.
    pub(super) unconfirmed: bool,
    /// Number of times that the peer had forgotten its Welcome.
    again: u32,
    pub(super) first: Seq,
    pub(super) timers: Timers,
    pub(super) recovery: Recovery,
    pub(super) pacer: Pacer,
    pub(super) pmtu: Pmtu,
    pub(super) next_fragment: u32,
    /// Whether a FIN has to be queued when there is room.
    pub(super) fin: bool,
    pub(super) resent: u32,
    /// Bytes of segments that the peer has acknowledged, and of segments received.
    moved: [u64; 2],
    pub(super) recv: RecvWindow,
    acks: AckPolicy,
    /// Receive window in the last datagram that we sent, in bytes.
    advertised: u32,
    /// Peer's last acknowledgement; most datagrams repeat it.
    last_ack: (Seq, u64, u32),
    pub(super) keep_alive: KeepAlive,
    pub(super) answers: Answers,
    /// Value that the answer to a Probe must have, which proves that the Probe has arrived.
    pub(super) proof: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A Hello has been or is to be sent.
    Connecting {
        began: Instant,
        tries: u32,
        /// Time of the first of those tries.
        first_at: Instant,
    },
    Open,
    /// Accepted packets are still delivered.
    Closing,
}

/// Peer that began a session, from its first datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) cookie: u64,
    pub(super) first: Seq,
}

/// Number of steps of silence in the time after which a peer is given up.
const STEPS: u32 = 16;

/// Size of the receive window in segments: as many as any peer's window has, whatever ours is. Takes 4 KiB of bits
/// while something is missing.
const NUMBERS: u16 = 1 << 15;

/// Maximum number of times that Hello is repeated to a peer that forgets its Welcome each time.
const HELLOS_AGAIN: u32 = 4;

impl Session {
    /// Makes a session that begins with our Hello or, with `caller`, one that a peer has proven to be in.
    pub(super) fn new(
        now: Instant,
        ours: u64,
        first: Seq,
        caller: Option<Caller>,
        datagram_max: usize,
        config: &ReliableConfig,
    ) -> Self {
        let mut timers = Timers::new();
        let state = if caller.is_some() {
            State::Open
        } else {
            timers.set(Timer::Hello, now);
            State::Connecting {
                began: now,
                tries: 0,
                first_at: now,
            }
        };
        let their_first = caller.map_or(Seq(0), |caller| caller.first);
        let pmtu = Pmtu::new(datagram_max);
        Self {
            ours,
            theirs: caller.map_or(0, |caller| caller.cookie),
            state,
            unconfirmed: caller.is_none(),
            again: 0,
            first,
            timers,
            recovery: Recovery::new(first, pmtu.size(), config),
            pacer: Pacer::new(),
            pmtu,
            next_fragment: 0,
            fin: false,
            resent: 0,
            moved: [0; 2],
            recv: RecvWindow::new(their_first, NUMBERS),
            acks: AckPolicy::new(config.ack_delay, config.window),
            advertised: u32::MAX,
            last_ack: (first, 0, 0),
            keep_alive: KeepAlive::new(now),
            answers: Answers::default(),
            proof: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns whether we have called and not been answered.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting { .. })
    }

    /// Returns whether the session is closing, so that nothing is delivered any more.
    pub(super) fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Returns whether both sides know that the other is in the session.
    pub(super) fn is_settled(&self) -> bool {
        !self.unconfirmed && self.pmtu.data_proven()
    }

    /// Returns whether the session was closing and everything has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing() && !self.fin && self.recovery.send.is_empty()
    }

    pub(super) fn figures(&self) -> LinkFigures {
        LinkFigures {
            round_trip: self.recovery.rtt.srtt(),
            resent: self.resent,
            heard_at: Some(self.keep_alive.heard_at),
            sent: Some(self.moved[0]),
            received: Some(self.moved[1]),
        }
    }

    /// Returns whether nothing is in flight to the peer or owed to it, and nothing was heard for `span`.
    pub(super) fn is_quiet(&self, now: Instant, span: Duration) -> bool {
        self.recovery.send.is_empty()
            && !self.timers.is_set(Timer::Ack)
            && !self.recv.has_holes()
            && now.since(self.keep_alive.heard_at) >= span
    }

    /// Handles the peer's answer to our Hello. Returns true if it opened the session.
    pub(super) fn on_welcome(&mut self, now: Instant, header: &Header) -> bool {
        let State::Connecting {
            tries, first_at, ..
        } = self.state
        else {
            return false;
        };
        self.theirs = header.from;
        self.recv = RecvWindow::new(header.seq, NUMBERS);
        self.recovery.send.on_window(self.first, header.window);
        if tries == 1 {
            self.recovery.rtt.on_sample(now, now.since(first_at));
        }
        self.state = State::Open;
        self.timers.stop(Timer::Hello);
        self.timers.stop(Timer::Connect);
        self.keep_alive.on_welcome(now);
        // The next datagram tells the called side that its Welcome has arrived.
        self.timers.set_earlier(Timer::Ack, now);
        true
    }

    /// Returns whether the session has been open before, but the called peer had forgotten it.
    pub(super) fn was_welcome_before(&self) -> bool {
        self.again > 0
    }

    /// Sends Hello again because the peer has forgotten the session just opened, after a pause that doubles each time;
    /// everything is sent again. Returns false if something was heard in the session, or after too many tries: the
    /// session ends.
    pub(super) fn call_again(&mut self, now: Instant, config: &ReliableConfig) -> bool {
        if !self.unconfirmed || self.state != State::Open || self.again >= HELLOS_AGAIN {
            return false;
        }
        self.again += 1;
        self.theirs = 0;
        self.state = State::Connecting {
            began: now,
            // Not 0, so that the time to the answer is no RTT sample.
            tries: 1,
            first_at: now,
        };
        self.timers = Timers::new();
        let pause = config.first_rto.saturating_mul(1 << self.again);
        self.timers.set(Timer::Hello, now.after(pause));
        self.acks.on_acked();
        self.recovery.send.on_timeout();
        self.recovery.asked = None;
        true
    }

    /// Handles the common part of every datagram of an established session. Returns false if the datagram must be
    /// dropped.
    #[inline]
    pub(super) fn on_header(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        send_buffer: &mut SendBuffer,
        stats: &mut ReliableStats,
    ) -> bool {
        self.keep_alive.on_heard(now);
        self.unconfirmed = false;
        self.pmtu.on_heard();
        let says = (header.ack, header.sack, header.window);
        let updated = says != self.last_ack || header.kind == DatagramKind::Ack;
        if updated && !self.on_ack(now, header, payload, send_buffer, stats) {
            return false;
        }
        self.last_ack = says;
        match header.kind {
            DatagramKind::Ping => {
                self.answers.on_ping(now, header.seq.0);
                if header.window == 0 {
                    // The peer is alive, but accepts nothing for now.
                    self.keep_alive.progress_at = now;
                }
            }
            DatagramKind::Probe => {
                let size = DATAGRAM_HEADER + payload.len();
                self.answers.probed = Some((size as u32, header.proof()));
            }
            DatagramKind::Probed if header.proof() == self.proof => {
                self.pmtu.on_probed(now, header.seq.0 as usize);
                self.recovery.congestion.set_segment(self.pmtu.size());
            }
            _ => {}
        }
        true
    }

    fn on_ack(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        send_buffer: &mut SendBuffer,
        stats: &mut ReliableStats,
    ) -> bool {
        let timers = &mut self.timers;
        let outcome = self
            .recovery
            .on_ack(now, header, payload, send_buffer, timers, stats);
        let Some(acked) = outcome else {
            stats.bad_acks += 1;
            return false;
        };
        // Small segments may keep arriving out of order where large ones never do.
        self.pmtu.on_progress(acked.moved, acked.largest as usize);
        if acked.segments > 0 {
            self.keep_alive.progress_at = now;
            self.moved[0] += acked.bytes;
        }
        if header.kind == DatagramKind::Ack {
            let answer = (header.seq.0, self.keep_alive.pinged_at);
            if self.recovery.on_answer(now, answer, timers, stats) {
                self.on_nothing_arrived(now, stats);
            }
        }
        true
    }

    /// Handles the service's report of the path's maximum size.
    pub(super) fn on_too_large(&mut self, now: Instant, most: usize) {
        self.pmtu.on_too_large(now, most);
        self.recovery.congestion.set_segment(self.pmtu.size());
    }

    /// Counts a segment and schedules its acknowledgement.
    #[inline]
    pub(super) fn on_segment(&mut self, now: Instant, header: &Header, verdict: Verdict) {
        if matches!(verdict, Verdict::Next | Verdict::Early) {
            self.moved[1] += (DATAGRAM_HEADER + usize::from(header.payload)) as u64;
        }
        let asked = header.flags & (ASK | FIN) != 0;
        let due = match verdict {
            Verdict::Next if !asked && !self.recv.has_holes() => self.acks.on_in_order(now),
            Verdict::Next | Verdict::Early if !asked => self.acks.on_early(now),
            // An old number: our acknowledgement was lost.
            _ => now,
        };
        self.timers.set_earlier(Timer::Ack, due);
    }

    /// Tells a peer that may wait for it that its receive window is open again, after packets were delivered.
    pub(super) fn on_drained(&mut self, now: Instant, window: u32, limit: usize) {
        let limit = limit as u32;
        if self.advertised < limit / 4 && window >= limit / 2 {
            self.timers.set_earlier(Timer::Ack, now);
        }
    }

    /// Begins to close: nothing follows, and a FIN is queued after everything else.
    pub(super) fn close(&mut self, until: Instant) {
        self.fin = self.is_open();
        self.state = State::Closing;
        self.timers.set(Timer::Linger, until);
    }

    /// Returns the acknowledgement of everything, sent when the session ends here.
    pub(super) fn farewell(&self) -> Header {
        self.acknowledging(DatagramKind::Ack, self.advertised)
    }

    /// Handles the service's report that a datagram of this session found no socket at the peer's address. Returns true
    /// if the peer is to be declared dead.
    pub(super) fn on_refused(&mut self) -> bool {
        self.keep_alive.on_refused() || self.is_connecting()
    }

    /// Handles a report that the peer's data channel is refused. The session continues without it; a Ping is sent on
    /// the command channel.
    pub(super) fn on_data_refused(&mut self) {
        self.keep_alive.wanted |= !self.is_connecting();
    }

    /// Excuses a peer for the time in which this process did not run: a check at `now` that was due at `due` counts as
    /// one step of silence. (A process that often pauses still detects dead peers.)
    pub(super) fn exclude_pause(&mut self, due: Instant, now: Instant, config: &ReliableConfig) {
        let excused = now.since(due).saturating_sub(config.give_up / STEPS);
        if excused.is_zero() {
            return;
        }
        if let State::Connecting { began, .. } = &mut self.state {
            *began = began.after(excused).min(now);
        }
        self.keep_alive.exclude_pause(excused, now);
        self.timers.postpone(Timer::Linger, excused);
    }

    /// Handles the timers that have expired. `Some`: the session is over.
    pub(super) fn on_timer(
        &mut self,
        now: Instant,
        config: &ReliableConfig,
        stats: &mut ReliableStats,
    ) -> Option<LinkDown> {
        self.derive_timers(config);
        for timer in Timer::ALL {
            if !self.timers.is_expired(timer, now) {
                continue;
            }
            let timers = &mut self.timers;
            match timer {
                // `transmit` sends them, and stops the timer once there was room for them.
                Timer::Hello | Timer::Ack => {}
                Timer::Connect | Timer::Linger => return Some(LinkDown::TimedOut),
                Timer::Ask => {
                    self.recovery.on_overdue(now, self.keep_alive.pings, timers);
                    self.keep_alive.wanted = true;
                }
                Timer::Reordering => self.recovery.on_reordering_timeout(now, timers),
                Timer::Resend => {
                    if self.recovery.on_resend_timeout(now, timers) {
                        stats.timeouts += 1;
                        self.on_nothing_arrived(now, stats);
                    }
                }
                Timer::Pacing => timers.stop(Timer::Pacing),
                Timer::Probe => self.pmtu.on_timer(now),
                Timer::Ping => self.keep_alive.wanted = true,
            }
        }
        let timeouts = self.recovery.timeouts;
        if self.is_connecting() {
            return None;
        }
        self.keep_alive.lost(now, timeouts, config)
    }

    /// Sets the timers whose deadlines follow from other state.
    #[inline]
    fn derive_timers(&mut self, config: &ReliableConfig) {
        if let State::Connecting { began, tries, .. } = self.state {
            let enough = tries >= TRIES_BEFORE_GIVING_UP;
            let give_up = enough.then(|| began.after(config.connect_give_up));
            return self.timers.set(Timer::Connect, give_up);
        }
        let ping_at = self.keep_alive.ping_at(&self.recovery, config);
        self.timers.set(Timer::Ping, ping_at);
        self.timers.set(Timer::Probe, self.pmtu.deadline());
    }

    /// Notes that segments have not arrived, or not before they were retransmitted, perhaps because of their size.
    fn on_nothing_arrived(&mut self, now: Instant, stats: &mut ReliableStats) {
        if self.pmtu.on_timeout(now) {
            stats.black_holes += 1;
            self.recovery.congestion.set_segment(self.pmtu.size());
        }
    }

    /// Returns the time at which [`Self::on_timer`] or `transmit` has something to do.
    #[inline]
    pub(super) fn deadline(&mut self, config: &ReliableConfig) -> Instant {
        self.derive_timers(config);
        if self.is_closing() {
            // Silence alone needs no check: the session ends soon.
            self.timers.stop(Timer::Ping);
        }
        self.timers.next()
    }

    /// Makes a header with the acknowledgement of everything that has arrived.
    #[inline]
    pub(super) fn acknowledging(&self, kind: DatagramKind, window: u32) -> Header {
        let mut header = Header::new(kind, self.theirs, self.ours);
        header.ack = self.recv.cumulative();
        header.window = window;
        if kind == DatagramKind::Ack {
            header.seq = Seq(self.answers.stamp.unwrap_or(0));
        }
        if self.unconfirmed {
            header.flags = OPENING;
            header.sack = self.first.0.into();
        } else if self.recv.has_holes() {
            let mut words = [0; SACK_WORDS];
            self.recv.sack_words(&mut words);
            header.sack = words[0];
        }
        header
    }

    /// Records that an acknowledgement was sent, alone or piggybacked.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, window: u32) {
        self.advertised = window;
        self.acks.on_acked();
        self.timers.stop(Timer::Ack);
    }

    /// Makes a Ping which says that this side is alive and accepts nothing: its receive window is 0.
    pub(super) fn sign_of_life(&self, now: Instant) -> Header {
        let mut header = self.acknowledging(DatagramKind::Ping, 0);
        header.seq.0 = stamp(now);
        header
    }

    /// Records that a Hello was sent, and schedules the next one.
    pub(super) fn on_hello_sent(&mut self, now: Instant, config: &ReliableConfig) {
        if let State::Connecting {
            tries, first_at, ..
        } = &mut self.state
        {
            if *tries == 0 {
                *first_at = now;
            }
            let pause = config.first_rto.saturating_mul(1 << (*tries).min(16));
            let next = now.after(pause.min(config.max_rto));
            self.timers.set(Timer::Hello, next);
            *tries = tries.saturating_add(1);
        }
    }

    pub(super) fn shrink(&mut self) {
        self.recovery.send.shrink();
        self.recv.shrink();
    }
}

#[cfg(test)]
mod tests;
