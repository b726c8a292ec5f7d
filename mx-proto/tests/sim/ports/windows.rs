//! Two ends whose windows differ: what one may send the other takes.
//!
//! ```text
//!   n0, window 32 --- packets of all sizes ---> n1, window 32768
//!                 <---------------------------
//! ```

use super::peer::{exchange, two};
use super::{reliable, totals};
use mx_proto::reliability::ReliableConfig;
use mx_sim::{DatagramNet, Faults, Rng, Terms, World, seeds};
use std::time::Duration;

/// The least; one that is too small for the largest packets that are kept, one that is for data
/// packets; the default; the most.
const WINDOWS: [u16; 5] = [32, 135, 256, 1024, 32_768];

/// Exchanges packets of all sizes between ends of these windows; how many segments had to be dropped.
fn talk(seed: u64, windows: [u16; 2], loss: f64) -> u64 {
    let world = World::new(seed);
    seeds::watch(&world);
    let faults = Faults {
        loss,
        ..Faults::default()
    };
    let net = DatagramNet::new(&world, Terms::with(faults));
    let config = windows.map(|window| ReliableConfig {
        window,
        ..ReliableConfig::default()
    });
    let ports = (
        reliable(&net, 0, config[0], 1),
        reliable(&net, 1, config[1], 2),
    );
    let mut cluster = two(&world, ports);
    for (id, config) in config.into_iter().enumerate() {
        // A received packet may be larger than one that may be sent from here.
        let peer = cluster.node(id).expect("it lives");
        peer.heard.packet_max = config.packet_max;
    }
    let mut rng = Rng::new(seed);
    exchange(&mut cluster, &mut rng, 60, Duration::from_secs(20));
    totals(&mut cluster).outside_window
}

#[test]
fn whatever_one_window_lets_out_any_other_takes_in() {
    for one in WINDOWS {
        for other in WINDOWS {
            seeds::each(1, |seed| {
                let dropped = talk(seed, [one, other], 0.0);
                assert_eq!(dropped, 0, "windows {one} and {other}");
                talk(seed, [one, other], 0.02);
            });
        }
    }
}
