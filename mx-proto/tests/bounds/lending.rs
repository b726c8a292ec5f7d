//! Credits over the wire: they move to the peers that use them, and a peer that uses more than it
//! was lent is failed.

use super::script::{Stage, UNEXPECTED};
use mx_proto::flow::{CreditFields, EPOCH_TIME, Lane, Slots};
use mx_proto::wire::{Header, Kind, VERSION};
use mx_proto::{Arrival, Clock, Config, MatchBits, SendMode, Verdict};

/// Number of peers that together want more credits than there are.
const BUSY: u32 = 6;

/// Finishes every message.
fn finish(_: &Arrival) -> Verdict {
    Verdict::Finished
}

fn listening(limit: usize, peers: u32) -> Stage {
    let config = Config {
        unexpected_bytes: limit,
        ..Config::default()
    };
    let stage = Stage::with_peers(config, peers);
    stage.peers(|peers| peers.listen = true);
    stage
}

/// Sends a message of a peer, which is finished at once. Returns the peers that were asked for
/// credits, which they return.
fn busy(stage: &mut Stage, link: u32, len: usize) -> Vec<u32> {
    stage.send_honestly(link, 1, &vec![1; len]);
    stage.run_with(finish);
    let asked = stage.sent(Kind::Revoke);
    for (link, header, _) in &asked {
        stage.give_back(link.index(), header.length);
    }
    stage.run_with(finish);
    asked.iter().map(|(link, _, _)| link.index()).collect()
}

/// Asserts that the credits in all uses add up to the total.
fn check(stage: &Stage) {
    let flow = stage.node.flow_stats();
    assert!(
        flow.lent + flow.drawn + flow.copies + flow.tombstones + flow.free == flow.total,
        "{flow:?}"
    );
}

#[test]
fn the_quiet_are_asked_and_the_busy_get_what_they_had() {
    let peers = 120;
    let mut stage = listening(1 << 20, peers);
    // Each of the others sends once, and the last few are busy from then on.
    let quiet = peers - BUSY;
    for n in 0..quiet {
        assert!(busy(&mut stage, n, 10).is_empty());
    }
    let mut asked = Vec::new();
    stage.backlog = 1_000;
    for n in 0..40_000 {
        asked.extend(busy(&mut stage, peers - 1 - n % BUSY, 8_000));
    }
    // The last peers to connect were lent little, and no peer is asked for its last credits.
    assert!(asked.len() > 60 && asked.iter().all(|n| *n < quiet));
    let mut each = asked.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), asked.len(), "once each");
    for n in quiet..peers {
        assert!(stage.free(n) >= 50, "{n}: {}", stage.free(n));
    }
    let flow = stage.node.flow_stats();
    assert!(flow.returned > 0 && flow.granted > 0);
    for n in asked {
        assert!(stage.free(n) >= 4, "{n}: {}", stage.free(n));
    }
    check(&stage);
}

#[test]
fn an_epoch_ends_every_second_while_a_remote_waits() {
    let mut stage = listening(1 << 20, 60);
    let pass = |stage: &mut Stage| {
        let end = stage.clock.now().after(EPOCH_TIME + EPOCH_TIME / 10);
        stage.clock.advance_to(end);
        stage.run_with(finish);
        stage.node.flow_stats().epochs
    };
    assert_eq!(pass(&mut stage), 0);
    // Together more than there is.
    for link in 0..60 {
        let mut header = Header::new(Kind::Credit, 0, 0);
        header.credit_fields.wanted = 1_000;
        stage.say(link, header, &[]);
    }
    stage.run_with(finish);
    assert!(stage.node.flow_stats().waiting > 0);
    assert_eq!([pass(&mut stage), pass(&mut stage)], [1, 2]);
}

#[test]
fn each_revoke_is_answered_once() {
    let mut stage = listening(1 << 20, 0);
    stage.call_as(0, 0, VERSION, 100);
    stage.run();
    stage.say(0, Header::new(Kind::Revoke, 0, 60), &[]);
    stage.run();
    let back = |stage: &Stage| -> Vec<u32> {
        let answers = stage.sent(Kind::Return);
        answers.iter().map(|(_, it, _)| it.length).collect()
    };
    assert_eq!(back(&stage), [60]);
    // A peer that does not read the answer is not supposed to ask again.
    stage.deafen(1);
    for _ in 0..3 {
        stage.say(0, Header::new(Kind::Revoke, 0, 60), &[]);
    }
    stage.run_while_busy_at_most(10);
    assert_eq!(stage.node.stats().stale, 2);
    stage.hear(0);
    stage.run();
    assert_eq!(back(&stage), [40]);
}

