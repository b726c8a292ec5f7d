//! Control messages, answers that are waited for, and lies.
//!
//! ```text
//!   Want ------> ASKED ------------- something is owed or due --> Grant
//!   ask  ------> Revoke: waiting --> sent, now + timeout -------> Return
//!                          |                   `---- no answer: a strike, and waiting on
//!                          `-- used up, or wants some: never sent
//! ```
//!
//! What a control message says is put together when it is polled, so whatever happens before goes
//! along.

use super::{Flags, Lender};
use crate::ledger::control::{CONTROL_MAX, Control, ControlWord};
use crate::ledger::fault::Fault;
use crate::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

impl Lender {
    /// A Want or Return of the peer arrived. False when it is a lie (counted as a strike), or
    /// nothing is to be had from the peer any more.
    pub fn on_control(&mut self, peer: u32, control: Control, now: Instant) -> bool {
        self.now = now;
        self.counts.controls += 1;
        if self.epochs.on_time(now) {
            self.end_epoch();
        }
        let Some(record) = self.records.get_mut(peer as usize) else {
            return false;
        };
        if !record.is_sound() {
            return false;
        }
        record.age(self.epochs.number());
        let honest = match control {
            Control::Want(credits) => self.on_want(peer, credits),
            Control::Return(credits) => self.on_return(peer, credits),
            Control::Grant { .. } | Control::Revoke(_) => Err(Fault::WrongDirection),
        };
        if let Err(lie) = honest {
            self.strike(peer, lie);
        }
        self.pump();
        honest.is_ok()
    }

    fn on_want(&mut self, peer: u32, credits: u16) -> Result<(), Fault> {
        let record = &mut self.records[peer as usize];
        if record.flags.any(Flags::ASKED) {
            return Err(Fault::WantedTwice);
        }
        record.flags.set(Flags::ASKED);
        let something = record.owed + record.due > 0;
        self.on_use(peer);
        self.want(peer, credits);
        if something {
            self.queue_control(peer);
        }
        Ok(())
    }

    fn on_return(&mut self, peer: u32, credits: u16) -> Result<(), Fault> {
        let Some(revoke) = self.revokes.answer(peer) else {
            return Err(Fault::ReturnedUnasked);
        };
        let record = &mut self.records[peer as usize];
        record.flags.clear(Flags::REVOKING);
        let back = credits.min(revoke.credits).min(record.free());
        record.loan -= back;
        record.revoked = record.revoked.saturating_add(back);
        if revoke.epoch {
            record.quiet = record.quiet.saturating_add(1);
        }
        let hoards = back < revoke.credits && record.quiet > QUIET_MAX;
        let limit = record.revoked >= self.settings.revoke_limit;
        if back == 0 || limit || hoards {
            record.flags.set(Flags::SPENT);
        }
        self.bank.give_back(back);
        self.counts.returned += u64::from(back);
        self.file(peer);
        if back < credits {
            return Err(Fault::ReturnedTooMuch);
        }
        if hoards {
            return Err(Fault::Hoards);
        }
        Ok(())
    }

    /// Puts the peer among those that are sent control messages.
    pub(super) fn queue_control(&mut self, peer: u32) {
        let record = &mut self.records[peer as usize];
        if !record.flags.any(Flags::QUEUED) {
            record.flags.set(Flags::QUEUED);
            self.controls.push_back(peer);
        }
    }

    /// The first control message that still has something to say.
    #[cold]
    pub(super) fn next_control(&mut self) -> Option<(u32, ControlWord)> {
        while let Some(peer) = self.controls.pop_front() {
            let record = &mut self.records[peer as usize];
            record.flags.clear(Flags::QUEUED);
            if let Some(control) = self.grant(peer).or_else(|| self.revoke(peer)) {
                let record = &mut self.records[peer as usize];
                record.age(self.epochs.number());
                let epoch = record.flags.take(Flags::EPOCH);
                if matches!(control, Control::Revoke(_)) {
                    self.revokes.on_sent(peer, epoch);
                }
                if self.revokes.is_unsent(peer) {
                    self.queue_control(peer);
                }
                self.counts.controls += 1;
                return Some((peer, ControlWord { control, epoch }));
            }
        }
        None
    }

    /// The answer to the peer's Want, if there is one to give.
    fn grant(&mut self, peer: u32) -> Option<Control> {
        let record = &mut self.records[peer as usize];
        if !record.is_sound() || !record.flags.any(Flags::ASKED) || record.owed + record.due == 0 {
            return None;
        }
        let home = record.owed.min(CONTROL_MAX);
        let extra = record.due.min(CONTROL_MAX);
        record.owed -= home;
        record.due -= extra;
        record.flags.clear(Flags::ASKED);
        self.counts.grants_sent += 1;
        Some(Control::Grant { home, extra })
    }

    /// The Revoke that the peer is to be sent, unless it has used up its credits meanwhile, or wants
    /// some.
    fn revoke(&mut self, peer: u32) -> Option<Control> {
        if !self.revokes.is_unsent(peer) {
            return None;
        }
        let record = &mut self.records[peer as usize];
        record.age(self.epochs.number());
        if !record.is_sound() || record.wanted > 0 || record.free() == 0 {
            record.flags.clear(Flags::REVOKING);
            self.counts.revoked -= u64::from(self.revokes.credits_of(peer));
            self.revokes.remove(peer);
            self.file(peer);
            return None;
        }
        self.counts.revokes_sent += 1;
        Some(Control::Revoke(self.revokes.credits_of(peer)))
    }

