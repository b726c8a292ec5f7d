//! What one peer lent us: how many unexpected messages we may send it.
//!
//! ```text
//!            pay                        taken there
//!   free  ----------->  used  - - - - - - - - - - - - -> (the lender has it)
//!     ^                   |  on_ride, Grant: home             |
//!     |`------------------'                                   | kept there: never told
//!     |  extra, Return                                        v
//! ```
//!
//! `peak` is the most that was `used` at once lately: it decays to a quarter with every epoch that
//! the lender tells, and a Revoke gets what is free beyond it. Who was short lately gives nothing.
//!
//! A message that cannot be paid for is *offered* for one credit; with none it waits and a Want is
//! sent, one at a time. How many credits were missing rides on the next message that is paid for.
//!
//! Knows nothing of: the messages that wait. Cost: 12 bytes a peer, every call O(1).

use super::byte::{CreditByte, code_covering};
use super::control::{CONTROL_MAX, Control, ControlWord};

/// The credits one peer has lent us. The default is a peer that knows no credits: it is sent to
/// without limit, and what it does not take waits below.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Borrower {
    /// May be used now.
    free: u16,
    /// Used and not home yet. `free + used` is never above `u16::MAX`.
    used: u16,
    /// The most of `used` lately; never below it.
    peak: u16,
    /// How many were missing since the lender was last told.
    short: u16,
    /// How often some were missing lately.
    stalls: u8,
    /// How often the lender made no sense.
    lies: u8,
    /// There is a limit.
    lent: bool,
    /// A Want was sent and no Grant has come.
    asked: bool,
}

impl Borrower {
    /// The peer said in the handshake that it lends us `loan` credits.
    pub fn open(loan: u16) -> Self {
        Self {
            free: loan,
            lent: true,
            ..Self::default()
        }
    }

    /// Pays for a message that is sent right after this; the byte goes into its match bits. `None`
    /// when there are not `cost` credits: the shortage is remembered, to be told.
    #[inline]
    pub fn pay(&mut self, cost: u32) -> Option<CreditByte> {
        if !self.lent {
            return Some(CreditByte::NONE);
        }
        if cost > u32::from(self.free) {
            self.on_short(cost);
            return None;
        }
        let cost = cost as u16;
        self.free -= cost;
        self.used += cost;
        self.peak = self.peak.max(self.used);
        let extra = code_covering(self.short);
        self.short = 0;
        Some(CreditByte {
            epoch: false,
            extra,
            count: cost.min(u16::from(CreditByte::COUNT_MAX)) as u8,
        })
    }

    /// A message that `cost` credits were paid for was never sent.
    pub fn refund(&mut self, cost: u32) {
        let back = cost.min(self.used.into()) as u16;
        self.used -= back;
        self.free += back;
    }

    /// Messages wait that cost `cost` credits together (that of the first alone will do). Returns
    /// the Want to send, if there is one to send: not when they could be paid for, and not while
    /// an earlier one is unanswered.
    pub fn stalled(&mut self, cost: u32) -> Option<ControlWord> {
        if !self.lent || cost <= u32::from(self.free) {
            return None;
        }
        self.on_short(cost);
        if self.asked {
            return None;
        }
        self.asked = true;
        let want = std::mem::take(&mut self.short).min(CONTROL_MAX);
        Some(ControlWord {
            control: Control::Want(want),
            epoch: false,
        })
    }

    /// An EXPECTED message of the lender arrived with this byte. True when there are more credits
    /// than before. What makes no sense is counted and left out.
    #[inline]
    pub fn on_ride(&mut self, byte: CreditByte) -> bool {
        if !self.lent {
            return false;
        }
        if byte.epoch {
            self.on_epoch();
        }
        self.receive(u16::from(byte.count), byte.extra)
    }

    /// A Grant or Revoke of the lender arrived; the Return to send, after a Revoke. (After a Grant
    /// see [`Self::free`].) Words that are not a lender's are counted and left out.
    pub fn on_control(&mut self, word: ControlWord) -> Option<ControlWord> {
        if word.epoch {
            self.on_epoch();
        }
        match word.control {
            Control::Grant { home, extra } if self.lent => {
                if !std::mem::take(&mut self.asked) {
                    self.on_lie();
                }
                self.receive(home, extra);
                None
            }
            Control::Revoke(asked) if self.lent => {
                let back = asked.min(self.spare());
                self.free -= back;
                Some(ControlWord {
                    control: Control::Return(back),
                    epoch: false,
                })
            }
            _ => {
                self.on_lie();
                None
            }
        }
    }

    /// The lender has ended an epoch. Called by the methods above; to be called for an E in any
    /// other message of the peer.
    pub fn on_epoch(&mut self) {
        self.peak = (self.peak >> DECAY).max(self.used);
        self.stalls >>= DECAY;
    }

    /// Credits that may be used now; `u16::MAX` with a peer that knows no credits.
    #[inline]
    pub fn free(&self) -> u16 {
        if self.lent { self.free } else { u16::MAX }
    }

    /// Credits used and not home yet. The lender may have kept some of them.
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Is a Want unanswered?
    pub fn is_waiting(&self) -> bool {
        self.asked
    }

    /// How often the lender made no sense; stays at 255.
    pub fn lies(&self) -> u8 {
        self.lies
    }

    /// What a Revoke may have.
    fn spare(&self) -> u16 {
        if self.stalls > 0 {
            return 0;
        }
        self.free.saturating_sub(self.peak - self.used)
    }

    fn receive(&mut self, home: u16, extra: u16) -> bool {
        let back = home.min(self.used);
        self.used -= back;
        self.free += back;
        let lent = extra.min(u16::MAX - self.free - self.used);
        self.free += lent;
        if back != home || lent != extra {
            self.on_lie();
        }
        back > 0 || lent > 0
    }

    #[cold]
    fn on_short(&mut self, cost: u32) {
        let missing = cost - u32::from(self.free);
        self.short = self.short.max(missing.min(u32::from(u16::MAX)) as u16);
        self.stalls = self.stalls.saturating_add(1);
    }

    #[cold]
    fn on_lie(&mut self) {
        self.lies = self.lies.saturating_add(1);
    }
}

/// A figure of recent use loses three quarters with every epoch.
pub(super) const DECAY: u32 = 2;
