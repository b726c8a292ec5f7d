//! States of an operation, and the legal transitions between them.
//!
//! ```text
//!   New --> Queued ---> Offered --> Serving --> Done          a send
//!            |             `-> Withdrawn <-'-----^
//!            `--> Draining ---------------------^
//!   New --> Posted <--> Pulling --------------> Done          a receive
//!   New --> Lending --------------------------> Done          a peer's get
//!   New --> Connecting -----------------------> Done          a connect
//!   New --> Pending --> any state that New leads to, or Done   a send or a receive
//! ```
//!
//! `docs/states.md` shows the table. A test with the simulator's random operations fails unless every transition
//! occurs.
//!
//! Owns: the table, and in debug builds the record of transitions made.

use crate::transition_table;
use std::fmt;

/// State of an operation; `ops/record.rs` has the data of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// The operation is being posted, or waits in no queue yet.
    New,
    /// The operation's remote is not known yet.
    Pending,
    /// The send waits for its turn, its link or credits.
    Queued,
    /// The send's packet is on its way: the port has taken a part of it and reads the rest from the memory.
    Draining,
    /// The receiver has been told of the send and has not requested its data.
    Offered,
    /// The receiver is requesting the send's data, or reading it from the memory.
    Serving,
    /// The send has been cancelled and completes once the receiver no longer reads its memory.
    Withdrawn,
    /// The receive waits for a message that matches.
    Posted,
    /// The receive has matched a message, whose data is being transferred into its memory.
    Pulling,
    /// The endpoint serves a peer's get: sends it a part of a registered region.
    Lending,
    /// The connect waits for the peer's answer.
    Connecting,
    /// The operation has completed, and its owner has to free it.
    Done,
}

transition_table! {
    Stage {
        New => Queued: "a send is large, must be matched, or has no room or credit",
        New => Draining: "a send with its data goes at once, of which the port takes a part",
        New => Posted: "a receive finds no message",
        New => Pulling: "a receive finds a message that has been offered; one is fetched for the inbox; a get; a peer's put",
        New => Offered: "a put: the remote is asked, in its turn, to pull it into its region",
        New => Lending: "a peer gets a part of a region",
        New => Connecting: "a connect is begun",
        New => Pending: "it is posted before its remote is known",
        Pending => Queued: "as from New, for a send",
        Pending => Draining: "see New",
        Pending => Posted: "as from New, for a receive",
        Pending => Pulling: "see New",
        Pending => Done: "all of it goes at once, or a message with its data is there; cancelled",
        Queued => Draining: "it is next to be sent, and the port takes a part of it",
        Queued => Offered: "it is next to be sent, and it is too large, or no credit is left for \
            its bytes",
        Queued => Done: "it is next to be sent, and the port takes all of it; cancelled, time-out; \
            the remote is lost",
        Draining => Done: "the port has taken the rest; cancelled, time-out; the remote is lost",
        Offered => Serving: "the receiver asks for the first part, or reads it",
        Offered => Done: "the receiver wants none of it; cancelled, time-out; the remote is lost",
        Offered => Withdrawn: "cancelled, time-out, and the receiver may be reading it where refusing that ends the link",
        Serving => Withdrawn: "cancelled, time-out, as from Offered",
        Withdrawn => Done: "the receiver reads it no more, or has it; two seconds have passed; the remote is lost",
        Serving => Done: "the receiver has it, or does not want it any more; cancelled, time-out; the remote is lost",
        Posted => Pulling: "an offer matches, or a message whose data is still coming",
        Posted => Done: "a message with its data matches; cancelled, time-out",
        Pulling => Posted: "the sender withdraws the message",
        Pulling => Done: "all of it is there; cancelled, time-out; the remote is lost",
        Lending => Done: "all of it has gone; the peer does not want it any more; the region is deregistered; the remote is lost",
        Connecting => Done: "the answer comes; cancelled, time-out; no such endpoint",
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
