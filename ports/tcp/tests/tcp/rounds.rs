//! Calls of the port between two events of a round.

use crate::tcp_common::*;
use mx_proto::port::{Close, Destination, LinkControl, LinkDown, Place, SendError};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{Clock, LinkId};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

fn begin(node: &mut Node) {
    let now = node.clock.now();
    Rounds::<Pieces>::begin(&mut node.port, now, 64);
}

/// Returns the next event of the round, unless the round has ended.
fn next(node: &mut Node) -> Option<PortEvent> {
    match Rounds::<Pieces>::next(&mut node.port) {
        Next::Event(event) => Some(event),
        Next::End { .. } => None,
    }
}

/// Returns the first event of a round in which there is one; the round goes on.
fn first(node: &mut Node) -> PortEvent {
    let start = std::time::Instant::now();
    loop {
        begin(node);
        if let Some(event) = next(node) {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing comes");
    }
}

fn rest(node: &mut Node) -> Vec<PortEvent> {
    std::iter::from_fn(|| next(node)).collect()
}

fn body(node: &Node) -> Vec<u8> {
    Rounds::<Pieces>::body(&node.port).to_vec()
}

/// Returns the tag of the packet of an event.
fn tag(event: &PortEvent) -> Option<u64> {
    match event {
        PortEvent::Packet { header, .. } => Some(tag_of(header)),
        _ => None,
    }
}

fn read(node: &mut Node, memory: &mut Pieces) {
    let memory = Destination::Memory(memory);
    node.port.read(Place { memory, offset: 0 });
}

/// Makes a node with an accepted peer that has then sent these bytes.
fn told(bytes: &[u8]) -> (Node, LinkId, TcpStream) {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut raw = b.raw(&[frame(1, b"hello")]);
    until_one(&mut b, "it is let in", |b| b.sink.packet_count() == 1);
    let link = b.sink.first_link();
    b.accept(link);
    raw.write_all(bytes).unwrap();
    (b, link, raw)
}

#[test]
fn stranger_is_accepted_and_answered_in_its_first_packet() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut raw = b.raw(&[frame(1, b"hello"), frame(2, &pattern(2000, 2))]);
    let PortEvent::Packet { link, .. } = first(&mut b) else {
        panic!("a packet comes first");
    };
    assert_eq!(body(&b), b"hello");
    b.accept(link);
    b.send(link, 3, b"welcome").unwrap();
    assert!(!b.port.arm(), "the round is not over");
    // The second packet is larger than a stranger's may be.
    let second = next(&mut b).expect("both have come at once");
    assert_eq!((tag(&second), body(&b)), (Some(2), pattern(2000, 2)));
    assert_eq!(rest(&mut b), []);
    let mut answer = vec![0; preamble().len() + frame(3, b"welcome").len()];
    raw.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"welcome"));
}

#[test]
fn link_closed_during_its_packet_delivers_no_more() {
    for how in [Close::Now, Close::Flush] {
        let packets = [
            frame(2, b"one"),
            frame(3, b"two"),
            frame(4, &[0; 200])[..100].to_vec(),
        ];
        let (mut b, link, mut raw) = told(&packets.concat());
        assert_eq!(tag(&first(&mut b)), Some(2));
        assert_eq!(body(&b), b"one");
        if how == Close::Flush {
            b.send(link, 5, b"the last word").unwrap();
        }
        b.close(link, how);
        assert_eq!(b.send(link, 6, b"x"), Err(SendError::Down));
        assert_eq!(rest(&mut b), [], "{how:?}");
        b.look();
        b.clock.advance(Duration::from_secs(2));
        b.look();
        assert_eq!((b.port.link_count(), b.port.stats().kept), (0, 0));
        assert_eq!(b.sink.events.len(), 1, "{how:?}: {:?}", b.sink.events);
        let mut heard = Vec::new();
        if how == Close::Flush {
            raw.read_to_end(&mut heard).unwrap();
            assert!(heard.ends_with(b"the last word"));
        }
    }
}

#[test]
fn part_of_a_link_closed_before_the_read_writes_nothing() {
    const LEN: usize = 1 << 20;
    let begun = frame(2, &vec![9; LEN]);
    // In the first part bytes are staged; before the second one they are in the socket.
    for parts in [1, 2] {
        let (mut b, link, _raw) = told(&begun[..100_000]);
        let mut memory = Pieces::zeros(&[LEN]);
        let mut event = first(&mut b);
        for part in 1..=parts {
            let begin = part == 1;
            assert!(
                matches!(event, PortEvent::Part { begin: begins, .. } if begins == begin),
                "{event:?}"
            );
            if part < parts {
                read(&mut b, &mut memory);
                event = next(&mut b).expect("the rest is at hand");
            }
        }
        let before = memory.bytes();
        b.close(link, Close::Now);
        read(&mut b, &mut memory);
        assert!(memory.bytes() == before, "part {parts}");
        assert_eq!(rest(&mut b), []);
        assert_eq!((b.port.link_count(), b.port.stats().kept), (0, 0));
    }
}

#[test]
fn link_closed_before_its_event_is_not_reported() {
    let b = Node::open(Ipv4Addr::LOCALHOST);
    let mut a = Node::open(Ipv4Addr::LOCALHOST);
    let links = [(); 2].map(|()| a.connect(4, b.port.local_port()));
    // The kernel has made both.
    a.port.note_control();
    let up = first(&mut a);
    let other = match up {
        PortEvent::Up(link) if link == links[0] => links[1],
        PortEvent::Up(_) => links[0],
        event => panic!("{event:?}"),
    };
    a.close(other, Close::Now);
    assert_eq!(rest(&mut a), []);
    a.look();
    assert_eq!((a.port.link_count(), a.sink.events.len()), (1, 0));
}

#[test]
fn link_over_its_sources_share_is_closed_on_accept() {
    let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
    (small.max_links, small.source_share) = (4, 25);
    let mut b = Node::with(small);
    let _peers = [1, 2].map(|tag| b.raw(&[frame(tag, b"hello"), frame(tag, b"more")]));
    let (mut heard, mut accepted) = (Vec::new(), Vec::new());
    while accepted.len() < 2 {
        let mut event = Some(first(&mut b));
        while let Some(now) = event {
            heard.push(now);
            if let PortEvent::Packet { link, .. } = now
                && !accepted.contains(&link)
            {
                accepted.push(link);
                b.accept(link);
            }
            event = next(&mut b);
        }
    }
    let downs = heard.iter().filter(|event| tag(event).is_none());
    let down = PortEvent::Down(accepted[1], LinkDown::Reset);
    assert_eq!(downs.collect::<Vec<_>>(), [&down]);
    assert_eq!(heard.last(), Some(&down), "nothing of the link follows");
    assert_eq!(b.send(accepted[1], 3, b"x"), Err(SendError::Down));
    b.send(accepted[0], 3, b"welcome").unwrap();
}
