//! What happens when there is not enough memory for all links.

use super::slumber::{meet, node_with, rest, room_for, send_through, stage};
use super::strangers::TRAITS;
use super::{Event, Node, link_up};
use crate::LocalOptions;
use crate::handshake::{Hello, MESSAGE_LEN, Welcome, Word};
use crate::layout::Geometry;
use crate::link_states::Stage;
use crate::socket::{Received, Socket};
use mx_port_base::sealed::Region;
use mx_proto::Route;
use mx_proto::origin::Source;
use mx_proto::port::{Close, ConnectError, LinkDown, SendError, Sent};
use std::time::Duration;

pub(super) const TCP: Route = Route(2);

#[test]
fn links_beyond_the_limit_are_told_to_come_another_way() {
    let mut server = node_with(4 << 20);
    let mut clients = Vec::new();
    let mut turned_away = 0;
    while turned_away < 3 {
        let mut client = Node::new();
        let board = server.name().board;
        let endpoint = server.name().endpoint;
        let link = client.port.connect_or(board, endpoint, TCP, &client.clock);
        let link = link.unwrap();
        for _ in 0..3 {
            server.settle();
            client.settle();
        }
        match client.take()[..] {
            [Event::Up(up)] => {
                assert_eq!((up, turned_away), (link, 0));
                clients.push((client, link));
            }
            [Event::Down(down, LinkDown::Elsewhere(TCP))] => {
                assert_eq!(down, link);
                turned_away += 1;
            }
            ref other => panic!("{other:?}"),
        }
        assert!(server.port.stats().bytes <= 4 << 20);
    }
    assert!(
        clients.len() >= (4 << 20) / Geometry::STANDARD.total() + 2,
        "{}",
        clients.len()
    );
    assert_eq!(server.port.stats().turned_away, 3);
    // Where there is no other way, it is unreachable; and the server itself has no memory either.
    let mut strict = Node::new();
    let link = strict.connect(&server).unwrap();
    server.settle();
    strict.settle();
    assert_eq!(strict.take(), [Event::Down(link, LinkDown::Unreachable)]);
    assert_eq!(server.connect(&strict), Err(ConnectError::NoResources));
    // All of those that are there work, whatever rings they have.
    for (at, (client, link)) in clients.iter_mut().enumerate() {
        for len in [8, 5000, 36 * 1024] {
            send_through(client, *link, &mut server, &vec![at as u8; len]);
            server.settle();
            assert_eq!(server.bodies(), [vec![at as u8; len]]);
        }
    }
    // When they sleep, there is room again.
    let mut nodes: Vec<&mut Node> = clients.iter_mut().map(|(client, _)| client).collect();
    nodes.push(&mut server);
    rest(&mut nodes);
    assert_eq!(server.port.stats().bytes, 0);
    assert_eq!(server.port.stats().asleep, clients.len() as u64);
    link_up(&mut Node::new(), &mut server);
}

#[test]
pub(super) fn idle_links_make_room_for_those_that_want_memory() {
    const CLIENTS: usize = 60;
    let limit = 4 << 20;
    let mut server = node_with(limit);
    let mut clients = Vec::new();
    // One after the other, so that all of them get in.
    for _ in 0..CLIENTS {
        let mut client = Node::new();
        let (link, _) = meet(&mut client, &mut server);
        rest(&mut [&mut client, &mut server]);
        clients.push((client, link));
    }
    assert_eq!(server.port.stats().asleep, CLIENTS as u64);
    // All at once: more than fit.
    for (client, link) in &mut clients {
        assert_eq!(client.send(*link, b"now"), Err(SendError::WouldBlock));
    }
    let mut got = 0;
    let mut sent = [false; CLIENTS];
    for _ in 0..20_000 {
        server.settle();
        server.clock.advance(Duration::from_millis(1));
        assert!(server.port.stats().bytes <= limit as u64);
        got += server.bodies().len();
        for (at, (client, link)) in clients.iter_mut().enumerate() {
            client.settle();
            if !sent[at] && client.take().contains(&Event::Writable(*link)) {
                sent[at] = true;
                assert_eq!(client.send(*link, b"now"), Ok(Sent::Whole));
            }
        }
        if got == CLIENTS {
            return;
        }
    }
    panic!("{got} of {CLIENTS}");
}

