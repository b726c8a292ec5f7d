//! Incoming packets.
//!
//! ```text
//!   header --parse--> session packet?  -> sessions
//!                     message?         -> credit check -> posted receive, owner, or unexpected
//!                     about a request? -> look it up, check it belongs to this remote
//! ```
//!
//! Everything from the wire is checked before it is used. A packet about a request or remote that
//! has ended is counted and dropped; a violation of the protocol ends the link.

use super::Core;
use super::commands::inbound_status;
use super::early::filled;
use super::introductions::Distrust;
use crate::early::{self, Early};
use crate::event::{Arrival, Outcome, Verdict};
use crate::flow::{self, Paid};
use crate::ids::{EntryId, LinkId, MatchBits, MatchMask, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{NO_REMOTE, Strand};
use crate::owner::Owner;
use crate::port::{Close, HeaderBytes, LinkDown, Place, RemoteUse, Sink};
use crate::remote::{Life, LinkState};
use crate::status::{DownReason, Status, Violation};
use crate::time::Clock;
use crate::wire::{self, Header, PullBody};

/// The endpoint while its port is being polled.
pub(super) struct Inbound<'a, O: Owner, C> {
    pub(super) core: &'a mut Core<O>,
    pub(super) clock: &'a C,
}

impl<O: Owner, C: Clock> Sink<O::Memory> for Inbound<'_, O, C> {
    #[inline]
    fn is_bound(&self, link: LinkId) -> bool {
        self.core.bound.get(link).is_some()
    }

    fn on_up(&mut self, link: LinkId) {
        let remote = self.core.remote_of(link);
        self.core.link_up(link, remote);
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.core.log_silent(link, reason);
        let remote = self.core.remote_of(link);
        let cut = self.core.forget_link(link);
        self.core.link_down(link, remote, reason);
        self.core.lose(cut, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, bytes: &HeaderBytes, body: &B) {
        self.core.stats.packets_in += 1;
        let header = match Header::parse(bytes) {
            Some(header) if header.body_len as usize == body.len() => header,
            _ => return self.core.violation(link, Violation::NotOurs),
        };
        if let Some(from) = self.sender(link, &header, body) {
            match header.kind {
                wire::Kind::Eager => self.eager(link, from, &header, body),
                wire::Kind::Data => self.data(from, &{ header }, body),
                _ => self.control(link, from, &{ header }, body),
            }
        }
    }

    fn place(
        &mut self,
        link: LinkId,
        bytes: &HeaderBytes,
        begin: bool,
    ) -> Option<Place<'_, O::Memory>> {
        let header = Header::parse(bytes)?;
        match header.kind {
            wire::Kind::Data => self.place_data(link, &header),
            wire::Kind::Eager if begin => self.begin_streamed(link, &header),
            wire::Kind::Eager => self.place_streamed(link),
            _ => None,
        }
    }

    fn on_placed(&mut self, link: LinkId, bytes: &HeaderBytes) {
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        if header.kind == wire::Kind::Eager {
            return self.end_streamed(link, &header);
        }
        self.data_placed(link, &header);
    }

    fn on_writable(&mut self, link: LinkId) {
        let id = self.core.remote_of(link);
        self.core.open(id, link);
    }

    fn on_remote_activity(&mut self, _link: LinkId, what: RemoteUse) {
        self.being_read(what);
    }

    fn on_remote_read(&mut self, _link: LinkId, token: u64, ok: bool) {
        self.has_read(token, ok);
    }
}

