//! Messages nobody posted a receive for: the host's unexpected ones, and the handshake's.
//!
//! ```text
//!   endpoint asks (intake)      CONN_REQ, CONN_ACK ---> handshake queue ---> method
//!        |                      (received first, where its sender had no window for its bytes)
//!        |                      CREDIT, credit bytes --> lender, or tidings --> method
//!        |
//!        +-- UNEXPECTED, paid in full ------------------> ready, in turn --> testunexpected
//!        +-- UNEXPECTED, offered: the bank pays, receive  behind it, in the order of its peer
//!        +-- the bank cannot: stays at the endpoint, held until credits come back
//!        +-- not paid: dropped, and counted against its sender
//!        +-- EXPECTED: stays at the endpoint until its receive is posted
//! ```
//!
//! Messages of one peer are handed out in the order they were sent, also when a large one takes
//! its time; messages of others pass it meanwhile. Peers have turns of one message each, so that nobody
//! waits for all that somebody else has sent.
//!
//! Every byte that waits here has been paid for with credits ([`mx_proto::ledger`]): those lent to
//! its sender, or the bank's own. Handing a message out gives them back.
//!
//! Owns: buffers of waiting messages, and the ledger that bounds them. `intake` takes messages in,
//! `coming` receives what was only offered, `held` knows whose messages stay at the endpoint, `ready`
//! has those that can be handed out.
//! Knows nothing of: peers but their keys, the host.

mod coming;
mod held;
mod intake;
mod ready;

pub use intake::{Pick, Tiding};

use crate::abandoned::Abandoned;
use crate::match_layout::Fields;
use crate::method::{Alarm, Alarms, most_of};
use crate::peer::table::PeerKey;
use coming::{Asked, Coming};
use foldhash::fast::RandomState;
use held::Held;
use mx_proto::ledger::{Lender, LenderSettings};
use mx_proto::{Instant, PartnerId};
use mx_sys::MallocBuffer;
use ready::Ready;
use slab::Slab;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

/// One unexpected message.
#[derive(Debug)]
pub struct Message {
    /// Who sent it.
    pub peer: PeerKey,
    /// The connection it came over.
    pub partner: PartnerId,
    /// Who has paid for it: the same, unless that one turned out to be another peer.
    payer: PeerKey,
    /// Its bytes.
    pub buffer: MallocBuffer,
    /// Its tag.
    pub tag: i32,
    /// What its place here costs.
    price: Price,
}

/// The credits that a waiting message takes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Price {
    /// Of those lent to its sender.
    paid: u32,
    /// Of the bank's own.
    drawn: u32,
}

/// A message of the handshake.
#[derive(Debug)]
pub struct Note {
    /// Who sent it.
    pub partner: PartnerId,
    /// Its match bits taken apart.
    pub fields: Fields,
    /// What it says.
    pub body: Vec<u8>,
}

/// What is behind a large message that is still on its way, and the message itself.
#[derive(Debug)]
enum Behind {
    Coming(usize),
    Here(Message),
}

/// What arrived and waits.
#[derive(Debug)]
pub struct Inbox {
    ready: Ready,
    coming: Slab<Coming>,
    /// Each partner has at most as many as it may send messages.
    asked: Slab<Asked>,
    /// Per peer with a large message on its way.
    behind: HashMap<PeerKey, VecDeque<Behind>, RandomState>,
    /// Peers with messages left at the endpoint.
    held: Held,
    /// Peers that have been told of a loan and have not said whether they know credits.
    unsure: HashSet<PeerKey, RandomState>,
    notes: VecDeque<Note>,
    /// How many each partner has sent that wait or are being received.
    notes_of: HashMap<PartnerId, u8, RandomState>,
    tidings: VecDeque<(PeerKey, Tiding)>,
    /// Who may leave how much here.
    pub(crate) lender: Lender,
    /// As late as the lender has to know it.
    pub(crate) now: Instant,
    /// Bytes of all messages that wait or are on their way.
    bytes: usize,
    /// The credits of all these messages.
    used: u32,
    /// How many of them are worth a warning.
    used_alarm: u32,
    largest: usize,
    /// Who is first among those waits for the bank.
    short: bool,
    /// Room has come up since held messages were last tried.
    room: bool,
    /// The last message that was tried found no memory.
    hungry: bool,
    /// A message has become ready since a test call returned because of it.
    news: bool,
    /// A message has become ready since waiting threads were told.
    produced: bool,
    /// Messages dropped because they made no sense.
    dropped: u64,
    /// Limits that have been hit.
    pub(crate) alarms: Alarms,
    /// Receives that were given up, whose messages may still come.
    pub(crate) abandoned: Abandoned,
    /// Peers of which some were, and which have left another message at the endpoint.
    crowds: Vec<PeerKey>,
}

