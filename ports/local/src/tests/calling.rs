//! Memory for those that wait, when those that have it do not give it back by themselves.

use super::slumber::{meet, node_with, rest, send_through, stage};
use super::strangers::Rogue;
use super::{Event, Node};
use crate::layout::REST_AT;
use crate::link_states::Stage;
use mx_proto::LinkId;
use mx_proto::origin::Source;
use mx_proto::port::{Close, SendError, Sent};
use std::time::Duration;

const LIMIT: usize = 4 << 20;
const STEP: Duration = Duration::from_millis(2);

/// A server without memory left, somebody whose link to it sleeps, and those who have the memory.
fn besieged(known: bool) -> (Node, Node, LinkId, Vec<Rogue>) {
    let (mut server, mut waiter) = (node_with(LIMIT), Node::new());
    let (link, _) = meet(&mut waiter, &mut server);
    rest(&mut [&mut waiter, &mut server]);
    let mut rogues = Vec::new();
    // Where there is no room for what they bring, they are given memory that they do not take.
    while server.port.choose(Source::TRUSTED).is_some() {
        let rogue = Rogue::connect(&mut server);
        if known {
            rogue.write_packet(0);
            server.settle();
        }
        rogues.push(rogue);
    }
    if known {
        for id in server.port.awake.clone() {
            server.port.bind(id, 1);
        }
    }
    server.take();
    (server, waiter, link, rogues)
}

/// How long it takes until `waiter` may send, at most 20 seconds, while `each` happens every step.
fn time_to_send(
    server: &mut Node,
    waiter: &mut Node,
    link: LinkId,
    mut each: impl FnMut(&mut Node),
) -> Duration {
    assert_eq!(waiter.send(link, b"now"), Err(SendError::WouldBlock));
    let mut waited = Duration::ZERO;
    while !waiter.take().contains(&Event::Writable(link)) {
        assert!(waited < Duration::from_secs(20), "it starves");
        for node in [&mut *server, &mut *waiter] {
            node.clock.advance(STEP);
            node.settle();
        }
        each(server);
        waited += STEP;
    }
    assert_eq!(waiter.send(link, b"now"), Ok(Sent::Whole));
    waited
}

#[test]
pub(super) fn who_ignores_the_question_keeps_memory_from_nobody_for_long() {
    for known in [false, true] {
        let (mut server, mut waiter, link, rogues) = besieged(known);
        let waited = time_to_send(&mut server, &mut waiter, link, |_| {});
        assert!(waited < Duration::from_secs(6), "{waited:?}");
        // No more are cut off than it takes.
        let left = server.port.link_count();
        // Who has not introduced itself is gone by then anyway.
        let least = if known { rogues.len() } else { 1 };
        assert!(left >= least, "{left} of {} left", rogues.len());
        server.settle();
        let packets = server.take();
        let packet = |event: &&Event| matches!(event, Event::Packet(..));
        assert_eq!(packets.iter().filter(packet).count(), 1);
    }
}

#[test]
fn who_always_refuses_keeps_memory_from_nobody_for_long() {
    let (mut server, mut waiter, link, rogues) = besieged(true);
    let waited = time_to_send(&mut server, &mut waiter, link, |_| {
        for rogue in &rogues {
            rogue.write(REST_AT, &0u64.to_le_bytes());
        }
    });
    assert!(waited < Duration::from_secs(6), "{waited:?}");
    assert!(server.port.link_count() >= rogues.len());
}

#[test]
fn the_second_that_waits_for_silent_ones_need_not_wait_as_long() {
    let (mut server, mut waiter, link, _rogues) = besieged(true);
    time_to_send(&mut server, &mut waiter, link, |_| {});
    let mut other = Node::new();
    // The first one's memory goes to a second one.
    let (second, _) = meet(&mut other, &mut server);
    for _ in 0..200 {
        for node in [&mut server, &mut waiter, &mut other] {
            node.clock.advance(STEP);
            node.settle();
        }
        if stage(&waiter, link) == Stage::Asleep {
            break;
        }
    }
    while stage(&other, second) != Stage::Asleep {
        rest(&mut [&mut other, &mut server]);
    }
    server.take();
    let waited = time_to_send(&mut server, &mut other, second, |_| {});
    assert!(waited < Duration::from_secs(6), "{waited:?}");
}