impl<O: Owner, C: Clock> Inbound<'_, O, C> {
    /// The remote that a packet is from; its credit fields have been read. `None`: there is none, or none that may send
    /// the packet, which has been dealt with.
    #[inline(always)]
    fn sender<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        header: &Header,
        body: &B,
    ) -> Option<RemoteId> {
        let core = &mut *self.core;
        let from = core.remote_of(link);
        let Some(remote) = core.remotes.of_mut(from) else {
            self.stranger_packet(link, &{ *header }, body);
            return None;
        };
        if core.config.secret.is_some()
            && remote.state_of(link) < Some(LinkState::Proven)
            && !matches!(
                header.kind,
                wire::Kind::Connect | wire::Kind::Reply | wire::Kind::Challenge
            )
        {
            core.distrust(from, None, Distrust::Unasked);
            return None;
        }
        let is_message = matches!(header.kind, wire::Kind::Eager | wire::Kind::Offer);
        let Life::Met(met) = &mut remote.life else {
            if is_message {
                core.violation(link, Violation::TooEarly);
            }
            return (!is_message).then_some(from);
        };
        met.silent = 0;
        if is_message && met.asks.is_some() {
            core.use_while_asked(from);
            return self.heed(from, header);
        }
        if header.kind.has_credit_fields() {
            // A remote may end over a request, so it is looked up once more.
            if header.credit_fields.wanted > 0 {
                return self.heed(from, &{ *header });
            }
            if remote.takes_turn_for(&header.credit_fields) {
                core.ready.push_back(from);
            }
        }
        Some(from)
    }

    /// A message that has come with its data.
    #[inline(always)]
    fn eager<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        body: &B,
    ) {
        let core = &mut *self.core;
        let len = header.body_len;
        if header.length != len {
            return core.violation(link, Violation::Length);
        }
        let paid = match Paid::of(header.aux, flow::cost(len)) {
            Ok(paid) => paid,
            Err(violation) => return core.violation(link, violation),
        };
        let Some(mut remote) = core.remotes.of_mut(from) else {
            return;
        };
        match core.flow.arrived(&mut remote.lends, paid) {
            Ok(false) => {}
            Ok(true) => {
                core.flow.note_use(&mut core.remotes, from.index());
                match core.remotes.of_mut(from) {
                    Some(again) => remote = again,
                    None => return,
                }
            }
            Err(violation) => return core.violation(link, violation),
        }
        let bits = MatchBits(header.word);
        // Nothing overtakes an undecided message.
        if core.early.undecided() == 0
            && let Some(place) = core.posted.take(&mut core.ops, bits)
        {
            let record = core.ops.record_mut(place);
            if record.from_one {
                if record.remote != from {
                    core.posted.enter(&mut core.ops, place);
                    return self.foreign(link, from, paid);
                }
                core.ops.leave(Strand::Kin, &mut remote.kin, place);
            }
            core.stats.matched += 1;
            let overdue = core.flow.taken(&mut remote.lends, remote.source, paid);
            core.fill(place, from, bits, body);
            if overdue {
                core.tell(from);
            }
            return;
        }
        self.unmatched(link, from, &{ *header }, paid, body);
    }

    #[cold]
    fn stranger_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &Header, body: &B) {
        if self.core.bound.get(link).is_some() {
            // Behind a violation, a refusal, or the end of a remote.
            self.core.stats.stale += 1;
        } else if header.kind == wire::Kind::Connect {
            self.core.on_connect(link, None, header, &body.to_vec());
        } else if header.kind == wire::Kind::Prove {
            self.core.on_prove(link, &body.to_vec());
        } else {
            self.core.violation(link, Violation::TooEarly);
        }
    }

    /// Reads the credit fields of a header. Gives its remote, if that is still there.
    pub(super) fn heed(&mut self, from: RemoteId, header: &Header) -> Option<RemoteId> {
        let core = &mut *self.core;
        let remote = core.remotes.of_mut(from)?;
        if remote.takes_turn_for(&header.credit_fields) {
            core.ready.push_back(from);
        }
        if header.credit_fields.wanted > 0 {
            core.note_request(from, &{ header.credit_fields });
        }
        core.remotes.of(from).map(|_| from)
    }

    /// A message that has come with its data, for which there is no receive.
    #[inline(never)]
    pub(super) fn unmatched<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        paid: Paid,
        body: &B,
    ) {
        if !self.has_room(link, from, paid) {
            return;
        }
        let what = (from, MatchBits(header.word), header.length);
        let verdict = self.judge(what, Some(body));
        let body = match verdict {
            Verdict::Finished => return self.core.consumed(from, paid),
            Verdict::Inbox { .. } => filled(&mut self.core.owner, body).map(early::Body::Memory),
            Verdict::Continue | Verdict::Defer => None,
        }
        .unwrap_or_else(|| early::Body::Bytes(body.to_vec()));
        let message = Early::new(what, paid, None, body);
        let id = self.core.early.add(message);
        self.core.keep(id, verdict);
    }

    /// Asks the owner about a message that has no receive or has to wait for its turn. `body`: `None` for an
    /// offer.
    #[inline]
    pub(super) fn judge<B: Source + ?Sized>(
        &mut self,
        (from, bits, length): (RemoteId, MatchBits, u32),
        body: Option<&B>,
    ) -> Verdict {
        self.core.stats.unmatched += 1;
        if self.core.early.undecided() != 0 {
            return Verdict::Defer;
        }
        match self.core.arrival(from, bits, length) {
            Some(arrival) => self.core.owner.arrived(&arrival, body),
            None => Verdict::Finished,
        }
    }

    /// Whether there is memory for a paid message without a receive. It cannot be left out: without, its
    /// sender's session ends, and may begin anew.
    #[inline]
    pub(super) fn has_room(&mut self, link: LinkId, from: RemoteId, paid: Paid) -> bool {
        let core = &mut *self.core;
        let room = !core.config.supply.is_dire() && core.messages.covers(core.early.len());
        if !room {
            core.consumed(from, paid);
            core.out_of_room(link, from);
        }
        room
    }

    /// A message has come that a receive for another remote's messages accepts.
    #[cold]
    pub(super) fn foreign(&mut self, link: LinkId, from: RemoteId, paid: Paid) {
        self.core.consumed(from, paid);
        self.core.violation(link, Violation::Foreign);
    }

    fn control<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        from: RemoteId,
        header: &Header,
        body: &B,
    ) {
        if body.len() > CONTROL_BODY_MAX {
            return self.core.violation(link, Violation::Oversized);
        }
        let mut bytes = [0; CONTROL_BODY_MAX];
        let bytes = &mut bytes[..body.len()];
        body.copy_to(0, bytes);
        match header.kind {
            wire::Kind::Connect => self.core.on_connect(link, Some(from), header, bytes),
            wire::Kind::Reply => self
                .core
                .on_reply(link, from, header, bytes, self.clock.now()),
            wire::Kind::Offer => self.offer(link, from, header, bytes),
            wire::Kind::Pull => match PullBody::parse(bytes) {
                Some(pull) => self.core.on_pull(from, header, pull, self.clock),
                None => self.core.violation(link, Violation::Pull),
            },
            wire::Kind::Notify => self.core.on_notify(from, header),
            wire::Kind::Withdraw => self.core.on_withdraw(from, header, self.clock.now()),
            wire::Kind::Disconnect => self.core.fail_remote(from, DownReason::Disconnected),
            wire::Kind::Ping => self.core.on_ping(from, header.word),
            wire::Kind::Pong => {
                self.core.is_there(from, header.word);
                self.core.on_answer(from);
            }
            // That it has come is all it says.
            wire::Kind::Credit => {}
            wire::Kind::Confirm => self.core.on_confirm(link, from, bytes),
            wire::Kind::Confirmed => self.core.on_confirmed(from, header.length == 1),
            wire::Kind::Challenge => self.core.on_challenge(link, from, bytes),
            wire::Kind::Prove => {
                self.core.violation(link, Violation::Proof);
            }
            wire::Kind::Revoke => self.core.on_revoke(from, header),
            wire::Kind::Return => self.core.on_return(link, from, header),
            // These two never get here; see `on_packet`.
            wire::Kind::Eager | wire::Kind::Data => {}
        }
    }
}

