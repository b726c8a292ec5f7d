//! Figures of flow control.
//!
//! ```text
//!   total = free + lent + drawn + copies + tombstones            lent = sum of all accounts' credit limits
//! ```

crate::counters! {
    /// The balance, and how often what happened since the beginning.
    pub struct FlowStats("flow_") {
        Level total: u32 = "credits there are, of 512 bytes each",
        Level free: u32 = "credits neither lent nor held by messages",
        Level lent: u32 = "credits lent to peers",
        Level drawn: u32 = "credits held by messages that were fetched or are being fetched",
        Level copies: u32 = "credits held by copies of own sends",
        Level tombstones: u32 = "credits held by messages whose senders are gone",
        Level remotes: u32 = "peers with an account of credits",
        Level waiting: u32 = "peers that want more credits and wait for them",
        Level poor: u32 = "peers that wait and have no credit at all",
        Level asked: u32 = "peers asked to give credits back that have not answered yet",
        Count messages: u64 = "messages that came for credits or slots",
        Count in_slots: u64 = "messages that came without a credit, in a slot",
        Count violations: u64 = "breaches of the rules about credits",
        Count wants: u64 = "times that peers wanted more credits",
        Count granted: u64 = "credits lent after the first credits",
        Count revoked: u64 = "credits that peers were asked to give back",
        Count returned: u64 = "credits that peers gave back",
        Count narrowed: u64 = "credits taken back without asking",
        Count draws_refused: u64 = "fetches that had to wait for credits",
        Count epochs: u64 = "rounds of sharing credits out anew",
    }
}
