//! Several links at once: many to one over a narrow path, a slow one, a lossy one.
//!
//! ```text
//!   n1 --.
//!   n2 ---- switch: 1.25 GB/s, a short queue ----> n0
//!   n8 --'
//! ```

use super::mass::{Mass, run_for, run_until};
use mx_proto::reliability::ReliableConfig;
use mx_sim::{Cluster, DatagramNet, Faults, Rng, Terms, World, seeds};
use std::time::Duration;

/// 10 Gbit/s.
const RATE: u64 = 1_250_000_000;
const MILLI: Duration = Duration::from_millis(1);
const FOREVER: u64 = u64::MAX;

fn fast(latency: Duration) -> Faults {
    Faults {
        latency,
        bandwidth: Some(RATE),
        queue: 16 << 20,
        ..Faults::default()
    }
}

fn stage(
    seed: u64,
    terms: Terms,
    config: ReliableConfig,
    nodes: usize,
) -> (DatagramNet, Cluster<Mass>) {
    let world = World::new(seed);
    seeds::watch(&world);
    let net = DatagramNet::new(&world, terms);
    let mut cluster = Cluster::new(&world);
    for node in 0..nodes {
        cluster.add(Mass::new(&net, &world, node, config));
    }
    (net, cluster)
}

fn node(cluster: &mut Cluster<Mass>, id: usize) -> &mut Mass {
    cluster.node(id).expect("no node dies")
}

/// Eight send to one over a bottleneck of `RATE`; share of it that arrives, and the least and the
/// most of what single senders got through.
fn incast(seed: u64, mtu: usize, queue: usize, len: usize, span: Duration) -> (f64, u64, u64) {
    let terms = Terms {
        mtu,
        moderation: Duration::from_micros(5),
        ..Terms::with(fast(Duration::from_micros(20)))
    };
    let (net, mut cluster) = stage(seed, terms, ReliableConfig::default(), 9);
    net.set_bottleneck(0, RATE, queue);
    let mut rng = Rng::new(seed);
    for id in 1..9 {
        let latency = Duration::from_micros(rng.within(5..=50) as u64);
        net.set_faults_of(id, 0, fast(latency));
        node(&mut cluster, id).load(0, len, FOREVER);
        run_for(&mut cluster, rng.span(MILLI));
    }
    run_for(&mut cluster, 50 * MILLI);
    let before = node(&mut cluster, 0).counted.got.clone();
    run_for(&mut cluster, span);
    let after = &node(&mut cluster, 0).counted.got;
    assert_eq!(after.len(), 8, "a sender got nothing through");
    let got: Vec<u64> = after
        .iter()
        .map(|(link, got)| {
            let earlier = before.iter().find(|(of, _)| of == link);
            got.bytes - earlier.map_or(0, |(_, got)| got.bytes)
        })
        .collect();
    let share = got.iter().sum::<u64>() as f64 / (RATE as f64 * span.as_secs_f64());
    let (least, most) = (got.iter().min(), got.iter().max());
    println!(
        "seed {seed} mtu {mtu} queue {queue} share {share:.3} {got:?} {:?}",
        net.traffic()
    );
    (share, *least.expect("eight"), *most.expect("eight"))
}

/// Over a tenth of a second chance decides which of them is ahead: the one that was first there alone
/// may have twice its share for so long, and gives it up to the others after that.
#[test]
fn eight_to_one_over_a_short_queue_use_the_path_and_share_it() {
    seeds::each(2, |seed| {
        for (mtu, queue) in [(8_972, 1 << 20), (1_472, 256 << 10)] {
            let (share, least, most) = incast(seed, mtu, queue, 64 << 10, 400 * MILLI);
            assert!(share >= 0.8, "only {share} of the path is used: mtu {mtu}");
            assert!(2 * most <= 5 * least, "{least} to {most} bytes: mtu {mtu}");
        }
    });
}

#[test]
fn a_lossy_peer_does_not_slow_another() {
    let rate = |lossy: bool| {
        let terms = Terms {
            mtu: 8_972,
            ..Terms::with(fast(Duration::from_micros(20)))
        };
        let (net, mut cluster) = stage(1, terms, ReliableConfig::default(), 3);
        let loss = Faults {
            loss: 0.2,
            ..terms.faults
        };
        net.set_faults_of(0, 2, loss);
        net.set_faults_of(2, 0, loss);
        if lossy {
            node(&mut cluster, 0).load(2, 64 << 10, FOREVER);
        }
        node(&mut cluster, 0).load(1, 64 << 10, 300);
        run_until(&mut cluster, Duration::from_secs(10), |cluster| {
            node(cluster, 1).got().packets == 300
        })
    };
    let (alone, beside) = (rate(false), rate(true));
    assert!(
        beside <= alone.mul_f64(1.2),
        "{alone:?} alone, {beside:?} beside a lossy one"
    );
}

#[test]
fn a_receiver_that_looks_seldom_is_not_overrun() {
    seeds::each(1, slow_receiver);
}

fn slow_receiver(seed: u64) {
    let terms = Terms {
        mtu: 8_972,
        receive_buffer: 1 << 20,
        ..Terms::with(fast(Duration::from_micros(20)))
    };
    let (net, mut cluster) = stage(seed, terms, ReliableConfig::default(), 2);
    node(&mut cluster, 0).load(1, 32 << 10, 500);
    node(&mut cluster, 1).slow_down(2 * MILLI);
    let took = run_until(&mut cluster, Duration::from_secs(10), |cluster| {
        node(cluster, 1).got().packets == 500
    });
    let rate = (500 * (32 << 10)) as f64 / took.as_secs_f64();
    // A buffer each time it looks is the most there could be.
    let best = f64::from(1 << 20) / (2 * MILLI).as_secs_f64();
    let stats = *node(&mut cluster, 0).port.stats();
    println!(
        "{took:?} {} of the best {stats:?} {:?}",
        rate / best,
        net.traffic()
    );
    assert!(rate >= 0.2 * best, "{rate} of {best} bytes a second");
    assert!(
        net.traffic().overrun * 20 <= net.traffic().sent,
        "overrun: {:?}",
        net.traffic()
    );
}
