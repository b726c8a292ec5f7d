//! Remotes that take as much as they can get.

use super::live;
use super::script::{Packet, Stage};
use mx_proto::flow::{Lane, OVERHEAD, Payment, Slots, cost};
use mx_proto::origin::Source;
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{Arrival, Config, DownReason, MatchBits, MatchMask, SendMode, SendPosted, Verdict};
use mx_sim::{CallOff, Reports};
use std::time::Duration;

/// Bytes that a message costs besides its contents.
const MESSAGE_COST: isize = OVERHEAD as isize;
/// Limit of the bytes that an endpoint holds apart from its messages.
const ENDPOINT: isize = 1 << 20;

fn limited(unexpected_bytes: usize) -> Config {
    Config {
        unexpected_bytes,
        ..Config::default()
    }
}

/// Has all peers send until none of them may. Returns the number of messages.
fn flood(stage: &mut Stage, peers: u32, len: usize) -> u32 {
    let body = vec![7; len];
    stage.backlog = 4096;
    let mut sent = 0;
    loop {
        let before = sent;
        for n in 0..peers {
            // No two are alike, so every table gets an entry for each.
            for lane in Lane::ALL {
                while stage.send_in(lane, n, sent.into(), &body) {
                    sent += 1;
                }
            }
            stage.run();
        }
        if sent == before {
            return sent;
        }
    }
}

#[test]
fn peer_is_over_quota_while_its_messages_hold_most_credit() {
    let (mut stage, _) = one_peer(1 << 20);
    let peer = stage.remote_of(0);
    assert!(!stage.node.is_over_quota(peer));
    let sent = flood(&mut stage, 1, 100);
    assert!(stage.node.is_over_quota(peer));
    for n in 0..u64::from(sent) {
        let got = stage.node.recv(MatchBits(n), MatchMask::EXACT, vec![], 0);
        got.unwrap();
    }
    assert!(!stage.node.is_over_quota(peer));
}

#[test]
fn a_waiting_message_takes_no_more_than_is_counted_for_it() {
    let masks = [MatchMask::EXACT, MatchMask(u64::MAX >> 1)];
    // Tables double at powers of two, and hash tables when they are seven eighths full.
    for count in [16_384, 16_385, 28_672, 28_673] {
        for (len, masks) in [(0, &masks[..1]), (1, &masks[..1]), (1, &masks[..])] {
            let mut stage = Stage::with_peers(limited(64 << 20), 100);
            for mask in masks {
                assert!(stage.send_honestly(0, 1, &[]));
                stage.run();
                stage.node.recv(MatchBits(1), *mask, vec![], 0).unwrap();
            }
            stage.backlog = 4096;
            let before = live();
            let mut sent = 0;
            while sent < count {
                for n in 0..100 {
                    sent += u64::from(sent < count && stage.send_honestly(n, sent, &vec![1; len]));
                }
                stage.run();
            }
            let each = (live() - before) / count as isize;
            println!(
                "{count} messages of {len} B, {} masks: {each} B each",
                masks.len()
            );
            // A byte of contents takes 32 bytes of the allocator.
            assert!(each <= MESSAGE_COST, "{each}");
        }
    }
}

/// Finishes every message, which the sender of an offer is told.
fn finish(_: &Arrival) -> Verdict {
    Verdict::Finished
}

/// Returns a stage with one peer, and the bytes that the thread holds so far.
fn one_peer(limit: usize) -> (Stage, isize) {
    let stage = Stage::with_peers(limited(limit), 1);
    (stage, live())
}

/// A peer that does not read its answers gets no further credits.
#[test]
fn an_answer_brings_new_credits_only_if_at_most_256_are_unread() {
    let config = Config {
        first_credits: 1_000,
        ..limited(16 << 20)
    };
    let mut stage = Stage::with_peers(config, 1);
    stage.deafen(1);
    for n in 0..300 {
        let mut header = Header::new(Kind::Offer, n, 10);
        let paid = match n {
            0 => Payment::Slot(Lane::Matched),
            _ => Payment::Credits(1),
        };
        header.aux = paid.aux();
        stage.say(0, header, &n.to_le_bytes());
    }
    stage.run_with(finish);
    stage.peers(|peers| peers.listen = true);
    stage.hear(0);
    stage.run_with(finish);
    let answers = stage.sent(Kind::Notify);
    assert_eq!(answers.len(), 300);
    let told = |(_, it, _): &Packet| (it.credit_fields.credit, it.credit_fields.slots);
    let (before, after) = answers.split_at(300 - 256);
    assert!(
        before
            .iter()
            .all(|it| told(it) == (1_000, Slots::default()))
    );
    assert!(
        after
            .iter()
            .all(|it| told(it).0 > 1_000 && told(it).1 != Slots::default())
    );
}

