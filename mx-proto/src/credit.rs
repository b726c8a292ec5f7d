//! How much one partner may send us unasked, and we it.
//!
//! ```text
//!   theirs to use    received ......... granted          (running totals, modulo 2^32)
//!                        |<- may arrive ->|
//!   ours to use      sent ............. allowed
//!                        |<- may send --->|
//!
//!   the budget       [ held | granted, not used | messages beyond the floors |  room  ]  <= limit
//!                                                                     last quarter: messages only
//! ```
//!
//! Two currencies: *messages* (each message costs one, with data or only offered) and *bytes* of
//! messages sent with their data. Who has no bytes left offers; who has no messages left waits.
//! What has been matched or consumed is granted again, so a window moves along.
//!
//! All partners' windows come out of one [`Budget`], what a waiting message takes besides its bytes
//! included. Outside of it are [`FLOOR`] messages of each partner, so that nobody is ever shut out.
//! A first window depends on the room that is left; it widens with use, and what is not used can be
//! asked back: the partner then *yields*, that is, it spends a part of its window on nothing.
//!
//! Knows nothing of: queues, who is busy and who is not. Cost: 64 bytes a partner.

use crate::wire::Header;

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
    opening: Terms,
    /// It has yielded, or has waited for room: its next message gets it a first window again.
    afresh: bool,
}

/// Sizes of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    /// At first, while there is room.
    pub(crate) first_bytes: u32,
    pub(crate) first_messages: u32,
    /// At most.
    pub(crate) max_bytes: u32,
    pub(crate) max_messages: u32,
}

/// Memory for unexpected messages that all partners share: granted to somebody, or held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limit: usize,
    windows: Windows,
    /// Bytes that may still come.
    granted: usize,
    /// Bytes of messages that wait here.
    pub(crate) held: usize,
    /// Messages that may still come or that wait here, beyond each partner's [`FLOOR`].
    messages: usize,
    /// What may be on its way from one partner at once: bytes and messages.
    at_once: (u32, u32),
}

impl Budget {
    pub(crate) fn new(limit: usize, windows: Windows) -> Self {
        Self {
            limit,
            windows,
            granted: 0,
            held: 0,
            messages: 0,
            at_once: (u32::MAX, u32::MAX),
        }
    }

    /// So many partners send at present. What is on its way from one goes before what the others send
    /// later, so with many of them it is little.
    pub(crate) fn share_arrivals(&mut self, partners: u32) {
        let partners = partners.max(1);
        self.at_once = (
            (AT_ONCE_BYTES / partners).max(self.windows.first_bytes),
            (AT_ONCE_MESSAGES / partners).max(AT_ONCE_LEAST),
        );
    }

    /// What nobody has.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        let bytes = self.granted + self.held;
        let used = bytes + self.messages * MESSAGE_COST;
        self.limit.saturating_sub(used)
    }

    /// What of `room` may be had for bytes: messages are never short because of them.
    #[inline]
    fn for_bytes(&self, room: usize) -> usize {
        let most = self.most_bytes();
        room.min(most.saturating_sub(self.granted + self.held))
    }

    #[inline]
    fn most_bytes(&self) -> usize {
        self.limit - self.limit / 4
    }

    /// What is granted and held, and the limit of it.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let used = self.granted + self.held + self.messages * MESSAGE_COST;
        (used, self.limit)
    }

    /// Is there room for another opening like this?
    pub(crate) fn has_room_for(&self, opening: Terms) -> bool {
        let messages = opening.messages.saturating_sub(FLOOR) as usize;
        opening.bytes as usize + messages * MESSAGE_COST <= self.room()
    }

    /// How many messages may stay here when the partner with this credit goes.
    pub(crate) fn room_for_orphans(&self, of: &Credit) -> usize {
        self.room() / MESSAGE_COST + of.charged() as usize
    }

    /// Messages that wait here without their sender.
    pub(crate) fn orphaned(&mut self, messages: usize) {
        self.messages += messages;
    }

    /// So many of them have gone.
    pub(crate) fn orphans_gone(&mut self, messages: usize) {
        self.messages = self.messages.saturating_sub(messages);
    }

    /// Bytes and messages that each of `partners` has if all have the same.
    pub(crate) fn share(&self, partners: usize) -> (u32, u32) {
        let of = |all: usize| u32::try_from(all / partners.max(1)).unwrap_or(u32::MAX);
        let messages = of(self.limit / 4 / MESSAGE_COST).saturating_add(FLOOR);
        (of(self.most_bytes()), messages)
    }

    /// The window of somebody who begins: the full one while there is much room, and with the square
    /// of the room less after that, so that thousands that come late get some as well.
    pub(crate) fn first_window(&self) -> (u32, u32) {
        let full = self.windows.first_bytes;
        let room = self.for_bytes(self.room()) as u128;
        let part = |of: u128| of * room / (self.most_bytes().max(1) as u128);
        // Not more than the whole, so it fits.
        let bytes = part(part(full.into())) as u32;
        let messages = match self.room() >= self.limit / 2 {
            true => self.windows.first_messages,
            false => FLOOR,
        };
        (
            bytes.max(FIRST_LEAST).min(full),
            messages.min(self.windows.max_messages),
        )
    }
}

