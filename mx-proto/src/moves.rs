//! The states of an operation, and how it may go from one to another.
//!
//! ```text
//!   New --> Queued ---> Offered --> Serving --> Done          a send
//!            `--> Draining ---------------------^
//!   New --> Posted <--> Pulling --------------> Done          a receive
//!   New --> Connecting -----------------------> Done          a connect
//!   New --> Parked --> where New goes, or Done                a send or a receive
//! ```
//!
//! `docs/states.md` shows the table; the simulator's random operations make every move, or their
//! test fails.
//!
//! Owns: which moves are legal, and in debug builds which were made.
//! Knows nothing of: what a state holds.

use std::fmt;

/// Where an operation stands; `ops/record.rs` has what belongs to each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// It is being posted.
    New,
    /// Its owner has yet to say with whom it is.
    Parked,
    /// A send waits for its turn.
    Queued,
    /// A send has gone out, and the port still reads its memory.
    Draining,
    /// The receiver knows of a send.
    Offered,
    /// The receiver has begun to ask for a send's data.
    Serving,
    /// A receive waits for a message.
    Posted,
    /// A receive's data is on its way.
    Pulling,
    /// A connect waits for its answer.
    Connecting,
    /// It has completed, and is its owner's.
    Done,
}

/// A legal move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Where it begins.
    pub from: Stage,
    /// Where it ends.
    pub to: Stage,
    /// What makes it happen.
    pub when: &'static str,
}

const fn legal(from: Stage, to: Stage, when: &'static str) -> Move {
    Move { from, to, when }
}

/// All legal moves.
pub const MOVES: &[Move] = &[
    legal(
        Stage::New,
        Stage::Queued,
        "a send is large, must be matched, or has no room or credit",
    ),
    legal(
        Stage::New,
        Stage::Draining,
        "a send with its data goes at once, and the port keeps its memory or takes only a part",
    ),
    legal(Stage::New, Stage::Posted, "a receive finds no message"),
    legal(
        Stage::New,
        Stage::Pulling,
        "a receive finds a message that has been offered; one is fetched for whoever asks",
    ),
    legal(Stage::New, Stage::Connecting, "a connect is begun"),
    legal(
        Stage::New,
        Stage::Parked,
        "it is posted before it is known with whom",
    ),
    legal(Stage::Parked, Stage::Queued, "see New; it is a send"),
    legal(Stage::Parked, Stage::Draining, "see New"),
    legal(Stage::Parked, Stage::Posted, "see New; it is a receive"),
    legal(Stage::Parked, Stage::Pulling, "see New"),
    legal(
        Stage::Parked,
        Stage::Done,
        "all of it goes at once, or a message with its data is there; called off",
    ),
    legal(
        Stage::Queued,
        Stage::Draining,
        "its turn, and the port keeps its memory or takes only a part",
    ),
    legal(
        Stage::Queued,
        Stage::Offered,
        "its turn, and it is too large, or no credit is left for its bytes",
    ),
    legal(
        Stage::Queued,
        Stage::Done,
        "its turn, and all of it has gone; called off, time-out; the partner is lost",
    ),
    legal(
        Stage::Draining,
        Stage::Done,
        "the port has done with its memory; called off, time-out; the partner is lost",
    ),
    legal(
        Stage::Offered,
        Stage::Serving,
        "the receiver asks for the first part, or reads it",
    ),
    legal(
        Stage::Offered,
        Stage::Done,
        "the receiver wants none of it; called off, time-out; the partner is lost",
    ),
    legal(
        Stage::Serving,
        Stage::Done,
        "the receiver has it, or does not want it any more; called off, time-out; the partner is lost",
    ),
    legal(
        Stage::Posted,
        Stage::Pulling,
        "an offer matches, or a message whose data is still coming",
    ),
    legal(
        Stage::Posted,
        Stage::Done,
        "a message with its data matches; called off, time-out",
    ),
    legal(
        Stage::Pulling,
        Stage::Posted,
        "the sender withdraws the message",
    ),
    legal(
        Stage::Pulling,
        Stage::Done,
        "all of it is there; called off, time-out; the partner is lost",
    ),
    legal(
        Stage::Connecting,
        Stage::Done,
        "the answer comes; called off, time-out; nobody is there",
    ),
];

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Notes a move, which must be a legal one. Nothing in release builds.
#[inline(always)]
pub(crate) fn note(from: Stage, to: Stage) {
    #[cfg(debug_assertions)]
    if from != to {
        let known = MOVES.iter().any(|step| (step.from, step.to) == (from, to));
        assert!(known, "{from} -> {to}");
        met::note(from, to);
    }
    #[cfg(not(debug_assertions))]
    let _ = (from, to);
}

/// Which moves this thread's operations have made.
#[cfg(debug_assertions)]
pub mod met {
    use super::Stage;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// How often each was made.
    pub type Met = BTreeMap<(Stage, Stage), u64>;

    thread_local! {
        static MET: RefCell<Met> = const { RefCell::new(Met::new()) };
    }

    pub(super) fn note(from: Stage, to: Stage) {
        MET.with_borrow_mut(|met| *met.entry((from, to)).or_default() += 1);
    }

    /// Gives them out and begins anew.
    pub fn take() -> Met {
        MET.take()
    }
}
