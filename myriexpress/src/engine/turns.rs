//! Turns of the program's handler for unexpected messages.
//!
//! ```text
//!   message without a receive --Program--> deferred (a handler is registered)
//!        next_turn --> HandlerTurn: the handler's arguments      the lock is released, C runs
//!        end_turn(decision) --> receives are tried again, then unexpected | consumed
//! ```
//!
//! Turns come one at a time, in the order of the messages. Messages wait for their turns as they would for receives:
//! their senders continue as far as their credits reach. During a turn no packets are polled.

use super::{Engine, HANDLER, UNEXPECTED};
use crate::handles::Address;
use mx_proto::port::Port;
use mx_proto::{Clock, Decision, Deferred};
use mx_sys::UserMemory;
use std::ffi::c_void;

/// C function for unexpected messages. Arguments: registered context, source address, match bits, length of the message
/// in bytes, data.
///
/// The data are valid during the call, and null if the message is empty or has not been transferred yet. Returns
/// non-zero if the function has consumed the message; 0 leaves it to a receive.
pub type UnexpectedFunction =
    unsafe extern "C" fn(*mut c_void, Address, u64, u32, *mut c_void) -> u32;

/// Registered handler for unexpected messages: C function and argument.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedHandler {
    /// C function.
    pub function: UnexpectedFunction,
    /// First argument; not dereferenced, so a number here.
    pub context: usize,
}

/// Arguments for a call of the handler.
#[derive(Debug)]
pub(crate) struct HandlerTurn {
    pub(crate) handler: UnexpectedHandler,
    pub(crate) source: Address,
    pub(crate) deferred: Deferred,
}

/// The handler and its turns.
#[derive(Debug, Default)]
pub(super) struct Handling {
    handler: Option<UnexpectedHandler>,
    /// Thread that runs the handler now, else `None`.
    running: Option<usize>,
    /// Number of turns so far.
    turns: u64,
    /// Whether no more turns begin because the endpoint is about to be closed.
    closing: bool,
}

impl<P: Port<UserMemory>, C: Clock> Engine<P, C> {
    /// Registers a handler, or none. A turn in progress continues; see [`Self::running`].
    pub(crate) fn set_handler(&mut self, handler: Option<UnexpectedHandler>) {
        self.handling.handler = handler;
        self.endpoint.owner_mut().deferring = handler.is_some();
        if handler.is_none() {
            self.keep_deferred();
        }
    }

    /// Returns the thread that runs the handler now.
    pub(crate) fn running(&self) -> Option<usize> {
        self.handling.running
    }

    /// Returns the number of turns that have begun.
    pub(crate) fn turns(&self) -> u64 {
        self.handling.turns
    }

    /// Forgets the turn of another thread, in a child of `fork`, which has only thread `this`.
    pub(crate) fn forget_other_threads(&mut self, this: usize) {
        self.handling.running.take_if(|thread| *thread != this);
    }

    /// Prevents further turns.
    pub(crate) fn end_turns(&mut self) {
        self.handling.closing = true;
    }

    /// Returns the handler's next turn, if there is one: `thread` calls the handler and must then call
    /// [`Self::end_turn`].
    #[inline]
    pub(crate) fn next_turn(&mut self, thread: impl FnOnce() -> usize) -> Option<HandlerTurn> {
        let handler = self.handling.handler?;
        if self.endpoint.undecided() == 0 {
            return None;
        }
        self.begin_turn(handler, thread())
    }

    #[cold]
    fn begin_turn(&mut self, handler: UnexpectedHandler, thread: usize) -> Option<HandlerTurn> {
        if self.handling.running.is_some() || self.handling.closing || self.disabled {
            return None;
        }
        let deferred = self.endpoint.next_deferred();
        // Receives posted meanwhile may have taken messages.
        self.flush();
        let deferred = deferred?;
        let source = self.source(deferred.arrival.source);
        self.handling.running = Some(thread);
        self.handling.turns += 1;
        Some(HandlerTurn {
            handler,
            source,
            deferred,
        })
    }

    /// Ends a turn. `consumed`: whether the handler has consumed the message.
    #[cold]
    pub(crate) fn end_turn(&mut self, deferred: Deferred, consumed: bool) {
        self.handling.running = None;
        self.decide(deferred, consumed);
        if self.handling.handler.is_none() {
            self.keep_deferred();
        }
        // Other threads wait for the end of the turn, or have to run the handler for the next message.
        self.produce(HANDLER);
    }

    /// Treats deferred messages as unexpected ones because no handler is registered.
    #[cold]
    fn keep_deferred(&mut self) {
        self.endpoint.keep_undecided();
        self.produce(UNEXPECTED);
        self.flush();
    }

    fn decide(&mut self, deferred: Deferred, consumed: bool) {
        let decision = if consumed {
            Decision::Finished
        } else {
            Decision::Continue
        };
        self.endpoint.decide(deferred, decision);
        if !consumed {
            self.produce(UNEXPECTED);
        }
        self.flush();
    }
}
