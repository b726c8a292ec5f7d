//! What we lend all peers, for the unexpected messages that they send us.
//!
//! ```text
//!   arrived --> waiting --> taken --> owed --> ride, poll_control (Grant)      the way of a message
//!                                     |
//!   wants (arrived, on_control) --> Wanting, Without --> serve <-- bank        serve
//!                                                          ^
//!            poll_control (Revoke) --> on_control (Return) '                   scavenge
//! ```
//!
//! Order of calls: `open` a peer, then anything, then `close`. `taken` follows every message that
//! `arrived` as [`Arrived::Paid`], exactly once, also after `close`. After any call there may be
//! something to poll, and another [`Lender::deadline`].
//!
//! Cost: 32 bytes a peer. What a message needs is O(1) and allocates nothing; `poll_control` and the
//! rest are O(1) too, times the peers that have not answered (1024 at most).
//!
//! Knows nothing of: messages, links, clocks, how a peer is failed.

mod answers;
mod bank;
mod epochs;
mod lists;
mod record;
mod serve;

use super::byte::CreditByte;
use super::control::ControlWord;
use super::fault::Fault;
use super::settings::LenderSettings;
use super::stats::{Account, LenderStats};
use crate::time::Instant;
use answers::Revokes;
use bank::Bank;
use epochs::Epochs;
use lists::{List, Lists, list_of};
use record::{Flags, Record};
use std::collections::{BTreeMap, VecDeque};

/// What is to become of an unexpected message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// It may come in; [`Lender::taken`] when the host has it.
    Paid,
    /// Its sender knows no credits and has enough waiting here: leave it below, and ask again when
    /// the host has taken something.
    Hold,
    /// Its sender had no credits for it: drop it. Counted.
    Unpaid,
    /// As `Unpaid`, and its sender's lies are used up: see [`Lender::poll_fault`].
    Fail,
}

/// The credits of this process, as a lender.
#[derive(Debug)]
pub struct Lender {
    settings: LenderSettings,
    bank: Bank,
    /// By peer id; grown on demand.
    records: Vec<Record>,
    lists: Lists,
    /// Credits held by messages of earlier lives; flagged in the record.
    estates: BTreeMap<u32, u32>,
    epochs: Epochs,
    /// The latest time that we were told.
    now: Instant,
    /// Peers that are asked for credits.
    revokes: Revokes,
    /// Peers to send control messages to; each once.
    controls: VecDeque<u32>,
    /// Peers to fail; each once.
    faults: VecDeque<(u32, Fault)>,
    /// The sum of what all records want.
    wanted: u32,
    /// Credits were lent, or missed, since the bank was last seen to be well filled.
    demand: bool,
    /// See [`Self::rest`].
    rested: bool,
    peers: u32,
    others: u32,
    /// Only its counts: the balance is where it belongs.
    counts: LenderStats,
}

impl Lender {
    /// Everything is banked. The settings have been [checked](LenderSettings::check); with others
    /// nothing breaks, but nothing is promised.
    pub fn new(settings: LenderSettings) -> Self {
        Self {
            bank: Bank::new(settings.total, settings.reserve),
            records: Vec::new(),
            lists: Lists::new(),
            estates: BTreeMap::new(),
            epochs: Epochs::new(settings.epoch_messages, settings.epoch_time),
            now: Instant(0),
            revokes: Revokes::new(settings.revoke_timeout),
            controls: VecDeque::new(),
            faults: VecDeque::new(),
            wanted: 0,
            demand: false,
            rested: true,
            peers: 0,
            others: 0,
            counts: LenderStats::default(),
            settings,
        }
    }

    /// A peer is there; returns its first loan, to be told in the handshake (0 if it knows no
    /// credits). A peer that was open is closed first. Ids above [`PEER_MAX`] get nothing.
    pub fn open(&mut self, peer: u32, knows: bool, now: Instant) -> u16 {
        if peer > PEER_MAX {
            return 0;
        }
        self.close(peer);
        self.now = now;
        if self.records.len() <= peer as usize {
            self.records.resize(peer as usize + 1, Record::default());
        }
        let loan = if knows { self.first_loan() } else { 0 };
        self.bank.lend(loan);
        let estate = self.estates.contains_key(&peer);
        self.records[peer as usize] = Record::open(self.epochs.number(), loan, knows, estate);
        self.count_peer(knows, 1);
        self.file(peer);
        loan
    }

