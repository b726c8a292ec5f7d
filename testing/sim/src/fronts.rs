//! Switch for the fronts of endpoints and methods.
//!
//! ```text
//!   on    a call tries its front first                  the ports' take_packets
//!   off   the general function decides everything
//! ```
//!
//! Both must have the same effect. Owns: the switch of this thread, and the number of answers from
//! fronts.

use mx_proto::port::{HeaderBytes, body_len};
use mx_proto::round::{Next, PortEvent};
use mx_proto::{LinkId, Source};
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

/// Offers the next event of a port's round to the endpoint's front if the event is a whole packet, whose body is the
/// lent bytes. Returns whether the front has taken it.
pub(crate) fn takes(
    next: &Next,
    lent: &[u8],
    take: impl FnOnce(LinkId, &HeaderBytes, &dyn Source) -> bool,
) -> bool {
    let taken = matches!(next, Next::Event(PortEvent::Packet { link, header })
        if body_len(header) == lent.len() && take(*link, header, &lent));
    if taken {
        note_answer();
    }
    taken
}
