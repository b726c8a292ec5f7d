//! Suspending and resuming a link between two ports.

use super::{Event, Node, last_link, linked, readable};
use crate::LocalOptions;
use crate::layout::{BODY_MAX, Geometry};
use crate::link::{State, UNREAD_MAX};
use mx_proto::LinkId;
use mx_proto::port::{Close, LinkControl, LinkDown, SendError, Sent};
use std::time::Duration;

pub(super) const IDLE: Duration = Duration::from_secs(30);
/// Returns the bytes for `links` links with standard rings.
pub(super) fn room_for(links: usize) -> usize {
    2 * links * Geometry::STANDARD.total()
}

pub(super) fn node_with(bytes: usize) -> Node {
    Node::with_options(LocalOptions {
        bytes,
        ..LocalOptions::default()
    })
}

/// State of a link past the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Plain,
    Offered,
    Up,
    /// The link has rings, and this side has sent Suspend.
    Suspending,
}

pub(super) fn stage(node: &Node, link: LinkId) -> Stage {
    let entry = node.port.links.get(link).unwrap();
    match &entry.state {
        State::Plain => Stage::Plain,
        State::Offered(_) => Stage::Offered,
        State::Up(_) if entry.hears_control_only() => Stage::Up,
        State::Up(_) => Stage::Suspending,
        other => panic!("{other:?}"),
    }
}

/// Lets time pass on all nodes until idle links are suspended.
pub(super) fn suspend(nodes: &mut [&mut Node]) {
    for _ in 0..8 {
        for node in &mut *nodes {
            node.clock.advance(IDLE / 4);
            node.poll_until_idle();
        }
    }
    for node in nodes {
        node.poll_until_idle();
    }
}

/// Lets time pass on one node until it has sent Suspend on its link.
fn suspend_alone(node: &mut Node, link: LinkId) {
    while stage(node, link) == Stage::Up {
        node.clock.advance(IDLE / 4);
        node.poll_until_idle();
    }
    assert_eq!(stage(node, link), Stage::Suspending);
}

/// Creates two nodes with a suspended link.
pub(super) fn asleep() -> (Node, LinkId, Node, LinkId) {
    let (mut a, ab, mut b, ba) = linked();
    a.port.accept(ab);
    b.port.accept(ba);
    suspend(&mut [&mut a, &mut b]);
    assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Plain, Stage::Plain));
    assert_eq!((a.take(), b.take()), (vec![], vec![]));
    (a, ab, b, ba)
}

/// Sends until accepted, while both poll.
pub(super) fn send_through(from: &mut Node, link: LinkId, to: &mut Node, bytes: &[u8]) {
    while from.send(link, bytes) == Err(SendError::WouldBlock) {
        let told = |event: &Event| *event == Event::Writable(link);
        while !from.log.events.iter().any(told) {
            assert!(to.poll_all() | from.poll_all(), "neither does anything");
        }
        from.log.events.retain(|event| !told(event));
    }
}

impl Node {
    /// Polls once, descriptors included.
    pub(super) fn poll_all(&mut self) -> bool {
        self.port.note_control();
        self.port.slept = true;
        self.poll()
    }
}

/// Links `a` to `b` with or without rings, and passes one packet. Returns (a's link, b's link).
pub(super) fn meet(a: &mut Node, b: &mut Node) -> (LinkId, LinkId) {
    a.take();
    b.take();
    let link = a.connect(b).unwrap();
    for _ in 0..3 {
        b.poll_until_idle();
        a.poll_until_idle();
    }
    assert_eq!(a.take(), [Event::Up(link)]);
    send_through(a, link, b, b"hello");
    b.poll_until_idle();
    let back = b.first_link();
    b.take();
    (link, back)
}

// ---- suspending ----

#[test]
fn idle_link_frees_memory_on_both_sides_at_no_cost() {
    let (mut a, ab, mut b, ba) = asleep();
    for (node, link) in [(&mut a, ab), (&mut b, ba)] {
        let stats = node.port.stats();
        assert_eq!((stats.bytes, stats.asleep, stats.slept), (0, 1, 1));
        assert_eq!(node.port.deadline(), None);
        assert!(node.port.active.is_empty() && node.port.awake.is_empty());
        assert!(node.port.arm());
        let fds = node.port.descriptors();
        assert!(!readable(fds.data) && !readable(fds.control));
        node.port.disarm();
        assert_eq!(node.port.links.get(link).unwrap().state.bytes(), 0);
    }
}