    /// The peer is gone. What it was lent is banked, but for what its waiting messages hold: that
    /// comes back with `taken`. Offers that were not pulled are to be `taken` right after this, for
    /// they cannot be pulled any more: what messages of the gone hold needs nothing to come back.
    pub fn close(&mut self, peer: u32) {
        let Some(record) = self.records.get(peer as usize).copied() else {
            return;
        };
        if !record.flags.any(Flags::OPEN) {
            return;
        }
        self.lists.remove(&mut self.records, peer);
        if record.flags.any(Flags::REVOKING) {
            self.revokes.remove(peer);
        }
        if record.flags.any(Flags::QUEUED) {
            self.controls.retain(|queued| *queued != peer);
        }
        if record.flags.any(Flags::FAILED) {
            self.faults.retain(|(failed, _)| *failed != peer);
        }
        let knows = record.flags.any(Flags::KNOWS);
        if knows {
            self.bank.bequeath(record.waiting);
            self.bank.give_back(record.loan - record.waiting);
        } else {
            self.bank.bequeath_drawn(record.waiting);
        }
        self.count_peer(knows, -1);
        self.wanted -= u32::from(record.wanted);
        let mut gone = Record::default();
        if record.waiting > 0 || record.flags.any(Flags::ESTATE) {
            gone.flags.set(Flags::ESTATE);
            *self.estates.entry(peer).or_default() += u32::from(record.waiting);
        }
        self.records[peer as usize] = gone;
        self.pump();
    }

    /// Is the peer open, and does it know credits?
    #[inline]
    pub fn knows(&self, peer: u32) -> bool {
        let record = self.records.get(peer as usize);
        record.is_some_and(|record| record.flags.any(Flags::KNOWS))
    }

    /// An unexpected message arrived, with this credit byte; `cost` is what its length says, or 1
    /// when it is an offer.
    #[inline]
    pub fn arrived(&mut self, peer: u32, byte: CreditByte, cost: u32, now: Instant) -> Arrived {
        self.now = now;
        let Some(record) = self.records.get_mut(peer as usize) else {
            return self.unpaid(peer);
        };
        if !record.is_sound() {
            return self.arrived_otherwise(peer, cost);
        }
        record.age(self.epochs.number());
        if cost > u32::from(record.free()) {
            return self.unpaid(peer);
        }
        let cost = cost as u16;
        record.waiting += cost;
        self.counts.messages += 1;
        let plain = CreditByte {
            epoch: byte.epoch,
            extra: 0,
            count: cost.min(u16::from(CreditByte::COUNT_MAX)) as u8,
        };
        let ends = self.epochs.on_message(now);
        if byte != plain || ends || !record.flags.any(Flags::USED) {
            return self.arrived_with(peer, byte, cost, ends);
        }
        Arrived::Paid
    }

    /// The host has taken a message that had arrived as `Paid`, for the same `cost`: its credits are
    /// to go home.
    #[inline]
    pub fn taken(&mut self, peer: u32, cost: u32) {
        let Some(record) = self.records.get_mut(peer as usize) else {
            return;
        };
        let plain = Flags::ESTATE.and(Flags::ASKED);
        if !record.is_sound()
            || record.flags.any(plain)
            || !self.lists.is_empty(List::Without)
            || cost > u32::from(record.waiting)
        {
            return self.taken_otherwise(peer, cost);
        }
        record.waiting -= cost as u16;
        record.owed += cost as u16;
    }

    /// The byte for an EXPECTED message that goes to the peer right after this. What it takes along
    /// is on its way then: a message that is not sent after all must not have asked for it.
    #[inline]
    pub fn ride(&mut self, peer: u32) -> CreditByte {
        let Some(record) = self.records.get_mut(peer as usize) else {
            return CreditByte::NONE;
        };
        let epoch = self.epochs.number();
        if !record.is_sound() || record.has_nothing_to_carry(epoch) {
            return CreditByte::NONE;
        }
        record.ride(epoch)
    }

    /// A message that was to carry `byte` ([`Self::ride`]) was never sent: it goes with the next one.
    /// Only for a message of the life that is open.
    pub fn unride(&mut self, peer: u32, byte: CreditByte) {
        let Some(record) = self.records.get_mut(peer as usize) else {
            return;
        };
        if !record.is_sound() {
            return;
        }
        let count = u16::from(byte.count).min(record.free());
        record.owed += count;
        record.due += byte.extra.min(record.free());
        if byte.epoch {
            record.flags.set(Flags::EPOCH);
        }
        if record.flags.any(Flags::ASKED) {
            self.queue_control(peer);
        }
    }

    /// Takes credits to pull a message that was offered. False when there are not enough: there will
    /// be when the host has taken what is here.
    pub fn draw(&mut self, credits: u32) -> bool {
        let drawn = self.bank.draw(credits);
        self.counts.draws_refused += u64::from(!drawn);
        drawn
    }

