//! Bytes over TCP that are not our protocol: they are counted and dropped, and other peers lose
//! nothing.

use crate::tcp_common::*;
use mx_proto::port::{LinkControl, LinkDown};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Connects a stranger that has sent its preamble and a packet.
fn said(node: &Node, tag: u64) -> TcpStream {
    let mut socket = raw(node);
    let hello = [preamble(), frame(tag, b"hello")].concat();
    socket.write_all(&hello).unwrap();
    socket
}

fn raw(node: &Node) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", node.port.local_port())).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

/// Returns whether the other side has closed the connection.
fn is_cut_off(mut socket: TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset counts as an end.
    let _ = socket.read_to_end(&mut rest);
    rest.len() <= preamble().len()
}

#[test]
fn random_bytes_are_dropped_at_the_first_wrong_one() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    for seed in 1..200_u64 {
        let mut bytes = pattern(1 + (seed as usize % 100), seed);
        if bytes[0] == 0x93 {
            bytes[0] = 0;
        }
        let mut stranger = raw(&b);
        stranger.write_all(&bytes).unwrap();
        until_one(&mut b, "it is dropped", |b| {
            b.port.stats().strangers == seed
        });
    }
    assert_eq!(b.port.link_count(), 0);
    assert_eq!(b.sink.packet_count(), 0);
}

#[test]
fn who_is_bound_at_once_leaves_no_deadline_behind() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let _peers: Vec<TcpStream> = (0..50).map(|_| said(&b, 1)).collect();
    until_one(&mut b, "all are heard", |b| b.sink.packet_count() == 50);
    assert!(b.port.deadline().is_some());
    bind_all(&mut b);
    assert_eq!(b.port.deadline(), None);
    b.clock.advance(Duration::from_secs(3600));
    b.look();
    assert_eq!(b.port.link_count(), 50);
}

/// Makes `count` peers, one after the other, whose links are bound.
fn let_in(b: &mut Node, count: usize) -> Vec<TcpStream> {
    let one = |tag: usize| {
        let socket = said(b, tag as u64);
        until_one(b, "it is in", |b| b.sink.packet_count() == tag + 1);
        bind_all(b);
        socket
    };
    (0..count).map(one).collect()
}

fn bind_all(b: &mut Node) {
    let links: Vec<_> = b.sink.events.iter().filter_map(packet_link).collect();
    for link in links {
        b.accept(link);
    }
}

fn packet_link(event: &Event) -> Option<mx_proto::LinkId> {
    match event {
        Event::Packet(link, ..) => Some(*link),
        _ => None,
    }
}

#[test]
fn silent_stranger_is_dropped_on_time() {
    for said in [&b""[..], &preamble()[..5]] {
        let mut b = Node::open(Ipv4Addr::LOCALHOST);
        let mut stranger = raw(&b);
        stranger.write_all(said).unwrap();
        until_one(&mut b, "it is accepted", |b| b.port.link_count() == 1);
        b.clock.advance(Duration::from_millis(4999));
        b.look();
        assert_eq!(b.port.link_count(), 1);
        assert!(b.port.deadline().is_some());
        b.clock.advance(Duration::from_millis(1));
        b.look();
        assert_eq!(b.port.link_count(), 1, "the last look came late");
        b.clock.advance(Duration::from_millis(249));
        b.look();
        assert_eq!(b.port.link_count(), 0);
        assert_eq!(b.port.stats().silent, 1);
        assert!(b.sink.events.is_empty(), "it was never announced");
        assert!(is_cut_off(stranger));
    }
}

#[test]
fn who_is_not_bound_goes_in_time_whatever_it_has_said() {
    for said in [preamble(), [preamble(), frame(1, b"hello")].concat()] {
        let mut b = Node::open(Ipv4Addr::LOCALHOST);
        let mut stranger = raw(&b);
        stranger.write_all(&said).unwrap();
        until_one(&mut b, "it is accepted", |b| b.port.link_count() == 1);
        for _ in 0..300 {
            b.look();
        }
        let heard = b.sink.packet_count();
        b.clock.advance(Duration::from_secs(5));
        b.look();
        b.clock.advance(Duration::from_millis(249));
        b.look();
        assert_eq!(b.port.link_count(), 1, "a late look gives time to read");
        b.clock.advance(Duration::from_millis(1));
        b.look();
        assert_eq!((b.port.link_count(), b.port.stats().silent), (0, 1));
        assert_eq!(b.sink.downs().len(), heard, "who has heard of it is told");
        assert!(is_cut_off(stranger));
    }
}

