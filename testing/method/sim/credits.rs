//! Credits for unexpected messages, with whole methods on the simulated network: nothing is lost or
//! reordered, a server's memory is what was set, and no peer suffers for another.

use crate::rig::{NIC, OTHER_NIC, Rig};
use bmi_method::abi::constants::*;
use bmi_method::match_layout::{MessageType, VERSION, bits};
use bmi_method::peer::handshake::ConnReq;
use mx_proto::flow::FlowStats;
use mx_proto::{Account, RemoteId};
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::time::Duration;

const REQUEST: i32 = 7;

const MS: Duration = Duration::from_millis(1);

/// A server that fetches nothing until it is told to, and clients.
fn server_and(rig: &mut Rig, clients: usize) -> (NodeId, Vec<NodeId>) {
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..clients).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        rig.introduce(*client, server);
    }
    rig.peek(server).fetching = false;
    (server, clients)
}

/// A server whose link to its client takes no more than so many answers of 100 bytes, or an eighth of
/// that of 900, until the client reads, which it does in two milliseconds.
fn narrow_link(rig: &mut Rig, answers: usize) -> (NodeId, NodeId) {
    let server = rig.add(Profile {
        room: answers * 132,
        ..Profile::default()
    });
    let client = rig.add(Profile::default());
    rig.introduce(client, server);
    rig.peek(server).fetching = false;
    rig.cluster.stall(client, Duration::from_millis(2));
    (server, client)
}

fn waiting(rig: &mut Rig, server: NodeId) -> usize {
    rig.peek(server).method.unexpected()
}

/// All credits are where they belong, and none is held by a message.
fn assert_settled(rig: &mut Rig, node: NodeId) {
    let stats = flow(rig, node);
    assert_eq!((stats.drawn, stats.tombstones), (0, 0), "{stats:?}");
    assert_eq!(stats.total, stats.free + stats.lent, "{stats:?}");
    assert_eq!(stats.violations, 0, "{stats:?}");
}

fn flow(rig: &mut Rig, node: NodeId) -> FlowStats {
    rig.peek(node).method.endpoint().flow_stats()
}

/// Bytes of unexpected messages that a node has.
fn bytes(rig: &mut Rig, node: NodeId) -> usize {
    rig.peek(node).method.endpoint().inbox_stats().bytes
}

