//! Segments sent to one peer and not yet acknowledged, and those that wait to be sent.
//!
//! ```text
//!         first                         fresh               right edge, in bytes
//!           |                             |                       |
//!   acked   [ in flight, to resend, free  )  to send ............ )  may not be sent yet ...
//!                                 |
//!                      highest that has arrived: only before it is anything lost
//! ```
//!
//! Owns: where the bytes of every segment lie until it is acknowledged, and what happened to it.
//! Knows nothing of: clocks, the wire format, who the peer is.
//! A segment's bytes are those of its datagram, header included: that is what it is on the way,
//! and what its receiver charges for keeping it.
//! Cost: push, send and acknowledge are O(1) a segment without loss; with holes, an
//! acknowledgement looks at the segments from the first hole to the highest that has arrived.

use super::seq::Seq;
use super::service::Channel;
use super::store::{Place, Store};
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Later segments of the same channel that must have arrived before an earlier one counts as
/// lost. 3 as in TCP and QUIC: fewer take plain reordering for loss.
const REORDERING: u64 = 3;

/// What a segment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Content {
    pub(super) place: Place,
    /// The fragment it is a part of.
    pub(super) fragment: u32,
    /// Where in it this part begins.
    pub(super) offset: u32,
    /// Bytes of the fragment.
    pub(super) fragment_len: u32,
    /// Bytes of this part.
    pub(super) payload: u32,
    pub(super) flags: u16,
    /// Checksum of the payload, if there is one.
    pub(super) crc: u32,
    /// Takes the command channel when it goes out for the first time.
    pub(super) tiny: bool,
}

/// A segment as it is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outgoing {
    pub(super) seq: Seq,
    pub(super) content: Content,
    pub(super) channel: Channel,
    /// It has been sent before.
    pub(super) again: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SegmentState {
    /// Arrived; its bytes have been given back.
    Free,
    ToSend,
    /// Sent at this time, as the so many-th transmission on this channel.
    InFlight {
        at: Instant,
        transmission: u64,
        channel: Channel,
    },
    ToResend,
}

#[derive(Debug)]
struct Slot {
    content: Content,
    state: SegmentState,
    /// How often it has been sent.
    sends: u32,
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Acked {
    /// Segments that are now known to be there and were not before, and their bytes.
    pub(super) segments: u32,
    pub(super) bytes: u64,
    /// How long the latest of them took, of those sent only once (Karn's rule).
    pub(super) rtt: Option<Duration>,
    /// Segments that now count as lost, and their bytes.
    pub(super) lost_segments: u32,
    pub(super) lost_bytes: u64,
    /// When the latest of those was sent.
    pub(super) lost_sent_at: Option<Instant>,
    /// Most of them in a row.
    pub(super) lost_run: u32,
    /// How often at most one of them has been sent.
    pub(super) lost_sends: u32,
    /// Those at the left edge were acknowledged: the window moved.
    pub(super) moved: bool,
}

/// The acknowledgement is of something that was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BadAck;

/// The sending half of one link.
#[derive(Debug)]
pub(super) struct SendWindow {
    first: Seq,
    slots: VecDeque<Slot>,
    /// Index in `slots` of the first segment never sent.
    fresh: usize,
    /// No segment from this index on has arrived.
    highest: usize,
    /// Index of the first segment that is to be sent again, if `lost` is not 0.
    resend: usize,
    counts: Counts,
    /// Bytes of all segments ever before `first`.
    acked_total: u64,
    /// Bytes of all segments ever before `fresh`.
    sent_total: u64,
    /// How far `sent_total` may go.
    allowed_total: u64,
    /// Transmissions on each channel.
    transmissions: [u64; 2],
    capacity: u16,
}

/// Sums over the slots.
#[derive(Debug, Default)]
struct Counts {
    in_flight: u32,
    in_flight_bytes: u64,
    /// Segments that are to be sent again.
    lost: u32,
    /// Bytes of those that are not free.
    queued_bytes: u64,
    /// The latest transmission on each channel that is known to have arrived.
    newest_arrived: [u64; 2],
}

impl SendWindow {
    /// `room` is how many bytes the peer said it has room for at first.
    pub(super) fn new(first: Seq, capacity: u16, room: u32) -> Self {
        Self {
            first,
            slots: VecDeque::new(),
            fresh: 0,
            highest: 0,
            resend: 0,
            counts: Counts::default(),
            acked_total: 0,
            sent_total: 0,
            allowed_total: u64::from(room),
            transmissions: [0; 2],
            capacity,
        }
    }

    /// Segments it still has room for.
    pub(super) fn free(&self) -> usize {
        usize::from(self.capacity).saturating_sub(self.slots.len())
    }

    /// Nothing waits and everything has been acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes under way.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.counts.in_flight_bytes
    }

