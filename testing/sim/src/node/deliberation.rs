//! Deferred decisions about messages, as an application's handler outside of the endpoint makes
//! them.
//!
//! ```text
//!   Judge: Defer --> next_deferred ... turns go on, no message is processed ... --> decide
//!                    `-- None: the bytes of an announced message are fetched first
//! ```

use super::{FOR_HANDLER, Mood, Node};
use crate::buffer::Buffer;
use crate::check::Selector;
use crate::owner::Reports;
use mx_proto::port::Port;
use mx_proto::{Decision, Deferred, Instant};

/// A message whose decision is deferred.
#[derive(Debug)]
pub(super) struct Thought {
    message: Deferred,
    pub(super) until: Instant,
}

impl<P: Port<Buffer>> Node<P> {
    /// Makes decisions that are due, and takes up the next message.
    pub(super) fn deliberate(&mut self) -> bool {
        let now = self.world.now();
        if let Some(thought) = self.thought.take_if(|thought| thought.until <= now) {
            self.make_up_its_mind(thought.message);
            return true;
        }
        let undecided = self.endpoint.undecided();
        if self.thought.is_some() || undecided == 0 {
            return false;
        }
        if let Some(message) = self.endpoint.next_deferred() {
            assert!(self.endpoint.next_deferred().is_none(), "two at once");
            self.endpoint.owner().book.borrow_mut().count("deferred");
            let longest = self.habits.deliberates.unwrap_or_default();
            let until = now.after(self.rng().span(longest));
            self.thought = Some(Thought { message, until });
            return true;
        }
        // Those that went into receives; the bytes of the others are on their way.
        self.endpoint.undecided() < undecided
    }

    fn make_up_its_mind(&mut self, message: Deferred) {
        let arrival = message.arrival;
        let (bits, len) = (arrival.bits, arrival.length as usize);
        let from = self
            .endpoint
            .owner()
            .book
            .borrow()
            .life_of(arrival.identity.session);
        let Some(from) = from else {
            panic!("a message from a session that never was")
        };
        let shown = message.body().map(|body| {
            assert_eq!(body.len(), len);
            let mut book = self.endpoint.owner().book.borrow_mut();
            book.shown(self.life, (from, arrival.source), bits, body)
        });
        let decision = match shown {
            Some(serial) if bits.0 & FOR_HANDLER != 0 && self.rng().chance(0.5) => {
                self.endpoint.owner().book.borrow_mut().arrived(serial);
                Decision::Finished
            }
            _ => {
                // As a handler that posts the receive for the message it was shown.
                if self.mood == Mood::Busy && self.rng().chance(0.3) {
                    self.recv(Selector::exact(bits.0), len);
                }
                Decision::Continue
            }
        };
        self.note(format!(
            "decides about {:x}, {len} bytes: {decision:?}",
            bits.0
        ));
        self.endpoint.decide(message, decision);
    }

    /// Drops deferred decisions, because the endpoint is closed.
    pub(super) fn stop_thinking(&mut self) {
        if let Some(thought) = self.thought.take() {
            self.endpoint.decide(thought.message, Decision::Continue);
        }
        assert_eq!(self.endpoint.undecided(), 0, "messages survived the end");
        assert_eq!(self.endpoint.next_completion(), None);
    }
}
