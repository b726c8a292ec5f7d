//! The reliability layer on links that lose, duplicate, reorder and damage datagrams or are slow,
//! and between ends with different windows.

use super::sessions::Stage;
use super::totals;
use mx_proto::reliability::{ReliableConfig, ReliableStats};
use mx_sim::{Faults, Rng, Terms, seeds};
use std::time::Duration;

/// Exchanges packets over two reliable ports. Returns the sums of their counters.
fn over(seed: u64, terms: Terms, configs: [ReliableConfig; 2]) -> ReliableStats {
    let mut stage = Stage::between(seed, configs, terms);
    stage.exchange_within(30, Duration::from_secs(600));
    let stats = totals(&mut stage.cluster);
    assert_eq!(stats.bad_acks, 0, "the two disagree about what was sent");
    for id in 0..2 {
        let early = stage.at(id).port.early_bytes();
        assert_eq!(early, 0, "nothing waits any more");
    }
    stats
}

/// Faults and settings, and the condition that the counters must meet.
type Case = (Faults, ReliableConfig, fn(&ReliableStats) -> bool);

#[test]
fn nothing_is_lost_whatever_a_link_does() {
    let (none, config) = (Faults::default(), ReliableConfig::default());
    let lossy = Faults { loss: 0.1, ..none };
    let cases: [Case; 7] = [
        (Faults { loss: 0.2, ..none }, config, |it| it.resent > 0),
        (
            Faults {
                duplicate: 0.5,
                ..none
            },
            config,
            |it| it.duplicates > 0,
        ),
        (
            Faults {
                reorder: 0.3,
                jitter: Duration::from_micros(100),
                ..none
            },
            config,
            |_| true,
        ),
        (
            Faults {
                corrupt: 0.2,
                ..none
            },
            config,
            |it| it.damaged + it.malformed > 0 && it.resent > 0,
        ),
        // A narrow queue slows the sender down instead of breaking the link.
        (
            Faults {
                bandwidth: Some(10_000_000),
                queue: 20_000,
                latency: Duration::from_millis(1),
                ..none
            },
            config,
            |_| true,
        ),
        // Numbers wrap.
        (
            Faults {
                reorder: 0.1,
                ..lossy
            },
            ReliableConfig {
                first_seq: Some(u32::MAX - 9),
                ..config
            },
            |_| true,
        ),
        // Early segments beyond the budget are dropped and sent again.
        (
            lossy,
            ReliableConfig {
                early_bytes: 3_000,
                ..config
            },
            |_| true,
        ),
    ];
    for (faults, config, is_met) in cases {
        seeds::each(8, |seed| {
            // In both directions, by turns: the channels share a queue, or reorder each other.
            let terms = Terms {
                one_queue: seed % 2 == 0,
                refuse: if seed % 3 == 0 { 0.1 } else { 0.0 },
                coalesce: [0.0, 0.5, 1.0][seed as usize % 3],
                ..Terms::with(faults)
            };
            let stats = over(seed, terms, [config; 2]);
            assert!(is_met(&stats), "{faults:?}: {stats:?}");
        });
    }
}

#[test]
fn slow_reader_of_the_data_channel_causes_no_resend() {
    seeds::each(8, |seed| {
        let terms = Terms {
            glances: 7,
            one_queue: seed % 2 == 0,
            ..Terms::default()
        };
        let stats = over(seed, terms, [ReliableConfig::default(); 2]);
        assert_eq!((stats.resent, stats.duplicates), (0, 0));
    });
}

fn any_mixture(seed: u64) {
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
    over(seed, terms, [config; 2]);
}

#[test]
fn random_faults_services_sizes_and_windows_lose_nothing() {
    seeds::each(60, any_mixture);
}

/// Seeds that once failed. What they do changes with the code.
#[test]
fn mixtures_that_once_failed_lose_nothing() {
    [103, 158].into_iter().for_each(any_mixture);
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
        let stats = over(seed, terms, [ReliableConfig::default(); 2]);
        assert!(stats.resent <= 3, "{stats:?}");
    });
}

/// The smallest window; one too small for the largest kept packets; one for data packets; the
/// default; the largest.
const WINDOWS: [u16; 5] = [32, 135, 256, 1024, 32_768];

#[test]
fn whatever_one_window_lets_out_any_other_takes_in() {
    for windows in WINDOWS
        .map(|one| WINDOWS.map(|other| [one, other]))
        .as_flattened()
    {
        let configs = windows.map(|window| ReliableConfig {
            window,
            ..ReliableConfig::default()
        });
        for loss in [0.0, 0.02] {
            let faults = Faults {
                loss,
                ..Faults::default()
            };
            let stats = over(1, Terms::with(faults), configs);
            assert!(loss > 0.0 || stats.outside_window == 0, "{windows:?}");
        }
    }
}

/// On a path with room for everything, only the window and the pace of the sender are limits.
#[test]
fn ten_percent_of_loss_far_away_leaves_a_quarter() {
    seeds::each(1, |seed| {
        let time = |loss| {
            let faults = Faults {
                latency: Duration::from_millis(20),
                loss,
                ..Faults::default()
            };
            let config = ReliableConfig::default();
            let mut stage = Stage::with(seed, config, Terms::with(faults));
            stage.exchange(3);
            let (began, before) = (stage.world.now(), stage.at(1).heard.received.len());
            (0..2).for_each(|id| stage.at(id).budget = 64);
            stage.at(0).to_send.extend([config.data_max; 400]);
            while stage.at(1).heard.received.len() < before + 400 {
                stage.run(Duration::from_millis(1));
            }
            stage.world.now().since(began)
        };
        let (clean, lossy) = (time(0.0), time(0.1));
        assert!(lossy <= clean * 4, "{lossy:?}, {clean:?} without loss");
    });
}
