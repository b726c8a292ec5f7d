//! Faults of the C method (docs/hosts.md) in peers, handshake and operations: each test shows that
//! this method does not have one. The numbers are those of the list.

use crate::rig::{self, Rig};
use bmi_method::abi::constants::*;
use bmi_method::match_layout::{
    Fields, MessageType, PEER_ID_MAX, Refusal, VERSION, bits, refusal_bits,
};
use bmi_method::method::PostKind;
use bmi_method::peer::handshake::ConnReq;
use bmi_method::peer::state::State;
use mx_sim::{Profile, Rng, seeds};
use std::time::Duration;

fn request(id: u32, version: u32) -> u64 {
    bits(MessageType::ConnReq, id, version).0
}

/// Adds a stranger with a transport connection to `node`.
fn stranger_at(rig: &mut Rig, node: usize) -> usize {
    let stranger = rig.add_stranger();
    rig.stranger(stranger).connect(node);
    rig.run("the transport connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    stranger
}

/// Returns the messages sent to a stranger, as bits and bytes.
fn sent_to(rig: &mut Rig, stranger: usize) -> Vec<(Fields, Vec<u8>)> {
    let messages = &rig.peek_stranger(stranger).inbox().messages;
    messages
        .iter()
        .map(|(_, bits, bytes)| (Fields::of(*bits), bytes.clone()))
        .collect()
}

#[test]
fn process_killers_stranger_input_harms_no_process() {
    seeds::each(30, |seed| {
        let mut rng = Rng::new(seed);
        let (mut rig, client, server) = Rig::of_two(seed);
        rig.introduce(client, server);
        for node in [client, server] {
            let mut stranger = stranger_at(&mut rig, node);
            for _ in 0..200 {
                if !rig.peek_stranger(stranger).is_connected() {
                    // Disconnected, it connects again.
                    stranger = stranger_at(&mut rig, node);
                }
                let kind = rng.index(16) as u64;
                let id = rng.pick(&[0, 1, 2, 3, PEER_ID_MAX]);
                let tag = rng.pick(&[0, 1, VERSION, VERSION | 1 << 31, u32::MAX]);
                let word = kind << 60 | rng.below(256) << 52 | u64::from(id) << 32 | u64::from(tag);
                let len = rng.pick(&[0, 1, 20, 2048, 2049, 9000, 40_000, 300_000]);
                let byte = rng.pick(b"\0a/\xff");
                rig.stranger(stranger).send(word, &vec![byte; len]);
                if rng.chance(0.2) {
                    rig.run_for(Duration::from_micros(50));
                }
            }
            rig.run_for(Duration::from_millis(100));
        }
        rig.introduce(client, server);
        rig.introduce(server, client);
    });
}

#[test]
fn process_killers_client_accepts_calls_and_unexpected() {
    let (mut rig, client, server) = Rig::of_two(1);
    // The server begins, with an address that the client has not looked up.
    rig.host(server).send_unexpected(client, 5, b"to a client");
    rig.run("the message", |rig| rig.peek(client).got.len() == 1);
    assert_eq!(rig.peek(client).got[0].bytes, b"to a client");
}

#[test]
fn process_killers_exhausted_peer_ids_are_reused() {
    let mut rig = Rig::new(2);
    rig.settings.peer_limit = 2;
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..3).map(|_| rig.add(Profile::default())).collect();
    for client in &clients[..2] {
        rig.host(*client).send_unexpected(server, 1, b"x");
    }
    rig.run("two messages", |rig| rig.peek(server).got.len() == 2);
    let refused = rig.host(clients[2]).send_unexpected(server, 1, b"x");
    assert_eq!(rig.wait(clients[2], refused), -BMI_ENOMEM);
    // A look-up beyond the limit fails with a log line.
    let addr = rig.peek(server).got[0].addr();
    rig.kill(clients[0]);
    rig.run("its end", |rig| rig.peek(server).forgotten == [1]);
    rig.host(server).drop_addr(addr);
    let taken = rig.host(clients[2]).send_unexpected(server, 1, b"y");
    assert_eq!(rig.wait(clients[2], taken), 0);
    rig.run("its message", |rig| rig.peek(server).got.len() == 3);
}

