//! Messages over the rdm port, over whatever provider this machine has.
//!
//! Among them every scenario of libfabric's own functional tests in which one of its providers
//! hangs, fails or crashes: there each is a test of the provider, here of what we make of it.

use crate::direct::nodes::{Nodes, pattern};
use mx_proto::{Config, MatchBits, MatchMask, Status};
use mx_sim::Cancelled;

#[test]
fn messages_of_every_size_cross_in_both_directions() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = [nodes.connect(0, 1), nodes.connect(1, 0)];
    let sizes = [
        0, 1, 8, 9, 63, 64, 65, 4096, 16_300, 16_336, 16_337, 65_536, 1_000_003, 5_000_000,
    ];
    for round in 0..3 {
        for (n, size) in sizes.into_iter().enumerate() {
            for from in [0, 1] {
                let bits = n as u64;
                let sent = pattern(size, bits + round);
                let mut got = vec![0xee; size + 1];
                nodes.post(1 - from, bits, &mut got, 7);
                nodes.send_all(from, to[from], bits, &sent);
                let done = nodes.wait(1 - from, 7);
                let transferred = done.transferred as usize;
                assert_eq!((done.status, transferred), (Status::Success, size));
                assert!(got[..size] == sent[..], "round {round}, size {size}");
                assert_eq!(got[size], 0xee, "a byte behind the message");
            }
        }
    }
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
    // Too short a buffer says so, for the small and for the large.
    nodes.send(0, to, 20, &large, 3).unwrap();
    let mut short = [0; 10];
    for bits in [10, 20] {
        let done = nodes.receive(1, bits, &mut short);
        assert_eq!((done.status, done.transferred), (Status::Truncated, 10));
    }
    assert_eq!(nodes.wait(0, 2).status, Status::Success);
    assert_eq!(nodes.wait(0, 3).status, Status::Truncated);
}

/// `recv_cancel`, and what no provider does: sends.
#[test]
fn receives_and_sends_are_cancelled_at_once() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = nodes.connect(0, 1);
    let mut buffer = vec![0; 4 << 20];
    let id = nodes.post(1, 5, &mut buffer, 1).unwrap();
    assert_eq!(nodes.cancel(1, id), Cancelled::Withdrawn);
    let message = pattern(4 << 20, 1);
    let id = nodes.send(0, to, 5, &message, 2).unwrap();
    assert_eq!(nodes.cancel(0, id), Cancelled::Withdrawn);
    drop(message);
    // And the peer is as good as before.
    let message = pattern(4 << 20, 3);
    nodes.post(1, 5, &mut buffer, 3);
    nodes.send_all(0, to, 5, &message);
    assert_eq!(nodes.wait(1, 3).status, Status::Success);
    assert!(buffer == message);
}

/// `unexpected_msg`: 1.17's net hangs at the second, 2.x's tcp at the 65th.
#[test]
fn ten_thousand_unexpected_messages_neither_stall_nor_exceed_the_limit() {
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
    // Another message of another kind is not held up by them for ever: in the order sent.
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
        // Half of them part, half of them just vanish and come back.
        if life % 2 == 0 {
            nodes.end(0).close();
            for _ in 0..20 {
                nodes.turn();
            }
        }
        nodes.restart(0);
    }
}

/// `multi_ep`: 1.17's shm hangs, 2.x's tcp has no answer.
#[test]
fn many_endpoints_in_one_process_talk_to_each_other() {
    let count = 6;
    let Some(mut nodes) = Nodes::new(count) else {
        return;
    };
    let mut got = vec![0; 40_000];
    for from in 0..count {
        for to in (0..count).filter(|to| *to != from) {
            let remote = nodes.connect(from, to);
            let message = pattern(40_000, (from * count + to) as u64);
            nodes.send_all(from, remote, from as u64, &message[..33]);
            let done = nodes.receive(to, from as u64, &mut got[..33]);
            assert_eq!(done.status, Status::Success);
            nodes.post(to, from as u64, &mut got, 5);
            nodes.send_all(from, remote, from as u64, &message);
            assert_eq!(nodes.wait(to, 5).status, Status::Success);
            assert!(got == message, "{from} to {to}");
        }
    }
}

/// `inject_test`: 2.x's shm and rxd fail.
#[test]
fn the_bytes_of_a_small_send_may_change_as_soon_as_it_is_complete() {
    let Some(mut nodes) = Nodes::new(2) else {
        return;
    };
    let to = nodes.connect(0, 1);
    let mut message = [0u8; 8];
    for n in 0..400u64 {
        message = n.to_le_bytes();
        nodes.send_all(0, to, 1, &message);
        message = [0xff; 8];
    }
    assert_eq!(message, [0xff; 8]);
    for n in 0..400u64 {
        let mut got = [0; 8];
        assert_eq!(nodes.receive(1, 1, &mut got).status, Status::Success);
        assert_eq!(u64::from_le_bytes(got), n);
    }
}

/// `flood`.
#[test]
fn a_flood_from_several_senders_arrives_whole_and_in_order() {
    let Some(mut nodes) = Nodes::new(4) else {
        return;
    };
    let to: Vec<_> = (1..4).map(|from| nodes.connect(from, 0)).collect();
    let count = 3_000u64;
    let messages: Vec<[u8; 8]> = (0..count).map(u64::to_le_bytes).collect();
    for (n, message) in messages.iter().enumerate() {
        for (k, remote) in to.iter().enumerate() {
            nodes.send(k + 1, *remote, k as u64, message, n as u64);
        }
    }
    for message in &messages {
        for k in 0..3 {
            let mut got = [0; 8];
            assert_eq!(nodes.receive(0, k, &mut got).status, Status::Success);
            assert_eq!(got, *message);
        }
    }
}
