//! Nodes of the simulator that do only what they are told.

use mx_proto::Config;
use mx_proto::reliability::ReliableConfig;
use mx_sim::scenario::{Network, Stage, Unreliably};
use mx_sim::{Habits, Rng, Terms, World};
use std::time::Duration;

/// Makes a stage over datagrams with a node for each of these windows, in the world with that seed.
pub(crate) fn unreliably(
    seed: u64,
    terms: Terms,
    (config, windows): (ReliableConfig, &[u16]),
    endpoint: Config,
) -> Stage<Unreliably> {
    let world = World::new(seed);
    let network = Unreliably::new(&world, terms, config, Rng::new(seed));
    let mut stage = Stage::new((&world, network), 0, (endpoint, Habits::default()), true);
    for (id, window) in windows.iter().enumerate() {
        stage.network.config.window = *window;
        stage.begin(id);
    }
    stage
}

/// Has the first node call the second, and, if `both`, the second the first.
pub(crate) fn introduce<N: Network>(stage: &mut Stage<N>, both: bool) {
    stage.at(0).connect(1, mx_sim::node::KEY);
    if both {
        stage.at(1).connect(0, mx_sim::node::KEY);
    }
    stage.run(Duration::from_secs(2));
    assert_eq!(stage.at(0).remotes().len(), 1);
}
