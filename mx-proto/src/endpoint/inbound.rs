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

use super::commands::inbound_status;
use super::early::filled;
use super::introductions::Distrust;
use super::outbound::notify_status;
use super::{Core, reader};
use crate::early::{self, Early, Named, Stage};
use crate::event::{Arrival, Outcome, Verdict};
use crate::flow::{self, Paid};
use crate::ids::{EntryId, LinkId, MatchBits, MatchMask, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::Position;
use crate::ops::{Head, NO_REMOTE, Pulling, State, Strand};
use crate::owner::Owner;
use crate::port::{Close, Destination, HeaderBytes, LinkDown, Place, RemoteKey, RemoteUse, Sink};
use crate::remote::{Life, LinkState, Remote};
use crate::status::{DownReason, Status, Violation};
use crate::time::{Clock, Instant};
use crate::wire::{self, Header, OfferBody, PullBody};

/// The endpoint while its port is being polled.
pub(super) struct Inbound<'a, O: Owner, C> {
    pub(super) core: &'a mut Core<O>,
    pub(super) clock: &'a C,
}

impl<O: Owner, C: Clock> Sink<O::Memory> for Inbound<'_, O, C> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        let remote = self.core.remote_of(link, cookie);
        self.core.link_up(link, remote);
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        self.core.log_silent(link, reason);
        let cut = self.core.forget_link(link);
        let remote = self.core.remote_of(link, cookie);
        self.core.link_down(link, remote, reason);
        self.core.lose(cut, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
        body: &B,
    ) {
        let core = &mut *self.core;
        core.stats.packets_in += 1;
        let header = match Header::parse(bytes) {
            Some(header) if header.body_len as usize == body.len() => header,
            _ => return core.violation(link, cookie, Violation::NotOurs),
        };
        let mut from = RemoteId::from_word(cookie);
        let mut remote = match core.remotes.of_mut(from) {
            Some(remote) if remote.owns(link) => remote,
            _ => {
                from = core.remote_bound(link);
                match core.remotes.of_mut(from) {
                    Some(remote) => remote,
                    None => return self.stranger_packet(link, cookie, &{ header }, body),
                }
            }
        };
        if core.config.secret.is_some()
            && remote.state_of(link) < Some(LinkState::Proven)
            && !matches!(
                header.kind,
                wire::Kind::Connect | wire::Kind::Reply | wire::Kind::Challenge
            )
        {
            return core.distrust(from, None, Distrust::Unasked);
        }
        if let Life::Met(met) = &mut remote.life {
            met.silent = 0;
            if met.asks.is_some() && matches!(header.kind, wire::Kind::Eager | wire::Kind::Offer) {
                core.use_while_asked(from);
                match core.remotes.of_mut(from) {
                    Some(again) => remote = again,
                    None => return,
                }
            }
            let Life::Met(met) = &mut remote.life else {
                return;
            };
            if header.kind.has_credit_fields() {
                if met.borrows.on_credit_fields(&header.credit_fields)
                    && remote.has_pending()
                    && remote.takes_turn()
                {
                    core.ready.push_back(from);
                }
                if header.credit_fields.wanted > 0 {
                    core.note_request(from, &{ header.credit_fields });
                    match core.remotes.of_mut(from) {
                        Some(again) => remote = again,
                        None => return,
                    }
                }
            }
        } else if matches!(header.kind, wire::Kind::Eager | wire::Kind::Offer) {
            return core.violation(link, cookie, Violation::TooEarly);
        }
        if header.kind != wire::Kind::Eager {
            return match header.kind {
                wire::Kind::Data => self.data(from, &{ header }, body),
                _ => self.control(link, cookie, from, &{ header }, body),
            };
        }
        let len = header.body_len;
        if header.length != len {
            return core.violation(link, cookie, Violation::Length);
        }
        let paid = match Paid::of(header.aux, flow::cost(len)) {
            Ok(paid) => paid,
            Err(violation) => return core.violation(link, cookie, violation),
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
            Err(violation) => return core.violation(link, cookie, violation),
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
        self.unmatched(link, from, &{ header }, paid, body);
    }

    fn place(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
        begin: bool,
    ) -> Option<Place<'_, O::Memory>> {
        let header = Header::parse(bytes)?;
        match header.kind {
            wire::Kind::Data => {}
            wire::Kind::Eager if begin => return self.begin_streamed(link, cookie, &header),
            wire::Kind::Eager => return self.place_streamed(link),
            _ => return None,
        }
        let from = self.core.remote_of(link, cookie);
        if !self.core.trusts(link, from) {
            return None;
        }
        let id = RequestId::from_word(header.word);
        let record = self.core.ops.get_mut(id)?;
        let State::Pulling(pulling) = &mut record.state else {
            return None;
        };
        if record.remote != from || !pulling.accepts(&header) {
            return None;
        }
        record.touched = true;
        if let Some(met) = self.core.remotes.met_mut(from) {
            // A packet of which nothing but parts arrives for long.
            met.silent = 0;
        }
        Some(Place {
            memory: Destination::Memory(&mut pulling.memory),
            offset: header.length as usize,
        })
    }

    fn on_placed(&mut self, link: LinkId, cookie: u64, bytes: &HeaderBytes) {
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        if header.kind == wire::Kind::Eager {
            return self.end_streamed(link, &header);
        }
        self.core.stats.packets_in += 1;
        let from = self.core.remote_of(link, cookie);
        self.heed(from, &header);
        let id = RequestId::from_word(header.word);
        if let Some(record) = self.core.ops.get_mut(id)
            && record.remote == from
            && let State::Pulling(pulling) = &mut record.state
            && pulling.accepts(&header)
        {
            pulling.received += header.body_len;
            self.core.continue_pull(id);
        } else {
            self.core.stats.stale += 1;
        }
    }

    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        let id = self.core.remote_of(link, cookie);
        self.core.open(id, link);
    }

    fn on_remote_activity(&mut self, _link: LinkId, _cookie: u64, what: RemoteUse) {
        let id = match what {
            RemoteUse::Reading(token) => reader(token),
            RemoteUse::Registered(token) => Some(RequestId::from_word(token)),
        };
        let Some(id) = id else { return };
        let Some(record) = self.core.ops.get_mut(id) else {
            return;
        };
        if matches!(what, RemoteUse::Reading(_)) && !record.state.is_reading() {
            return;
        }
        record.touched = true;
        let from = record.remote;
        if let State::Offered { registered, .. } = record.state {
            record.become_next(|memory| State::Serving { memory, registered });
            self.core.serving(id, self.clock);
        }
        if let Some(met) = self.core.remotes.met_mut(from) {
            met.silent = 0;
        }
    }

    fn on_remote_read(&mut self, _link: LinkId, _cookie: u64, token: u64, ok: bool) {
        let id = reader(token).filter(|id| {
            let record = self.core.ops.get(*id);
            record.is_some_and(|record| record.state.is_reading())
        });
        let record = id.and_then(|id| Some((id, self.core.ops.get_mut(id)?)));
        let Some((id, record)) = record else {
            self.core.stats.stale += 1;
            return;
        };
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        (pulling.key, pulling.reading) = (None, false);
        if let Some(answer) = pulling.withdrawn.take() {
            let (from, send_id) = (record.remote, pulling.send_id);
            self.core.unmatch(id, self.clock.now());
            if answer {
                let told = Status::Aborted;
                self.core.finish_offer(from, send_id, 0, told);
            }
            return;
        }
        // If reading failed, Pull is used instead.
        pulling.requested = if ok { pulling.wanted } else { 0 };
        pulling.received = pulling.requested;
        self.core.continue_pull(id);
    }
}

