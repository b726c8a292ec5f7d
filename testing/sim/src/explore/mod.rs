//! Every order of a bounded number of steps, on the real code.
//!
//! ```text
//!   begin() --> steps() --> take(step) --> fingerprint() --> seen before? --- yes --> cut off
//!      ^                        |                                `--- no --> recover(), and once
//!      |                        `-- panics: a promise is broken              again from begin(),
//!      `-- each schedule is replayed from its beginning, as                  with one step more
//!          endpoints cannot be copied
//! ```
//!
//! Schedules are tried by length, so the first failing one is among the shortest. It is printed
//! with the log of its run; [`replay`] runs it again.
//!
//! A promise is broken if a step or [`World::recover`] panics, as the checkers of this crate do.
//!
//! The moves of nodes, packets and time are in [`hand`].
//!
//! Owns: schedules and fingerprints.
//! Cost: one replay for each schedule tried, and [`World::recover`] for each new state.

pub mod hand;

pub use hand::{Hand, Move, Moves};

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::{self, Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

/// A world to explore. Equal steps from the beginning must lead to equal worlds.
pub trait World {
    /// Kind of steps.
    type Step: Clone + PartialEq + Debug + Send + Sync;

    /// Returns the possible steps.
    fn steps(&self) -> Vec<Self::Step>;

    /// Takes a step with its immediate effects; panics if a promise is broken.
    fn take(&mut self, step: &Self::Step);

    /// Returns a number that is equal for two worlds only if the same can happen in both from now
    /// on.
    fn fingerprint(&self) -> u128;

    /// Ends all faults, waits until nothing happens any more, and panics if an operation that must
    /// end or a message that must arrive has not.
    fn recover(&mut self);

    /// Returns the log so far.
    fn log(&self) -> String;
}

/// A schedule that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure<S> {
    /// Steps of the schedule.
    pub steps: Vec<S>,
    /// Whether it failed in the recovery after its steps.
    pub settling: bool,
    /// Broken promise, with the place of the check.
    pub what: String,
    /// Log of the run.
    pub log: String,
}

impl<S: Debug> fmt::Display for Failure<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- log of the failed order ---\n{}", self.log)?;
        writeln!(f, "--- {} ---", self.what)?;
        let when = if self.settling {
            "all went well from here on, and yet"
        } else {
            "during the last of them"
        };
        writeln!(f, "after these {} steps, {when}:", self.steps.len())?;
        f.write_char('[')?;
        for step in &self.steps {
            write!(f, "{step:?}, ")?;
        }
        f.write_char(']')
    }
}

/// Result of an exploration.
#[derive(Clone, Debug)]
pub struct Report<S> {
    /// Number of distinct states, by the number of steps that lead there.
    pub states: Vec<usize>,
    /// Schedules tried.
    pub tried: u64,
    /// Schedules that led to a known state.
    pub cut_off: u64,
    /// A failing schedule, one of the shortest.
    pub failure: Option<Failure<S>>,
}

impl<S: Debug> fmt::Display for Report<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states: usize = self.states.iter().sum();
        let depth = self.states.len() - 1;
        write!(
            f,
            "depth {depth}: {states} states ({:?}), {} orders tried, {} of them cut off",
            self.states, self.tried, self.cut_off
        )
    }
}

impl<S: Debug> Report<S> {
    /// # Panics
    /// If a schedule has failed; the message contains everything a person needs.
    pub fn expect_none(&self) {
        if let Some(failure) = &self.failure {
            panic!("{self}\n{failure}");
        }
    }
}

/// Explores as `make explore` asks: `EXPLORE_DEPTH` replaces `depth`, or with a plus is added to
/// it, and `EXPLORE_THREADS` replaces two threads. Prints the costs.
pub fn run<W: World>(name: &str, begin: impl Fn() -> W + Sync, depth: usize) -> Report<W::Step> {
    let began = Instant::now();
    let asked = std::env::var("EXPLORE_DEPTH").unwrap_or_default();
    let threads = std::env::var("EXPLORE_THREADS").ok();
    let report = explore(
        begin,
        depth_of(&asked, depth),
        threads.and_then(|text| text.parse().ok()).unwrap_or(2),
    );
    println!("{name}: {:.1} s, {report}", began.elapsed().as_secs_f64());
    report
}

