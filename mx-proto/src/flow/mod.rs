//! Flow control: credits for messages that may have to wait at their receiver.
//!
//! ```text
//!   remote                                                     us
//!   Borrower: payment, pay - message, Payment -> arrived --> waiting --> taken --> due
//!             wanted ------- any header ------>  wants -.                           |
//!             on_credit_fields <-- any header -- credit_fields <--------------------'
//!             give_back <--- Revoke ------- poll <------+--- lists <-- epochs
//!                      `---- Return ------------> returned --> Pool
//! ```
//!
//! Every such message costs [credits](CREDIT) of one pool, whose size is configured. Remotes are lent some when they
//! connect, and more when they request them. While a remote waits for credits, a remote that has used none for more
//! than an epoch is asked to return them. If there is none, a remote with more than its share is not granted credits
//! above it again. A stable pattern of traffic therefore reaches a stable distribution. (The policy is that of GASNet's
//! Portals conduit.)
//!
//! A remote without credits still makes progress: each lane has a [slot](Slots) for one message of at most one credit,
//! which becomes free as soon as that message is received.
//!
//! States of a credit:
//!
//! ```text
//!   free --open, wants--> due --header--> told --pay--> in flight --arrives--> waiting --taken--> due
//!    ^ ^                   |                |                                     |
//!    | `--quiet, narrowed--'                |                         remote lost |--> tombstone --reclaim--> free
//!    `------------------------- Return -----'
//!    <--> drawn: fetching offered messages          <--> copies of our own sends
//! ```
//!
//! All totals are running totals, and links keep their order. So no credit is lost or counted twice, a granted credit
//! is taken back only by its Return, and a correct remote commits no violation. The first violation ends a link.
//!
//! | file | holds |
//! |---|---|
//! | `pool` | what a message costs; the balance; shares of sources |
//! | `lender`, `borrower` | one remote: credits lent to it, credits it lends us |
//! | `slots`, `credit_fields` | messages without credits; the credit fields of a header |
//! | `lists`, `epochs` | remotes that wait, that are quiet, that are active |
//! | `rebalance` | lending, revoking, narrowing |
//! | `settings`, `stats` | constants and limits; counters |
//!
//! Out of scope: messages, links, clocks.
//! Cost: 56 bytes for each remote; a message costs a few comparisons and additions, and moves its remote in a list at
//! most once an epoch.

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

/// Access to the credit account of each remote, which the table of remotes implements for [`Flow`].
pub trait Accounts {
    /// Returns the account of the remote at this index, and the source whose share of the pool it counts against;
    /// `None` if there is no such remote.
    fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)>;
}

/// Flow-control message that the caller of [`Flow::poll`] sends to a remote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreditMessage {
    /// The present [credit fields](Flow::credit_fields), in a Credit packet if no other packet is sent.
    Credit,
    /// Request to return this many unused credits, in a Revoke.
    Revoke(u32),
}

/// Lender's side of flow control: the pool of credits, and their distribution to all remotes.
///
/// Order of calls for one account: `open`, then anything, then `close`. Every message that `arrived` is `taken` exactly
/// once, either before `close`, or [reclaimed](Self::reclaim) after it.
#[derive(Debug)]
pub struct Flow {
    pool: Pool,
    lists: Lists,
    epochs: Epochs,
    /// Largest credit limit; `first`: credits at connect.
    most: u32,
    first: u32,
    /// Limit of credits that each remote may have in flight.
    at_once: u32,
    /// Sum of the credits that all accounts request.
    wanted: u64,
    /// Number of remotes sent a Revoke in this epoch; `expected`: credits that their Returns may bring.
    asked: u32,
    expected: u32,
    /// Whether [`Self::poll`] may have something to do.
    ready: bool,
    /// Credits missing for the fetch that was last refused; 0: none.
    missing: u32,
    /// Counters; the balance fields are unused here.
    counts: FlowStats,
}

impl Flow {
    /// Makes the state of an endpoint without remotes, with all credits free.
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

