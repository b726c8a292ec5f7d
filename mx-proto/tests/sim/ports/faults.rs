//! The reliability layer on links that lose, double, reorder, damage and are narrow.

use super::peer::{exchange, two};
use super::{reliable, totals};
use mx_proto::reliability::{ReliableConfig, ReliableStats};
use mx_sim::{DatagramNet, Faults, Rng, Terms, World, seeds};
use std::time::Duration;

/// Exchanges over two reliable ports; the sum of what both counted.
fn over(seed: u64, terms: Terms, config: ReliableConfig) -> ReliableStats {
    let world = World::new(seed);
    seeds::watch(&world);
    world.note(0, format!("{terms:?} {config:?}"));
    let mut rng = Rng::new(seed);
    let net = DatagramNet::new(&world, terms);
    let ports = (
        reliable(&net, 0, config, seed),
        reliable(&net, 1, config, seed),
    );
    let mut cluster = two(&world, ports);
    exchange(&mut cluster, &mut rng, 30, Duration::from_secs(600));
    let stats = totals(&mut cluster);
    assert_eq!(stats.bad_acks, 0, "the two disagree about what was sent");
    for id in 0..2 {
        let port = &cluster.node(id).expect("alive").port;
        assert_eq!(port.early_bytes(), 0, "nothing waits any more");
    }
    stats
}

/// In both directions, in turns: the channels share a queue, or reorder each other.
fn over_faults(seed: u64, faults: Faults, config: ReliableConfig) -> ReliableStats {
    let terms = Terms {
        one_queue: seed % 2 == 0,
        refuse: if seed % 3 == 0 { 0.1 } else { 0.0 },
        coalesce: [0.0, 0.5, 1.0][seed as usize % 3],
        ..Terms::with(faults)
    };
    over(seed, terms, config)
}

#[test]
fn a_fifth_of_all_datagrams_lost_loses_nothing() {
    seeds::each(8, |seed| {
        let faults = Faults {
            loss: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, ReliableConfig::default());
        assert!(stats.resent > 0);
    });
}

#[test]
fn doubled_datagrams_are_delivered_once() {
    seeds::each(8, |seed| {
        let faults = Faults {
            duplicate: 0.5,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, ReliableConfig::default());
        assert!(stats.duplicates > 0);
    });
}

#[test]
fn reordered_datagrams_are_put_in_order() {
    seeds::each(8, |seed| {
        let faults = Faults {
            reorder: 0.3,
            jitter: Duration::from_micros(100),
            ..Faults::default()
        };
        over_faults(seed, faults, ReliableConfig::default());
    });
}

#[test]
fn a_receiver_that_seldom_looks_at_its_data_channel_causes_no_resend() {
    seeds::each(8, |seed| {
        let terms = Terms {
            glances: 7,
            one_queue: seed % 2 == 0,
            ..Terms::default()
        };
        let stats = over(seed, terms, ReliableConfig::default());
        assert_eq!((stats.resent, stats.duplicates), (0, 0));
    });
}

#[test]
fn damaged_datagrams_are_dropped_and_sent_again() {
    seeds::each(8, |seed| {
        let faults = Faults {
            corrupt: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, ReliableConfig::default());
        assert!(stats.damaged + stats.malformed > 0);
        assert!(stats.resent > 0);
    });
}

#[test]
fn a_narrow_queue_slows_the_sender_down_instead_of_breaking_the_link() {
    seeds::each(5, |seed| {
        let faults = Faults {
            bandwidth: Some(10_000_000),
            queue: 20_000,
            latency: Duration::from_millis(1),
            ..Faults::default()
        };
        over_faults(seed, faults, ReliableConfig::default());
    });
}

#[test]
fn numbers_that_wrap_disturb_nothing() {
    seeds::each(8, |seed| {
        let config = ReliableConfig {
            first_seq: Some(u32::MAX - 9),
            ..ReliableConfig::default()
        };
        let faults = Faults {
            loss: 0.1,
            reorder: 0.1,
            ..Faults::default()
        };
        over_faults(seed, faults, config);
    });
}

#[test]
fn any_mixture_of_faults_services_sizes_and_windows_loses_nothing() {
    seeds::each(60, |seed| {
        let mut rng = Rng::new(!seed);
        let terms = Terms::random(&mut rng);
        let config = ReliableConfig {
            window: rng.pick(&[32, 64, 256, 1024]),
            send_bytes: rng.pick(&[300 << 10, 4 << 20]),
            early_bytes: rng.pick(&[0, 5_000, 1 << 20]),
            early_bytes_all: rng.pick(&[10_000, 16 << 20]),
            first_seq: rng.chance(0.5).then_some(u32::MAX - 9),
            packet_max: rng.pick(&[4 << 10, 32 << 10]),
            data_max: rng.pick(&[32 << 10, 64 << 10, 256 << 10]),
            tiny: rng.pick(&[0, 200, 768]),
            burst: rng.pick(&[1, 16]),
            always_sum: rng.chance(0.5),
            ..ReliableConfig::default()
        };
        over(seed, terms, config);
    });
}

#[test]
fn early_segments_beyond_the_budget_are_dropped_and_sent_again() {
    seeds::each(5, |seed| {
        let config = ReliableConfig {
            early_bytes: 3_000,
            ..ReliableConfig::default()
        };
        let faults = Faults {
            loss: 0.1,
            ..Faults::default()
        };
        over_faults(seed, faults, config);
    });
}

#[test]
fn channels_without_order_between_them_cause_no_resend() {
    seeds::each(5, |seed| {
        let terms = Terms {
            one_queue: false,
            ..Terms::with(Faults {
                bandwidth: Some(1_000_000_000),
                queue: 16 << 20,
                ..Faults::default()
            })
        };
        let stats = over(seed, terms, ReliableConfig::default());
        assert!(stats.resent <= 3, "{stats:?}");
    });
}
