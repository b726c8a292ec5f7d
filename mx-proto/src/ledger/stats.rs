//! What a lender can be asked about: all peers together, and one.
//!
//! ```text
//!   total = bank + drawn + lent + estates          lent = sum of all accounts' loans
//! ```
//!
//! Knows nothing of: how it is shown.

/// A lender's balance, and how often what happened since it began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LenderStats {
    /// Credits there are.
    pub total: u32,
    /// Banked: neither lent nor held by a message.
    pub bank: u32,
    /// Held by messages that were pulled, or came from peers that know no credits.
    pub drawn: u32,
    /// Lent to peers.
    pub lent: u32,
    /// Held by messages of peers that are gone.
    pub estates: u32,
    /// Open peers that know credits.
    pub peers: u32,
    /// Open peers that know none.
    pub others: u32,
    /// Peers that want more than they have and wait for it.
    pub waiting: u32,
    /// Peers that have been asked for credits and have not answered.
    pub asked: u32,
    /// Unexpected messages that arrived.
    pub messages: u64,
    /// Of these, how many nobody had paid for: dropped.
    pub unpaid: u64,
    /// Times that a message of a peer that knows no credits had to wait below.
    pub held: u64,
    /// Times that peers said they wanted more.
    pub wants: u64,
    /// Credits lent on top.
    pub granted: u64,
    /// Credits that peers were asked for.
    pub revoked: u64,
    /// Credits that they gave back.
    pub returned: u64,
    /// Credits of taken messages that were not sent home.
    pub kept: u64,
    /// Revokes sent.
    pub revokes_sent: u64,
    /// Grants sent.
    pub grants_sent: u64,
    /// Control messages, sent and received.
    pub controls: u64,
    /// Draws that had to wait.
    pub draws_refused: u64,
    /// Lies.
    pub strikes: u64,
    /// Peers that were failed for them.
    pub failed: u64,
    /// Epochs ended.
    pub epochs: u64,
    /// Bytes that the ledger takes up.
    pub memory: usize,
}

/// One peer's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// Does it know credits?
    pub knows: bool,
    /// Credits lent to it, wherever they are.
    pub loan: u16,
    /// Of these, those held by its messages that the host has not taken.
    pub waiting: u16,
    /// Of these, those that are to go home.
    pub owed: u16,
    /// Of these, those that it has not been told of.
    pub due: u16,
    /// How many more it wants.
    pub wanted: u16,
    /// Credits it believes to be under way, which the lender has kept.
    pub kept: u16,
    /// Has it been asked for credits, without an answer yet?
    pub asked: bool,
    /// Held by messages of its earlier lives.
    pub estate: u32,
    /// Lies that it has been forgiven.
    pub strikes: u8,
}

impl Account {
    /// Credits that it can use now, as far as the lender knows.
    pub fn free(&self) -> u16 {
        self.loan - self.waiting - self.owed - self.due
    }
}