    /// The host has taken a message that was pulled, or pulling it failed.
    pub fn undraw(&mut self, credits: u32) {
        self.bank.undraw(credits);
        self.pump();
    }

    /// Is there anything to poll?
    #[inline]
    pub fn has_errands(&self) -> bool {
        !self.controls.is_empty() || !self.faults.is_empty()
    }

    /// A control message to send now. To be called until there is none, after any other call.
    pub fn poll_control(&mut self) -> Option<(u32, ControlWord)> {
        if self.controls.is_empty() {
            return None;
        }
        self.next_control()
    }

    /// A peer to fail, and why. It gets and gives nothing any more until it is closed.
    pub fn poll_fault(&mut self) -> Option<(u32, Fault)> {
        self.faults.pop_front()
    }

    /// When [`Self::tick`] is to be called at the latest. `None` while nobody wants or is asked for
    /// anything.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        if self.revokes.len() == 0 && self.nobody_wants() {
            return None;
        }
        self.next_deadline()
    }

    #[cold]
    fn next_deadline(&self) -> Option<Instant> {
        let answer = self.revokes.deadline(self.now);
        let epoch = (!self.nobody_wants()).then(|| self.epochs.end());
        match (answer, epoch) {
            (Some(answer), Some(epoch)) => Some(answer.min(epoch)),
            (answer, epoch) => answer.or(epoch),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        self.tick_unless(now, |_| false);
    }

    /// The same, where some peers cannot answer, because what they sent before has not been received:
    /// it is no lie of theirs.
    pub fn tick_unless(&mut self, now: Instant, cannot_answer: impl FnMut(u32) -> bool) {
        self.now = now;
        let rested = std::mem::take(&mut self.rested);
        if self.epochs.on_time(now) {
            if rested {
                self.renew_wishes();
            }
            self.end_epoch();
        }
        self.expire_revokes(cannot_answer);
        self.pump();
    }

    /// Nobody has read the clock for us since the last [`Self::deadline`], as there was none: whatever
    /// is wanted by the next [`Self::tick`] has been wanted since then, not since an earlier time.
    #[inline]
    pub fn rest(&mut self) {
        self.rested = true;
    }

    /// The balance, and how often what happened.
    pub fn stats(&self) -> LenderStats {
        LenderStats {
            total: self.bank.total(),
            bank: self.bank.banked(),
            drawn: self.bank.drawn(),
            lent: self.bank.lent(),
            estates: self.bank.estates(),
            peers: self.peers,
            others: self.others,
            waiting: self.lists.len(List::Wanting) + self.lists.len(List::Without),
            asked: self.revokes.len() as u32,
            memory: self.memory(),
            ..self.counts
        }
    }

    /// Credits held by messages of the peer's earlier lives, whether it is open or not.
    pub fn estate(&self, peer: u32) -> u32 {
        self.estates.get(&peer).copied().unwrap_or(0)
    }

    /// An open peer's account.
    pub fn account(&self, peer: u32) -> Option<Account> {
        let record = self.records.get(peer as usize)?;
        if !record.flags.any(Flags::OPEN) {
            return None;
        }
        Some(Account {
            knows: record.flags.any(Flags::KNOWS),
            loan: record.loan,
            waiting: record.waiting,
            owed: record.owed,
            due: record.due,
            wanted: record.wanted,
            kept: record.kept,
            asked: record.flags.any(Flags::REVOKING),
            estate: self.estate(peer),
            strikes: record.strikes,
        })
    }

    /// What a peer that connects now is lent. When half of what is there for this has been lent,
    /// loans shrink with the room that is left, so that who comes late gets something too.
    fn first_loan(&self) -> u16 {
        let most = self.settings.lent_at_connect().min(self.bank.lendable());
        let room = most.saturating_sub(self.bank.lent());
        let room = room.min(self.bank.available());
        let initial = u64::from(self.settings.initial);
        let share = initial * u64::from(room) / u64::from(most / 2).max(1);
        share.max(1).min(initial).min(room.into()) as u16
    }

    fn count_peer(&mut self, knows: bool, by: i32) {
        let count = if knows {
            &mut self.peers
        } else {
            &mut self.others
        };
        *count = count.saturating_add_signed(by);
        self.epochs.on_peers(self.peers);
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.records.capacity() * size_of::<Record>()
            + self.controls.capacity() * size_of::<u32>()
            + self.faults.capacity() * size_of::<(u32, Fault)>()
            + self.revokes.memory()
            + self.estates.len() * 2 * size_of::<(u32, u32)>()
    }
}

/// The largest peer id: those of the method have 20 bits.
pub const PEER_MAX: u32 = (1 << 20) - 1;

#[cfg(test)]
mod tests;
