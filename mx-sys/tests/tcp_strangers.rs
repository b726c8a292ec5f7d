//! What comes over TCP and is none of ours: counted, dropped, nothing lost for anybody else.

mod tcp_common;

use mx_proto::port::{LinkDown, Port};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;
use tcp_common::*;

fn raw(node: &Node) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", node.port.local_port())).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    socket
}

/// True when the other side has closed.
fn is_cut_off(mut socket: TcpStream) -> bool {
    let mut rest = Vec::new();
    // A reset is as good as an end.
    let _ = socket.read_to_end(&mut rest);
    rest.len() <= preamble().len()
}

#[test]
fn an_http_request_is_dropped_and_nobody_else_notices() {
    let (mut a, mut b) = (
        Node::open(Ipv4Addr::LOCALHOST),
        Node::open(Ipv4Addr::LOCALHOST),
    );
    let (at_a, _) = linked(&mut a, &mut b, 4);
    let mut stranger = raw(&b);
    stranger
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    until(&mut a, &mut b, "it is dropped", |_, b| {
        b.port.stats().strangers == 1
    });
    assert!(matches!(
        b.sink.events[..],
        [Event::Down(_, 0, LinkDown::Protocol)]
    ));
    assert!(is_cut_off(stranger));
    assert_eq!(b.port.link_count(), 1);
    a.send(at_a, 1, b"still here").unwrap();
    until(&mut a, &mut b, "it arrives", |_, b| {
        b.sink.packet_count() == 1
    });
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
fn who_introduces_itself_at_once_leaves_no_alarm_behind() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut peers: Vec<TcpStream> = (0..50).map(|_| raw(&b)).collect();
    for peer in &mut peers {
        // On one host it is there when the call returns, before anybody accepts.
        peer.write_all(&preamble()).unwrap();
    }
    until_one(&mut b, "all are accepted", |b| {
        b.port.stats().accepted == 50
    });
    assert_eq!(b.port.link_count(), 50);
    assert_eq!(Port::<Pieces>::deadline(&b.port), None);
    let silent = raw(&b);
    until_one(&mut b, "it is accepted", |b| b.port.stats().accepted == 51);
    assert!(Port::<Pieces>::deadline(&b.port).is_some());
    drop(silent);
}

#[test]
fn another_version_is_turned_away() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut stranger = raw(&b);
    stranger.write_all(b"\x93MXTCP\x02\x00").unwrap();
    until_one(&mut b, "it is dropped", |b| {
        b.port.stats().other_versions == 1
    });
    assert_eq!(b.sink.downs(), [LinkDown::Protocol]);
    assert!(is_cut_off(stranger));
}

#[test]
fn a_stranger_that_says_nothing_is_dropped_in_time_and_not_earlier() {
    for said in [&b""[..], &preamble()[..5]] {
        let mut b = Node::open(Ipv4Addr::LOCALHOST);
        let mut stranger = raw(&b);
        stranger.write_all(said).unwrap();
        until_one(&mut b, "it is accepted", |b| b.port.link_count() == 1);
        b.clock.advance(Duration::from_millis(4999));
        b.look();
        assert_eq!(b.port.link_count(), 1);
        assert!(Port::<Pieces>::deadline(&b.port).is_some());
        b.clock.advance(Duration::from_millis(1));
        b.look();
        assert_eq!(b.port.link_count(), 0);
        assert_eq!(b.port.stats().silent, 1);
        assert!(b.sink.events.is_empty(), "nobody had heard of it");
        assert!(is_cut_off(stranger));
    }
}

#[test]
fn one_of_ours_that_is_quiet_after_its_preamble_stays() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut quiet = raw(&b);
    quiet.write_all(&preamble()).unwrap();
    until_one(&mut b, "it is accepted", |b| b.port.link_count() == 1);
    for _ in 0..300 {
        b.look();
    }
    b.clock.advance(Duration::from_secs(3600));
    b.look();
    assert_eq!(b.port.link_count(), 1);
    quiet.write_all(&frame(1, b"at last")).unwrap();
    until_one(&mut b, "it speaks", |b| b.sink.packet_count() == 1);
}

#[test]
fn a_stranger_that_comes_and_goes_leaves_nothing() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    for _ in 0..20 {
        drop(raw(&b));
    }
    until_one(&mut b, "all are gone", |b| {
        b.look();
        b.port.stats().accepted == 20 && b.port.link_count() == 0
    });
    assert!(b.sink.events.is_empty());
}

#[test]
fn an_impossible_length_fails_the_link() {
    // The first packet of a stranger has to be deliverable; a partner may send data that nobody
    // wants any more, but not of any size.
    for (known, len, fails) in [
        (false, 48 * 1024 + 1, true),
        (false, 48 * 1024, false),
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

#[test]
fn more_connections_than_allowed_are_turned_away() {
    let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
    small.max_links = 3;
    let mut b = Node::with(small);
    let held: Vec<TcpStream> = (0..3)
        .map(|tag| {
            let mut socket = raw(&b);
            socket
                .write_all(&[preamble(), frame(tag, b"in")].concat())
                .unwrap();
            socket
        })
        .collect();
    until_one(&mut b, "three are in", |b| b.sink.packet_count() == 3);
    let late = raw(&b);
    until_one(&mut b, "the fourth is not", |b| {
        b.port.stats().turned_away == 1
    });
    assert!(is_cut_off(late));
    drop(held);
    until_one(&mut b, "they leave", |b| b.port.link_count() == 0);
    let mut next = raw(&b);
    next.write_all(&[preamble(), frame(9, b"in")].concat())
        .unwrap();
    until_one(&mut b, "there is room", |b| b.sink.packet_count() == 4);
}
