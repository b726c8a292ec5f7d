//! The reliability layer on links that lose, double, reorder, damage and are narrow.

use super::peer::{exchange, two};
use super::{reliable, totals};
use mx_proto::former::{ReliableConfig, ReliableStats};
use mx_sim::{DatagramNet, Faults, Rng, World, seeds};
use std::time::Duration;

/// Exchanges over two reliable ports; the sum of what both counted.
fn over_faults(seed: u64, faults: Faults, mtu: usize, config: ReliableConfig) -> ReliableStats {
    let world = World::new(seed);
    seeds::watch(&world);
    let mut rng = Rng::new(seed);
    let net = DatagramNet::new(&world, mtu, faults);
    net.set_refuse(if rng.chance(0.3) { 0.1 } else { 0.0 });
    let ports = (
        reliable(&net, 0, config, seed),
        reliable(&net, 1, config, seed),
    );
    let mut cluster = two(&world, ports);
    exchange(&mut cluster, &mut rng, 30, Duration::from_secs(600));
    let stats = totals(&mut cluster);
    assert_eq!(stats.bad_acks, 0, "the two disagree about what was sent");
    stats
}

#[test]
fn a_fifth_of_all_datagrams_lost_loses_nothing() {
    seeds::each(20, |seed| {
        let faults = Faults {
            loss: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.resent > 0);
    });
}

#[test]
fn doubled_datagrams_are_delivered_once() {
    seeds::each(20, |seed| {
        let faults = Faults {
            duplicate: 0.5,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.duplicates > 0);
    });
}

#[test]
fn overtaking_datagrams_are_put_in_order() {
    seeds::each(20, |seed| {
        let faults = Faults {
            reorder: 0.3,
            jitter: Duration::from_micros(100),
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, ReliableConfig::default());
    });
}

#[test]
fn damaged_datagrams_are_dropped_and_sent_again() {
    seeds::each(20, |seed| {
        let faults = Faults {
            corrupt: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.damaged + stats.malformed > 0);
        assert!(stats.resent > 0);
    });
}

#[test]
fn a_narrow_queue_slows_the_sender_down_instead_of_breaking_the_link() {
    seeds::each(10, |seed| {
        let faults = Faults {
            bandwidth: Some(10_000_000),
            queue: 20_000,
            latency: Duration::from_millis(1),
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, ReliableConfig::default());
    });
}

#[test]
fn numbers_that_wrap_disturb_nothing() {
    seeds::each(20, |seed| {
        let config = ReliableConfig {
            first_seq: Some(u32::MAX - 9),
            ..ReliableConfig::default()
        };
        let faults = Faults {
            loss: 0.1,
            reorder: 0.1,
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, config);
    });
}

#[test]
fn any_mixture_of_faults_sizes_and_windows_loses_nothing() {
    seeds::each(100, |seed| {
        let mut rng = Rng::new(!seed);
        let config = ReliableConfig {
            window: rng.pick(&[8, 32, 256, 1024]),
            early_bytes: rng.pick(&[0, 5_000, 16 << 20]),
            first_seq: rng.chance(0.5).then_some(u32::MAX - 9),
            packet_max: rng.pick(&[4 << 10, 32 << 10]),
            ..ReliableConfig::default()
        };
        over_faults(
            seed,
            Faults::random(&mut rng),
            rng.pick(&[512, 1472, 9000]),
            config,
        );
    });
}

#[test]
fn early_fragments_beyond_the_budget_are_dropped_and_sent_again() {
    seeds::each(10, |seed| {
        let config = ReliableConfig {
            early_bytes: 3_000,
            ..ReliableConfig::default()
        };
        let faults = Faults {
            loss: 0.1,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, config);
        assert!(stats.outside_window > 0);
    });
}
