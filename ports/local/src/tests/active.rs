//! Tests of `is_active` and `is_calm`, which say whether a poll of the active links alone leaves something out.

use super::{Event, Node, link_up, linked};
use crate::queue::Reason;
use crate::{ACTIVE_KEPT, IDLE_AFTER};
use mx_proto::LinkId;
use mx_proto::port::LinkControl;

/// Gives a node something to look at beside its link.
type Make = fn(&mut Node, LinkId);

#[test]
fn whatever_else_there_is_to_look_at_is_told() {
    assert!(!Node::new().port.is_active(), "no link");
    let (mut a, ab, _b, _) = linked();
    let beside: [(&str, Make); 3] = [
        ("control", |node, _| node.port.note_control()),
        ("a sleep", |node, _| {
            assert!(node.port.arm());
            node.port.disarm();
        }),
        ("a socket", |node, link| {
            node.port.note(link, Reason::Socket)
        }),
    ];
    for (what, make) in beside {
        assert!(a.port.is_active(), "before {what}");
        make(&mut a, ab);
        assert!(!a.port.is_active(), "{what}");
        a.poll();
    }
    assert!(a.port.is_active());
}

#[test]
fn a_link_without_room_is_not_calm() {
    let (mut a, ab, mut b, _) = linked();
    assert!(a.port.is_calm());
    while a.send(ab, &[0; 1000]).is_ok() {}
    assert!(!a.port.is_calm());
    b.poll_until_idle();
    a.poll_until_idle();
    assert!(a.port.is_calm());
}

#[test]
fn more_links_than_are_kept_active_are_not_calm() {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..=ACTIVE_KEPT).map(|_| Node::new()).collect();
    for client in &mut clients {
        link_up(client, &mut server);
    }
    let links = clients.len();
    assert_eq!(
        (server.port.active.len(), server.port.links.len()),
        (links, links)
    );
    assert!(!server.port.is_calm());
    for _ in 0..=IDLE_AFTER {
        server.poll();
    }
    assert_eq!(server.port.active.len(), ACTIVE_KEPT);
    assert!(!server.port.is_calm(), "a link is not looked at");
}

#[test]
fn a_round_of_active_links_begins_only_for_a_packet() {
    let (mut a, ab, mut b, ba) = linked();
    assert!(b.port.is_active() && !b.port.begin_active(64));
    a.send(ab, b"one").unwrap();
    assert!(b.poll_active(64));
    assert_eq!(b.take(), [Event::Packet(ba, b"one".to_vec())]);
    assert!(!b.port.begin_active(64));
}