impl<O: Owner, C: Clock> Inbound<'_, O, C> {
    #[cold]
    fn stranger_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &Header,
        body: &B,
    ) {
        if self.core.changing.get(&link) == Some(&NO_REMOTE) {
            // Packets after a violation or a refusal are ignored.
            self.core.stats.stale += 1;
        } else if cookie != 0 {
            // A remote that has been disconnected while this was under way.
            self.core.stats.stale += 1;
        } else if header.kind == wire::Kind::Connect {
            self.core.on_connect(link, None, header, &body.to_vec());
        } else if header.kind == wire::Kind::Prove {
            self.core.on_prove(link, &body.to_vec());
        } else {
            self.core.violation(link, cookie, Violation::TooEarly);
        }
    }

    /// Reads the credit fields of the header of a placed body.
    pub(super) fn heed(&mut self, from: RemoteId, header: &Header) {
        if let Some(met) = self.core.remotes.met_mut(from) {
            if met.borrows.on_credit_fields(&header.credit_fields) {
                self.core.make_ready(from);
            }
            if header.credit_fields.wanted > 0 {
                self.core.note_request(from, &{ header.credit_fields });
            }
        }
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

    fn offer(&mut self, link: LinkId, cookie: u64, from: RemoteId, header: &Header, body: &[u8]) {
        let Some(OfferBody { send_id, key }) = OfferBody::parse(body) else {
            return self.core.violation(link, cookie, Violation::Offer);
        };
        let paid = match self.core.received(from, header.aux, 1) {
            Ok(received) => received,
            Err(violation) => return self.core.violation(link, cookie, violation),
        };
        let bits = MatchBits(header.word);
        if self.core.early.undecided() == 0 {
            match self.core.find_receive(from, bits) {
                Found::Receive(id) => {
                    self.core.stats.matched += 1;
                    self.core.consumed(from, paid);
                    let (offer, now) = ((send_id, key), self.clock.now());
                    return self
                        .core
                        .match_offer(id, from, offer, bits, header.length, now);
                }
                Found::Foreign => return self.foreign(link, from, paid),
                Found::Nothing => {}
            }
        }
        if !self.has_room(link, from, paid) {
            return;
        }
        let what = (from, bits, header.length);
        let message = Early::new(what, paid, Some(send_id), early::Body::There(key));
        let id = self.core.early.add(message);
        let verdict = self.judge::<[u8]>(what, None);
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
        self.core
            .violation(link, from.to_word(), Violation::Foreign);
    }

    fn data<B: Source + ?Sized>(&mut self, from: RemoteId, header: &Header, body: &B) {
        let id = RequestId::from_word(header.word);
        if let Some(record) = self.core.ops.get_mut(id)
            && record.remote == from
            && let State::Pulling(pulling) = &mut record.state
            && pulling.accepts(header)
        {
            let memory = &mut pulling.memory;
            memory.fill(header.length as usize, body.len(), body, 0);
            pulling.received += header.body_len;
            record.touched = true;
            self.core.continue_pull(id);
        } else {
            self.core.stats.stale += 1;
        }
    }

    fn control<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        from: RemoteId,
        header: &Header,
        body: &B,
    ) {
        if body.len() > CONTROL_BODY_MAX {
            return self.core.violation(link, cookie, Violation::Oversized);
        }
        let mut bytes = [0; CONTROL_BODY_MAX];
        let bytes = &mut bytes[..body.len()];
        body.copy_to(0, bytes);
        match header.kind {
            wire::Kind::Connect => self.core.on_connect(link, Some(from), header, bytes),
            wire::Kind::Reply => self
                .core
                .on_reply(link, from, header, bytes, self.clock.now()),
            wire::Kind::Offer => self.offer(link, cookie, from, header, bytes),
            wire::Kind::Pull => match PullBody::parse(bytes) {
                Some(pull) => self.core.on_pull(from, header, pull, self.clock),
                None => self.core.violation(link, cookie, Violation::Pull),
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
                self.core.violation(link, cookie, Violation::Proof);
            }
            wire::Kind::Revoke => self.core.on_revoke(from, header),
            wire::Kind::Return => self.core.on_return(link, cookie, from, header),
            // These two never get here; see `on_packet`.
            wire::Kind::Eager | wire::Kind::Data => {}
        }
    }
}

