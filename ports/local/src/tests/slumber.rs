//! Two ports in one process, whose link falls asleep and wakes up.

use super::{Event, Node, linked, readable};
use crate::LocalOptions;
use crate::layout::Geometry;
use crate::link::{Entry, State};
use crate::link_states::Stage;
use mx_proto::LinkId;
use mx_proto::port::{Close, LinkDown, SendError, Sent};
use std::time::Duration;

pub(super) const IDLE: Duration = Duration::from_secs(30);
/// Bytes that hold `links` links with the rings everybody gets while there is plenty.
pub(super) fn room_for(links: usize) -> usize {
    2 * links * Geometry::STANDARD.total()
}

pub(super) fn node_with(bytes: usize) -> Node {
    Node::with_options(LocalOptions {
        bytes,
        ..LocalOptions::default()
    })
}

pub(super) fn stage(node: &Node, link: LinkId) -> Stage {
    node.port.links.get(link).unwrap().state.stage().unwrap()
}

/// Lets time pass on all of them until links that are idle sleep.
pub(super) fn rest(nodes: &mut [&mut Node]) {
    for _ in 0..8 {
        for node in &mut *nodes {
            node.clock.advance(IDLE / 4);
            node.settle();
        }
    }
    for node in nodes {
        node.settle();
    }
}

/// Two nodes whose link sleeps.
pub(super) fn asleep() -> (Node, LinkId, Node, LinkId) {
    let (mut a, ab, mut b, ba) = linked();
    a.port.bind(ab, 11);
    b.port.bind(ba, 22);
    rest(&mut [&mut a, &mut b]);
    assert_eq!(
        (stage(&a, ab), stage(&b, ba)),
        (Stage::Asleep, Stage::Asleep)
    );
    assert_eq!((a.take(), b.take()), (vec![], vec![]));
    (a, ab, b, ba)
}

/// Sends until it is taken, while both poll.
pub(super) fn send_through(from: &mut Node, link: LinkId, to: &mut Node, bytes: &[u8]) {
    while from.send(link, bytes) == Err(SendError::WouldBlock) {
        let told = |event: &Event| *event == Event::Writable(link);
        while !from.log.events.iter().any(told) {
            assert!(to.poll_all() | from.poll_all(), "nobody does anything");
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

/// Links `a` to `b`, whatever memory there is, and brings one packet through. (a's link, b's link)
pub(super) fn meet(a: &mut Node, b: &mut Node) -> (LinkId, LinkId) {
    a.take();
    b.take();
    let link = a.connect(b).unwrap();
    for _ in 0..3 {
        b.settle();
        a.settle();
    }
    assert_eq!(a.take(), [Event::Up(link)]);
    send_through(a, link, b, b"hello");
    b.settle();
    let back = b.first_link();
    b.take();
    (link, back)
}

// ---- falling asleep ----

#[test]
fn an_idle_link_gives_its_memory_back_on_both_sides_and_no_time_is_spent_on_it() {
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
        // That and the socket are all there is.
        assert!(size_of::<Entry>() <= 512);
    }
}

#[test]
fn a_link_sleeps_when_it_was_idle_for_so_long_and_not_before() {
    let (mut a, ab, mut b, _) = linked();
    let mut idle = Duration::ZERO;
    while stage(&a, ab) == Stage::Up {
        a.clock.advance(IDLE / 16);
        idle += IDLE / 16;
        a.settle();
    }
    assert!(idle >= IDLE && idle <= IDLE * 7 / 4, "{idle:?}");
    assert_eq!(stage(&a, ab), Stage::Asking);
    // The other one, whose time stands still, is woken by the question.
    assert!(readable(b.port.descriptors().data));
    b.settle();
    assert_eq!(b.port.stats().asleep, 1);
    a.settle();
    assert_eq!(stage(&a, ab), Stage::Asleep);
}

#[test]
fn a_link_in_use_does_not_sleep() {
    let (mut a, ab, mut b, _) = linked();
    for round in 0..100u8 {
        for node in [&mut a, &mut b] {
            node.clock.advance(IDLE / 2);
            node.settle();
        }
        assert_eq!(a.send(ab, &[round]), Ok(Sent::Whole), "round {round}");
        b.settle();
        assert_eq!(b.bodies(), [[round]]);
    }
    assert_eq!(a.port.stats().slept, 0);
}

#[test]
fn a_port_that_never_sleeps_has_peers_that_do_not_either() {
    let mut a = Node::with_options(LocalOptions {
        idle: None,
        ..LocalOptions::default()
    });
    let mut b = Node::new();
    let (ab, ba) = meet(&mut a, &mut b);
    let (back, _) = meet(&mut b, &mut a);
    assert_ne!(ba, back);
    rest(&mut [&mut a, &mut b]);
    assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Up, Stage::Up));
    assert_eq!((a.port.deadline(), b.port.deadline()), (None, None));
}