#[test]
pub(super) fn who_waits_for_memory_takes_what_the_peer_hands_over_as_soon_as_there_is_room() {
    let mut server = node_with(4 << 20);
    let (mut client, mut other) = (Node::new(), Node::new());
    let (link, back) = meet(&mut client, &mut server);
    rest(&mut [&mut client, &mut server]);
    let mut filled = Vec::new();
    while server.port.choose(Source::TRUSTED).is_some() {
        filled.push(meet(&mut other, &mut server).1);
    }
    assert_eq!(server.send(back, b"x"), Err(SendError::WouldBlock));
    assert_eq!(stage(&server, back), Stage::Wanted);
    assert_eq!(client.send(link, b"y"), Err(SendError::WouldBlock));
    // The memory handed over is too much, and no less can be had either.
    server.settle();
    client.settle();
    assert_eq!(stage(&client, link), Stage::Asleep);
    assert_eq!(client.send(link, b"y"), Err(SendError::WouldBlock));
    assert_eq!(stage(&client, link), Stage::Waking);
    for link in filled {
        server.port.close(link, Close::Now);
    }
    server.port.take_doorbells();
    assert_eq!(stage(&server, back), Stage::Up);
    server.settle();
    assert_eq!(server.take(), [Event::Writable(back)]);
    client.settle();
    assert_eq!(client.take(), [Event::Writable(link)]);
}

#[test]
fn memory_goes_to_who_has_waited_for_longest() {
    let (mut server, mut one, mut two) = (node_with(4 << 20), Node::new(), Node::new());
    let (first, first_back) = meet(&mut one, &mut server);
    let (second, second_back) = meet(&mut two, &mut server);
    rest(&mut [&mut one, &mut two, &mut server]);
    let mut filler = Node::new();
    let mut filled = Vec::new();
    while server.port.choose(Source::TRUSTED).is_some() {
        filled.push(meet(&mut filler, &mut server).1);
    }
    assert_eq!(server.send(first_back, b"x"), Err(SendError::WouldBlock));
    assert_eq!(stage(&server, first_back), Stage::Wanted);
    assert_eq!(two.send(second, b"y"), Err(SendError::WouldBlock));
    // There is memory, and the second one's offer is heard first.
    for link in filled {
        server.port.close(link, Close::Now);
    }
    server.port.take_doorbells();
    assert_eq!(stage(&server, second_back), Stage::Wanted);
    for _ in 0..3 {
        server.settle();
        one.settle();
        two.settle();
    }
    assert_eq!(
        (stage(&one, first), stage(&two, second)),
        (Stage::Up, Stage::Up)
    );
    assert!(two.take().contains(&Event::Writable(second)));
}

#[test]
fn who_had_its_turn_when_the_peer_had_no_memory_does_not_wait_for_another_one() {
    let (mut a, mut b) = (node_with(4 << 20), node_with(4 << 20));
    let (ab, ba) = meet(&mut a, &mut b);
    let mut other = Node::new();
    let (_, queued) = meet(&mut other, &mut a);
    rest(&mut [&mut a, &mut b, &mut other]);
    // B has none: A is told so.
    let mut filler = Node::new();
    let mut filled = Vec::new();
    while b.port.choose(Source::TRUSTED).is_some() {
        filled.push(meet(&mut filler, &mut b).1);
    }
    assert_eq!(a.send(ab, b"x"), Err(SendError::WouldBlock));
    b.settle();
    a.settle();
    assert_eq!(
        (stage(&a, ab), stage(&b, ba)),
        (Stage::Asleep, Stage::Wanted)
    );
    // Meanwhile somebody else waits at A.
    let mut crowd = Node::new();
    let mut held = Vec::new();
    while a.port.choose(Source::TRUSTED).is_some() {
        held.push(meet(&mut crowd, &mut a).1);
    }
    assert_eq!(a.send(queued, b"z"), Err(SendError::WouldBlock));
    assert_eq!(stage(&a, queued), Stage::Wanted);
    for link in filled {
        b.port.close(link, Close::Now);
    }
    b.settle();
    a.port.close(held.pop().unwrap(), Close::Now);
    a.port.take_doorbells();
    // What B offers is too much for what there is, so A hands it over, past who waits.
    assert_eq!(
        (stage(&a, ab), stage(&a, queued)),
        (Stage::Waking, Stage::Wanted)
    );
    b.settle();
    a.settle();
    assert_eq!((stage(&a, ab), stage(&b, ba)), (Stage::Up, Stage::Up));
}

