//! The states of a link, and how it may go from one to another.
//!
//! ```text
//!   Dialing --> Greeting --.                 ask                agreed
//!                          +--> Up <------------------> Asking --------> Asleep <--> Wanted
//!               Accepted --'    ^ `-- their question agreed to ----------^ | ^         |
//!                               |                                          | | no room |
//!                               `---- memory taken --- Waking <------------'-'---------'
//! ```
//!
//! `docs/states.md` shows the table; the tests of the port make every transition, or fail.
//!
//! Owns: which transitions are legal, and in debug builds which were made.
//! Knows nothing of: what a state holds.

use mx_proto::transition_table;
use std::fmt;

/// Where a link stands; `link.rs` has what belongs to each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// We connect, and the peer's backlog is full.
    Dialing,
    /// We have connected and handed memory over.
    Greeting,
    /// A stranger has connected and said nothing yet.
    Accepted,
    /// Carries packets.
    Up,
    /// Nothing has happened for long: we have asked the peer whether the link may sleep.
    Asking,
    /// No memory.
    Asleep,
    /// No memory, and something to send, here or there; there is no room for it yet.
    Wanted,
    /// No memory; we have handed some over and wait for the peer to take it.
    Waking,
}

// From every state a link may go down.
transition_table! {
    Stage {
        Dialing => Greeting: "there is room in the backlog",
        Greeting => Up: "the peer takes the memory",
        Greeting => Asleep: "the peer has room for less memory only, and will hand it over",
        Accepted => Up: "memory is handed over, and we take it",
        Accepted => Asleep: "there is no room for so much memory, but for less",
        Up => Asking: "it is idle for long",
        Up => Asleep: "the peer asks, and we agree",
        Asking => Up: "something is sent or arrives; the peer refuses",
        Asking => Asleep: "the peer has agreed",
        Asleep => Waking: "something is sent: memory is handed over",
        Asleep => Wanted: "something is sent, or the peer hands memory over, and there is no room for it",
        Asleep => Up: "the peer hands memory over, and we take it",
        Wanted => Waking: "there is room: memory is handed over",
        Wanted => Up: "the peer hands memory over, and we take it",
        Waking => Up: "the peer has taken the memory",
        Waking => Asleep: "the peer has no room, or both have handed memory over and the acceptor's is dropped",
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