    /// Bytes accepted that are not known to have arrived.
    pub(super) fn queued_bytes(&self) -> u64 {
        self.counts.queued_bytes
    }

    /// Adds a segment behind all others. The caller has looked at [`Self::free`].
    #[inline]
    pub(super) fn push(&mut self, content: Content) {
        debug_assert!(self.free() > 0, "pushed beyond the window");
        self.counts.queued_bytes += u64::from(content.place.len);
        self.slots.push_back(Slot {
            content,
            state: SegmentState::ToSend,
            sends: 0,
        });
    }

    /// The peer has room for `room` bytes from `ack` on. The edge never moves back. After
    /// [`Self::on_ack`] with the same number.
    #[inline]
    pub(super) fn on_room(&mut self, ack: Seq, room: u32) {
        // Said before what we know now: worth nothing.
        if ack == self.first {
            let edge = self.acked_total + u64::from(room);
            self.allowed_total = self.allowed_total.max(edge);
        }
    }

    /// Bytes that the peer has room for and that have not been sent.
    pub(super) fn open_bytes(&self) -> u64 {
        self.allowed_total.saturating_sub(self.sent_total)
    }

    /// The peer has room for nothing that waits, and will not hear from us by itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.counts.in_flight == 0
            && self.counts.lost == 0
            && self.fresh < self.slots.len()
            && !self.may_send_fresh()
    }

    /// Index of the segment that goes out next: what was lost first, then new ones.
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
        // A peer with room for less than a segment gets one nevertheless: otherwise both would
        // wait for each other.
        self.sent_total + slot.bytes() <= self.allowed_total
            || (self.counts.in_flight == 0
                && self.counts.lost == 0
                && self.sent_total < self.allowed_total)
    }

    /// The segment at `index`, as it would go out now.
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

    /// How many segments from `index` on, which is what [`Self::next`] said, can go out as one
    /// train of at most so many and so many bytes. One always can.
    pub(super) fn train(&self, index: usize, max_segments: usize, max_bytes: usize) -> usize {
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
                && slot.state == first.state
                && slot.channel() == first.channel()
                && bytes <= max_bytes as u64
                && (first.state != SegmentState::ToSend
                    || self.sent_total + bytes <= self.allowed_total);
            if !fits {
                break;
            }
            last = slot;
            count += 1;
        }
        count
    }

    /// The segment at `index` has gone out. Those sent for the first time go out in order.
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
            SegmentState::ToResend => self.counts.lost -= 1,
            SegmentState::InFlight { .. } | SegmentState::Free => return,
        }
        let transmission = &mut self.transmissions[channel as usize];
        *transmission += 1;
        slot.state = SegmentState::InFlight {
            at: now,
            transmission: *transmission,
            channel,
        };
        slot.sends = slot.sends.saturating_add(1);
        self.counts.in_flight += 1;
        self.counts.in_flight_bytes += bytes;
        self.find_resend();
    }

    /// The peer has everything before `ack`, and of what follows that which `sack` has bits for:
    /// bit i of word w stands for `ack + 1 + 64 w + i`.
    pub(super) fn on_ack(
        &mut self,
        ack: Seq,
        sack: &[u64],
        now: Instant,
        store: &mut Store,
    ) -> Result<Acked, BadAck> {
        let mut acked = Acked::default();
        if ack.precedes(self.first) {
            // Overtaken by a later one, which said all this and more.
            return Ok(acked);
        }
        let count = ack.since(self.first) as usize;
        let highest = highest_bit(sack).map_or(count, |bit| count + bit + 2);
        if count > self.fresh || highest > self.fresh {
            return Err(BadAck);
        }
        let mut latest = None;
        for _ in 0..count {
            let Some(mut slot) = self.slots.pop_front() else {
                break;
            };
            self.counts
                .on_arrived(&mut slot, &mut acked, &mut latest, store);
            self.acked_total += slot.bytes();
        }
        self.first = ack;
        self.fresh -= count;
        self.resend = self.resend.saturating_sub(count);
        self.highest = self.highest.max(highest) - count;
        acked.moved = count > 0;
        for (word, &bits) in sack.iter().enumerate() {
            let mut left = bits;
            while left != 0 {
                let index = word * 64 + left.trailing_zeros() as usize + 1;
                left &= left - 1;
                if let Some(slot) = self.slots.get_mut(index) {
                    self.counts.on_arrived(slot, &mut acked, &mut latest, store);
                }
            }
        }
        acked.rtt = latest.map(|at| now.since(at));
        self.find_lost(&mut acked);
        self.find_resend();
        Ok(acked)
    }

    /// Nothing has been heard for a time-out: everything in flight counts as lost. Were it only the
    /// oldest, each of several losses would cost a longer time-out than the one before.
    pub(super) fn on_timeout(&mut self) -> bool {
        for slot in self.slots.iter_mut().take(self.fresh) {
            if matches!(slot.state, SegmentState::InFlight { .. }) {
                slot.state = SegmentState::ToResend;
            }
        }
        self.counts.lost += self.counts.in_flight;
        self.counts.in_flight_bytes = 0;
        self.resend = 0;
        self.find_resend();
        std::mem::take(&mut self.counts.in_flight) > 0
    }

    /// Gives back memory that is not needed now; all of it when nothing waits.
    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// The link is gone: all bytes go back.
    pub(super) fn release_all(&mut self, store: &mut Store) {
        for slot in std::mem::take(&mut self.slots) {
            if slot.state != SegmentState::Free {
                store.release(slot.content.place);
            }
        }
        *self = Self::new(self.first, self.capacity, 0);
    }

    fn find_lost(&mut self, acked: &mut Acked) {
        if self.highest == 0 || acked.segments == 0 {
            return;
        }
        let newest = self.counts.newest_arrived;
        self.lose(self.highest, acked, |_, transmission, channel| {
            transmission + REORDERING <= newest[channel as usize]
        });
    }

    /// The peer has been asked what has arrived, and the answer does not name what was sent before
    /// `asked_at`: that is lost.
    pub(super) fn lose_sent_before(&mut self, asked_at: Instant) -> Acked {
        let mut lost = Acked::default();
        if self.counts.in_flight > 0 {
            self.lose(self.fresh, &mut lost, |at, _, _| at < asked_at);
            self.find_resend();
        }
        lost
    }

    /// Of the first `count` segments, those under way of which `is_lost` says so are to be sent
    /// again.
    fn lose(
        &mut self,
        count: usize,
        acked: &mut Acked,
        is_lost: impl Fn(Instant, u64, Channel) -> bool,
    ) {
        let mut run = 0;
        for (index, slot) in self.slots.iter_mut().take(count).enumerate() {
            let SegmentState::InFlight {
                at,
                transmission,
                channel,
            } = slot.state
            else {
                run = 0;
                continue;
            };
            if !is_lost(at, transmission, channel) {
                run = 0;
                continue;
            }
            run += 1;
            slot.state = SegmentState::ToResend;
            acked.lost_segments += 1;
            acked.lost_bytes += slot.bytes();
            acked.lost_sent_at = acked.lost_sent_at.max(Some(at));
            acked.lost_run = acked.lost_run.max(run);
            acked.lost_sends = acked.lost_sends.max(slot.sends);
            self.resend = self.resend.min(index);
        }
        self.counts.in_flight -= acked.lost_segments;
        self.counts.in_flight_bytes -= acked.lost_bytes;
        self.counts.lost += acked.lost_segments;
    }

    /// Moves the hint to the first segment that is to be sent again.
    #[inline]
    fn find_resend(&mut self) {
        if self.counts.lost == 0 {
            // Whatever is lost next lies before it.
            self.resend = self.fresh;
            return;
        }
        while let Some(slot) = self.slots.get(self.resend)
            && slot.state != SegmentState::ToResend
        {
            self.resend += 1;
        }
    }
}

