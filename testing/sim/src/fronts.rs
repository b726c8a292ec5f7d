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
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{LinkId, Memory, Source};
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

/// Implements [`Rounds::take_packets`] for a simulated port: offers its events in turn, as long as they are whole packets.
/// An event that is not taken stays in `held`, from which [`Rounds::next`] returns it.
pub(crate) fn take_packets<M: Memory, P: Rounds<M>>(
    port: &mut P,
    held: impl Fn(&mut P) -> &mut Option<Next>,
    mut take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
) -> Option<bool> {
    while are_on() && held(port).is_none() {
        let next = port.next();
        let taken = match &next {
            Next::End { any } => return Some(*any),
            Next::Event(PortEvent::Packet { link, header }) => {
                let body = port.body();
                body_len(header) == body.len() && take(*link, header, &body)
            }
            Next::Event(_) => false,
        };
        if taken {
            note_answer();
        } else {
            *held(port) = Some(next);
        }
    }
    None
}
