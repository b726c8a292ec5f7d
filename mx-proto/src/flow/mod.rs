//! Flow control for messages that may have to wait at their receiver.
//!
//! ```text
//!   remote                                                     us
//!   Borrower: means, pay --- message, Payment -> arrived --> waiting --> taken --> due
//!             wanted ------- any header ------>  wants -.                           |
//!             on_credit_fields <-- any header -- credit_fields <--------------------'
//!             give_back <--- Revoke ------- poll <------+--- lists <-- epochs
//!                      `---- Return ------------> returned --> Pool
//! ```
//!
//! Every such message costs [credits](CREDIT) of one pool, whose size is set. Remotes are lent some
//! when they connect, and more when they request them. While others want credits, a remote that has
//! used none for more than an epoch is asked to return them; if there is none, a remote with more
//! than its share is not told again of credits above it. So a stable pattern of traffic reaches a
//! stable distribution. (The policy is that of GASNet's Portals conduit.)
//!
//! Without credits a remote still makes progress: it has a [slot](Slots) in each lane, for one
//! message of at most one credit, which is free again as soon as that message is received.
//!
//! A credit's life:
//!
//! ```text
//!   free --open, wants--> due --header--> told --pay--> under way --arrives--> waiting --taken--> due
//!    ^ ^                   |                |                                     |
//!    | `--quiet, narrowed--'                |                         remote gone |--> tombstone --reclaim--> free
//!    `------------------------- Return -----'
//!    <--> drawn: fetching what was announced      <--> copies of our own sends
//! ```
//!
//! All totals are running ones, and links keep their order: no credit can be lost or counted twice,
//! a credit that was told is taken back only by its Return, and a correct remote makes no
//! violation. The first violation ends a link.
//!
//! | file | holds |
//! |---|---|
//! | `pool` | what a message costs; the balance; shares of sources |
//! | `lender`, `borrower` | one remote: credits lent to it, credits it lends us |
//! | `slots`, `credit_fields` | messages without credits; the credit fields of a header |
//! | `lists`, `epochs` | remotes that want, that are quiet, that are active |
//! | `rebalance` | lending, asking, narrowing |
//! | `settings`, `stats` | constants and limits; counters |
//!
//! Out of scope: messages, links, clocks.
//! Cost: 56 bytes a remote; a message costs a few comparisons and additions, and once an epoch a place
//! in a list.

mod borrower;
mod credit_fields;
mod epochs;
mod lender;
mod lists;
mod pool;
mod rebalance;
mod settings;
mod slots;

pub use crate::stats::FlowStats;
pub use borrower::{Borrower, WANTED_MAX};
pub use credit_fields::{CreditFields, Payment};
pub use lender::Lender;
pub use pool::{CREDIT, OVERHEAD, cost};
pub use settings::{AT_ONCE, FIRST, Settings};
pub use slots::{Lane, Slots};

use crate::origin::Source;
use crate::status::Violation;
use epochs::Epochs;
use lender::AccountList;
use lists::Lists;
use pool::Pool;
use std::time::Duration;

/// The accounts of all remotes.
pub trait Accounts {
    /// The account at this index, and the source whose share it counts against; `None` if there is
    /// no remote.
    fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)>;
}

/// A flow-control message to a remote: tells it the credits that it may use, or asks it to return unused ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditMessage {
    /// Its [credit fields](Flow::credit_fields), in a Credit if nothing else goes.
    Credit,
    /// A Revoke of so many.
    Revoke(u32),
}

/// The common state of all remotes' credits.
///
/// Order of calls for one account: `open`, then anything, then `close`. `taken` follows every
/// message that `arrived`, exactly once, before `close`; the rest is reclaimed afterwards.
#[derive(Debug)]
pub struct Flow {
    pool: Pool,
    lists: Lists,
    epochs: Epochs,
    /// The largest and the first credits.
    most: u32,
    first: u32,
    /// The limit for each remote of credits that may be on their way at once.
    at_once: u32,
    /// The sum of what all accounts want.
    wanted: u64,
    /// Remotes that have been asked in this epoch, and how much is expected of them.
    asked: u32,
    expected: u32,
    /// Something has happened that may move credits.
    ready: bool,
    /// Credits that were asked for to fetch a message, and that there were not.
    missing: u32,
    /// Only its counts: the balance is where it belongs.
    counts: FlowStats,
}

