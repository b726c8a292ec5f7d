//! Figures of flow control.
//!
//! ```text
//!   total = free + lent + drawn + copies + tombstones            lent = sum of all accounts' credit limits
//! ```

/// The balance, and how often what happened since the beginning.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowStats {
    /// Credits there are.
    pub total: u32,
    /// Neither lent nor held by anything.
    pub free: u32,
    /// Lent to remotes.
    pub lent: u32,
    /// Held by messages that were fetched, or are being fetched.
    pub drawn: u32,
    /// Held by copies of our own sends.
    pub copies: u32,
    /// Held by messages whose senders are gone.
    pub tombstones: u32,
    /// Open accounts.
    pub remotes: u32,
    /// Remotes that want more than they have and wait for it.
    pub waiting: u32,
    /// Of these, those that have none.
    pub poor: u32,
    /// Remotes that have been asked for credits in this epoch and have not answered.
    pub asked: u32,
    /// Messages that came.
    pub messages: u64,
    /// Of these, how many were in slots.
    pub in_slots: u64,
    /// Breaches of the rules.
    pub violations: u64,
    /// Times that remotes said they wanted more.
    pub wants: u64,
    /// Credits lent after the first credits.
    pub granted: u64,
    /// Credits that remotes were asked for.
    pub revoked: u64,
    /// Credits that they gave back.
    pub returned: u64,
    /// Credits that were taken back without asking: of messages that were taken, and what the remote had
    /// not been told of.
    pub narrowed: u64,
    /// Draws that had to wait.
    pub draws_refused: u64,
    /// Epochs ended.
    pub epochs: u64,
}
