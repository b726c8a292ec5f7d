//! The order of a link's frames.
//!
//! ```text
//!   sent:      0 1 2 3 4 5 ...            modulo 2^16, by the order the provider accepted them
//!   arrives:   0 2 3   1
//!              |  `-'  `--- delivered, and then 2 and 3 with it
//!      delivered  held
//! ```
//!
//! Providers match messages in order, but not all of them report so: where a longer message is
//! fetched in several steps, a later shorter one may be reported first. An early frame is copied
//! and held until its turn. A number that never comes means a lost frame, and the end of the link.
//!
//! Owns: both counters of a link, and held frames.
//! Cost: a comparison a frame; memory only while frames are out of order.

use super::frame::FrameKind;
use mx_proto::Instant;
use std::collections::HashMap;
use std::time::Duration;

/// The positions of a link's frames.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// The number of the next frame to be sent.
    next_out: u16,
    /// The number of the next frame to be taken.
    next_in: u16,
    held: Option<Box<Held>>,
}

/// Frames before their turn.
#[derive(Debug)]
struct Held {
    frames: HashMap<u16, (FrameKind, Box<[u8]>)>,
    bytes: usize,
    /// For how long one has been missing.
    since: Instant,
}

/// Whether it is a frame's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameOrder {
    /// The frame is next in sequence.
    InOrder,
    /// Earlier frames are still missing.
    Early,
    /// The frame has come before.
    Duplicate,
}

/// Frames that may come early. Small ones are not limited by send slots, and many may overtake one
/// long frame on a fabric that takes several ways.
const HELD_FRAMES: usize = 16 << 10;
/// And their bytes.
const HELD_BYTES: usize = 4 << 20;

/// The cost of a held frame beside its bytes.
const HELD_COST: usize = 64;

impl Sequence {
    /// The number for the next frame. It is used up by [`Sequence::sent`].
    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.next_out
    }

    /// The frame with that number has been taken by the provider.
    #[inline]
    pub(super) fn sent(&mut self) {
        self.next_out = self.next_out.wrapping_add(1);
    }

    /// Whether a frame is to be taken; if so, it counts as taken.
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

    /// Keeps a frame that came early. False when that is one too many.
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

    /// The next frame, if it has come early; it counts as taken.
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

    /// Bytes of frames before their turn, and of what it takes to keep them.
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.held.as_ref();
        held.map_or(0, |held| held.bytes + held.frames.len() * HELD_COST)
    }

    /// Excuses a missing frame for a time in which this process did not look.
    pub(super) fn exclude_pause(&mut self, excused: Duration, now: Instant) {
        if let Some(held) = &mut self.held {
            held.since = held.since.after(excused).min(now);
        }
    }

    /// Since when a frame has been missing that others wait for.
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
