//! One session with one peer: numbers, acknowledgements, timers; no packets.
//!
//! ```text
//!   Calling --Welcome--> Open --close--> Closing --all acknowledged--> over
//!   Called  --anything-->  |                |
//!                          +--- silence, Reset ------------------> over
//!
//!   on_header, on_fragment   what arrived          transmit   what is to go out
//!   on_timer                 what did not          deadline   when to ask again
//! ```
//!
//! Owns: both windows, the estimates, the state. Knows nothing of: packets of the endpoint,
//! addresses, other sessions.

use super::ack_policy::AckPolicy;
use super::config::ReliableConfig;
use super::congestion::Congestion;
use super::packet::{ASK, FIN, Header, Kind};
use super::recv_window::{RecvWindow, Verdict};
use super::rtt::Rtt;
use super::send_window::SendWindow;
use super::seq::Seq;
use super::stats::ReliableStats;
use crate::port::LinkDown;
use crate::time::Instant;
use std::time::Duration;

/// A session.
#[derive(Debug)]
pub(super) struct Channel {
    ours: u64,
    /// 0 until the peer has named itself.
    theirs: u64,
    state: State,
    pub(super) send: SendWindow,
    pub(super) recv: RecvWindow,
    /// Number of our first fragment, for Hello and Welcome.
    first: Seq,
    window: u16,
    rtt: Rtt,
    congestion: Congestion,
    acks: AckPolicy,
    /// Room in the last thing we sent.
    advertised: u16,
    /// When the peer last said something valid.
    heard_at: Instant,
    /// When the peer last acknowledged something, or the window was last empty.
    progress_at: Instant,
    /// When what is in flight counts as lost.
    resend_at: Option<Instant>,
    /// Time-outs in a row.
    timeouts: u32,
    /// When the last Ping went out, and how many since the peer was heard.
    pinged_at: Instant,
    pings: u32,
    /// A Ping is to go out.
    ping: bool,
    /// "Nobody there" since the peer was heard.
    refusals: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Hello has been or is to be sent.
    Calling {
        began: Instant,
        next: Instant,
        tries: u32,
    },
    /// Welcome has been or is to be sent.
    Called {
        began: Instant,
        next: Instant,
        tries: u32,
    },
    Open,
    /// What was accepted is still delivered.
    Closing {
        until: Instant,
    },
}

/// Tries before silence can mean death: whoever did not run for a long time gives the peer
/// a chance first.
const TRIES_BEFORE_GIVING_UP: u32 = 3;

/// "Nobody there" so often, with nothing heard in between, is believed.
const REFUSALS: u32 = 3;

impl Channel {
    /// A session that begins with our Hello, or, when `caller` is there, with the caller's.
    pub(super) fn new(
        now: Instant,
        ours: u64,
        first: Seq,
        caller: Option<&Header>,
        config: &ReliableConfig,
    ) -> Self {
        let (theirs, their_first, room) =
            caller.map_or((0, Seq(0), 0), |hello| (hello.from, hello.seq, hello.room));
        let state = match caller {
            None => State::Calling {
                began: now,
                next: now,
                tries: 0,
            },
            Some(_) => State::Called {
                began: now,
                next: now,
                tries: 0,
            },
        };
        Self {
            ours,
            theirs,
            state,
            send: SendWindow::new(first, config.window, room),
            recv: RecvWindow::new(their_first, config.window),
            first,
            window: config.window,
            rtt: Rtt::new(config),
            congestion: Congestion::new(config.window),
            acks: AckPolicy::new(config.ack_delay, config.window),
            advertised: config.window,
            heard_at: now,
            progress_at: now,
            resend_at: None,
            timeouts: 0,
            pinged_at: now,
            pings: 0,
            ping: false,
            refusals: 0,
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

    /// The other side has called and not been heard of again.
    pub(super) fn is_half_open(&self) -> bool {
        matches!(self.state, State::Called { .. })
    }

    /// We have called and not been answered.
    pub(super) fn is_calling(&self) -> bool {
        matches!(self.state, State::Calling { .. })
    }

    /// Nothing is to be delivered any more.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing { .. })
    }

    /// It was closing and everything has arrived.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing() && self.send.is_empty()
    }

