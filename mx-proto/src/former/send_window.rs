//! Fragments sent to one peer and not yet acknowledged, and those that wait to be sent.
//!
//! ```text
//!         first                    fresh                 right edge
//!           |                        |                       |
//!   acked   [ in flight, lost, sacked ) never sent .......... )  may not be sent yet ...
//! ```
//!
//! Owns: the bytes of every fragment until it is acknowledged, and what happened to it.
//! Knows nothing of: clocks, the wire format, who the peer is.
//! Cost: push and send are O(1); an acknowledgement looks at the fragments in flight, at most one
//! window.

use super::seq::Seq;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// Later fragments that must have arrived before an earlier one counts as lost. 3 as in TCP and
/// QUIC: fewer take plain reordering for loss.
const REORDERING: u64 = 3;

/// One fragment.
#[derive(Debug)]
struct Slot {
    bytes: Vec<u8>,
    flags: u16,
    state: State,
    /// How often it has been sent.
    sends: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Waiting,
    /// Sent at this time, as the so many-th transmission of this window.
    InFlight {
        at: Instant,
        transmission: u64,
    },
    Lost,
    Sacked,
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Acked {
    /// Fragments that are now known to be there and were not before.
    pub(super) fragments: u32,
    /// How long the latest of them took, if it was sent only once (Karn's rule).
    pub(super) rtt: Option<Duration>,
    /// Fragments that now count as lost.
    pub(super) lost: u32,
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
    /// Index in `slots` of the first fragment never sent.
    fresh: usize,
    /// Fragments from `first` on that the receiver has room for.
    allowed: u32,
    in_flight: u32,
    lost: u32,
    transmissions: u64,
    /// The latest transmission known to have arrived.
    newest_arrived: u64,
    capacity: usize,
    spare: Vec<Vec<u8>>,
}

/// Empty buffers kept for the next fragments: a burst's worth.
const SPARE_MAX: usize = 64;

impl SendWindow {
    /// `room` is what the peer said it has room for at first.
    pub(super) fn new(first: Seq, capacity: u16, room: u16) -> Self {
        Self {
            first,
            slots: VecDeque::new(),
            fresh: 0,
            allowed: u32::from(room),
            in_flight: 0,
            lost: 0,
            transmissions: 0,
            newest_arrived: 0,
            capacity: usize::from(capacity),
            spare: Vec::new(),
        }
    }

    /// Fragments it still has room for.
    pub(super) fn free(&self) -> usize {
        self.capacity.saturating_sub(self.slots.len())
    }

    /// Nothing waits and everything has been acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// An empty buffer for the next fragment.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Adds a fragment behind all others. The caller has looked at [`Self::free`].
    pub(super) fn push(&mut self, bytes: Vec<u8>, flags: u16) {
        self.slots.push_back(Slot {
            bytes,
            flags,
            state: State::Waiting,
            sends: 0,
        });
    }

    /// The peer has room for `room` fragments from `ack` on. The edge never moves back.
    pub(super) fn on_room(&mut self, ack: Seq, room: u16) {
        let edge = ack.ahead(u32::from(room)).since(self.first);
        if edge <= 2 * u32::from(u16::MAX) {
            self.allowed = self.allowed.max(edge);
        }
    }

    /// The peer has room for nothing that waits, and will not hear from us by itself.
    pub(super) fn is_stuck(&self) -> bool {
        self.in_flight == 0
            && self.lost == 0
            && self.fresh < self.slots.len()
            && self.fresh as u32 >= self.allowed
    }

    /// Index of the fragment that goes out next: what was lost first, then new ones.
    pub(super) fn next(&self) -> Option<usize> {
        if self.lost > 0 {
            return self.slots.iter().position(|slot| slot.state == State::Lost);
        }
        (self.fresh < self.slots.len() && (self.fresh as u32) < self.allowed).then_some(self.fresh)
    }

    /// Number, flags and bytes of the fragment at `index`, and whether it has been sent before.
    pub(super) fn fragment(&self, index: usize) -> Option<(Seq, u16, &[u8], bool)> {
        let slot = self.slots.get(index)?;
        Some((
            self.first.ahead(index as u32),
            slot.flags,
            &slot.bytes,
            slot.sends > 0,
        ))
    }