#[test]
fn a_link_sleeps_when_it_was_idle_for_so_long_and_not_before() {
    let (mut a, ab, mut b, _) = linked();
    let mut idle = Duration::ZERO;
    while stage(&a, ab) == Stage::Up {
        a.clock.advance(IDLE / 16);
        idle += IDLE / 16;
        a.poll_until_idle();
    }
    assert!(idle >= IDLE && idle <= IDLE * 7 / 4, "{idle:?}");
    assert_eq!(stage(&a, ab), Stage::Suspending);
    // Suspend wakes the peer, whose time stands still.
    assert!(readable(b.port.descriptors().data));
    b.poll_until_idle();
    assert_eq!(b.port.stats().asleep, 1);
    a.poll_until_idle();
    assert_eq!(stage(&a, ab), Stage::Plain);
}

#[test]
fn port_that_never_sleeps_frees_memory_with_its_peer() {
    let sleepless = || {
        Node::with_options(LocalOptions {
            idle: None,
            ..LocalOptions::default()
        })
    };
    let (mut a, mut b) = (sleepless(), sleepless());
    let (ab, ba) = meet(&mut a, &mut b);
    suspend(&mut [&mut a, &mut b]);
    assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Up, Stage::Up));
    assert_eq!((a.port.deadline(), b.port.deadline()), (None, None));
    let mut c = Node::new();
    let (ac, ca) = meet(&mut a, &mut c);
    suspend(&mut [&mut a, &mut c]);
    assert_eq!((stage(&a, ac), stage(&c, ca)), (Stage::Plain, Stage::Plain));
}

#[test]
fn packets_before_and_after_a_suspension_arrive_in_order() {
    for len in [8, 5_000, BODY_MAX] {
        let (mut a, ab, mut b, ba) = linked();
        let body = |at: u8| vec![at; len];
        // Packets in the ring when the peer gets Suspend; more come over the socket.
        suspend_alone(&mut a, ab);
        for at in 0..3 {
            assert_eq!(b.send(ba, &body(at)), Ok(Sent::Whole));
        }
        assert_eq!(a.send(ab, &body(10)), Err(SendError::WouldBlock));
        a.poll();
        assert_eq!(a.bodies(), [0, 1, 2].map(body));
        assert_eq!(stage(&a, ab), Stage::Suspending);
        for at in 3..5 {
            assert_eq!(b.send(ba, &body(at)), Ok(Sent::Whole));
        }
        b.poll_until_idle();
        assert_eq!(b.take(), []);
        assert_eq!(stage(&b, ba), Stage::Plain);
        assert_eq!(b.send(ba, &body(5)), Ok(Sent::Whole));
        a.poll_until_idle();
        let mut events = a.take();
        events.retain(|event| *event != Event::Writable(ab));
        assert_eq!(events, [3, 4, 5].map(|at| Event::Packet(ab, body(at))));
        // A packet over the socket makes the initiator offer memory.
        assert_eq!(stage(&a, ab), Stage::Offered);
        b.poll_until_idle();
        a.poll_until_idle();
        assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Up, Stage::Up));
        send_through(&mut a, ab, &mut b, &body(20));
        b.poll_until_idle();
        assert_eq!(b.bodies(), [body(20)]);
    }
}

#[test]
fn a_control_message_behind_many_wake_ups_is_heard() {
    let (mut a, ab, mut b, ba) = linked();
    b.poll_until_idle();
    for _ in 0..UNREAD_MAX {
        assert!(b.port.arm());
        a.send(ab, b"x").unwrap();
        b.port.disarm();
        b.port.note_told();
        while b.poll_active(8) {}
    }
    assert_eq!(b.bodies().len(), UNREAD_MAX.into());
    suspend_alone(&mut a, ab);
    assert_eq!(stage(&b, ba), Stage::Up);
    assert!(!b.port.arm());
    b.poll();
    assert_eq!(stage(&b, ba), Stage::Plain);
    assert!(b.port.arm());
    a.poll_until_idle();
    assert_eq!(stage(&a, ab), Stage::Plain);
}

