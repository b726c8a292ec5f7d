//! Credits for unexpected messages, with whole methods on the simulated network: nothing is lost or
//! overtaken, a server's memory is what was set, and nobody suffers for somebody else.

mod sim;

use bmi_mx::abi::constants::*;
use bmi_mx::match_layout::{MessageType, VERSION, bits};
use bmi_mx::method::PeerGauges;
use bmi_mx::peer::handshake::{ConnReq, Extension};
use mx_proto::MatchBits;
use mx_proto::ledger::CreditByte;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use sim::Rig;
use std::time::Duration;

const REQUEST: i32 = 7;

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

/// All of the ledger's credits are where they belong, and none is held by a message.
fn assert_settled(rig: &mut Rig, node: NodeId) {
    let stats = rig.peek(node).method.lender().stats();
    assert_eq!((stats.drawn, stats.estates), (0, 0), "{stats:?}");
    assert_eq!(stats.total, stats.bank + stats.lent, "{stats:?}");
    assert_eq!((stats.strikes, stats.unpaid), (0, 0), "{stats:?}");
}

#[test]
fn a_sender_without_credits_queues_in_order_and_loses_nothing() {
    let mut rig = Rig::new(1);
    rig.settings.credits.initial = 5;
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    let sent: Vec<_> = (0..200)
        .map(|tag| rig.host(client).send_unexpected(server, tag, b"request"))
        .collect();
    rig.run_for(Duration::from_millis(100));
    // More are lent as they are wanted; all of them are paid for.
    let held = waiting(&mut rig, server);
    let loan = rig.peek(server).method.lender().stats().lent;
    assert!((5..=loan as usize).contains(&held), "{held} of {loan}");
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
        rig.settings.limit_unexpected(memory, 100_000);
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
            let held = rig.peek(server).method.unexpected_bytes();
            assert!(held <= memory, "{held} bytes of messages of {len}");
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
    // One turn of everybody's passes until it is handed out, where its sender can pay for it; where that
    // one is out of credits as well, one until some are free and one until it is pulled.
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
        rig.settings.limit_unexpected(memory, 100_000);
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
    rig.settings.credits.initial = 1;
    rig.settings.credits.maximum = 1;
    let (server, clients) = server_and(&mut rig, 1);
    let client = clients[0];
    let first = rig.host(client).send_unexpected(server, 1, b"taken");
    let second = rig.host(client).send_unexpected(server, 2, b"waits");
    let data = rig.host(client).send(server, 3, b"data");
    let receive = rig.host(server).recv(client, 3, 10);
    assert_eq!(rig.wait(server, receive), 0);
    assert_eq!(rig.wait(client, data), 0);
    assert_eq!(rig.wait(client, first), 0);
    assert_eq!(rig.peek(client).error(second), None);
    rig.host(server).fetching = true;
    assert_eq!(rig.wait(client, second), 0);
}

#[test]
fn a_request_that_is_called_off_while_it_waits_takes_no_credits_with_it() {
    let mut rig = Rig::new(8);
    rig.settings.credits.initial = 2;
    rig.settings.credits.minimum = 2;
    rig.settings.credits.maximum = 2;
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
    rig.settings.credits.initial = 4;
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
    let stats = rig.peek(server).method.lender().stats();
    assert_eq!((stats.wants, stats.controls), (0, 0), "{stats:?}");
}