/// Parses the depth: "6" for six steps, "+1" for one more than `default`, otherwise `default`.
fn depth_of(asked: &str, default: usize) -> usize {
    let (more, number) = match asked.strip_prefix('+') {
        Some(number) => (default, number),
        None => (0, asked),
    };
    number
        .parse()
        .map_or(default, |number: usize| more + number)
}

/// Tries all schedules of at most `depth` steps on `threads` threads, until one fails.
pub fn explore<W: World>(
    begin: impl Fn() -> W + Sync,
    depth: usize,
    threads: usize,
) -> Report<W::Step> {
    keep_panics();
    let search = Search {
        begin: &begin,
        seen: Mutex::default(),
        found: Mutex::default(),
        over: AtomicBool::new(false),
        tried: AtomicU64::new(0),
        cut_off: AtomicU64::new(0),
    };
    let mut report = Report {
        states: Vec::new(),
        tried: 0,
        cut_off: 0,
        failure: None,
    };
    let mut frontier = Vec::new();
    frontier.extend(search.visit(Vec::new()));
    report.states.push(frontier.len());
    for _ in 0..depth {
        if frontier.is_empty() || search.over.load(Ordering::Relaxed) {
            break;
        }
        frontier = search.level(&frontier, threads.max(1));
        report.states.push(frontier.len());
    }
    report.tried = search.tried.into_inner();
    report.cut_off = search.cut_off.into_inner();
    report.failure = search
        .found
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    report
}

/// Runs one schedule; returns its failure, if it fails. An impossible step is a failure, too.
pub fn replay<W: World>(
    begin: impl Fn() -> W,
    steps: &[W::Step],
) -> Result<(), Box<Failure<W::Step>>> {
    keep_panics();
    Run::of(&begin, steps, true).and_then(Run::recover)
}

/// A schedule with the possible next steps.
type Visited<S> = (Vec<S>, Vec<S>);

struct Search<'a, W: World, F> {
    begin: &'a F,
    seen: Mutex<HashSet<u128>>,
    found: Mutex<Option<Failure<W::Step>>>,
    over: AtomicBool,
    tried: AtomicU64,
    cut_off: AtomicU64,
}

impl<W: World, F: Fn() -> W + Sync> Search<'_, W, F> {
    /// Returns all new states one step beyond those of `frontier`.
    fn level(&self, frontier: &[Visited<W::Step>], threads: usize) -> Vec<Visited<W::Step>> {
        let next = AtomicUsize::new(0);
        let worker = || {
            let mut new = Vec::new();
            while let Some((steps, choices)) = frontier.get(next.fetch_add(1, Ordering::Relaxed)) {
                for choice in choices {
                    if self.over.load(Ordering::Relaxed) {
                        return new;
                    }
                    let mut steps = steps.clone();
                    steps.push(choice.clone());
                    new.extend(self.visit(steps));
                }
            }
            new
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            let new = threads.into_iter().filter_map(|thread| thread.join().ok());
            new.flatten().collect()
        })
    }

    /// Returns the log of the steps alone: the recovery would be most of it.
    fn log(&self, steps: &[W::Step]) -> Option<String> {
        let run = Run::of(self.begin, steps, false).ok()?;
        Some(run.world.log())
    }

    /// Runs a schedule; `None` if it fails or ends in a known state.
    fn visit(&self, steps: Vec<W::Step>) -> Option<Visited<W::Step>> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let visited = Run::of(self.begin, &steps, false).and_then(|run| {
            let fingerprint = run.world.fingerprint();
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let new = seen.insert(fingerprint);
            drop(seen);
            if !new {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
                return run.end().map(|()| None);
            }
            let choices = run.world.steps();
            run.recover().map(|()| Some(choices))
        });
        match visited {
            Ok(choices) => choices.map(|choices| (steps, choices)),
            Err(mut failure) => {
                failure.log = self.log(&steps).unwrap_or(failure.log);
                self.over.store(true, Ordering::Relaxed);
                let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                if found
                    .as_ref()
                    .is_none_or(|known| failure.steps.len() < known.steps.len())
                {
                    *found = Some(*failure);
                }
                None
            }
        }
    }
}

/// A world after some steps.
struct Run<'a, W: World> {
    world: W,
    steps: &'a [W::Step],
}