#[test]
fn fault_1_every_operation_completes_with_its_own_error() {
    let (mut rig, a, b) = Rig::of_two(3);
    rig.introduce(a, b);
    for round in 0..200 {
        let cancelled = rig.host(a).recv(b, 9, 4);
        let good = rig.host(a).recv(b, 1, 4);
        let short = rig.host(a).recv(b, 2, 2);
        rig.host(a).cancel(cancelled);
        rig.host(b).send(a, 1, b"good");
        rig.host(b).send(a, 2, b"long");
        assert_eq!(rig.wait(a, cancelled), -BMI_ECANCEL, "round {round}");
        assert_eq!(rig.wait(a, good), 0, "round {round}");
        assert_eq!(rig.wait(a, short), -BMI_EMSGSIZE, "round {round}");
    }
}

#[test]
fn faults_2_and_21_unexpected_sizes_are_exact_and_limited() {
    let mut rig = Rig::new(4);
    rig.settings.unexpected_max = 400_000;
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    for len in [0, 1, 8191, 8192, 8193, 16_384, 287_940, 399_999, 400_000] {
        let label = rig.host(a).send_unexpected(b, 1, &vec![3; len]);
        assert_eq!(rig.wait(a, label), 0);
        rig.run("the message", |rig| !rig.peek(b).got.is_empty());
        assert!(rig.peek(b).got.remove(0).bytes == vec![3; len], "{len}");
    }
    let addr = rig.host(a).addr(b);
    let too_long = vec![3; 400_001].into();
    let refused = rig
        .host(a)
        .post(PostKind::SendUnexpected, addr, 1, too_long);
    assert_eq!(refused, Err(-BMI_EMSGSIZE));
    // From a sender with another limit: the sender gets an error, the receiver is not affected.
    rig.settings.unexpected_max = 1 << 20;
    let c = rig.add(Profile::default());
    let label = rig.host(c).send_unexpected(b, 1, &vec![3; 400_001]);
    assert_eq!(rig.wait(c, label), -BMI_EMSGSIZE);
    assert!(rig.peek(b).got.is_empty());
}

#[test]
fn fault_3_a_refused_post_is_never_reported() {
    let (mut rig, a, b) = Rig::of_two(5);
    let addr = rig.host(a).addr(b);
    let too_long = vec![0; (4 << 20) + 1].into();
    let refused = rig
        .host(a)
        .post(PostKind::SendUnexpected, addr, 1, too_long);
    assert_eq!(refused, Err(-BMI_EMSGSIZE));
    rig.run_for(Duration::from_secs(60));
    assert!(rig.peek(a).ended.is_empty());
    assert_eq!(rig.peek(a).method.operations(), 0);
    assert_eq!(rig.peek(a).state(addr), State::Init);
}

#[test]
fn faults_4_and_6_cancel_ends_every_operation_once() {
    seeds::each(40, |seed| {
        let mut rng = Rng::new(seed);
        let mut rig = Rig::new(seed);
        let profile = Profile::random(&mut rng);
        let (a, b) = (rig.add(profile), rig.add(profile));
        let labels: Vec<_> = (0..20)
            .map(|n| {
                let len = rng.pick(&[0, 100, 40_000, 500_000]);
                match rng.index(4) {
                    0 => rig.host(a).recv(b, n % 3, len),
                    1 => rig.host(a).send_unexpected(b, n, &vec![1; len]),
                    _ => rig.host(a).send(b, n % 3, &vec![1; len]),
                }
            })
            .collect();
        for _ in 0..10 {
            rig.host(b).recv(a, rng.index(3) as i32, 500_000);
        }
        rig.run_for(Duration::from_micros(rng.below(2_000)));
        for label in labels {
            rig.host(a).cancel(label);
            // Cancelling twice does nothing more.
            rig.host(a).cancel(label);
        }
        rig.host(a).reap();
        assert!(rig.peek(a).outstanding().is_empty(), "seed {seed}");
        rig.run_for(Duration::from_secs(1));
        rig.peek(a).check_buffers();
    });
}

