//! Messages over the rdm port, over the provider of this machine.
//!
//! Among them is every scenario of libfabric's own functional tests in which one of its providers
//! hangs, fails or crashes. There each tests the provider, here our use of it.

use super::shapes::converse;
use crate::direct::nodes::{Nodes, pattern};
use mx_proto::{Config, MatchBits, MatchMask, Status};

#[test]
fn messages_of_every_size_cross_in_both_directions() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let sizes = [
        0, 1, 8, 9, 63, 64, 65, 4096, 16_300, 16_336, 16_337, 65_536, 1_000_003, 5_000_000,
    ];
    converse(&mut nodes, &sizes, 3);
}

#[test]
fn both_sides_send_large_before_either_receives() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = [nodes.connect(0, 1), nodes.connect(1, 0)];
    let size = 4 << 20;
    let sent = [pattern(size, 1), pattern(size, 2)];
    for round in 0..6 {
        for from in [0, 1] {
            assert!(nodes.send(from, to[from], round, &sent[from], 8).is_some());
        }
        for _ in 0..100 {
            nodes.turn();
        }
        let mut got = [vec![0; size], vec![0; size]];
        let [a, b] = &mut got;
        nodes.post(0, round, a, 7);
        nodes.post(1, round, b, 7);
        for side in [0, 1] {
            assert_eq!(nodes.wait(side, 7).status, Status::Success);
            assert_eq!(nodes.wait(side, 8).status, Status::Success);
        }
        assert!(got[0] == sent[1] && got[1] == sent[0], "round {round}");
    }
}

/// `rdm_tagged_peek`: 1.17's shm crashes.
#[test]
fn a_message_is_seen_before_it_is_received_and_stays() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = nodes.connect(0, 1);
    let (small, large) = (pattern(500, 1), pattern(300_000, 2));
    nodes.send(0, to, 10, &small, 1);
    nodes.send(0, to, 20, &large, 2).unwrap();
    for (bits, len) in [(20, 300_000), (10, 500)] {
        for _ in 0..3 {
            let seen = nodes.until(|nodes| {
                let any = MatchMask::EXACT;
                nodes.end(1).probe(MatchBits(bits), any)
            });
            assert_eq!((seen.bits, seen.length), (MatchBits(bits), len));
        }
        assert!(
            nodes
                .end(1)
                .probe(MatchBits(30), MatchMask::EXACT)
                .is_none()
        );
    }
    let mut got = vec![0; 300_000];
    assert_eq!(nodes.receive(1, 20, &mut got).status, Status::Success);
    assert!(got == large);
    // A receive into a short buffer is truncated, for a small message and for a large one.
    nodes.send(0, to, 20, &large, 3).unwrap();
    let mut short = [0; 10];
    for bits in [10, 20] {
        let done = nodes.receive(1, bits, &mut short);
        assert_eq!((done.status, done.transferred), (Status::Truncated, 10));
    }
    assert_eq!(nodes.wait(0, 2).status, Status::Success);
    assert_eq!(nodes.wait(0, 3).status, Status::Truncated);
}

/// `unexpected_msg`: 1.17's net hangs at the second, 2.x's tcp at the 65th.
#[test]
fn ten_thousand_unexpected_messages_stay_within_the_limit() {
    let limit = 8 << 20;
    let config = Config {
        unexpected_bytes: limit,
        ..Config::default()
    };
    let Some(mut nodes) = Nodes::with(2, config) else {
        return;
    };
    let to = nodes.connect(0, 1);
    let count = 10_000u64;
    let messages: Vec<Vec<u8>> = (0..count).map(|n| pattern(4096, n)).collect();
    let mut most = 0;
    for (n, message) in messages.iter().enumerate() {
        nodes.send(0, to, 1000 + n as u64, message, n as u64);
        nodes.turn();
        most = most.max(nodes.end(1).unexpected_bytes());
    }
    for _ in 0..10_000 {
        nodes.turn();
        most = most.max(nodes.end(1).unexpected_bytes());
    }
    assert!(most > 0 && most <= limit, "{most} bytes");
    // All of them are received in the order sent.
    let mut got = vec![0; 4096];
    for (n, message) in messages.iter().enumerate() {
        let done = nodes.receive(1, 1000 + n as u64, &mut got);
        assert_eq!(done.status, Status::Success);
        assert!(got == *message, "message {n}");
    }
}

/// `multi_recv`.
#[test]
fn receive_buffers_are_used_again_for_as_long_as_messages_come() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = nodes.connect(0, 1);
    let message = pattern(15_000, 9);
    let mut got = vec![0; 15_000];
    for n in 0..2_000u64 {
        let len = (n as usize * 37) % 15_000;
        nodes.post(1, 1, &mut got, n);
        nodes.send_all(0, to, 1, &message[..len]);
        let done = nodes.wait(1, n);
        assert_eq!((done.status, done.length as usize), (Status::Success, len));
        assert!(got[..len] == message[..len]);
    }
}

/// `rdm_multi_client`: 1.17's shm hangs.
#[test]
fn one_client_after_the_other_comes_to_the_same_server() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let mut got = vec![0; 70_000];
    for life in 0..8 {
        let to = nodes.connect(0, 1);
        let message = pattern(70_000, life);
        nodes.send_all(0, to, 1, &message[..100]);
        assert_eq!(nodes.receive(1, 1, &mut got[..100]).status, Status::Success);
        nodes.post(1, 2, &mut got, 5);
        nodes.send_all(0, to, 2, &message);
        assert_eq!(nodes.wait(1, 5).status, Status::Success);
        assert!(got == message, "life {life}");
        // Half of the clients disconnect, the others vanish and come back.
        if life % 2 == 0 {
            nodes.end(0).close();
            for _ in 0..20 {
                nodes.turn();
            }
        }
        nodes.restart(0);
    }
}