#[test]
fn a_question_is_taken_back_by_a_send_and_overtaken_by_a_packet() {
    let (mut a, ab, mut b, ba) = linked();
    let ask = |a: &mut Node| {
        while stage(a, ab) == Stage::Up {
            a.clock.advance(IDLE / 4);
            a.settle();
        }
        assert_eq!(stage(a, ab), Stage::Asking);
    };
    ask(&mut a);
    assert_eq!(a.send(ab, b"after all"), Ok(Sent::Whole));
    assert_eq!(stage(&a, ab), Stage::Up);
    b.settle();
    assert_eq!(b.bodies(), [b"after all"]);
    ask(&mut a);
    assert_eq!(b.send(ba, b"not yet"), Ok(Sent::Whole));
    // The question is refused, because the packet is on its way.
    b.settle();
    assert_eq!(stage(&b, ba), Stage::Up);
    a.settle();
    assert_eq!(a.bodies(), [b"not yet"]);
    assert_eq!(stage(&a, ab), Stage::Up);
    // Agreed to, but the asker has not noticed yet when it wants to send.
    ask(&mut a);
    b.settle();
    assert_eq!(stage(&b, ba), Stage::Asleep);
    assert_eq!(a.send(ab, b"again"), Err(SendError::WouldBlock));
    assert_eq!(stage(&a, ab), Stage::Waking);
    send_through(&mut a, ab, &mut b, b"again");
    b.settle();
    assert_eq!(b.bodies(), [b"again"]);
    // The other way round: it wakes before the asker has noticed.
    ask(&mut a);
    b.settle();
    assert_eq!(b.send(ba, b"you"), Err(SendError::WouldBlock));
    send_through(&mut b, ba, &mut a, b"you");
    a.settle();
    assert_eq!(a.bodies(), [b"you"]);
}

#[test]
fn a_refusal_without_a_packet_is_noticed_at_the_next_look() {
    let (mut a, ab, b, _) = linked();
    while stage(&a, ab) == Stage::Up {
        a.clock.advance(IDLE / 4);
        a.settle();
    }
    let State::Up(link) = &b.port.links.get(LinkId::new(0, 0)).unwrap().state else {
        panic!("not up");
    };
    link.refuse();
    a.settle();
    assert_eq!(stage(&a, ab), Stage::Asking);
    a.clock.advance(IDLE / 4);
    a.settle();
    assert_eq!(stage(&a, ab), Stage::Up);
}

#[test]
fn both_may_ask_at_once() {
    let (mut a, ab, mut b, ba) = linked();
    for step in 0..8 {
        // Neither takes anything in while both look for idle links.
        for node in [&mut a, &mut b] {
            node.clock.advance(IDLE / 4);
            node.port.tend(&node.clock);
        }
        let asked = [stage(&a, ab), stage(&b, ba)].contains(&Stage::Asking);
        if asked {
            assert!(step >= 4);
            break;
        }
    }
    a.settle();
    b.settle();
    a.settle();
    assert_eq!(
        (stage(&a, ab), stage(&b, ba)),
        (Stage::Asleep, Stage::Asleep)
    );
}

// ---- waking up ----

#[test]
fn a_send_wakes_the_link_from_either_side() {
    for first in 0..2 {
        let (mut a, ab, mut b, ba) = asleep();
        let (one, link, other, back) = match first {
            0 => (&mut a, ab, &mut b, ba),
            _ => (&mut b, ba, &mut a, ab),
        };
        assert!(other.port.arm());
        assert_eq!(one.send(link, b"x"), Err(SendError::WouldBlock));
        assert_eq!(one.send(link, b"x"), Err(SendError::WouldBlock));
        assert_eq!(stage(one, link), Stage::Waking);
        assert!(readable(other.port.descriptors().data), "it sleeps on");
        other.port.disarm();
        assert!(one.port.arm());
        other.settle();
        assert_eq!(other.take(), []);
        // The other one may send at once.
        assert_eq!(other.send(back, b"hello"), Ok(Sent::Whole));
        assert!(readable(one.port.descriptors().data));
        one.port.disarm();
        one.settle();
        let mut events = one.take();
        events.sort_by_key(|event| matches!(event, Event::Writable(_)));
        let hello = Event::Packet(link, b"hello".to_vec());
        assert_eq!(events, [hello, Event::Writable(link)]);
        assert_eq!(one.send(link, b"x"), Ok(Sent::Whole));
        other.settle();
        assert_eq!(other.take(), [Event::Packet(back, b"x".to_vec())]);
        // What the endpoint attached to the link is still there.
        assert!(a.log.cookies.iter().skip(1).all(|cookie| *cookie == 11));
        assert!(b.log.cookies.iter().skip(1).all(|cookie| *cookie == 22));
        assert_eq!((a.port.stats().woken, b.port.stats().woken), (1, 1));
        assert_eq!(a.port.stats().asleep, 0);
    }
}

