//! Epochs: count the recently active remotes without a scan of all.
//!
//! ```text
//!   messages  |...... 4096, or 4 a remote ......|..............................|.......
//!   number    7                                 8                              9
//!   active    senders in 6, in 7                in 7, in 8
//! ```
//!
//! An epoch ends after this many messages, or when the endpoint reports that [`EPOCH_TIME`](super::EPOCH_TIME) has
//! passed while a remote waits for credits.

use super::settings::{AT_ONCE, EPOCH, EPOCH_EACH, FIRST};

#[derive(Debug)]
pub(super) struct Epochs {
    number: u32,
    /// Count of messages at which the present epoch ends.
    pub(super) until: u64,
    pub(super) remotes: u32,
    /// Number of remotes that used credits in the previous epoch, and in this one.
    active: (u32, u32),
}

impl Epochs {
    pub(super) fn new() -> Self {
        Self {
            number: 0,
            until: EPOCH,
            remotes: 0,
            active: (0, 0),
        }
    }

    /// Returns the number as stored in accounts.
    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.number as u16
    }

    /// Returns the number as sent in headers.
    #[inline]
    pub(super) fn byte(&self) -> u8 {
        self.number as u8
    }

    pub(super) fn end(&mut self, messages: u64) {
        self.number = self.number.wrapping_add(1);
        self.until = messages + EPOCH.max(EPOCH_EACH * u64::from(self.remotes));
        self.active = (self.active.1, 0);
    }

    pub(super) fn on_active(&mut self) {
        self.active.1 += 1;
    }

    /// Returns the number of active remotes, at least one; remotes that came and went within an epoch do not count.
    pub(super) fn active(&self) -> u32 {
        self.active.0.max(self.active.1).min(self.remotes).max(1)
    }

    /// Returns the credits that each active remote may have in flight (incast control).
    pub(super) fn at_once(&self) -> u32 {
        (AT_ONCE / self.active()).max(FIRST.into())
    }
}
