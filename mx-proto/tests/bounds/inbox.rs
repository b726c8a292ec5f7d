//! The inbox, with remotes that follow no rules but those of their credits, or not even these.

use super::live;
use super::script::Stage;
use mx_proto::flow::{CREDIT, Lane, OVERHEAD, Payment, cost};
use mx_proto::wire::{Header, Kind};
use mx_proto::{Arrival, Config, InboxStats, Verdict};
use mx_sim::{Reports, Rng, seeds};

/// Puts every message into the inbox, in the turn that its bits contain.
fn put_in(it: &Arrival) -> Verdict {
    let turn = (it.bits.0 >> 8) as u32 & 7;
    Verdict::Inbox { turn }
}

fn begin(unexpected_bytes: usize, peers: u32) -> Stage {
    let config = Config {
        unexpected_bytes,
        fetched_max: unexpected_bytes as u32 / 4,
        ..Config::default()
    };
    let stage = Stage::with_peers(config, peers);
    stage.peers(|peers| peers.listen = true);
    stage
}

fn leave(stage: &mut Stage, peer: u32) {
    stage.say(peer, Header::new(Kind::Disconnect, 0, 0), &[]);
    stage.run_with(put_in);
    while stage.node.next_down().is_some() {}
}

/// Disconnects all peers and takes out all messages; asserts that all credits are free again.
fn end(stage: &mut Stage, peers: u32) {
    for peer in 0..peers {
        leave(stage, peer);
    }
    while stage.node.next_message().is_some() {}
    stage.run_with(put_in);
    assert_eq!(stage.node.inbox_stats(), InboxStats::default());
    let flow = stage.node.flow_stats();
    assert_eq!((flow.free, flow.remotes), (flow.total, 0), "{flow:?}");
    assert_eq!((stage.node.remotes(), stage.node.requests()), (0, 0));
}

#[test]
fn a_message_takes_no_more_than_is_counted_for_it() {
    for count in [16_384, 16_385, 28_672, 28_673] {
        for offered in [false, true] {
            let mut stage = begin(64 << 20, 100);
            stage.backlog = 4096;
            let before = live();
            let mut sent = 0;
            while sent < count {
                for n in 0..100 {
                    let bits = u64::from(1 + n % 7) << 8 | sent << 16;
                    if sent == count {
                    } else if !offered {
                        sent += u64::from(stage.send_honestly(n, bits, &[1]));
                    } else if stage.free(n) > 0 {
                        stage.spend(n, 1);
                        stage.offer(n, bits, 100_000);
                        sent += 1;
                    }
                }
                // A longer queue at the peer, so that it is lent more.
                if offered {
                    for n in 0..100 {
                        let mut header = Header::new(Kind::Credit, 0, 0);
                        header.credit_fields.wanted = 4096;
                        stage.say(n, header, &[]);
                    }
                }
                stage.run_with(put_in);
            }
            let stats = stage.node.inbox_stats();
            // Messages for which credits are drawn and which have memory already are counted at
            // what was drawn.
            let fetching = stats.fetching as isize * (100_000 + 512);
            let each = (live() - before - fetching) / count as isize;
            println!("{count} messages, offered: {offered}, {each} B each");
            assert!(each <= OVERHEAD as isize, "{each}");
        }
    }
}

/// Sends a small message of peer `n` in a slot.
fn say_in(stage: &Stage, n: u32, lane: Lane) {
    let mut header = Header::new(Kind::Eager, 1 << 8 | u64::from(n), 1);
    header.aux = Payment::Slot(lane).aux();
    stage.say(n, header, &[n as u8]);
}

#[test]
fn slots_are_free_again_when_their_messages_are_taken() {
    let mut stage = begin(0, 2);
    for _ in 0..40 {
        for lane in Lane::ALL {
            say_in(&stage, 1, lane);
        }
        stage.run_with(put_in);
        for _ in Lane::ALL {
            assert_eq!(stage.node.next_message().unwrap().memory, [1]);
        }
        assert!(stage.node.next_message().is_none());
    }
    assert_eq!(stage.node.flow_stats().in_slots, 80);
    assert_eq!(stage.node.remotes(), 2);
    // The slot is still in use for the second message, which breaks the rules.
    for _ in 0..2 {
        say_in(&stage, 1, Lane::Matched);
    }
    stage.run_with(put_in);
    assert_eq!((stage.node.remotes(), stage.node.stats().malformed), (1, 1));
    end(&mut stage, 1);
}

#[test]
fn slot_messages_outlive_their_sender_if_there_is_room() {
    // The endpoint has one credit.
    let mut stage = begin(0, 3);
    assert_eq!(stage.node.flow_stats().total, 1);
    let lent: Vec<_> = (0..3).map(|n| stage.free(n)).collect();
    // The last peer has two messages here, for which there is never room.
    for n in 0..3 {
        say_in(&stage, n, Lane::Unexpected);
    }
    say_in(&stage, 2, Lane::Matched);
    stage.run_with(put_in);
    assert_eq!(stage.node.messages(), 4);
    leave(&mut stage, 2);
    assert_eq!(stage.node.messages(), 2);
    // The peer that was lent the credit leaves it to its own message.
    let (first, then) = if lent[0] == 1 { (0, 1) } else { (1, 0) };
    leave(&mut stage, first);
    assert_eq!(
        (stage.node.messages(), stage.node.flow_stats().tombstones),
        (2, 1)
    );
    leave(&mut stage, then);
    assert_eq!(
        (stage.node.messages(), stage.node.flow_stats().tombstones),
        (1, 1)
    );
    assert_eq!(stage.node.next_message().unwrap().memory, [first as u8]);
    end(&mut stage, 0);
}