/// What a waiting message takes beside its bytes, for those who ask how much waits.
const OVERHEAD: usize = mx_proto::ledger::CREDIT_COST - mx_proto::ledger::CREDIT_BYTES as usize;

impl Inbox {
    /// An inbox that takes messages up to `largest` bytes, as far as the ledger allows.
    pub fn new(settings: LenderSettings, largest: usize) -> Self {
        Self {
            ready: Ready::default(),
            coming: Slab::new(),
            asked: Slab::new(),
            behind: HashMap::default(),
            held: Held::default(),
            unsure: HashSet::default(),
            notes: VecDeque::new(),
            notes_of: HashMap::default(),
            tidings: VecDeque::new(),
            lender: Lender::new(settings),
            now: Instant(0),
            bytes: 0,
            used: 0,
            used_alarm: most_of(settings.total as usize) as u32,
            largest,
            short: false,
            room: false,
            hungry: false,
            news: false,
            produced: false,
            dropped: 0,
            alarms: Alarms::default(),
            abandoned: Abandoned::default(),
            crowds: Vec::new(),
        }
    }

    /// The oldest message of the handshake.
    #[inline]
    pub fn pop_note(&mut self) -> Option<Note> {
        let note = self.notes.pop_front()?;
        self.uncount_note(note.partner);
        Some(note)
    }

    /// A partner has sent one. False when too many of its own wait or are being received: no method of
    /// ours sends more than two in all.
    fn count_note(&mut self, partner: PartnerId) -> bool {
        let count = self.notes_of.entry(partner).or_default();
        let fits = *count < NOTES_MAX;
        *count += u8::from(fits);
        fits
    }

    /// One of its own is gone.
    fn uncount_note(&mut self, partner: PartnerId) {
        if let Entry::Occupied(mut count) = self.notes_of.entry(partner) {
            match count.get() {
                0 | 1 => drop(count.remove()),
                _ => *count.get_mut() -= 1,
            }
        }
    }

    /// How many there are.
    pub fn notes(&self) -> usize {
        self.notes.len()
    }

    /// A note that cannot be dealt with yet goes back to the front.
    pub fn defer(&mut self, note: Note) {
        let count = self.notes_of.entry(note.partner).or_default();
        *count = count.saturating_add(1);
        self.notes.push_front(note);
    }

    /// What a peer has said about the credits it lends us.
    #[inline]
    pub fn pop_tiding(&mut self) -> Option<(PeerKey, Tiding)> {
        self.tidings.pop_front()
    }

    /// A peer that may have left too many messages at the endpoint.
    #[inline]
    pub fn pop_crowd(&mut self) -> Option<PeerKey> {
        self.crowds.pop()
    }

    #[cold]
    fn note_crowd(&mut self, peer: PeerKey) {
        if self.abandoned.any_of(peer.id()) && !self.crowds.contains(&peer) {
            self.crowds.push(peer);
        }
    }

    /// Who sent the unexpected message that is next.
    pub fn first_peer(&self) -> Option<PeerKey> {
        self.ready.first_peer()
    }

    /// The unexpected message that is next, the oldest of the peer whose turn it is; its credits are
    /// free again.
    pub fn pop(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.give_back(message.payer, message.buffer.len(), message.price);
        Some(message)
    }

    /// A message takes room here.
    #[inline]
    fn take_up(&mut self, len: usize, price: Price) {
        self.bytes += len + OVERHEAD;
        self.used += price.paid + price.drawn;
        if self.used > self.used_alarm {
            self.alarms.raise(Alarm::Unexpected);
            self.used_alarm = u32::MAX;
        }
    }

