//! Ends of links.

use super::{Event, Node, link_up, linked, readable};
use mx_proto::port::{Close, LinkDown, SendError, Sent};

#[test]
fn closing_with_packets_in_flight_delivers_them_first() {
    let (mut a, ab, mut b, ba) = linked();
    b.port.bind(ba, 5);
    for at in 0..100 {
        a.send(ab, &vec![at; 1000]).unwrap();
    }
    a.port.close(ab, Close::Flush);
    assert_eq!(a.send(ab, b"x"), Err(SendError::Down));
    b.poll_until_idle();
    let events = b.take();
    assert_eq!(events.len(), 101);
    for (at, event) in events[..100].iter().enumerate() {
        assert_eq!(*event, Event::Packet(ba, vec![at as u8; 1000]));
    }
    assert_eq!(events[100], Event::Down(ba, LinkDown::Closed));
    assert_eq!(*b.log.cookies.last().unwrap(), 5);
    assert_eq!(b.send(ba, b"x"), Err(SendError::Down));
    assert_eq!((a.port.link_count(), b.port.link_count()), (0, 0));
}

#[test]
fn a_peer_that_goes_without_a_word_is_a_reset() {
    let (mut a, ab, mut b, ba) = linked();
    a.send(ab, b"last").unwrap();
    a.port.close(ab, Close::Now);
    b.poll_until_idle();
    assert_eq!(
        b.take(),
        [
            Event::Packet(ba, b"last".to_vec()),
            Event::Down(ba, LinkDown::Reset)
        ]
    );
    let (a, _, mut b, ba) = linked();
    drop(a);
    b.poll_until_idle();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn a_sleeper_notices_the_end_of_its_peer() {
    let (a, _, mut b, ba) = linked();
    b.poll_until_idle();
    assert!(b.port.arm());
    drop(a);
    assert!(readable(b.port.descriptors().control));
    b.port.disarm();
    // No note_control: the first poll after sleeping looks by itself.
    assert!(b.poll() || b.poll());
    b.poll();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn a_stranger_who_never_sent_a_packet_ends_without_a_word() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let link = a.connect(&b).unwrap();
    b.poll_until_idle();
    a.poll_until_idle();
    a.port.close(link, Close::Flush);
    b.poll_until_idle();
    assert_eq!(b.take(), []);
    assert_eq!(b.port.link_count(), 0);
}

#[test]
fn stale_names_reach_no_link() {
    let (mut a, ab, mut b, _) = linked();
    a.port.close(ab, Close::Now);
    b.poll_until_idle();
    b.take();
    let again = link_up(&mut a, &mut b);
    assert_eq!(again.index(), ab.index());
    b.take();
    a.port.bind(ab, 99);
    assert_eq!(a.send(ab, b"x"), Err(SendError::Down));
    a.port.close(ab, Close::Now);
    assert_eq!(a.send(again, b"y"), Ok(Sent::Whole));
    b.poll_until_idle();
    assert_eq!(b.bodies(), [b"y"]);
}
