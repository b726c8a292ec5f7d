//! Packets taken by the front of a round alone ([`LocalPort::take_packets`](crate::LocalPort::take_packets)): the front
//! has the effects of [`LocalPort::next_event`](crate::LocalPort::next_event).

use super::{Event, Node, header, link_up, linked, readable};
use crate::layout::{BODY_MAX, Geometry};
use crate::{ACTIVE_KEPT, DATA_MAX, IDLE_AFTER, LARGE, STREAM};
use mx_proto::port::{Body, LinkControl, LinkDown, SendError, Sent};
use mx_proto::{Clock, LinkId};
use mx_sim::{Sink, tell_all};

impl Node {
    /// Polls all links; the front takes every packet that it offers, until the first event of another kind.
    fn poll_through_front(&mut self) -> bool {
        self.turn += 1;
        self.port
            .begin_round(self.turn, self.clock.now(), usize::MAX);
        let log = &mut self.log;
        let ended = self.port.take_packets(|link, header, body| {
            log.on_packet(link, header, body);
            true
        });
        ended.unwrap_or_else(|| tell_all(&mut self.port, &mut self.log))
    }
}

/// Puts a packet into a link's ring whose header says `said` bytes.
fn push(node: &mut Node, link: LinkId, said: usize, body: &[u8]) {
    let up = node.port.links.get_mut(link).unwrap().up().unwrap();
    let pushed = up
        .producer
        .push::<Vec<u8>>(&header(said), &Body::Bytes(body));
    assert!(pushed.is_ok());
}

#[test]
fn a_packet_of_another_length_than_its_header_says_ends_its_link() {
    for said in [0, 7, 9, 1000] {
        let (mut a, ab, mut b, ba) = linked();
        push(&mut a, ab, said, b"8 bytes.");
        b.poll_through_front();
        assert_eq!(b.take(), [Event::Down(ba, LinkDown::Protocol)], "{said}");
    }
}

#[test]
fn a_piece_with_the_header_of_a_packet_is_no_packet() {
    let (mut a, ab, mut b, _) = linked();
    let all = vec![3; BODY_MAX + 1];
    let (first, more) = all.split_at(DATA_MAX);
    push(&mut a, ab, all.len(), first);
    assert!(b.poll_through_front());
    push(&mut a, ab, more.len(), more);
    assert!(b.poll_through_front());
    assert_eq!(b.bodies(), [all]);
}

/// Only the receiver can offer the larger rings: the initiator of the link.
#[test]
fn chunks_of_large_messages_get_a_link_larger_rings() {
    let (mut a, ab, mut b, ba) = linked();
    assert_eq!(a.port.stats().bytes, Geometry::STANDARD.total() as u64);
    for _ in 0..STREAM {
        assert_eq!(b.send(ba, &[1; DATA_MAX]), Ok(Sent::Whole));
        assert!(a.poll_through_front());
    }
    for _ in 0..4 {
        a.poll_until_idle();
        b.poll_until_idle();
    }
    assert_eq!(a.port.stats().bytes, Geometry::STREAMING.total() as u64);
    let chunk = Event::Packet(ab, vec![1; DATA_MAX]);
    assert_eq!(a.take(), vec![chunk; usize::from(STREAM)]);
}

#[test]
fn a_link_that_carries_packets_stays_active() {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..=ACTIVE_KEPT).map(|_| Node::new()).collect();
    let links: Vec<LinkId> = clients
        .iter_mut()
        .map(|client| link_up(client, &mut server))
        .collect();
    server.take();
    for _ in 0..3 {
        for (client, link) in clients.iter_mut().zip(&links) {
            client.send(*link, b"in use").unwrap();
        }
        assert!(server.poll_through_front());
        assert_eq!(server.bodies().len(), clients.len());
        for _ in 1..IDLE_AFTER {
            server.poll_through_front();
        }
        assert_eq!(server.idle_links(), 0);
    }
    server.poll_through_front();
    assert_eq!(server.idle_links(), 1);
}

/// More than half of the packets are short ones at the end, which free too little for a wake-up before the ring is empty.
#[test]
fn a_sender_that_sleeps_for_room_is_woken_at_the_end() {
    let (mut a, ab, mut b, _) = linked();
    a.poll_until_idle();
    let long = [2; LARGE - 1];
    let mut sent = 0;
    while a.send(ab, &long) == Ok(Sent::Whole) {
        sent += 1;
    }
    for _ in 0..sent + 4 {
        assert_eq!(a.send(ab, b"short"), Ok(Sent::Whole));
    }
    assert_eq!(a.send(ab, &long), Err(SendError::WouldBlock));
    assert!(a.port.arm());
    assert!(!readable(a.port.descriptors().data));
    assert!(b.poll_through_front());
    assert!(readable(a.port.descriptors().data));
}
