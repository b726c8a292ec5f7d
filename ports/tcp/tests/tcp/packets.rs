//! Small packets over TCP: order, sizes, room, sleeping.

use crate::tcp_common::*;
use mx_proto::Clock;
use mx_proto::port::{HEADER_LEN, LinkControl, SendError, Sent};
use mx_sim::Polled;
use std::net::{Ipv4Addr, Ipv6Addr};

#[test]
fn packets_arrive_whole_and_in_order_over_both_families() {
    for (ip, nic) in [
        (Ipv4Addr::LOCALHOST.into(), 4),
        (std::net::IpAddr::from(Ipv6Addr::LOCALHOST), 6),
    ] {
        let (mut a, mut b) = (Node::open(ip), Node::open(ip));
        let (at_a, at_b) = linked(&mut a, &mut b, nic);
        let sizes = [
            0,
            1,
            31,
            32,
            33,
            4063,
            4064,
            4065,
            4096,
            4097,
            16384,
            40_000,
            48 * 1024,
        ];
        let mut expected = Vec::new();
        for round in 0..40_u64 {
            for (at, size) in sizes.iter().enumerate() {
                let tag = round * 100 + at as u64;
                let body = pattern(*size, tag);
                until(&mut a, &mut b, "there is room", |a, _| {
                    match a.send(at_a, tag, &body) {
                        Ok(sent) => {
                            assert_eq!(sent, Sent::Whole);
                            true
                        }
                        Err(error) => {
                            assert_eq!(error, SendError::WouldBlock);
                            false
                        }
                    }
                });
                expected.push((tag, body));
            }
        }
        until(&mut a, &mut b, "all arrive", |_, b| {
            b.sink.packet_count() == expected.len()
        });
        assert!(b.sink.packets() == expected, "order and contents over {ip}");
        assert!(
            b.sink
                .events
                .iter()
                .all(|event| matches!(event, Event::Packet(..)))
        );
        let carried: usize = expected
            .iter()
            .map(|(_, body)| HEADER_LEN + body.len())
            .sum();
        let figures = b.port.figures(at_b, b.clock.now()).unwrap();
        assert!(figures.received >= Some(carried as u64), "{figures:?}");
        until(&mut a, &mut b, "all is acknowledged", |a, _| {
            let figures = a.port.figures(at_a, a.clock.now()).unwrap();
            figures.sent >= Some(carried as u64)
        });
    }
}

#[test]
fn full_link_blocks_loses_nothing_and_reports_room() {
    let (mut a, mut b, at_a, _) = joined();
    let body = pattern(40_000, 1);
    let mut sent = 0;
    // The other end does not read.
    while let Ok(how) = a.send(at_a, sent, &body) {
        assert_eq!(how, Sent::Whole);
        sent += 1;
        assert!(sent < 100_000, "a link has an end");
    }
    assert_eq!(a.send(at_a, 0, b"x"), Err(SendError::WouldBlock));
    for _ in 0..100 {
        a.poll();
    }
    assert_eq!(a.sink.writables(), 0);
    until(&mut a, &mut b, "there is room again", |a, _| {
        a.sink.writables() == 1
    });
    assert_eq!(a.sink.events.last(), Some(&Event::Writable(at_a)));
    a.send(at_a, sent, b"last").expect("there is room");
    until(&mut a, &mut b, "all arrive", |_, b| {
        b.sink.packet_count() as u64 == sent + 1
    });
    let packets = b.sink.packets();
    assert!(
        packets[..sent as usize]
            .iter()
            .enumerate()
            .all(|(at, (tag, got))| { *tag == at as u64 && *got == body })
    );
    assert_eq!(packets[sent as usize], (sent, b"last".to_vec()));
}

