//! The cost of an idle remote: memory, and time of a progress call.

use super::live;
use super::script::Stage;
use mx_proto::{Config, MatchBits, MatchMask, SendMode, SendPosted};
use mx_sim::{CallOff, Reports};
use std::time::Instant;

/// Limit of the bytes of an idle remote in the endpoint, tables included, however full they are.
const GOAL: isize = 700;

/// Bytes that an endpoint keeps for the next burst, however many remotes it has.
const ENDPOINT: isize = 1 << 20;

#[test]
fn quiet_remote_takes_little_memory_even_after_load() {
    // The cost is largest just after a table has grown, and smallest just before.
    for peers in [1_025, 2_000, 10_000, 16_385] {
        let before = live();
        let config = Config {
            // Room for the first message of every peer.
            unexpected_bytes: 256 << 20,
            first_credits: 8,
            ..Config::default()
        };
        let mut stage = Stage::with_peers(config, peers);
        let each = || (live() - before) / peers as isize;
        let new = each();
        // Every peer sends a message and is answered, and a large message goes each way.
        for n in 0..peers {
            stage.eager(n, n.into(), &[1; 100]);
            stage.offer(n, n.into(), 50_000);
        }
        stage.run();
        for n in 0..peers {
            for len in [100, 50_000] {
                let memory = vec![0; len];
                let bits = MatchBits(n.into());
                let got = stage.node.recv(bits, MatchMask::EXACT, memory, 0).unwrap();
                if let mx_proto::ReceivePosted::Pending(id) = got {
                    stage.node.cancel(id);
                }
            }
            let to = stage.remote_of(n);
            for len in [100, 50_000] {
                let posted = stage
                    .node
                    .send(to, MatchBits(1), vec![0; len], 0, SendMode::Standard);
                if let SendPosted::Pending(id) = posted.unwrap() {
                    stage.node.cancel(id);
                }
            }
        }
        stage.run();
        while stage.node.next_completion().is_some() {}
        assert_eq!(
            (stage.node.requests(), stage.node.unexpected_bytes()),
            (0, 0)
        );
        let used = each();
        println!("{peers} remotes: {new} bytes each when new, {used} after traffic");
        assert!(new <= GOAL, "{new}");
        assert!(used <= GOAL + ENDPOINT / peers as isize, "{used}");
    }
}

/// Returns the nanoseconds of one idle progress call, the least of many rounds.
fn idle_call(stage: &mut Stage) -> f64 {
    const CALLS: u32 = 20_000;
    let round = |stage: &mut Stage| {
        let start = Instant::now();
        for _ in 0..CALLS {
            assert!(!stage.node.progress());
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..30).map(|_| round(stage)).fold(f64::INFINITY, f64::min)
}

#[test]
fn a_hundred_thousand_quiet_remotes_take_no_progress_time() {
    let mut one = Stage::with_peers(Config::default(), 1);
    let mut many = Stage::with_peers(Config::default(), 100_000);
    let attempts = many.peers(|peers| peers.attempts);
    let (alone, crowd) = (idle_call(&mut one), idle_call(&mut many));
    println!("idle progress: {alone:.1} ns with 1 remote, {crowd:.1} ns with 100 000");
    assert_eq!(
        many.peers(|peers| peers.attempts),
        attempts,
        "something was sent"
    );
    assert_eq!(many.node.deadline(), None, "no remote has a timer");
    // The work is the same; a step for each remote would take a thousand times as long.
    assert!(crowd < 20.0 * alone + 1000.0, "{crowd} against {alone}");
}