impl<O: Owner> Core<O> {
    /// The remote of a link. A stranger's has none, nor has one that is about to be closed.
    #[inline]
    pub(super) fn remote_of(&self, link: LinkId) -> RemoteId {
        let id = self.bound.get(link).unwrap_or(NO_REMOTE);
        debug_assert!(self.remotes.of(id).is_none_or(|of| of.owns(link)));
        id
    }

    /// The peer does not speak our protocol: its link, and with it the remote, ends.
    #[cold]
    pub(super) fn violation(&mut self, link: LinkId, what: Violation) {
        self.stats.malformed += 1;
        self.forget_introduction(link);
        let remote = self.remote_of(link);
        log::debug!("link {link:?}: {what}; closing it");
        self.close_later(link, Close::Now);
        self.fail_remote(remote, DownReason::Protocol(what));
    }

    /// There is no memory for a message of that remote's.
    #[cold]
    pub(super) fn out_of_room(&mut self, link: LinkId, from: RemoteId) {
        self.stats.out_of_memory += 1;
        self.close_later(link, Close::Now);
        self.fail_remote(from, DownReason::NoMemory);
    }

    /// The description of an early message for the owner.
    pub(super) fn arrival_of(&self, id: EntryId) -> Option<Arrival> {
        let message = self.early.get(id)?;
        self.arrival(message.source, message.bits, message.length)
    }

