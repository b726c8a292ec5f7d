//! The fronts of what endpoints and methods do, on and off.
//!
//! ```text
//!   on    whatever has a front is asked by it first     the ports' next_packet
//!   off   the general function decides everything
//! ```
//!
//! Both have to lead to the same. Owns: the switch of this thread, and how often a front has answered.

use mx_proto::port::body_len;
use mx_proto::round::{Front, Next, PortEvent};
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

/// The answer of a port's front, given the next of its round and the bytes of a body that it lends; what is none of the
/// front's is kept for [`Rounds::next`](mx_proto::round::Rounds::next).
pub(crate) fn answer(next: Next, lent: usize, kept: &mut Option<Next>) -> Front {
    match next {
        Next::Event(PortEvent::Packet { link, header }) if body_len(&header) == lent => {
            note_answer();
            Front::Packet { link, header }
        }
        Next::End { any } => Front::End { any },
        other => {
            *kept = Some(other);
            Front::Other
        }
    }
}