#[test]
pub(super) fn a_client_that_hands_over_too_much_gets_less() {
    // Large rings are the peer's to propose, but not for it to take all there is.
    let mut server = Node::new();
    let geometry = Geometry {
        cells: 4096,
        data: 4 << 20,
    };
    let (_, fd) = Region::create(c"test", geometry.total()).unwrap();
    let socket = Socket::new().unwrap();
    socket.connect(server.name()).unwrap();
    let traits = TRAITS;
    socket
        .send(&Hello { geometry, traits }.encode(), Some(&fd))
        .unwrap();
    server.settle();
    let Received::Message(len, None) = hear(&socket).0 else {
        panic!("no welcome");
    };
    assert_eq!(len, MESSAGE_LEN);
    assert!(Welcome::decode(&hear_after(&socket)).is_err());
    assert_eq!(server.port.stats().bytes, Geometry::STANDARD.total() as u64);
    socket.send(&Word::Woken.encode(), None).unwrap();
    server.settle();
    assert_eq!(server.port.stats().asleep, 0);
    // The same between two of ours, one of which has less to give.
    let mut small = node_with(room_for(1));
    let mut plenty = Node::new();
    let mut links = Vec::new();
    for _ in 0..2 {
        links.push(plenty.connect(&small).unwrap());
        for _ in 0..3 {
            small.settle();
            plenty.settle();
        }
    }
    assert_eq!(plenty.take(), [Event::Up(links[0]), Event::Up(links[1])]);
    for link in links {
        send_through(&mut plenty, link, &mut small, b"fits");
        small.settle();
        assert_eq!(small.bodies(), [b"fits"]);
    }
    let (standard, smaller) = (Geometry::STANDARD.total(), Geometry::SMALLEST.total());
    assert!(small.port.stats().bytes as usize >= standard + smaller);
    assert!(small.port.stats().bytes as usize <= room_for(1));
}

/// The next message, and its descriptor.
fn hear(socket: &Socket) -> (Received, [u8; MESSAGE_LEN]) {
    let mut message = [0; MESSAGE_LEN];
    let received = socket.receive(&mut message).unwrap();
    (received, message)
}

fn hear_after(socket: &Socket) -> [u8; MESSAGE_LEN] {
    let (received, message) = hear(socket);
    assert!(
        matches!(received, Received::Message(MESSAGE_LEN, Some(_))),
        "{received:?}"
    );
    assert!(matches!(Word::decode(&message), Ok(Word::Wake(_))));
    message
}

#[test]
fn peers_that_never_sleep_leave_memory_for_those_that_do() {
    let limit = 4 << 20;
    let mut server = node_with(limit);
    let sleepless = || {
        Node::with_options(LocalOptions {
            idle: None,
            ..LocalOptions::default()
        })
    };
    let mut peers = Vec::new();
    while server.port.stats().turned_away == 0 {
        let mut peer = sleepless();
        let link = peer.connect(&server).unwrap();
        for _ in 0..3 {
            server.settle();
            peer.settle();
        }
        peers.push((peer, link));
    }
    let (mut last, link) = peers.pop().unwrap();
    assert_eq!(last.take(), [Event::Down(link, LinkDown::Unreachable)]);
    assert!(!peers.is_empty());
    assert!(server.port.stats().bytes <= limit as u64 / 2);
    // One that sleeps still gets in.
    meet(&mut Node::new(), &mut server);
    // And so does one more that does not, where links do not sleep anyway.
    let mut server = Node::with_options(LocalOptions {
        bytes: limit,
        idle: None,
        ..LocalOptions::default()
    });
    let mut filler = sleepless();
    while server.port.stats().bytes <= limit as u64 / 2 {
        meet(&mut filler, &mut server);
    }
}
