//! Send window: the segments to one peer that are in flight or wait to be sent.
//!
//! ```text
//!         first                         fresh               right edge, in bytes
//!           |                             |                       |
//!   acked   [ in flight, to resend, free  )  to send ............ )  may not be sent yet ...
//!                                 |
//!                      highest acknowledged: only segments before it can be lost
//! ```
//!
//! Owns: the place of each segment's bytes until it is acknowledged, and its state.
//! Out of scope: clocks, the wire format. The size of a segment includes its header, as on the path and at its
//! receiver.
//! Cost: push, send and acknowledge are O(1) for each segment without loss; with holes, an acknowledgement
//! looks at the segments from the first hole to the highest that has arrived.

use self::detection::AckOutcome;
use super::send_buffer::{SegmentPlace, SendBuffer};
use super::seq::Seq;
use super::service::Channel;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

mod detection;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Content {
    pub(super) place: SegmentPlace,
    pub(super) fragment: u32,
    /// Offset of the segment in the fragment.
    pub(super) offset: u32,
    /// Length of the fragment in bytes.
    pub(super) fragment_len: u32,
    /// Length of the segment's payload in bytes.
    pub(super) payload: u32,
    pub(super) flags: u16,
    /// Checksum of the payload, if the flags say that there is one.
    pub(super) crc: u32,
    /// Whether the segment takes the command channel when it is sent first.
    pub(super) tiny: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    pub(super) seq: Seq,
    pub(super) content: Content,
    pub(super) channel: Channel,
    /// Whether the segment has been sent before.
    pub(super) again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentState {
    /// The segment has arrived, and its bytes have been released.
    Free,
    ToSend,
    InFlight(Sending),
    /// The segment was declared lost; the data describes its last transmission.
    ToResend(Sending),
}

/// Transmission of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sending {
    at: Instant,
    /// Number of the transmission on its channel.
    transmission: u64,
    channel: Channel,
}

#[derive(Debug)]
struct SegmentSlot {
    content: Content,
    state: SegmentState,
    /// Number of times that the segment has been sent.
    sends: u32,
    /// Time of the transmission before the last, if there was one.
    earlier: Instant,
    /// Whether the segment was declared lost because of later arrivals.
    reordered: bool,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Acked {
    /// Number of segments newly known to have arrived; `bytes`: their size.
    pub(super) segments: u32,
    pub(super) bytes: u64,
    /// Size of the largest of them in bytes.
    pub(super) largest: u32,
    /// Round-trip time of the latest of them that was sent only once (Karn's rule); `None`: there is none.
    pub(super) rtt: Option<Duration>,
    /// Number of segments newly declared lost; `lost_bytes`: their size.
    pub(super) lost_segments: u32,
    pub(super) lost_bytes: u64,
    /// Time at which the latest of the lost segments was sent.
    pub(super) lost_sent_at: Option<Instant>,
    /// Largest number of lost segments in a row.
    pub(super) lost_run: u32,
    /// Maximum number of times that one of the lost segments has been sent.
    pub(super) lost_sends: u32,
    /// Time at which the next segment will be declared lost unless it arrives; `None`: there is none.
    pub(super) lost_next: Option<Instant>,
    /// Number of segments that had been declared lost by mistake, because they arrived before their retransmission
    /// could, or before it was sent; `spurious_bytes`: their size.
    pub(super) spurious_segments: u32,
    pub(super) spurious_bytes: u64,
    /// Earliest time at which the transmission of such a segment that arrived had been sent.
    pub(super) spurious_sent_at: Option<Instant>,
    /// Longest time that a reordered segment took; without a reordering wait it would have been declared lost.
    pub(super) reordered: Option<Duration>,
    /// Whether segments at the left edge were acknowledged, so that the window moved.
    pub(super) moved: bool,
}

impl Acked {
    pub(super) fn add(&mut self, more: Self) {
        self.lost_segments += more.lost_segments;
        self.lost_bytes += more.lost_bytes;
        self.lost_sent_at = self.lost_sent_at.max(more.lost_sent_at);
        self.lost_run = self.lost_run.max(more.lost_run);
        self.lost_sends = self.lost_sends.max(more.lost_sends);
    }
}

/// Criterion that distinguishes a lost segment from a reordered one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct LossDetection {
    /// Minimum time from sending a segment to its acknowledgement. If a retransmission is acknowledged sooner, the
    /// original had arrived.
    pub(super) least: Duration,
    /// Time after sending in which a reordered segment is not declared lost.
    pub(super) wait: Duration,
}

/// The acknowledgement is of something that was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadAck;