    fn arrival(&self, source: RemoteId, bits: MatchBits, length: u32) -> Option<Arrival> {
        let remote = self.remotes.of(source)?;
        let (source_context, identity) = (remote.context, remote.identity());
        Some(Arrival {
            source,
            source_context,
            identity,
            bits,
            length,
        })
    }

    /// The whole of a message goes into the posted receive at a place, which is in no list.
    #[inline(always)]
    pub(super) fn fill<B: Source + ?Sized>(
        &mut self,
        place: u32,
        from: RemoteId,
        bits: MatchBits,
        body: &B,
    ) {
        let length = body.len() as u32;
        let fill = |memory: &mut O::Memory| memory.fill(0, body.len(), body, 0);
        let (id, transferred, timer) = self.ops.finish_with(place, fill);
        if let Some(timer) = timer {
            self.wheel.clear(timer);
        }
        let transferred = transferred as u32;
        let status = inbound_status(transferred, length);
        let outcome = Outcome::received(status, from, bits, transferred, length);
        self.owner.completed(&mut self.ops, id, outcome);
    }

    /// The same of a receive that may still be among what ends with its remote.
    pub(super) fn fill_receive(
        &mut self,
        id: RequestId,
        from: RemoteId,
        bits: MatchBits,
        body: &[u8],
    ) {
        if self.ops.record(id.index()).from_one {
            self.estrange(id);
        }
        self.fill(id.index(), from, bits, body);
    }
}

/// The result of a search among the posted receives.
pub(super) enum Found {
    /// It is for this one, which is in no list now.
    Receive(RequestId),
    /// It matches only a receive for another remote's messages.
    Foreign,
    /// None accepts it.
    Nothing,
}

impl<O: Owner> Core<O> {
    /// The oldest posted receive that accepts a message. One that is for another remote's messages stays
    /// where it is.
    pub(super) fn find_receive(&mut self, from: RemoteId, bits: MatchBits) -> Found {
        let taken = self.posted.take(&mut self.ops, bits);
        let Some(id) = taken.and_then(|place| self.ops.at(place)) else {
            return Found::Nothing;
        };
        let record = self.ops.record(id.index());
        if record.from_one && record.remote != from {
            self.posted.enter(&mut self.ops, id.index());
            return Found::Foreign;
        }
        Found::Receive(id)
    }

    /// The oldest early message that is accepted by a receive for messages from `from`, [`NO_REMOTE`]
    /// for any remote.
    pub(super) fn find_early(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Option<EntryId> {
        loop {
            let early = self.early.front(bits, mask)?;
            if from == NO_REMOTE || self.early.get(early)?.source == from {
                return Some(early);
            }
            self.refuse_early(early);
        }
    }

    /// An early message turns out to be accepted by a receive for another remote's messages.
    #[cold]
    pub(super) fn refuse_early(&mut self, early: EntryId) {
        let Some(source) = self.early.get(early).map(|message| message.source) else {
            return;
        };
        self.finish(early, Status::Aborted);
        // The message of a gone sender may be of an old life.
        if self.remotes.living(source).is_some() {
            self.stats.malformed += 1;
            self.fail_remote(source, DownReason::Protocol(Violation::Foreign));
        }
    }
}

/// Larger than any control packet's body today, so that a later version may append to them.
const CONTROL_BODY_MAX: usize = 128;
