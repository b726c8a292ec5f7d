//! Counters of the reliability layer; always on.

crate::counters! {
    /// Running totals of one [`super::Reliable`].
    pub struct ReliableStats("dgram_") {
        Count datagrams_out: u64 = "datagrams sent",
        Count gso_batches_out: u64 = "calls of the kernel that sent them",
        Count datagrams_in: u64 = "datagrams received",
        Count resent: u64 = "segments sent again",
        Count timeouts: u64 = "time-outs after which something was sent again",
        Count asked_losses: u64 = "segments shown to be lost by asking",
        Count late: u64 = "segments taken for lost that were only late",
        Count acks_alone: u64 = "acknowledgements that travelled alone",
        Count fast_receives: u64 = "packets delivered before their bookkeeping",
        Count duplicates: u64 = "segments that were there already",
        Count outside_window: u64 = "segments outside the window, or without room",
        Count malformed: u64 = "datagrams of wrong magic, version, length or kind",
        Count damaged: u64 = "datagrams with a wrong checksum",
        Count old_session: u64 = "datagrams of a session that is no more, or of another address",
        Count bad_acks: u64 = "acknowledgements of what was never sent",
        Count refused: u64 = "callers over datagrams refused because there are too many",
        Count over_share: u64 = "callers over datagrams refused because their source had its share",
        Count unbound: u64 = "sessions over datagrams that were not introduced in time",
        Count black_holes: u64 = "paths that turned out to carry only smaller datagrams",
    }
}