impl Counts {
    /// A segment is known to be there.
    #[inline]
    fn on_arrived(
        &mut self,
        slot: &mut Slot,
        acked: &mut Acked,
        latest: &mut Option<Instant>,
        store: &mut Store,
    ) {
        let bytes = slot.bytes();
        match slot.state {
            SegmentState::InFlight {
                at,
                transmission,
                channel,
            } => {
                self.in_flight -= 1;
                self.in_flight_bytes -= bytes;
                // Of a segment sent twice one cannot tell which of the two has arrived.
                if slot.sends == 1 {
                    let newest = &mut self.newest_arrived[channel as usize];
                    *newest = (*newest).max(transmission);
                    *latest = (*latest).max(Some(at));
                }
            }
            SegmentState::ToResend => self.lost -= 1,
            SegmentState::ToSend => debug_assert!(false, "acknowledged before it was sent"),
            SegmentState::Free => return,
        }
        slot.state = SegmentState::Free;
        self.queued_bytes -= bytes;
        acked.segments += 1;
        acked.bytes += bytes;
        store.release(slot.content.place);
    }
}

impl Slot {
    /// Bytes of its datagram.
    #[inline]
    fn bytes(&self) -> u64 {
        u64::from(self.content.place.len)
    }

    /// The channel for its next transmission.
    #[inline]
    fn channel(&self) -> Channel {
        if self.content.tiny && self.sends == 0 {
            Channel::Command
        } else {
            Channel::Data
        }
    }
}

/// The highest bit that is set in all these words together.
fn highest_bit(words: &[u64]) -> Option<usize> {
    let word = words.iter().rposition(|&word| word != 0)?;
    Some(word * 64 + 63 - words[word].leading_zeros() as usize)
}

#[cfg(test)]
mod tests;
