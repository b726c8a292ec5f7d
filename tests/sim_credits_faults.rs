//! Credits where things go wrong: messages that overtake each other, peers that lie or say nothing,
//! limits of one, and what must not grow.

mod sim;

use bmi_mx::match_layout::{MessageType, VERSION, bits};
use bmi_mx::peer::handshake::{ConnReq, Extension};
use mx_proto::PartnerId;
use mx_proto::ledger::{Control, ControlWord, CreditByte, LenderStats};
use mx_sim::Profile;
use mx_sim::world::NodeId;
use sim::{NIC, OTHER_NIC, Rig};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn stats(rig: &mut Rig, node: NodeId) -> LenderStats {
    rig.peek(node).method.lender().stats()
}

/// All of the ledger's credits are where they belong, and none is held by a message.
fn assert_settled(rig: &mut Rig, node: NodeId) {
    let stats = stats(rig, node);
    assert_eq!((stats.drawn, stats.estates), (0, 0), "{stats:?}");
    assert_eq!(stats.total, stats.bank + stats.lent, "{stats:?}");
}

fn word(control: Control) -> u64 {
    let word = ControlWord {
        control,
        epoch: false,
    };
    u64::from(word.to_tag())
}

/// A peer of its own kind, that has connected and been told its id.
fn caller(rig: &mut Rig, server: NodeId, loan: Option<u16>) -> (NodeId, u32) {
    let stranger = rig.add_stranger();
    rig.stranger(stranger).connect(server);
    rig.run("the connect", |rig| {
        rig.peek_stranger(stranger).connected.is_some()
    });
    call(rig, stranger, 5, loan);
    rig.run("the answer", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let bits = rig.peek_stranger(stranger).inbox().messages[0].1;
    (stranger, (bits.0 >> 32) as u32 & 0xf_ffff)
}

fn request(stranger: NodeId, loan: Option<u16>) -> Vec<u8> {
    let name = format!("mx://node{stranger}:0:{stranger}");
    match loan {
        None => [name.as_bytes(), b"\0"].concat(),
        loan => ConnReq::emit(&name, Extension { loan }),
    }
}

fn call(rig: &mut Rig, stranger: NodeId, id: u32, loan: Option<u16>) {
    let body = request(stranger, loan);
    let bits = bits(MessageType::ConnReq, id, VERSION).0;
    say(rig, stranger, bits, &body);
}

/// Sends something, unless it has been shown the door.
fn say(rig: &mut Rig, stranger: NodeId, bits: u64, bytes: &[u8]) {
    let stranger = rig.stranger(stranger);
    let to = stranger.connected.expect("connected before");
    if stranger.endpoint.partner_context(to).is_some() {
        stranger.send_to(to, bits, bytes);
    }
}

/// A host that has been made to call a stranger, which has not answered: the stranger, its partner,
/// and its id at the host.
fn called(rig: &mut Rig, host: NodeId) -> (NodeId, PartnerId, u32) {
    let stranger = rig.add_stranger();
    rig.host(host).send_unexpected(stranger, 1, b"first");
    rig.run("the call", |rig| {
        !rig.peek_stranger(stranger).inbox().messages.is_empty()
    });
    let (partner, bits, _) = rig.peek_stranger(stranger).inbox().messages[0];
    (stranger, partner, (bits.0 >> 32) as u32 & 0xf_ffff)
}

#[test]
fn an_old_peer_that_was_called_may_send_right_behind_its_answer() {
    let mut rig = Rig::new(1);
    let server = rig.add(Profile::default());
    let (old, partner, id) = called(&mut rig, server);
    let stranger = rig.stranger(old);
    let ack = bits(MessageType::ConnAck, 5, VERSION).0;
    stranger.send_to(partner, ack, b"");
    for tag in 0..60 {
        let unexpected = bits(MessageType::Unexpected, id, tag).0;
        stranger.send_to(partner, unexpected, &[tag as u8; 900]);
    }
    rig.run_for(100 * MS);
    let tags: Vec<_> = rig.peek(server).got.iter().map(|got| got.tag).collect();
    assert_eq!(tags, (0..60).collect::<Vec<_>>());
    assert_settled(&mut rig, server);
    assert_eq!(stats(&mut rig, server).strikes, 0);
}

#[test]
fn a_call_that_its_own_answer_has_overtaken_changes_nothing() {
    let mut rig = Rig::new(2);
    let server = rig.add(Profile::default());
    let (peer, partner, id) = called(&mut rig, server);
    let body = request(peer, Some(20));
    let stranger = rig.stranger(peer);
    // Both have begun at once, and what we say first was longer under way.
    let ack = bits(MessageType::ConnAck, 5, VERSION).0;
    stranger.send_to(partner, ack, &Extension { loan: Some(20) }.emit());
    rig.run("what waited for the answer", |rig| {
        rig.peek_stranger(peer).inbox().messages.len() == 2
    });
    // The whole loan of the server is used, and so is some of ours.
    rig.host(server).fetching = false;
    for _ in 0..30 {
        rig.host(server).send_unexpected(peer, 1, &[0; 100]);
    }
    let loan = stats(&mut rig, server).lent;
    let paid = 1 << 52;
    for tag in 0..loan {
        let unexpected = bits(MessageType::Unexpected, id, tag).0 | paid;
        rig.stranger(peer).send_to(partner, unexpected, b"paid");
    }
    rig.run("it all", |rig| {
        rig.peek(server).method.unexpected() == loan as usize
    });
    let call = bits(MessageType::ConnReq, 5, VERSION).0;
    rig.stranger(peer).send_to(partner, call, &body);
    rig.run_for(10 * MS);
    // No loan is begun anew on either side.
    let heard = &rig.peek_stranger(peer).inbox().messages;
    let sent = heard.iter().filter(|(_, bits, _)| bits.0 >> 60 == 0xd);
    assert_eq!(sent.count(), 20);
    assert_eq!(stats(&mut rig, server).lent, loan);
    assert_eq!(stats(&mut rig, server).estates, 0);
}

#[test]
fn a_busy_borrower_answers_when_it_is_asked_for_credits() {
    let mut rig = Rig::new(3);
    let client = rig.add(Profile::default());
    let (lender, partner, id) = called(&mut rig, client);
    let stranger = rig.stranger(lender);
    let ack = bits(MessageType::ConnAck, 5, VERSION).0;
    stranger.send_to(partner, ack, &Extension { loan: Some(20) }.emit());
    rig.run("the first message", |rig| {
        rig.peek_stranger(lender).inbox().messages.len() == 2
    });
    // More than the link takes at once.
    let data: Vec<_> = (0..200)
        .map(|tag| rig.host(client).send(lender, tag, &[1; 20_000]))
        .collect();
    let bits = bits(MessageType::Credit, id, 0).0 | word(Control::Revoke(5));
    rig.stranger(lender).send_to(partner, bits, b"");
    rig.run("the answer", |rig| {
        let messages = &rig.peek_stranger(lender).inbox().messages;
        let mut words = messages.iter().filter(|(_, bits, _)| bits.0 >> 60 == 8);
        words.any(|(_, bits, _)| bits.0 as u32 == word(Control::Return(5)) as u32)
    });
    // It takes none of these, which is what they hear.
    for label in data {
        assert_ne!(rig.wait(client, label), 1);
    }
}

#[test]
fn with_limits_of_one_nobody_is_forgotten() {
    let mut rig = Rig::new(4);
    rig.settings.poll.am = 1;
    rig.settings.poll.sys = 1;
    rig.settings.poll.safe = 1;
    rig.settings.limit_unexpected(200_000, 100_000);
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..5).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        rig.introduce(*client, server);
    }
    rig.host(server).fetching = false;
    // The first takes the room; those of the next ones are called off where they wait.
    let mut labels = Vec::new();
    for client in &clients {
        for tag in 0..2 {
            let label = rig
                .host(*client)
                .send_unexpected(server, tag, &[7; 100_000]);
            labels.push((*client, label));
            rig.run_for(MS);
        }
    }
    for (client, label) in labels.iter().filter(|(client, _)| *client != clients[4]) {
        rig.host(*client).cancel(*label);
    }
    rig.run_for(10 * MS);
    rig.host(server).fetching = true;
    for (client, label) in &labels[8..] {
        assert_eq!(rig.wait(*client, *label), 0);
    }
    rig.run_for(100 * MS);
    assert_settled(&mut rig, server);
}

