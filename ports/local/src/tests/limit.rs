//! Links without enough memory for all.

use super::idle::{Stage, meet, node_with, room_for, send_through, stage, suspend};
use super::strangers::{HELLO, Rogue};
use super::{Node, link_up};
use crate::handshake::ControlMessage;
use crate::layout::Geometry;
use crate::socket::Socket;
use mx_port_base::sealed::Region;
use mx_proto::Route;

pub(super) const TCP: Route = Route(2);

const LIMIT: usize = 4 << 20;

#[test]
fn links_beyond_the_limit_carry_their_packets_over_the_socket() {
    let mut server = node_with(LIMIT);
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = Node::new();
        let (link, back) = meet(&mut client, &mut server);
        assert!(server.port.stats().bytes <= LIMIT as u64);
        clients.push((client, link, back));
    }
    let with_rings = 40 - server.port.stats().asleep as usize;
    let least = LIMIT / Geometry::STANDARD.total() + 2;
    assert!((least..40).contains(&with_rings), "{with_rings}");
    assert!(server.port.stats().turned_away > 0);
    // All links work both ways, with and without rings.
    for round in 0..100 {
        for (client, link, back) in &mut clients {
            for len in [8, 5_000, 36 * 1024] {
                let bytes = vec![round; len];
                send_through(client, *link, &mut server, &bytes);
                server.poll_until_idle();
                assert_eq!(server.bodies(), std::slice::from_ref(&bytes));
                send_through(&mut server, *back, client, &bytes);
                client.poll_until_idle();
                assert_eq!(client.bodies(), [bytes]);
            }
        }
    }
    assert!(server.port.stats().bytes <= LIMIT as u64);
    assert_eq!(server.port.stats().violations, 0);
    // Once others are suspended, links without rings get some.
    let (last, mut others) = clients.split_last_mut().unwrap();
    let (client, link, back) = last;
    assert_eq!(stage(&server, *back), Stage::Plain);
    while let Some(((other, ..), left)) = others.split_last_mut() {
        suspend(&mut [other]);
        others = left;
    }
    server.poll_until_idle();
    assert!(server.port.stats().bytes <= Geometry::STANDARD.total() as u64);
    for _ in 0..70 {
        send_through(client, *link, &mut server, b"again");
        server.poll_until_idle();
    }
    client.poll_until_idle();
    assert_eq!(
        (stage(client, *link), stage(&server, *back)),
        (Stage::Up, Stage::Up)
    );
}

#[test]
fn who_offers_too_much_is_told_what_there_is_room_for() {
    // A peer may propose large rings, but may not take all memory.
    let mut server = Node::new();
    let geometry = Geometry {
        cells: 4096,
        data: 4 << 20,
        far: 0,
    };
    let (_, fd) = Region::create(c"test", geometry.total()).unwrap();
    let socket = Socket::new().unwrap();
    socket.connect(server.name()).unwrap();
    socket.send(&HELLO.encode(), None).unwrap();
    socket
        .send(&ControlMessage::Offer(geometry).encode(), Some(&fd))
        .unwrap();
    server.poll_until_idle();
    assert_eq!(
        Rogue::hear(&socket),
        ControlMessage::Welcome { asymmetric: true }
    );
    let less = ControlMessage::Later(Some(Geometry::STANDARD));
    assert_eq!(Rogue::hear(&socket), less);
    assert_eq!(server.port.stats().bytes, 0);
    assert_eq!(server.port.stats().asleep, 1);
    // Two correct ports, one with less memory.
    let mut small = node_with(room_for(1));
    let mut plenty = Node::new();
    link_up(&mut plenty, &mut small);
    small.take();
    let (link, _) = meet(&mut plenty, &mut small);
    assert_eq!(stage(&plenty, link), Stage::Up);
    let (standard, smaller) = (Geometry::STANDARD.total(), Geometry::SMALLEST.total());
    assert_eq!(small.port.stats().bytes as usize, standard + smaller);
    assert!(small.port.stats().bytes as usize <= room_for(1));
}
