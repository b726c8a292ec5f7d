//! Credits over the wire: they go where they are used, and a peer that takes others' is failed.

use super::script::{Stage, UNEXPECTED};
use mx_proto::flow::{CreditFields, EPOCH_TIME, FIRST, Lane, Paid, Slots};
use mx_proto::origin::Source;
use mx_proto::wire::{Header, Kind, VERSION};
use mx_proto::{
    Arrival, Clock, Config, MatchBits, MatchMask, Received, RemoteId, SendMode, Verdict,
};

/// Peers that want more than there is, together.
const BUSY: u32 = 6;

/// Has done with everything.
fn finish(_: &Arrival) -> Verdict {
    Verdict::Finished
}

fn listening(limit: usize, peers: u32) -> Stage {
    let config = Config {
        unexpected_bytes: limit,
        ..Config::default()
    };
    let stage = Stage::with_peers(config, peers);
    stage.wires(|wires| wires.listen = true);
    stage
}

/// One peer sends a message that is done with at once; returns the peers that were asked, which answer.
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

/// All that is lent, by what the peers know of it, is within what there is.
fn check(stage: &Stage) {
    let flow = stage.node.flow_stats();
    assert!(
        flow.lent + flow.drawn + flow.copies + flow.tombstones + flow.free == flow.total,
        "{flow:?}"
    );
}

#[test]
fn ten_thousand_remotes_get_credits_and_none_is_asked_for_them() {
    let stage = Stage::with_peers(Config::default(), 10_000);
    for n in 0..10_000 {
        // Its slots at least.
        assert!(stage.credits_of(n).means(1, Lane::Matched).is_some(), "{n}");
    }
    assert_eq!(stage.free(0), FIRST.into());
    assert_eq!(stage.node.flow_stats().revoked, 0);
    check(&stage);
}

#[test]
fn while_there_is_room_no_remote_is_asked() {
    let mut stage = listening(64 << 20, 20);
    for n in 0..20_000 {
        assert!(busy(&mut stage, n % 3, 30_000).is_empty());
    }
    let flow = stage.node.flow_stats();
    assert_eq!((flow.revoked, flow.narrowed, flow.waiting), (0, 0, 0));
}