#[test]
fn a_peer_that_sends_but_reads_nothing_has_one_ping_waiting() {
    let config = Config {
        peer_timeout: Some(Duration::from_secs(16)),
        request_timeout: None,
        ..limited(1 << 20)
    };
    let mut stage = Stage::with_peers(config, 1);
    let to = stage.remote_of(0);
    let sent = stage
        .node
        .send(to, MatchBits(1), vec![0; 8], 0, SendMode::Synchronous);
    assert!(matches!(sent, Ok(SendPosted::Pending(_))));
    stage.deafen(1);
    for _ in 0..10 {
        // Long enough for a Ping each time.
        for _ in 0..70 {
            stage.clock.advance(Duration::from_millis(100));
            stage.run();
        }
        stage.say(0, Header::new(Kind::Credit, 0, 0), &[]);
        stage.run();
    }
    stage.peers(|peers| peers.listen = true);
    stage.hear(0);
    stage.run();
    assert_eq!(stage.sent(Kind::Ping).len(), 1);
    assert_eq!(stage.node.remotes(), 1);
}

#[test]
fn introduction_with_another_session_ends_the_link() {
    let (mut stage, _) = one_peer(1 << 20);
    let id = stage.remote_of(0);
    stage.call_from((0, 0, 6), VERSION, 1 << 30);
    stage.run();
    let down = stage.node.next_down().unwrap();
    assert_eq!(down.remote, id);
    assert!(matches!(down.reason, DownReason::Protocol(_)), "{down:?}");
    assert_eq!(stage.node.remotes(), 0);
}

#[test]
fn a_remote_whose_sends_wait_for_credits_is_stalled() {
    let mut stage = Stage::new(Config::default());
    stage.call_as(0, 0, VERSION, 0);
    stage.run();
    let to = stage.remote_of(0);
    stage.peers(|peers| peers.listen = true);
    // Without credits there is a slot for one message.
    for (n, len) in [(0, 8), (1, 5000)] {
        let sent = stage
            .node
            .send(to, MatchBits(n), vec![0; len], 0, SendMode::Standard);
        sent.unwrap();
        stage.run();
        assert_eq!(stage.node.stalled() as u64, n);
    }
    // The peer was told the cost of the message.
    let asked = stage.sent(Kind::Credit);
    let wanted: Vec<_> = asked.iter().map(|it| it.1.credit_fields.wanted).collect();
    assert_eq!(wanted, [cost(5000)]);
    let mut credits = Header::new(Kind::Credit, 0, 0);
    credits.credit_fields.credit = 10;
    stage.say(0, credits, &[]);
    stage.run();
    assert_eq!(stage.node.stalled(), 0);
}

#[test]
fn unanswered_pings_get_one_answer_with_the_last_number() {
    let (mut stage, _) = one_peer(1 << 20);
    stage.deafen(1);
    for number in [5, 7, 0] {
        stage.say(0, Header::new(Kind::Ping, number, 0), &[]);
    }
    stage.run();
    stage.peers(|peers| peers.listen = true);
    stage.hear(0);
    stage.run();
    let answers = stage.sent(Kind::Pong);
    let numbers: Vec<_> = answers.iter().map(|(_, it, _)| it.word).collect();
    assert_eq!(numbers, [7]);
}

#[test]
fn a_peer_that_pulls_without_end_gets_little_data() {
    let (mut stage, _) = one_peer(1 << 20);
    let to = stage.remote_of(0);
    let memory = vec![0; 1 << 20];
    let sent = stage
        .node
        .send(to, MatchBits(1), memory, 0, SendMode::Standard);
    let SendPosted::Pending(send) = sent.unwrap() else {
        panic!("a large message is offered");
    };
    stage.run();
    stage.deafen(1);
    let before = live();
    for n in 0..10_000u32 {
        // No body is the part that follows the last one.
        let mut body = [0; 12];
        body[8..12].copy_from_slice(&1u32.to_le_bytes());
        stage.say(0, Header::new(Kind::Pull, send.to_word(), 2 * n), &body);
    }
    stage.run();
    assert!(live() - before < 4096, "{}", live() - before);
    assert_eq!(stage.node.stats().stale, 10_000 - 32);
    stage.node.cancel(send);
    stage.hear(0);
    stage.peers(|peers| peers.listen = true);
    stage.run();
    assert!(
        stage.sent(Kind::Data).is_empty(),
        "of a message that was called off"
    );
}