#[test]
fn fault_8_unanswering_peer_fails_operations_in_time() {
    let mut rig = Rig::new(6);
    let client = rig.add(Profile::default());
    // It accepts the transport connection and CONN_REQ, and is silent.
    let silent = rig.add_stranger();
    let began = rig.now();
    let send = rig.host(client).send(silent, 1, b"x");
    let recv = rig.host(client).recv(silent, 1, 5);
    assert_eq!(rig.wait(client, send), -BMI_ETIMEDOUT);
    assert_eq!(rig.wait(client, recv), -BMI_ETIMEDOUT);
    let took = rig.now().since(began);
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(21));
    // The message begins with the name, followed by the data by which methods of this project know
    // each other.
    let (fields, body) = sent_to(&mut rig, silent)[0].clone();
    assert_eq!(fields.kind, Some(MessageType::ConnReq));
    assert_eq!((fields.id, fields.tag), (1, VERSION));
    let expected = rig::name(client).to_string();
    assert_eq!(ConnReq::parse(&body).unwrap().name, expected);
    // The next post tries again.
    let again = rig.host(client).send(silent, 1, b"x");
    rig.run("another request", |rig| sent_to(rig, silent).len() == 2);
    assert_eq!(rig.wait(client, again), -BMI_ETIMEDOUT);
}

#[test]
fn a_connection_that_is_cut_twice_has_not_met_an_unknown_host() {
    let ended = [0, 1, 2, 3, 4, 5, 6, 7].map(|seed| {
        let mut rig = Rig::new(seed);
        let client = rig.add(Profile::default());
        let silent = rig.add_stranger();
        let send = rig.host(client).send(silent, 1, b"x");
        rig.run("a request", |rig| sent_to(rig, silent).len() == 1);
        // The second connect is not answered.
        rig.fabric.reset_links(client, silent);
        rig.fabric.cut(client, silent);
        rig.wait(client, send)
    });
    let known = [-BMI_ENETRESET, -BMI_ETIMEDOUT];
    assert!(ended.iter().all(|code| known.contains(code)), "{ended:?}");
    assert!(ended.contains(&-BMI_ENETRESET), "{ended:?}");
}

#[test]
fn fault_9_early_posts_of_a_server_go_out_when_ready() {
    let (mut rig, client, server) = Rig::of_two(7);
    rig.cluster.stall(client, Duration::from_millis(10));
    // In WAIT: its own connect has not been answered yet.
    rig.host(server).send_unexpected(client, 2, b"to a client");
    let sends: Vec<_> = (0..5u8)
        .map(|n| rig.host(server).send(client, 1, &[n]))
        .collect();
    rig.run_for(Duration::from_millis(1));
    let hello = rig.host(client).send_unexpected(server, 2, b"hello");
    rig.run("the server's message", |rig| {
        !rig.peek(client).got.is_empty()
    });
    let caller = rig.peek(client).got[0].addr();
    assert_ne!(rig.host(client).addr(server), caller);
    let recvs: Vec<_> = (0..5)
        .map(|_| rig.host(client).recv_at(caller, 1, 1))
        .collect();
    for (n, recv) in recvs.into_iter().enumerate() {
        assert_eq!(rig.wait(client, recv), 0);
        assert_eq!(rig.peek(client).bytes(recv), [n as u8]);
    }
    for send in sends {
        assert_eq!(rig.wait(server, send), 0);
    }
    assert_eq!(rig.wait(client, hello), 0);
    rig.run("the client's message", |rig| {
        rig.peek(server).got.len() == 1
    });
}

#[test]
fn fault_10_disconnect_ends_and_the_next_post_connects() {
    let (mut rig, client, server) = Rig::of_two(8);
    let addr = rig.host(client).addr(server);
    for round in 0..5 {
        let first = rig.host(client).send_unexpected(server, 2, b"request");
        assert_eq!(rig.wait(client, first), 0, "round {round}");
        rig.introduce(client, server);
        let failed = rig.host(client).send_unexpected(server, 1, &[0; 3 << 20]);
        rig.run_for(Duration::from_micros(60));
        rig.kill(server);
        assert_eq!(rig.wait(client, failed), -BMI_ENETRESET, "round {round}");
        assert_eq!(rig.peek(client).state(addr), State::Init);
        rig.restart(server, Profile::default());
    }
}

