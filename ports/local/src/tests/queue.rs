//! Links that are closed while they need attention.

use super::idle::{Stage, asleep, stage};
use super::{Event, Node, linked};
use crate::queue::Reason;
use mx_proto::port::{Close, LinkControl, LinkDown, Sent};
use mx_proto::round::{Next, PortEvent};
use mx_proto::{Clock, LinkId, Source};

/// Gives a link without rings a reason for attention, in the way its peer would if possible.
fn give_reason(reason: Reason, node: &mut Node, link: LinkId, peer: &mut Node, back: LinkId) {
    match reason {
        Reason::Ended => node.port.fail(link),
        Reason::Up => node.port.note(link, Reason::Up),
        Reason::Socket => {
            assert_eq!(peer.send(back, b"packet"), Ok(Sent::Whole));
            assert!(node.port.take_doorbells());
        }
        Reason::Room => {
            node.port.links.get_mut(link).unwrap().blocked = true;
            node.port.note(link, Reason::Room);
        }
    }
}

fn event_of(reason: Reason, link: LinkId) -> Event {
    match reason {
        Reason::Ended => Event::Down(link, LinkDown::Protocol),
        Reason::Up => Event::Up(link),
        Reason::Socket => Event::Packet(link, b"packet".to_vec()),
        Reason::Room => Event::Writable(link),
    }
}

#[test]
fn each_reason_gives_its_event_once() {
    for reason in Reason::ALL {
        let (mut a, ab, mut b, ba) = asleep();
        give_reason(reason, &mut b, ba, &mut a, ab);
        assert_eq!(b.port.queue, [ba], "{reason:?}");
        assert!(!b.port.is_active() && !b.port.arm());
        b.poll_until_idle();
        assert_eq!(b.take(), [event_of(reason, ba)]);
        assert!(b.port.queue.is_empty() && b.port.arm());
    }
}

#[test]
fn a_link_with_several_reasons_is_queued_once() {
    let (mut a, ab, mut b, ba) = asleep();
    let reasons = [Reason::Room, Reason::Socket, Reason::Up];
    for reason in reasons {
        give_reason(reason, &mut b, ba, &mut a, ab);
        assert_eq!(b.port.queue, [ba]);
    }
    b.poll_until_idle();
    let expected = [Reason::Up, Reason::Socket, Reason::Room].map(|it| event_of(it, ba));
    assert_eq!(b.take(), expected);
}

#[test]
fn a_link_that_is_over_gives_nothing_but_its_end() {
    let (mut a, ab, mut b, ba) = asleep();
    for reason in [Reason::Room, Reason::Socket, Reason::Up, Reason::Ended] {
        give_reason(reason, &mut b, ba, &mut a, ab);
    }
    b.poll_until_idle();
    assert_eq!(b.take(), [event_of(Reason::Ended, ba)]);
}

#[test]
fn a_closed_link_takes_its_reasons_with_it() {
    for reason in Reason::ALL {
        for how in [Close::Flush, Close::Now] {
            let (mut a, ab, mut b, ba) = asleep();
            give_reason(reason, &mut b, ba, &mut a, ab);
            b.port.close(ba, how);
            b.poll_until_idle();
            assert_eq!(b.take(), [], "{reason:?}");
            assert_eq!((b.port.link_count(), b.port.queue.len()), (0, 0));
            let stats = b.port.stats();
            assert_eq!((stats.violations, stats.asleep, stats.bytes), (0, 0, 0));
            assert!(b.port.arm());
        }
    }
}

#[test]
fn the_next_link_with_its_place_does_not_inherit_them() {
    for reason in Reason::ALL {
        let (mut a, ab, mut b, ba) = asleep();
        give_reason(reason, &mut b, ba, &mut a, ab);
        b.port.close(ba, Close::Flush);
        let mut c = Node::new();
        let bc = b.connect(&c).unwrap();
        assert!(bc != ba && bc.index() == ba.index());
        assert_eq!(b.port.queue, [ba], "the stale id is still there");
        b.port.note(bc, Reason::Socket);
        assert_eq!(b.port.queue, [ba, bc]);
        c.poll_until_idle();
        b.poll_until_idle();
        assert_eq!(b.take(), [Event::Up(bc)], "{reason:?}");
        assert!(b.port.queue.is_empty());
        a.poll_until_idle();
        // A link that has ended sends no Bye.
        let down = match reason {
            Reason::Ended => LinkDown::Reset,
            _ => LinkDown::Closed,
        };
        assert_eq!(a.take(), [Event::Down(ab, down)]);
    }
}

/// Begins a round, closes the link at its first packet, and returns the number of later events.
fn close_at_first_packet(node: &mut Node, link: LinkId) -> usize {
    node.port.begin_round(0, node.clock.now(), 64);
    let first = node.port.next_event();
    assert!(
        matches!(first, Next::Event(PortEvent::Packet { link: from, .. }) if from == link),
        "{first:?}"
    );
    node.port.close(link, Close::Flush);
    let mut rest = 0;
    while let Next::Event(_) = node.port.next_event() {
        rest += 1;
    }
    rest
}

#[test]
fn a_link_closed_while_its_socket_is_read_gives_nothing_more() {
    let (mut a, ab, mut b, ba) = asleep();
    // Sent by the side that offers no memory.
    for at in 0..3 {
        assert_eq!(b.send(ba, &[at]), Ok(Sent::Whole));
    }
    assert!(a.port.take_doorbells());
    assert_eq!(close_at_first_packet(&mut a, ab), 0);
    assert_eq!((a.port.link_count(), a.port.queue.len()), (0, 0));
}

#[test]
fn a_link_closed_while_its_ring_is_emptied_gives_nothing_more() {
    let (mut a, ab, mut b, ba) = linked();
    for at in 0..3 {
        assert_eq!(a.send(ab, &[at]), Ok(Sent::Whole));
    }
    assert!(a.port.links.get_mut(ab).unwrap().suspend());
    b.port.note(ba, Reason::Socket);
    assert_eq!(close_at_first_packet(&mut b, ba), 0);
    assert_eq!((b.port.link_count(), b.port.stats().bytes), (0, 0));
}

#[test]
fn the_ring_is_emptied_before_the_socket_is_read_on() {
    let (mut a, ab, mut b, ba) = linked();
    for at in 0..3 {
        assert_eq!(a.send(ab, &[at]), Ok(Sent::Whole));
    }
    // Both suspend the link, so that packets follow over the socket without an answer.
    assert!(a.port.links.get_mut(ab).unwrap().suspend());
    assert!(b.port.links.get_mut(ba).unwrap().suspend());
    a.port.note(ab, Reason::Socket);
    a.poll();
    assert_eq!(stage(&a, ab), Stage::Plain);
    assert_eq!(a.send(ab, &[3]), Ok(Sent::Whole));
    b.port.note(ba, Reason::Socket);
    b.port.begin_round(0, b.clock.now(), 64);
    for at in 0..4 {
        let next = b.port.next_event();
        assert!(matches!(next, Next::Event(PortEvent::Packet { .. })));
        let mut body = [0];
        b.port.lent().copy_to(0, &mut body);
        assert_eq!(body, [at]);
        // Packets in the rings come before the rings are freed.
        assert_eq!(stage(&b, ba) == Stage::Suspending, at < 3);
    }
}
