//! The seeds that a test runs, and the report when one fails.
//!
//! ```text
//!   SIM_SEED=n     only that one          SIM_SEEDS=n    so many, from SIM_FIRST (default 1)
//! ```

use crate::world::World;
use std::cell::RefCell;

thread_local! {
    /// The world whose log is printed when the run of this thread fails.
    static WATCHED: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// From now on a failure in this thread's run prints the log of `world`.
pub fn watch(world: &World) {
    WATCHED.with(|watched| *watched.borrow_mut() = Some(world.clone()));
}

/// Calls `run` with `default` seeds, or with those that the environment asks for.
pub fn each(default: u64, mut run: impl FnMut(u64)) {
    for seed in wanted(default) {
        let report = Report { seed };
        run(seed);
        drop(report);
    }
}

fn wanted(default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SIM_SEED") {
        return vec![seed];
    }
    let first = number("SIM_FIRST").unwrap_or(1);
    (first..first + number("SIM_SEEDS").unwrap_or(default)).collect()
}

/// Says which seed it was, should the run end in a panic.
struct Report {
    seed: u64,
}

impl Drop for Report {
    fn drop(&mut self) {
        let world = WATCHED.with(|watched| watched.borrow_mut().take());
        if !std::thread::panicking() {
            return;
        }
        if let Some(world) = world {
            eprintln!("--- log of the failed run ---\n{}", world.dump());
        }
        eprintln!("--- repeat it with SIM_SEED={} ---", self.seed);
    }
}
