//! What a send may have to wait for once its peer is ready.
//!
//! ```text
//!                                          +-- ticket    any send that goes brings one back
//!   post, READY --> queues of the peer ----+
//!                     unexpected first     +-- credits   (unexpected only) a Want goes out; a grant,
//!                     expected                           or a message that comes home, brings them
//!                        |
//!                        v  both there: match bits stamped with credits
//!                     endpoint
//! ```
//!
//! *Tickets* cap the sends that the endpoint has and that have not gone yet; those that only wait for
//! their receives need none, or they would keep others from what those wait for. A peer that finds
//! none (`tickets`) stands aside until it may have one, and nobody looks at it meanwhile.
//!
//! *Credits* are what the receiver lends for unexpected messages. A message whose cost is there goes
//! with its data; with one credit at least it is offered, and its data follows when the receiver has
//! room; without any it waits. Expected messages do not wait behind it.
//!
//! Everybody with something to send has a turn of one message at a time.
//!
//! Owns: the line of peers with something to send. Knows nothing of: how credits are lent, who may have
//! a ticket.

use super::connect::code_of_post;
use super::{Alarm, Method, PostKind};
use crate::match_layout::{MessageType, bits};
use crate::op::word::{Role, Word};
use crate::peer::state::{Cause, Ready, State};
use crate::peer::table::{Peer, PeerKey};
use crate::unexpected::Tiding;
use mx_proto::ledger::{self, Borrower, Control, ControlWord, CreditByte};
use mx_proto::port::Port;
use mx_proto::{Clock, MatchBits, PartnerId, Posted, RequestId, SendMode};
use mx_sys::UserMemory;
use std::fmt;

/// What is about credits and has come up before the handshake with the peer was over.
#[derive(Debug)]
pub(super) enum Early {
    /// The peer has said it.
    Tiding(Tiding),
    /// It is to be told.
    Word(ControlWord),
}

/// What became of a peer's turn.
enum Turn {
    /// A message has gone; there may be more.
    Sent,
    /// Nothing of it can go before a grant comes, if there is anything at all.
    Over,
    /// It has to wait for a ticket.
    NoTicket,
}

/// What no peer should do is counted up to one more than this.
const TIMES_MAX: u16 = u8::MAX as u16 - 1;

/// What is kept of one peer's until its handshake is over. An honest one has one Revoke to send, and
/// tells of an epoch now and then.
const EARLY_MAX: usize = 16;

impl<P: Port<UserMemory>, C: Clock> Method<P, C> {
    /// How a message of this kind goes to a peer that is ready, if it may.
    #[inline]
    pub(crate) fn stamp(
        &mut self,
        key: PeerKey,
        kind: PostKind,
        len: u32,
    ) -> Option<(CreditByte, SendMode)> {
        match kind {
            PostKind::SendUnexpected => {
                let peer = self.endpoint.owner_mut().peers.get_mut(key)?;
                terms(&mut peer.borrower, len, self.settings.eager_max)
            }
            _ => Some((self.inbox_mut().lender.ride(key.id()), SendMode::Buffered)),
        }
    }

    /// May a peer have another send at the endpoint? Looks for tickets that are free again.
    #[cold]
    pub(crate) fn has_ticket(&mut self, key: PeerKey) -> bool {
        self.collect_tickets();
        let peer = self.peers().get(key);
        self.tickets.allow(peer.map_or(0, |peer| peer.sends))
    }

