//! One session with one peer: numbers, acknowledgements, timers; no packets.
//!
//! ```text
//!   Connecting --Welcome--> Open --close--> Closing --all acknowledged--> over
//!      |                  |  ^              |
//!      |     a stranger's |  `- OPENING     |        the called side has no state before the
//!      |                  |                 |        caller has proven where it is
//!      +---- silence, Reset ----------------+-------------------> over
//!
//!   on_header, on_segment    arrivals              transmit   segments and control to send
//!   on_timer                 time-outs             deadline   of the next timer
//! ```
//!
//! Owns: both windows, the estimates, the state.
//! Not here: packets of the endpoint, addresses, other sessions.

mod suspended;

use super::ack_policy::AckPolicy;
use super::congestion::Congestion;
use super::pacer::Pacer;
use super::packet::{ASK, DATAGRAM_HEADER, DatagramKind, FIN, Header, OPENING, SACK_WORDS};
use super::pmtu::Pmtu;
use super::recv_window::{RecvWindow, Verdict};
use super::reliable_config::ReliableConfig;
use super::reordering::Reordering;
use super::rtt::Rtt;
use super::send_buffer::SendBuffer;
use super::send_window::{Acked, LossDetection, SendWindow};
use super::seq::Seq;
use super::service::Channel;
use crate::port::LinkDown;
use crate::stats::ReliableStats;
use crate::time::Instant;
use std::time::Duration;
pub(super) use suspended::SuspendedSession;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    ours: u64,
    /// 0 until the peer has named itself.
    theirs: u64,
    pub(super) state: State,
    /// We called, and nothing that belongs to the session has been heard yet.
    pub(super) unconfirmed: bool,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    /// Number of our first segment.
    pub(super) first: Seq,
    /// Number of our next fragment.
    pub(super) next_fragment: u32,
    pub(super) rtt: Rtt,
    reordering: Reordering,
    pub(super) congestion: Congestion,
    pub(super) pacer: Pacer,
    pub(super) pmtu: Pmtu,
    pub(super) acks: AckPolicy,
    /// FIN waits for a place.
    pub(super) fin: bool,
    /// Room in the last thing we sent.
    advertised: u32,
    /// The last acknowledgement; most datagrams repeat it.
    last_ack: (Seq, u64, u32),
    /// Bytes sent since the peer was last asked for an acknowledgement.
    pub(super) since_ask: u64,
    /// The time of the peer's last valid datagram.
    heard_at: Instant,
    /// The time at which the peer last acknowledged something new, or the window was last empty.
    progress_at: Instant,
    /// The time at which what is in flight counts as lost.
    resend_at: Option<Instant>,
    /// The time at which the peer is sent a Ping for overdue segments.
    ask_at: Option<Instant>,
    /// The time at which the next reordered segment is lost.
    judge_at: Option<Instant>,
    /// The time at which the pacer lets more go.
    pub(super) paced_until: Option<Instant>,
    /// Time-outs in a row.
    timeouts: u32,
    /// The time of the last Ping, and the number of Pings since the last datagram from the peer.
    pinged_at: Instant,
    pings: u32,
    /// A Ping is to go out.
    pub(super) ping: bool,
    /// The time of the first unanswered one of those Pings.
    asked: Option<Instant>,
    /// The channel of the last of them, and the number of transmissions there before it.
    asked_behind: (Channel, u64),
    /// The time at which a segment was last declared lost.
    lost_at: Option<Instant>,
    /// On which channel the last segment went.
    pub(super) last_sent_on: Channel,
    /// Earlier segments give no sample of the round trip: their acknowledgement was overdue.
    overdue_at: Instant,
    /// The stamp of the last Ping that is not answered, and when the first of those came.
    to_answer: Option<(u32, Instant)>,
    /// The stamp for the next Ack, which is the answer.
    pub(super) answer: Option<u32>,
    /// A Probe of this size and with this proof arrived and is to be answered.
    pub(super) probed: Option<(u32, u64)>,
    /// The value that the answer to a Probe must have, which proves that the Probe has arrived.
    pub(super) proof: u64,
    /// Refusals ("port unreachable") since the peer was last heard.
    refusals: u32,
    /// The interval of Pings while operations wait for the peer, whose machine reports its end.
    pub(super) monitored: Option<Duration>,
    /// Times that the peer had forgotten its Welcome.
    again: u32,
    /// Segments sent again.
    pub(super) resent: u32,
}

