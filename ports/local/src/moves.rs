//! The states of a link, and how it may go from one to another.
//!
//! ```text
//!   Dialing --> Greeting --.                 ask                agreed
//!                          +--> Up <------------------> Asking --------> Asleep <--> Wanted
//!               Accepted --'    ^ `-- their question agreed to ----------^ | ^         |
//!                               |                                          | | no room |
//!                               `---- memory taken --- Waking <------------'-'---------'
//! ```
//!
//! `docs/states.md` shows the table; the tests of the port make every move, or fail.
//!
//! Owns: which moves are legal, and in debug builds which were made.
//! Knows nothing of: what a state holds.

use std::fmt;

/// Where a link stands; `link.rs` has what belongs to each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// We connect, and the peer's backlog is full.
    Dialing,
    /// We have connected and handed memory over.
    Greeting,
    /// A stranger has connected and said nothing yet.
    Accepted,
    /// Carries packets.
    Up,
    /// Nothing has happened for long: we have asked the peer whether the link may sleep.
    Asking,
    /// No memory.
    Asleep,
    /// No memory, and something to send, here or there; there is no room for it yet.
    Wanted,
    /// No memory; we have handed some over and wait for the peer to take it.
    Waking,
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

/// All legal moves. From every state a link may go down.
pub const MOVES: &[Move] = &[
    legal(
        Stage::Dialing,
        Stage::Greeting,
        "there is room in the backlog",
    ),
    legal(Stage::Greeting, Stage::Up, "the peer takes the memory"),
    legal(
        Stage::Greeting,
        Stage::Asleep,
        "the peer has room for less memory only, and will hand it over",
    ),
    legal(
        Stage::Accepted,
        Stage::Up,
        "memory is handed over, and we take it",
    ),
    legal(
        Stage::Accepted,
        Stage::Asleep,
        "there is no room for so much memory, but for less",
    ),
    legal(Stage::Up, Stage::Asking, "it is idle for long"),
    legal(Stage::Up, Stage::Asleep, "the peer asks, and we agree"),
    legal(
        Stage::Asking,
        Stage::Up,
        "something is sent or arrives; the peer refuses",
    ),
    legal(Stage::Asking, Stage::Asleep, "the peer has agreed"),
    legal(
        Stage::Asleep,
        Stage::Waking,
        "something is sent: memory is handed over",
    ),
    legal(
        Stage::Asleep,
        Stage::Wanted,
        "something is sent, or the peer hands memory over, and there is no room for it",
    ),
    legal(
        Stage::Asleep,
        Stage::Up,
        "the peer hands memory over, and we take it",
    ),
    legal(
        Stage::Wanted,
        Stage::Waking,
        "there is room: memory is handed over",
    ),
    legal(
        Stage::Wanted,
        Stage::Up,
        "the peer hands memory over, and we take it",
    ),
    legal(Stage::Waking, Stage::Up, "the peer has taken the memory"),
    legal(
        Stage::Waking,
        Stage::Asleep,
        "the peer has no room, or both have handed memory over and the acceptor's is dropped",
    ),
];

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Notes a move, which must be a legal one. Nothing in release builds.
pub(super) fn note(from: Stage, to: Stage) {
    #[cfg(debug_assertions)]
    {
        let known = MOVES.iter().any(|step| (step.from, step.to) == (from, to));
        assert!(known, "{from} -> {to}");
        met::note(from, to);
    }
    #[cfg(not(debug_assertions))]
    let _ = (from, to);
}

/// Which moves this thread's links have made.
#[cfg(debug_assertions)]
pub(super) mod met {
    use super::Stage;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static MET: RefCell<BTreeSet<(Stage, Stage)>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn note(from: Stage, to: Stage) {
        MET.with_borrow_mut(|met| met.insert((from, to)));
    }

    /// Gives them out and begins anew.
    #[cfg(test)]
    pub(in super::super) fn take() -> BTreeSet<(Stage, Stage)> {
        MET.take()
    }
}
