//! Loss detection: segments in flight that have arrived, are reordered, or are lost (RFC 8985, RFC 9002 section 6.1).
//!
//! ```text
//!               three later ones of its channel have arrived,
//!               and it was sent longer ago than the reordering wait
//!   InFlight ─────────────────────────────────────────────────► ToResend ──sent──► InFlight
//!      ▲  │     not named in the answer to a Ping; time-out       │  │                │
//!      │  │                                                       │  │                │
//!      │  └──acknowledged──► Free ◄──acknowledged: reordered──────┘  │                │
//!      │                      ▲                                      │                │
//!      └──the time-out was spurious──────────────────────────────────┘                │
//!                             └──acknowledged too soon: reordered─────────────────────┘
//! ```
//!
//! [`super::super::reordering`] learns the reordering wait from the reordered segments found here. Until the first of
//! them, three later arrivals suffice.

use super::{Acked, Counts, SegmentSlot, SegmentState, SendWindow, Sending};
use crate::reliability::send_buffer::SendBuffer;
use crate::reliability::service::Channel;
use crate::time::Instant;
use std::time::Duration;

/// Number of later segments of the same channel that must have arrived before an earlier one is declared lost: 3 as in
/// TCP and QUIC. Fewer would take plain reordering for loss.
const REORDERING: u64 = 3;

/// Acknowledgement while it is processed.
#[derive(Debug)]
pub(super) struct AckOutcome {
    pub(super) acked: Acked,
    now: Instant,
    /// Minimum round-trip time, see [`super::LossDetection`]; 0: unknown.
    least: Duration,
    /// Latest transmissions that had arrived before this acknowledgement: one acknowledgement is no evidence of
    /// reordering within itself.
    newest: [u64; 2],
}

impl AckOutcome {
    pub(super) fn new(now: Instant, least: Duration, newest: [u64; 2]) -> Self {
        Self {
            acked: Acked::default(),
            now,
            least,
            newest,
        }
    }

    /// Records the arrival of a segment that was sent once.
    #[inline]
    fn on_first(&mut self, sending: Sending) {
        let age = self.now.since(sending.at);
        // The smallest sample is that of the latest segment.
        self.acked.rtt = Some(self.acked.rtt.map_or(age, |rtt| rtt.min(age)));
        if sending.is_reordered(self.newest, 1) {
            self.acked.reordered = self.acked.reordered.max(Some(age));
        }
    }

    /// Records that this transmission of a segment that had been declared lost has arrived after all.
    fn on_spurious(&mut self, sent_at: Instant, bytes: u64) {
        let first = self
            .acked
            .spurious_sent_at
            .map_or(sent_at, |at| at.min(sent_at));
        self.acked.spurious_sent_at = Some(first);
        self.acked.spurious_segments += 1;
        self.acked.spurious_bytes += bytes;
    }
}

impl SendWindow {
    /// Handles a time-out: everything in flight is declared lost. If it were only the oldest segment, each of several
    /// losses would cost a longer time-out than the one before. Returns true if anything was in flight.
    pub(in super::super) fn on_timeout(&mut self) -> bool {
        for slot in self.slots.iter_mut().take(self.fresh) {
            if let SegmentState::InFlight(sending) = slot.state {
                slot.state = SegmentState::ToResend(sending);
            }
        }
        self.counts.lost += self.counts.in_flight;
        self.counts.in_flight_bytes = 0;
        self.resend = 0;
        self.find_resend();
        std::mem::take(&mut self.counts.in_flight) > 0
    }

    /// Undoes a spurious time-out: segments that have not been retransmitted since are in flight after all.
    pub(in super::super) fn on_timeout_undone(&mut self) {
        for slot in self.slots.iter_mut().take(self.fresh) {
            self.counts.revive(slot);
        }
        self.find_resend();
    }

    /// Declares reordered segments lost that were sent longer than `wait` ago.
    pub(in super::super) fn declare_reordered_lost(
        &mut self,
        now: Instant,
        wait: Duration,
    ) -> Acked {
        let mut lost = Acked::default();
        self.find_lost(now, wait, &mut lost);
        self.find_resend();
        lost
    }

    pub(super) fn find_lost(&mut self, now: Instant, wait: Duration, acked: &mut Acked) {
        let newest = self.counts.newest_arrived;
        let mut next: Option<Instant> = None;
        self.lose(self.highest, acked, |sending, sends| {
            if !sending.is_reordered(newest, sends) {
                return false;
            }
            // Another loss is more likely than reordering, and a mistake costs little.
            let wait = if sends > 1 { Duration::ZERO } else { wait };
            let late_until = sending.at.after(wait);
            if late_until > now {
                next = Some(next.map_or(late_until, |next| next.min(late_until)));
            }
            late_until <= now
        });
        acked.lost_next = next;
    }

    /// Declares segments lost that were sent before `asked_at` and that the answer to a Ping does not name.
    pub(in super::super) fn lose_sent_before(&mut self, asked_at: Instant) -> Acked {
        let mut lost = Acked::default();
        if self.counts.in_flight > 0 {
            self.lose(self.fresh, &mut lost, |sending, _| sending.at < asked_at);
            self.find_resend();
        }
        lost
    }