/// Running totals to tell a partner.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Terms {
    pub(crate) bytes: u32,
    pub(crate) messages: u32,
}

impl Terms {
    #[inline]
    pub(crate) fn put(self, header: &mut Header) {
        (header.credit_bytes, header.credit_messages) = (self.bytes, self.messages);
    }
}

impl Credit {
    pub(crate) fn new((window_bytes, window_messages): (u32, u32)) -> Self {
        Self {
            window_bytes,
            window_messages,
            ..Self::default()
        }
    }

    /// What a new partner begins with. It is granted at once, so that each of many that come together
    /// counts with those before it.
    pub(crate) fn opened(budget: &mut Budget) -> Self {
        let mut credit = Self::new(budget.first_window());
        let opening = credit.terms(budget, false);
        credit.on_told(opening, budget);
        credit.opening = opening;
        credit
    }

    /// The same for one that has been promised this opening. `None`: there is no room for it.
    pub(crate) fn promised(opening: Terms, budget: &mut Budget) -> Option<Self> {
        if !budget.has_room_for(opening) {
            return None;
        }
        let mut credit = Self::new(budget.first_window());
        credit.grant(opening, budget);
        credit.opening = opening;
        Some(credit)
    }

    /// The totals that a Connect tells, and all that an acquaintance may count on that it makes.
    pub(crate) fn opening(&self) -> Terms {
        self.opening
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

    /// The partner asks for so much of our window: what is spent of it on nothing.
    pub(crate) fn give_up(&mut self, bytes: u32, messages: u32) -> (u32, u32) {
        let bytes = bytes.min(self.allowed_bytes.wrapping_sub(self.sent_bytes));
        let messages = messages.min(self.allowed_messages.wrapping_sub(self.sent_messages));
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes);
        self.sent_messages = self.sent_messages.wrapping_add(messages);
        (bytes, messages)
    }

    /// A message arrived with `len` bytes of data. False when the partner had no right to send it.
    #[inline]
    pub(crate) fn on_received(&mut self, len: u32, budget: &mut Budget) -> bool {
        if self.unused_messages() == 0 || self.unused_bytes() < len {
            return false;
        }
        self.received_messages = self.received_messages.wrapping_add(1);
        self.received_bytes = self.received_bytes.wrapping_add(len);
        budget.granted = budget.granted.saturating_sub(len as usize);
        true
    }

    /// The partner has spent so much of its window on nothing. False when it had not so much.
    pub(crate) fn on_yield(&mut self, bytes: u32, messages: u32, budget: &mut Budget) -> bool {
        if self.unused_messages() < messages || self.unused_bytes() < bytes {
            return false;
        }
        let before = self.charged();
        self.received_bytes = self.received_bytes.wrapping_add(bytes);
        self.consumed_bytes = self.consumed_bytes.wrapping_add(bytes);
        self.window_bytes = self.window_bytes.saturating_sub(bytes);
        self.received_messages = self.received_messages.wrapping_add(messages);
        self.consumed_messages = self.consumed_messages.wrapping_add(messages);
        let least = FLOOR.min(self.window_messages);
        self.window_messages = self.window_messages.saturating_sub(messages).max(least);
        self.afresh = true;
        budget.granted = budget.granted.saturating_sub(bytes as usize);
        self.recharge(before, budget);
        true
    }