    /// Counts a lie. True when that was one too many: the peer is to be failed.
    pub(super) fn strike(&mut self, peer: u32, lie: Fault) -> bool {
        self.counts.strikes += 1;
        let record = &mut self.records[peer as usize];
        if u16::from(record.strikes) < self.settings.strikes.min(u8::MAX.into()) {
            record.strikes += 1;
            return false;
        }
        self.wanted -= u32::from(std::mem::take(&mut record.wanted));
        record.flags.set(Flags::FAILED);
        record.flags.clear(Flags::ASKED);
        if record.flags.take(Flags::REVOKING) {
            self.revokes.remove(peer);
        }
        self.file(peer);
        self.counts.failed += 1;
        self.faults.push_back((peer, lie));
        true
    }

    pub(super) fn end_epoch(&mut self) {
        self.counts.epochs += 1;
        self.forget_old_wishes();
        self.pump();
    }

    /// Counts a strike against everybody who should have answered by now, and could have.
    pub(super) fn expire_revokes(&mut self, mut cannot_answer: impl FnMut(u32) -> bool) {
        // Each once at most, however short the time is that they get.
        for _ in 0..self.revokes.len() {
            let Some(peer) = self.revokes.expire(self.now) else {
                break;
            };
            if !cannot_answer(peer) {
                self.strike(peer, Fault::NoAnswer);
            }
        }
    }
}

/// Revokes that tell of the end of an epoch, after which nothing is left of an honest quiet peer's
/// reasons to keep credits: a 16-bit figure that loses two bits each time is 0 after eight.
const QUIET_MAX: u8 = 10;

/// Peers that do not answer and have not been failed yet. They are looked through one by one.
const OVERDUE_MAX: usize = 1024;

/// The peers that are asked for credits, the earliest first.
#[derive(Debug)]
pub(super) struct Revokes {
    open: VecDeque<Revoke>,
    /// How many of them are not overdue.
    fresh: usize,
    /// The sum of what those are asked for.
    credits: u32,
    timeout: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Revoke {
    peer: u32,
    credits: u16,
    /// It told of the end of an epoch.
    epoch: bool,
    sent: bool,
    /// It was to be answered before: it holds up nobody else.
    overdue: bool,
    /// Set by the first call after it was sent that brings a time.
    deadline: Option<Instant>,
}

impl Revokes {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            open: VecDeque::new(),
            fresh: 0,
            credits: 0,
            timeout,
        }
    }

    pub(super) fn add(&mut self, peer: u32, credits: u16) {
        self.fresh += 1;
        self.credits += u32::from(credits);
        self.open.push_back(Revoke {
            peer,
            credits,
            epoch: false,
            sent: false,
            overdue: false,
            deadline: None,
        });
    }

    /// Takes out the one that the peer has been sent.
    fn answer(&mut self, peer: u32) -> Option<Revoke> {
        let at = self
            .open
            .iter()
            .position(|revoke| revoke.peer == peer && revoke.sent)?;
        self.take(at)
    }

    pub(super) fn remove(&mut self, peer: u32) {
        if let Some(at) = self.open.iter().position(|revoke| revoke.peer == peer) {
            self.take(at);
        }
    }

    fn take(&mut self, at: usize) -> Option<Revoke> {
        let revoke = self.open.remove(at)?;
        if !revoke.overdue {
            self.fresh -= 1;
            self.credits -= u32::from(revoke.credits);
        }
        Some(revoke)
    }

    fn is_unsent(&self, peer: u32) -> bool {
        self.find(peer).is_some_and(|revoke| !revoke.sent)
    }

    fn credits_of(&self, peer: u32) -> u16 {
        self.find(peer).map_or(0, |revoke| revoke.credits)
    }

    fn find(&self, peer: u32) -> Option<&Revoke> {
        self.open.iter().find(|revoke| revoke.peer == peer)
    }

    fn on_sent(&mut self, peer: u32, epoch: bool) {
        if let Some(revoke) = self.open.iter_mut().find(|revoke| revoke.peer == peer) {
            (revoke.sent, revoke.epoch) = (true, epoch);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// May another peer be asked, when so many are to be asked at once?
    pub(super) fn has_room(&self, at_once: u16) -> bool {
        self.fresh < usize::from(at_once) && self.open.len() < OVERDUE_MAX
    }

    /// Credits that are to be expected.
    pub(super) fn credits(&self) -> u32 {
        self.credits
    }

    /// When the next answer is overdue. `now` when there is one whose time has to begin.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        let sent = self.open.iter().filter(|revoke| revoke.sent);
        sent.map(|revoke| revoke.deadline.unwrap_or(now)).min()
    }

    /// A peer whose answer is overdue. It has the same time once more.
    fn expire(&mut self, now: Instant) -> Option<u32> {
        let again = now.after(self.timeout);
        for revoke in self.open.iter_mut().filter(|revoke| revoke.sent) {
            match revoke.deadline {
                None => revoke.deadline = Some(again),
                Some(deadline) if deadline <= now => {
                    revoke.deadline = Some(again);
                    if !std::mem::replace(&mut revoke.overdue, true) {
                        self.fresh -= 1;
                        self.credits -= u32::from(revoke.credits);
                    }
                    return Some(revoke.peer);
                }
                Some(_) => {}
            }
        }
        None
    }

    pub(super) fn memory(&self) -> usize {
        self.open.capacity() * size_of::<Revoke>()
    }
}
