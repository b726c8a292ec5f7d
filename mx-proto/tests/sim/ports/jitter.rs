//! Paths with jitter, loss or both, compared with the same path without.
//!
//! ```text
//!   Mass n0 -- latency .. latency + jitter, loss --> Mass n1        as much as goes, one direction
//! ```

use super::mass::{Mass, run_for, run_until};
use mx_proto::reliability::{ReliableConfig, ReliableStats};
use mx_sim::{Cluster, DatagramNet, Faults, Terms, World, seeds};
use std::time::Duration;

const MILLI: Duration = Duration::from_millis(1);

/// A path that takes `latency` to `latency + jitter`.
fn path(latency: Duration, jitter: Duration, loss: f64) -> Faults {
    Faults {
        latency,
        jitter,
        loss,
        ..Faults::default()
    }
}

struct Outcome {
    /// MiB a second.
    goodput: f64,
    /// The sender's, from the beginning.
    stats: ReliableStats,
}

/// Sends for `span` over a path that has been in use for a hundred times its latency.
fn over(seed: u64, faults: Faults, span: Duration) -> Outcome {
    let world = World::new(seed);
    seeds::watch(&world);
    let net = DatagramNet::new(&world, Terms::with(faults));
    let mut cluster = Cluster::new(&world);
    for node in 0..2 {
        cluster.add(Mass::new(&net, &world, node, ReliableConfig::default()));
    }
    let sender = cluster.node(0).expect("no node dies");
    let len = sender.limits().data_max;
    sender.load(1, len, u64::MAX);
    let got = |cluster: &mut Cluster<Mass>| cluster.node(1).expect("no node dies").got().bytes;
    run_until(&mut cluster, Duration::from_secs(20), |cluster| {
        got(cluster) > 0
    });
    run_for(&mut cluster, 100 * (faults.latency + faults.jitter));
    let before = got(&mut cluster);
    run_for(&mut cluster, span);
    let bytes = got(&mut cluster) - before;
    let stats = *cluster.node(0).expect("no node dies").port.stats();
    let goodput = bytes as f64 / f64::from(1 << 20) / span.as_secs_f64();
    println!("seed {seed} {faults:?}: {goodput:.1} MiB/s {stats:?}");
    Outcome { goodput, stats }
}

#[test]
fn jitter_without_loss_costs_no_more_than_the_longest_latency_does() {
    seeds::each(3, |seed| {
        for unit in [MILLI, 10 * MILLI] {
            let span = 300 * unit;
            let steady = over(seed, path(2 * unit, Duration::ZERO, 0.0), span);
            let jittery = over(seed, path(unit, unit, 0.0), span);
            assert!(
                jittery.goodput >= 0.9 * steady.goodput,
                "{} MiB/s over {unit:?} to twice that, {} over a steady twice",
                jittery.goodput,
                steady.goodput
            );
            let again = jittery.stats.resent * 1000 / jittery.stats.datagrams_out;
            assert!(again <= 5, "{again} of 1000 were sent again for nothing");
        }
    });
}

#[test]
fn ten_percent_of_loss_far_away_leaves_a_quarter() {
    seeds::each(3, |seed| {
        let span = 5000 * MILLI;
        let goodput = |loss| over(seed, path(20 * MILLI, Duration::ZERO, loss), span).goodput;
        let (clean, lossy) = (goodput(0.0), goodput(0.1));
        assert!(
            lossy >= clean / 4.0,
            "{lossy} of {clean} MiB/s at 10 % of loss"
        );
    });
}

#[test]
fn order_is_believed_in_again_after_a_while() {
    seeds::each(1, |seed| {
        let world = World::new(seed);
        seeds::watch(&world);
        let faults = path(MILLI, MILLI, 0.0);
        let net = DatagramNet::new(&world, Terms::with(faults));
        let mut cluster = Cluster::new(&world);
        for node in 0..2 {
            cluster.add(Mass::new(&net, &world, node, ReliableConfig::default()));
        }
        let sender = cluster.node(0).expect("no node dies");
        sender.load(1, 32 << 10, 0);
        // As many as 200 ms carry; returns the number of reordered segments among them.
        let burst = |cluster: &mut Cluster<Mass>| {
            let sender = cluster.node(0).expect("no node dies");
            let before = sender.port.stats().late;
            sender.loads[0].left = 1000;
            run_for(cluster, 400 * MILLI);
            let sender = cluster.node(0).expect("no node dies");
            assert_eq!(sender.loads[0].left, 0);
            sender.port.stats().late - before
        };
        let first = burst(&mut cluster);
        assert!(first > 0, "nothing was reordered");
        let second = burst(&mut cluster);
        assert!(second <= first / 4, "{first} reordered ones, then {second}");
        // After 10 s a loss is found at once again, and reordering is unexpected.
        run_for(&mut cluster, 11_000 * MILLI);
        let third = burst(&mut cluster);
        assert!(
            third > second,
            "{second} reordered ones, after a while {third}"
        );
    });
}