    /// The peer's answer to our Hello. True when that opened the session.
    pub(super) fn on_welcome(
        &mut self,
        now: Instant,
        header: &Header,
        config: &ReliableConfig,
    ) -> bool {
        let State::Calling { began, tries, .. } = self.state else {
            // Our confirmation got lost.
            self.acks.on_urgent(now);
            return false;
        };
        self.theirs = header.from;
        self.recv = RecvWindow::new(header.seq, config.window);
        self.send.on_room(self.first, header.room);
        if tries == 1 {
            self.rtt.on_sample(now.since(began));
        }
        self.open(now);
        self.acks.on_urgent(now);
        true
    }

    /// The caller says Hello again: it has not heard our Welcome.
    pub(super) fn on_hello_again(&mut self, now: Instant) {
        if let State::Called { next, .. } = &mut self.state {
            *next = now;
        }
    }

    fn open(&mut self, now: Instant) {
        self.state = State::Open;
        self.heard_at = now;
        self.progress_at = now;
        self.pinged_at = now;
    }

    /// What every datagram of an established session says. False: it is to be dropped whole.
    pub(super) fn on_header(
        &mut self,
        now: Instant,
        header: &Header,
        stats: &mut ReliableStats,
    ) -> bool {
        let Ok(acked) = self.send.on_ack(header.ack, header.sack, now) else {
            stats.bad_acks += 1;
            return false;
        };
        if self.is_half_open() {
            self.open(now);
        }
        self.heard_at = now;
        (self.pings, self.refusals) = (0, 0);
        self.send.on_room(header.ack, header.room);
        if acked.moved {
            self.rtt.on_progress();
        }
        if let Some(sample) = acked.rtt {
            self.rtt.on_sample(sample);
        }
        if acked.lost > 0 {
            self.congestion.on_lost(self.send.in_flight() + acked.lost);
        }
        if acked.fragments > 0 {
            self.congestion.on_acked(acked.fragments);
            self.progress_at = now;
            self.timeouts = 0;
            self.resend_at = None;
            self.start_timer(now);
        }
        if header.kind == Kind::Ping {
            self.acks.on_urgent(now);
        }
        true
    }

    /// What a fragment is to us, and when it has to be acknowledged.
    pub(super) fn on_fragment(&mut self, now: Instant, header: &Header) -> Verdict {
        let verdict = self.recv.verdict(header.seq);
        match verdict {
            Verdict::Next if header.flags & (ASK | FIN) == 0 && self.recv.sack() == 0 => {
                self.acks.on_in_order(now);
            }
            _ => self.acks.on_urgent(now),
        }
        verdict
    }

    /// Fragments were given out: perhaps the peer waits to hear that there is room again.
    pub(super) fn on_drained(&mut self, now: Instant) {
        if self.advertised < self.window / 4 && self.recv.room() >= self.window / 2 {
            self.acks.on_urgent(now);
        }
    }

    /// Nothing follows: FIN is queued behind everything.
    pub(super) fn close(&mut self, until: Instant) {
        if self.is_open() {
            self.send.push(Vec::new(), FIN);
        }
        self.state = State::Closing { until };
    }

    /// The acknowledgement of everything, sent when the session ends here.
    pub(super) fn farewell(&self) -> Header {
        self.acknowledging(Kind::Ack)
    }

    /// The service says that nobody is at the peer's address. True when that is to be believed.
    pub(super) fn on_refused(&mut self) -> bool {
        self.refusals += 1;
        self.is_calling() || self.refusals >= REFUSALS
    }

