//! How much one partner may send us unasked, and we it.
//!
//! ```text
//!   theirs to use    received ......... granted          (running totals, modulo 2^32)
//!                        |<- may arrive ->|
//!   ours to use      sent ............. allowed
//!                        |<- may send --->|
//! ```
//!
//! Two currencies: *messages* (each message costs one, with data or only offered) and *bytes* of
//! messages sent with their data. Who has no bytes left offers; who has no messages left waits.
//! What has been matched or consumed is granted again, so a window moves along.
//!
//! Knows nothing of: packets, queues. Cost: 56 bytes a partner.

/// The credits between us and one partner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credit {
    allowed_bytes: u32,
    allowed_messages: u32,
    sent_bytes: u32,
    sent_messages: u32,
    granted_bytes: u32,
    granted_messages: u32,
    received_bytes: u32,
    received_messages: u32,
    consumed_bytes: u32,
    consumed_messages: u32,
    window_bytes: u32,
    window_messages: u32,
}

/// Bytes of unexpected messages that all partners share: granted to somebody, or held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) limit: usize,
    pub(crate) granted: usize,
    pub(crate) held: usize,
}

impl Budget {
    fn room(&self) -> u32 {
        let room = self
            .limit
            .saturating_sub(self.granted)
            .saturating_sub(self.held);
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

impl Credit {
    pub(crate) fn new(window_bytes: u32, window_messages: u32) -> Self {
        Self {
            window_bytes,
            window_messages,
            ..Self::default()
        }
    }

    /// May another message be announced?
    #[inline]
    pub(crate) fn message_allowed(&self) -> bool {
        self.sent_messages != self.allowed_messages
    }

    /// May its `len` bytes go with it?
    #[inline]
    pub(crate) fn bytes_allowed(&self, len: u32) -> bool {
        self.allowed_bytes.wrapping_sub(self.sent_bytes) >= len
    }

    /// A message went out, with `len` bytes of data (0 for an offer).
    #[inline]
    pub(crate) fn on_sent(&mut self, len: u32) {
        self.sent_messages = self.sent_messages.wrapping_add(1);
        self.sent_bytes = self.sent_bytes.wrapping_add(len);
    }

    /// The partner told what it allows. Totals only grow; an older packet's are ignored. Returns
    /// true when there is more than before.
    #[inline]
    pub(crate) fn on_allowance(&mut self, bytes: u32, messages: u32) -> bool {
        let mut more = false;
        if ahead(bytes, self.allowed_bytes) {
            self.allowed_bytes = bytes;
            more = true;
        }
        if ahead(messages, self.allowed_messages) {
            self.allowed_messages = messages;
            more = true;
        }
        more
    }

    /// A message arrived with `len` bytes of data. False when the partner had no right to send it.
    #[inline]
    pub(crate) fn on_received(&mut self, len: u32, budget: &mut Budget) -> bool {
        if self.granted_messages == self.received_messages
            || self.granted_bytes.wrapping_sub(self.received_bytes) < len
        {
            return false;
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        self.received_bytes = self.received_bytes.wrapping_add(len);
        budget.granted = budget.granted.saturating_sub(len as usize);
        true
    }

    /// A message that had arrived takes no more room here.
    #[inline]
    pub(crate) fn on_consumed(&mut self, len: u32) {
        self.consumed_messages = self.consumed_messages.wrapping_add(1);
        self.consumed_bytes = self.consumed_bytes.wrapping_add(len);
    }

    /// Messages that nobody has received take up most of what the partner may leave here.
    pub(crate) fn is_crowded(&self) -> bool {
        let messages = self.received_messages.wrapping_sub(self.consumed_messages);
        let bytes = self.received_bytes.wrapping_sub(self.consumed_bytes);
        let most = |window: u32| window - window / 4;
        messages >= most(self.window_messages) || bytes >= most(self.window_bytes.max(1))
    }

    /// The partner ought to be told what has been consumed even if nothing else goes there: it is
    /// more than what is left to it. With nothing waiting here that is half a window; a partner
    /// whose messages wait hears of each that goes, and never waits for credit that there is.
    #[inline]
    pub(crate) fn overdue(&self) -> bool {
        let messages = self.consumed_messages.wrapping_add(self.window_messages);
        let bytes = self.consumed_bytes.wrapping_add(self.window_bytes);
        behind(self.granted_messages, messages)
            > self.granted_messages.wrapping_sub(self.received_messages)
            || behind(self.granted_bytes, bytes)
                > self.granted_bytes.wrapping_sub(self.received_bytes)
    }

    /// The window has turned out to be what a busy partner waits for.
    pub(crate) fn widen(&mut self, max: u32) {
        self.window_bytes = self
            .window_bytes
            .saturating_mul(2)
            .min(max)
            .max(self.window_bytes);
    }

    /// Grants what the window and the shared budget have room for; the totals to tell.
    #[inline]
    pub(crate) fn grant(&mut self, budget: &mut Budget) -> (u32, u32) {
        let wanted = self
            .consumed_bytes
            .wrapping_add(self.window_bytes)
            .wrapping_sub(self.granted_bytes);
        // After `absorb` more may be granted than the window says.
        if wanted != 0 && wanted < 1 << 31 {
            let more = wanted.min(budget.room());
            self.granted_bytes = self.granted_bytes.wrapping_add(more);
            budget.granted += more as usize;
        }
        let messages = self.consumed_messages.wrapping_add(self.window_messages);
        if ahead(messages, self.granted_messages) {
            self.granted_messages = messages;
        }
        (self.granted_bytes, self.granted_messages)
    }

    /// The partner was also known as `other`, under which it may have been granted more.
    pub(crate) fn absorb(&mut self, other: &Self, budget: &mut Budget) {
        other.dissolve(budget);
        if ahead(other.granted_bytes, self.granted_bytes) {
            budget.granted += other.granted_bytes.wrapping_sub(self.granted_bytes) as usize;
            self.granted_bytes = other.granted_bytes;
        }
        if ahead(other.granted_messages, self.granted_messages) {
            self.granted_messages = other.granted_messages;
        }
        self.on_allowance(other.allowed_bytes, other.allowed_messages);
    }

    /// The partner is gone: what it had not used is free again.
    pub(crate) fn dissolve(&self, budget: &mut Budget) {
        let unused = self.granted_bytes.wrapping_sub(self.received_bytes) as usize;
        budget.granted = budget.granted.saturating_sub(unused);
    }
}

/// How far `granted` is behind `due`; after `absorb` it can be ahead of it.
#[inline]
fn behind(granted: u32, due: u32) -> u32 {
    if ahead(due, granted) {
        due.wrapping_sub(granted)
    } else {
        0
    }
}

/// Is `new` a later running total than `old`?
#[inline]
fn ahead(new: u32, old: u32) -> bool {
    new != old && new.wrapping_sub(old) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: usize) -> Budget {
        Budget {
            limit,
            granted: 0,
            held: 0,
        }
    }

    #[test]
    fn nobody_may_send_more_than_was_granted() {
        let mut shared = budget(1000);
        let mut us = Credit::new(100, 2);
        let mut them = Credit::default();
        let (bytes, messages) = us.grant(&mut shared);
        assert!(them.on_allowance(bytes, messages));
        assert!(them.message_allowed() && them.bytes_allowed(100) && !them.bytes_allowed(101));
        them.on_sent(60);
        them.on_sent(40);
        assert!(!them.message_allowed() && !them.bytes_allowed(1) && them.bytes_allowed(0));
        assert!(us.on_received(60, &mut shared));
        assert!(!us.on_received(41, &mut shared));
        assert!(us.on_received(40, &mut shared));
        assert!(!us.on_received(0, &mut shared));
    }

    #[test]
    fn who_has_no_credit_left_hears_of_the_first_message_that_goes() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new(1000, 8);
        us.grant(&mut shared);
        for _ in 0..8 {
            assert!(us.on_received(10, &mut shared));
            assert!(!us.overdue());
        }
        us.on_consumed(10);
        assert!(us.overdue());
        us.grant(&mut shared);
        assert!(!us.overdue());
    }

    #[test]
    fn a_window_is_crowded_when_a_quarter_of_it_or_less_is_left() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new(1000, 8);
        us.grant(&mut shared);
        for n in 1..=6 {
            assert!(!us.is_crowded(), "{n}");
            assert!(us.on_received(10, &mut shared));
        }
        assert!(us.is_crowded());
        us.on_consumed(10);
        assert!(!us.is_crowded());
        assert!(us.on_received(700, &mut shared));
        us.on_consumed(10);
        us.on_consumed(10);
        assert!(!us.is_crowded());
        assert!(us.on_received(20, &mut shared));
        assert!(us.is_crowded());
    }

