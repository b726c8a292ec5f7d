//! Large messages, for which a link gets far areas.

use super::idle::suspend;
use super::{Event, Node, linked};
use crate::layout::Geometry;
use crate::ring::LOOKS_BEFORE_FAR;
use mx_proto::LinkId;
use mx_proto::port::{SendError, Sent};

const CHUNK: usize = 32 * 1024;
/// Minimum number of bytes that a sender can send before the receiver looks.
const AHEAD: usize = 2 << 20;

/// Numbered chunks.
#[derive(Default)]
struct Chunks {
    sent: u32,
    got: u32,
}

impl Chunks {
    /// Sends until there is no room; returns the number of chunks.
    fn send(&mut self, from: &mut Node, link: LinkId) -> usize {
        let before = self.sent;
        loop {
            let mut chunk = vec![0; CHUNK];
            chunk[..4].copy_from_slice(&self.sent.to_le_bytes());
            match from.send(link, &chunk) {
                Ok(Sent::Whole) => self.sent += 1,
                other => {
                    assert_eq!(other, Err(SendError::WouldBlock));
                    for _ in 0..=LOOKS_BEFORE_FAR {
                        from.poll();
                    }
                    if from.take() != [Event::Writable(link)] {
                        return (self.sent - before) as usize;
                    }
                }
            }
        }
    }

    /// Checks that all have arrived, in order, and nothing else.
    fn take(&mut self, at: &mut Node) {
        for event in at.take() {
            match event {
                Event::Packet(_, chunk) => {
                    assert_eq!(chunk.len(), CHUNK);
                    assert_eq!(chunk[..4], self.got.to_le_bytes());
                    self.got += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(self.got, self.sent);
    }
}

fn poll_all(nodes: [&mut Node; 2]) {
    for _ in 0..4 {
        nodes[0].poll_until_idle();
        nodes[1].poll_until_idle();
    }
}

#[test]
fn stream_runs_ahead_both_ways_and_idling_frees_memory() {
    for initiator_sends in [true, false] {
        let (mut a, ab, mut b, ba) = linked();
        let mut chunks = Chunks::default();
        for _ in 0..4 {
            let (from, link) = if initiator_sends {
                (&mut a, ab)
            } else {
                (&mut b, ba)
            };
            chunks.send(from, link);
            poll_all([&mut a, &mut b]);
            let (from, link, to) = if initiator_sends {
                (&mut a, ab, &mut b)
            } else {
                (&mut b, ba, &mut a)
            };
            assert_eq!(from.take(), [Event::Writable(link)]);
            chunks.take(to);
        }
        let (from, link) = if initiator_sends {
            (&mut a, ab)
        } else {
            (&mut b, ba)
        };
        assert!(chunks.send(from, link) * CHUNK >= AHEAD);
        let bytes = Geometry::STREAMING.total() as u64;
        assert_eq!((a.port.stats().bytes, b.port.stats().bytes), (bytes, bytes));
        poll_all([&mut a, &mut b]);
        suspend(&mut [&mut a, &mut b]);
        assert_eq!((a.port.stats().bytes, b.port.stats().bytes), (0, 0));
        a.take();
        b.take();
        a.send(ab, b"again").unwrap();
        poll_all([&mut a, &mut b]);
        let bytes = Geometry::STANDARD.total() as u64;
        assert_eq!((a.port.stats().bytes, b.port.stats().bytes), (bytes, bytes));
    }
}
