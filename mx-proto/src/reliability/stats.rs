//! Counters of the reliability layer; always on.

/// Running totals of one [`super::Reliable`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReliableStats {
    /// Datagrams given to the service.
    pub datagrams_out: u64,
    /// Calls of the service that sent them.
    pub gso_batches_out: u64,
    /// Datagrams taken from the service.
    pub datagrams_in: u64,
    /// Segments sent again.
    pub resent: u64,
    /// Time-outs that made something be sent again.
    pub timeouts: u64,
    /// Segments that the answer to a Ping showed to be lost.
    pub asked_losses: u64,
    /// Segments that were declared lost and arrived after all.
    pub late: u64,
    /// Acknowledgements that travelled alone.
    pub acks_alone: u64,
    /// Packets delivered before their bookkeeping.
    pub fast_receives: u64,
    /// Segments that were there already.
    pub duplicates: u64,
    /// Segments outside the window, or early ones for which there was no room.
    pub outside_window: u64,
    /// Datagrams that are none of ours: wrong magic, version, length or kind.
    pub malformed: u64,
    /// Datagrams whose checksum is wrong.
    pub damaged: u64,
    /// Datagrams, and errors about datagrams, of a session that is not, or not any more, or of another
    /// address.
    pub old_session: u64,
    /// Acknowledgements of what was never sent.
    pub bad_acks: u64,
    /// Callers that were not answered because there are too many links.
    pub refused: u64,
    /// Those of them whose source had its share.
    pub over_share: u64,
    /// Incoming sessions that were not bound in time.
    pub unbound: u64,
    /// Paths that turned out to carry only smaller datagrams than before.
    pub black_holes: u64,
}
