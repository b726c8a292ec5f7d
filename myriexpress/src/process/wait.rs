//! Waiting, and running the program's unexpected handler meanwhile.
//!
//! ```text
//!   wait(check):   wait_for --Found--> result
//!                    ^   `----HandlerTurn---> lock released, C handler runs, lock, decision ----.
//!                    `-------------------------------------------------------------------'
//! ```
//!
//! The handler runs in the thread that finds its turn, in any call.

use super::machine::{HostEngine, HostSlot, engine};
use super::table::{find, with_held};
use crate::engine::{HANDLER, HandlerTurn, WAKEUP};
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use mx_proto::Clock;
use mx_sys::{Interest, MonotonicClock};
use std::cell::Cell;
use std::ffi::c_void;
use std::time::Duration;

/// Maximum number of turns that a call runs after its time-out, so that a stream of messages does not keep it for ever.
const TURNS_MAX: u32 = 64;

/// Reasons for the end of a wait.
enum Step<R> {
    Found(R),
    Refused(Error),
    Woken,
    HandlerTurn(HandlerTurn),
}

/// Makes progress and calls `check` until that finds a result, `timeout` has passed, or [`super::wakeup`] is called:
/// once with a time-out of zero, without limit for `None`.
#[inline]
pub(super) fn wait<R>(
    ep: EndpointHandle,
    interest: Interest,
    timeout: Option<Duration>,
    mut check: impl FnMut(&mut HostEngine) -> Result<Option<R>, Error>,
) -> Result<Option<R>, Error> {
    let interest = interest | HANDLER | WAKEUP;
    let mut wakeups = None;
    let may_turn = Cell::new(true);
    let mut look = |slot: &mut HostSlot| {
        let engine = match engine(slot, ep) {
            Ok(engine) => engine,
            Err(error) => return Some(Step::Refused(error)),
        };
        let known = *wakeups.get_or_insert_with(|| engine.wakeups());
        if may_turn.get()
            && let Some(turn) = engine.next_turn(this_thread)
        {
            return Some(Step::HandlerTurn(turn));
        }
        match check(engine) {
            Ok(Some(found)) => Some(Step::Found(found)),
            Ok(None) if known != engine.wakeups() => Some(Step::Woken),
            Ok(None) => slot.is_lost().then(|| Step::Refused(descriptors_closed())),
            Err(error) => Some(Step::Refused(error)),
        }
    };
    let until = match timeout {
        Some(timeout) if !timeout.is_zero() => Some(MonotonicClock.now().after(timeout)),
        _ => None,
    };
    let mut left = timeout;
    let mut turns = 0;
    loop {
        // Looked up again after each turn: the handler may have forked.
        let place = find(ep)?;
        match place.shared.wait_for(interest, left, &mut look) {
            Some(Step::Found(found)) => return Ok(Some(found)),
            Some(Step::Refused(error)) => return Err(error),
            Some(Step::Woken) | None => return Ok(None),
            Some(Step::HandlerTurn(turn)) => run(ep, turn)?,
        }
        if let Some(until) = until {
            left = Some(until.since(MonotonicClock.now()));
        }
        if left == Some(Duration::ZERO) {
            turns += 1;
            may_turn.set(turns < TURNS_MAX);
        }
    }
}

/// Reports that the program has closed the library's descriptors, which the log has said once.
#[cold]
fn descriptors_closed() -> Error {
    let what = "the program has closed descriptors of this library";
    Error::new(Code::NicDead, what)
}

/// Calls the program's handler, without the lock. If it has forked and this is the child, the message belongs to the
/// parent.
#[cold]
fn run(ep: EndpointHandle, turn: HandlerTurn) -> Result<(), Error> {
    let HandlerTurn {
        handler,
        source,
        mut deferred,
    } = turn;
    let (bits, length) = (deferred.arrival.bits.0, deferred.arrival.length);
    let data = deferred
        .body_mut()
        .map_or(std::ptr::null_mut(), |body| body.as_mut_ptr());
    let context = handler.context as *mut c_void;
    // SAFETY: the program registered this function for these arguments; the data belong to this call and stay valid
    // until the function returns.
    let answer = unsafe { (handler.function)(context, source, bits, length, data.cast()) };
    // An endpoint is not closed while its handler runs.
    with_held(ep, |engine| {
        engine.end_turn(deferred, answer != 0);
        Ok(())
    })
}

/// Waits until a handler that now runs in another thread has returned.
pub(super) fn wait_for_handler(ep: EndpointHandle) -> Result<(), Error> {
    let place = find(ep)?;
    let mut meant = None;
    let mut look = |slot: &mut HostSlot| match engine(slot, ep) {
        Ok(engine) => {
            let meant = *meant.get_or_insert_with(|| engine.turns());
            match engine.running() {
                Some(thread) if thread != this_thread() && engine.turns() == meant => None,
                _ => Some(Ok(())),
            }
        }
        Err(error) => Some(Err(error)),
    };
    let look = |slot: &mut HostSlot| {
        // Nothing can wake this thread after the descriptors are lost.
        let lost = slot.is_lost().then_some(Ok(()));
        look(slot).or(lost)
    };
    // Without a time-out the wait always finds something.
    place.shared.wait_for(HANDLER, None, look).unwrap_or(Ok(()))
}

/// Returns whether this thread is inside the endpoint's handler.
pub(super) fn own_turn(ep: EndpointHandle) -> bool {
    let running = with_held(ep, |engine| Ok(engine.running()));
    running == Ok(Some(this_thread()))
}

/// Returns a number that identifies the calling thread while it lives.
pub(super) fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    // A thread that is about to end has no number, and runs no handler.
    HERE.try_with(|here| std::ptr::from_ref(here) as usize)
        .unwrap_or_default()
}
