//! Windows go where they are used.

use super::script::Stage;
use mx_proto::wire::{Header, Kind};
use mx_proto::{Arrival, Config, MatchBits, MatchMask, Received, Verdict};

/// Has done with everything.
fn finish(_: &Arrival) -> Verdict<Vec<u8>> {
    Verdict::Finished
}

fn listening(limit: usize, epoch_packets: u32, peers: u32) -> Stage {
    let config = Config {
        unexpected_bytes: limit,
        epoch_packets,
        ..Config::default()
    };
    let stage = Stage::with_peers(config, peers);
    stage.wires(|wires| wires.listen = true);
    stage
}

/// A peer answers a Reclaim as an endpoint of ours does.
fn answer(stage: &Stage, reclaim: &(mx_proto::LinkId, Header, Vec<u8>)) -> (u32, u32) {
    let (link, header, _) = reclaim;
    let link = link.index();
    let (bytes, messages) = stage.window(link);
    let given = (bytes.min(header.length), messages.min(header.aux));
    stage.spend(link, given.0, given.1);
    let mut yielded = Header::new(Kind::Yield, 0, given.0);
    yielded.aux = given.1;
    stage.say(link, yielded, &[]);
    given
}

/// One peer sends a message that is done with at once; all answer what they are asked. Who was.
fn busy(stage: &mut Stage, link: u32, len: usize) -> Vec<u32> {
    stage.send_honestly(link, 1, &vec![1; len]);
    stage.run_with(finish);
    let asked = stage.sent(Kind::Reclaim);
    for reclaim in &asked {
        answer(stage, reclaim);
    }
    stage.run_with(finish);
    assert!(stage.sent(Kind::Reclaim).is_empty() || !asked.is_empty());
    asked.iter().map(|(link, _, _)| link.index()).collect()
}

#[test]
fn ten_thousand_partners_get_a_kibibyte_each_and_nobody_is_asked_for_it() {
    let stage = Stage::with_peers(Config::default(), 10_000);
    for n in 0..10_000 {
        let (bytes, messages) = stage.window(n);
        assert!(bytes >= 1024 && messages >= 4, "{n}: {bytes} {messages}");
    }
    assert_eq!(stage.window(0), (32 << 10, 32));
    assert_eq!(stage.node.stats().reclaims, 0);
}

#[test]
fn while_there_is_room_nobody_is_asked() {
    let mut stage = listening(64 << 20, 1, 20);
    for n in 0..20_000 {
        assert!(busy(&mut stage, n % 3, 8_000).is_empty());
    }
    // Those three have what a busy partner gets.
    assert!(stage.window(0).0 > 128 << 10);
    assert_eq!(stage.node.stats().short, 0);
}

#[test]
fn the_quietest_are_asked_first_and_the_busy_one_gets_what_they_had() {
    let peers = 120;
    let mut stage = listening(1 << 20, 1, peers);
    // Everybody has sent once, in this order, and the last is busy from now on.
    let order: Vec<u32> = (0..peers - 1).map(|n| n * 8 % (peers - 1)).collect();
    for n in &order {
        // An epoch each.
        for _ in 0..8 * peers {
            stage.say(*n, Header::new(Kind::Pong, 0, 0), &[]);
        }
        assert!(busy(&mut stage, *n, 10).is_empty());
    }
    let before = stage.window(peers - 1).0;
    // Who came late has no more than is left to everybody.
    let mut order = order;
    order.retain(|n| stage.window(*n) > (1024, 4));
    let mut asked = Vec::new();
    for _ in 0..20_000 {
        asked.extend(busy(&mut stage, peers - 1, 900));
    }
    assert!(!asked.is_empty());
    assert_eq!(asked[..], order[..asked.len()]);
    let after = stage.window(peers - 1).0;
    assert!(after > 4 * before.max(10_000), "{before} became {after}");
    let stats = stage.node.stats();
    assert_eq!(stats.reclaims, asked.len() as u64);
    assert!(stats.yielded > 0);
    // What was asked of those that have the least left: nothing, and four messages are theirs.
    for n in asked {
        assert!(stage.window(n).1 >= 4 && stage.window(n).0 <= 1024);
    }
}

#[test]
fn one_that_was_asked_gets_a_window_again_with_its_next_message() {
    let peers = 120;
    let mut stage = listening(1 << 20, 1, peers);
    let mut asked = Vec::new();
    for _ in 0..5_000 {
        asked.extend(busy(&mut stage, peers - 1, 900));
    }
    let first = asked[0];
    let (bytes, messages) = stage.window(first);
    assert!(bytes <= 1024 && messages >= 4);
    // Too large for what is left: it is offered.
    busy(&mut stage, first, 4_000);
    for _ in 0..10 {
        busy(&mut stage, first, 4_000);
    }
    assert!(stage.window(first).0 >= 4_000, "{:?}", stage.window(first));
}

