//! Counters of one endpoint, always on and never reset; and the current figures of the inbox.

/// Counters of events.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Packets given to the port.
    pub packets_out: u64,
    /// Packets taken from the port.
    pub packets_in: u64,
    /// Messages sent with their data.
    pub eager_out: u64,
    /// Messages offered for pulling.
    pub offers_out: u64,
    /// Messages that found a posted receive.
    pub matched: u64,
    /// Messages that did not.
    pub unmatched: u64,
    /// Sends that had to wait for the link or for credit.
    pub queued: u64,
    /// Messages offered although they were small, for want of credit.
    pub offered_for_credit: u64,
    /// Times that nothing for a remote could go for want of credits.
    pub credit_stalls: u64,
    /// Packets about requests or remotes that no longer exist: dropped.
    pub stale: u64,
    /// Packets that make no sense: their link was closed.
    pub malformed: u64,
    /// Remotes that came up.
    pub remotes_up: u64,
    /// Remotes that went down.
    pub remotes_down: u64,
    /// Connects refused because of a wrong key, version, or too many remotes.
    pub refused: u64,
    /// Peers refused because the network does not tell who they are.
    pub unproven: u64,
    /// Calls that crossed one of the peer's: questions whether that was its own.
    pub confirms: u64,
    /// Remotes asked whether they are there, because another one has their name or their life.
    pub intruders: u64,
    /// Remotes whose session was ended because there was no memory for a message.
    pub out_of_memory: u64,
    /// Remotes that were taken for lost because nothing was heard of them.
    pub silenced: u64,
    /// Requests that ran into their time-out.
    pub timeouts: u64,
}

/// The figures of the inbox.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct InboxStats {
    /// Messages that are here, whether they can be had or wait for one before them.
    pub messages: usize,
    /// Bytes of these, and of those that are being fetched.
    pub bytes: usize,
    /// Messages that are being fetched.
    pub fetching: usize,
    /// Turns that wait for room to fetch a message.
    pub waiting: usize,
}