#[test]
fn both_may_wake_it_at_once() {
    let (mut a, ab, mut b, ba) = asleep();
    assert_eq!(a.send(ab, b"a"), Err(SendError::WouldBlock));
    assert_eq!(b.send(ba, b"b"), Err(SendError::WouldBlock));
    for _ in 0..2 {
        a.settle();
        b.settle();
    }
    assert_eq!(
        (a.take(), b.take()),
        (vec![Event::Writable(ab)], vec![Event::Writable(ba)])
    );
    assert_eq!(a.send(ab, b"a"), Ok(Sent::Whole));
    assert_eq!(b.send(ba, b"b"), Ok(Sent::Whole));
    a.settle();
    b.settle();
    assert_eq!(
        (a.bodies(), b.bodies()),
        (vec![b"b".to_vec()], vec![b"a".to_vec()])
    );
    let bytes = Geometry::STANDARD.total() as u64;
    assert_eq!((a.port.stats().bytes, b.port.stats().bytes), (bytes, bytes));
}

// ---- the end, asleep ----

#[test]
fn the_end_of_a_sleeping_peer_is_noticed_whichever_way_it_goes() {
    for (how, reason) in [
        (Close::Flush, LinkDown::Closed),
        (Close::Now, LinkDown::Reset),
    ] {
        let (mut a, ab, mut b, ba) = asleep();
        assert!(b.port.arm());
        a.port.close(ab, how);
        assert_eq!((a.port.link_count(), a.port.idle), (0, 0));
        assert!(readable(b.port.descriptors().control));
        b.port.disarm();
        b.settle();
        assert_eq!(b.take(), [Event::Down(ba, reason)]);
        assert_eq!(b.log.cookies.last(), Some(&22));
        assert_eq!(b.send(ba, b"x"), Err(SendError::Down));
        assert_eq!(
            (b.port.link_count(), b.port.idle, b.port.stats().asleep),
            (0, 0, 0)
        );
    }
    let (a, _, mut b, ba) = asleep();
    drop(a);
    b.settle();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn the_end_while_waking_is_noticed_on_both_sides() {
    for how in [Close::Flush, Close::Now] {
        let reason = match how {
            Close::Flush => LinkDown::Closed,
            Close::Now => LinkDown::Reset,
        };
        // The one that is woken goes.
        let (mut a, ab, mut b, ba) = asleep();
        assert_eq!(a.send(ab, b"x"), Err(SendError::WouldBlock));
        b.port.close(ba, how);
        a.settle();
        assert_eq!(a.take(), [Event::Down(ab, reason)]);
        assert_eq!(a.port.stats().bytes, 0);
        // The one that wakes goes, before and after its memory is taken.
        for taken in [false, true] {
            let (mut a, ab, mut b, ba) = asleep();
            assert_eq!(a.send(ab, b"x"), Err(SendError::WouldBlock));
            if taken {
                b.settle();
                assert_eq!(b.send(ba, b"y"), Ok(Sent::Whole));
            }
            a.port.close(ab, how);
            b.settle();
            assert_eq!(
                b.take(),
                [Event::Down(ba, reason)],
                "{how:?}, taken: {taken}"
            );
            assert_eq!((b.port.stats().bytes, b.port.stats().asleep), (0, 0));
        }
    }
}

#[test]
fn the_end_while_asking_is_noticed_and_nothing_is_lost() {
    for how in [Close::Flush, Close::Now] {
        let reason = match how {
            Close::Flush => LinkDown::Closed,
            Close::Now => LinkDown::Reset,
        };
        let (mut a, ab, mut b, ba) = linked();
        while stage(&a, ab) == Stage::Up {
            a.clock.advance(IDLE / 4);
            a.settle();
        }
        // The asker goes.
        a.port.close(ab, how);
        b.settle();
        assert_eq!(b.take(), [Event::Down(ba, reason)]);
        // The one asked goes, with a packet on its way.
        let (mut a, ab, mut b, ba) = linked();
        while stage(&a, ab) == Stage::Up {
            a.clock.advance(IDLE / 4);
            a.settle();
        }
        assert_eq!(b.send(ba, b"last"), Ok(Sent::Whole));
        b.port.close(ba, how);
        a.settle();
        let last = Event::Packet(ab, b"last".to_vec());
        assert_eq!(a.take(), [last, Event::Down(ab, reason)]);
    }
}