/// Sending half of one link.
#[derive(Debug)]
pub(super) struct SendWindow {
    first: Seq,
    slots: VecDeque<SegmentSlot>,
    /// Index in `slots` of the first segment never sent.
    fresh: usize,
    /// Index from which on no segment has arrived.
    highest: usize,
    /// Index of the first segment to be retransmitted, if `lost` is not 0.
    resend: usize,
    counts: Counts,
    /// Size of all segments ever before `first`, in bytes.
    acked_total: u64,
    /// Size of all segments ever before `fresh`, in bytes.
    sent_total: u64,
    /// Limit of `sent_total`.
    allowed_total: u64,
    transmissions: [u64; 2],
    capacity: u16,
}

/// Sums over the slots.
#[derive(Debug, Default)]
struct Counts {
    in_flight: u32,
    in_flight_bytes: u64,
    /// Number of segments to be retransmitted.
    lost: u32,
    /// Bytes of segments that are not free.
    queued_bytes: u64,
    /// Latest transmission on each channel that is known to have arrived.
    newest_arrived: [u64; 2],
}

impl SendWindow {
    /// Makes a window; `window`: the peer's first receive window in bytes.
    pub(super) fn new(first: Seq, capacity: u16, window: u32) -> Self {
        Self {
            first,
            slots: VecDeque::new(),
            fresh: 0,
            highest: 0,
            resend: 0,
            counts: Counts::default(),
            acked_total: 0,
            sent_total: 0,
            allowed_total: u64::from(window),
            transmissions: [0; 2],
            capacity,
        }
    }

    pub(super) fn free(&self) -> usize {
        usize::from(self.capacity).saturating_sub(self.slots.len())
    }

