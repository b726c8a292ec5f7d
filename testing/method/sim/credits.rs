//! Credits for unexpected messages, with whole methods on the simulated network: no message is lost
//! or reordered, a server's memory keeps its limit, and no peer suffers from another.

use crate::rig::Rig;
use bmi_method::match_layout::{MessageType, VERSION, bits};
use bmi_method::peer::handshake::ConnReq;
use mx_proto::flow::FlowStats;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Makes a server that receives nothing until it is told to, and clients.
fn server_and(rig: &mut Rig, clients: usize) -> (NodeId, Vec<NodeId>) {
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..clients).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        rig.introduce(*client, server);
    }
    rig.peek(server).fetching = false;
    (server, clients)
}

/// Checks that all credits are back, and none is held by a message.
fn assert_settled(rig: &mut Rig, node: NodeId) {
    let stats = flow(rig, node);
    assert_eq!((stats.drawn, stats.tombstones), (0, 0), "{stats:?}");
    assert_eq!(stats.total, stats.free + stats.lent, "{stats:?}");
    assert_eq!(stats.violations, 0, "{stats:?}");
}

fn flow(rig: &mut Rig, node: NodeId) -> FlowStats {
    rig.peek(node).method.endpoint().flow_stats()
}

/// Returns the bytes of unexpected messages at a node.
fn bytes(rig: &mut Rig, node: NodeId) -> usize {
    rig.peek(node).method.endpoint().inbox_stats().bytes
}

#[test]
fn whatever_clients_send_a_server_holds_no_more_than_was_set() {
    for (seed, len) in [(2, 0), (3, 200), (4, 4_000), (5, 32_000), (6, 100_000)] {
        let mut rig = Rig::new(seed);
        let memory = 300_000;
        rig.limit_unexpected(memory, 100_000);
        let (server, clients) = server_and(&mut rig, 40);
        let mut sent = Vec::new();
        for client in &clients {
            for n in 0..50u8 {
                let body = vec![n; len];
                let label = rig.host(*client).send_unexpected(server, n.into(), &body);
                sent.push((*client, label));
            }
        }
        for _ in 0..50 {
            rig.run_for(Duration::from_millis(2));
            // And a message in each peer's slot.
            let held = bytes(&mut rig, server);
            assert!(
                held <= memory + 40 * 192,
                "{held} bytes of messages of {len}"
            );
        }
        rig.host(server).fetching = true;
        rig.run("all of them", |rig| rig.peek(server).got.len() == 40 * 50);
        for (client, label) in sent {
            assert_eq!(rig.wait(client, label), 0);
        }
        let mut next = std::collections::HashMap::new();
        for got in &rig.peek(server).got {
            let next = next.entry(got.addr).or_insert(0);
            assert_eq!((got.tag, got.bytes.len()), (*next, len));
            *next += 1;
        }
        rig.run_for(Duration::from_millis(100));
        assert_settled(&mut rig, server);
    }
}

#[test]
fn single_requests_do_not_wait_for_twenty_flooders() {
    const PEERS: usize = 21;
    const AHEAD: i32 = 60;
    // A request is reported after one turn of every peer if its sender has credits. Without credits
    // it takes one turn more until some are free, and another until it is pulled.
    for (seed, memory, flood, request, turns) in [
        (40, 64 << 20, 8, 8, 1),
        (41, 64 << 20, 4_000, 300, 1),
        (42, 1 << 20, 4_000, 300, 1),
        (43, 1 << 20, 40_000, 8, 1),
        (44, 1 << 20, 40_000, 40_000, 3),
        (45, 300_000, 0, 40_000, 3),
        (46, 300_000, 100_000, 100_000, 3),
        (47, 300_000, 4_000, 4_000, 3),
        (48, 300_000, 0, 0, 1),
    ] {
        let mut rig = Rig::new(seed);
        rig.limit_unexpected(memory, 100_000);
        let (server, clients) = server_and(&mut rig, PEERS);
        let (honest, flooders) = clients.split_last().unwrap();
        for flooder in flooders {
            for tag in 0..AHEAD {
                rig.host(*flooder)
                    .send_unexpected(server, tag, &vec![1; flood]);
            }
        }
        rig.run_for(Duration::from_millis(50));
        let mut worst = 0;
        for round in 0..20 {
            let tag = AHEAD + round;
            let before = rig.peek(server).got.len();
            rig.host(*honest)
                .send_unexpected(server, tag, &vec![2; request]);
            rig.run_for(Duration::from_millis(1));
            while rig.peek(server).got.last().is_none_or(|got| got.tag != tag) {
                rig.host(server).fetch_up_to(1);
                rig.run_for(Duration::from_millis(1));
            }
            worst = worst.max(rig.peek(server).got.len() - before);
        }
        assert!(
            worst <= turns * PEERS,
            "{worst} messages of {flood} bytes for one of {request}"
        );
        rig.host(server).fetching = true;
        rig.run("all of them", |rig| {
            rig.peek(server).got.len() == flooders.len() * AHEAD as usize + 20
        });
        let mut next = std::collections::HashMap::new();
        for got in rig.peek(server).got.iter().filter(|got| got.tag < AHEAD) {
            let next = next.entry(got.addr).or_insert(0);
            assert_eq!(got.tag, *next);
            *next += 1;
        }
        rig.run_for(Duration::from_millis(100));
        assert_settled(&mut rig, server);
    }
}