/// Sends a random packet of a peer that concerns its messages.
fn say_anything(stage: &mut Stage, rng: &mut Rng, n: u32) {
    let tag = rng.below(6);
    let bits = rng.below(8) << 8 | tag;
    match rng.below(12) {
        0..4 => {
            let len = rng.pick(&[0, 1, 100, 700]);
            let paid = u32::from(stage.free(n) >= cost(len)) * cost(len);
            if paid > 0 {
                stage.spend(n, paid);
                stage.eager(n, bits, &vec![n as u8; len as usize]);
            }
        }
        4..8 => {
            // There are few names, so some have two messages.
            if stage.free(n) > 0 {
                stage.spend(n, 1);
                let header = Header::new(
                    Kind::Offer,
                    bits,
                    rng.pick(&[0, 1, 5_000, 40_000, u32::MAX]),
                );
                stage.say(n, header, &tag.to_le_bytes());
            }
        }
        8 => stage.say(n, Header::new(Kind::Withdraw, tag, 0), &[]),
        9 => {
            let nonsense = Header::new(Kind::Data, rng.below(1 << 33), 0);
            stage.say(n, nonsense, &[1; 8]);
        }
        _ => {
            let mut header = Header::new(Kind::Credit, 0, 0);
            header.credit_fields.wanted = rng.below(200) as u32;
            stage.say(n, header, &[]);
        }
    }
}

/// Answers the Pulls as the peers, sometimes with more than they ask for.
fn answer(stage: &mut Stage, rng: &mut Rng, gone: &[bool]) {
    for (link, header, body) in stage.sent(Kind::Pull) {
        if gone[link.index() as usize] || rng.chance(0.2) {
            continue;
        }
        let mut recv_id = [0; 8];
        recv_id.copy_from_slice(&body[..8]);
        let mut left = u32::from_le_bytes([body[8], body[9], body[10], body[11]]);
        let mut at = header.length;
        while left > 0 {
            let len = left.min(rng.within(1..=30_000) as u32);
            let data = Header::new(Kind::Data, u64::from_le_bytes(recv_id), at);
            stage.say(link.index(), data, &vec![7; len as usize]);
            (at, left) = (at + len, left - len);
        }
        if rng.chance(0.1) {
            stage.say(
                link.index(),
                Header::new(Kind::Withdraw, header.word, 0),
                &[],
            );
        }
    }
}

#[test]
fn whatever_peers_say_nothing_is_lost_of_what_there_is() {
    seeds::each(300, |seed| {
        let mut rng = Rng::new(seed);
        let peers = 6;
        let limit = rng.pick(&[4 << 10, 64 << 10, 256 << 10]);
        let mut stage = begin(limit, peers);
        let mut gone = [false; 6];
        for _ in 0..rng.below(400) {
            let n = rng.below(peers.into()) as u32;
            match rng.below(40) {
                0 if !gone[n as usize] => {
                    gone[n as usize] = true;
                    leave(&mut stage, n);
                }
                1 => {
                    stage.node.forget_messages(rng.below(8) as u32);
                    assert!(!stage.node.holds_messages(8));
                }
                2..8 => drop(stage.node.next_message()),
                8..12 => {
                    let turn = stage.node.next_turn(|_| true);
                    let message = stage.node.next_message();
                    assert_eq!(message.map(|it| it.turn), turn);
                }
                12..18 => stage.run_with(put_in),
                18..22 => answer(&mut stage, &mut rng, &gone),
                _ if gone[n as usize] => {}
                _ => say_anything(&mut stage, &mut rng, n),
            }
            let stats = stage.node.inbox_stats();
            let flow = stage.node.flow_stats();
            assert_eq!(stats.fetching, stage.node.requests());
            assert_eq!(
                flow.lent + flow.drawn + flow.tombstones + flow.free,
                flow.total
            );
            assert!(stats.bytes <= limit + 2 * CREDIT * peers as usize);
        }
        assert_eq!(stage.node.stats().malformed, 0);
        let still: Vec<_> = (0..peers).filter(|n| !gone[*n as usize]).collect();
        stage.run_with(put_in);
        for n in still {
            leave(&mut stage, n);
        }
        end(&mut stage, 0);
    });
}

/// A message that remained in a slot would need room, and there is none.
#[test]
fn slot_of_an_undecided_message_is_free_without_sender() {
    let mut stage = begin(0, 2);
    let poor = (0..2).find(|n| stage.free(*n) == 0).unwrap();
    say_in(&stage, poor, Lane::Unexpected);
    stage.run_with(|_| Verdict::Defer);
    let deferred = stage.node.next_deferred().expect("it is undecided");
    stage.node.disconnect(deferred.arrival.source);
    stage.node.decide(deferred, mx_proto::Decision::Continue);
    let flow = stage.node.flow_stats();
    assert_eq!((stage.node.undecided(), flow.tombstones), (0, 0));
    leave(&mut stage, 1 - poor);
    end(&mut stage, 0);
}