    /// Returns whether nothing waits and everything has been acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.counts.in_flight_bytes
    }

    pub(super) fn transmissions(&self, channel: Channel) -> u64 {
        self.transmissions[channel as usize]
    }

    /// Returns the number of accepted bytes that are not known to have arrived.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.counts.queued_bytes
    }

    /// Adds a segment at the end. The caller has checked [`Self::free`].
    #[inline]
    pub(super) fn push(&mut self, content: Content) {
        debug_assert!(self.free() > 0, "pushed beyond the window");
        self.counts.queued_bytes += u64::from(content.place.len);
        self.slots.push_back(SegmentSlot {
            content,
            state: SegmentState::ToSend,
            sends: 0,
            earlier: Instant(0),
            reordered: false,
        });
    }

    /// Applies the peer's receive window of `window` bytes from `ack` on. The edge never moves back. Called after
    /// [`Self::on_ack`] with the same number.
    #[inline]
    pub(super) fn on_window(&mut self, ack: Seq, window: u32) {
        // Older acknowledgements are ignored.
        if ack == self.first {
            let edge = self.acked_total + u64::from(window);
            self.allowed_total = self.allowed_total.max(edge);
        }
    }

    /// Returns the number of the first segment that has not been acknowledged.
    pub(super) fn first(&self) -> Seq {
        self.first
    }

    /// Returns the unused bytes of the peer's receive window.
    pub(super) fn open_bytes(&self) -> u64 {
        self.allowed_total.saturating_sub(self.sent_total)
    }

    /// Returns whether the peer's receive window is closed and nothing is in flight, so that nothing would reopen it.
    pub(super) fn is_stuck(&self) -> bool {
        self.counts.in_flight == 0
            && self.counts.lost == 0
            && self.fresh < self.slots.len()
            && !self.may_send_fresh()
    }

    /// Returns the index of the segment to be sent next: lost ones first, then new ones.
    #[inline]
    pub(super) fn next(&self) -> Option<usize> {
        if self.counts.lost > 0 {
            return Some(self.resend);
        }
        self.may_send_fresh().then_some(self.fresh)
    }

    fn may_send_fresh(&self) -> bool {
        let Some(slot) = self.slots.get(self.fresh) else {
            return false;
        };
        // A window smaller than a segment still admits one: otherwise both sides would wait for each other.
        self.sent_total + slot.bytes() <= self.allowed_total
            || (self.counts.in_flight == 0
                && self.counts.lost == 0
                && self.sent_total < self.allowed_total)
    }

    /// Returns the segment at `index`, as it would be sent now.
    #[inline]
    pub(super) fn slot(&self, index: usize) -> Option<Outgoing> {
        let slot = self.slots.get(index)?;
        Some(Outgoing {
            seq: self.first.ahead(index as u32),
            content: slot.content,
            channel: slot.channel(),
            again: slot.sends > 0,
        })
    }

    /// Returns how many segments from `index` on, as returned by [`Self::next`], can be sent as one GSO batch within
    /// these limits; at least one.
    pub(super) fn batch(&self, index: usize, max_segments: usize, max_bytes: usize) -> usize {
        let Some(first) = self.slots.get(index) else {
            return 0;
        };
        let size = first.content.place.len;
        let mut bytes = first.bytes();
        let mut last = first;
        let mut count = 1;
        while count < max_segments && last.content.place.len == size {
            let Some(slot) = self.slots.get(index + count) else {
                break;
            };
            bytes += slot.bytes();
            let fits = slot.content.place.len <= size
                && last.content.place.adjoins(slot.content.place)
                && slot.is_lost() == first.is_lost()
                && slot.is_fresh() == first.is_fresh()
                && slot.channel() == first.channel()
                && bytes <= max_bytes as u64
                && (!first.is_fresh() || self.sent_total + bytes <= self.allowed_total);
            if !fits {
                break;
            }
            last = slot;
            count += 1;
        }
        count
    }

    /// Records that the segment at `index` has been sent. New segments are sent in order.
    pub(super) fn on_sent(&mut self, index: usize, channel: Channel, now: Instant) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let bytes = slot.bytes();
        match slot.state {
            SegmentState::ToSend => {
                debug_assert_eq!(index, self.fresh, "sent out of order");
                self.fresh = index + 1;
                self.sent_total += bytes;
            }
            SegmentState::ToResend(sending) => {
                self.counts.lost -= 1;
                slot.earlier = sending.at;
            }
            SegmentState::InFlight(_) | SegmentState::Free => return,
        }
        let transmission = &mut self.transmissions[channel as usize];
        *transmission += 1;
        slot.state = SegmentState::InFlight(Sending {
            at: now,
            transmission: *transmission,
            channel,
        });
        slot.sends = slot.sends.saturating_add(1);
        self.counts.in_flight += 1;
        self.counts.in_flight_bytes += bytes;
        self.find_resend();
    }

    /// Handles an acknowledgement: the peer has everything before `ack`, and the later segments marked in `sack`: bit i
    /// of word w stands for `ack + 1 + 64 w + i`.
    pub(super) fn on_ack(
        &mut self,
        ack: Seq,
        sack: &[u64],
        now: Instant,
        detection: LossDetection,
        send_buffer: &mut SendBuffer,
    ) -> Result<Acked, BadAck> {
        let mut outcome = AckOutcome::new(now, detection.least, self.counts.newest_arrived);
        if ack.precedes(self.first) {
            // A later acknowledgement, which includes this one, came first.
            return Ok(Acked::default());
        }
        let count = ack.since(self.first) as usize;
        let highest = highest_bit(sack).map_or(count, |bit| count + bit + 2);
        if count > self.fresh || highest > self.fresh {
            return Err(BadAck);
        }
        for _ in 0..count {
            let Some(mut slot) = self.slots.pop_front() else {
                break;
            };
            self.counts.on_arrived(&mut slot, &mut outcome, send_buffer);
            self.acked_total += slot.bytes();
        }
        self.first = ack;
        self.fresh -= count;
        self.resend = self.resend.saturating_sub(count);
        self.highest = self.highest.max(highest) - count;
        outcome.acked.moved = count > 0;
        for (word, &bits) in sack.iter().enumerate() {
            let mut left = bits;
            while left != 0 {
                let index = word * 64 + left.trailing_zeros() as usize + 1;
                left &= left - 1;
                if let Some(slot) = self.slots.get_mut(index) {
                    self.counts.on_arrived(slot, &mut outcome, send_buffer);
                }
            }
        }
        let mut acked = outcome.acked;
        if acked.segments != 0 {
            self.find_lost(now, detection.wait, &mut acked);
        }
        self.find_resend();
        Ok(acked)
    }

    /// Frees memory that is not needed now, all of it if nothing waits.
    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
    }

    pub(super) fn release_all(&mut self, send_buffer: &mut SendBuffer) {
        for slot in std::mem::take(&mut self.slots) {
            if slot.state != SegmentState::Free {
                send_buffer.release(slot.content.place);
            }
        }
        *self = Self::new(self.first, self.capacity, 0);
    }

    /// Moves the hint to the first segment to be retransmitted.
    #[inline]
    fn find_resend(&mut self) {
        if self.counts.lost == 0 {
            // The next lost segment lies before it.
            self.resend = self.fresh;
            return;
        }
        while let Some(slot) = self.slots.get(self.resend)
            && !slot.is_lost()
        {
            self.resend += 1;
        }
    }
}

impl SegmentSlot {
    #[inline]
    fn bytes(&self) -> u64 {
        u64::from(self.content.place.len)
    }

    #[inline]
    fn is_lost(&self) -> bool {
        matches!(self.state, SegmentState::ToResend(_))
    }

    #[inline]
    fn is_fresh(&self) -> bool {
        self.state == SegmentState::ToSend
    }

    /// Returns the channel for the next transmission.
    #[inline]
    fn channel(&self) -> Channel {
        if self.content.tiny && self.sends == 0 {
            Channel::Command
        } else {
            Channel::Data
        }
    }
}

/// Returns the index of the highest set bit in these words.
fn highest_bit(words: &[u64]) -> Option<usize> {
    let word = words.iter().rposition(|&word| word != 0)?;
    Some(word * 64 + 63 - words[word].leading_zeros() as usize)
}

#[cfg(test)]
mod tests;