impl<'a, W: World> Run<'a, W> {
    fn of(
        begin: &impl Fn() -> W,
        steps: &'a [W::Step],
        unsure: bool,
    ) -> Result<Self, Box<Failure<W::Step>>> {
        let mut run = Self {
            world: begin(),
            steps,
        };
        let taken = caught(|| {
            for step in steps {
                if unsure {
                    let steps = run.world.steps();
                    assert!(steps.contains(step), "{step:?} cannot happen: {steps:?}");
                }
                run.world.take(step);
            }
        });
        match taken {
            Ok(()) => Ok(run),
            Err(what) => Err(run.failed(what, false)),
        }
    }

    fn recover(mut self) -> Result<(), Box<Failure<W::Step>>> {
        match caught(|| self.world.recover()) {
            Ok(()) => self.end(),
            Err(what) => Err(self.failed(what, true)),
        }
    }

    /// Ends a run; checks the drop of the world, too.
    fn end(self) -> Result<(), Box<Failure<W::Step>>> {
        let (steps, log) = (self.steps, String::new());
        caught(|| drop(self.world)).map_err(|what| {
            Box::new(Failure {
                steps: steps.to_vec(),
                settling: true,
                what,
                log,
            })
        })
    }

    fn failed(self, what: String, settling: bool) -> Box<Failure<W::Step>> {
        let failure = Failure {
            steps: self.steps.to_vec(),
            settling,
            what,
            log: self.world.log(),
        };
        // The world may be in any state.
        let _ = caught(|| drop(self.world));
        Box::new(failure)
    }
}

thread_local! {
    /// Message and place of this thread's failure; `None` outside of runs: then it is printed.
    static WHAT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `run`; returns the message of a panic, with its place.
fn caught(run: impl FnOnce()) -> Result<(), String> {
    WHAT.set(Some(String::new()));
    let ended = catch_unwind(AssertUnwindSafe(run));
    let what = WHAT.take().unwrap_or_default();
    ended.map_err(|_| what)
}

/// Keeps panics within runs, and passes all others to the previous hook.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = WHAT.with(|what| match what.borrow_mut().as_mut() {
                Some(what) => {
                    *what = info.to_string();
                    true
                }
                None => false,
            });
            if !kept {
                before(info);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that can be incremented; it is wrong if one is 3 while the other is 1.
    #[derive(Default)]
    struct Counters([u8; 2]);

    impl World for Counters {
        type Step = usize;

        fn steps(&self) -> Vec<usize> {
            vec![0, 1]
        }

        fn take(&mut self, step: &usize) {
            self.0[*step] += 1;
            assert_ne!(self.0[*step], 9, "too many");
        }

        fn fingerprint(&self) -> u128 {
            u128::from(self.0[0]) << 8 | u128::from(self.0[1])
        }

        fn recover(&mut self) {
            assert_ne!(self.0, [3, 1], "three and one");
        }

        fn log(&self) -> String {
            format!("{:?}", self.0)
        }
    }

    #[test]
    fn seen_states_are_pruned_and_the_shortest_failure_found() {
        let report = explore(Counters::default, 3, 2);
        assert_eq!(report.states, [1, 2, 3, 4]);
        assert_eq!((report.tried, report.cut_off), (13, 3));
        report.expect_none();
        let failure = explore(Counters::default, 9, 1).failure.unwrap();
        assert_eq!((failure.steps.len(), failure.settling), (4, true));
        assert_eq!(failure.log, "[3, 1]");
        assert!(failure.what.contains("three and one"), "{failure}");
        let again = replay(Counters::default, &failure.steps).unwrap_err();
        assert_eq!(again.what, failure.what);
    }

    #[test]
    fn a_depth_is_a_number_or_a_difference() {
        let depths = ["", "6", "+1", "deep"].map(|asked| depth_of(asked, 4));
        assert_eq!(depths, [4, 6, 5, 4]);
    }

    #[test]
    fn schedule_replays_exactly_and_impossible_steps_fail() {
        replay(Counters::default, &[0, 1, 0]).unwrap();
        let failure = replay(Counters::default, &[0, 7]).unwrap_err();
        assert!(!failure.settling);
        assert!(failure.what.contains("7 cannot happen"), "{failure}");
        let failure = replay(Counters::default, &[1; 9]).unwrap_err();
        assert!(failure.what.contains("too many"), "{failure}");
    }
}
