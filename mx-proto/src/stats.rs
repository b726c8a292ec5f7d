//! Counters, always on and never reset, and current figures.

crate::counters! {
    /// Counters of one endpoint since it was opened.
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
        Count stale: u64 = "packets for a request or session that no longer exists, dropped",
        Count malformed: u64 = "malformed packets, whose links were closed",
        Count remotes_up: u64 = "peers that were connected",
        Count remotes_down: u64 = "peers that were disconnected or lost",
        Count refused: u64 = "connects refused: wrong key, version, or too many peers",
        Count unproven: u64 = "peers rejected because the network does not prove their address",
        Count same_name_pings: u64 = "peers pinged because a newcomer claims their name",
        Count out_of_memory: u64 = "peers disconnected because there was no memory for a message",
        Count peer_timeouts: u64 = "peers declared lost after silence",
        Count timeouts: u64 = "operations that timed out",
        Level longest_wait_us: u64 = "longest time that a message sent with its data waited for its link or for credit, in microseconds",
        Count data_links: u64 = "links opened beside those of peers, for bulk data",
        Count data_links_lost: u64 = "links for bulk data that were lost, and whose data was asked for again",
        Count accesses: u64 = "accesses of peers to registered memory that were served",
        Count accesses_refused: u64 = "accesses of peers to registered memory that were refused: key, range or right, or too many",
        Count refused_accesses: u64 = "gets and puts of this endpoint that peers refused",
        Count moved: u64 = "peers that were met over TCP and have moved to a fabric",
    }
}

crate::counters! {
    /// Present contents of the inbox, the unexpected messages that the owner directed there
    /// ([`Verdict::Inbox`](crate::Verdict::Inbox)).
    pub struct InboxStats("inbox_") {
        Level messages: usize = "unexpected messages that can be handed out",
        Level bytes: usize = "bytes of unexpected messages that can be handed out",
        Level fetching: usize = "messages being fetched",
        Level waiting: usize = "messages that wait for room before they are fetched",
    }
}

crate::counters! {
    /// Counters of flow control, and the balance of credits:
    ///
    /// ```text
    ///   total = free + lent + drawn + copies + tombstones      lent = sum of all accounts' credit limits
    /// ```
    ///
    pub struct FlowStats("flow_") {
        Level total: u32 = "total number of credits, of 512 bytes each",
        Level free: u32 = "credits neither lent nor held by messages",
        Level lent: u32 = "credits lent to peers",
        Level drawn: u32 = "credits held by messages that were fetched or are being fetched",
        Level copies: u32 = "credits held by copies of own sends",
        Level tombstones: u32 = "credits held by messages whose senders are gone",
        Level remotes: u32 = "peers with an account of credits",
        Level waiting: u32 = "peers that want more credits and wait for them",
        Level poor: u32 = "peers that wait and have no credit at all",
        Level asked: u32 = "peers asked to give credits back that have not answered yet",
        Count messages: u64 = "messages received for credits or slots",
        Count in_slots: u64 = "messages that came without a credit, in a slot",
        Count violations: u64 = "violations of the credit rules",
        Count wants: u64 = "times that peers wanted more credits",
        Count granted: u64 = "credits lent after the first credits",
        Count revoked: u64 = "credits that peers were asked to give back",
        Count returned: u64 = "credits that peers gave back",
        Count narrowed: u64 = "credits taken back without asking",
        Count draws_refused: u64 = "fetches that had to wait for credits",
        Count epochs: u64 = "epochs of credit distribution",
    }
}

crate::counters! {
    /// Counters of one `Reliable` port since it was made.
    pub struct ReliableStats("dgram_") {
        Count datagrams_out: u64 = "datagrams sent",
        Count gso_batches_out: u64 = "calls of the kernel that sent them",
        Count datagrams_in: u64 = "datagrams received",
        Count resent: u64 = "segments sent again",
        Count timeouts: u64 = "time-outs after which something was sent again",
        Count asked_losses: u64 = "segments shown to be lost by asking",
        Count late: u64 = "segments declared lost that arrived late",
        Count pure_acks: u64 = "acknowledgements sent in a datagram of their own",
        Count fast_receives: u64 = "packets delivered before their bookkeeping",
        Count duplicates: u64 = "duplicate segments",
        Count outside_window: u64 = "segments outside the window, or without room",
        Count malformed: u64 = "datagrams of wrong magic, version, length or kind",
        Count damaged: u64 = "datagrams with a wrong checksum",
        Count old_session: u64 = "datagrams of an ended session, or from another address",
        Count bad_acks: u64 = "acknowledgements of segments that were never sent",
        Count refused: u64 = "callers over datagrams refused because there are too many",
        Count over_share: u64 = "callers over datagrams refused because their source had its share",
        Count unbound: u64 = "sessions over datagrams that were not introduced in time",
        Count black_holes: u64 = "paths that turned out to carry only smaller datagrams",
    }
}