#[test]
fn with_everybody_busy_nothing_moves() {
    let peers = 60;
    let mut stage = listening(1 << 20, 1, peers);
    let round = |stage: &mut Stage| {
        for n in 0..peers {
            for _ in 0..4 {
                busy(stage, n, 3_000);
            }
        }
    };
    for _ in 0..50 {
        round(&mut stage);
    }
    let settled = stage.node.stats().reclaims;
    for _ in 0..50 {
        round(&mut stage);
    }
    assert_eq!(stage.node.stats().reclaims, settled);
    // And nobody has nothing.
    for n in 0..peers {
        assert!(stage.window(n).0 >= 3_000, "{n}: {:?}", stage.window(n));
    }
}

#[test]
fn who_came_early_and_stays_busy_shares_with_who_comes_late() {
    let mut stage = listening(1 << 20, 1 << 30, 3);
    // Three grow to all there is; nobody is ever quiet here.
    for n in 0..6_000 {
        busy(&mut stage, n % 3, 8_000);
    }
    let late = 3;
    let hog = stage.window(0).0;
    assert!(hog > 100 << 10, "{hog}");
    for n in late..60 {
        stage.call(n, n);
    }
    stage.run_with(finish);
    for n in 0..6_000 {
        busy(&mut stage, n % 3, 8_000);
        busy(&mut stage, late + n % 57, 2_000);
    }
    assert!(stage.window(0).0 < hog);
    for n in late..60 {
        assert!(stage.window(n).0 >= 1024, "{n}: {:?}", stage.window(n));
    }
    assert_eq!(stage.node.stats().reclaims, 0);
}

#[test]
fn one_step_asks_few_and_each_is_asked_once_until_it_answers() {
    let peers = 10_000;
    let mut stage = listening(24 << 20, 1, peers);
    let mut asked = vec![0; peers as usize];
    for _ in 0..250_000 {
        stage.send_honestly(0, 1, &[1; 1000]);
        stage.run_with(finish);
        let now = stage.sent(Kind::Reclaim);
        assert!(now.len() <= 8, "{}", now.len());
        for (link, _, _) in now {
            asked[link.index() as usize] += 1;
        }
    }
    // Nobody has answered: others were asked, nobody twice, and it goes on without their windows.
    assert!(asked.iter().sum::<u32>() > 8);
    assert!(asked.iter().all(|times| *times <= 1));
    assert_eq!(stage.node.partners(), peers as usize);
}

#[test]
fn a_yield_of_more_than_the_window_ends_its_sender_and_so_does_one_unasked() {
    let mut stage = listening(1 << 20, 1, 120);
    let others = |stage: &Stage| stage.node.partners();
    stage.say(7, Header::new(Kind::Yield, 0, 1), &[]);
    stage.run_with(finish);
    assert_eq!((others(&stage), stage.node.stats().malformed), (119, 1));
    let mut liar = None;
    for _ in 0..5_000 {
        stage.send_honestly(119, 1, &[1; 900]);
        stage.run_with(finish);
        for reclaim in stage.sent(Kind::Reclaim) {
            if liar.is_none() {
                liar = Some(reclaim.0.index());
                let more = stage.window(reclaim.0.index()).0 + 1;
                stage.say(reclaim.0.index(), Header::new(Kind::Yield, 0, more), &[]);
            } else {
                answer(&stage, &reclaim);
            }
        }
        stage.run_with(finish);
    }
    assert!(liar.is_some());
    assert_eq!((others(&stage), stage.node.stats().malformed), (118, 2));
    let (used, limit) = stage.node.unexpected_usage();
    assert!(used <= limit);
}

#[test]
fn a_partner_whose_messages_all_wait_goes_on_when_others_leave_room() {
    let mut stage = listening(320 * 200, 1, 2);
    // The first leaves all it may.
    let mut left = 0;
    while stage.send_honestly(0, 1, &[]) {
        left += 1;
        stage.run();
    }
    assert!(left > 40, "{left}");
    let mut second = 0;
    while stage.send_honestly(1, 2, &[]) {
        second += 1;
        stage.run();
    }
    assert!((4..=20).contains(&second), "{second}");
    assert_eq!(stage.window(1).1, 0);
    // It hears of room without sending anything: half of the other's messages are received.
    for _ in 0..left / 2 {
        let got = stage.node.recv(MatchBits(1), MatchMask::EXACT, vec![], 0);
        assert!(matches!(got, Ok(Received::Complete(_))));
    }
    stage.run();
    assert!(stage.window(1).1 > 0);
    let (used, limit) = stage.node.unexpected_usage();
    assert!(used <= limit);
}