#[test]
fn packets_read_with_a_suspend_bind_their_link() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let ab = a.connect(&b).unwrap();
    for _ in 0..3 {
        b.poll_until_idle();
        a.poll_until_idle();
    }
    assert_eq!(
        (a.take(), b.take(), stage(&a, ab)),
        (vec![Event::Up(ab)], vec![], Stage::Up)
    );
    a.send(ab, b"1").unwrap();
    a.send(ab, b"2").unwrap();
    assert!(a.port.links.get_mut(ab).unwrap().suspend());
    a.port.close(ab, Close::Flush);
    b.poll_until_idle();
    let events = b.take();
    let link = last_link(&events);
    assert_eq!(
        events,
        [
            Event::Packet(link, b"1".to_vec()),
            Event::Packet(link, b"2".to_vec()),
            Event::Down(link, LinkDown::Closed)
        ]
    );
}

// ---- resuming ----

#[test]
fn a_send_wakes_the_link_from_either_side() {
    for first in 0..2 {
        let (mut a, ab, mut b, ba) = asleep();
        let (one, link, other, back) = match first {
            0 => (&mut a, ab, &mut b, ba),
            _ => (&mut b, ba, &mut a, ab),
        };
        assert!(other.port.arm());
        assert_eq!(one.send(link, b"x"), Ok(Sent::Whole));
        assert!(readable(other.port.descriptors().data), "it sleeps on");
        other.port.disarm();
        other.poll_until_idle();
        assert_eq!(other.take(), [Event::Packet(back, b"x".to_vec())]);
        for _ in 0..2 {
            one.poll_until_idle();
            other.poll_until_idle();
        }
        let stages = (stage(one, link), stage(other, back));
        assert_eq!(stages, (Stage::Up, Stage::Up));
        assert_eq!(other.send(back, b"hello"), Ok(Sent::Whole));
        one.poll_until_idle();
        assert_eq!(one.take(), [Event::Packet(link, b"hello".to_vec())]);
        assert_eq!((a.port.stats().asleep, b.port.stats().asleep), (0, 0));
    }
}

#[test]
fn who_has_handed_memory_over_sends_again_when_it_is_answered() {
    let (mut a, ab, mut b, ba) = asleep();
    assert_eq!(a.send(ab, b"first"), Ok(Sent::Whole));
    assert_eq!(stage(&a, ab), Stage::Offered);
    assert_eq!(a.send(ab, b"second"), Err(SendError::WouldBlock));
    // A packet that the peer sent before it saw the memory comes first.
    assert_eq!(b.send(ba, b"back"), Ok(Sent::Whole));
    b.poll_until_idle();
    assert_eq!(b.bodies(), [b"first"]);
    assert_eq!(b.send(ba, b"in the ring"), Ok(Sent::Whole));
    assert!(a.port.arm());
    assert!(readable(a.port.descriptors().data));
    a.port.disarm();
    a.poll_until_idle();
    let got: Vec<Event> = a.take();
    assert_eq!(got.len(), 3);
    assert_eq!(got[0], Event::Packet(ab, b"back".to_vec()));
    assert!(got.contains(&Event::Packet(ab, b"in the ring".to_vec())));
    assert!(got.contains(&Event::Writable(ab)));
    assert_eq!(a.send(ab, b"second"), Ok(Sent::Whole));
    b.poll_until_idle();
    assert_eq!(b.bodies(), [b"second"]);
}

