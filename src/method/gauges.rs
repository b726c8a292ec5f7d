//! What can be seen of a method: all of it at once, and one peer.
//!
//! ```text
//!   lender  stalls  queues  endpoint ---> MethodGauges ---> mx_counters, get_info
//!   account, borrower, state of a peer -> PeerGauges -----> get_info
//! ```
//!
//! Owns: counts of what our own sends had to wait for.
//! Knows nothing of: how it is shown.
//! Cost: every call is O(1).

use super::{Method, PostKind};
use crate::peer::state::{Name, State};
use crate::peer::table::{Peer, PeerKey};
use mx_proto::Clock;
use mx_proto::ledger::{Account, Borrower, CREDIT_COST};
use mx_proto::port::Port;
use mx_sys::UserMemory;
use mx_sys::published::{MemoryGauges, MethodGauges, QueueGauges, SendGauges};

/// How often our own sends had to wait, and how many peers' do now.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    for_credits: u64,
    without_credits: u64,
    for_tickets: u64,
    without_ticket: u64,
}

/// What a peer's first send waits for, as of its last turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stalled {
    credits: bool,
    ticket: bool,
}

/// What there is to see of one peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerGauges {
    /// How far we are with it.
    pub state: Name,
    /// What we lend it; `None` when it was never connected, or is not any more.
    pub account: Option<Account>,
    /// What it lends us. `None`: it is not ready.
    pub borrower: Option<Borrower>,
    /// It limits what we may send it unexpected: it is ready, and knows credits.
    pub limits_us: bool,
    /// Unexpected sends to it that wait.
    pub queued_unexpected: u32,
    /// Expected sends to it that wait.
    pub queued_sends: u32,
    /// Its first unexpected send waits for credits.
    pub without_credits: bool,
    /// Its first send waits for a ticket.
    pub without_ticket: bool,
}

impl PeerGauges {
    /// Of an address object that stands for no peer yet.
    pub const NONE: Self = Self {
        state: Name::Init,
        account: None,
        borrower: None,
        limits_us: false,
        queued_unexpected: 0,
        queued_sends: 0,
        without_credits: false,
        without_ticket: false,
    };
}

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// What there is, and how often what happened.
    pub fn gauges(&self) -> MethodGauges {
        let (stalls, inbox) = (&self.stalls, self.inbox());
        let credits = inbox.lender.stats();
        let (early_used, early_limit) = self.endpoint.unexpected_usage();
        let (tickets_out, tickets) = self.tickets.usage();
        MethodGauges {
            credits,
            sends: SendGauges {
                credit_stalls: stalls.for_credits,
                without_credits: stalls.without_credits,
                ticket_stalls: stalls.for_tickets,
                without_ticket: stalls.without_ticket,
                tickets_out: tickets_out as u64,
                tickets: tickets as u64,
            },
            queues: QueueGauges {
                peers: self.peers().len() as u64,
                operations: self.operations() as u64,
                ready: inbox.len() as u64,
                coming: inbox.coming() as u64,
                held_peers: inbox.held() as u64,
                line: (self.line.len() + self.tickets.waiting()) as u64,
                dropped: inbox.dropped(),
            },
            memory: MemoryGauges {
                unexpected: inbox.bytes() as u64,
                unexpected_used: u64::from(inbox.used()) * CREDIT_COST as u64,
                unexpected_limit: u64::from(credits.total) * CREDIT_COST as u64,
                early: self.endpoint.unexpected_bytes() as u64,
                early_used: early_used as u64,
                early_limit: early_limit as u64,
                ledger: credits.memory as u64,
                bounced: u64::from(self.endpoint.flow_stats().copies)
                    * mx_proto::flow::CREDIT as u64,
            },
        }
    }

    /// What there is to see of a peer; of one that is gone as if it had never been.
    pub fn peer_gauges(&self, key: PeerKey) -> PeerGauges {
        let Some(peer) = self.peers().get(key) else {
            return PeerGauges::NONE;
        };
        let ready = matches!(peer.state, State::Ready(_));
        PeerGauges {
            state: peer.state.name(),
            account: self.inbox().lender.account(key.id()),
            borrower: ready.then_some(peer.borrower),
            limits_us: ready && peer.told_loan.is_some(),
            queued_unexpected: peer.queued_requests.len() as u32,
            queued_sends: peer.queued_sends.len() as u32,
            without_credits: peer.stalled.credits,
            without_ticket: peer.stalled.ticket,
        }
    }
}

impl Stalls {
    /// The first unexpected send to a peer finds too few credits.
    pub(super) fn on_no_credits(&mut self, peer: &mut Peer) {
        self.end_ticket(peer);
        if !peer.stalled.credits {
            peer.stalled.credits = true;
            self.for_credits += 1;
            self.without_credits += 1;
        }
    }

    /// The first send to a peer finds no ticket.
    pub(super) fn on_no_ticket(&mut self, peer: &mut Peer) {
        if !peer.stalled.ticket {
            peer.stalled.ticket = true;
            self.for_tickets += 1;
            self.without_ticket += 1;
        }
    }

    /// A queued send to a peer goes.
    pub(super) fn on_turn(&mut self, peer: &mut Peer, kind: PostKind) {
        self.end_ticket(peer);
        if kind == PostKind::SendUnexpected {
            self.end_credits(peer);
        }
    }

    /// A connection is over, and so is what waited for it to let something go.
    pub(super) fn on_end(&mut self, peer: &mut Peer) {
        self.end_ticket(peer);
        self.end_credits(peer);
    }

    /// An operation has left its peer's queue without being sent.
    pub(crate) fn settle(&mut self, peer: &mut Peer) {
        if peer.queued_requests.is_empty() {
            self.end_credits(peer);
            if peer.queued_sends.is_empty() {
                self.end_ticket(peer);
            }
        }
    }

    fn end_credits(&mut self, peer: &mut Peer) {
        self.without_credits -= u64::from(std::mem::take(&mut peer.stalled.credits));
    }

    fn end_ticket(&mut self, peer: &mut Peer) {
        self.without_ticket -= u64::from(std::mem::take(&mut peer.stalled.ticket));
    }
}