impl<O: Owner> Core<O> {
    /// The remote of a link. A link that has been bound anew during the same poll still has its old
    /// cookie, or none; one that is about to be closed has no remote.
    #[inline]
    pub(super) fn remote_of(&self, link: LinkId, cookie: u64) -> RemoteId {
        let id = RemoteId::from_word(cookie);
        match self.remotes.of(id) {
            Some(remote) if remote.owns(link) => id,
            _ => self.remote_bound(link),
        }
    }

    #[cold]
    fn remote_bound(&self, link: LinkId) -> RemoteId {
        let bound = self.changing.get(&link).copied();
        let owns = |id: &RemoteId| self.remotes.of(*id).is_some_and(|of| of.owns(link));
        bound.filter(owns).unwrap_or(NO_REMOTE)
    }

    /// The peer does not speak our protocol: its link, and with it the remote, ends.
    #[cold]
    pub(super) fn violation(&mut self, link: LinkId, cookie: u64, what: Violation) {
        self.stats.malformed += 1;
        self.forget_introduction(link);
        let remote = self.remote_of(link, cookie);
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

    /// A message that `from` has offered goes into a receive that is in no list.
    pub(super) fn match_offer(
        &mut self,
        id: RequestId,
        from: RemoteId,
        offer: (u64, Option<RemoteKey>),
        bits: MatchBits,
        length: u32,
        now: Instant,
    ) {
        let record = self.ops.record_mut(id.index());
        let position = record.state.position();
        record.become_next(|memory| {
            State::Pulling(Pulling::new(memory, offer, bits, length, position))
        });
        self.begin_pull(id, from, now);
    }

    /// The data of a receive that has become `Pulling` is on its way, or will be.
    pub(super) fn begin_pull(&mut self, id: RequestId, from: RemoteId, now: Instant) {
        let reach = self.remotes.reach(from);
        let State::Pulling(pulling) = &mut self.ops.record_mut(id.index()).state else {
            return;
        };
        if !reach.remote_read {
            pulling.key = None;
        }
        if pulling.fetch.is_none() {
            let name = (from, pulling.send_id);
            self.early.names.insert(name, Named::Pull(id));
        }
        if !self.ops.record(id.index()).from_one {
            self.attach_op(id, from);
        }
        self.start_timer(id, now);
        self.continue_pull(id);
    }

    /// Asks for more of a message, or finishes it.
    pub(super) fn continue_pull(&mut self, id: RequestId) {
        let Some(record) = self.ops.get_mut(id) else {
            return;
        };
        let from = record.remote;
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        let send_id = pulling.send_id;
        if pulling.received == pulling.wanted {
            let status = inbound_status(pulling.received, pulling.length);
            let received = pulling.received;
            // The sender is told when it has been decided what becomes of it.
            let message = pulling.fetch.and_then(|it| self.early.at(it.place()));
            let undecided = message.is_some_and(|(_, it)| it.stage == Stage::Undecided);
            self.complete(id, status, received);
            if !undecided {
                self.finish_offer(from, send_id, received, status);
            }
            return;
        }
        if pulling.key.is_some() {
            if pulling.requested == 0 {
                pulling.requested = pulling.wanted;
                self.actions.push(super::DeferredAction::Read(id));
            }
            return;
        }
        let block = self.remotes.reach(from).pull_block;
        while let Some(State::Pulling(pulling)) =
            self.ops.get_mut(id).map(|record| &mut record.state)
            && pulling.requested < pulling.wanted
            && pulling.requested - pulling.received < block.saturating_mul(2)
        {
            let at = pulling.requested;
            let len = block.min(pulling.wanted - at);
            pulling.requested += len;
            let body = PullBody {
                recv_id: id.to_word(),
                len,
            }
            .emit();
            self.push_control(from, Header::new(wire::Kind::Pull, send_id, at), &body);
        }
    }

    fn on_notify(&mut self, from: RemoteId, header: &Header) {
        let id = RequestId::from_word(header.word);
        if let Some(record) = self.ops.get(id)
            && record.remote == from
            && let State::Offered { .. } | State::Serving { .. } | State::Withdrawn { .. } =
                record.state
            && header.length <= record.state.room()
        {
            self.complete(id, notify_status(header.aux), header.length);
        } else {
            self.stats.stale += 1;
        }
    }

    /// The sender calls an offered message off. A receive that had matched it goes back to where
    /// it was, as if the message had never been.
    fn on_withdraw(&mut self, from: RemoteId, header: &Header, now: Instant) {
        let (send_id, answer) = (header.word, header.aux == wire::ANSWER);
        let Some(named) = self.early.names.get(&(from, send_id)).copied() else {
            // It has been answered already.
            self.stats.stale += 1;
            return;
        };
        let op = match named {
            Named::Pull(op) => Some(op),
            Named::Early(id) => self.early.get(id).and_then(Early::fetch),
        };
        if let Some(op) = op {
            if self.stops_reading(op, from, answer) {
                return;
            }
            self.unmatch(op, now);
        }
        if let Named::Early(id) = named {
            self.take_out(id);
        }
        if answer {
            self.finish_offer(from, send_id, 0, Status::Aborted);
        }
    }

    /// A message that is called off, and that the port may be reading into its receive's memory: it reports when
    /// it has stopped. False: it does not read it.
    fn stops_reading(&mut self, id: RequestId, from: RemoteId, answer: bool) -> bool {
        let state = self.ops.get_mut(id).map(|record| &mut record.state);
        let Some(State::Pulling(pulling)) = state.filter(|state| state.is_reading()) else {
            return false;
        };
        pulling.withdrawn = Some(answer);
        if let Some(link) = self.remotes.of(from).and_then(Remote::tx_link) {
            let token = super::read_token(id);
            self.actions
                .push(super::DeferredAction::StopReading(link, token));
        }
        true
    }

    /// Undoes the match of a receive with a message that will not come.
    fn unmatch(&mut self, id: RequestId, now: Instant) {
        let Some(record) = self.ops.get_mut(id) else {
            return;
        };
        let State::Pulling(pulling) = &record.state else {
            return;
        };
        let Some(position) = pulling.position else {
            return self.complete(id, Status::Cancelled, 0);
        };
        let name = (record.remote, pulling.send_id);
        record.touched = false;
        let from_one = record.from_one;
        if self.early.names.get(&name) == Some(&Named::Pull(id)) {
            self.early.names.remove(&name);
        }
        if !from_one {
            self.estrange(id);
        }
        self.repost(id, position, now);
    }

    /// A receive whose message was withdrawn waits again, unless another message has come
    /// meanwhile that it would have taken. Those that are undecided find it when it is their turn.
    fn repost(&mut self, id: RequestId, position: Position, now: Instant) {
        let record = self.ops.record(id.index());
        let (from, bits) = (record.remote, record.bits);
        if let Some(early) = self.find_early(from, bits, position.mask) {
            return self.fill_early(id, early, now);
        }
        // The link of another remote may have ended, but not that of the receive's own.
        let record = self.ops.record_mut(id.index());
        record.become_next(|memory| State::Posted {
            memory,
            position,
            head: Head::NONE,
        });
        self.posted.enter(&mut self.ops, id.index());
        self.start_timer(id, now);
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

impl<M> Pulling<M> {
    /// Whether this is the next part of the message.
    fn accepts(&self, header: &Header) -> bool {
        header.length == self.received
            && header.body_len != 0
            && header.body_len <= self.requested - self.received
            && self.key.is_none()
    }
}

/// Larger than any control packet's body today, so that a later version may append to them.
const CONTROL_BODY_MAX: usize = 128;