    /// Declares segments lost up to a transmission on a channel, after which a Ping was sent; with `again_only`, only
    /// those that have been lost before.
    pub(in super::super) fn lose_sent_up_to(
        &mut self,
        (channel, transmission): (Channel, u64),
        again_only: bool,
    ) -> Acked {
        let mut lost = Acked::default();
        if self.counts.in_flight > 0 {
            self.lose(self.fresh, &mut lost, |sending, sends| {
                let before = sending.channel == channel && sending.transmission <= transmission;
                before && (sends > 1 || !again_only)
            });
            self.find_resend();
        }
        lost
    }

    /// Declares those of the first `count` segments lost that are in flight and for which `is_lost` returns true.
    fn lose(
        &mut self,
        count: usize,
        acked: &mut Acked,
        mut is_lost: impl FnMut(Sending, u32) -> bool,
    ) {
        let newest = self.counts.newest_arrived;
        let mut run = 0;
        for (index, slot) in self.slots.iter_mut().take(count).enumerate() {
            let SegmentState::InFlight(sending) = slot.state else {
                run = 0;
                continue;
            };
            if !is_lost(sending, slot.sends) {
                run = 0;
                continue;
            }
            run += 1;
            slot.state = SegmentState::ToResend(sending);
            slot.reordered = sending.is_reordered(newest, slot.sends);
            acked.lost_segments += 1;
            acked.lost_bytes += slot.bytes();
            acked.lost_sent_at = acked.lost_sent_at.max(Some(sending.at));
            acked.lost_run = acked.lost_run.max(run);
            acked.lost_sends = acked.lost_sends.max(slot.sends);
            self.resend = self.resend.min(index);
        }
        self.counts.in_flight -= acked.lost_segments;
        self.counts.in_flight_bytes -= acked.lost_bytes;
        self.counts.lost += acked.lost_segments;
    }
}

impl Counts {
    /// Records the arrival of a segment.
    #[inline]
    pub(super) fn on_arrived(
        &mut self,
        slot: &mut SegmentSlot,
        outcome: &mut AckOutcome,
        send_buffer: &mut SendBuffer,
    ) {
        let bytes = slot.bytes();
        match slot.state {
            SegmentState::InFlight(sending) => {
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
                if slot.sends == 1 {
                    outcome.on_first(sending);
                    self.note_newest(sending);
                } else {
                    self.on_resent_arrived(slot, sending, outcome);
                }
            }
            SegmentState::ToResend(sending) => {
                self.lost -= 1;
                if slot.sends == 1 {
                    outcome.on_first(sending);
                }
                outcome.on_spurious(sending.at, bytes);
            }
            SegmentState::ToSend => debug_assert!(false, "acknowledged before it was sent"),
            SegmentState::Free => return,
        }
        slot.state = SegmentState::Free;
        self.queued_bytes -= bytes;
        outcome.acked.segments += 1;
        outcome.acked.bytes += bytes;
        outcome.acked.largest = outcome.acked.largest.max(slot.content.place.len);
        send_buffer.release(slot.content.place);
    }

    /// Handles the arrival of a segment that was sent twice: only the time can tell which of the two has arrived (the
    /// Eifel algorithm, RFC 3522), and only if it is too short for the second.
    #[cold]
    fn on_resent_arrived(
        &mut self,
        slot: &SegmentSlot,
        sending: Sending,
        outcome: &mut AckOutcome,
    ) {
        if outcome.least.is_zero() {
            return;
        }
        if outcome.now.since(sending.at) >= outcome.least {
            return self.note_newest(sending);
        }
        outcome.on_spurious(slot.earlier, slot.bytes());
        if slot.sends == 2 && slot.reordered {
            let age = outcome.now.since(slot.earlier);
            outcome.acked.reordered = outcome.acked.reordered.max(Some(age));
        }
    }

    fn note_newest(&mut self, sending: Sending) {
        let newest = &mut self.newest_arrived[sending.channel as usize];
        *newest = (*newest).max(sending.transmission);
    }

    /// Marks a segment that was to be retransmitted as in flight after all.
    fn revive(&mut self, slot: &mut SegmentSlot) {
        if let SegmentState::ToResend(sending) = slot.state {
            slot.state = SegmentState::InFlight(sending);
            self.lost -= 1;
            self.in_flight += 1;
            self.in_flight_bytes += slot.bytes();
        }
    }
}

impl Sending {
    /// Returns whether so many later transmissions on its channel have arrived that this one would have, too, if the
    /// path kept the order. For a segment sent more than once, which was lost before, a single later one is enough (RFC
    /// 8985, section 6.2, step 4: no reordering threshold in recovery).
    #[inline]
    fn is_reordered(self, newest: [u64; 2], sends: u32) -> bool {
        let later = if sends > 1 { 1 } else { REORDERING };
        self.transmission + later <= newest[self.channel as usize]
    }
}