#[test]
fn messages_of_a_peer_that_becomes_another_stay_paid_for() {
    let mut rig = Rig::new(5);
    let (server, client) = (rig.add(Profile::default()), rig.add(Profile::default()));
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
fn who_calls_again_and_again_is_lent_no_more_and_forgiven_no_more() {
    let mut rig = Rig::new(6);
    let server = rig.add(Profile::default());
    let (peer, id) = caller(&mut rig, server, Some(64));
    // Every call is followed by a few lies, fewer than are forgiven.
    for _ in 0..40 {
        for _ in 0..8 {
            let unpaid = bits(MessageType::Unexpected, id, 0).0;
            say(&mut rig, peer, unpaid, &[0; 60_000]);
        }
        call(&mut rig, peer, 5, Some(64));
        rig.run_for(MS);
    }
    assert_eq!(stats(&mut rig, server).peers, 0);
}

#[test]
fn what_was_left_below_by_who_calls_again_is_not_overtaken() {
    let mut rig = Rig::new(7);
    rig.settings.credits.fixed = 4;
    let server = rig.add(Profile::default());
    rig.host(server).fetching = false;
    let (old, id) = caller(&mut rig, server, None);
    let unexpected = |tag| bits(MessageType::Unexpected, id, tag).0;
    for tag in 0..20 {
        rig.stranger(old).send(unexpected(tag), &[0; 256]);
    }
    rig.run_for(MS);
    call(&mut rig, old, 5, None);
    rig.run_for(MS);
    for tag in 20..40 {
        rig.stranger(old).send(unexpected(tag), &[0; 256]);
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
    rig.settings.credits.initial = 1;
    rig.settings.credits.maximum = 1;
    rig.settings.limit_unexpected(60_000, 40_000);
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
        if let Some(bmi_mx::method::Handout::Message(message)) = host.method.next_unexpected() {
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
fn what_is_said_before_a_handshake_is_over_is_not_kept_without_end() {
    let mut rig = Rig::new(9);
    let client = rig.add(Profile::default());
    let (lender, partner, id) = called(&mut rig, client);
    for n in 0..5_000u64 {
        let control = bits(MessageType::Credit, id, 0).0 | word(Control::Revoke(1));
        let ride = bits(MessageType::Expected, id, n as u32).0 | 0x1f << 52;
        let stranger = rig.stranger(lender);
        stranger.send_to(partner, control, b"");
        stranger.send_to(partner, ride, b"");
    }
    rig.run_for(50 * MS);
    let kept = rig.peek(client).method.handshakes_kept();
    assert!(kept < 100, "{kept}");
}

#[test]
fn who_asks_for_credits_and_does_not_take_them_is_failed() {
    let mut rig = Rig::new(14);
    rig.lend(8);
    let server = rig.add(Profile::default());
    let (peer, id) = caller(&mut rig, server, Some(64));
    rig.stranger(peer).endpoint.owner_mut().closed = true;
    let paid = CreditByte {
        epoch: false,
        extra: 0,
        count: 1,
    };
    let message = paid.put(bits(MessageType::Unexpected, id, 7)).0;
    let want = bits(MessageType::Credit, id, 0).0 | word(Control::Want(1));
    let mut asked = 0;
    while rig.peek_stranger(peer).is_connected() {
        asked += 1;
        assert!(asked < 100);
        say(&mut rig, peer, message, b"taken");
        rig.run_for(MS);
        say(&mut rig, peer, want, b"");
        rig.run_for(MS);
    }
    // Those that it had room for it may have asked for.
    assert!(asked > 8, "{asked}");
    assert_eq!(stats(&mut rig, server).strikes, 0);
    assert_settled(&mut rig, server);
}

#[test]
fn grants_of_nothing_are_no_game_for_two() {
    let mut rig = Rig::new(15);
    let client = rig.add(Profile::default());
    let (lender, partner, id) = called(&mut rig, client);
    let ack = bits(MessageType::ConnAck, 5, VERSION).0;
    let none = Extension { loan: Some(0) }.emit();
    rig.stranger(lender).send_to(partner, ack, &none);
    let nothing = Control::Grant { home: 0, extra: 0 };
    let nothing = bits(MessageType::Credit, id, 0).0 | word(nothing);
    let mut given = 0;
    let wants = |rig: &mut Rig| {
        let messages = &rig.peek_stranger(lender).inbox().messages;
        messages
            .iter()
            .filter(|(_, bits, _)| bits.0 >> 60 == 8)
            .count()
    };
    loop {
        rig.run("another Want, or the end", |rig| {
            wants(rig) > given || rig.peek(client).error(1).is_some()
        });
        if rig.peek(client).error(1).is_some() {
            break;
        }
        given += 1;
        assert!(given < 100);
        rig.stranger(lender).send_to(partner, nothing, b"");
    }
    let lies = usize::from(rig.settings.credits.strikes) + 1;
    assert_eq!(given, lies);
}

#[test]
fn who_is_refused_again_and_again_is_shown_the_door() {
    let strikes = Rig::new(16).settings.credits.strikes;
    // Nobody yet, and who is connected.
    for known in [false, true] {
        for (version, id, body) in [
            (VERSION + 1, 5, &b"mx://node9:0:9\0"[..]),
            (VERSION, 0, b"mx://node9:0:9\0"),
            (VERSION, 5, b"\xff"),
        ] {
            let mut rig = Rig::new(16);
            let server = rig.add(Profile::default());
            let stranger = if known {
                caller(&mut rig, server, Some(64)).0
            } else {
                let stranger = rig.add_stranger();
                rig.stranger(stranger).connect(server);
                rig.run("the connect", |rig| {
                    rig.peek_stranger(stranger).connected.is_some()
                });
                stranger
            };
            let before = rig.peek_stranger(stranger).inbox().messages.len();
            for _ in 0..strikes {
                say(
                    &mut rig,
                    stranger,
                    bits(MessageType::ConnReq, id, version).0,
                    body,
                );
                rig.run_for(MS);
            }
            let answers = rig.peek_stranger(stranger).inbox().messages.len() - before;
            assert_eq!(answers, usize::from(strikes));
            assert!(rig.peek_stranger(stranger).is_connected());
            say(
                &mut rig,
                stranger,
                bits(MessageType::ConnReq, id, version).0,
                body,
            );
            rig.run_for(MS);
            assert!(!rig.peek_stranger(stranger).is_connected());
            assert_eq!(stats(&mut rig, server).peers, 0);
        }
    }
}

#[test]
fn calls_of_a_flood_do_not_keep_credits_from_others() {
    let mut rig = Rig::new(17);
    rig.settings.poll.sys = 1;
    rig.settings.credits.initial = 0;
    let server = rig.add(Profile::default());
    let client = rig.add(Profile::default());
    let floods: Vec<_> = (0..8).map(|_| caller(&mut rig, server, None).0).collect();
    rig.introduce(client, server);
    let mut sent = Vec::new();
    for _ in 0..50 {
        sent.push(rig.host(client).send_unexpected(server, 1, &[0; 1000]));
        for flood in &floods {
            for _ in 0..10 {
                say(
                    &mut rig,
                    *flood,
                    bits(MessageType::ConnReq, 0, VERSION).0,
                    b"",
                );
            }
        }
        rig.run_for(Duration::from_micros(100));
    }
    for label in sent {
        assert_eq!(rig.wait(client, label), 0);
    }
}

#[test]
fn calls_of_a_flood_do_not_pile_up() {
    let mut rig = Rig::new(10);
    rig.settings.poll.sys = 1;
    let server = rig.add(Profile::default());
    let client = rig.add(Profile::default());
    let (flood, _) = caller(&mut rig, server, Some(1));
    let (other, _) = caller(&mut rig, server, None);
    let mut most = 0;
    for _ in 0..50 {
        for _ in 0..200 {
            call(&mut rig, flood, 5, Some(1));
            call(&mut rig, other, 5, None);
        }
        rig.run_for(Duration::from_micros(100));
        most = most.max(rig.peek(server).method.handshakes_kept());
    }
    assert!(most < 100, "{most}");
    rig.introduce(client, server);
}

#[test]
fn an_honest_peer_whose_link_is_full_is_not_failed() {
    let mut rig = Rig::new(11);
    let credits = &mut rig.settings.credits;
    (credits.initial, credits.minimum) = (50, 2);
    (credits.epoch_messages, credits.revoke_timeout) = (16, 5 * MS);
    credits.epoch_time = 5 * MS;
    credits.strikes = 4;
    rig.settings.limit_unexpected(200 * 320, 1000);
    rig.lend(8);
    let server = rig.add(Profile::default());
    let (quiet, busy) = (rig.add(Profile::default()), rig.add(Profile::default()));
    for client in [quiet, busy] {
        rig.introduce(client, server);
    }
    // Nobody receives these for a long time: nothing of the quiet one's comes through behind them.
    let early: Vec<_> = (0..40)
        .map(|tag| rig.host(quiet).send(server, tag, &[1; 100]))
        .collect();
    rig.run_for(MS);
    let mut sent = Vec::new();
    for _ in 0..100 {
        for _ in 0..50 {
            sent.push(rig.host(busy).send_unexpected(server, 1, &[0; 1000]));
        }
        rig.run_for(5 * MS);
    }
    for label in sent {
        assert_eq!(rig.wait(busy, label), 0);
    }
    let receives: Vec<_> = (0..40)
        .map(|tag| rig.host(server).recv(quiet, tag, 100))
        .collect();
    for label in receives {
        assert_eq!(rig.wait(server, label), 0);
    }
    for label in early {
        assert_eq!(rig.wait(quiet, label), 0);
    }
    let stats = stats(&mut rig, server);
    assert!(stats.revokes_sent > 0, "{stats:?}");
    assert_eq!(stats.failed, 0);
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
fn a_ticket_is_found_again_among_many_that_are_stuck() {
    let mut rig = Rig::new(13);
    rig.settings.send_tickets = 16;
    rig.lend(1);
    let server = rig.add(Profile::default());
    let clients: Vec<_> = (0..1_000).map(|_| rig.add(Profile::default())).collect();
    for client in &clients {
        rig.introduce(*client, server);
    }
    let (client, stuck) = clients.split_first().unwrap();
    // Nobody receives these: of each peer's one has to wait at the endpoint, and no more are sent.
    for peer in stuck {
        for tag in 0..8 {
            let before = rig.peek(server).method.gauges().sends.tickets_out;
            rig.host(server).send(*peer, tag, &[1; 33_000]);
            rig.run_for(Duration::from_micros(20));
            let host = rig.peek(server);
            if host.method.gauges().sends.tickets_out > before && !host.outstanding().is_empty() {
                break;
            }
        }
    }
    rig.run_for(MS);
    let out = rig.peek(server).method.gauges().sends.tickets_out;
    assert!(out >= 999, "{out}");
    let begin = rig.now();
    for tag in 0..5 {
        let sent = [33_000, 40_000].map(|len| rig.host(server).send(*client, tag, &vec![2; len]));
        for label in sent {
            let received = rig.host(*client).recv(server, tag, 40_000);
            assert_eq!(rig.wait(*client, received), 0);
            assert_eq!(rig.wait(server, label), 0);
        }
    }
    let took = rig.now().since(begin);
    assert!(took < 10 * MS, "{took:?}");
}
