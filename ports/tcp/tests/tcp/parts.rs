//! Packets of which a part has come: the bytes that a port keeps, and those that it leaves to the
//! kernel.

use crate::tcp_common::*;
use mx_port_tcp::TcpPort;
use mx_proto::port::{Close, LinkControl, LinkDown};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

const BODY: usize = 32 * 1024;

/// Makes a port that keeps up to `kept_bytes` bytes of parts.
fn keeping(kept_bytes: usize) -> Node {
    let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
    (small.kept_bytes, small.source_share) = (kept_bytes, 100);
    Node::with(small)
}

/// Makes `count` peers, all of them accepted.
fn crowd(b: &mut Node, count: usize) -> Vec<TcpStream> {
    let mut peers = Vec::new();
    for n in 0..count {
        let mut peer = TcpStream::connect(("127.0.0.1", b.port.local_port())).unwrap();
        peer.set_nonblocking(true).unwrap();
        peer.write_all(&[preamble(), frame(0, b"in")].concat())
            .unwrap();
        until_one(b, "it is in", |b| b.sink.packet_count() == n + 1);
        if let Some(Event::Packet(link, ..)) = b.sink.events.last() {
            let link = *link;
            b.accept(link);
        }
        peers.push(peer);
    }
    b.sink.events.clear();
    peers
}

fn poll_until_idle(b: &mut Node) {
    for _ in 0..500 {
        b.look();
    }
}

/// Returns whether a thread that sleeps on the port would wake up.
fn is_ready(port: &mut TcpPort) -> bool {
    if !port.arm() {
        return true;
    }
    let fds = port.descriptors();
    let ready = readable(&[fds.control, fds.data], 0);
    port.disarm();
    ready
}

#[test]
fn partial_packets_are_kept_to_the_limit_and_completed() {
    const LIMIT: usize = 256 * 1024;
    let mut b = keeping(LIMIT);
    let mut peers = crowd(&mut b, 100);
    let packet = frame(1, &pattern(BODY, 1));
    let (most, last) = packet.split_at(packet.len() - 1);
    for peer in &mut peers {
        peer.write_all(most).unwrap();
    }
    until_one(&mut b, "what is kept is used up", |b| {
        b.port.stats().awaited >= 90
    });
    poll_until_idle(&mut b);
    let stats = b.port.stats();
    assert!(stats.kept >= LIMIT as u64, "{stats:?}");
    assert!(stats.kept <= (LIMIT + most.len()) as u64, "{stats:?}");
    assert!(
        !is_ready(&mut b.port),
        "no thread is woken for what is there"
    );
    // A peer that sends whole packets is served.
    let mut honest = crowd(&mut b, 1).remove(0);
    for _ in 0..10 {
        honest.write_all(&packet).unwrap();
    }
    until_one(&mut b, "the honest one is heard", |b| {
        b.sink.packet_count() == 10
    });
    for peer in &mut peers {
        peer.write_all(last).unwrap();
    }
    until_one(&mut b, "the others are", |b| b.sink.packet_count() == 110);
    let body = pattern(BODY, 1);
    assert!(b.sink.packets().iter().all(|packet| packet.1 == body));
    assert_eq!(b.port.stats().kept, 0);
    poll_until_idle(&mut b);
    assert!(!is_ready(&mut b.port));
    // The links are polled as before.
    let before = b.port.stats().awaited;
    for peer in &mut peers {
        peer.write_all(&frame(2, b"small")).unwrap();
    }
    until_one(&mut b, "all are heard", |b| b.sink.packet_count() == 210);
    assert_eq!(b.port.stats().awaited, before);
}

#[test]
fn who_goes_with_a_part_of_a_packet_leaves_nothing() {
    for (kept_bytes, kept) in [(0, 0), (1 << 20, 3 * 20_000)] {
        let mut b = keeping(kept_bytes);
        let mut peers = crowd(&mut b, 3);
        for peer in &mut peers {
            peer.write_all(&frame(1, &[0; BODY])[..20_000]).unwrap();
        }
        until_one(&mut b, "they are kept, or wait", |b| {
            let stats = b.port.stats();
            stats.kept == kept && (kept > 0 || stats.awaited == 3)
        });
        for peer in &peers {
            peer.shutdown(Shutdown::Write).unwrap();
        }
        until_one(&mut b, "they are gone", |b| {
            b.look();
            b.port.link_count() == 0
        });
        assert_eq!(b.sink.downs(), [LinkDown::Reset; 3]);
        assert_eq!(b.port.stats().kept, 0);
    }
}