#[test]
fn faults_12_and_13_malformed_requests_are_rejected() {
    let good = ConnReq::emit("mx://good:1");
    let cases: [(u64, Vec<u8>, Refusal); 7] = [
        (request(1, 0x101), good.clone(), Refusal::Version),
        (request(1, 0), good.clone(), Refusal::Version),
        (request(0, VERSION), good, Refusal::Malformed),
        (
            request(1, VERSION),
            b"mx://no-end:1".to_vec(),
            Refusal::Malformed,
        ),
        (request(1, VERSION), b"".to_vec(), Refusal::Malformed),
        (request(1, VERSION), vec![b'a'; 9000], Refusal::Malformed),
        (request(1, VERSION), vec![b'a'; 70_000], Refusal::Malformed),
    ];
    for (bits, body, reason) in cases {
        let mut rig = Rig::new(9);
        let server = rig.add(Profile::default());
        let stranger = stranger_at(&mut rig, server);
        rig.stranger(stranger).send(bits, &body);
        rig.run("the refusal", |rig| !sent_to(rig, stranger).is_empty());
        let (fields, _) = sent_to(&mut rig, stranger)[0].clone();
        assert_eq!(fields, Fields::of(refusal_bits(reason)), "{bits:#x}");
        assert!(rig.peek(server).method.peers().is_empty());
    }
}

#[test]
fn fault_13_version_mismatch_fails_with_eproto_at_once() {
    let answers = [
        refusal_bits(Refusal::Version).0,
        refusal_bits(Refusal::Malformed).0,
        // As an old server of another version would answer.
        bits(MessageType::ConnAck, 7, 0x200).0,
        // Without an id.
        bits(MessageType::ConnAck, 0, VERSION).0,
    ];
    for answer in answers {
        let mut rig = Rig::new(10);
        let client = rig.add(Profile::default());
        let server = rig.add_stranger();
        let began = rig.now();
        let send = rig.host(client).send(server, 1, b"x");
        let recv = rig.host(client).recv(server, 1, 5);
        rig.run("the request", |rig| !sent_to(rig, server).is_empty());
        let to = rig.stranger(server).inbox().messages[0].0;
        rig.stranger(server).send_to(to, answer, b"");
        assert_eq!(rig.wait(client, send), -BMI_EPROTO, "{answer:#x}");
        assert_eq!(rig.wait(client, recv), -BMI_EPROTO, "{answer:#x}");
        assert!(rig.now().since(began) < Duration::from_secs(1));
    }
}

#[test]
fn an_old_peer_without_extensions_can_connect_and_talk() {
    let mut rig = Rig::new(11);
    let server = rig.add(Profile::default());
    let old = stranger_at(&mut rig, server);
    rig.stranger(old)
        .send(request(77, VERSION), b"mx://old:0:4\0");
    rig.run("CONN_ACK", |rig| !sent_to(rig, old).is_empty());
    let (ack, body) = sent_to(&mut rig, old)[0].clone();
    assert_eq!((ack.kind, ack.tag), (Some(MessageType::ConnAck), VERSION));
    assert!(body.is_empty());
    // It uses the id that it was given; the bits in the middle mean nothing to it.
    let word = bits(MessageType::Unexpected, ack.id, 5).0 | 0x5a << 52;
    rig.stranger(old).send(word, b"hello");
    rig.run("its message", |rig| !rig.peek(server).got.is_empty());
    let addr = rig.peek(server).got[0].addr();
    rig.host(server)
        .post(PostKind::Send, addr, 6, (*b"answer").into())
        .unwrap();
    rig.run("the answer", |rig| sent_to(rig, old).len() == 2);
    let (answer, body) = sent_to(&mut rig, old)[1].clone();
    assert_eq!(answer.kind, Some(MessageType::Expected));
    assert_eq!((answer.id, answer.tag, &body[..]), (77, 6, &b"answer"[..]));
}