    /// The fragment at `index` has gone out.
    pub(super) fn on_sent(&mut self, index: usize, now: Instant) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        self.transmissions += 1;
        match slot.state {
            State::Lost => self.lost -= 1,
            State::Waiting => self.fresh = self.fresh.max(index + 1),
            State::InFlight { .. } | State::Sacked => return,
        }
        slot.state = State::InFlight {
            at: now,
            transmission: self.transmissions,
        };
        slot.sends = slot.sends.saturating_add(1);
        self.in_flight += 1;
    }

    /// The peer has everything before `ack`, and of what follows that which `sack` has bits for.
    pub(super) fn on_ack(&mut self, ack: Seq, sack: u64, now: Instant) -> Result<Acked, BadAck> {
        let mut acked = Acked::default();
        if ack.precedes(self.first) {
            // Overtaken by a later one, which said all this and more.
            return Ok(acked);
        }
        let count = ack.since(self.first) as usize;
        let beyond = 64 - sack.leading_zeros() as usize;
        if count > self.fresh || (beyond > 0 && count + beyond + 1 > self.fresh) {
            return Err(BadAck);
        }
        let mut newest = None;
        for _ in 0..count {
            let Some(mut slot) = self.slots.pop_front() else {
                break;
            };
            self.note_arrival(&slot, &mut acked, &mut newest);
            if self.spare.len() < SPARE_MAX {
                slot.bytes.clear();
                self.spare.push(slot.bytes);
            }
        }
        self.first = ack;
        self.fresh -= count;
        self.allowed = self.allowed.saturating_sub(count as u32);
        acked.moved = count > 0;
        for bit in 0..beyond {
            if sack >> bit & 1 == 0 {
                continue;
            }
            if let Some(mut slot) = self.slots.get_mut(bit + 1).map(Slot::take) {
                self.note_arrival(&slot, &mut acked, &mut newest);
                slot.state = State::Sacked;
                self.slots[bit + 1] = slot;
            }
        }
        acked.rtt = newest.map(|at| now.since(at));
        acked.lost = self.find_lost();
        Ok(acked)
    }

    fn note_arrival(&mut self, slot: &Slot, acked: &mut Acked, newest: &mut Option<Instant>) {
        match slot.state {
            State::InFlight { at, transmission } => {
                self.in_flight -= 1;
                // Of a fragment sent twice one cannot tell which of the two has arrived.
                if slot.sends == 1 {
                    self.newest_arrived = self.newest_arrived.max(transmission);
                    *newest = (*newest).max(Some(at));
                }
            }
            State::Lost => self.lost -= 1,
            State::Waiting => {}
            State::Sacked => return,
        }
        acked.fragments += 1;
    }

    fn find_lost(&mut self) -> u32 {
        let mut found = 0;
        for slot in self.slots.iter_mut().take(self.fresh) {
            if let State::InFlight { transmission, .. } = slot.state
                && transmission + REORDERING <= self.newest_arrived
            {
                slot.state = State::Lost;
                found += 1;
            }
        }
        self.in_flight -= found;
        self.lost += found;
        found
    }

    /// Nothing has been heard for a time-out: everything in flight counts as lost. Were it only the
    /// oldest, each of several losses would cost a longer time-out than the one before.
    pub(super) fn on_timeout(&mut self) -> bool {
        for slot in self.slots.iter_mut().take(self.fresh) {
            if matches!(slot.state, State::InFlight { .. }) {
                slot.state = State::Lost;
            }
        }
        self.lost += self.in_flight;
        std::mem::take(&mut self.in_flight) > 0
    }
}

