//! Links that cool down among many.

use super::{Node, link_up, readable};
use crate::{COOL_AFTER, HOT_KEPT, HOT_MAX, LISTEN_EVERY_EMPTY};
use mx_proto::LinkId;
use mx_proto::port::{Close, Sent};

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
    assert!((HOT_KEPT..=HOT_MAX).contains(&server.port.hot.len()));
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    assert_eq!(server.port.hot.len(), HOT_KEPT);
    assert_eq!(server.port.cold, CLIENTS - HOT_KEPT);
    // Awake: the first packet of a cold link is found soon.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        client.send(*link, &[at as u8]).unwrap();
        for _ in 0..LISTEN_EVERY_EMPTY {
            server.poll();
        }
        assert_eq!(server.bodies(), [[at as u8]]);
    }
    let hot = server.port.hot.len();
    assert!((HOT_KEPT..=HOT_MAX).contains(&hot));
    assert_eq!(server.port.cold, CLIENTS - hot);
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    // Asleep: the first packet rings, whichever link it is.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        server.settle();
        while !server.port.arm() {
            server.settle();
        }
        assert!(!readable(server.port.descriptors().data), "client {at}");
        client.send(*link, &[at as u8]).unwrap();
        assert!(readable(server.port.descriptors().data), "client {at}");
        server.port.disarm();
        assert!(server.poll());
        assert_eq!(server.bodies(), [[at as u8]]);
    }
}

#[test]
fn a_cold_link_that_is_sent_to_becomes_hot() {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..20).map(|_| Node::new()).collect();
    for client in &mut clients {
        link_up(client, &mut server);
    }
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    let cold = server.cold_link();
    assert_eq!(server.send(cold, b"x"), Ok(Sent::Whole));
    assert!(server.port.hot.contains(&cold));
    assert_eq!(server.port.cold, 3);
    // And it ends like any other, from either group.
    for link in [cold, server.cold_link()] {
        server.port.close(link, Close::Now);
    }
    assert_eq!((server.port.hot.len(), server.port.cold), (HOT_KEPT, 2));
    server.settle();
}
