//! Recovery: loss detection of one session, and the reactions to losses (RFC 9002).
//!
//! ```text
//!   in flight --> Ask: no acknowledgement for an RTO ---> a Ping whose answer does not name it --.
//!       |                                                                                        |
//!       |-------> Reordering: later ones arrived, and the reordering wait is over ---------------+--> lost
//!       |                                                                                        |
//!       `-------> Resend: two RTOs without an acknowledgement or answer -------------------------'
//!
//!   arrived, lost, late --> Rtt, Reordering, Congestion
//! ```
//!
//! Owns: the segments, the estimates of the path, the Ping for losses that awaits an answer.
//! Out of scope: the size of datagrams, whether the peer is alive.

use super::congestion::Congestion;
use super::packet::Header;
use super::reliable_config::ReliableConfig;
use super::reordering::Reordering;
use super::rtt::Rtt;
use super::send_buffer::SendBuffer;
use super::send_window::{Acked, LossDetection, SendWindow};
use super::seq::Seq;
use super::service::Channel;
use super::timers::{Timer, Timers};
use crate::stats::ReliableStats;
use crate::time::Instant;
use std::ops::Range;
use std::time::Duration;

/// Loss detection of one session, and the reactions to losses.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) send: SendWindow,
    pub(super) rtt: Rtt,
    reordering: Reordering,
    pub(super) congestion: Congestion,
    /// Number of time-outs, and of answers that showed a loss, since a segment last arrived.
    pub(super) timeouts: u32,
    /// Bytes sent since the last segment that asked for an acknowledgement at once.
    pub(super) since_ask: u64,
    /// Channel of the last segment sent.
    pub(super) last_sent_on: Channel,
    /// Time of the first Ping without an answer; `None`: no answer is awaited.
    pub(super) asked: Option<Instant>,
    /// Channel of the last Ping, and the number of transmissions on that channel before it.
    asked_behind: (Channel, u64),
    /// Time of the last loss; `None`: there was none.
    lost_at: Option<Instant>,
    /// Time before which sent segments give no RTT sample, because their acknowledgement was overdue.
    overdue_at: Instant,
}

/// Time after a loss in which more losses are expected.
const LOSSY: Duration = Duration::from_secs(1);

/// Nanoseconds in a unit of the stamps of Pings. A stamp is the time of sending modulo 71 minutes, and answers repeat
/// it (like the timestamps of RFC 7323).
const STAMP: u64 = 1_000;

/// Returns the stamp of a Ping that is sent now.
pub(super) fn stamp(now: Instant) -> u32 {
    // 0 is reserved for an Ack that answers no Ping.
    ((now.0 / STAMP) as u32).max(1)
}

impl Recovery {
    /// Begins with a segment of number `first`, in datagrams of `size` bytes.
    pub(super) fn new(first: Seq, size: usize, config: &ReliableConfig) -> Self {
        Self {
            send: SendWindow::new(first, config.window, 0),
            rtt: Rtt::new(config),
            reordering: Reordering::new(),
            congestion: Congestion::new(size, config.send_bytes as u64),
            timeouts: 0,
            since_ask: 0,
            last_sent_on: Channel::Command,
            asked: None,
            asked_behind: (Channel::Command, 0),
            lost_at: None,
            overdue_at: Instant(0),
        }
    }