#[test]
fn sessions_of_one_life_share_the_quota_of_their_source() {
    let config = Config {
        max_remotes: 100,
        ..limited(1 << 20)
    };
    let mut stage = Stage::with_peers(config, 1);
    stage.peers(|peers| peers.sources = vec![Source(7); 1_000]);
    for link in 1..1_000 {
        stage.call(link, 0);
    }
    stage.run();
    let remotes = stage.node.remotes();
    assert!((2..=51).contains(&remotes), "{remotes}");
    assert_eq!(stage.node.stats().refused, 1_000 - remotes as u64);
    // For each newcomer the remotes of its name are asked, a few at a time and none twice at once.
    assert!(stage.node.stats().same_name_pings <= 8 * remotes as u64);
    stage.peers(|peers| peers.listen = true);
    stage.deafen(1_000);
    for link in 1_000..2_000 {
        stage.call(link, 0);
    }
    stage.run();
    assert!(stage.sent(Kind::Ping).len() <= remotes);
}

#[test]
fn answers_that_strangers_do_not_read_take_a_bounded_room() {
    let links = 5_000;
    let mut stage = Stage::with_peers(limited(1 << 20), 0);
    stage.deafen(links);
    let before = live();
    for _ in 0..40 {
        for link in 0..links {
            // The calls are rejected because of their version; each rejection is an answer.
            let mut hello = [0; HELLO_LEN];
            hello[0..4].copy_from_slice(b"MXs1");
            hello[4..6].copy_from_slice(&1u16.to_le_bytes());
            stage.say(link, Header::new(Kind::Connect, 1, 0), &hello);
        }
        stage.run_while_busy_at_most(links as usize);
    }
    // 4 answers of 150 bytes a link, in a queue with as much spare room.
    let grown = live() - before;
    assert!(grown < (links as isize * 4 + 8192) * 256, "{grown}");
}

#[test]
fn cancels_for_a_peer_that_reads_nothing_end_it() {
    let (mut stage, _) = one_peer(1 << 20);
    let to = stage.remote_of(0);
    let offer = |stage: &mut Stage| {
        let sent = stage
            .node
            .send(to, MatchBits(1), vec![0; 40_000], 0, SendMode::Standard);
        match sent.unwrap() {
            SendPosted::Pending(send) => send,
            SendPosted::Complete => panic!("a large message is offered"),
        }
    };
    let sends: Vec<_> = (0..5_000).map(|_| offer(&mut stage)).collect();
    stage.run();
    stage.deafen(1);
    for (n, send) in sends.into_iter().enumerate() {
        stage.node.cancel(send);
        assert_eq!(stage.node.remotes(), usize::from(n < 4_096), "{n}");
    }
}

#[test]
fn messages_of_peers_that_left_count_until_they_are_received() {
    let limit = 1 << 20;
    let config = Config {
        keep_tombstones: 1_000_000,
        ..limited(limit)
    };
    let mut stage = Stage::with_peers(config, 0);
    let before = live();
    // Each peer connects, leaves as many messages as it may, and disconnects.
    for n in 0..3_000 {
        stage.call(n, n);
        stage.run();
        while stage.send_honestly(n, n.into(), &[1; 10]) {}
        stage.run();
        stage.say(n, Header::new(Kind::Disconnect, 0, 0), &[]);
        stage.run();
        while stage.node.next_down().is_some() {}
        let (used, limit) = stage.node.unexpected_usage();
        assert!(used <= limit, "{n}: {used}");
    }
    let tombstones = stage.node.remotes() as isize;
    assert!(tombstones > 20 && tombstones < 1_000, "{tombstones}");
    let grown = live() - before;
    assert!(
        grown <= limit as isize + tombstones * 700 + ENDPOINT,
        "{grown}"
    );
    let mut received = 0;
    while let Some(found) = stage.node.probe(MatchBits(0), MatchMask(0)) {
        let got = stage
            .node
            .recv(found.bits, MatchMask::EXACT, vec![0; 10], 0);
        got.unwrap();
        received += 1;
    }
    stage.run();
    assert!(received >= tombstones);
    assert_eq!(
        (stage.node.remotes(), stage.node.unexpected_usage().0),
        (0, 0)
    );
}

