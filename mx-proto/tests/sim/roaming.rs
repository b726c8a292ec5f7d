//! Random runs of nodes with several addresses, with addresses that change, and behind translators.
//!
//! `SIM_SEED=n` repeats one run, `SIM_SEEDS=n` makes n runs.

use mx_sim::scenario::{Reliably, Roaming, Tally};
use mx_sim::{Profile, Rng, World, seeds};
use std::time::Duration;

fn run(seed: u64, tally: &mut Tally) {
    let world = World::new(seed);
    let mut rng = Rng::new(seed);
    let profile = Profile {
        unbound: Some(Duration::from_secs(5)),
        ..Profile::random(&mut rng)
    };
    let network = Reliably::new(&world, true, profile);
    let mut run = Roaming::new((&world, rng), network);
    run.run();
    run.tally(tally);
}

#[test]
fn nodes_reach_each_other_wherever_they_go() {
    let mut tally = Tally::new();
    seeds::each(100, |seed| run(seed, &mut tally));
    println!("{tally:#?}");
    let runs = tally.get("runs").copied().unwrap_or(0);
    let wanted = [
        "received",
        "move",
        "silent move",
        "Send Success",
        "Send Unreachable",
        "down: connection reset",
        "down: timed out",
    ];
    for what in wanted {
        let met = tally.contains_key(what);
        assert!(runs < 100 || met, "not once in {runs} runs: {what}");
    }
}