    /// Returns the number of credits to lend to a new remote of this source, perhaps 0. The number shrinks once half of
    /// the credits for new remotes has been lent, so that later remotes get some, too.
    pub fn first_credits(&self, source: Source) -> u32 {
        let most = (self.pool.total / 2).min(self.pool.lendable());
        let room = most.saturating_sub(self.pool.lent);
        let room = room.min(self.pool.room(source));
        let credit_limit = u64::from(self.first) * u64::from(room) / u64::from((most / 2).max(1));
        // The result is at most `first` and `room`.
        credit_limit.max(1).min(self.first.into()).min(room.into()) as u32
    }

    /// Opens the account of a new remote and lends it `credit_limit` credits, of which the hello tells it. Returns
    /// false and changes nothing if there are not enough. The account must be new.
    pub fn open(&mut self, all: &mut impl Accounts, remote: u32, credit_limit: u32) -> bool {
        let Some((account, source)) = all.account(remote) else {
            return false;
        };
        if credit_limit > self.most || credit_limit > self.pool.room(source) {
            return false;
        }
        self.pool.lend(source, credit_limit);
        // The remote counts as quiet after one more epoch. A credit limit is at most `most`.
        *account = Lender::open(credit_limit as u16, self.epochs.number().wrapping_sub(1));
        self.epochs.remotes += 1;
        self.file(all, remote);
        true
    }