    /// A message that had arrived takes no more room here.
    #[inline]
    pub(crate) fn on_consumed(&mut self, len: u32, budget: &mut Budget) {
        let charged = usize::from(self.charged() > 0);
        budget.messages = budget.messages.saturating_sub(charged);
        self.consumed_messages = self.consumed_messages.wrapping_add(1);
        self.consumed_bytes = self.consumed_bytes.wrapping_add(len);
    }

    /// What the partner may still send.
    #[inline]
    fn unused_bytes(&self) -> u32 {
        self.granted_bytes.wrapping_sub(self.received_bytes)
    }

    #[inline]
    fn unused_messages(&self) -> u32 {
        self.granted_messages.wrapping_sub(self.received_messages)
    }

    /// Its messages that count in the budget.
    #[inline]
    fn charged(&self) -> u32 {
        let out = self.granted_messages.wrapping_sub(self.consumed_messages);
        out.saturating_sub(FLOOR)
    }

    #[inline]
    fn recharge(&self, before: u32, budget: &mut Budget) {
        let (before, now) = (before as usize, self.charged() as usize);
        budget.messages = (budget.messages + now).saturating_sub(before);
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
    /// whose messages wait hears of each that goes, and never waits for credit that there is. Or it
    /// begins afresh.
    #[inline]
    pub(crate) fn overdue(&self, budget: &Budget) -> bool {
        self.wanted_messages(budget) > self.unused_messages()
            || self.wanted_bytes(budget) > self.unused_bytes()
            || self.afresh
    }

    /// Messages wait here, and few may follow: a window that has not grown to its size does so now,
    /// or the one that would match may never come. `telling`: the partner is about to be told what
    /// it may send, which is enough unless that is nothing more.
    #[inline]
    pub(crate) fn starved(&self, budget: &Budget, telling: bool) -> bool {
        let most = self.window_messages.min(budget.at_once.1);
        (self.unused_messages() <= most / 4 || self.afresh)
            && !(telling && self.wanted_messages(budget) > 0)
    }

    /// A message of `len` bytes was offered: because the window has no room for one?
    pub(crate) fn lacked(&self, len: u32) -> bool {
        self.unused_bytes() < len && (self.window_bytes < len || self.afresh)
    }

    /// Is it to get a first window with its next message?
    pub(crate) fn begin_afresh(&mut self) {
        self.afresh = true;
    }

    /// The window has turned out to be what a partner waits for: what it has too little of doubles.
    /// `wish`: a message of so many bytes was only offered.
    pub(crate) fn widen(&mut self, wish: u32, budget: &Budget) {
        let windows = budget.windows;
        let low_messages = self.wanted_messages(budget) > self.unused_messages()
            || self.unused_messages() <= self.window_messages / 4;
        let low_bytes = self.wanted_bytes(budget) > self.unused_bytes();
        if std::mem::take(&mut self.afresh) {
            let (bytes, messages) = budget.first_window();
            self.window_bytes = self.window_bytes.max(bytes);
            self.window_messages = self.window_messages.max(messages);
        }
        if low_bytes || wish > 0 {
            let wider = self.window_bytes.saturating_mul(2).max(wish);
            self.window_bytes = wider.min(windows.max_bytes).max(self.window_bytes);
        }
        if low_messages {
            let wider = self.window_messages.saturating_mul(2);
            self.window_messages = wider.min(windows.max_messages).max(self.window_messages);
        }
    }

    /// Makes the window what there is room for; how much was missing, bookkeeping included.
    pub(crate) fn trim(&mut self, budget: &Budget) -> usize {
        let (bytes, messages) = (self.wanted_bytes(budget), self.wanted_messages(budget));
        let terms = self.more(budget, bytes, messages);
        let bytes = bytes - terms.bytes.wrapping_sub(self.granted_bytes);
        let messages = messages - terms.messages.wrapping_sub(self.granted_messages);
        self.window_bytes -= bytes;
        self.window_messages -= messages;
        bytes as usize + messages as usize * MESSAGE_COST
    }

    /// Has it less than this?
    pub(crate) fn is_below(&self, (bytes, messages): (u32, u32), budget: &Budget) -> bool {
        let windows = budget.windows;
        self.window_bytes < bytes.min(windows.first_bytes)
            || self.window_messages < messages.min(windows.max_messages)
    }

    /// Others lack room: a message of `len` bytes that is consumed is not granted again to somebody
    /// who has more than its share.
    pub(crate) fn narrow(&mut self, len: u32, (bytes, messages): (u32, u32)) {
        let narrower = self.window_bytes.saturating_sub(len).max(bytes);
        self.window_bytes = self.window_bytes.min(narrower);
        let narrower = self.window_messages.saturating_sub(1).max(messages);
        self.window_messages = self.window_messages.min(narrower);
    }

    /// What could be asked back of a quiet partner, to which `keep` bytes and [`FLOOR`] messages are
    /// left.
    pub(crate) fn reclaimable(&self, keep: u32) -> (u32, u32) {
        (
            self.unused_bytes().saturating_sub(keep),
            self.unused_messages().min(self.charged()),
        )
    }

    /// What is due but not granted, of what may be on its way at once.
    #[inline]
    fn wanted_bytes(&self, budget: &Budget) -> u32 {
        let due = self.consumed_bytes.wrapping_add(self.window_bytes);
        let more = budget.at_once.0.saturating_sub(self.unused_bytes());
        behind(self.granted_bytes, due).min(more)
    }

    #[inline]
    fn wanted_messages(&self, budget: &Budget) -> u32 {
        let due = self.consumed_messages.wrapping_add(self.window_messages);
        let more = budget.at_once.1.saturating_sub(self.unused_messages());
        behind(self.granted_messages, due).min(more)
    }

    /// The totals to tell: what the window and the shared budget have room for. They count once
    /// they have been [told](Self::on_told). `as_before`: nothing more than already. As long as the
    /// partner has plenty it is as before, too: granting a message at a time costs more than it gives.
    #[inline]
    pub(crate) fn terms(&self, budget: &Budget, as_before: bool) -> Terms {
        let (bytes, messages) = (self.wanted_bytes(budget), self.wanted_messages(budget));
        let plenty = |wanted: u32, unused: u32| wanted <= unused / 4;
        let has_plenty =
            plenty(messages, self.unused_messages()) && plenty(bytes, self.unused_bytes());
        if has_plenty || as_before {
            return Terms {
                bytes: self.granted_bytes,
                messages: self.granted_messages,
            };
        }
        self.more(budget, bytes, messages)
    }

    /// What there is room for of so much more.
    fn more(&self, budget: &Budget, bytes: u32, messages: u32) -> Terms {
        let mut room = budget.room();
        let out = self.granted_messages.wrapping_sub(self.consumed_messages);
        // Below the floor there is always room.
        let free = FLOOR.saturating_sub(out).min(messages);
        let more = ((messages - free) as usize).min(room / MESSAGE_COST);
        room -= more * MESSAGE_COST;
        // Both are parts of `messages` and `bytes`.
        let messages = self.granted_messages.wrapping_add(free + more as u32);
        let more = (bytes as usize).min(budget.for_bytes(room));
        Terms {
            bytes: self.granted_bytes.wrapping_add(more as u32),
            messages,
        }
    }

    /// A packet with these terms, the last that were asked for, has gone out.
    #[inline]
    pub(crate) fn on_told(&mut self, terms: Terms, budget: &mut Budget) {
        if (terms.bytes, terms.messages) != (self.granted_bytes, self.granted_messages) {
            self.grant(terms, budget);
        }
    }

    fn grant(&mut self, terms: Terms, budget: &mut Budget) {
        let before = self.charged();
        budget.granted += terms.bytes.wrapping_sub(self.granted_bytes) as usize;
        self.granted_bytes = terms.bytes;
        self.granted_messages = terms.messages;
        self.recharge(before, budget);
    }

    /// The partner is gone: what it had not used is free again.
    pub(crate) fn dissolve(&self, budget: &mut Budget) {
        budget.granted = budget.granted.saturating_sub(self.unused_bytes() as usize);
        budget.messages = budget.messages.saturating_sub(self.charged() as usize);
    }
}

/// How far `granted` is behind `due`; it can be ahead of it while a window is narrowed, and after a
/// promise that there is no room for any more.
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

/// What a message that waits here takes besides its bytes; `tests/bounds` measures it.
pub(crate) const MESSAGE_COST: usize = 320;
/// Messages that every partner may leave here whatever else there is.
pub(crate) const FLOOR: u32 = 4;
/// What may be on its way from all partners that send at present; each has its part of it, but not
/// less than a first window and what hides a short way.
const AT_ONCE_BYTES: u32 = 4 << 20;
const AT_ONCE_MESSAGES: u32 = 1024;
const AT_ONCE_LEAST: u32 = 16;
/// Bytes of a first window when there is little room, and what is left to a quiet partner.
pub(crate) const FIRST_LEAST: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows {
        first_bytes: 32 << 10,
        first_messages: 8,
        max_bytes: 256 << 10,
        max_messages: 512,
    };

