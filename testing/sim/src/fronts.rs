//! The fronts of what endpoints and methods do, on and off.
//!
//! ```text
//!   on    whatever has a front is asked by it first     the ports' next_packet
//!   off   the general function decides everything
//! ```
//!
//! Both have to lead to the same. Owns: the switch of this thread, and how often a front has answered.

use std::cell::Cell;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(true) };
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// Runs with fronts or without; says how often one has answered.
pub fn with<R>(on: bool, run: impl FnOnce() -> R) -> (R, u64) {
    let (before, answers) = (ON.replace(on), ANSWERS.get());
    let result = run();
    ON.set(before);
    (result, ANSWERS.get() - answers)
}

/// Whether they are on.
pub fn are_on() -> bool {
    ON.get()
}

/// Notes that a front has answered.
pub fn note_answer() {
    ANSWERS.set(ANSWERS.get() + 1);
}