#[test]
fn silent_ones_make_room_for_who_introduces_itself() {
    let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
    small.max_links = 20;
    let mut b = Node::with(small);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(raw(&b));
        let accepted = silent.len() as u64;
        until_one(&mut b, "it is accepted", |b| {
            b.look();
            b.port.stats().accepted == accepted
        });
    }
    assert_eq!(b.port.link_count(), 10, "half of the places");
    assert_eq!(b.port.stats().evicted, 90);
    let mut honest = said(&b, 1);
    until_one(&mut b, "it is let in", |b| b.sink.packet_count() == 1);
    bind_all(&mut b);
    for _ in 0..50 {
        silent.push(raw(&b));
        b.look();
    }
    honest.write_all(&frame(2, b"still here")).unwrap();
    until_one(&mut b, "it stays", |b| b.sink.packet_count() == 2);
}

#[test]
fn one_source_has_its_share_of_the_places_and_another_gets_in() {
    let mut small = options(&[
        (Ipv4Addr::LOCALHOST, 0).into(),
        (Ipv4Addr::new(127, 0, 0, 2), 0).into(),
    ]);
    small.max_links = 8;
    let mut b = Node::with(small);
    let _held = let_in(&mut b, 4);
    let fifth = raw(&b);
    until_one(&mut b, "the fifth is not", |b| {
        b.look();
        b.port.stats().turned_away == 1
    });
    assert!(is_cut_off(fifth));
    let mut other = call_from(Ipv4Addr::new(127, 0, 0, 9), b.port.local_port());
    other
        .write_all(&[preamble(), frame(9, b"in")].concat())
        .unwrap();
    until_one(&mut b, "another one is", |b| b.sink.packet_count() == 5);
}

#[test]
fn a_refused_caller_is_logged_with_its_limit() {
    // Places, percent of them for one source, bound links, callers in one poll.
    let cases = [
        (
            (3, 100, 3, 1),
            "3 links are all there may be; MX_MAX_REMOTES is 3: raise it",
        ),
        (
            (8, 25, 2, 1),
            "its source has its share (MX_SOURCE_SHARE=25) of 8 links; MX_MAX_REMOTES is 8: raise it",
        ),
        (
            (4, 100, 0, 3),
            "2 links are not introduced yet, as many as may be; MX_MAX_REMOTES is 4: raise it",
        ),
    ];
    for ((max_links, source_share, bound, callers), why) in cases {
        let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
        (small.max_links, small.source_share) = (max_links, source_share);
        let mut b = Node::with(small);
        let _bound = let_in(&mut b, bound);
        let all: Vec<TcpStream> = (0..callers).map(|_| raw(&b)).collect();
        let lines = mx_sim::log_lines(|| {
            until_one(&mut b, "one is refused", |b| {
                b.look();
                b.port.stats().turned_away > 0
            });
        });
        let refused = all.last().unwrap().local_addr().unwrap();
        let line = format!("tcp: rejected {refused}: {why} (1 so far)");
        assert_eq!(lines, [line]);
    }
}

/// Connects to 127.0.0.1 from another address of this machine.
fn call_from(source: Ipv4Addr, port: u16) -> TcpStream {
    let caller = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let at = |ip, port| SocketAddr::from((ip, port)).into();
    caller.bind(&at(source, 0)).unwrap();
    caller.connect(&at(Ipv4Addr::LOCALHOST, port)).unwrap();
    caller.into()
}

#[test]
fn an_impossible_length_fails_the_link() {
    // A stranger sends a hello or an endpoint address. A remote may send data that is not wanted
    // any more, but not of any size.
    for (known, len, fails) in [
        (false, 1024 + 1, true),
        (false, 1024, false),
        (true, 48 * 1024, false),
        (true, 48 * 1024 + 1, false),
        (true, 1 << 30, false),
        (true, (1 << 30) + 1, true),
        (true, u32::MAX as usize, true),
    ] {
        let mut b = Node::open(Ipv4Addr::LOCALHOST);
        let mut peer = raw(&b);
        peer.write_all(&preamble()).unwrap();
        if known {
            peer.write_all(&frame(1, b"hello")).unwrap();
            until_one(&mut b, "it is known", |b| b.sink.packet_count() == 1);
            bind_all(&mut b);
        }
        peer.write_all(&header(2, len)).unwrap();
        peer.write_all(&[0; 100]).unwrap();
        if fails {
            until_one(&mut b, "it is dropped", |b| b.port.stats().bad_lengths == 1);
            assert_eq!(b.sink.downs(), [LinkDown::Protocol], "{known} {len}");
            assert_eq!(b.port.link_count(), 0);
        } else {
            for _ in 0..300 {
                b.look();
            }
            assert_eq!(b.port.link_count(), 1, "{known} {len}");
        }
    }
}
