//! A direction of the link: frames that have come in, and the time at which each leaves.
//!
//! ```text
//!   take(now, frame) --> mx_sim::Link: queue, loss, bits, delay --> garble --> [ by due time ] --> due(now)
//! ```
//!
//! A frame's faults are those of the simulator's [`Link`], so that a setting means the same on a
//! virtual network and on a real one. This type supplies the clock of the machine.
//!
//! Owns: the frames under way, and counts of their fates.
//! Out of scope: interfaces, sockets.

use crate::args::Way;
use mx_proto::Instant;
use mx_sim::link::{Fate, Link};
use mx_sim::rng::Rng;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

/// Maximum number of frames in a link without a queue of its own: a second of small frames at full
/// speed. Further ones are dropped and counted, so that memory stays bounded.
const FRAMES_MAX: usize = 1 << 18;

/// Ethernet, IPv4 without options, UDP: 14 + 20 + 8 bytes.
const UDP_HEADERS: usize = 42;

/// A direction of the link.
#[derive(Debug)]
pub(crate) struct Line {
    link: Link,
    rng: Rng,
    /// Probability that a datagram is altered without a change of its UDP checksum.
    garble: f64,
    under_way: BinaryHeap<Frame>,
    /// Frames taken so far: those that are due at the same time leave in this order.
    taken: u64,
    fates: BTreeMap<&'static str, u64>,
}

impl Line {
    pub(crate) fn new(way: &Way, mut rng: Rng) -> Self {
        Self {
            link: Link::new(way.faults, way.frame_max, rng.fork()),
            rng,
            garble: way.garble,
            under_way: BinaryHeap::new(),
            taken: 0,
            fates: BTreeMap::new(),
        }
    }

    /// Takes a frame.
    pub(crate) fn take(&mut self, now: Instant, bytes: &[u8]) {
        if self.under_way.len() >= FRAMES_MAX {
            self.count("too many under way");
            return;
        }
        let offered = self.link.offer(now, bytes, Fate::Chance, false);
        self.count(offered.fate);
        for (due, mut bytes) in offered.arrivals {
            if self.rng.chance(self.garble) && garble(&mut bytes, &mut self.rng) {
                self.count("garbled");
            }
            self.taken += 1;
            self.under_way.push(Frame {
                due,
                number: self.taken,
                bytes,
            });
        }
    }

    /// Returns the next frame that is due by now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        self.under_way.pop().map(|frame| frame.bytes)
    }

    /// Returns the time at which the next frame is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.under_way.peek().map(|frame| frame.due)
    }

    /// Counts a fate that only the caller knows.
    pub(crate) fn count(&mut self, fate: &'static str) {
        *self.fates.entry(fate).or_default() += 1;
    }

    /// Counts many frames with the same fate.
    pub(crate) fn count_many(&mut self, fate: &'static str, many: u64) {
        if many > 0 {
            *self.fates.entry(fate).or_default() += many;
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fates.is_empty() {
            return f.write_str("nothing");
        }
        for (nth, (fate, count)) in self.fates.iter().enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {fate}")?;
        }
        Ok(())
    }
}

/// Alters a UDP datagram over IPv4 without changing its checksum, like a broken switch or adapter:
/// exchanges two of its 16-bit words, since a sum does not depend on their order. Returns false if
/// the frame is no such datagram, or would stay the same.
fn garble(frame: &mut [u8], rng: &mut Rng) -> bool {
    let udp = frame.get(12..14) == Some(&[0x08, 0x00])
        && frame.get(14) == Some(&0x45)
        && frame.get(23) == Some(&17);
    let Some(payload) = frame.get_mut(UDP_HEADERS..).filter(|_| udp) else {
        return false;
    };
    let words = payload.len() / 2;
    let (a, b) = (rng.index(words) * 2, rng.index(words) * 2);
    if words == 0 || payload[a..a + 2] == payload[b..b + 2] {
        return false;
    }
    payload.swap(a, b);
    payload.swap(a + 1, b + 1);
    true
}

#[derive(PartialEq, Eq, Debug)]
struct Frame {
    due: Instant,
    number: u64,
    bytes: Vec<u8>,
}