    /// Closes the account of a lost remote. Its credits become free, except those of its waiting messages, which stay
    /// until they are [reclaimed](Self::reclaim). Returns false if no credits are free for its messages in slots, which
    /// then must not be reclaimed. Messages that were only offered must be `taken` before.
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
        // They are in their source's share all the time.
        self.pool.move_to_tombstones(gone.waiting());
        self.epochs.remotes -= 1;
        self.wake();
        self.pool.inherit(source, gone.in_slots())
    }

    /// Books a message from a remote, paid for with credits or a slot; a [`Violation`] if the remote did not have them.
    /// Returns true if [`Self::note_use`] must follow: this is the remote's first message in the epoch, or the epoch
    /// has reached its number of messages.
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
        Ok(self.is_use_new(account, self.counts.messages))
    }

    /// Returns whether [`Self::note_use`] must follow a message from the remote, `messages` messages counted with it.
    #[inline(always)]
    fn is_use_new(&self, account: &Lender, messages: u64) -> bool {
        account.used != self.epochs.number() || messages >= self.epochs.until
    }

    /// Returns whether a message that is taken lowers a credit limit above the share, for remotes that are short.
    #[inline(always)]
    fn narrows(&self) -> bool {
        self.asked == 0 && self.is_any_remote_short()
    }

    /// Books a message of `cost` credits that has arrived and has been taken at once, as [`Self::arrived`] and
    /// [`Self::taken`] do. Returns false, and changes nothing, if more than counting follows from either.
    #[inline(always)]
    pub fn passes(&mut self, account: &mut Lender, cost: u32) -> bool {
        if self.narrows() || self.is_use_new(account, self.counts.messages + 1) {
            return false;
        }
        let passes = account.pass(cost, self.at_once);
        self.counts.messages += u64::from(passes);
        passes
    }

    /// Records that a message has been received or dropped, so that its credits or slot can be used again. Returns true
    /// if the remote should be told at once, in a packet of its own.
    #[inline(always)]
    pub fn taken(&mut self, account: &mut Lender, source: Source, paid: Payment) -> bool {
        account.take(paid);
        if self.narrows() {
            self.narrow_to_share(account, source, paid);
        }
        let overdue = account.is_overdue(self.at_once);
        if overdue {
            self.enlarge(account, source);
        }
        overdue
    }

    /// Returns whether messages that cost `held` credits use three quarters or more of a remote's credit limit, while
    /// no more can be lent to it.
    pub fn is_filled(&self, lender: &Lender, source: Source, held: u32) -> bool {
        let more = lender.credit_limit() < self.most && self.pool.room(source) > 0;
        !more && 4 * held >= 3 * lender.credit_limit()
    }

    /// Returns whether the remote should be told at once, in a packet of its own, of credits or slots that it can use.
    /// Called for a message that is kept; [`Self::taken`] returns the answer for others.
    #[inline]
    pub fn is_overdue(&self, account: &Lender) -> bool {
        account.is_overdue(self.at_once)
    }

    /// Returns the credit fields for a header that is sent now; [`Self::on_told`] follows if the header was accepted.
    /// `waiting`: cost in credits of all messages queued for the remote, including the one being sent.
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

    /// Returns the credit fields for a header with the totals of the previous one, so that a remote that does not read
    /// our packets gets no credits for further requests. `waiting` as in [`Self::credit_fields`].
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

    /// Returns whether a header with these fields would tell the remote anything: credits, free slots or a request.
    /// Otherwise a Credit packet is unnecessary.
    pub fn says_more(account: &Lender, fields: &CreditFields) -> bool {
        fields.wanted > 0 || (fields.credit, fields.slots) != account.same_total()
    }

    /// Records that a header with these fields has been sent, so that the remote counts as told and the request as
    /// made.
    #[inline(always)]
    pub fn on_told(account: &mut Lender, borrower: &mut Borrower, fields: &CreditFields) {
        account.on_told(fields.credit, fields.slots);
        borrower.on_said(fields.wanted);
    }

    /// Returns whether a message that costs so many credits can be fetched: the reserve is large enough, so
    /// [`Self::draw`] succeeds sooner or later. Larger messages must not be drawn for.
    pub fn may_draw(&self, credits: u32) -> bool {
        credits <= self.pool.total - self.pool.lendable()
    }

    /// Announces that a fetch will draw credits: makes [`Self::is_ready`] true until [`Self::poll`] finds nothing to
    /// do, so that the caller begins fetches.
    pub fn await_draw(&mut self) {
        self.ready = true;
    }

    /// Takes credits from the pool to fetch an offered message. Returns false and takes none if there are not enough;
    /// [`Self::is_ready`] becomes true when some are free, and the caller then repeats the earliest request first.
    pub fn draw(&mut self, credits: u32) -> bool {
        let drawn = self.pool.draw(credits);
        let missing = if drawn { 0 } else { credits };
        // A repeated request; count it once.
        self.counts.draws_refused += u64::from(missing > 0 && missing != self.missing);
        self.missing = missing;
        drawn
    }

    /// Returns credits that [`Self::draw`] took from the pool to fetch a message. Call it once that message has been
    /// received, or its fetch has failed.
    pub fn undraw(&mut self, credits: u32) {
        self.pool.undraw(credits);
        self.wake();
    }

    /// Takes credits for a copy of our own send. Returns false and takes none if there are not enough, or if copies
    /// would use more than an eighth of all credits.
    pub fn copy(&mut self, credits: u32) -> bool {
        self.pool.copy(credits)
    }

    /// Returns the credits of a copy that has been sent or dropped.
    pub fn uncopy(&mut self, credits: u32) {
        self.pool.uncopy(credits);
        self.wake();
    }

    /// Frees the credits of a message that has been received or dropped after the account of its sender, a remote of
    /// this source, was closed.
    pub fn reclaim(&mut self, source: Source, paid: Payment) {
        let credits = match paid {
            Payment::Credits(cost) => cost,
            Payment::Slot(_) => 1,
        };
        self.pool.reclaim(source, credits);
        self.wake();
    }

    /// Returns whether a remote waits for credits. While one does, the caller must call [`Self::end_epoch`] after each
    /// [`EPOCH_TIME`].
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.wanted > 0
    }

    /// Returns the number of credits that are lent or held by messages, and the total number.
    #[inline]
    pub fn used(&self) -> (u32, u32) {
        (self.pool.used(), self.pool.total)
    }

    /// Returns the present balance of credits, and the counters since the endpoint was opened.
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

/// Maximum length of an epoch while a remote waits for credits; enough messages end it earlier.
pub const EPOCH_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
