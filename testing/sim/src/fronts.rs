//! Switch for the fronts of endpoints and methods.
//!
//! ```text
//!   on    a call tries its front first                  the ports' next_packet
//!   off   the general function decides everything
//! ```
//!
//! Both must have the same effect. Owns: the switch of this thread, and the number of answers from
//! fronts.

use mx_proto::port::body_len;
use mx_proto::round::{Front, Next, PortEvent};
use std::cell::Cell;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(true) };
    static ANSWERS: Cell<u64> = const { Cell::new(0) };
}

/// Runs with or without fronts; returns the number of answers from fronts, too.
pub fn with<R>(on: bool, run: impl FnOnce() -> R) -> (R, u64) {
    let (before, answers) = (ON.replace(on), ANSWERS.get());
    let result = run();
    ON.set(before);
    (result, ANSWERS.get() - answers)
}

/// Returns whether fronts are on.
pub fn are_on() -> bool {
    ON.get()
}

/// Counts an answer of a front.
pub fn note_answer() {
    ANSWERS.set(ANSWERS.get() + 1);
}

/// Makes the answer of a port's front from the next event of its round and the length of the body
/// that it lends; keeps an event that the front does not handle for
/// [`Rounds::next`](mx_proto::round::Rounds::next).
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