#[test]
fn a_sender_without_credits_queues_in_order_and_loses_nothing() {
    let mut rig = Rig::new(1);
    rig.endpoint.first_credits = 5;
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    let sent: Vec<_> = (0..200)
        .map(|tag| rig.host(client).send_unexpected(server, tag, b"request"))
        .collect();
    rig.run_for(Duration::from_millis(100));
    // More are lent as they are wanted; all of them are paid for.
    let held = waiting(&mut rig, server);
    let credit_limit = flow(&mut rig, server).lent;
    assert!(
        (5..=credit_limit as usize + 1).contains(&held),
        "{held} of {credit_limit}"
    );
    rig.host(server).fetching = true;
    rig.run("all of them", |rig| rig.peek(server).got.len() == 200);
    let tags: Vec<_> = rig.peek(server).got.iter().map(|got| got.tag).collect();
    assert_eq!(tags, (0..200).collect::<Vec<_>>());
    for label in sent {
        assert_eq!(rig.wait(client, label), 0);
    }
    rig.run_for(Duration::from_millis(100));
    assert_settled(&mut rig, server);
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
            // And a credit in each peer's slot.
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
fn who_asks_one_thing_at_a_time_does_not_wait_for_twenty_who_flood() {
    const PEERS: usize = 21;
    const AHEAD: i32 = 60;
    // One turn of every peer passes until it is handed out, where its sender can pay for it; where
    // that one is out of credits as well, one until some are free and one until it is pulled.
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
fn expected_messages_pass_requests_that_have_no_credits() {
    let mut rig = Rig::new(7);
    rig.lend(1);
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    // With a credit, and in the slot.
    for _ in 0..2 {
        let taken = rig.host(client).send_unexpected(server, 1, b"taken");
        assert_eq!(rig.wait(client, taken), 0);
    }
    let second = rig.host(client).send_unexpected(server, 2, b"waits");
    let data = rig.host(client).send(server, 3, b"data");
    let receive = rig.host(server).recv(client, 3, 10);
    assert_eq!(rig.wait(server, receive), 0);
    assert_eq!(rig.wait(client, data), 0);
    assert_eq!(rig.peek(client).error(second), None);
    rig.host(server).fetching = true;
    assert_eq!(rig.wait(client, second), 0);
}

#[test]
fn a_request_that_is_called_off_while_it_waits_takes_no_credits_with_it() {
    let mut rig = Rig::new(8);
    rig.endpoint.first_credits = 2;
    rig.limit_unexpected(200_000, 40_000);
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    for round in 0..30 {
        let labels: Vec<_> = [10, 40_000, 10, 0]
            .iter()
            .map(|len| {
                rig.host(client)
                    .send_unexpected(server, round, &vec![1; *len])
            })
            .collect();
        rig.run_for(Duration::from_micros(u64::from(round as u32) * 3));
        for label in labels.iter().rev() {
            rig.host(client).cancel(*label);
        }
        for label in labels {
            let error = rig.wait(client, label);
            assert!([0, -BMI_ECANCEL].contains(&error), "{error}");
        }
        rig.host(server).fetching = true;
        rig.run_for(Duration::from_millis(1));
        rig.host(server).fetching = false;
    }
    rig.host(server).fetching = true;
    let last = rig.host(client).send_unexpected(server, 99, &[2; 300]);
    assert_eq!(rig.wait(client, last), 0);
    rig.run("the last one", |rig| {
        rig.peek(server).got.last().is_some_and(|got| got.tag == 99)
    });
    rig.run_for(Duration::from_millis(100));
    assert_settled(&mut rig, server);
}

#[test]
fn replies_take_credits_home_so_that_a_client_at_work_never_stalls() {
    let mut rig = Rig::new(9);
    rig.endpoint.first_credits = 4;
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    rig.host(server).fetching = true;
    for n in 0..100 {
        let answer = rig.host(client).recv(server, n, 10);
        rig.host(client).send_unexpected(server, n, b"request");
        rig.run("the request", |rig| rig.peek(server).got.len() > n as usize);
        rig.host(server).send(client, n, b"answer");
        assert_eq!(rig.wait(client, answer), 0);
    }
    let stats = flow(&mut rig, server);
    assert_eq!((stats.wants, stats.revoked), (0, 0), "{stats:?}");
}

#[test]
fn a_client_that_asks_for_everything_does_not_double_what_others_wait() {
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

#[test]
fn two_servers_lend_to_each_other() {
    let mut rig = Rig::new(31);
    rig.endpoint.first_credits = 3;
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    // Both begin at once.
    let mut sent = Vec::new();
    for n in 0..100 {
        sent.push((a, rig.host(a).send_unexpected(b, n, &[1; 700])));
        sent.push((b, rig.host(b).send_unexpected(a, n, &[2; 700])));
    }
    for (node, label) in sent {
        assert_eq!(rig.wait(node, label), 0);
    }
    for node in [a, b] {
        rig.run("all of them", |rig| rig.peek(node).got.len() == 100);
        assert_settled(&mut rig, node);
    }
}

#[test]
fn a_client_that_dies_and_comes_back_begins_with_a_new_credit_limit() {
    let mut rig = Rig::new(32);
    rig.endpoint.first_credits = 8;
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    for round in 0..20 {
        for _ in 0..30 {
            rig.host(client).send_unexpected(server, round, &[0; 900]);
        }
        rig.run_for(Duration::from_micros(50 * u64::from(round as u32 % 5)));
        rig.kill(client);
        rig.run_for(Duration::from_millis(1));
        rig.restart(client, Profile::default());
    }
    rig.host(server).fetching = true;
    let label = rig.host(client).send_unexpected(server, 99, b"here again");
    assert_eq!(rig.wait(client, label), 0);
    rig.run("it", |rig| {
        rig.peek(server).got.last().is_some_and(|got| got.tag == 99)
    });
    rig.run_for(Duration::from_millis(100));
    assert_settled(&mut rig, server);
}

/// A peer of its own kind, that has connected and been told its id.
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

/// Sends something, unless it has been disconnected.
fn say(rig: &mut Rig, stranger: NodeId, bits: u64, bytes: &[u8]) {
    let stranger = rig.stranger(stranger);
    let to = stranger.connected.expect("connected before");
    if stranger.endpoint.remote_context(to).is_some() {
        stranger.send_to(to, bits, bytes);
    }
}

/// A host that has been made to call a stranger, which has not answered: the stranger, its remote,
/// and its id at the host.
fn called(rig: &mut Rig, host: NodeId) -> (NodeId, RemoteId, u32) {
    let stranger = rig.add_stranger();
    rig.host(host).send_unexpected(stranger, 1, b"first");
    rig.run("the call", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let (remote, bits, _) = rig.peek_stranger(stranger).inbox().messages[0];
    (stranger, remote, (bits.0 >> 32) as u32 & 0xf_ffff)
}

#[test]
fn a_peer_that_was_called_may_send_right_behind_its_answer() {
    let mut rig = Rig::new(1);
    let server = rig.add(Profile::default());
    let (peer, remote, id) = called(&mut rig, server);
    let stranger = rig.stranger(peer);
    let ack = bits(MessageType::ConnAck, 5, VERSION).0;
    stranger.send_to(remote, ack, b"");
    for tag in 0..60 {
        let unexpected = bits(MessageType::Unexpected, id, tag).0;
        stranger.send_to(remote, unexpected, &[tag as u8; 900]);
    }
    rig.run_for(100 * MS);
    let tags: Vec<_> = rig.peek(server).got.iter().map(|got| got.tag).collect();
    assert_eq!(tags, (0..60).collect::<Vec<_>>());
    assert_settled(&mut rig, server);
}

#[test]
fn messages_of_a_peer_that_becomes_another_keep_their_order() {
    let (mut rig, server, client) = Rig::of_two(5);
    rig.host(server).fetching = false;
    // A peer under its other name, whose messages wait when it dies.
    let other = rig.host(server).look_up(client, OTHER_NIC);
    let first = rig.host(server).look_up(client, NIC);
    rig.host(server).use_addr(client, other);
    rig.introduce(server, client);
    for tag in 0..10 {
        rig.host(client).send_unexpected(server, tag, &[0; 700]);
    }
    rig.run("all of them", |rig| {
        rig.peek(server).method.unexpected() == 10
    });
    rig.kill(client);
    rig.run_for(MS);
    rig.restart(client, Profile::default());
    // It is reached under the first name, and then under the other one.
    rig.host(server).use_addr(client, first);
    rig.introduce(server, client);
    rig.host(server).use_addr(client, other);
    rig.introduce(server, client);
    assert_eq!(rig.host(server).state(first), rig.host(server).state(other));
    for tag in 10..20 {
        rig.host(client).send_unexpected(server, tag, &[0; 700]);
    }
    rig.run_for(10 * MS);
    rig.host(server).fetching = true;
    rig.run("all", |rig| rig.peek(server).got.len() == 20);
    rig.run_for(100 * MS);
    assert_settled(&mut rig, server);
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
fn what_was_left_below_by_who_calls_again_is_not_overtaken() {
    let mut rig = Rig::new(7);
    rig.lend(4);
    let server = rig.add(Profile::default());
    rig.host(server).fetching = false;
    let (peer, id) = caller(&mut rig, server);
    let unexpected = |tag| bits(MessageType::Unexpected, id, tag).0;
    for tag in 0..20 {
        rig.stranger(peer).send(unexpected(tag), &[0; 256]);
    }
    rig.run_for(MS);
    call(&mut rig, peer, 5);
    rig.run_for(MS);
    for tag in 20..40 {
        rig.stranger(peer).send(unexpected(tag), &[0; 256]);
    }
    rig.run_for(MS);
    rig.host(server).fetching = true;
    rig.run_for(100 * MS);
    let tags: Vec<_> = rig.peek(server).got.iter().map(|got| got.tag).collect();
    assert!(tags.is_sorted(), "{tags:?}");
    assert_eq!(tags.last(), Some(&39));
    assert_settled(&mut rig, server);
}

#[test]
fn a_large_request_gets_its_turn_among_many_small_ones() {
    let mut rig = Rig::new(8);
    rig.endpoint.first_credits = 1;
    rig.limit_unexpected(60_000, 40_000);
    let server = rig.add(Profile::default());
    // Those of four small ones find room whenever they come; only the large one has to wait for it.
    let clients: Vec<_> = (0..5).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        rig.introduce(*client, server);
    }
    rig.host(server).fetching = false;
    let (large, small) = clients.split_first().unwrap();
    // As soon as one of the small has gone there is the next; the host takes one at a time.
    let mut last = Vec::new();
    for client in small {
        for _ in 0..200 {
            last.push((
                *client,
                rig.host(*client).send_unexpected(server, 1, &[1; 9_000]),
            ));
        }
    }
    rig.run_for(MS);
    let wanted = rig.host(*large).send_unexpected(server, 2, &[2; 40_000]);
    for _ in 0..400 {
        rig.run_for(Duration::from_micros(200));
        let host = rig.host(server);
        if let Some(bmi_method::method::Handout::Message(message)) = host.method.next_unexpected(0)
        {
            // SAFETY: malloc'ed, and ours to free.
            unsafe { libc::free(message.buffer) };
        } else {
            host.fetch();
        }
        if rig.peek(*large).error(wanted).is_some() {
            break;
        }
    }
    assert_eq!(rig.peek(*large).error(wanted), Some(0));
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

#[test]
fn calls_of_a_flood_do_not_pile_up() {
    let mut rig = Rig::new(10);
    let server = rig.add(Profile::default());
    let client = rig.add(Profile::default());
    let (flood, _) = caller(&mut rig, server);
    let (other, _) = caller(&mut rig, server);
    let mut most = 0;
    for _ in 0..50 {
        for _ in 0..200 {
            for caller in [flood, other] {
                if rig.peek_stranger(caller).is_connected() {
                    call(&mut rig, caller, 5);
                }
            }
        }
        rig.run_for(Duration::from_micros(100));
        most = most.max(rig.peek(server).method.handshakes_kept());
    }
    assert!(most < 100, "{most}");
    rig.introduce(client, server);
}

#[test]
fn a_thousand_clients_are_told_that_a_server_leaves() {
    let mut rig = Rig::new(12);
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..1_000).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        let label = rig.host(*client).send_unexpected(server, 1, b"here");
        assert_eq!(rig.wait(*client, label), 0);
    }
    let asked: Vec<_> = clients
        .iter()
        .map(|client| (*client, rig.host(*client).recv(server, 2, 10)))
        .collect();
    rig.run_for(MS);
    let begin = rig.now();
    rig.host(server).finalize();
    for (client, label) in asked {
        assert!(rig.wait(client, label) < 0);
    }
    let took = rig.now().since(begin);
    assert!(took < 100 * MS, "{took:?}");
}

#[test]
fn small_answers_that_have_to_wait_are_copied_within_bounds_and_arrive_in_order() {
    let sent_at_once = |copies| {
        let mut rig = Rig::new(33);
        rig.endpoint.copies = copies;
        let (server, client) = narrow_link(&mut rig, 32);
        let sends: Vec<_> = (0..200u8)
            .map(|n| rig.host(server).send(client, 3, &[n; 100]))
            .collect();
        rig.run_for(Duration::from_millis(1));
        let complete = |rig: &mut Rig, label: &u64| rig.peek(server).error(*label).is_some();
        let at_once = sends.iter().filter(|label| complete(&mut rig, label));
        let at_once = at_once.count();
        let recvs: Vec<_> = (0..200)
            .map(|_| rig.host(client).recv(server, 3, 100))
            .collect();
        for (n, recv) in recvs.iter().enumerate() {
            assert_eq!(rig.wait(client, *recv), 0);
            assert_eq!(rig.peek(client).bytes(*recv), [n as u8; 100]);
        }
        for label in sends {
            assert_eq!(rig.wait(server, label), 0);
        }
        rig.run_for(Duration::from_millis(10));
        assert_eq!(flow(&mut rig, server).copies, 0);
        at_once
    };
    let (none, some) = (sent_at_once(0), sent_at_once(25));
    assert_eq!(some - none, 25);
}

#[test]
fn a_copied_answer_that_cannot_be_delivered_ends_its_peer() {
    let mut rig = Rig::new(34);
    rig.endpoint.peer_timeout = Some(Duration::from_secs(1));
    let (server, client) = narrow_link(&mut rig, 8);
    rig.cluster.stall(client, Duration::from_secs(3));
    for n in 0..40 {
        rig.host(server).send(client, n, b"answer");
    }
    let recv = rig.host(server).recv(client, 1, 10);
    assert_eq!(rig.wait(server, recv), -BMI_ETIMEDOUT);
    rig.run_for(Duration::from_millis(10));
    assert_eq!(flow(&mut rig, server).copies, 0);
}

/// A server whose eight answers of 900 bytes are complete, tags 0 to 7, although its client link has
/// room for four; the others were copied. And a receive on either side that has nothing to do with them.
fn waiting_copies(seed: u64) -> (Rig, NodeId, NodeId, [(NodeId, u64); 2]) {
    let mut rig = Rig::new(seed);
    let (server, client) = narrow_link(&mut rig, 32);
    let others = [
        (server, rig.host(server).recv(client, 77, 5)),
        (client, rig.host(client).recv(server, 77, 5)),
    ];
    for n in 0..8 {
        let answer = rig.host(server).send(client, n, &[n as u8; 900]);
        assert_eq!(rig.peek(server).error(answer), Some(0));
    }
    rig.run_for(Duration::from_millis(1));
    assert!(flow(&mut rig, server).copies >= 4 * 3);
    (rig, server, client, others)
}

/// Nothing is left of the copies, and the receives that have nothing to do with them still wait.
fn assert_still_connected(rig: &mut Rig, others: [(NodeId, u64); 2]) {
    rig.run_for(Duration::from_millis(10));
    let [(server, _), (client, _)] = others;
    assert_eq!(flow(rig, server).copies, 0);
    for (node, recv) in others {
        assert_eq!(rig.peek(node).error(recv), None);
    }
    rig.host(server).send(client, 77, b"hello");
    rig.host(client).send(server, 77, b"hello");
    for (node, recv) in others {
        assert_eq!(rig.wait(node, recv), 0);
    }
}

#[test]
fn a_receive_of_a_copied_answer_that_is_called_off_at_any_moment_costs_only_that() {
    let mut codes = Vec::new();
    for steps in (0..60).step_by(4) {
        let (mut rig, server, client, others) = waiting_copies(35);
        let recvs: Vec<_> = (0..8)
            .map(|tag| rig.host(client).recv(server, tag, 900))
            .collect();
        for _ in 0..steps {
            rig.cluster.step();
        }
        rig.host(client).cancel(recvs[7]);
        let code = rig.wait(client, recvs[7]);
        assert!([-BMI_ECANCEL, 0].contains(&code), "{steps}: {code}");
        codes.push(code);
        for recv in &recvs[..7] {
            assert_eq!(rig.wait(client, *recv), 0);
        }
        assert_still_connected(&mut rig, others);
    }
    assert_eq!((codes[0], codes.pop()), (-BMI_ECANCEL, Some(0)));
}

#[test]
fn a_receive_that_is_too_short_for_a_copied_answer_costs_only_that() {
    let (mut rig, server, client, others) = waiting_copies(36);
    for tag in 0..8 {
        let recv = rig.host(client).recv(server, tag, 100);
        assert_eq!(rig.wait(client, recv), -BMI_EMSGSIZE);
    }
    assert_still_connected(&mut rig, others);
}

#[test]
fn an_answer_that_is_only_announced_is_complete_when_it_has_been_received() {
    let mut rig = Rig::new(39);
    // As many as the data of one costs, and to announce the others.
    rig.lend(10);
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    let answers: Vec<_> = (0..4)
        .map(|tag| rig.host(server).send(client, tag, &[tag as u8; 3000]))
        .collect();
    rig.run_for(Duration::from_millis(10));
    let ends = answers.iter().map(|label| rig.peek(server).error(*label));
    assert_eq!(ends.collect::<Vec<_>>(), [Some(0), None, None, None]);
    // A message covered by credit goes with its data, and overtakes nothing that is complete.
    let small = rig.host(server).send(client, 9, b"done");
    assert_eq!(rig.peek(server).error(small), Some(0));
    for (tag, answer) in (0..).zip(answers) {
        let recv = rig.host(client).recv(server, tag, 3000);
        assert_eq!(rig.wait(client, recv), 0);
        assert_eq!(rig.wait(server, answer), 0);
    }
    let recv = rig.host(client).recv(server, 9, 4);
    assert_eq!(rig.wait(client, recv), 0);
    assert_eq!(flow(&mut rig, server).copies, 0);
}

#[test]
fn messages_that_are_larger_than_the_server_takes_give_their_credits_back() {
    // Offered, and with their data.
    for (seed, len, initial) in [(37, 30_000, 3), (38, 20_001, 200)] {
        let mut rig = Rig::new(seed);
        rig.endpoint.first_credits = initial;
        rig.limit_unexpected(300_000, 20_000);
        let server = rig.add(Profile::default());
        rig.limit_unexpected(300_000, 30_000);
        let client = rig.add(Profile::default());
        rig.introduce(client, server);
        for _ in 0..10 {
            let body = vec![0; len];
            let large = rig.host(client).send_unexpected(server, REQUEST, &body);
            let code = rig.wait(client, large);
            assert!([0, -BMI_EMSGSIZE].contains(&code), "{code}");
            let small = rig.host(client).send_unexpected(server, REQUEST, b"x");
            assert_eq!(rig.wait(client, small), 0);
            rig.run_for(Duration::from_millis(1));
            let account = account(&mut rig, server, client);
            let free = self::account(&mut rig, client, server).send_free;
            assert_eq!(
                account.credit_limit,
                free + account.waiting + account.owed,
                "{account:?}"
            );
        }
        assert_eq!(rig.peek(server).got.len(), 10);
        assert_settled(&mut rig, server);
    }
}

/// The account of the peer `with` at `node`.
fn account(rig: &mut Rig, node: NodeId, with: NodeId) -> Account {
    let addr = rig.host(node).addr(with);
    let method = &rig.peek(node).method;
    let key = method.peers().of_addr(addr.as_ptr()).unwrap();
    method.peer_gauges(key).account.unwrap()
}