#[test]
fn invalid_credit_returns_end_the_sender() {
    let mut stage = listening(1 << 20, 120);
    let others = |stage: &Stage| stage.node.remotes();
    stage.say(7, Header::new(Kind::Return, 0, 1), &[]);
    stage.run_with(finish);
    assert_eq!((others(&stage), stage.node.stats().malformed), (119, 1));
    let mut violator = None;
    stage.backlog = 1_000;
    for n in 0..40_000 {
        stage.send_honestly(119 - n % BUSY, 1, &[1; 8_000]);
        stage.run_with(finish);
        for (link, header, _) in stage.sent(Kind::Revoke) {
            let link = link.index();
            if violator.is_none() {
                violator = Some(link);
                let more = stage.free(link) + 1;
                stage.say(link, Header::new(Kind::Return, 0, more), &[]);
            } else {
                stage.give_back(link, header.length);
            }
        }
        stage.run_with(finish);
    }
    assert!(violator.is_some());
    assert_eq!((others(&stage), stage.node.stats().malformed), (118, 2));
    check(&stage);
}

#[test]
fn lanes_pass_each_other_only_when_stuck() {
    for full in Lane::ALL {
        let mut stage = Stage::new(Config::default());
        stage.peers(|peers| peers.listen = true);
        // The peer lends nothing, so only the slots can be used.
        stage.call_as(0, 0, VERSION, 0);
        stage.run();
        let to = stage.remote_of(0);
        let bits = |lane| MatchBits([0, UNEXPECTED][lane as usize]);
        let other = Lane::ALL[1 - full as usize];
        for (number, lane) in [full, full, other, full, other].into_iter().enumerate() {
            let sent = stage
                .node
                .send(to, bits(lane), vec![number as u8], 0, SendMode::Standard);
            sent.unwrap();
        }
        stage.run();
        let went = |stage: &Stage| {
            let sent = stage.sent(Kind::Eager);
            let each = sent.iter().map(|(_, header, body)| {
                assert!([1, 2].contains(&header.aux), "in a slot");
                body[0]
            });
            each.collect::<Vec<u8>>()
        };
        assert_eq!(went(&stage), [0, 2]);
        // The other lane's message is taken, twice; nothing of the full lane moves.
        let taken = |stage: &mut Stage, lane: Lane, count: u8| {
            let mut header = Header::new(Kind::Credit, 0, 0);
            let counts = [0, 4].map(|shift| (count as u32) << (24 + shift));
            header.credit_fields = CreditFields::from_words(0, counts[lane as usize], 0);
            stage.say(0, header, &[]);
            stage.run();
        };
        taken(&mut stage, other, 1);
        assert_eq!(went(&stage), [4]);
        assert_eq!(stage.node.queued_for(to), 2);
        // With credits the rest goes in the order in which it was posted, all of it paid with
        // credits.
        let mut header = Header::new(Kind::Credit, 0, 0);
        header.credit_fields.credit = 2;
        header.credit_fields.slots = Slots::from_byte([0x10, 0x01][full as usize]);
        stage.say(0, header, &[]);
        stage.run();
        let sent = stage.sent(Kind::Eager);
        let paid: Vec<_> = sent
            .iter()
            .map(|(_, header, body)| (body[0], header.aux))
            .collect();
        assert_eq!(paid, [(1, 0), (3, 0)]);
        assert_eq!(stage.node.requests(), 0);
    }
}

#[test]
fn older_version_is_rejected_in_a_readable_header() {
    let mut stage = listening(1 << 20, 1);
    stage.call_as(1, 1, VERSION - 1, 1 << 30);
    stage.run();
    let replies = stage.sent(Kind::Reply);
    assert!(matches!(&replies[..], [(_, told, _)] if told.aux == 2));
    // In the earlier version the second byte there had to be zero.
    let [(_, told, _)] = &replies[..] else { return };
    assert_eq!(told.emit()[1], 0);
    assert_eq!((stage.node.remotes(), stage.node.stats().refused), (1, 1));
}

#[test]
fn remote_short_of_credits_is_told_of_due_ones() {
    let mut stage = listening(1 << 20, 1);
    let first = stage.free(0);
    let due = first / 4;
    for _ in 0..due {
        stage.eager(0, 5, &[1]);
    }
    stage.run_with(finish);
    for _ in 0..first - 2 * due {
        stage.eager(0, 5, &[1]);
    }
    stage.run();
    assert_eq!(stage.sent(Kind::Credit).len(), 0);
    stage.eager(0, 5, &[1]);
    stage.run();
    assert_eq!(stage.sent(Kind::Credit).len(), 1);
}