impl Flow {
    /// Everything is free.
    pub fn new(settings: &Settings) -> Self {
        let epochs = Epochs::new();
        Self {
            pool: Pool::new(settings),
            lists: Lists::new(),
            most: settings.most(),
            first: settings.first(),
            at_once: epochs.at_once(),
            epochs,
            wanted: 0,
            asked: 0,
            expected: 0,
            ready: false,
            missing: 0,
            counts: FlowStats::default(),
        }
    }

    /// The credits to be lent to a new remote of this source. When half of the total for this has
    /// been lent, they shrink with the rest, so that later remotes get some too.
    pub fn first_credits(&self, source: Source) -> u32 {
        let most = (self.pool.total / 2).min(self.pool.lendable());
        let room = most.saturating_sub(self.pool.lent);
        let room = room.min(self.pool.room(source));
        let credit_limit = u64::from(self.first) * u64::from(room) / u64::from((most / 2).max(1));
        // At most `first` or `room`.
        credit_limit.max(1).min(self.first.into()).min(room.into()) as u32
    }

    /// A remote is there, or has been promised this credit limit if it comes: it counts as told. False when
    /// there is no room for it; then nothing has happened. The account is a new one.
    pub fn open(&mut self, all: &mut impl Accounts, remote: u32, credit_limit: u32) -> bool {
        let Some((account, source)) = all.account(remote) else {
            return false;
        };
        if credit_limit > self.most || credit_limit > self.pool.room(source) {
            return false;
        }
        self.pool.lend(source, credit_limit);
        // An epoch from now it is quiet. A credit limit is at most `most`.
        *account = Lender::open(credit_limit as u16, self.epochs.number().wrapping_sub(1));
        self.epochs.remotes += 1;
        self.file(all, remote);
        true
    }

    /// Closes the account of a remote that is gone. Its credits are free, except those of its
    /// waiting messages, which stay until they are [reclaimed](Self::reclaim). Returns false if there
    /// is no room for those in slots. Messages that were only announced have to be `taken` before.
    pub fn close(&mut self, all: &mut impl Accounts, remote: u32) -> bool {
        self.lists.put(all, remote, AccountList::Nowhere);
        let Some((account, source)) = all.account(remote) else {
            return true;
        };
        self.set_wanted(account, 0);
        let gone = std::mem::take(account);
        if gone.asked > 0 {
            self.forget_asked(gone.asked);
        }
        self.pool
            .take_back(source, gone.credit_limit() - gone.waiting());
        // They are in its source's share all the time.
        self.pool.move_to_tombstones(gone.waiting());
        self.epochs.remotes -= 1;
        self.wake();
        self.pool.inherit(source, gone.in_slots())
    }

    /// Books a message from a remote, paid for with credits or a slot; a [`Violation`] if the remote had not got them.
    /// True when [`Self::note_use`] must follow: this is the remote's first message in the epoch, or the epoch has had
    /// as many messages, of all remotes, as end it.
    #[inline(always)]
    pub fn arrived(&mut self, account: &mut Lender, paid: Payment) -> Result<bool, Violation> {
        if let Err(violation) = account.arrive(paid) {
            self.counts.violations += 1;
            return Err(violation);
        }
        self.counts.messages += 1;
        if let Payment::Slot(_) = paid {
            self.counts.in_slots += 1;
        }
        let updated =
            account.used != self.epochs.number() || self.counts.messages >= self.epochs.until;
        Ok(updated)
    }

    /// Records that a message has been received or dropped. Returns true if the remote should be
    /// told at once, by a packet of its own.
    #[inline(always)]
    pub fn taken(&mut self, account: &mut Lender, source: Source, paid: Payment) -> bool {
        account.take(paid);
        if self.asked == 0 && self.is_any_remote_short() {
            self.narrow_to_share(account, source, paid);
        }
        let overdue = account.is_overdue(self.at_once);
        if overdue {
            self.enlarge(account, source);
        }
        overdue
    }

    /// True if messages with so many credits use most of a remote's credit limit, and no more can
    /// be lent to it.
    pub fn is_filled(&self, lender: &Lender, source: Source, held: u32) -> bool {
        let more = lender.credit_limit() < self.most && self.pool.room(source) > 0;
        !more && 4 * held >= 3 * lender.credit_limit()
    }