impl Slot {
    /// Moves the slot out, so that the window can be changed while looking at it.
    fn take(&mut self) -> Self {
        Self {
            bytes: std::mem::take(&mut self.bytes),
            flags: self.flags,
            state: self.state,
            sends: self.sends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Seq = Seq(u32::MAX - 9);

    /// A window with `count` fragments sent at times 0, 1, 2, ...
    fn sent(count: usize) -> SendWindow {
        let mut window = SendWindow::new(START, 64, 64);
        for i in 0..count {
            window.push(vec![i as u8], 0);
            let next = window.next().expect("there is room");
            assert_eq!(next, i);
            window.on_sent(next, Instant(i as u64));
        }
        window
    }

    fn numbers_to_send(window: &mut SendWindow) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Some(index) = window.next() {
            let (seq, ..) = window.fragment(index).expect("it was just named");
            numbers.push(seq.since(START));
            window.on_sent(index, Instant(1000));
        }
        numbers
    }

    #[test]
    fn cumulative_acknowledgements_work_across_the_wrap() {
        let mut window = sent(20);
        let acked = window
            .on_ack(START.ahead(15), 0, Instant(50))
            .expect("in range");
        assert_eq!(acked.fragments, 15);
        assert_eq!(acked.rtt, Some(Duration::from_nanos(50 - 14)));
        assert!(acked.moved);
        assert_eq!((window.in_flight(), window.free()), (5, 59));
        assert!(window.on_ack(START.ahead(20), 0, Instant(60)).is_ok());
        assert!(window.is_empty());
    }

    #[test]
    fn an_old_acknowledgement_changes_nothing() {
        let mut window = sent(10);
        window
            .on_ack(START.ahead(5), 0, Instant(50))
            .expect("in range");
        assert_eq!(
            window.on_ack(START.ahead(3), 1, Instant(60)),
            Ok(Acked::default())
        );
        assert_eq!(window.in_flight(), 5);
    }

    #[test]
    fn acknowledging_what_was_never_sent_is_refused_and_changes_nothing() {
        let mut window = sent(10);
        window.push(vec![0], 0);
        assert_eq!(window.on_ack(START.ahead(11), 0, Instant(50)), Err(BadAck));
        assert_eq!(window.on_ack(START, 1 << 9, Instant(50)), Err(BadAck));
        assert_eq!(window.on_ack(START.ahead(9), 1, Instant(50)), Err(BadAck));
        assert_eq!(window.in_flight(), 10);
        assert!(window.on_ack(START, 1 << 8, Instant(50)).is_ok());
    }

    #[test]
    fn three_later_arrivals_make_a_fragment_lost_and_two_do_not() {
        let mut window = sent(5);
        let two = window.on_ack(START, 0b11, Instant(50)).expect("in range");
        assert_eq!((two.fragments, two.lost), (2, 0));
        let three = window.on_ack(START, 0b111, Instant(50)).expect("in range");
        assert_eq!((three.fragments, three.lost), (1, 1));
        assert_eq!(numbers_to_send(&mut window), [0]);
    }

    #[test]
    fn a_resent_fragment_gives_no_round_trip_time() {
        let mut window = sent(1);
        assert!(window.on_timeout());
        assert_eq!(numbers_to_send(&mut window), [0]);
        let acked = window
            .on_ack(START.ahead(1), 0, Instant(2000))
            .expect("in range");
        assert_eq!((acked.fragments, acked.rtt), (1, None));
    }

    #[test]
    fn nothing_is_sent_beyond_the_room_of_the_receiver() {
        let mut window = SendWindow::new(START, 64, 2);
        (0..5).for_each(|_| window.push(Vec::new(), 0));
        assert_eq!(numbers_to_send(&mut window), [0, 1]);
        window
            .on_ack(START.ahead(2), 0, Instant(9))
            .expect("in range");
        assert!(window.is_stuck());
        window.on_room(START.ahead(2), 1);
        assert_eq!(numbers_to_send(&mut window), [2]);
        // An older, smaller promise does not take it back.
        window.on_room(START.ahead(2), 0);
        window.on_room(START.ahead(2), 3);
        assert_eq!(numbers_to_send(&mut window), [3, 4]);
    }

    #[test]
    fn a_timeout_resends_all_that_is_not_known_to_be_there() {
        let mut window = sent(4);
        window
            .on_ack(START.ahead(1), 0b1, Instant(50))
            .expect("in range");
        assert!(window.on_timeout());
        assert_eq!(numbers_to_send(&mut window), [1, 3]);
        assert!(!SendWindow::new(START, 4, 4).on_timeout());
    }
}