    #[test]
    fn the_shared_budget_is_never_granted_twice() {
        let mut shared = budget(150);
        let mut a = Credit::new(100, 1);
        let mut b = Credit::new(100, 1);
        assert_eq!(a.grant(&mut shared).0, 100);
        assert_eq!(b.grant(&mut shared).0, 50);
        assert!(a.on_received(100, &mut shared));
        shared.held += 100;
        assert_eq!(b.grant(&mut shared).0, 50);
        shared.held -= 100;
        a.on_consumed(100);
        assert_eq!(b.grant(&mut shared).0, 100);
        assert_eq!(a.grant(&mut shared).0, 150);
        a.dissolve(&mut shared);
        b.dissolve(&mut shared);
        assert_eq!(shared.granted, 0);
    }

    #[test]
    fn totals_keep_working_across_their_wrap() {
        let mut shared = budget(usize::MAX / 2);
        let near = u32::MAX - 5;
        let mut us = Credit::new(10, 10);
        for total in [
            &mut us.granted_bytes,
            &mut us.granted_messages,
            &mut us.received_bytes,
            &mut us.received_messages,
            &mut us.consumed_bytes,
            &mut us.consumed_messages,
        ] {
            *total = near;
        }
        let mut them = Credit {
            allowed_bytes: near,
            allowed_messages: near,
            ..Credit::default()
        };
        (them.sent_bytes, them.sent_messages) = (near, near);
        for _ in 0..5 {
            let (bytes, messages) = us.grant(&mut shared);
            assert!(them.on_allowance(bytes, messages));
            assert!(!them.on_allowance(bytes.wrapping_sub(1), messages));
            for _ in 0..10 {
                assert!(them.message_allowed() && them.bytes_allowed(1));
                them.on_sent(1);
                assert!(us.on_received(1, &mut shared));
                us.on_consumed(1);
            }
            assert!(!them.message_allowed() && us.overdue());
        }
    }
}