impl Ord for Frame {
    /// A heap's greatest element comes first, so the order is reversed: the earliest due time comes
    /// first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Frame {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_sim::Faults;
    use std::time::Duration;

    const MILLISECOND: u64 = 1_000_000;

    fn line(faults: Faults, garble: f64) -> Line {
        let way = Way {
            faults,
            garble,
            ..Way::default()
        };
        Line::new(&way, Rng::new(11))
    }

    fn slow(millis: u64) -> Faults {
        Faults {
            latency: Duration::from_millis(millis),
            ..Faults::default()
        }
    }

    /// Makes an IPv4 UDP frame without a checksum, which `sum` computes.
    fn datagram(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; UDP_HEADERS];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = 17;
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns the sum of the Internet checksum, RFC 1071.
    fn sum(bytes: &[u8]) -> u16 {
        let mut sum: u32 = bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn a_frame_leaves_when_its_delay_is_over_and_not_before() {
        let mut line = line(slow(1), 0.0);
        line.take(Instant(5), b"frame");
        assert_eq!(line.next(), Some(Instant(MILLISECOND + 5)));
        assert_eq!(line.due(Instant(MILLISECOND + 4)), None);
        assert_eq!(line.due(Instant(MILLISECOND + 5)), Some(b"frame".to_vec()));
        assert_eq!(line.next(), None);
    }

    #[test]
    fn frames_due_at_the_same_time_leave_in_the_order_they_came() {
        let mut line = line(slow(1), 0.0);
        for byte in 0..100 {
            line.take(Instant(0), &[byte]);
        }
        let out: Vec<u8> = std::iter::from_fn(|| line.due(Instant(MILLISECOND)))
            .map(|frame| frame[0])
            .collect();
        assert_eq!(out, (0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn what_is_lost_never_leaves_and_is_counted() {
        let mut line = line(
            Faults {
                loss: 1.0,
                ..slow(1)
            },
            0.0,
        );
        line.take(Instant(0), b"frame");
        assert_eq!(line.next(), None);
        assert_eq!(line.to_string(), "1 lost");
    }

    #[test]
    fn a_rate_spaces_frames_and_a_full_queue_drops_the_last() {
        let mut line = line(
            Faults {
                bandwidth: Some(1_000_000),
                queue: 3000,
                ..slow(0)
            },
            0.0,
        );
        for _ in 0..4 {
            line.take(Instant(0), &[0; 1000]);
        }
        assert_eq!(line.due(Instant(MILLISECOND)).map(|f| f.len()), Some(1000));
        assert_eq!(line.next(), Some(Instant(2 * MILLISECOND)));
        assert_eq!(line.to_string(), "3 passed, 1 queue full");
    }

    #[test]
    fn memory_is_bounded() {
        let mut line = line(slow(1000), 0.0);
        for _ in 0..FRAMES_MAX + 3 {
            line.take(Instant(0), b"f");
        }
        assert_eq!(line.under_way.len(), FRAMES_MAX);
        assert!(line.to_string().contains("3 too many under way"), "{line}");
    }

    #[test]
    fn garbled_datagram_keeps_its_checksum_and_headers() {
        let payload: Vec<u8> = (0..=255).collect();
        let before = datagram(&payload);
        let mut line = line(slow(0), 1.0);
        let mut changed = 0;
        for _ in 0..50 {
            line.take(Instant(0), &before);
            let after = line.due(Instant(0)).expect("it is due at once");
            assert_eq!(after[..UDP_HEADERS], before[..UDP_HEADERS]);
            assert_eq!(sum(&after), sum(&before));
            changed += usize::from(after != before);
        }
        assert!(changed > 40, "{changed}");
    }

    #[test]
    fn nothing_but_datagrams_is_garbled_however_short() {
        let whole = datagram(&[1, 2, 3, 4]);
        for len in 0..UDP_HEADERS + 4 {
            let mut cut = whole[..len].to_vec();
            assert!(!garble(&mut cut, &mut Rng::new(len as u64)) || len >= UDP_HEADERS + 4);
        }
        let mut tcp = datagram(&[1, 2, 3, 4]);
        tcp[23] = 6;
        assert!((0..20).all(|seed| !garble(&mut tcp, &mut Rng::new(seed))));
    }
}
