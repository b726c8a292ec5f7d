//! Inbox: messages handed out in turns ([`crate::unexpected`]), and the fetching of offered ones.
//!
//! ```text
//!   Verdict::Inbox  --with its data--> filled memory of the owner's  ---------.
//!        |                `-- no memory: its bytes are kept ------------------+--> next_message
//!        `--offered--> queue --draw, memory--> Pulling --all bytes here-------'       credits free
//!                        ^   no memory: again after 10 ms   `-- withdrawn, failed --> dropped
//!                        `-- the first waits for its credits
//! ```

use super::Endpoint;
use super::deadlines::Deadline;
use super::unexpected::filled;
use crate::event::Message;
use crate::flow::cost;
use crate::ids::EntryId;
use crate::owner::Owner;
use crate::port::Port;
use crate::stats::InboxStats;
use crate::status::Status;
use crate::time::Clock;
use crate::unexpected::{Body, UnexpectedMessage};
use std::time::Duration;

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Chooses the turn of the message that [`Self::next_message`] returns next, and returns it: the first one in the
    /// rotation that is `wanted`. Skips turns for whose message the owner has no memory now. `None`: there is no such
    /// message.
    #[inline]
    pub fn next_turn(&mut self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let first = self.unexpected.turn()?;
        let mut turn = first;
        while !(wanted(turn) && self.is_at_hand()) {
            self.unexpected.pass();
            turn = self.unexpected.turn()?;
            if turn == first {
                return None;
            }
        }
        Some(turn)
    }

    /// Takes the oldest message of the turn that is next in the rotation and frees its credits. `None` if there is no
    /// message, and while the owner has no memory for any.
    pub fn next_message(&mut self) -> Option<Message<O::Memory>> {
        self.next_turn(|_| true)?;
        let (turn, message) = self.unexpected.take()?;
        self.pay_back(&message);
        if self.has_work() {
            self.flush();
        }
        let Body::Memory(memory) = message.body else {
            debug_assert!(false, "a message that is not at hand");
            return None;
        };
        Some(Message {
            turn,
            source: message.source,
            bits: message.bits,
            memory,
        })
    }

    /// Returns the number of messages in the inbox that can be taken, in all turns.
    #[inline]
    pub fn messages(&self) -> usize {
        self.unexpected.ready()
    }

    /// Returns whether the inbox has a message of this turn, arrived or still to be fetched.
    pub fn holds_messages(&self, turn: u32) -> bool {
        self.unexpected.holds(turn)
    }

    /// Discards all messages of a turn. Sends whose data was not transferred, or not all of it, end as
    /// [`Status::Aborted`].
    pub fn forget_messages(&mut self, turn: u32) {
        // From the back, so that no message moves up when another is removed.
        while let Some(id) = self.unexpected.last(turn) {
            match self.unexpected.get(id).and_then(UnexpectedMessage::fetch) {
                Some(op) => {
                    let now = self.clock.now();
                    self.end_unexpected(op, Status::Cancelled, now);
                }
                None => self.finish(id, Status::Aborted),
            }
        }
        if self.has_work() {
            self.flush();
        }
    }

    /// Returns the present contents of the inbox.
    pub fn inbox_stats(&self) -> InboxStats {
        self.unexpected.inbox_stats()
    }

    /// Begins to fetch the messages for which there is room. Returns true if there was one.
    pub(super) fn fetch(&mut self) -> bool {
        let mut busy = false;
        while let Some((id, drawn)) = self.draw() {
            let now = self.clock.now();
            if !self.begin_fetch(id, drawn, now) {
                self.flow.undraw(drawn);
                self.starved = true;
                let again = now.after(AGAIN);
                self.wheel.set(now, again, Deadline::Memory);
                break;
            }
            busy = true;
        }
        busy
    }

    /// Returns whether the next message is in memory of the owner, and moves it there if possible.
    fn is_at_hand(&mut self) -> bool {
        let Self {
            owner, unexpected, ..
        } = self;
        let Some(message) = unexpected.first_mut() else {
            return false;
        };
        if let Body::Bytes(bytes) = &message.body {
            match filled(owner, &bytes[..]) {
                Some(memory) => message.body = Body::Memory(memory),
                None => return false,
            }
        }
        true
    }

    /// Returns the next message to fetch, and the credits that have been drawn for it.
    fn draw(&mut self) -> Option<(EntryId, u32)> {
        let id = self.unexpected.to_fetch().filter(|_| !self.starved)?;
        let drawn = cost(self.unexpected.get(id)?.length) - 1;
        self.flow.draw(drawn).then_some((id, drawn))
    }

    /// Allows fetching again, because there may be memory now.
    pub(super) fn ask_again(&mut self) {
        self.starved = false;
        self.flow.await_draw();
    }
}

/// Pause before memory is requested again.
const AGAIN: Duration = Duration::from_millis(10);