#[test]
fn full_socket_blocks_and_later_takes_the_memory_answer() {
    let (mut a, ab, mut b, ba) = asleep();
    let mut sent = 0u32;
    // The peer does not poll.
    while b.send(ba, &sent.to_le_bytes()) == Ok(Sent::Whole) {
        sent += 1;
    }
    assert!(sent > 50, "{sent}");
    assert!(b.port.arm());
    assert!(!readable(b.port.descriptors().data));
    b.port.disarm();
    // Memory arrives, and the socket has no room for the answer.
    assert_eq!(a.send(ab, b"memory"), Ok(Sent::Whole));
    assert_eq!(stage(&a, ab), Stage::Offered);
    b.poll_until_idle();
    assert_eq!(stage(&b, ba), Stage::Up);
    assert_eq!(b.send(ba, b"more"), Ok(Sent::Whole));
    for _ in 0..5 {
        a.poll_until_idle();
        b.poll_until_idle();
    }
    assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Up, Stage::Up));
    let got = a.bodies();
    assert_eq!(got.len(), sent as usize + 1);
    for (at, bytes) in got[..sent as usize].iter().enumerate() {
        assert_eq!(*bytes, (at as u32).to_le_bytes());
    }
    assert_eq!(got.last().unwrap(), b"more");
    assert!(b.take().contains(&Event::Writable(ba)));
}

// ---- ends of suspended links ----

#[test]
fn the_end_of_a_sleeping_peer_is_noticed_whichever_way_it_goes() {
    for (how, reason) in [
        (Close::Flush, LinkDown::Closed),
        (Close::Now, LinkDown::Reset),
    ] {
        let (mut a, ab, mut b, ba) = asleep();
        assert!(b.port.arm());
        a.port.close(ab, how);
        assert_eq!((a.port.link_count(), a.port.active.len()), (0, 0));
        assert!(readable(b.port.descriptors().control));
        b.port.disarm();
        b.poll_until_idle();
        assert_eq!(b.take(), [Event::Down(ba, reason)]);
        assert_eq!(b.send(ba, b"x"), Err(SendError::Down));
        assert_eq!(
            (
                b.port.link_count(),
                b.port.queue.len(),
                b.port.stats().asleep
            ),
            (0, 0, 0)
        );
    }
    let (a, _, mut b, ba) = asleep();
    drop(a);
    b.poll_until_idle();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn what_a_sleeping_peer_sent_before_it_went_is_delivered() {
    for (how, reason) in [
        (Close::Flush, LinkDown::Closed),
        (Close::Now, LinkDown::Reset),
    ] {
        // From either side; the initiator also sends memory after the first packet.
        for first in 0..2 {
            let (mut a, ab, mut b, ba) = asleep();
            let (one, link, other, back) = match first {
                0 => (&mut a, ab, &mut b, ba),
                _ => (&mut b, ba, &mut a, ab),
            };
            let mut sent = 0u8;
            while sent < 40 && one.send(link, &[sent]) == Ok(Sent::Whole) {
                sent += 1;
            }
            one.port.close(link, how);
            // A packet of ours that the peer never read does not discard them.
            let _ = other.send(back, b"too late");
            other.poll_until_idle();
            let mut expected: Vec<Event> =
                (0..sent).map(|at| Event::Packet(back, vec![at])).collect();
            expected.push(Event::Down(back, reason));
            let mut events = other.take();
            events.retain(|event| !matches!(event, Event::Writable(_)));
            assert_eq!(events, expected);
            assert_eq!((other.port.stats().bytes, other.port.link_count()), (0, 0));
        }
    }
}

#[test]
fn a_sleeper_that_waits_for_room_in_a_socket_is_woken() {
    let (mut a, ab, mut b, ba) = asleep();
    // Keeps the initiator from offering memory.
    a.port.links.get_mut(ab).unwrap().pause = u8::MAX;
    let mut sent = 0;
    while b.send(ba, &[1; 9_000]) == Ok(Sent::Whole) {
        sent += 1;
    }
    b.poll_until_idle();
    b.take();
    while b.send(ba, &[1; 9_000]) == Ok(Sent::Whole) {
        sent += 1;
    }
    assert!(b.port.arm());
    assert!(!readable(b.port.descriptors().data));
    a.poll_until_idle();
    assert_eq!(a.bodies().len(), sent);
    assert!(readable(b.port.descriptors().data));
    b.port.disarm();
    b.poll_until_idle();
    assert_eq!(b.take(), [Event::Writable(ba)]);
    assert_eq!(stage(&b, ba), Stage::Plain);
}