/// The state of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Hello has been or is to be sent.
    Connecting {
        began: Instant,
        next: Instant,
        tries: u32,
        /// The time of the first of those tries.
        first_at: Instant,
    },
    Open,
    /// Accepted packets are still delivered.
    Closing {
        until: Instant,
    },
}

/// The peer that began a session, by its first datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// Its cookie.
    pub(super) cookie: u64,
    /// Its first number.
    pub(super) first: Seq,
}

/// Tries before silence can mean death: after a long absence of this process the peer has a chance
/// first.
const TRIES_BEFORE_GIVING_UP: u32 = 3;

/// Steps of silence in the time after which a peer is given up.
const STEPS: u32 = 16;

/// The time that the answer to a Ping waits for the data channel to be empty: many times the time
/// of reading a whole socket.
const ANSWER_WAIT_MAX: Duration = Duration::from_millis(20);

/// Nanoseconds in a unit of the stamps of Pings: they say when they went out, modulo 71 minutes, and
/// their answers repeat it (as the timestamps of RFC 7323 do).
const STAMP: u64 = 1_000;

/// The stamp of a Ping that goes out now.
pub(super) fn stamp(now: Instant) -> u32 {
    // 0 is reserved for an Ack that answers no Ping.
    ((now.0 / STAMP) as u32).max(1)
}

/// For so long after a loss more are expected.
const LOSSY: Duration = Duration::from_secs(1);

/// Numbers that may come early: as many as any peer's window has, whatever ours is. 4 KiB of bits,
/// while something is missing.
const NUMBERS: u16 = 1 << 15;

/// The number of times that Hello is repeated to a peer that forgets its Welcome each time.
const HELLOS_AGAIN: u32 = 4;

/// Refusals without a datagram in between after which the peer is taken for dead.
const REFUSALS: u32 = 3;

impl Session {
    /// A session that begins with our Hello, or, when `caller` is there, one that they have proven
    /// to be in.
    pub(super) fn new(
        now: Instant,
        ours: u64,
        first: Seq,
        caller: Option<Caller>,
        datagram_max: usize,
        config: &ReliableConfig,
    ) -> Self {
        let state = match caller {
            None => State::Connecting {
                began: now,
                next: now,
                tries: 0,
                first_at: now,
            },
            Some(_) => State::Open,
        };
        let their_first = caller.map_or(Seq(0), |caller| caller.first);
        let pmtu = Pmtu::new(datagram_max);
        Self {
            ours,
            theirs: caller.map_or(0, |caller| caller.cookie),
            state,
            unconfirmed: caller.is_none(),
            send: SendWindow::new(first, config.window, 0),
            recv: RecvWindow::new(their_first, NUMBERS),
            first,
            next_fragment: 0,
            rtt: Rtt::new(config),
            reordering: Reordering::new(),
            congestion: Congestion::new(pmtu.size(), config.send_bytes as u64),
            pacer: Pacer::new(),
            pmtu,
            acks: AckPolicy::new(config.ack_delay, config.window),
            fin: false,
            advertised: u32::MAX,
            last_ack: (first, 0, 0),
            since_ask: 0,
            heard_at: now,
            progress_at: now,
            resend_at: None,
            ask_at: None,
            judge_at: None,
            paced_until: None,
            timeouts: 0,
            pinged_at: now,
            pings: 0,
            ping: false,
            asked: None,
            asked_behind: (Channel::Command, 0),
            lost_at: None,
            last_sent_on: Channel::Command,
            overdue_at: Instant(0),
            to_answer: None,
            answer: None,
            probed: None,
            proof: 0,
            refusals: 0,
            monitored: None,
            again: 0,
            resent: 0,
        }
    }

