//! The conversation with a peer: whether an expected operation posted now can have a counterpart.
//!
//! ```text
//!               unexpected message posted, READY; or handed out
//!    UNOPENED ----------------------------------------------> OPEN
//!     |  |  ^                                    READY ^      |  ^
//!     |  |  `- no connection -- BEGUN -----------------'      |  |
//!     |  `- posted, not READY ---^                       lost |  | unexpected message posted, or
//!     |                                                       v  | handed out
//!     `----------------------------------------------------> CUT
//!        handed out, from a lost connection
//! ```
//!
//! In BMI every exchange begins with an unexpected message, followed by expected ones. When the connection is lost, the
//! peer ends its side of all exchanges. An expected operation that the host posts afterwards for one of them would wait
//! for ever: the new connection works, but there is no counterpart. So while a conversation is CUT
//!
//! * expected sends fail with `-BMI_ENETRESET`,
//! * receives are *provisional*: a host posts the receive of an answer before its request. A following unexpected send
//!   makes them ordinary; an expected send, or one peer timeout, ends them with `-BMI_ENETRESET`.
//!
//! Conversations matter only for peers that this process connects to: operations with a peer that had connected itself
//! and whose connection is lost end at once.
//!
//! UNOPENED conversations are never cut, so programs that exchange only expected messages can begin again after a loss.
//!
//! Out of scope: operations, connections.

/// State of the conversation with a peer; see the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Conversation {
    /// No unexpected message has been exchanged with the peer.
    #[default]
    Unopened,
    /// An unexpected message has been posted, and waits for the first connection.
    Begun,
    /// The connection was lost after unexpected messages, and none has been exchanged since.
    Cut,
    /// Unexpected messages have been exchanged, and the connection has not been lost since.
    Open,
}

impl Conversation {
    /// Records that an unexpected message is posted. `ready`: whether the peer is connected.
    pub fn on_post(&mut self, ready: bool) {
        *self = match self {
            Self::Unopened | Self::Begun if !ready => Self::Begun,
            _ => Self::Open,
        };
    }

    /// Records that there is a connection.
    pub fn on_ready(&mut self) {
        if *self == Self::Begun {
            *self = Self::Open;
        }
    }

    /// Records that the connection is lost, or that there will be none.
    pub fn on_loss(&mut self) {
        *self = match self {
            Self::Unopened | Self::Begun => Self::Unopened,
            Self::Cut | Self::Open => Self::Cut,
        };
    }

    /// Records that a message of a lost connection has been handed out.
    pub fn on_late_message(&mut self) {
        if *self != Self::Open {
            *self = Self::Cut;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Conversation::{self, Begun, Cut, Open, Unopened};

    fn after(mut from: Conversation, record: fn(&mut Conversation)) -> Conversation {
        record(&mut from);
        from
    }

    #[test]
    fn only_what_was_opened_is_cut_by_a_loss() {
        assert_eq!(after(Unopened, Conversation::on_loss), Unopened);
        assert_eq!(after(Open, Conversation::on_loss), Cut);
        assert_eq!(after(Cut, Conversation::on_loss), Cut);
    }

    #[test]
    fn what_no_connection_was_had_for_has_not_been_opened() {
        let posted = |mut from: Conversation, ready| {
            from.on_post(ready);
            from
        };
        assert_eq!(posted(Unopened, true), Open);
        assert_eq!(posted(Unopened, false), Begun);
        assert_eq!(posted(Begun, false), Begun);
        assert_eq!(posted(Cut, false), Open);
        assert_eq!(after(Begun, Conversation::on_loss), Unopened);
        assert_eq!(after(Begun, Conversation::on_ready), Open);
        assert_eq!(after(Cut, Conversation::on_ready), Cut);
    }

    #[test]
    fn a_late_message_cuts_what_was_not_opened_and_leaves_what_is() {
        assert_eq!(after(Unopened, Conversation::on_late_message), Cut);
        assert_eq!(after(Open, Conversation::on_late_message), Open);
    }
}