#[test]
fn failed_peer_leaves_no_credits_of_its_message_behind() {
    for offered in [false, true] {
        let mut stage = Stage::with_peers(limited(1 << 20), 2);
        let [honest, _] = [0, 1].map(|n| stage.remote_of(n));
        let exact = MatchMask::EXACT;
        let posted = stage
            .node
            .recv_from(honest, MatchBits(5), exact, (vec![0; 8], 0));
        posted.unwrap();
        if offered {
            stage.offer(1, 5, 8);
        } else {
            stage.eager(1, 5, &[1; 2_000]);
        }
        stage.run();
        assert_eq!((stage.node.remotes(), stage.node.stats().malformed), (1, 1));
        assert_eq!(stage.node.flow_stats().tombstones, 0);
        // The message of the other peer arrives.
        assert!(stage.send_honestly(0, 5, &[2; 8]));
        stage.run();
        assert!(stage.node.next_completion().is_some());
    }
}

/// Cancels as peer `peer` the message that it has offered under that name.
fn withdraw(stage: &Stage, peer: u32, name: u64) {
    stage.say(peer, Header::new(Kind::Withdraw, name, 0), &[]);
}

/// A pass over all receives for each packet would take ten thousand million steps of these.
#[test]
fn cancelling_unknown_requests_has_constant_cost() {
    let mut stage = Stage::with_peers(Config::default(), 2);
    let exact = MatchMask::EXACT;
    for n in 0..100_000 {
        let receive = stage.node.recv(MatchBits(n), exact, vec![0; 8], n);
        receive.unwrap();
    }
    for n in 0..100_000 {
        withdraw(&stage, 0, n);
    }
    stage.run();
    assert_eq!(stage.node.stats().stale, 100_000);
    assert_eq!(stage.node.posted_receives(), 100_000);
    // An offered message is withdrawn once, and by no other peer.
    stage.spend(0, 1);
    stage.offer(0, 77, 8);
    withdraw(&stage, 1, 77);
    stage.run();
    assert_eq!(stage.node.posted_receives(), 99_999);
    withdraw(&stage, 0, 77);
    withdraw(&stage, 0, 77);
    stage.run();
    assert_eq!(stage.node.posted_receives(), 100_000);
    assert_eq!(stage.node.stats().stale, 100_002);
}

/// A pass over all waiting messages for each of them would take two thousand million steps of
/// these.
#[test]
fn each_of_many_that_go_together_costs_what_it_has_left() {
    const PEERS: u32 = 20_000;
    let config = Config {
        first_credits: 4,
        ..limited(256 << 20)
    };
    let mut stage = Stage::with_peers(config, PEERS);
    let exact = MatchMask::EXACT;
    for n in 0..PEERS {
        let pulled = stage.node.recv(MatchBits(n.into()), exact, vec![0; 8], 0);
        pulled.unwrap();
        let kept = MatchBits(1 << 40 | u64::from(n));
        stage.node.recv(kept, exact, vec![0; 8], 0).unwrap();
        stage.spend(n, 3);
        stage.offer(n, n.into(), 8);
        stage.offer(n, 1 << 50, 8);
        stage.eager(n, 2 << 50, &[1]);
        let to = stage.remote_of(n);
        let send = stage
            .node
            .send(to, MatchBits(3), vec![0; 8], 0, SendMode::Synchronous);
        assert!(matches!(send, Ok(SendPosted::Pending(_))));
    }
    stage.run();
    assert_eq!(stage.node.requests(), 3 * PEERS as usize);
    for n in 0..PEERS {
        stage.say(n, Header::new(Kind::Disconnect, 0, 0), &[]);
    }
    stage.run();
    assert_eq!(stage.node.remotes(), 0);
    assert_eq!(stage.node.unexpected_bytes(), 0);
    let mut ended = 0;
    while stage.node.next_completion().is_some() {
        ended += 1;
    }
    assert_eq!(ended, 2 * PEERS);
    assert_eq!(stage.node.requests(), PEERS as usize);
    assert_eq!(stage.node.posted_receives(), PEERS as usize);
    for bits in [1 << 50, 2 << 50] {
        assert!(stage.node.probe(MatchBits(bits), exact).is_none());
    }
}