    fn start_timer(&mut self, now: Instant) {
        if self.resend_at.is_none() && self.send.in_flight() > 0 {
            self.resend_at = Some(now.after(self.rtt.timeout()));
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
            State::Calling { began, tries, .. } | State::Called { began, tries, .. } => {
                let over = now.since(began) >= config.connect_give_up;
                return (over && tries >= TRIES_BEFORE_GIVING_UP).then_some(LinkDown::TimedOut);
            }
            State::Closing { until } if now >= until => return Some(LinkDown::TimedOut),
            State::Closing { .. } | State::Open => {}
        }
        if self.resend_at.is_some_and(|at| at <= now) {
            self.resend_at = None;
            if self.send.on_timeout() {
                stats.timeouts += 1;
                self.timeouts = self.timeouts.saturating_add(1);
                self.rtt.on_timeout();
                self.congestion.on_timeout();
            }
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

    fn ping_at(&self, config: &ReliableConfig) -> Instant {
        if self.send.is_stuck() {
            let pause = self.rtt.timeout().max(config.first_rto);
            return self.pinged_at.max(self.heard_at).after(pause);
        }
        let pause: Duration = if self.pings > 0 {
            config.max_rto
        } else {
            config.keepalive
        };
        self.heard_at.max(self.pinged_at).after(pause)
    }

    /// When [`Self::on_timer`] or [`Self::transmit`] has something to do.
    pub(super) fn deadline(&self, config: &ReliableConfig) -> Option<Instant> {
        match self.state {
            State::Calling { began, next, tries } | State::Called { began, next, tries } => {
                if tries < TRIES_BEFORE_GIVING_UP {
                    return Some(next);
                }
                Some(next.min(began.after(config.connect_give_up)))
            }
            State::Open => {
                let timer = [self.resend_at, self.acks.due()]
                    .into_iter()
                    .flatten()
                    .min();
                let ping = self.ping_at(config);
                Some(timer.map_or(ping, |timer| timer.min(ping)))
            }
            State::Closing { until } => {
                let timer = [self.resend_at, self.acks.due()]
                    .into_iter()
                    .flatten()
                    .min();
                Some(timer.map_or(until, |timer| timer.min(until)))
            }
        }
    }

    /// Hands everything that can go now to `emit`, at most `burst` fragments. `emit` answers false
    /// when there was no room for it, in which case it has not happened. Returns false when
    /// something is left that could go at once.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        burst: usize,
        config: &ReliableConfig,
        stats: &mut ReliableStats,
        mut emit: impl FnMut(&Header, &[u8]) -> bool,
    ) -> bool {
        let (kind, tries) = match self.state {
            State::Calling { next, tries, .. } if next <= now => (Kind::Hello, tries),
            State::Called { next, tries, .. } if next <= now => (Kind::Welcome, tries),
            State::Calling { .. } | State::Called { .. } => return true,
            State::Open | State::Closing { .. } => {
                return self.transmit_fragments(now, burst, stats, &mut emit)
                    && self.transmit_control(now, &mut emit);
            }
        };
        let mut header = Header::new(kind, self.theirs, self.ours);
        header.seq = self.first;
        header.room = self.recv.room();
        if !emit(&header, &[]) {
            return false;
        }
        let pause = config
            .first_rto
            .saturating_mul(1 << tries.min(16))
            .min(config.max_rto);
        if let State::Calling { next, tries, .. } | State::Called { next, tries, .. } =
            &mut self.state
        {
            *next = now.after(pause);
            *tries = tries.saturating_add(1);
        }
        true
    }

    fn transmit_fragments(
        &mut self,
        now: Instant,
        burst: usize,
        stats: &mut ReliableStats,
        emit: &mut impl FnMut(&Header, &[u8]) -> bool,
    ) -> bool {
        for _ in 0..burst {
            if self.send.in_flight() >= self.congestion.limit() {
                return true;
            }
            let Some(index) = self.send.next() else {
                return true;
            };
            let mut header = self.acknowledging(Kind::Data);
            let Some((seq, flags, bytes, again)) = self.send.fragment(index) else {
                return true;
            };
            (header.seq, header.flags) = (seq, flags);
            if again || self.send.in_flight() + 1 >= self.congestion.limit() {
                header.flags |= ASK;
            }
            if !emit(&header, bytes) {
                return false;
            }
            stats.resent += u64::from(again);
            if self.send.in_flight() == 0 && !again {
                self.progress_at = now;
            }
            self.send.on_sent(index, now);
            self.on_acknowledged();
            self.start_timer(now);
        }
        self.send.next().is_none() || self.send.in_flight() >= self.congestion.limit()
    }

    fn transmit_control(
        &mut self,
        now: Instant,
        emit: &mut impl FnMut(&Header, &[u8]) -> bool,
    ) -> bool {
        let kind = match self.acks.due() {
            _ if self.ping => Kind::Ping,
            Some(due) if due <= now => Kind::Ack,
            _ => return true,
        };
        if !emit(&self.acknowledging(kind), &[]) {
            return false;
        }
        self.on_acknowledged();
        if std::mem::take(&mut self.ping) {
            self.pinged_at = now;
            self.pings = self.pings.saturating_add(1);
        }
        true
    }

    fn acknowledging(&self, kind: Kind) -> Header {
        let mut header = Header::new(kind, self.theirs, self.ours);
        header.ack = self.recv.cumulative();
        header.sack = self.recv.sack();
        header.room = self.recv.room();
        header
    }

    fn on_acknowledged(&mut self) {
        self.advertised = self.recv.room();
        self.acks.on_acked();
    }
}
