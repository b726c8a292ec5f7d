//! Packets that are held back and sent together.

use crate::tcp_common::*;
use mx_proto::port::{Close, LinkControl, SendError};

/// Sends packets while they may be held. Returns the packets that have to arrive.
fn held(a: &mut Node, link: mx_proto::LinkId, count: u64) -> Vec<(u64, Vec<u8>)> {
    a.port.hold(true);
    let packets = Vec::from_iter((0..count).map(|tag| (tag, pattern(tag as usize % 60, tag))));
    for (tag, body) in &packets {
        a.send(link, *tag, body).unwrap();
    }
    a.port.hold(false);
    packets
}

#[test]
fn held_packets_leave_when_they_are_to_and_not_before() {
    let (mut a, mut b, at_a, _) = joined();
    let expected = held(&mut a, at_a, 100);
    assert!(a.port.holds());
    for _ in 0..20 {
        b.poll();
    }
    assert_eq!(b.sink.packet_count(), 0);
    a.port.send_held();
    assert!(!a.port.holds());
    // The sender is not polled.
    while b.sink.packet_count() < expected.len() {
        b.poll();
    }
    assert!(b.sink.packets() == expected);
}

#[test]
fn everything_else_leaves_behind_held_packets() {
    let ends: [fn(&mut Node, mx_proto::LinkId); 5] = [
        |a, link| assert!(a.send(link, 1000, &pattern(10, 1000)).is_ok()),
        |a, link| assert!(a.send(link, 1000, &pattern(40_000, 1000)).is_ok()),
        |a, _| {
            a.poll();
        },
        |a, _| {
            a.port.arm();
        },
        |a, link| a.port.close(link, Close::Flush),
    ];
    for (nth, end) in ends.into_iter().enumerate() {
        let (mut a, mut b, at_a, _) = joined();
        let expected = held(&mut a, at_a, 100);
        end(&mut a, at_a);
        assert!(!a.port.holds(), "{nth}");
        let more = usize::from(nth < 2);
        while b.sink.packet_count() < expected.len() + more {
            b.poll();
        }
        let got = b.sink.packets();
        assert!(got[..expected.len()] == expected, "{nth}");
        assert!(got[expected.len()..].iter().all(|(tag, _)| *tag == 1000));
    }
}

#[test]
fn a_packet_that_does_not_fit_ends_what_is_held() {
    let (mut a, mut b, at_a, _) = joined();
    a.port.hold(true);
    let sizes = [4000, 4000, 4000, 4000, 4000, 4060, 4065, 10];
    for (tag, size) in sizes.into_iter().enumerate() {
        a.send(at_a, tag as u64, &pattern(size, tag as u64))
            .unwrap();
    }
    assert!(a.port.holds(), "the last one");
    until(&mut a, &mut b, "all arrive", |_, b| {
        b.sink.packet_count() == sizes.len()
    });
    for (tag, (got, body)) in b.sink.packets().into_iter().enumerate() {
        assert_eq!((got, body), (tag as u64, pattern(sizes[tag], tag as u64)));
    }
}

#[test]
fn held_packets_that_the_kernel_does_not_take_follow_when_it_does() {
    let (mut a, mut b, at_a, _) = joined();
    let mut sent = Vec::new();
    // The other end does not read.
    'full: loop {
        a.port.hold(true);
        for _ in 0..200 {
            let tag = sent.len() as u64;
            match a.send(at_a, tag, &pattern(64, tag)) {
                Ok(_) => sent.push((tag, pattern(64, tag))),
                Err(error) => {
                    assert_eq!(error, SendError::WouldBlock);
                    break 'full;
                }
            }
        }
        a.port.hold(false);
        a.port.send_held();
        assert!(sent.len() < 1_000_000, "a link has an end");
    }
    a.port.hold(false);
    until(&mut a, &mut b, "all arrive", |_, b| {
        b.sink.packet_count() == sent.len()
    });
    assert!(b.sink.packets() == sent);
}