#[test]
fn busy_clients_get_the_credits_of_quiet_ones_and_then_nothing_moves() {
    let mut rig = Rig::new(10);
    let credits = &mut rig.settings.credits;
    (credits.initial, credits.minimum, credits.maximum) = (30, 2, 1000);
    (credits.epoch_messages, credits.low_percent) = (64, 10);
    rig.settings.limit_unexpected(400 << 10, 1000);
    let (server, clients) = server_and(&mut rig, 30);
    rig.host(server).fetching = true;
    let mut controls = Vec::new();
    for _ in 0..30 {
        let before = rig.peek(server).method.lender().stats().controls;
        for client in &clients[..3] {
            let sent: Vec<_> = (0..60)
                .map(|_| {
                    rig.host(*client)
                        .send_unexpected(server, REQUEST, &[0; 1000])
                })
                .collect();
            for label in sent {
                assert_eq!(rig.wait(*client, label), 0);
            }
        }
        controls.push(rig.peek(server).method.lender().stats().controls - before);
    }
    let stats = rig.peek(server).method.lender().stats();
    assert!(stats.returned > 0, "{stats:?}");
    // A stream without replies has to ask for what came home, but nobody else is asked any more.
    let (early, late) = (controls[0], controls[29]);
    assert!(late < early, "{controls:?}");
    assert_settled(&mut rig, server);
}