#[test]
fn the_quiet_are_asked_and_the_busy_get_what_they_had() {
    let peers = 120;
    let mut stage = listening(1 << 20, peers);
    // Each has sent once, and the last few are busy from now on.
    let quiet = peers - BUSY;
    for n in 0..quiet {
        assert!(busy(&mut stage, n, 10).is_empty());
    }
    let mut asked = Vec::new();
    stage.backlog = 1_000;
    for n in 0..40_000 {
        asked.extend(busy(&mut stage, peers - 1 - n % BUSY, 8_000));
    }
    // The last to come had little, and none is asked for its last credits.
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
fn while_all_are_busy_no_credits_move() {
    let peers = 60;
    let mut stage = listening(1 << 20, peers);
    let round = |stage: &mut Stage| {
        for n in 0..peers {
            for _ in 0..4 {
                busy(stage, n, 3_000);
            }
        }
    };
    let moved = |stage: &Stage| {
        let flow = stage.node.flow_stats();
        (flow.revoked, flow.granted, flow.narrowed)
    };
    for _ in 0..200 {
        round(&mut stage);
    }
    let settled = moved(&stage);
    for _ in 0..200 {
        round(&mut stage);
    }
    assert_eq!(moved(&stage), settled);
    // And every remote has what its messages cost.
    for n in 0..peers {
        assert!(stage.free(n) >= 7, "{n}: {}", stage.free(n));
    }
}

#[test]
fn a_busy_early_remote_shares_with_later_ones() {
    let mut stage = listening(1 << 20, 3);
    // Three ask for all there is.
    let much = 1_000;
    for n in 0..6_000 {
        let link = n % 3;
        let mut header = Header::new(Kind::Credit, 0, 0);
        header.credit_fields.wanted = much;
        stage.say(link, header, &[]);
        busy(&mut stage, link, 8_000);
    }
    let late = 3;
    let hog = stage.free(0);
    assert!(hog > 300, "{hog}");
    for n in late..60 {
        stage.call(n, n);
    }
    stage.run_with(finish);
    for n in 0..12_000 {
        busy(&mut stage, n % 3, 8_000);
        busy(&mut stage, late + n % 57, 2_000);
    }
    assert!(stage.free(0) < hog);
    for n in late..60 {
        assert!(stage.free(n) >= 5, "{n}: {}", stage.free(n));
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
    // A peer that does not read the answer is not to ask again.
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
fn a_remote_that_hoards_and_does_not_answer_is_passed_over() {
    let peers = 200;
    let mut stage = listening(4 << 20, peers);
    let mut asked = vec![0; peers as usize];
    // A few are busy, the others read and say nothing.
    let mut went = 0;
    stage.backlog = 4_000;
    for n in 0..60_000 {
        went += u32::from(stage.send_honestly(n % BUSY, 1, &[1; 8_000]));
        stage.run_with(finish);
        for (link, _, _) in stage.sent(Kind::Revoke) {
            asked[link.index() as usize] += 1;
        }
    }
    // They are asked once at most, some at a time, and the busy are never held up by that.
    assert!(asked.iter().sum::<u32>() > 32);
    assert!(asked.iter().all(|times| *times <= 1), "{asked:?}");
    assert_eq!(went, 60_000);
    assert_eq!(stage.node.remotes(), peers as usize);
    check(&stage);
}

#[test]
fn one_call_asks_few_at_a_time() {
    let mut stage = listening(1 << 20, 200);
    stage.backlog = 1_000;
    let mut most = 0;
    for n in 0..20_000 {
        stage.send_honestly(n % BUSY, 1, &[1; 8_000]);
        stage.work_once(finish);
        most = most.max(stage.sent(Kind::Revoke).len());
    }
    assert_eq!(most, 8);
}

#[test]
fn credits_given_back_unasked_or_that_were_not_there_end_their_sender() {
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
fn a_slot_holds_one_small_message_and_everything_else_in_it_ends_the_link() {
    for lane in Lane::ALL {
        let slot = Paid::Slot(lane).aux();
        let small = |stage: &Stage, aux: u32| {
            let mut header = Header::new(Kind::Eager, 5, 1);
            header.aux = aux;
            stage.say(0, header, &[1]);
        };
        // The first of each lane, whatever credits there are.
        let fresh = || {
            let mut stage = listening(1 << 20, 2);
            small(&stage, slot);
            stage.run();
            assert_eq!(stage.node.stats().malformed, 0);
            stage
        };
        let ended = |mut stage: Stage| {
            stage.run();
            assert_eq!((stage.node.stats().malformed, stage.node.remotes()), (1, 1));
        };
        // Another one while that waits.
        let stage = fresh();
        small(&stage, slot);
        ended(stage);
        // In both slots, or too large for one.
        let stage = listening(1 << 20, 2);
        small(&stage, 3);
        ended(stage);
        let stage = listening(1 << 20, 2);
        let mut header = Header::new(Kind::Eager, 5, 193);
        header.aux = slot;
        stage.say(0, header, &[1; 193]);
        ended(stage);
        // An announced one is small enough whatever its size, and waits in the slot as well.
        let stage = fresh();
        let mut header = Header::new(Kind::Offer, 5, 1 << 20);
        header.aux = slot;
        stage.say(0, header, &[0; 8]);
        ended(stage);
        // It is free again when that has been told, and it is told at once.
        let mut stage = fresh();
        let taken = stage
            .node
            .recv(MatchBits(5), MatchMask::EXACT, vec![0; 1], 0);
        assert!(matches!(taken, Ok(Received::Complete(_))));
        stage.run();
        assert_eq!(stage.sent(Kind::Credit).len(), 1);
        small(&stage, slot);
        stage.run();
        assert_eq!(stage.node.stats().malformed, 0);
        // Not before: here no peer reads.
        let mut stage = fresh();
        stage.deafen(2);
        let taken = stage
            .node
            .recv(MatchBits(5), MatchMask::EXACT, vec![0; 1], 0);
        assert!(matches!(taken, Ok(Received::Complete(_))));
        small(&stage, slot);
        ended(stage);
    }
}

#[test]
fn a_lane_whose_slot_is_taken_does_not_keep_the_other_from_moving() {
    // There is one credit, and no more.
    for full in Lane::ALL {
        let mut stage = listening(0, 2);
        let free = Lane::ALL[1 - full as usize];
        while stage.send_in(full, 1, 1, &[]) {
            stage.run();
        }
        for n in 0..100 {
            assert!(stage.send_in(free, 1, 2, &[n]), "{n}");
            stage.run();
            assert!(!stage.send_in(full, 1, 1, &[]));
            let got = stage.node.recv(MatchBits(2), MatchMask::EXACT, vec![0], 0);
            assert!(matches!(got, Ok(Received::Complete(_))), "{n}");
            stage.run();
        }
        // And it moves when its own is taken.
        let got = stage.node.recv(MatchBits(1), MatchMask::EXACT, vec![], 0);
        assert!(matches!(got, Ok(Received::Complete(_))));
        stage.run();
        assert!(stage.send_in(full, 1, 1, &[]));
        stage.run();
        assert_eq!(stage.node.stats().malformed, 0);
    }
}

#[test]
fn what_we_send_in_one_lane_passes_what_waits_in_the_other_and_only_then() {
    for full in Lane::ALL {
        let mut stage = Stage::new(Config::default());
        stage.wires(|wires| wires.listen = true);
        // It lends nothing, so there are the slots.
        stage.call_as(0, 0, VERSION, 0);
        stage.run();
        let to = RemoteId::from_word(stage.wires(|wires| wires.cookie_of(0)));
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
        // The other lane's message is taken, twice; nothing of the full one moves.
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
        // With credits the rest goes as it was posted, the large one only if it can.
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
fn a_peer_of_the_version_before_is_told_so_in_a_header_that_it_can_read() {
    let mut stage = listening(1 << 20, 1);
    stage.call_as(1, 1, VERSION - 1, 1 << 30);
    stage.run();
    let replies = stage.sent(Kind::Reply);
    assert!(matches!(&replies[..], [(_, told, _)] if told.aux == 2));
    // There its second byte had to be zero.
    let [(_, told, _)] = &replies[..] else { return };
    assert_eq!(told.emit()[1], 0);
    assert_eq!((stage.node.remotes(), stage.node.stats().refused), (1, 1));
}

#[test]
fn what_one_machine_borrows_leaves_others_as_much() {
    let peers = 300;
    let mut stage = Stage::new(Config {
        unexpected_bytes: 1 << 20,
        ..Config::default()
    });
    stage.wires(|wires| {
        wires.listen = true;
        wires.sources = vec![Source(5); peers as usize];
        wires.sources.push(Source(6));
    });
    for n in 0..peers {
        stage.call(n, n);
    }
    stage.run();
    stage.backlog = 1_000;
    for n in 0..20_000 {
        stage.send_honestly(n % peers, 1, &[]);
        stage.run();
    }
    let flow = stage.node.flow_stats();
    let lendable = flow.total - flow.total / 8;
    assert!(flow.lent <= lendable / 2, "{flow:?}");
    assert!(flow.lent > lendable / 3, "{flow:?}");
    // A peer from elsewhere finds as much.
    stage.call(peers, peers);
    stage.run();
    for _ in 0..1_000 {
        stage.send_honestly(peers, 1, &[]);
        stage.run();
    }
    let more = stage.node.flow_stats().lent - flow.lent;
    assert!(more > 300, "{more}");
    check(&stage);
}

#[test]
fn a_remote_whose_messages_all_wait_goes_on_when_others_leave_room() {
    let mut stage = listening(512 * 200, 2);
    // The first leaves all it may, and wants more.
    let mut left = 0;
    for _ in 0..1_000 {
        left += u64::from(stage.send_honestly(0, 1, &[]));
        stage.run();
    }
    assert!(left > 40, "{left}");
    let mut second = 0;
    for _ in 0..1_000 {
        second += u64::from(stage.send_honestly(1, 2, &[]));
        stage.run();
    }
    assert!(second >= 2, "{second}");
    assert_eq!(stage.free(1), 0);
    assert!(!stage.send_honestly(1, 2, &[]));
    // It hears of room without sending anything: the other's messages are received.
    for _ in 0..left {
        let got = stage.node.recv(MatchBits(1), MatchMask::EXACT, vec![], 0);
        assert!(matches!(got, Ok(Received::Complete(_))));
        stage.run();
    }
    assert!(stage.free(0) > 0);
    for _ in 0..second {
        let got = stage.node.recv(MatchBits(2), MatchMask::EXACT, vec![], 0);
        assert!(matches!(got, Ok(Received::Complete(_))));
        stage.run();
    }
    assert!(stage.free(1) > 0);
    let (used, limit) = stage.node.unexpected_usage();
    assert!(used <= limit);
}

#[test]
fn a_remote_with_few_credits_left_is_told_of_what_is_due_although_its_messages_are_kept() {
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