#[test]
fn a_link_that_waits_for_a_whole_packet_closes_in_order() {
    let mut b = keeping(0);
    let mut peer = crowd(&mut b, 1).remove(0);
    peer.write_all(&frame(1, b"a small one")).unwrap();
    until_one(&mut b, "it is heard", |b| b.sink.packet_count() == 1);
    let link = b.sink.first_link();
    peer.write_all(&frame(2, &[0; BODY])[..20_000]).unwrap();
    until_one(&mut b, "it waits", |b| b.port.stats().awaited == 1);
    b.send(link, 3, b"the last word").unwrap();
    b.close(link, Close::Flush);
    // If bytes remained unread, the connection would be reset and the packet lost.
    peer.write_all(&[0; 5_000]).unwrap();
    poll_until_idle(&mut b);
    b.clock.advance(Duration::from_secs(1));
    poll_until_idle(&mut b);
    assert_eq!(b.port.link_count(), 0);
    peer.set_nonblocking(false).unwrap();
    let mut heard = Vec::new();
    peer.read_to_end(&mut heard).unwrap();
    assert!(heard.ends_with(b"the last word"));
}

/// All packets arrive in order and unchanged, with any limit, however the stream is cut.
#[test]
fn stream_cut_anywhere_arrives_with_any_buffering() {
    for (seed, kept_bytes) in (0..20).map(|seed| (seed, [0, 1, 40_000][seed as usize % 3])) {
        let mut b = keeping(kept_bytes);
        let mut peers = crowd(&mut b, 3);
        let mut random = pattern(100_000, seed + 1).into_iter();
        let mut draw = |below: usize| {
            let bytes = [(); 3].map(|()| usize::from(random.next().unwrap()));
            (bytes[0] | bytes[1] << 8 | bytes[2] << 16) % below
        };
        let mut streams = Vec::new();
        let mut expected = Vec::new();
        for peer in 0..peers.len() as u64 {
            let mut stream = Vec::new();
            for n in (0..40_u64).chain([999]) {
                let tag = 1000 * (peer + 1) + n;
                let len = match n {
                    999 => 1,
                    _ => [0, 7, 300, 5000, BODY, 48 * 1024, 200_000][draw(7)],
                };
                let body = pattern(len, tag);
                // Some large ones have a place, the others are not wanted any more.
                if len > 48 * 1024 && draw(4) > 0 {
                    b.sink
                        .posted
                        .insert(tag, Pieces::zeros(&[100_000, 100, 99_900]));
                }
                stream.extend(frame(tag, &body));
                expected.push((tag, body));
            }
            streams.push((stream, 0));
        }
        let start = std::time::Instant::now();
        while streams.iter().any(|(stream, sent)| *sent < stream.len()) {
            for (peer, (stream, sent)) in peers.iter_mut().zip(&mut streams) {
                let most = [1, 40, 3000, 70_000][draw(4)];
                let end = (*sent + most).min(stream.len());
                match peer.write(&stream[*sent..end]) {
                    Ok(n) => *sent += n,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                for _ in 0..draw(3) {
                    b.poll();
                }
            }
            assert!(b.port.stats().kept <= (kept_bytes + 64 * 1024) as u64);
            assert!(start.elapsed() < Duration::from_secs(60), "seed {seed}");
        }
        let last = expected.iter().filter(|(tag, _)| tag % 1000 == 999);
        assert_eq!(last.count(), 3);
        until_one(&mut b, "the last ones", |b| {
            let packets = b.sink.packets();
            packets.iter().filter(|(tag, _)| tag % 1000 == 999).count() == 3
        });
        let packets = b.sink.packets();
        let mut last = 0;
        for (tag, body) in &expected {
            if let Some(memory) = b.sink.posted.get(tag) {
                assert!(b.sink.is_placed(*tag), "seed {seed}: {tag}");
                assert!(memory.bytes() == *body, "seed {seed}: {tag}");
            } else if body.len() <= 48 * 1024 {
                let found = packets.iter().filter(|packet| packet.0 == *tag);
                let found: Vec<_> = found.collect();
                assert!(
                    found.len() == 1 && found[0].1 == *body,
                    "seed {seed}: {tag}"
                );
            }
        }
        for peer in 1..=3 {
            let of_peer = packets.iter().filter(|packet| packet.0 / 1000 == peer);
            for packet in of_peer {
                assert!(packet.0 > last, "seed {seed}: {} after {last}", packet.0);
                last = packet.0;
            }
        }
        assert_eq!(b.port.stats().kept, 0, "seed {seed}");
        assert!(b.sink.downs().is_empty());
    }
}