/// A peer of its own kind, that has connected and been told its id.
fn stranger(rig: &mut Rig, server: NodeId, loan: Option<u16>) -> (NodeId, u64) {
    let stranger = rig.add_stranger();
    rig.stranger(stranger).connect(server);
    rig.run("the connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    let name = format!("mx://node{stranger}:0:{stranger}");
    let body = match loan {
        None => [name.as_bytes(), b"\0"].concat(),
        loan => ConnReq::emit(&name, Extension { loan }),
    };
    let request = bits(MessageType::ConnReq, 5, VERSION);
    rig.stranger(stranger).send(request.0, &body);
    rig.run("the answer", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let messages = &rig.peek_stranger(stranger).inbox().messages;
    let (_, answer, body) = &messages[0];
    assert_eq!(Extension::parse(body).is_some(), loan.is_some());
    (stranger, answer.0 >> 32 & 0xf_ffff)
}

#[test]
fn a_peer_that_knows_no_credits_works_and_is_bounded() {
    let mut rig = Rig::new(11);
    rig.settings.credits.fixed = 40;
    let (server, clients) = server_and(&mut rig, 1);
    let (old, id) = stranger(&mut rig, server, None);
    for tag in 0..200 {
        let unexpected = bits(MessageType::Unexpected, id as u32, tag);
        rig.stranger(old).send(unexpected.0, &[tag as u8; 300]);
    }
    rig.run_for(Duration::from_millis(100));
    assert_eq!(waiting(&mut rig, server), 20);
    // Others do not wait for it.
    let label = rig.host(clients[0]).send_unexpected(server, REQUEST, b"hi");
    assert_eq!(rig.wait(clients[0], label), 0);
    rig.run("the other's", |rig| waiting(rig, server) == 21);
    rig.host(server).fetching = true;
    rig.run("all of them", |rig| rig.peek(server).got.len() == 201);
    let got = rig.peek(server).got.iter();
    let tags: Vec<_> = got
        .map(|got| got.tag)
        .filter(|tag| *tag != REQUEST)
        .collect();
    let all: Vec<_> = (0..200).filter(|tag| *tag != REQUEST).collect();
    assert_eq!(tags, all);
    // No message to it has credits in its match bits, and none is about credits alone.
    for (_, bits, _) in &rig.peek_stranger(old).inbox().messages {
        assert_eq!(bits.0 & CreditByte::MASK, 0);
        assert_ne!(bits.0 >> 60, 8);
    }
    assert_settled(&mut rig, server);
}

#[test]
fn peers_that_lie_about_credits_are_failed_and_nobody_else_notices() {
    let tags = [
        0x2000_2000u64,        // Want, again and again
        0x8000_0000 | 5 << 13, // Return, of what nobody asked for
        0x4000_0001,           // Grant, to whom lends
        0xf7ff_ffff,           // nothing at all
    ];
    let floods = tags.iter().map(|tag| (8 << 60 | tag, 0));
    let unpaid = [(0xd << 60, 100), (0xd << 60 | 9 << 52, 100)];
    for (seed, (word, len)) in floods.chain(unpaid).enumerate() {
        let mut rig = Rig::new(20 + seed as u64);
        let (server, clients) = server_and(&mut rig, 1);
        let (liar, id) = stranger(&mut rig, server, Some(64));
        rig.host(server).fetching = true;
        for n in 0..400 {
            let word = MatchBits(word | id << 32);
            rig.stranger(liar).send(word.0, &vec![0; len]);
            if n % 100 == 0 {
                let label = rig.host(clients[0]).send_unexpected(server, n, b"honest");
                assert_eq!(rig.wait(clients[0], label), 0);
            }
        }
        rig.run_for(Duration::from_millis(50));
        let honest = rig
            .peek(server)
            .got
            .iter()
            .filter(|got| got.bytes == b"honest");
        assert_eq!(honest.count(), 4, "{word:#x}");
        let stats = rig.peek(server).method.lender().stats();
        // What means nothing at all is only dropped.
        let nonsense = word as u32 >= 0xf000_0000;
        assert_eq!(stats.peers, 1 + u32::from(nonsense), "{word:#x}: {stats:?}");
        assert_eq!((stats.drawn, stats.estates), (0, 0));
    }
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
    rig.settings.credits.initial = 3;
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
fn a_client_that_dies_and_comes_back_begins_with_a_new_loan() {
    let mut rig = Rig::new(32);
    rig.settings.credits.initial = 8;
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
        assert_eq!(rig.peek(server).method.gauges().memory.bounced, 0);
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
    assert_eq!(rig.peek(server).method.gauges().memory.bounced, 0);
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
    assert!(rig.peek(server).method.gauges().memory.bounced >= 4 * 900);
    (rig, server, client, others)
}

/// Nothing is left of the copies, and the receives that have nothing to do with them still wait.
fn assert_still_connected(rig: &mut Rig, others: [(NodeId, u64); 2]) {
    rig.run_for(Duration::from_millis(10));
    let [(server, _), (client, _)] = others;
    assert_eq!(rig.peek(server).method.gauges().memory.bounced, 0);
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
    // What is covered by credit goes with its data, and overtakes nothing that is complete.
    let small = rig.host(server).send(client, 9, b"done");
    assert_eq!(rig.peek(server).error(small), Some(0));
    for (tag, answer) in (0..).zip(answers) {
        let recv = rig.host(client).recv(server, tag, 3000);
        assert_eq!(rig.wait(client, recv), 0);
        assert_eq!(rig.wait(server, answer), 0);
    }
    let recv = rig.host(client).recv(server, 9, 4);
    assert_eq!(rig.wait(client, recv), 0);
    assert_eq!(rig.peek(server).method.gauges().memory.bounced, 0);
}

#[test]
fn messages_that_are_larger_than_the_server_takes_give_their_credits_back() {
    // Offered, and with their data.
    for (seed, len, initial) in [(37, 30_000, 3), (38, 20_001, 200)] {
        let mut rig = Rig::new(seed);
        rig.settings.credits.initial = initial;
        rig.settings.limit_unexpected(300_000, 20_000);
        let server = rig.add(Profile::default());
        rig.settings.limit_unexpected(300_000, 30_000);
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
            let account = gauges(&mut rig, server, client).account.unwrap();
            let free = gauges(&mut rig, client, server).borrower.unwrap().free();
            let here = account.owed + account.due;
            assert_eq!(account.loan, free + here, "{account:?}");
        }
        assert_eq!(rig.peek(server).got.len(), 10);
        assert_settled(&mut rig, server);
    }
}

/// What `node` knows of its peer `with`.
fn gauges(rig: &mut Rig, node: NodeId, with: NodeId) -> PeerGauges {
    let addr = rig.host(node).addr(with);
    let method = &rig.peek(node).method;
    method.peer_gauges(method.peers().of_addr(addr.as_ptr()).unwrap())
}