/// A peer that sends whenever it can.
struct Busy {
    node: Node,
    link: LinkId,
    sent: u32,
    blocked: bool,
}

impl Busy {
    fn step(&mut self, most: usize) {
        self.node.clock.advance(STEP);
        self.node.settle();
        for event in self.node.take() {
            match event {
                Event::Writable(_) => self.blocked = false,
                Event::Packet(..) => {}
                other => panic!("{other:?}"),
            }
        }
        for _ in 0..most {
            if self.blocked {
                return;
            }
            match self.node.send(self.link, &self.sent.to_le_bytes()) {
                Ok(_) => self.sent += 1,
                Err(SendError::WouldBlock) => self.blocked = true,
                Err(SendError::Down) => panic!("{:?} is lost", self.link),
            }
        }
    }
}

#[test]
fn busy_links_make_room_for_who_waits_and_lose_nothing() {
    for (most, answers) in [(1, false), (1, true), (10_000, false), (10_000, true)] {
        let (mut server, mut waiter) = (node_with(LIMIT), Node::new());
        let (link, back) = meet(&mut waiter, &mut server);
        rest(&mut [&mut waiter, &mut server]);
        let mut busy = Vec::new();
        let mut seen = std::collections::HashMap::new();
        while server.port.choose(Source::TRUSTED).is_some() {
            let mut node = Node::new();
            let (link, back) = meet(&mut node, &mut server);
            seen.insert(back, 0u32);
            busy.push(Busy {
                node,
                link,
                sent: 0,
                blocked: false,
            });
        }
        let mut from_waiter = 0;
        let mut look = |server: &mut Node| {
            for event in server.take() {
                match event {
                    Event::Packet(from, bytes) if from == back => {
                        assert_eq!(bytes, b"now");
                        from_waiter += 1;
                    }
                    Event::Packet(from, bytes) => {
                        let next = seen.get_mut(&from).unwrap();
                        assert_eq!(bytes, next.to_le_bytes());
                        *next += 1;
                        if answers {
                            let _ = server.send(from, b"answer");
                        }
                    }
                    Event::Writable(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        };
        let waited = time_to_send(&mut server, &mut waiter, link, |server| {
            look(server);
            for peer in &mut busy {
                peer.step(most);
            }
        });
        assert!(waited < Duration::from_secs(1), "{most}: {waited:?}");
        for _ in 0..2_000 {
            server.clock.advance(STEP);
            server.settle();
            look(&mut server);
            for peer in &mut busy {
                peer.step(0);
            }
        }
        let sent: u32 = busy.iter().map(|peer| peer.sent).sum();
        assert_eq!(seen.values().sum::<u32>(), sent, "{most}");
        assert_eq!(from_waiter, 1);
        assert!(busy.iter().all(|peer| !peer.blocked));
    }
}

#[test]
fn who_is_stopped_is_not_cut_off_while_others_give_memory_back() {
    let (mut server, mut waiter) = (node_with(LIMIT), Node::new());
    let (link, _) = meet(&mut waiter, &mut server);
    rest(&mut [&mut waiter, &mut server]);
    let mut others = Vec::new();
    while server.port.choose(Source::TRUSTED).is_some() {
        let mut node = Node::new();
        let (link, _) = meet(&mut node, &mut server);
        others.push((node, link));
    }
    // All but the last are.
    let (mut polls, there) = others.pop().unwrap();
    let waited = time_to_send(&mut server, &mut waiter, link, |_| {
        let _ = polls.send(there, b"busy");
        polls.clock.advance(STEP);
        polls.settle();
    });
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    // Nor later on, when nobody waits any more.
    polls.port.close(there, Close::Flush);
    for _ in 0..20 {
        server.clock.advance(Duration::from_secs(1));
        server.settle();
    }
    server.take();
    for (node, link) in &mut others {
        send_through(node, *link, &mut server, b"on again");
        server.settle();
        assert_eq!(server.bodies(), [b"on again"]);
    }
}
