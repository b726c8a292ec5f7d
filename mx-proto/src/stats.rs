//! Counters of one endpoint, always on and never reset; and the current figures of the inbox.

crate::counters! {
    /// Counters of events.
    pub struct Stats("") {
        Count packets_out: u64 = "packets given to the ports",
        Count packets_in: u64 = "packets taken from the ports",
        Count eager_out: u64 = "messages sent with their data at once",
        Count offers_out: u64 = "messages announced, for the receiver to pull",
        Count matched: u64 = "messages that found a posted receive",
        Count unmatched: u64 = "messages that came before their receive",
        Count queued: u64 = "sends that had to wait for their link or for credit",
        Count offered_for_credit: u64 = "small messages announced for want of credit",
        Count credit_stalls: u64 = "times that sends had to wait for credit",
        Count stale: u64 = "packets about what is no longer there, dropped",
        Count malformed: u64 = "packets that make no sense; their links were closed",
        Count remotes_up: u64 = "peers that were connected",
        Count remotes_down: u64 = "peers that were disconnected or lost",
        Count refused: u64 = "connects refused: wrong key, version, or too many peers",
        Count unproven: u64 = "peers refused because the network does not tell who they are",
        Count confirms: u64 = "calls of ours that crossed one of the peer's, asked about",
        Count intruders: u64 = "peers asked whether they are there, as another has their name or life",
        Count out_of_memory: u64 = "peers disconnected because there was no memory for a message",
        Count silenced: u64 = "peers taken for lost because nothing was heard of them",
        Count timeouts: u64 = "operations that ran into their time-out",
    }
}

crate::counters! {
    /// The figures of the inbox.
    pub struct InboxStats("inbox_") {
        Level messages: usize = "unexpected messages that can be handed out",
        Level bytes: usize = "bytes of unexpected messages that can be handed out",
        Level fetching: usize = "messages being fetched",
        Level waiting: usize = "messages that wait for room before they are fetched",
    }
}
