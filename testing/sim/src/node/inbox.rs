//! Takes messages from the inbox, as a server does.
//!
//! ```text
//!   Judge: Inbox { turn: the sender's life } --> ready ... next_message --> Book: in order, once
//! ```

use super::{FOR_HANDLER, Mood, Node};
use crate::buffer::Buffer;
use mx_proto::Message;
use mx_proto::port::Port;

impl<P: Port<Buffer>> Node<P> {
    /// Takes some messages, or, while the node drains, all.
    pub(super) fn take_messages(&mut self) -> bool {
        let mut busy = false;
        if self.endpoint.inbox_stats().fetching > 0 {
            self.endpoint
                .owner()
                .book
                .borrow_mut()
                .count("fetched for the inbox");
        }
        while self.endpoint.messages() > 0 {
            let takes = match self.mood {
                Mood::Busy => self.rng().chance(0.5),
                Mood::Draining => true,
                Mood::Quiet => false,
            };
            if !takes {
                break;
            }
            let turn = self.endpoint.next_turn(|_| true);
            let message = self.endpoint.next_message();
            // There may have been no memory the first time.
            if turn.is_some() {
                assert_eq!(message.as_ref().map(|message| message.turn), turn);
            }
            busy = true;
            message
                .into_iter()
                .for_each(|message| self.on_message(message));
        }
        busy
    }

    fn on_message(&mut self, message: Message<Buffer>) {
        // From now on others must not access it.
        message.memory.give_back();
        assert_ne!(message.bits.0 & FOR_HANDLER, 0, "it was for the handler");
        self.taken += 1;
        let from = message.turn as usize - 1;
        let known = self.endpoint.remote_identity(message.source);
        let mut book = self.endpoint.owner().book.borrow_mut();
        if let Some(known) = known {
            assert_eq!(book.life_of(known.session), Some(from), "another's message");
        }
        book.count("taken out of the inbox");
        if known.is_none() {
            book.count("taken from a sender that had gone");
        }
        let from = (from, message.source);
        book.taken(self.life, from, message.bits, &message.memory.bytes());
    }

    /// Takes all complete messages from a closed endpoint.
    pub(super) fn empty_inbox(&mut self) {
        while let Some(message) = self.endpoint.next_message() {
            self.on_message(message);
        }
        let stats = self.endpoint.inbox_stats();
        assert_eq!(stats, mx_proto::InboxStats::default(), "left in the inbox");
        // A message in a slot may disappear with its sender.
        let ready = self.endpoint.owner().ready;
        assert!(self.taken <= ready, "{} taken, told of {ready}", self.taken);
    }
}