    /// So many bytes for bytes, and a third of that for messages.
    fn budget(bytes: usize) -> Budget {
        Budget::new(bytes / 3 * 4, WINDOWS)
    }

    /// All there is to grant, also to who has plenty.
    fn grant(credit: &mut Credit, budget: &mut Budget) -> (u32, u32) {
        let (bytes, messages) = (credit.wanted_bytes(budget), credit.wanted_messages(budget));
        let terms = credit.more(budget, bytes, messages);
        credit.on_told(terms, budget);
        (terms.bytes, terms.messages)
    }

    #[test]
    fn nobody_may_send_more_than_was_granted() {
        let mut shared = budget(3000);
        let mut us = Credit::new((100, 2));
        let mut them = Credit::default();
        let (bytes, messages) = grant(&mut us, &mut shared);
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
    fn what_was_not_told_is_not_granted() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 8));
        let terms = us.terms(&shared, false);
        assert_eq!((terms.bytes, terms.messages), (1000, 8));
        assert!(!us.on_received(1, &mut shared));
        assert_eq!(shared.usage().0, 0);
        us.on_told(terms, &mut shared);
        assert!(us.on_received(1, &mut shared));
        us.on_consumed(1, &mut shared);
        let as_before = us.terms(&shared, true);
        assert_eq!(as_before, terms);
    }

    #[test]
    fn who_has_plenty_is_granted_nothing_and_more_in_good_time() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1 << 20, 512));
        grant(&mut us, &mut shared);
        let first = us.terms(&shared, false);
        for n in 1..=512 {
            assert!(us.on_received(0, &mut shared));
            us.on_consumed(0, &mut shared);
            let terms = us.terms(&shared, false);
            if terms != first {
                assert_eq!((n, terms.messages), (103, 512 + 103));
                assert!(!us.overdue(&shared));
                return;
            }
        }
        panic!("nothing is ever granted");
    }

    #[test]
    fn who_has_no_credit_left_hears_of_the_first_message_that_goes() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 8));
        grant(&mut us, &mut shared);
        for _ in 0..8 {
            assert!(us.on_received(10, &mut shared));
            assert!(!us.overdue(&shared));
        }
        us.on_consumed(10, &mut shared);
        assert!(us.overdue(&shared));
        grant(&mut us, &mut shared);
        assert!(!us.overdue(&shared));
    }

    #[test]
    fn a_window_is_crowded_when_a_quarter_of_it_or_less_is_left() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 8));
        grant(&mut us, &mut shared);
        for n in 1..=6 {
            assert!(!us.is_crowded() && !us.starved(&shared, false), "{n}");
            assert!(us.on_received(10, &mut shared));
        }
        assert!(us.is_crowded() && us.starved(&shared, false));
        us.on_consumed(10, &mut shared);
        assert!(!us.is_crowded());
        assert!(us.on_received(700, &mut shared));
        us.on_consumed(10, &mut shared);
        us.on_consumed(10, &mut shared);
        assert!(!us.is_crowded());
        assert!(us.on_received(20, &mut shared));
        assert!(us.is_crowded());
    }

    #[test]
    fn the_shared_budget_is_never_granted_twice() {
        let mut shared = budget(150);
        let mut a = Credit::new((100, 1));
        let mut b = Credit::new((100, 1));
        assert_eq!(grant(&mut a, &mut shared).0, 100);
        assert_eq!(grant(&mut b, &mut shared).0, 50);
        assert!(a.on_received(100, &mut shared));
        shared.held += 100;
        assert_eq!(grant(&mut b, &mut shared).0, 50);
        shared.held -= 100;
        a.on_consumed(100, &mut shared);
        assert_eq!(grant(&mut b, &mut shared).0, 100);
        assert_eq!(grant(&mut a, &mut shared).0, 150);
        a.dissolve(&mut shared);
        b.dissolve(&mut shared);
        assert_eq!(shared.usage().0, 0);
    }

    #[test]
    fn messages_beyond_the_floor_come_out_of_the_budget_and_those_below_do_not() {
        let limit = 10 * MESSAGE_COST;
        let mut shared = Budget::new(limit, WINDOWS);
        let mut hog = Credit::new((0, 100));
        assert_eq!(grant(&mut hog, &mut shared), (0, FLOOR + 10));
        assert_eq!(shared.usage(), (limit, limit));
        let mut late = Credit::new((0, 100));
        assert_eq!(grant(&mut late, &mut shared), (0, FLOOR));
        assert_eq!(shared.usage(), (limit, limit));
        for _ in 0..FLOOR {
            assert!(late.on_received(0, &mut shared));
        }
        assert!(!late.on_received(0, &mut shared));
        late.on_consumed(0, &mut shared);
        assert_eq!(grant(&mut late, &mut shared), (0, FLOOR + 1));
        assert!(hog.on_received(0, &mut shared));
        hog.on_consumed(0, &mut shared);
        // There is room for one now, and whoever comes first has it.
        assert_eq!(grant(&mut late, &mut shared), (0, FLOOR + 2));
        assert_eq!(grant(&mut hog, &mut shared), (0, FLOOR + 10));
        late.dissolve(&mut shared);
        hog.dissolve(&mut shared);
        assert_eq!(shared.usage(), (0, limit));
    }

    #[test]
    fn bytes_leave_a_quarter_of_the_budget_to_messages() {
        let mut shared = Budget::new(100 * MESSAGE_COST, WINDOWS);
        let mut bytes = Credit::new((1 << 20, 0));
        let (granted, _) = grant(&mut bytes, &mut shared);
        assert_eq!(granted as usize, 75 * MESSAGE_COST);
        let mut messages = Credit::new((0, 100));
        assert_eq!(grant(&mut messages, &mut shared), (0, FLOOR + 25));
        assert_eq!(shared.room(), 0);
    }

    #[test]
    fn ten_thousand_partners_with_the_default_budget_get_a_kibibyte_each() {
        let mut shared = Budget::new(64 << 20, WINDOWS);
        for n in 0..10_000 {
            let mut credit = Credit::new(shared.first_window());
            let (bytes, messages) = grant(&mut credit, &mut shared);
            assert!(bytes >= 1 << 10 && messages >= FLOOR, "{n}: {bytes}");
            assert!(n > 0 || (bytes, messages) == (32 << 10, 8));
        }
        assert!(shared.room() > 0);
    }

    #[test]
    fn what_is_yielded_is_free_and_a_window_begins_afresh() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 100));
        let mut them = Credit::default();
        let (bytes, messages) = grant(&mut us, &mut shared);
        them.on_allowance(bytes, messages);
        them.on_sent(100);
        assert!(us.on_received(100, &mut shared));
        us.on_consumed(100, &mut shared);
        grant(&mut us, &mut shared);
        let (bytes, messages) = us.reclaimable(200);
        assert_eq!((bytes, messages), (800, 100 - FLOOR));
        // They have not heard of the last grant.
        assert_eq!(them.give_up(bytes, messages), (800, 100 - FLOOR));
        assert_eq!(them.give_up(bytes, messages), (100, FLOOR - 1));
        assert!(!them.message_allowed());
        assert!(us.on_yield(800, 100 - FLOOR, &mut shared));
        assert_eq!(shared.usage().0, 200);
        assert!(us.overdue(&shared));
        us.widen(0, &shared);
        assert_eq!(us.trim(&shared), 0);
        let (bytes, messages) = grant(&mut us, &mut shared);
        assert!(them.on_allowance(bytes, messages));
        assert!(them.message_allowed() && them.bytes_allowed(30_000));
    }

    #[test]
    fn a_yield_of_more_than_the_window_is_refused_and_changes_nothing() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 10));
        grant(&mut us, &mut shared);
        let used = shared.usage();
        assert!(!us.on_yield(1001, 0, &mut shared));
        assert!(!us.on_yield(0, 11, &mut shared));
        assert!(!us.on_yield(u32::MAX, u32::MAX, &mut shared));
        assert_eq!(shared.usage(), used);
        assert!(us.on_yield(1000, 10, &mut shared));
        assert_eq!(shared.usage().0, 0);
        // All of it: the floor is granted again.
        assert!(us.overdue(&shared));
    }

    #[test]
    fn a_window_widens_to_its_size_or_to_the_room_there_is() {
        let mut shared = Budget::new(1 << 20, WINDOWS);
        let mut us = Credit::new((1 << 10, 8));
        grant(&mut us, &mut shared);
        for _ in 0..16 {
            while us.on_received(0, &mut shared) {
                us.on_consumed(0, &mut shared);
            }
            us.widen(1, &shared);
            assert_eq!(us.trim(&shared), 0);
            grant(&mut us, &mut shared);
        }
        assert_eq!((us.window_bytes, us.window_messages), (256 << 10, 512));
        let mut other = Credit::new((600 << 10, 8));
        let missing = other.trim(&shared);
        assert!(missing > 0);
        grant(&mut other, &mut shared);
        assert_eq!(other.trim(&shared), 0);
        assert_eq!(shared.for_bytes(shared.room()), 0);
    }

    #[test]
    fn with_many_that_send_little_is_on_its_way_from_each_and_as_much_may_wait() {
        let mut shared = Budget::new(1 << 20, WINDOWS);
        shared.share_arrivals(100);
        let mut us = Credit::new((256 << 10, 512));
        let (bytes, messages) = grant(&mut us, &mut shared);
        assert_eq!((bytes, messages), ((4 << 20) / 100, 16));
        let mut kept = 0;
        while us.on_received(0, &mut shared) {
            kept += 1;
            if us.starved(&shared, false) {
                grant(&mut us, &mut shared);
            }
            assert!(us.unused_messages() <= 16);
        }
        assert_eq!(kept, 512);
        shared.share_arrivals(1);
        assert_eq!(grant(&mut us, &mut shared).0, 256 << 10);
    }

    #[test]
    fn what_was_promised_is_granted_to_another_acquaintance_and_nothing_else() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::opened(&mut shared);
        let opening = us.opening();
        assert_eq!((opening.bytes, opening.messages), (32 << 10, 8));
        for _ in 0..8 {
            assert!(us.on_received(4096, &mut shared));
            us.on_consumed(4096, &mut shared);
            grant(&mut us, &mut shared);
        }
        us.on_sent(100);
        assert_eq!(us.opening(), opening);
        us.dissolve(&mut shared);
        assert_eq!(shared.usage().0, 0);
        // There has to be room for all of it; beyond the floor a message takes some, too.
        let all = (32 << 10) + (8 - FLOOR as usize) * MESSAGE_COST;
        shared.held = shared.limit - all + 1;
        assert!(Credit::promised(opening, &mut shared).is_none());
        shared.held -= 1;
        let mut next = Credit::promised(opening, &mut shared).unwrap();
        assert_eq!(shared.usage().0, shared.limit);
        assert_eq!(next.opening(), opening);
        assert_eq!((next.unused_bytes(), next.unused_messages()), (32 << 10, 8));
        assert!(!next.message_allowed());
        for _ in 0..8 {
            assert!(next.on_received(4096, &mut shared));
        }
        assert!(!next.on_received(0, &mut shared));
        next.dissolve(&mut shared);
        shared.held = 0;
        assert_eq!((shared.granted, shared.messages), (0, 0));
    }

    #[test]
    fn who_has_more_than_its_share_gets_no_more_of_what_it_uses() {
        let mut shared = budget(1 << 20);
        let mut us = Credit::new((1000, 10));
        grant(&mut us, &mut shared);
        for n in 1..=9u32 {
            assert!(us.on_received(100, &mut shared));
            us.on_consumed(100, &mut shared);
            us.narrow(100, (500, FLOOR));
            grant(&mut us, &mut shared);
            let window = (1000 - 100 * n).max(500);
            assert_eq!(us.unused_bytes(), window, "{n}");
        }
        assert_eq!(us.unused_messages(), FLOOR);
    }

    #[test]
    fn totals_keep_working_across_their_wrap() {
        let mut shared = Budget::new(usize::MAX / 1024, WINDOWS);
        let near = u32::MAX - 5;
        let mut us = Credit::new((10, 10));
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
            let (bytes, messages) = grant(&mut us, &mut shared);
            assert!(them.on_allowance(bytes, messages));
            assert!(!them.on_allowance(bytes.wrapping_sub(1), messages));
            for _ in 0..10 {
                assert!(them.message_allowed() && them.bytes_allowed(1));
                them.on_sent(1);
                assert!(us.on_received(1, &mut shared));
                us.on_consumed(1, &mut shared);
            }
            assert!(!them.message_allowed() && us.overdue(&shared));
        }
    }
}
