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
                if !std::mem::take(&mut self.asked) || home + extra == 0 {
                    self.on_lie();
                }
                // The lender knew of it, and has given what it could.
                self.short = 0;
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

    /// The lender has ended an epoch.
    pub(super) fn on_epoch(&mut self) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn word(control: Control, epoch: bool) -> ControlWord {
        ControlWord { control, epoch }
    }

    fn revoke(peer: &mut Borrower, asked: u16, epoch: bool) -> u16 {
        match peer.on_control(word(Control::Revoke(asked), epoch)) {
            Some(ControlWord {
                control: Control::Return(back),
                epoch: false,
            }) => back,
            other => panic!("{other:?}"),
        }
    }

    fn ride(count: u8, extra: u16, epoch: bool) -> CreditByte {
        CreditByte {
            epoch,
            extra,
            count,
        }
    }

    #[test]
    fn a_peer_that_knows_no_credits_is_sent_to_without_limit() {
        let mut peer = Borrower::default();
        assert_eq!(peer.free(), u16::MAX);
        for cost in [1, 70_000, u32::MAX] {
            assert_eq!(peer.pay(cost), Some(CreditByte::NONE));
            assert_eq!(peer.stalled(cost), None);
        }
        assert!(!peer.on_ride(ride(15, 64, true)));
        assert_eq!(peer.on_control(word(Control::Revoke(1), false)), None);
        assert_eq!((peer.used(), peer.lies()), (0, 1));
        assert!(size_of::<Borrower>() <= 16);
    }

    #[test]
    fn nothing_goes_without_credits_and_the_shortage_is_told_once() {
        let mut peer = Borrower::open(5);
        assert_eq!(peer.pay(8), None);
        assert_eq!(peer.pay(6), None);
        // Three were missing at most: the next code is 4.
        assert_eq!(peer.pay(1), Some(ride(1, 4, false)));
        assert_eq!(peer.pay(1), Some(ride(1, 0, false)));
        assert_eq!(peer.pay(3), Some(ride(3, 0, false)));
        for cost in [1, 1 << 16, u32::MAX] {
            assert_eq!(peer.pay(cost), None);
        }
        assert_eq!((peer.free(), peer.used()), (0, 5));
    }

    #[test]
    fn a_message_that_was_never_sent_is_not_paid_for() {
        let mut peer = Borrower::open(10);
        assert!(peer.pay(7).is_some());
        peer.refund(7);
        assert_eq!((peer.free(), peer.used()), (10, 0));
        // More than was used is not to be had.
        peer.refund(u32::MAX);
        assert_eq!((peer.free(), peer.used()), (10, 0));
        let mut unlimited = Borrower::default();
        unlimited.refund(7);
        assert_eq!((unlimited.free(), unlimited.used()), (u16::MAX, 0));
    }

    #[test]
    fn one_want_is_out_at_a_time() {
        let mut peer = Borrower::open(2);
        assert_eq!(peer.stalled(2), None);
        assert!(peer.pay(2).is_some());
        let want = Some(word(Control::Want(9), false));
        assert_eq!(peer.stalled(9), want);
        assert_eq!(peer.stalled(9), None);
        assert!(peer.on_ride(ride(2, 0, false)));
        // What is missing meanwhile rides.
        assert_eq!(peer.pay(4), None);
        assert_eq!(peer.pay(2), Some(ride(2, 16, false)));
        assert_eq!(peer.stalled(1), None);
        let grant = Control::Grant { home: 2, extra: 3 };
        assert_eq!(peer.pay(1), None);
        assert_eq!(peer.on_control(word(grant, false)), None);
        assert_eq!((peer.free(), peer.used(), peer.asked), (5, 0, false));
        // A Grant has settled it.
        assert_eq!(peer.pay(1), Some(ride(1, 0, false)));
        assert_eq!(
            peer.stalled(u32::MAX),
            Some(word(Control::Want(CONTROL_MAX), false))
        );
        assert_eq!(peer.lies(), 0);
    }

    #[test]
    fn a_revoke_leaves_what_was_used_lately() {
        let mut peer = Borrower::open(100);
        assert!(peer.pay(40).is_some());
        assert!(peer.on_ride(ride(15, 0, false)));
        // 25 used, 40 at most: 15 are kept for the next burst.
        assert_eq!(revoke(&mut peer, 10, false), 10);
        assert_eq!(revoke(&mut peer, 1000, false), 50);
        assert_eq!(revoke(&mut peer, 1000, false), 0);
        assert_eq!(peer.free(), 15);
        // The peak is not below what is used.
        assert_eq!(revoke(&mut peer, 1000, true), 15);
        assert_eq!((peer.free(), peer.used()), (0, 25));
    }

    #[test]
    fn who_was_short_lately_gives_nothing_until_two_epochs_have_passed() {
        let mut peer = Borrower::open(10);
        for _ in 0..4 {
            assert_eq!(peer.pay(11), None);
        }
        assert_eq!(revoke(&mut peer, 5, false), 0);
        assert_eq!(revoke(&mut peer, 5, true), 0);
        assert_eq!(revoke(&mut peer, 5, true), 5);
    }

    #[test]
    fn recent_use_decays_to_nothing_in_eight_epochs() {
        let mut peer = Borrower::open(u16::MAX);
        assert!(peer.pay(u16::MAX.into()).is_some());
        let grant = Control::Grant {
            home: u16::MAX,
            extra: 0,
        };
        for _ in 0..1000 {
            assert_eq!(peer.pay(1), None);
        }
        assert!(peer.stalled(1).is_some());
        peer.on_control(word(grant, false));
        assert_eq!(peer.free(), u16::MAX);
        for _ in 0..8 {
            peer.on_epoch();
        }
        assert_eq!(revoke(&mut peer, u16::MAX, false), u16::MAX);
    }

    #[test]
    fn lies_of_a_lender_are_counted_and_left_out() {
        let mut peer = Borrower::open(u16::MAX - 3);
        assert!(peer.pay(2).is_some());
        assert!(peer.on_ride(ride(15, 64, false)));
        assert_eq!((peer.free(), peer.used()), (u16::MAX, 0));
        assert_eq!(peer.lies(), 1);
        assert!(!peer.on_ride(ride(1, 1, false)));
        let grant = Control::Grant { home: 9, extra: 9 };
        for control in [Control::Want(1), Control::Return(1), grant] {
            assert_eq!(peer.on_control(word(control, false)), None);
        }
        assert_eq!((peer.free(), peer.used()), (u16::MAX, 0));
        // The Grant is two: not asked for, and not to be had.
        assert_eq!(peer.lies(), 6);
        for _ in 0..300 {
            peer.on_control(word(Control::Want(1), true));
        }
        assert_eq!(peer.lies(), u8::MAX);
    }
}
