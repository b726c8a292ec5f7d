//! Links that are suspended and resumed all the time, in any order of events.

use super::idle::{IDLE, meet, node_with, room_for, suspend};
use super::{Event, Node};
use mx_proto::LinkId;
use mx_proto::port::SendError;
use std::time::Duration;

/// Seeded random number generator.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}

/// End of a tested link, with its counts of packets.
struct End {
    link: LinkId,
    sent: u64,
    got: u64,
    writable: bool,
}

impl End {
    fn new(link: LinkId) -> Self {
        Self {
            link,
            sent: 0,
            got: 0,
            writable: true,
        }
    }

    fn send(&mut self, node: &mut Node, random: &mut Random) {
        if !self.writable {
            return;
        }
        for _ in 0..=random.below(3) {
            let len = [8, 30, 100, 3000, 20_000][random.below(5) as usize];
            let mut bytes = vec![self.sent as u8; len];
            bytes[..8].copy_from_slice(&self.sent.to_le_bytes());
            match node.send(self.link, &bytes) {
                Ok(_) => self.sent += 1,
                Err(SendError::WouldBlock) => {
                    self.writable = false;
                    return;
                }
                Err(SendError::Down) => panic!("down"),
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Packet(_, bytes) => {
                assert_eq!(bytes[..8], self.got.to_le_bytes());
                assert!(bytes[8..].iter().all(|byte| *byte == self.got as u8));
                self.got += 1;
            }
            Event::Writable(_) => {
                assert!(!self.writable, "said twice");
                self.writable = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A hub, and nodes with a link to it each.
struct Star {
    hub: Node,
    /// Node, its end, the hub's end.
    others: Vec<(Node, End, End)>,
}

impl Star {
    fn new(pairs: usize, bytes: usize) -> Self {
        let mut hub = node_with(bytes);
        let mut others = Vec::new();
        for _ in 0..pairs {
            let mut node = node_with(bytes);
            let (link, at_hub) = meet(&mut node, &mut hub);
            // Frees memory for the next one.
            suspend(&mut [&mut node, &mut hub]);
            others.push((node, End::new(link), End::new(at_hub)));
        }
        Self { hub, others }
    }

    /// Distributes the events.
    fn deliver(&mut self) {
        for event in self.hub.take() {
            let link = match &event {
                Event::Packet(link, _) | Event::Writable(link) => *link,
                other => panic!("{other:?}"),
            };
            let ends = self.others.iter_mut().map(|(_, _, end)| end);
            let end = ends.into_iter().find(|end| end.link == link);
            end.unwrap().take(event);
        }
        for (node, end, _) in &mut self.others {
            for event in node.take() {
                end.take(event);
            }
        }
    }
}

/// Sends packets through links that are suspended and resumed all the time, with actions of both ends in seeded random
/// order. Returns the number of suspensions.
fn try_out(seed: u64, pairs: usize, bytes: usize, steps: usize) -> u64 {
    let mut random = Random(seed);
    let mut star = Star::new(pairs, bytes);
    for _ in 0..steps {
        let at = random.below(pairs as u64) as usize;
        let Star { hub, others } = &mut star;
        let (node, own, there) = &mut others[at];
        let (node, end) = match random.below(2) {
            0 => (node, own),
            _ => (hub, there),
        };
        match random.below(12) {
            0 => end.send(node, &mut random),
            1..=5 => node.clock.advance(IDLE / 2),
            6 => {
                if node.port.arm() {
                    node.port.disarm();
                }
            }
            7 => {
                node.poll();
            }
            _ => {
                node.poll_all();
            }
        }
        star.deliver();
        assert!(star.hub.port.stats().bytes <= bytes as u64, "seed {seed}");
    }
    for _ in 0..2_000 {
        star.hub.poll_until_idle();
        star.hub.clock.advance(Duration::from_millis(20));
        for (node, ..) in &mut star.others {
            node.poll_until_idle();
            node.clock.advance(Duration::from_millis(20));
        }
        star.deliver();
    }
    for (_, own, there) in &star.others {
        assert_eq!((own.sent, there.sent), (there.got, own.got), "seed {seed}");
    }
    star.hub.port.stats().slept
}

#[test]
fn packets_arrive_once_in_order_through_many_sleeps() {
    let mut slept = 0;
    for seed in 1..=24 {
        slept += try_out(seed, 1, room_for(1), 10_000);
    }
    assert!(slept >= 2_000, "{slept}");
}

#[test]
fn and_when_memory_is_short() {
    let mut slept = 0;
    for seed in 100..=106 {
        // Memory for the rings of about 12 of 20 links.
        slept += try_out(seed, 20, 4 << 20, 30_000);
    }
    assert!(slept >= 1_000, "{slept}");
}
