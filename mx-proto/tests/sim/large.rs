//! Large messages over datagrams, many of which are lost, or between ends with different settings:
//! they arrive whole, unchanged, and in acceptable time.
//!
//! ```text
//!   n0 -- 16 MiB --> n1      a tenth of all datagrams is lost, in both directions; or one window
//!      <-- 16 MiB --         is small
//! ```

use crate::stage::{introduce, unreliably};
use mx_proto::Config;
use mx_proto::reliability::ReliableConfig;
use mx_sim::check::Selector;
use mx_sim::{Faults, Rng, Terms, seeds};
use std::time::Duration;

const LARGE: usize = 16 << 20;
const TAG: u64 = 5;

/// Returns the time of a message of `len` bytes in each direction, sent at the same time, between
/// ends with these windows.
fn both_directions(seed: u64, loss: f64, windows: [u16; 2], len: usize) -> Duration {
    let faults = Faults {
        loss,
        latency: Duration::from_micros(50),
        bandwidth: Some(1_250_000_000),
        queue: 1 << 20,
        ..Faults::default()
    };
    let terms = Terms {
        moderation: Duration::from_micros(5),
        ..Terms::with(faults)
    };
    let config = (ReliableConfig::default(), &windows[..]);
    let mut stage = unreliably(seed, terms, config, Config::default());
    introduce(&mut stage, true);
    let began = stage.world.now();
    for id in 0..2 {
        let node = stage.at(id);
        node.recv(Selector::exact(TAG), len);
        node.send(node.remotes()[0], TAG, len);
    }
    stage.run_until_received(2, 10_000_000);
    stage.world.now().since(began)
}

#[test]
fn sixteen_mib_arrive_despite_a_tenth_lost() {
    seeds::each(2, |seed| {
        let took = both_directions(seed, 0.1, [1024; 2], LARGE);
        println!(
            "{took:?}: {:.0} MB/s each way",
            LARGE as f64 / took.as_secs_f64() / 1e6
        );
        assert!(took < Duration::from_secs(10), "it took {took:?}");
    });
}

#[test]
fn messages_arrive_between_ends_whose_windows_differ() {
    seeds::each(2, |seed| {
        // Eager, asked for, and far larger than any window.
        for len in [30_000, 300_000, LARGE] {
            for windows in [[32, 1024], [1024, 32], [256, 1024], [32, 32_768]] {
                let took = both_directions(seed, 0.0, windows, len);
                println!("{windows:?}: {len} bytes in {took:?}");
                assert!(took < Duration::from_secs(1), "{windows:?}: {took:?}");
            }
        }
    });
}

/// Sends `count` messages of these lengths in each direction at the same time, over these faults.
/// Each arrives once and unchanged, in a receive posted before or after the message comes.
fn streams(seed: u64, terms: Terms, config: ReliableConfig, lens: &[usize], count: usize) {
    let windows = [config.window; 2];
    let mut stage = unreliably(seed, terms, (config, &windows[..]), Config::default());
    introduce(&mut stage, true);
    let mut rng = Rng::new(seed);
    let mut posted = [0; 2];
    for nth in 0..count {
        let len = rng.pick(lens);
        for (id, posted) in posted.iter_mut().enumerate() {
            let node = stage.at(id);
            node.send(node.remotes()[0], TAG, len);
            // Some receives are posted before their message comes, others after; some are too
            // small.
            while *posted <= nth && rng.chance(0.7) {
                node.recv(Selector::exact(TAG), rng.pick(&[40_000, 512 << 10]));
                *posted += 1;
            }
        }
        stage.run(Duration::from_micros(rng.below(500)));
    }
    for (id, posted) in posted.into_iter().enumerate() {
        for _ in posted..count {
            stage.at(id).recv(Selector::exact(TAG), 512 << 10);
        }
    }
    stage.run_until_received(2 * count as u64, 30_000_000);
    for id in 0..2 {
        let stats = stage.at(id).endpoint.stats();
        assert!(stats.eager_out > 0, "all were asked for");
    }
}

#[test]
fn streams_of_middle_sizes_arrive_over_loss_and_disorder() {
    seeds::each(6, |seed| {
        let faults = Faults {
            loss: [0.0, 0.02, 0.2][seed as usize % 3],
            reorder: 0.1,
            jitter: Duration::from_micros(50),
            duplicate: 0.02,
            latency: Duration::from_micros(20),
            ..Faults::default()
        };
        for (mtu, window) in [(65_507, 1024), (1472, 1024), (9000, 32)] {
            let terms = Terms {
                mtu,
                ..Terms::with(faults)
            };
            let config = ReliableConfig {
                window,
                early_bytes: if seed % 2 == 0 { 100_000 } else { 1 << 20 },
                ..ReliableConfig::default()
            };
            streams(seed, terms, config, &[64 << 10, 256 << 10, 512 << 10], 40);
        }
    });
}