#[test]
fn a_forged_id_never_brings_another_peers_data() {
    let (mut rig, a, b) = Rig::of_two(12);
    rig.introduce(a, b);
    let recv = rig.host(a).recv(b, 3, 10);
    let stranger = stranger_at(&mut rig, a);
    // Peer b has number 1 at a.
    let forged = bits(MessageType::Expected, 1, 3).0;
    rig.stranger(stranger).send(forged, b"forged");
    // The forger's link ends, and the receive stays.
    rig.run("the end of its link", |rig| {
        !rig.peek_stranger(stranger).is_connected()
    });
    rig.host(b).send(a, 3, b"real");
    assert_eq!(rig.wait(a, recv), 0);
    assert_eq!(rig.peek(a).bytes(recv), b"real");
    // Without a posted receive it is dropped.
    let stranger = stranger_at(&mut rig, a);
    rig.stranger(stranger).send(forged, b"forged");
    rig.run_for(Duration::from_millis(1));
    let recv = rig.host(a).recv(b, 3, 10);
    rig.host(b).send(a, 3, b"again");
    assert_eq!(rig.wait(a, recv), 0);
    assert_eq!(rig.peek(a).bytes(recv), b"again");
}

#[test]
fn fault_14_each_lookup_can_be_dropped_alone() {
    let (mut rig, a, b) = Rig::of_two(13);
    for _ in 0..3 {
        let host = rig.host(a);
        let (first, second) = (host.look_up(b, rig::NIC), host.look_up(b, rig::NIC));
        assert_ne!(first, second);
        host.use_addr(b, second);
        rig.introduce(a, b);
        rig.host(a).drop_addr(first);
        rig.introduce(a, b);
        rig.host(a).drop_addr(second);
        assert!(rig.peek(a).method.peers().is_empty());
        // Until the other side knows, its posts belong to the old connection.
        rig.run_for(Duration::from_millis(1));
    }
}

#[test]
fn fault_14_a_peer_dropped_and_looked_up_at_once_is_reached() {
    seeds::each(30, |seed| {
        let mut rig = Rig::new(seed);
        let profile = Profile::random(&mut Rng::new(seed));
        let (a, b) = (rig.add(profile), rig.add(profile));
        rig.introduce(a, b);
        for _ in 0..3 {
            let addr = rig.host(a).addr(b);
            rig.host(a).drop_addr(addr);
            let label = rig.host(a).send_unexpected(b, 1, b"again");
            assert_eq!(rig.wait(a, label), 0, "seed {seed}");
        }
        rig.run("all three", |rig| rig.peek(b).got.len() == 3);
    });
}

#[test]
fn fault_14_a_dropped_address_is_never_named_again() {
    let (mut rig, client, server) = Rig::of_two(15);
    rig.host(client).send_unexpected(server, 1, b"x");
    rig.run("the message", |rig| rig.peek(server).got.len() == 1);
    let addr = rig.peek(server).got[0].addr();
    rig.kill(client);
    // The helper thread notices its death, but the host has made no test call yet.
    rig.peek(server).telling = false;
    rig.run("the end", |rig| rig.peek(server).state(addr) == State::Init);
    assert!(rig.peek(server).method.may_drop(addr.as_ptr()));
    rig.host(server).drop_addr(addr);
    rig.host(server).telling = true;
    rig.run_for(Duration::from_secs(1));
    assert!(rig.peek(server).forgotten.is_empty());
}

#[test]
fn fault_20_dead_clients_and_unexpected_buffers_cost_little() {
    let mut rig = Rig::new(14);
    let server = rig.add(Profile::default());
    for n in 0..50 {
        let client = rig.add(Profile::default());
        rig.host(client).send_unexpected(server, 1, &[1; 100]);
        rig.run("it", |rig| rig.peek(server).got.len() == n + 1);
        rig.kill(client);
        rig.run("its end", |rig| rig.peek(server).forgotten.len() == n + 1);
        let addr = rig.peek(server).got[n].addr();
        rig.host(server).drop_addr(addr);
    }
    let method = &rig.peek(server).method;
    assert!(method.peers().is_empty());
    assert_eq!((method.unexpected(), method.operations()), (0, 0));
    assert_eq!(method.endpoint().remotes(), 0);
}
