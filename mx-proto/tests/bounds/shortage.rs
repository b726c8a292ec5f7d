//! Memory that runs out: messages and calls that are rejected, what goes on, and whether the claims
//! cover what they stand for.

use super::peak_of;
use super::script::Stage;
use mx_proto::supply::{MemoryLevel, Supply};
use mx_proto::wire::Kind;
use mx_proto::{
    Arrival, Config, Down, DownReason, MatchBits, MatchMask, ReceivePosted, Status, Verdict,
};
use mx_sim::Reports;
use std::cell::Cell;

thread_local! {
    static LEVEL: Cell<MemoryLevel> = const { Cell::new(MemoryLevel::Ample) };
    static CLAIMED: Cell<usize> = const { Cell::new(0) };
}

/// A supply that is as short as the test says, with room for every claim.
const SUPPLY: Supply = Supply {
    level: || LEVEL.get(),
    claim: |bytes| {
        CLAIMED.set(CLAIMED.get() + bytes);
        true
    },
    release: |bytes| CLAIMED.set(CLAIMED.get() - bytes),
};

fn config() -> Config {
    Config {
        supply: SUPPLY,
        unexpected_bytes: 1 << 30,
        ..Config::default()
    }
}

/// Bytes that are not claimed, for the first 1024 items of each kind.
const FREE: isize = 2 << 20;

#[test]
fn remotes_and_messages_stay_within_their_claims() {
    for (peers, for_all) in [
        (3_000, false),
        (3_000, true),
        (16_385, false),
        (16_385, true),
    ] {
        let mut stage = None;
        CLAIMED.set(0);
        let peak = peak_of(|| {
            let stage = stage.insert(Stage::with_peers(config(), peers));
            // In the inbox each remote has a turn of its own; a message without bytes is fetched at
            // once.
            let put_in = |it: &Arrival| Verdict::Inbox {
                turn: it.source.index() + 1,
            };
            for n in 0..4 * peers {
                stage.offer(n % peers, n.into(), if for_all { 0 } else { 50_000 });
                if n % 1000 == 999 && for_all {
                    stage.run_with(put_in);
                } else if n % 1000 == 999 {
                    stage.run();
                }
            }
            if for_all {
                stage.run_with(put_in);
                return assert_eq!(stage.node.messages(), 4 * peers as usize);
            }
            stage.run();
            // With another mask all messages are sorted once more.
            let mask = MatchMask(0xffff_ffff);
            assert!(stage.node.probe(MatchBits(3), mask).is_some());
        });
        let (peak, claimed) = (peak - FREE, CLAIMED.get() as isize);
        assert!(peak <= claimed, "{peak} bytes, claimed {claimed}");
        drop(stage);
        assert_eq!(CLAIMED.get(), 0, "what was claimed is given back");
    }
}

#[test]
fn newcomers_are_rejected_while_memory_is_short() {
    for level in [MemoryLevel::Short, MemoryLevel::Critical] {
        let mut stage = Stage::with_peers(config(), 1);
        stage.peers(|peers| peers.listen = true);
        LEVEL.set(level);
        stage.call(1, 1);
        stage.run();
        assert_eq!(stage.node.remotes(), 1);
        let refusals = stage.sent(Kind::Reply);
        assert!(matches!(&refusals[..], [(_, told, _)] if told.aux != 0));
        LEVEL.set(MemoryLevel::Ample);
        stage.call(2, 1);
        stage.run();
        assert_eq!(stage.node.remotes(), 2);
    }
}

#[test]
fn a_message_without_memory_for_it_fails_only_its_sender() {
    let mut stage = Stage::with_peers(config(), 3);
    while stage.node.next_down().is_some() {}
    for n in 0..3 {
        let got = stage
            .node
            .recv(MatchBits(n), MatchMask::EXACT, vec![0; 8], n);
        assert!(matches!(got, Ok(ReceivePosted::Pending(_))));
    }
    // While memory is short, waiting messages remain and further ones are kept.
    LEVEL.set(MemoryLevel::Short);
    stage.eager(0, 100, &[5; 8]);
    stage.run();
    assert_eq!(stage.node.stats().out_of_memory, 0);
    LEVEL.set(MemoryLevel::Critical);
    // A message that a receive waits for is received, however little memory there is.
    stage.eager(0, 0, &[1; 8]);
    stage.eager(1, 101, &[2; 8]);
    stage.offer(2, 102, 1 << 20);
    stage.run();
    let done = stage.node.next_completion().expect("it was received");
    assert_eq!((done.context, done.status), (0, Status::Success));
    assert_eq!(stage.node.stats().out_of_memory, 2);
    assert_eq!(stage.node.remotes(), 1);
    for _ in 0..2 {
        let down = stage.node.next_down();
        let Some(Down { reason, .. }) = down else {
            panic!("{down:?}");
        };
        assert_eq!(reason, DownReason::NoMemory);
    }
    // An earlier message is received, and the peers can connect again.
    let got = stage
        .node
        .recv(MatchBits(100), MatchMask::EXACT, vec![0; 8], 7);
    assert!(matches!(got, Ok(ReceivePosted::Complete(done)) if done.status == Status::Success));
    LEVEL.set(MemoryLevel::Ample);
    for n in 1..3 {
        stage.call(2 + n, n);
        stage.run();
        stage.eager(2 + n, n.into(), &[3; 8]);
        stage.run();
        let done = stage.node.next_completion().expect("it is served");
        assert_eq!((done.context, done.status), (n.into(), Status::Success));
    }
    assert_eq!(stage.node.remotes(), 3);
}
