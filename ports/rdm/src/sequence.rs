//! Order of a link's frames.
//!
//! ```text
//!   sent:      0 1 2 3 4 5 ...            modulo 2^16, in the order of acceptance by the provider
//!   arrives:   0 2 3   1
//!              |  `-'  `--- delivered, and then 2 and 3 with it
//!      delivered  held
//! ```
//!
//! Providers match messages in order, but not all report them so: if a longer message is fetched in several steps, a
//! later, shorter one may be reported first. An early frame is copied and held until the missing ones arrive. A number
//! that never arrives means a lost frame, and ends the link.
//!
//! Owns: both counters of a link, and held frames.
//! Cost: a comparison a frame; memory only while frames are out of order.

use super::frame::FrameKind;
use mx_proto::Instant;
use std::collections::HashMap;
use std::time::Duration;

/// Sequence state of a link.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Number of the next frame to send.
    next_out: u16,
    /// Number of the next frame to deliver.
    next_in: u16,
    held: Option<Box<Held>>,
}

/// Frames that arrived early.
#[derive(Debug)]
struct Held {
    frames: HashMap<u16, (FrameKind, Box<[u8]>)>,
    bytes: usize,
    /// Time since which a frame has been missing.
    since: Instant,
}

/// Position of a frame in the sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameOrder {
    /// The frame is next in sequence.
    InOrder,
    /// Earlier frames are still missing.
    Early,
    /// The frame has already arrived.
    Duplicate,
}

/// Maximum number of held frames of a link. Small ones are not limited by send slots, and many may overtake a long one
/// on a multi-path fabric.
const HELD_FRAMES: usize = 16 << 10;
/// Maximum bytes of held frames of a link.
const HELD_BYTES: usize = 4 << 20;

/// Memory cost of a held frame beside its bytes.
const HELD_COST: usize = 64;

impl Sequence {
    /// Returns the number for the next frame; [`Sequence::sent`] uses it up.
    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.next_out
    }

    /// Records that the provider has accepted the frame with that number.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.next_out = self.next_out.wrapping_add(1);
    }

    /// Returns whether an arrived frame is next in sequence; if so, counts it as delivered.
    #[inline]
    pub(super) fn arrived(&mut self, number: u16) -> FrameOrder {
        if number == self.next_in {
            self.next_in = number.wrapping_add(1);
            FrameOrder::InOrder
        } else if number.wrapping_sub(self.next_in) < 1 << 15 {
            FrameOrder::Early
        } else {
            FrameOrder::Duplicate
        }
    }

    /// Holds an early frame. Returns false if there are too many.
    #[cold]
    pub(super) fn hold(&mut self, number: u16, kind: FrameKind, body: &[u8], now: Instant) -> bool {
        let held = self.held.get_or_insert_with(|| {
            Box::new(Held {
                frames: HashMap::new(),
                bytes: 0,
                since: now,
            })
        });
        held.bytes += body.len();
        if let Some((_, old)) = held.frames.insert(number, (kind, body.into())) {
            held.bytes -= old.len();
        }
        held.frames.len() <= HELD_FRAMES && held.bytes <= HELD_BYTES
    }

    /// Returns the next frame, if it has arrived early, and counts it as delivered.
    #[inline]
    pub(super) fn next_held(&mut self, now: Instant) -> Option<(FrameKind, Box<[u8]>)> {
        self.held.is_some().then(|| self.take_held(now))?
    }

    #[cold]
    fn take_held(&mut self, now: Instant) -> Option<(FrameKind, Box<[u8]>)> {
        let held = self.held.as_mut()?;
        let (kind, body) = held.frames.remove(&self.next_in)?;
        self.next_in = self.next_in.wrapping_add(1);
        held.bytes -= body.len();
        held.since = now;
        if held.frames.is_empty() {
            self.held = None;
        }
        Some((kind, body))
    }

    /// Bytes of held frames, with their overhead.
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.held.as_ref();
        held.map_or(0, |held| held.bytes + held.frames.len() * HELD_COST)
    }

    /// Excludes a time in which this process did not poll from the age of a missing frame.
    pub(super) fn exclude_pause(&mut self, excused: Duration, now: Instant) {
        if let Some(held) = &mut self.held {
            held.since = held.since.after(excused).min(now);
        }
    }

    /// Returns the time since which a frame has been missing that others wait for.
    pub(super) fn missing_since(&self) -> Option<Instant> {
        self.held.as_ref().map(|held| held.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(7);

    fn starting_at(number: u16) -> Sequence {
        Sequence {
            next_out: number,
            next_in: number,
            held: None,
        }
    }

    #[test]
    fn frames_in_any_order_are_sorted_across_the_wrap() {
        for first in [0, u16::MAX - 2] {
            let mut sequence = starting_at(first);
            let number = |n: u16| first.wrapping_add(n);
            let mut taken = Vec::new();
            for n in [0, 3, 2, 5, 1, 4] {
                match sequence.arrived(number(n)) {
                    FrameOrder::InOrder => taken.push(n),
                    FrameOrder::Early => {
                        assert!(sequence.hold(number(n), FrameKind::Packet, &[n as u8], NOW));
                    }
                    FrameOrder::Duplicate => panic!("{n}"),
                }
                while let Some((_, body)) = sequence.next_held(NOW) {
                    taken.push(body[0].into());
                }
            }
            assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
            assert_eq!(sequence.missing_since(), None);
            assert_eq!(sequence.arrived(number(5)), FrameOrder::Duplicate);
        }
    }

    #[test]
    fn what_is_held_is_bounded_and_its_age_is_known() {
        let mut sequence = starting_at(0);
        assert_eq!(sequence.arrived(1), FrameOrder::Early);
        assert!(sequence.hold(1, FrameKind::Packet, &[0; 8], NOW));
        assert_eq!(sequence.missing_since(), Some(NOW));
        assert!(!sequence.hold(2, FrameKind::Packet, &vec![0; HELD_BYTES], NOW));
        let mut sequence = starting_at(0);
        for n in 1..=HELD_FRAMES as u16 {
            assert!(sequence.hold(n, FrameKind::Ping, &[], NOW));
        }
        assert!(!sequence.hold(HELD_FRAMES as u16 + 1, FrameKind::Ping, &[], NOW));
    }

    #[test]
    fn numbers_are_used_up_only_when_a_frame_has_gone() {
        let mut sequence = starting_at(u16::MAX);
        assert_eq!((sequence.number(), sequence.number()), (u16::MAX, u16::MAX));
        sequence.sent();
        assert_eq!(sequence.number(), 0);
    }
}