    /// Our cookie.
    pub(super) fn ours(&self) -> u64 {
        self.ours
    }

    /// The peer's cookie, 0 if it is not known yet.
    pub(super) fn theirs(&self) -> u64 {
        self.theirs
    }

    /// Packets can be accepted for it.
    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// We have called and not been answered.
    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting { .. })
    }

    /// Nothing is to be delivered any more.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// Both sides know that the other is in it.
    pub(super) fn is_settled(&self) -> bool {
        !self.unconfirmed && self.pmtu.data_proven()
    }

    /// It was closing and everything has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing() && !self.fin && self.send.is_empty()
    }

    /// Nothing is under way to the peer or owed to it.
    pub(super) fn is_idle(&self) -> bool {
        self.send.is_empty() && self.acks.due().is_none() && !self.recv.has_holes()
    }

    /// The time of the peer's last valid datagram.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Nothing has happened for `span`.
    pub(super) fn is_quiet(&self, now: Instant, span: Duration) -> bool {
        self.is_idle() && now.since(self.heard_at) >= span
    }

    /// The peer's answer to our Hello. True when that opened the session.
    pub(super) fn on_welcome(&mut self, now: Instant, header: &Header) -> bool {
        let State::Connecting {
            tries, first_at, ..
        } = self.state
        else {
            return false;
        };
        self.theirs = header.from;
        self.recv = RecvWindow::new(header.seq, NUMBERS);
        self.send.on_window(self.first, header.window);
        if tries == 1 {
            self.rtt.on_sample(now, now.since(first_at));
        }
        self.state = State::Open;
        self.heard_at = now;
        self.progress_at = now;
        self.pinged_at = now;
        // The next datagram tells the called side that its Welcome has arrived.
        self.acks.on_urgent(now);
        true
    }

    /// It has been open, but the called peer had forgotten that.
    pub(super) fn was_welcome_before(&self) -> bool {
        self.again > 0
    }

    /// Sends Hello again because the peer has forgotten the session just opened, after a pause that
    /// doubles each time; everything is sent anew. False if something was heard in it, or after too
    /// many tries: the session ends.
    pub(super) fn call_again(&mut self, now: Instant, config: &ReliableConfig) -> bool {
        if !self.unconfirmed || self.state != State::Open || self.again >= HELLOS_AGAIN {
            return false;
        }
        self.again += 1;
        self.theirs = 0;
        self.state = State::Connecting {
            began: now,
            next: now.after(config.first_rto.saturating_mul(1 << self.again)),
            // Not 0: the time to the answer is no RTT sample.
            tries: 1,
            first_at: now,
        };
        self.send.on_timeout();
        self.acks.on_acked();
        (self.resend_at, self.ask_at, self.judge_at) = (None, None, None);
        (self.ping, self.pings, self.asked) = (false, 0, None);
        true
    }

    /// Handles the common part of every datagram of an established session. False: the datagram is
    /// to be dropped.
    #[inline]
    pub(super) fn on_header(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        send_buffer: &mut SendBuffer,
        stats: &mut ReliableStats,
    ) -> bool {
        self.heard_at = now;
        (self.pings, self.refusals) = (0, 0);
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
                let came = self.to_answer.map_or(now, |(_, came)| came);
                self.to_answer = Some((header.seq.0, came));
                if header.window == 0 {
                    // The peer is alive, but accepts nothing for now.
                    self.progress_at = now;
                }
            }
            DatagramKind::Probe => {
                let size = DATAGRAM_HEADER + payload.len();
                self.probed = Some((size as u32, header.proof()));
            }
            DatagramKind::Probed if header.proof() == self.proof => {
                self.on_probed(now, header.seq.0 as usize);
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
        let (words, used) = header.sack_words(payload);
        let before = self.send.in_flight_bytes();
        let detection = LossDetection {
            least: self.rtt.min().unwrap_or_default(),
            wait: self.reordering.wait(now, &self.rtt),
        };
        let acks = &words[..used];
        let Ok(acked) = self
            .send
            .on_ack(header.ack, acks, now, detection, send_buffer)
        else {
            stats.bad_acks += 1;
            return false;
        };
        self.send.on_window(header.ack, header.window);
        if acked.moved {
            self.rtt.on_progress();
        }
        // Small segments may keep arriving, out of order, where large ones never do.
        self.pmtu.on_progress(acked.moved, acked.largest as usize);
        let timely = |sample: &Duration| now.before(*sample) >= self.overdue_at;
        if let Some(sample) = acked.rtt.filter(timely) {
            self.rtt.on_sample(now, sample);
        }
        self.on_lost(now, &acked);
        if acked.segments > 0 {
            self.judge_at = acked.lost_next;
            self.on_reordered(now, &acked, stats);
            self.on_arrived(now, &acked, before);
        }
        if header.kind == DatagramKind::Ack
            && let Some(asked_at) = self.answered(now, header.seq.0)
        {
            self.asked = None;
            self.on_answer(now, asked_at, stats);
        }
        true
    }

    fn on_lost(&mut self, now: Instant, acked: &Acked) {
        if let Some(sent_at) = acked.lost_sent_at {
            self.lost_at = Some(now);
            let (bytes, run) = (acked.lost_bytes, acked.lost_run);
            self.congestion.on_lost(now, bytes, run, sent_at, &self.rtt);
        }
    }

    /// A segment that was, or would have been, declared lost has arrived: the path reorders, or the
    /// time-out was too short.
    fn on_reordered(&mut self, now: Instant, acked: &Acked, stats: &mut ReliableStats) {
        if self.on_spurious(acked, stats) {
            return self.send.on_timeout_undone();
        }
        if let Some(age) = acked.reordered {
            self.reordering.on_reordered(now, age, &self.rtt);
        }
    }

    fn on_spurious(&mut self, acked: &Acked, stats: &mut ReliableStats) -> bool {
        acked.spurious_sent_at.is_some_and(|sent_at| {
            stats.late += u64::from(acked.spurious_segments);
            self.congestion.on_spurious(acked.spurious_bytes, sent_at)
        })
    }

    /// The reordered segments have had their time.
    fn on_reordering_timeout(&mut self, now: Instant) {
        let wait = self.reordering.wait(now, &self.rtt);
        let lost = self.send.declare_reordered_lost(now, wait);
        self.judge_at = lost.lost_next;
        self.on_lost(now, &lost);
    }

    /// The peer has answered our Ping: what was sent well before and is not named is lost.
    fn on_answer(&mut self, now: Instant, asked_at: Instant, stats: &mut ReliableStats) {
        // The only sample on a path whose RTT has grown beyond the timeout.
        self.rtt.on_sample(now, now.since(asked_at));
        // Segments sent on the data channel just before the Ping may still arrive, within the
        // path's known reordering delay.
        let wait = self.reordering.wait(now, &self.rtt);
        let slack = wait
            .saturating_sub(self.rtt.min().unwrap_or_default())
            .max(self.rtt.rto_without_backoff() / 4);
        let mut lost = self.send.lose_sent_before(asked_at.before(slack));
        if stamp(asked_at) == stamp(self.pinged_at) {
            // The segments right before the Ping would have arrived, unless the Ping is reordered.
            let again_only = !wait.is_zero();
            lost.add(self.send.lose_sent_up_to(self.asked_behind, again_only));
        }
        if lost.lost_segments > 0 {
            stats.asked_losses += u64::from(lost.lost_segments);
            self.timeouts = self.timeouts.saturating_add(1);
            self.on_lost(now, &lost);
            if lost.lost_sends > 1 {
                self.on_nothing_arrived(now, stats);
            }
        }
        // Losses are known now; retransmissions have a timeout of their own.
        (self.resend_at, self.ask_at) = (None, None);
        self.start_timer(now);
    }

    fn on_arrived(&mut self, now: Instant, acked: &Acked, before: u64) {
        self.congestion
            .on_arrived(now, acked.bytes, before, &self.rtt);
        self.progress_at = now;
        self.timeouts = 0;
        (self.resend_at, self.ask_at) = (None, None);
        self.start_timer(now);
    }

    fn on_probed(&mut self, now: Instant, size: usize) {
        self.pmtu.on_probed(now, size);
        self.congestion.set_segment(self.pmtu.size());
    }

    /// The service reports the path's maximum size.
    pub(super) fn on_too_large(&mut self, now: Instant, most: usize) {
        self.pmtu.on_too_large(now, most);
        self.congestion.set_segment(self.pmtu.size());
    }

    /// Answers a Ping: now that nothing is left on the data channel (`empty`), or because that takes
    /// too long. Segments that the answer does not name count as lost. False: it still waits.
    pub(super) fn answer(&mut self, now: Instant, empty: bool) -> bool {
        let Some((stamp, came)) = self.to_answer else {
            return true;
        };
        if !empty && now.since(came) < ANSWER_WAIT_MAX {
            return false;
        }
        self.to_answer = None;
        self.answer = Some(stamp);
        self.acks.on_urgent(now);
        true
    }

    /// Classifies a segment, and says when it has to be acknowledged.
    #[inline]
    pub(super) fn on_segment(&mut self, now: Instant, header: &Header, verdict: Verdict) {
        let asked = header.flags & (ASK | FIN) != 0;
        match verdict {
            Verdict::Next if !asked && !self.recv.has_holes() => self.acks.on_in_order(now),
            Verdict::Next | Verdict::Early if !asked => self.acks.on_early(now),
            // An old number: our acknowledgement got lost.
            _ => self.acks.on_urgent(now),
        }
    }

    /// Fragments were given out: perhaps the peer waits to hear that there is room again.
    pub(super) fn on_drained(&mut self, now: Instant, window: u32, limit: usize) {
        let limit = limit as u32;
        if self.advertised < limit / 4 && window >= limit / 2 {
            self.acks.on_urgent(now);
        }
    }

    /// Nothing follows: FIN is to be queued behind everything.
    pub(super) fn close(&mut self, until: Instant) {
        self.fin = self.is_open();
        self.state = State::Closing { until };
    }

    /// The acknowledgement of everything, sent when the session ends here.
    pub(super) fn farewell(&self) -> Header {
        self.acknowledging(DatagramKind::Ack, self.advertised)
    }

    /// The service knows where the peer is: what was said to it before went nowhere.
    pub(super) fn on_found(&mut self, now: Instant) {
        if let State::Connecting { next, tries, .. } = &mut self.state {
            (*next, *tries) = (now, 0);
        }
    }

    /// The service says that a datagram of this session found no socket at the peer's address. True
    /// when the peer is to be declared dead. Until then it is sent Pings at short intervals, which
    /// become longer if no more reports come.
    pub(super) fn on_refused(&mut self) -> bool {
        self.refusals += 1;
        self.pings = 0;
        self.is_connecting() || self.refusals >= REFUSALS
    }

    /// The same of the peer's data channel, without which a session goes on: the other one is asked.
    pub(super) fn on_data_refused(&mut self) {
        self.ping |= !self.is_connecting();
    }

    /// Something is in flight: when to ask for it, when to send it again.
    #[inline]
    pub(super) fn start_timer(&mut self, now: Instant) {
        if self.resend_at.is_none() && self.send.in_flight_bytes() > 0 {
            let timeout = self.rtt.rto();
            self.resend_at = Some(now.after(2 * timeout));
            self.ask_at = Some(now.after(self.ask_pause()));
        }
    }

    /// Something under way has not been acknowledged in time.
    pub(super) fn is_overdue(&self) -> bool {
        self.send.in_flight_bytes() > 0
    }

    /// The time without an acknowledgement before a Ping: doubled for every Ping in a row that was
    /// not answered, and for every time-out.
    fn ask_pause(&self) -> Duration {
        self.pause_after(self.pings.saturating_add(self.timeouts))
    }

    /// The pause after so many fruitless Pings.
    fn pause_after(&self, fruitless: u32) -> Duration {
        // If the last segment in flight asks for an immediate acknowledgement.
        let pause = if self.since_ask == 0 {
            self.rtt.answer()
        } else {
            self.rtt.rto_without_backoff()
        };
        pause.saturating_mul(1 << fruitless.min(10))
    }

    /// The first thing after the window was empty went out.
    pub(super) fn on_began(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// Excuses a peer for the time in which this process did not look: a look at `now` that was due at `due` counts
    /// as one step of silence. (A process that is often away detects dead peers, too.)
    pub(super) fn excuse(&mut self, due: Instant, now: Instant, config: &ReliableConfig) {
        let excused = now.since(due).saturating_sub(config.give_up / STEPS);
        if excused.is_zero() {
            return;
        }
        let later = |at: &mut Instant| *at = at.after(excused).min(now);
        later(&mut self.heard_at);
        later(&mut self.progress_at);
        match &mut self.state {
            State::Connecting { began, .. } => later(began),
            State::Closing { until } => *until = until.after(excused),
            State::Open => {}
        }
    }

    /// Looks at what has not happened in time. `Some`: the session is over.
    pub(super) fn on_timer(
        &mut self,
        now: Instant,
        config: &ReliableConfig,
        stats: &mut ReliableStats,
    ) -> Option<LinkDown> {
        match self.state {
            State::Connecting { began, tries, .. } => {
                let over = now.since(began) >= config.connect_give_up;
                return (over && tries >= TRIES_BEFORE_GIVING_UP).then_some(LinkDown::TimedOut);
            }
            State::Closing { until } if now >= until => return Some(LinkDown::TimedOut),
            State::Closing { .. } | State::Open => {}
        }
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = Some(now.after(self.ask_pause()));
            self.overdue_at = now;
            self.ping = true;
        }
        if self.judge_at.is_some_and(|at| at <= now) {
            self.on_reordering_timeout(now);
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            (self.resend_at, self.ask_at) = (None, None);
            self.on_resend_timeout(now, stats);
        }
        self.pmtu.on_timer(now);
        if self.paced_until.is_some_and(|at| at <= now) {
            self.paced_until = None;
        }
        if self.ping_at(config) <= now {
            self.ping = true;
        }
        let silent = now.since(self.heard_at) >= config.give_up;
        let no_progress = now.since(self.progress_at) >= config.give_up;
        let dead = (silent && self.pings >= TRIES_BEFORE_GIVING_UP)
            || (no_progress && self.timeouts >= TRIES_BEFORE_GIVING_UP);
        dead.then_some(LinkDown::TimedOut)
    }

    fn on_resend_timeout(&mut self, now: Instant, stats: &mut ReliableStats) {
        if !self.send.on_timeout() {
            return;
        }
        // Later answers may be to retransmissions (Karn; RFC 6298, section 3).
        (self.overdue_at, self.asked) = (now, None);
        stats.timeouts += 1;
        self.timeouts = self.timeouts.saturating_add(1);
        self.rtt.on_timeout();
        self.congestion.on_timeout(now);
        self.on_nothing_arrived(now, stats);
    }

    /// Of something that was sent again, or nothing at all: perhaps that is because of its size.
    fn on_nothing_arrived(&mut self, now: Instant, stats: &mut ReliableStats) {
        if self.pmtu.on_timeout(now) {
            stats.black_holes += 1;
            self.congestion.set_segment(self.pmtu.size());
        }
    }

    fn ping_at(&self, config: &ReliableConfig) -> Instant {
        let pause = match self.pings {
            _ if self.send.is_stuck() => self.rtt.rto().max(config.first_rto),
            // Early enough for some tries before the give-up time.
            0 => config.keepalive.min(config.give_up / 4),
            _ => config.max_rto.min(config.give_up / 8),
        };
        // A refusal comes from a nearby kernel, so earlier timeouts do not matter.
        let refused = (self.refusals > 0).then(|| self.pause_after(self.pings));
        let sooner = refused.into_iter().chain(self.monitored);
        let pause = sooner.fold(pause, Duration::min);
        self.heard_at.max(self.pinged_at).after(pause)
    }

    /// The time at which [`Self::on_timer`] or `transmit` has something to do.
    pub(super) fn deadline(&self, config: &ReliableConfig) -> Instant {
        let last = match self.state {
            State::Connecting { next, tries, .. } if tries < TRIES_BEFORE_GIVING_UP => return next,
            State::Connecting { began, next, .. } => {
                return next.min(began.after(config.connect_give_up));
            }
            State::Open => self.ping_at(config),
            State::Closing { until } => until,
        };
        let timers = [
            self.resend_at,
            self.ask_at,
            self.judge_at,
            self.acks.due(),
            self.paced_until,
            self.pmtu.deadline(),
        ];
        timers.into_iter().flatten().fold(last, Instant::min)
    }

    /// A header that says what has arrived here.
    #[inline]
    pub(super) fn acknowledging(&self, kind: DatagramKind, window: u32) -> Header {
        let mut header = Header::new(kind, self.theirs, self.ours);
        header.ack = self.recv.cumulative();
        header.window = window;
        if kind == DatagramKind::Ack {
            header.seq = Seq(self.answer.unwrap_or(0));
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

    /// An acknowledgement went out, alone or with something else.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, window: u32) {
        self.advertised = window;
        self.acks.on_acked();
    }

    /// A Ping that says that we are there and take nothing in: there is no room.
    pub(super) fn sign_of_life(&self, now: Instant) -> Header {
        let mut header = self.acknowledging(DatagramKind::Ping, 0);
        header.seq.0 = stamp(now);
        header
    }

    /// The time at which the Ping with this stamp was sent. `None`: we do not wait for it.
    fn answered(&self, now: Instant, echo: u32) -> Option<Instant> {
        let asked = self.asked.filter(|_| echo != 0)?;
        let age = stamp(now).wrapping_sub(echo);
        let at = (now.0 / STAMP).checked_sub(age.into())?;
        (at >= asked.0 / STAMP).then_some(Instant(at * STAMP))
    }

    /// True if a Ping should be sent at once (for a tail loss, RFC 8985, section 7): the path is lossy,
    /// nothing more can be sent, and no Ping is out. No later segment would show the last ones' loss.
    pub(super) fn is_to_ask(&self, now: Instant) -> bool {
        let lossy = self.lost_at.is_some_and(|at| now.since(at) < LOSSY);
        // After repeated loss, Pings become less frequent.
        let hopeful = self.timeouts < 2;
        // If nothing was sent since the last Ping, its answer is complete.
        let behind = (
            self.last_sent_on,
            self.send.transmissions(self.last_sent_on),
        );
        lossy
            && hopeful
            && behind != self.asked_behind
            && self.asked.is_none()
            && self.send.in_flight_bytes() > 0
    }

    /// A Ping went out.
    pub(super) fn on_pinged(&mut self, now: Instant, channel: Channel) {
        self.ping = false;
        self.asked_behind = (channel, self.send.transmissions(channel));
        self.asked.get_or_insert(now);
        self.pinged_at = now;
        self.pings = self.pings.saturating_add(1);
    }

    /// Gives back what is not needed while nothing happens.
    pub(super) fn shrink(&mut self) {
        self.send.shrink();
        self.recv.shrink();
    }
}

#[cfg(test)]
mod tests;
