//! Links that retire among many.

use super::{Node, link_up, readable};
use crate::{ACTIVE_KEPT, ACTIVE_MAX, IDLE_AFTER, LISTEN_EVERY_EMPTY};
use mx_proto::LinkId;
use mx_proto::port::LinkControl;

#[test]
fn idle_links_cool_down_and_their_packets_still_arrive() {
    const CLIENTS: usize = 40;
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..CLIENTS).map(|_| Node::new()).collect();
    let links: Vec<LinkId> = clients
        .iter_mut()
        .map(|a| link_up(a, &mut server))
        .collect();
    server.take();
    assert!((ACTIVE_KEPT..=ACTIVE_MAX).contains(&server.port.active.len()));
    for _ in 0..=IDLE_AFTER {
        server.poll();
    }
    assert_eq!(server.port.active.len(), ACTIVE_KEPT);
    assert_eq!(server.idle_links(), CLIENTS - ACTIVE_KEPT);
    // Awake: the first packet of an idle link is found soon.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        client.send(*link, &[at as u8]).unwrap();
        for _ in 0..LISTEN_EVERY_EMPTY {
            server.poll();
        }
        assert_eq!(server.bodies(), [[at as u8]]);
    }
    let active = server.port.active.len();
    assert!((ACTIVE_KEPT..=ACTIVE_MAX).contains(&active));
    assert_eq!(server.idle_links(), CLIENTS - active);
    for _ in 0..=IDLE_AFTER {
        server.poll();
    }
    // Asleep: the first packet rings on every link.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        server.poll_until_idle();
        while !server.port.arm() {
            server.poll_until_idle();
        }
        assert!(!readable(server.port.descriptors().data), "client {at}");
        client.send(*link, &[at as u8]).unwrap();
        assert!(readable(server.port.descriptors().data), "client {at}");
        server.port.disarm();
        assert!(server.poll());
        assert_eq!(server.bodies(), [[at as u8]]);
    }
}