#[test]
fn an_armed_port_reports_what_comes_and_the_next_poll_finds_it() {
    let (mut a, mut b, at_a, _) = joined();
    for round in 0..50 {
        sleepless(&mut b);
        assert!(!b.readable(0), "nothing has come");
        a.send(at_a, round, b"wake").unwrap();
        assert!(b.readable(5000), "a packet wakes");
        b.port.disarm();
        b.poll();
        assert_eq!(
            b.sink.packet_count() as u64,
            round + 1,
            "the first poll finds it"
        );
    }
}

#[test]
fn a_link_that_was_lively_still_wakes_a_port_that_sleeps() {
    let (mut a, mut b, at_a, _) = joined();
    for round in 0..5 {
        for tag in 0..300 {
            a.send(at_a, tag, b"lively").unwrap();
            let wanted = b.sink.packet_count() + 1;
            arrives(&mut a, &mut b, wanted);
        }
        sleepless(&mut b);
        assert!(!b.readable(0), "nothing has come");
        a.send(at_a, round, b"wake").unwrap();
        assert!(b.readable(5000), "a packet wakes");
        let wanted = b.sink.packet_count() + 1;
        b.poll();
        assert_eq!(b.sink.packet_count(), wanted, "the first poll finds it");
    }
}

#[test]
fn link_quiet_after_activity_is_polled_again() {
    let (mut a, mut b, at_a, _) = joined();
    for tag in 0..300 {
        a.send(at_a, tag, b"lively").unwrap();
        until(&mut a, &mut b, "it arrives", |_, b| {
            b.sink.packet_count() as u64 == tag + 1
        });
    }
    for _ in 0..20_000 {
        b.poll();
    }
    a.send(at_a, 300, b"again").unwrap();
    arrives(&mut a, &mut b, 301);
}

#[test]
fn an_armed_port_that_waits_for_room_wakes_when_there_is_some() {
    let (mut a, mut b, at_a, _) = joined();
    let body = pattern(40_000, 1);
    while a.send(at_a, 1, &body).is_ok() {}
    sleepless(&mut a);
    assert!(!a.readable(0), "there is no room");
    for _ in 0..1000 {
        b.poll();
    }
    assert!(a.readable(5000), "room wakes");
    until(&mut a, &mut b, "the endpoint is told", |a, _| {
        a.sink.writables() == 1
    });
    until(&mut a, &mut b, "the port is done", |a, b| {
        b.poll();
        a.port.arm()
    });
    assert!(!a.readable(0), "having room does not keep it awake");
}

#[test]
fn a_budget_that_ends_early_leaves_a_port_that_cannot_sleep() {
    let (mut a, mut b, at_a, _) = joined();
    for tag in 0..20 {
        a.send(at_a, tag, b"body").unwrap();
    }
    let mut seen = 0;
    until(&mut a, &mut b, "a poll ends early", |_, b| {
        let _ = b.port.poll(b.clock.now(), 4, &mut b.sink);
        let new = b.sink.packet_count() - seen;
        seen += new;
        assert!(new <= 4, "{new} packets with a budget of 4");
        seen > 0 && seen < 20
    });
    assert!(!b.port.arm(), "packets are staged");
    until(&mut a, &mut b, "all arrive", |_, b| {
        b.sink.packet_count() == 20
    });
}

/// Polls until the port may sleep.
fn sleepless(node: &mut Node) {
    until_one(node, "it may sleep", |node| node.port.arm());
}

#[test]
fn a_talkative_link_does_not_starve_a_quiet_one() {
    let (mut a, mut b, loud, _) = joined();
    let quiet = a.connect(4, b.port.local_port());
    until(&mut a, &mut b, "it is up", |a, _| a.sink.is_up(quiet));
    while a.send(loud, 1, &[7; 100]).is_ok() {}
    a.send(quiet, 2, b"me too").unwrap();
    let mut before = 0;
    until(&mut a, &mut b, "the quiet one is heard", |_, b| {
        let packets = b.sink.packets();
        before = packets.len();
        packets.iter().any(|(tag, _)| *tag == 2)
    });
    assert!(before < 10_000, "{before} packets were served first");
}