    /// A message takes no more room here.
    fn give_back(&mut self, peer: PeerKey, len: usize, price: Price) {
        self.bytes = self.bytes.saturating_sub(len + OVERHEAD);
        self.used = self.used.saturating_sub(price.paid + price.drawn);
        self.lender.taken(peer.id(), price.paid);
        if price.drawn > 0 {
            self.lender.undraw(price.drawn);
        }
        self.room = true;
    }

    /// Unexpected messages that can be had now.
    #[inline]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Has a message become ready since the last call?
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Has one become ready since the last call? Asked on behalf of threads that sleep.
    #[inline]
    pub fn take_produced(&mut self) -> bool {
        std::mem::take(&mut self.produced)
    }

    /// Somebody should look (again).
    pub fn set_news(&mut self) {
        self.news = true;
        self.produced = true;
    }

    /// Bytes that wait, overheads included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Credits that they use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Unexpected messages that are being received.
    pub fn coming(&self) -> usize {
        self.coming.len()
    }

    /// Messages dropped because they made no sense.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Peers with messages that stay at the endpoint for want of credits.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Does a message of that peer wait?
    pub fn holds(&self, peer: PeerKey) -> bool {
        self.behind.contains_key(&peer) || self.ready.has(peer)
    }

    /// A peer is gone, and with it what it sent.
    pub fn forget(&mut self, peer: PeerKey) {
        self.settle(peer);
        let behind = self.behind.remove(&peer).into_iter().flatten();
        let behind = behind.filter_map(|entry| match entry {
            Behind::Here(message) => Some(message),
            Behind::Coming(_) => None,
        });
        for message in self.ready.take_of(peer).into_iter().chain(behind) {
            self.give_back(message.payer, message.buffer.len(), message.price);
        }
    }

    /// A peer, of which it is known whether it `knows` credits, may leave messages here. Gives the
    /// credits that it has been lent, now or before.
    pub fn lend_to(&mut self, peer: PeerKey, knows: bool) -> u16 {
        // What it sent while that was not known has waited for this.
        self.room |= self.unsure.remove(&peer);
        match self.lender.account(peer.id()) {
            Some(account) if account.knows == knows => account.loan,
            _ => {
                self.lender.close(peer.id());
                self.lender.open(peer.id(), knows, self.now)
            }
        }
    }

    /// The same before it is known, to tell the peer of it.
    pub fn promise_to(&mut self, peer: PeerKey) -> u16 {
        let loan = self.lend_to(peer, true);
        self.unsure.insert(peer);
        loan
    }

    /// A peer begins anew without having gone: what was lent is over, and what it left at the endpoint
    /// is still there, but nothing has been paid for it any more.
    pub fn renew(&mut self, peer: PeerKey) {
        let paid = self.held.void(peer);
        self.lender.taken(peer.id(), paid);
        self.tidings.retain(|(from, _)| *from != peer);
        self.lender.close(peer.id());
        self.room = true;
    }

    /// A connection is over: what of its peer's was left at the endpoint went with it, and so did
    /// what was lent, but for what waits here.
    pub fn lose(&mut self, peer: PeerKey) {
        self.settle(peer);
        self.unsure.remove(&peer);
        self.tidings.retain(|(from, _)| *from != peer);
        self.lender.close(peer.id());
        self.room = true;
    }

    /// Nothing of a peer's is left at the endpoint: what had been paid for messages that were, and
    /// that their sender has called off, is given back.
    fn settle(&mut self, peer: PeerKey) {
        let paid = self.held.forget(peer);
        if paid > 0 {
            self.lender.taken(peer.id(), paid);
        }
    }

    /// One peer turned out to be another. The one that is renamed is not connected: its messages are
    /// of an earlier life, and it stays the one who paid for them.
    pub fn rename(&mut self, from: PeerKey, into: PeerKey) {
        self.ready.rename(from, into);
    }
}

/// Messages of the handshake that may wait here from one partner.
const NOTES_MAX: u8 = 8;

#[cfg(test)]
mod tests;