#[test]
fn greedy_client_does_not_double_the_wait_of_others() {
    let latency = |greedy: bool| {
        let mut rig = Rig::new(30);
        let (server, clients) = server_and(&mut rig, 100);
        rig.host(server).fetching = true;
        let (hog, others) = clients.split_first().unwrap();
        let mut worst = Duration::ZERO;
        for round in 0..20 {
            if greedy {
                for _ in 0..200 {
                    rig.host(*hog).send_unexpected(server, 0, &[0; 4000]);
                }
            }
            let begin = rig.now();
            let sent: Vec<_> = others
                .iter()
                .map(|client| {
                    (
                        *client,
                        rig.host(*client).send_unexpected(server, 1 + round, b"x"),
                    )
                })
                .collect();
            let done = 99 * (round as usize + 1);
            rig.run("the others' requests", |rig| {
                let got = rig.peek(server).got.iter();
                got.filter(|got| got.tag != 0 && got.tag < 1000).count() == done
            });
            worst = worst.max(rig.now().since(begin));
            for (client, label) in sent {
                assert_eq!(rig.wait(client, label), 0);
            }
        }
        worst
    };
    let (alone, with) = (latency(false), latency(true));
    assert!(with <= alone * 2, "{with:?} instead of {alone:?}");
}

/// Makes a stranger that has connected and been told its id.
fn caller(rig: &mut Rig, server: NodeId) -> (NodeId, u32) {
    let stranger = rig.add_stranger();
    rig.stranger(stranger).connect(server);
    rig.run("the connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    call(rig, stranger, 5);
    rig.run("the answer", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let bits = rig.peek_stranger(stranger).inbox().messages[0].1;
    (stranger, (bits.0 >> 32) as u32 & 0xf_ffff)
}

fn call(rig: &mut Rig, stranger: NodeId, id: u32) {
    let body = ConnReq::emit(&format!("mx://node{stranger}:0:{stranger}"));
    let bits = bits(MessageType::ConnReq, id, VERSION).0;
    say(rig, stranger, bits, &body);
}

/// Sends a message, unless the stranger has been disconnected.
fn say(rig: &mut Rig, stranger: NodeId, bits: u64, bytes: &[u8]) {
    let stranger = rig.stranger(stranger);
    let to = stranger.connected.expect("connected before");
    if stranger.endpoint.remote_context(to).is_some() {
        stranger.send_to(to, bits, bytes);
    }
}

#[test]
fn who_calls_again_and_again_is_forgiven_no_more() {
    let mut rig = Rig::new(6);
    let server = rig.add(Profile::default());
    let (peer, _) = caller(&mut rig, server);
    for _ in 0..40 {
        if rig.peek_stranger(peer).is_connected() {
            call(&mut rig, peer, 5);
        }
        rig.run_for(MS);
    }
    assert_eq!(flow(&mut rig, server).remotes, 0);
}

#[test]
fn a_peer_that_is_refused_again_and_again_is_disconnected() {
    let forgiven = 16;
    // A stranger, and a connected peer.
    for known in [false, true] {
        for (version, id, body) in [
            (VERSION + 1, 5, &b"mx://node9:0:9\0"[..]),
            (VERSION, 0, b"mx://node9:0:9\0"),
            (VERSION, 5, b"\xff"),
        ] {
            let mut rig = Rig::new(16);
            let server = rig.add(Profile::default());
            let stranger = if known {
                caller(&mut rig, server).0
            } else {
                let stranger = rig.add_stranger();
                rig.stranger(stranger).connect(server);
                rig.run("the connect", |rig| {
                    rig.peek_stranger(stranger).connected.is_some()
                });
                stranger
            };
            let before = rig.peek_stranger(stranger).inbox().messages.len();
            for _ in 0..forgiven {
                say(
                    &mut rig,
                    stranger,
                    bits(MessageType::ConnReq, id, version).0,
                    body,
                );
                rig.run_for(MS);
            }
            let answers = rig.peek_stranger(stranger).inbox().messages.len() - before;
            assert_eq!(answers, forgiven);
            assert!(rig.peek_stranger(stranger).is_connected());
            say(
                &mut rig,
                stranger,
                bits(MessageType::ConnReq, id, version).0,
                body,
            );
            rig.run_for(MS);
            assert!(!rig.peek_stranger(stranger).is_connected());
            assert_eq!(flow(&mut rig, server).remotes, 0);
        }
    }
}