    /// Handles an acknowledgement. Returns `None` if it acknowledges something that was never sent.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &[u8],
        send_buffer: &mut SendBuffer,
        timers: &mut Timers,
        stats: &mut ReliableStats,
    ) -> Option<Acked> {
        let (words, used) = header.sack_words(payload);
        let before = self.send.in_flight_bytes();
        let detection = LossDetection {
            least: self.rtt.min().unwrap_or_default(),
            wait: self.reordering.wait(now, &self.rtt),
        };
        let acks = &words[..used];
        let outcome = self
            .send
            .on_ack(header.ack, acks, now, detection, send_buffer);
        let acked = outcome.ok()?;
        self.send.on_window(header.ack, header.window);
        if acked.moved {
            self.rtt.on_progress();
        }
        let timely = |sample: &Duration| now.before(*sample) >= self.overdue_at;
        if let Some(sample) = acked.rtt.filter(timely) {
            self.rtt.on_sample(now, sample);
        }
        self.on_lost(now, &acked);
        if acked.segments > 0 {
            timers.set(Timer::Reordering, acked.lost_next);
            self.on_reordered(now, &acked, stats);
            self.congestion
                .on_arrived(now, acked.bytes, before, &self.rtt);
            self.timeouts = 0;
            self.restart_timers(now, timers);
        }
        Some(acked)
    }

    fn on_lost(&mut self, now: Instant, lost: &Acked) {
        if let Some(sent_at) = lost.lost_sent_at {
            self.lost_at = Some(now);
            let (bytes, run) = (lost.lost_bytes, lost.lost_run);
            self.congestion.on_lost(now, bytes, run, sent_at, &self.rtt);
        }
    }

    /// Handles a segment that was, or would have been, declared lost and has arrived: the path reorders, or the
    /// time-out was too short.
    fn on_reordered(&mut self, now: Instant, acked: &Acked, stats: &mut ReliableStats) {
        if let Some(sent_at) = acked.spurious_sent_at {
            stats.late += u64::from(acked.spurious_segments);
            if self.congestion.on_spurious(acked.spurious_bytes, sent_at) {
                return self.send.on_timeout_undone();
            }
        }
        if let Some(age) = acked.reordered {
            self.reordering.on_reordered(now, age, &self.rtt);
        }
    }

    /// Handles the end of a segment's reordering wait.
    pub(super) fn on_reordering_timeout(&mut self, now: Instant, timers: &mut Timers) {
        let wait = self.reordering.wait(now, &self.rtt);
        let lost = self.send.declare_reordered_lost(now, wait);
        timers.set(Timer::Reordering, lost.lost_next);
        self.on_lost(now, &lost);
    }

    /// Handles an overdue acknowledgement, for which the peer is sent a Ping; the next one follows after a longer
    /// pause.
    pub(super) fn on_overdue(&mut self, now: Instant, pings: u32, timers: &mut Timers) {
        timers.set(Timer::Ask, now.after(self.ask_pause(pings)));
        self.overdue_at = now;
    }

    /// Handles a time-out: all segments in flight are lost. Returns false if there were none.
    pub(super) fn on_resend_timeout(&mut self, now: Instant, timers: &mut Timers) -> bool {
        timers.stop(Timer::Resend);
        timers.stop(Timer::Ask);
        if !self.send.on_timeout() {
            return false;
        }
        // Later answers may be to retransmissions (Karn; RFC 6298, section 3).
        (self.overdue_at, self.asked) = (now, None);
        self.timeouts = self.timeouts.saturating_add(1);
        self.rtt.on_timeout();
        self.congestion.on_timeout(now);
        true
    }

    /// Records that segments were sent on `channel`; `pings`: see [`Self::start_timers`].
    pub(super) fn on_sent(
        &mut self,
        now: Instant,
        segments: Range<usize>,
        channel: Channel,
        pings: u32,
        timers: &mut Timers,
    ) {
        let before = self.send.in_flight_bytes();
        for at in segments {
            self.send.on_sent(at, channel, now);
        }
        self.last_sent_on = channel;
        let bytes = self.send.in_flight_bytes() - before;
        self.congestion.on_sent(now, bytes);
        self.start_timers(now, pings, timers);
    }

    /// Sets the timers for segments in flight, unless they are set. `pings`: number of Pings since the peer's last
    /// datagram.
    fn start_timers(&mut self, now: Instant, pings: u32, timers: &mut Timers) {
        if !timers.is_set(Timer::Resend) && self.send.in_flight_bytes() > 0 {
            timers.set(Timer::Resend, now.after(2 * self.rtt.rto()));
            timers.set(Timer::Ask, now.after(self.ask_pause(pings)));
        }
    }

    fn restart_timers(&mut self, now: Instant, timers: &mut Timers) {
        timers.stop(Timer::Resend);
        timers.stop(Timer::Ask);
        self.start_timers(now, 0, timers);
    }

    /// Returns the time without an acknowledgement before a Ping: doubled for each unanswered Ping and for each
    /// time-out in a row.
    fn ask_pause(&self, pings: u32) -> Duration {
        self.pause_after(pings.saturating_add(self.timeouts))
    }

    /// Returns the pause after this many Pings without an answer.
    pub(super) fn pause_after(&self, fruitless: u32) -> Duration {
        // The last segment in flight asked for an immediate acknowledgement.
        let pause = if self.since_ask == 0 {
            self.rtt.answer()
        } else {
            self.rtt.rto_without_backoff()
        };
        pause.saturating_mul(1 << fruitless.min(10))
    }

    /// Returns whether to send a Ping at once (for a tail loss, RFC 8985, section 7): the path is lossy, nothing more
    /// can be sent, and no Ping is unanswered. No later segment would show the loss of the last ones.
    pub(super) fn is_to_ask(&self, now: Instant) -> bool {
        let lossy = self.lost_at.is_some_and(|at| now.since(at) < LOSSY);
        // After repeated loss, Pings become less frequent.
        let hopeful = self.timeouts < 2;
        // If nothing was sent since the last Ping, its answer is complete.
        let channel = self.last_sent_on;
        let behind = (channel, self.send.transmissions(channel));
        lossy
            && hopeful
            && behind != self.asked_behind
            && self.asked.is_none()
            && self.send.in_flight_bytes() > 0
    }

    /// Records that a Ping was sent on `channel`.
    pub(super) fn on_pinged(&mut self, now: Instant, channel: Channel) {
        self.asked_behind = (channel, self.send.transmissions(channel));
        self.asked.get_or_insert(now);
    }

    /// Returns the time at which the Ping with this stamp was sent; `None` if its answer is not awaited.
    fn answered(&self, now: Instant, echo: u32) -> Option<Instant> {
        let asked = self.asked.filter(|_| echo != 0)?;
        let age = stamp(now).wrapping_sub(echo);
        let at = (now.0 / STAMP).checked_sub(age.into())?;
        (at >= asked.0 / STAMP).then_some(Instant(at * STAMP))
    }

    /// Handles an Ack that repeats the stamp `echo`; `last_ping`: time of the last Ping. Segments sent well before the
    /// Ping and not acknowledged are lost. Returns true if one of them had been retransmitted before.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        (echo, last_ping): (u32, Instant),
        timers: &mut Timers,
        stats: &mut ReliableStats,
    ) -> bool {
        let Some(asked_at) = self.answered(now, echo) else {
            return false;
        };
        self.asked = None;
        // The only sample on a path whose RTT has grown beyond the time-out.
        self.rtt.on_sample(now, now.since(asked_at));
        // Segments sent on the data channel just before the Ping may still arrive, within the path's known reordering
        // delay.
        let wait = self.reordering.wait(now, &self.rtt);
        let slack = wait
            .saturating_sub(self.rtt.min().unwrap_or_default())
            .max(self.rtt.rto_without_backoff() / 4);
        let mut lost = self.send.lose_sent_before(asked_at.before(slack));
        if stamp(asked_at) == stamp(last_ping) {
            // Segments sent right before the Ping would have arrived, unless the Ping was reordered.
            let again_only = !wait.is_zero();
            lost.add(self.send.lose_sent_up_to(self.asked_behind, again_only));
        }
        if lost.lost_segments > 0 {
            stats.asked_losses += u64::from(lost.lost_segments);
            self.timeouts = self.timeouts.saturating_add(1);
            self.on_lost(now, &lost);
        }
        // Losses are known now; retransmissions have a time-out of their own.
        self.restart_timers(now, timers);
        lost.lost_sends > 1
    }
}