    /// The endpoint has a send of this peer's, which needs a ticket unless it has gone by now.
    #[inline]
    pub(crate) fn take_ticket(&mut self, key: PeerKey, request: RequestId) {
        if self.endpoint.is_queued(request)
            && let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key)
        {
            self.tickets.take(request, key);
            peer.sends += 1;
        }
    }

    /// Tickets of sends that have gone are free again.
    #[inline]
    fn collect_tickets(&mut self) {
        while let Some(request) = self.endpoint.owner_mut().departed.pop() {
            if let Some(key) = self.tickets.give_back(request) {
                let peer = self.peers_mut().get_mut(key);
                let sends = peer.map_or(0, |peer| {
                    peer.sends = peer.sends.saturating_sub(1);
                    peer.sends
                });
                self.tickets.move_up(key, sends);
            }
        }
    }

    /// A send of a peer that is ready has just been queued as the first of its kind.
    #[cold]
    pub(crate) fn wait_for_turn(&mut self, key: PeerKey) {
        match self.turn(key) {
            Turn::Sent => self.line_up(key),
            Turn::Over => {}
            Turn::NoTicket => self.stand_aside(key),
        }
    }

    /// A peer may have something that can go.
    pub(super) fn line_up(&mut self, key: PeerKey) {
        if let Some(peer) = self
            .peers_mut()
            .get_mut(key)
            .filter(|peer| may_line_up(peer))
        {
            peer.in_line = true;
            self.line.push_back(key);
        }
    }

    /// A peer has found no ticket.
    fn stand_aside(&mut self, key: PeerKey) {
        if let Some(peer) = self
            .endpoint
            .owner_mut()
            .peers
            .get_mut(key)
            .filter(|peer| may_line_up(peer))
        {
            peer.in_line = true;
            self.tickets.wait(key, peer.sends);
        }
    }

    /// Is it anybody's turn?
    #[inline]
    pub(super) fn has_turns(&mut self) -> bool {
        self.collect_tickets();
        !self.line.is_empty() || self.tickets.admits()
    }

    /// Lets the peers in line send, one message each in turn, while there are tickets. Returns
    /// whether anything went.
    #[cold]
    pub(super) fn serve_line(&mut self) -> bool {
        let mut busy = false;
        loop {
            // Whoever stood aside and may have a ticket by now joins the others, one each turn.
            let admitted = self.tickets.admit();
            self.line.extend(admitted);
            let Some(key) = self.line.pop_front() else {
                return busy;
            };
            if let Some(peer) = self.peers_mut().get_mut(key) {
                peer.in_line = false;
            }
            match self.turn(key) {
                Turn::Sent => {
                    busy = true;
                    self.line_up(key);
                }
                Turn::Over => {}
                Turn::NoTicket => self.stand_aside(key),
            }
        }
    }

    /// Sends one message of a peer, if one may go.
    fn turn(&mut self, key: PeerKey) -> Turn {
        let Some(peer) = self.peers().get(key) else {
            return Turn::Over;
        };
        let State::Ready(ready) = peer.state else {
            return Turn::Over;
        };
        let ops = self.endpoint.ops();
        let heads = [
            peer.queued_requests.first(ops),
            peer.queued_sends.first(ops),
        ];
        for op in heads.into_iter().flatten() {
            if !self.has_ticket(key) {
                if let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) {
                    self.stalls.on_no_ticket(peer);
                }
                self.inbox_mut().alarms.raise(Alarm::Tickets);
                return Turn::NoTicket;
            }
            let Some((kind, len)) = self.word(op).and_then(|word| {
                let len = u32::try_from(word.size).unwrap_or(u32::MAX);
                Some((word.kind()?, len))
            }) else {
                continue;
            };
            if let Some((byte, mode)) = self.stamp(key, kind, len) {
                let (host, ops) = self.endpoint.split();
                if let Some(peer) = host.peers.get_mut(key) {
                    self.stalls.on_turn(peer, kind);
                    peer.dequeue(ops, op);
                }
                self.send_queued(key, op, ready, byte, mode);
                return Turn::Sent;
            }
            self.want(key, len);
        }
        Turn::Over
    }

    fn send_queued(
        &mut self,
        key: PeerKey,
        op: RequestId,
        Ready { partner, tx_id }: Ready,
        byte: CreditByte,
        mode: SendMode,
    ) {
        let Some(word) = self.word(op) else {
            return;
        };
        let kind = match word.kind() {
            Some(PostKind::SendUnexpected) => MessageType::Unexpected,
            _ => MessageType::Expected,
        };
        let bits = byte.put(bits(kind, tx_id, word.tag));
        match self.endpoint.unpark_send(op, partner, bits, mode) {
            Ok(()) => self.take_ticket(key, op),
            Err(error) => self.fail(op, code_of_post(error)),
        }
    }

    /// An unexpected message of `len` bytes has no credits: its receiver is asked for some.
    #[cold]
    fn want(&mut self, key: PeerKey, len: u32) {
        let Some(peer) = self.endpoint.owner_mut().peers.get_mut(key) else {
            return;
        };
        self.stalls.on_no_credits(peer);
        if let Some(word) = peer.borrower.stalled(ledger::cost(len)) {
            self.send_control(key, word);
        }
    }

    /// What a peer has said about the credits it lends us.
    pub(super) fn on_tiding(&mut self, key: PeerKey, tiding: Tiding) {
        let Some(peer) = self.peers_mut().get_mut(key) else {
            return;
        };
        if !matches!(peer.state, State::Ready(_)) {
            return self.keep_early(key, Early::Tiding(tiding));
        }
        match tiding {
            Tiding::Ride(byte) => {
                peer.borrower.on_ride(byte);
            }
            Tiding::Control(word) => {
                let ours = match word.control {
                    Control::Revoke(_) => Control::Return(0),
                    _ => Control::Want(0),
                };
                if self.is_unsent(key, ours) {
                    // Nobody asks again before the answer, or answers before it is asked.
                    return;
                }
                let Some(peer) = self.peers_mut().get_mut(key) else {
                    return;
                };
                let answer = peer.borrower.on_control(word);
                let lies = peer.borrower.lies();
                if !self.forgives(lies) {
                    return self.fail_for(key, "lends credits in ways that make no sense");
                }
                if let Some(answer) = answer {
                    self.send_control(key, answer);
                }
            }
        }
        self.line_up(key);
    }

    /// Control messages of the lender's, and the peers it has to do with no more.
    pub(super) fn lend(&mut self) -> bool {
        let mut busy = false;
        while let Some((id, word)) = self.inbox_mut().lender.poll_control() {
            busy = true;
            if let Some(key) = self.peers().with_id(id) {
                if self.is_unsent(key, word.control) {
                    self.fail_for(key, "answers what it has not been sent");
                } else {
                    self.send_control(key, word);
                }
            }
        }
        while let Some((id, fault)) = self.inbox_mut().lender.poll_fault() {
            busy = true;
            if let Some(key) = self.peers().with_id(id) {
                self.fail_for(key, fault);
            }
        }
        busy
    }

    /// Does our last message of this kind to the peer still wait at the endpoint?
    #[cold]
    fn is_unsent(&self, key: PeerKey, kind: Control) -> bool {
        let last = self.peers().get(key).and_then(|peer| peer.words.last(kind));
        last.is_some_and(|request| self.endpoint.is_queued(request))
    }

    /// May a peer have done so often what no peer should?
    pub(super) fn forgives(&self, times: u8) -> bool {
        u16::from(times) <= self.settings.credits.strikes.min(TIMES_MAX)
    }

    /// A peer is not to be trusted with credits.
    #[cold]
    pub(super) fn fail_for(&mut self, key: PeerKey, fault: impl fmt::Display) {
        if let Some(peer) = self.peers().get(key) {
            log::warn!(
                "{} (id {}) is disconnected: it {fault}",
                peer.name,
                key.id()
            );
        }
        self.disconnect(key, Cause::Protocol, true);
    }

    /// Credits can be moved before the handshake is over: CONN_ACK is overtaken where it has to be
    /// received first. What it is about begins with the partner, and ends with it.
    #[cold]
    fn keep_early(&mut self, key: PeerKey, early: Early) {
        let peer = self.peers().get(key);
        let here = self.early.iter().filter(|(of, _)| *of == key);
        if peer.is_some_and(|peer| peer.state.partner().is_some()) && here.count() < EARLY_MAX {
            self.early.push((key, early));
        }
    }

    /// The handshake is over.
    pub(super) fn catch_up(&mut self, key: PeerKey) {
        let (theirs, others) = std::mem::take(&mut self.early)
            .into_iter()
            .partition::<Vec<_>, _>(|(peer, _)| *peer == key);
        self.early = others;
        for (_, early) in theirs {
            match early {
                Early::Tiding(tiding) => self.on_tiding(key, tiding),
                Early::Word(word) => self.send_control(key, word),
            }
        }
    }

    fn send_control(&mut self, key: PeerKey, word: ControlWord) {
        let Some(State::Ready(Ready { partner, tx_id })) =
            self.peers().get(key).map(|peer| peer.state)
        else {
            return self.keep_early(key, Early::Word(word));
        };
        let bits = bits(MessageType::Credit, tx_id, word.to_tag());
        let request = self.send_word(partner, bits);
        if let Some(peer) = self.peers_mut().get_mut(key) {
            peer.words.on_sent(word.control, request);
        }
    }

    /// Sends a message that is all match bits and that nobody waits for. Gives it, if it has to wait.
    pub(super) fn send_word(&mut self, partner: PartnerId, bits: MatchBits) -> Option<RequestId> {
        // Should it not get through, then nothing else does.
        let memory = UserMemory::empty();
        let standard = SendMode::Standard;
        let word = Word::own(Role::Control, PeerKey::NOBODY);
        let sent = self.endpoint.send(partner, bits, memory, word, standard);
        match sent {
            Ok(Posted::Pending(request)) => Some(request),
            Ok(Posted::Complete) | Err(_) => None,
        }
    }
}

/// Has it something to send, and stands neither in line nor aside?
fn may_line_up(peer: &Peer) -> bool {
    let sends = [&peer.queued_sends, &peer.queued_requests];
    !peer.in_line && sends.iter().any(|list| !list.is_empty())
}

/// How an unexpected message of `len` bytes goes to whom these credits are for: with its data when
/// its cost is there, offered when anything is, not at all otherwise.
#[inline]
fn terms(borrower: &mut Borrower, len: u32, eager_max: u32) -> Option<(CreditByte, SendMode)> {
    let cost = ledger::cost(len);
    if len <= eager_max
        && let Some(byte) = borrower.pay(cost)
    {
        return Some((byte, SendMode::Standard));
    }
    let byte = borrower.pay(1)?;
    Some((byte, SendMode::Synchronous))
}