    /// True if the remote should be told at once, by a packet of its own. Called when its message
    /// is kept; [`Self::taken`] returns the same.
    #[inline]
    pub fn is_overdue(&self, account: &Lender) -> bool {
        account.is_overdue(self.at_once)
    }

    /// The part about credits of a header that goes now; `waiting` is what messages for the remote cost
    /// that wait for their turn, the one that goes included.
    #[inline(always)]
    pub fn credit_fields(
        &self,
        account: &Lender,
        borrower: &Borrower,
        waiting: u32,
    ) -> CreditFields {
        let (credit, slots) = account.total(self.at_once);
        CreditFields {
            credit,
            slots,
            epoch: self.epochs.byte(),
            wanted: borrower.wanted(waiting),
        }
    }

    /// The part about credits of a header, without new credits, for a remote that does not read its answers.
    pub fn same_credit_fields(
        &self,
        account: &Lender,
        borrower: &Borrower,
        waiting: u32,
    ) -> CreditFields {
        let (credit, slots) = account.same_total();
        CreditFields {
            credit,
            slots,
            ..self.credit_fields(account, borrower, waiting)
        }
    }

    /// True if these fields are new to the remote.
    pub fn says_more(account: &Lender, fields: &CreditFields) -> bool {
        fields.wanted > 0 || (fields.credit, fields.slots) != account.same_total()
    }

    /// The header has left.
    #[inline(always)]
    pub fn on_told(account: &mut Lender, borrower: &mut Borrower, fields: &CreditFields) {
        account.on_told(fields.credit, fields.slots);
        borrower.on_said(fields.wanted);
    }

    /// True if a fetch for so many credits always succeeds in time; otherwise they must not be
    /// drawn.
    pub fn may_draw(&self, credits: u32) -> bool {
        credits <= self.pool.total - self.pool.lendable()
    }

    /// Credits are about to be drawn: [`Self::is_ready`] until the next [poll](Self::poll).
    pub fn await_draw(&mut self) {
        self.ready = true;
    }

    /// Takes credits to fetch a message; false if there are not enough. [`Self::is_ready`] is true
    /// when some have become free; then the earliest request is to be repeated first.
    pub fn draw(&mut self, credits: u32) -> bool {
        let drawn = self.pool.draw(credits);
        let missing = if drawn { 0 } else { credits };
        // It asks again and again.
        self.counts.draws_refused += u64::from(missing > 0 && missing != self.missing);
        self.missing = missing;
        drawn
    }

    /// A message that was fetched has been taken, or fetching it failed.
    pub fn undraw(&mut self, credits: u32) {
        self.pool.undraw(credits);
        self.wake();
    }

    /// Takes credits for a copy of a send of ours; false when there are not enough, or copies have what
    /// they may.
    pub fn copy(&mut self, credits: u32) -> bool {
        self.pool.copy(credits)
    }

    /// A copy has gone.
    pub fn uncopy(&mut self, credits: u32) {
        self.pool.uncopy(credits);
        self.wake();
    }

    /// A message has been taken whose sender has been closed, and was from here.
    pub fn reclaim(&mut self, source: Source, paid: Payment) {
        let credits = match paid {
            Payment::Credits(cost) => cost,
            Payment::Slot(_) => 1,
        };
        self.pool.reclaim(source, credits);
        self.wake();
    }

    /// True while a remote waits for credits: [`Self::end_epoch`] is called after each
    /// [`EPOCH_TIME`].
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.wanted > 0
    }

    /// Credits that are lent or held by something, and all there are.
    #[inline]
    pub fn used(&self) -> (u32, u32) {
        (self.pool.used(), self.pool.total)
    }

    /// The balance, and how often what happened.
    pub fn stats(&self) -> FlowStats {
        let waiting = [AccountList::Wanting, AccountList::Short, AccountList::Poor];
        FlowStats {
            total: self.pool.total,
            free: self.pool.free(),
            lent: self.pool.lent,
            drawn: self.pool.drawn,
            copies: self.pool.copies,
            tombstones: self.pool.tombstones,
            remotes: self.epochs.remotes,
            waiting: waiting.iter().map(|place| self.lists.len(*place)).sum(),
            poor: self.lists.len(AccountList::Poor),
            asked: self.asked,
            ..self.counts
        }
    }
}

/// The longest epoch while a remote waits for credits and few messages come.
pub const EPOCH_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
