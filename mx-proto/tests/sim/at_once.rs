//! A cluster that starts: all nodes call all others at the same time.

use mx_proto::Config;
use mx_proto::reliability::ReliableConfig;
use mx_sim::node::KEY;
use mx_sim::scenario::{Network, Reliably, Stage, Unreliably};
use mx_sim::{Habits, Profile, Rng, Terms, World, seeds};
use std::time::Duration;

const NODES: usize = 8;

/// Asserts that each call becomes a session, and that none of these ends or begins again.
fn all_meet<N: Network>(world: &World, network: N) {
    let quiet = (Config::default(), Habits::default());
    let mut stage = Stage::new((world, network), NODES, quiet, true);
    for from in 0..NODES {
        for to in (0..NODES).filter(|to| *to != from) {
            stage.at(from).connect(to, KEY);
        }
    }
    stage.run(Duration::from_secs(5));
    for id in 0..NODES {
        let node = stage.at(id);
        assert_eq!((node.outstanding(), node.remotes().len()), (0, NODES - 1));
        assert_eq!(node.lives_met().len(), 2 * (NODES - 1));
        assert_eq!(node.endpoint.stats().remotes_up, 2 * (NODES - 1) as u64);
        assert_eq!(node.seen_too_early(), None);
    }
    let book = stage.book.borrow();
    let tally = book.tally();
    assert_eq!(tally["Connect Success"], (NODES * (NODES - 1)) as u64);
    assert!(tally.keys().all(|what| !what.contains("down")), "{tally:?}");
}

#[test]
fn all_that_call_each_other_at_once_have_two_sessions_each() {
    seeds::each(50, |seed| {
        let world = World::new(seed);
        let profile = Profile::random(&mut Rng::new(seed));
        all_meet(&world, Reliably::new(&world, true, profile));
        let world = World::new(seed);
        let (terms, config) = (Terms::default(), ReliableConfig::default());
        all_meet(
            &world,
            Unreliably::new(&world, terms, config, Rng::new(seed)),
        );
    });
}
