//! What arrives.
//!
//! ```text
//!   header --parse--> session packet?  -> sessions
//!                     message?         -> credit check -> posted receive, owner, or unexpected
//!                     about a request? -> look it up, check it belongs to this partner
//! ```
//!
//! Everything from the wire is checked before it is used. What names a request or partner that is
//! no more is counted and dropped; what no peer of ours would send ends the link.

use super::commands::inbound_status;
use super::introductions::UNASKED;
use super::outbound::{notify_code, notify_status};
use super::{Core, Named, reader};
use crate::event::{Arrival, Outcome, Verdict};
use crate::flow::{self, CREDIT, Paid};
use crate::ids::{LinkId, MatchBits, MatchMask, PartnerId, RequestId};
use crate::matching::{Payload, Waiting};
use crate::memory::{Memory, Source};
use crate::ops::Position;
use crate::ops::{Head, NOBODY, Pulling, State};
use crate::owner::Owner;
use crate::partner::{Life, LinkState};
use crate::port::{Close, HeaderBytes, LinkDown, Place, RemoteKey, RemoteUse, Room, Sink};
use crate::status::{DownReason, Status};
use crate::time::{Clock, Instant};
use crate::wire::{self, Header, OfferBody, PullBody};

/// The endpoint while its port is being polled.
pub(super) struct Inbound<'a, O: Owner, C> {
    pub(super) core: &'a mut Core<O>,
    pub(super) clock: &'a C,
}

/// What becomes of a message that has come.
pub(super) enum Fate {
    /// It goes into this receive.
    Posted(RequestId),
    /// No receive accepts it: what the owner says, or that it has to wait for its turn.
    Judged(Verdict),
    /// Its sender's session is over, and it is dropped.
    Over,
}

impl<O: Owner, C: Clock> Sink<O::Memory> for Inbound<'_, O, C> {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        let partner = self.core.partner_of(link, cookie);
        self.core.link_up(link, partner);
    }

    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        self.core.session_out.forget(link);
        self.core.lose_introduction(link, reason);
        self.core.challenges.forget(link);
        self.core.cut(link);
        let partner = self.core.partner_of(link, cookie);
        self.core.link_down(link, partner, reason);
    }

    #[inline]
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
        body: &B,
    ) {
        self.core.stats.packets_in += 1;
        let header = match Header::parse(bytes) {
            Some(header) if header.body_len as usize == body.len() => header,
            _ => {
                return self
                    .core
                    .violation(link, cookie, "no packet of this protocol");
            }
        };
        let from = self.core.partner_of(link, cookie);
        let Some(partner) = self.core.partners.of_mut(from) else {
            return self.stranger_packet(link, cookie, &header, body);
        };
        if self.core.config.secret.is_some()
            && partner.state_of(link) < Some(LinkState::Proven)
            && !matches!(
                header.kind,
                wire::Kind::Connect | wire::Kind::Reply | wire::Kind::Challenge
            )
        {
            return self.core.distrust(link, from, None, UNASKED);
        }
        if let Life::Met(met) = &mut partner.life {
            met.silent = 0;
            if header.kind.says_terms() {
                if met.borrows.on_terms(&header.terms) && partner.has_pending() {
                    self.core.make_ready(from);
                }
                if header.terms.wanted > 0 {
                    self.core.note_wish(from, &header.terms);
                }
            }
        } else if self.core.introductions.holds(link) {
            return self.core.put_behind(link, cookie, bytes, body);
        } else if matches!(header.kind, wire::Kind::Eager | wire::Kind::Offer) {
            let what = "a message before the handshake";
            return self.core.violation(link, cookie, what);
        }
        match header.kind {
            wire::Kind::Eager => self.eager(link, cookie, from, &header, body),
            wire::Kind::Data => self.data(from, &header, body),
            _ => self.control(link, cookie, from, &header, body),
        }
    }

    fn begin(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
    ) -> Option<Place<'_, O::Memory>> {
        let header = Header::parse(bytes)?;
        if header.kind == wire::Kind::Eager {
            self.begin_streamed(link, cookie, &header)?;
        }
        self.place(link, cookie, bytes)
    }

    fn place(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
    ) -> Option<Place<'_, O::Memory>> {
        let header = Header::parse(bytes)?;
        match header.kind {
            wire::Kind::Data => {}
            wire::Kind::Eager => return self.place_streamed(link),
            _ => return None,
        }
        let from = self.core.partner_of(link, cookie);
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
        if let Some(met) = self.core.partners.met_mut(from) {
            // A packet of which nothing but parts arrives for long.
            met.silent = 0;
        }
        Some(Place {
            memory: Room::Memory(&mut pulling.memory),
            offset: header.length as usize,
        })
    }

    fn on_placed(&mut self, link: LinkId, cookie: u64, bytes: &HeaderBytes) {
        let Some(header) = Header::parse(bytes) else {
            return;
        };
        if header.kind == wire::Kind::Eager {
            return self.end_streamed(link, cookie, bytes, &header);
        }
        self.core.stats.packets_in += 1;
        let from = self.core.partner_of(link, cookie);
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
        let id = self.core.partner_of(link, cookie);
        self.core.open(id, link);
    }

    fn on_released(&mut self, link: LinkId, _cookie: u64, token: u64) {
        let Some(id) = self.core.held.remove(&(link, token)) else {
            return;
        };
        let Some(record) = self.core.ops.get_mut(id) else {
            return;
        };
        record.touched = true;
        // It was one packet.
        if let State::Draining { memory, .. } = &record.state {
            let len = memory.len() as u32;
            self.core.complete(id, Status::Success, len);
        }
    }

    fn on_remote_activity(&mut self, _link: LinkId, _cookie: u64, what: RemoteUse) {
        let id = match what {
            RemoteUse::Reading(token) => reader(token),
            RemoteUse::Exposed(token) => Some(RequestId::from_word(token)),
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
        if let State::Offered { exposed, .. } = record.state {
            record.become_next(|memory| State::Serving { memory, exposed });
            self.core.serving(id, self.clock);
        }
        if let Some(met) = self.core.partners.met_mut(from) {
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
        if pulling.withdrawn {
            return self.core.unmatch(id, self.clock.now());
        }
        // Where reading failed, the ordinary way is taken.
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
        if self.core.is_closing(link) {
            // What comes behind a breach of the rules, or by whom was turned away, begins nothing.
            self.core.stats.stale += 1;
        } else if header.kind == wire::Kind::Confirmed
            && self.core.introductions.confirmed(link, header.length == 1)
        {
        } else if cookie != 0 {
            // A partner that has been disconnected while this was under way.
            self.core.stats.stale += 1;
        } else if header.kind == wire::Kind::Connect {
            self.core.on_connect(link, None, header, &body.to_vec());
        } else if header.kind == wire::Kind::Confirm {
            self.core.on_confirm(link, &body.to_vec());
        } else if header.kind == wire::Kind::Prove {
            self.core.on_prove(link, &body.to_vec());
        } else {
            self.core
                .violation(link, cookie, "a message before the handshake");
        }
    }

    /// What the header of a body that has been placed says about credits.
    #[inline]
    pub(super) fn heed(&mut self, from: PartnerId, header: &Header) {
        if let Some(met) = self.core.partners.met_mut(from) {
            if met.borrows.on_terms(&header.terms) {
                self.core.make_ready(from);
            }
            if header.terms.wanted > 0 {
                self.core.note_wish(from, &header.terms);
            }
        }
    }

    #[inline]
    fn eager<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        from: PartnerId,
        header: &Header,
        body: &B,
    ) {
        let len = header.body_len;
        if header.length != len {
            return self
                .core
                .violation(link, cookie, "a message of another length");
        }
        let paid = match self.core.received(from, header.aux, flow::cost(len)) {
            Ok(received) => received,
            Err(violation) => return self.core.violation(link, cookie, violation.text()),
        };
        let fate = self.fate(link, from, header, paid, Some(body));
        self.carry_out(fate, from, MatchBits(header.word), paid, body);
    }

    /// Does with a message that is here what has become of it.
    #[inline]
    pub(super) fn carry_out<B: Source + ?Sized>(
        &mut self,
        fate: Fate,
        from: PartnerId,
        bits: MatchBits,
        paid: Paid,
        body: &B,
    ) {
        let deferred = match fate {
            Fate::Posted(id) => {
                self.core.consumed(from, paid);
                return self.core.fill_receive(id, from, bits, body);
            }
            Fate::Over => return,
            Fate::Judged(Verdict::Finished) => return self.core.consumed(from, paid),
            Fate::Judged(Verdict::Inbox { turn }) => {
                return self.core.put_in(turn, (from, bits), paid, body);
            }
            Fate::Judged(Verdict::Continue) => false,
            Fate::Judged(Verdict::Defer) => true,
        };
        let waiting = Waiting {
            source: from,
            bits,
            // It came in a packet.
            length: body.len() as u32,
            slot: paid.slot(),
            payload: Payload::Eager(body.to_vec()),
        };
        self.core.keep(waiting, deferred);
    }

    fn offer(&mut self, link: LinkId, cookie: u64, from: PartnerId, header: &Header, body: &[u8]) {
        let Some(OfferBody { send_id, key }) = OfferBody::parse(body) else {
            return self.core.violation(link, cookie, "a malformed offer");
        };
        let paid = match self.core.received(from, header.aux, 1) {
            Ok(received) => received,
            Err(violation) => return self.core.violation(link, cookie, violation.text()),
        };
        let bits = MatchBits(header.word);
        let deferred = match self.fate::<[u8]>(link, from, header, paid, None) {
            Fate::Posted(id) => {
                self.core.consumed(from, paid);
                let offer = (send_id, key);
                let now = self.clock.now();
                return self
                    .core
                    .match_offer(id, from, offer, bits, header.length, now);
            }
            Fate::Over => return,
            Fate::Judged(Verdict::Finished) => {
                let told = inbound_status(0, header.length);
                self.core.consumed(from, paid);
                return self.core.finish_offer(from, send_id, told);
            }
            Fate::Judged(Verdict::Inbox { turn }) => {
                let what = (from, bits, header.length);
                return self.core.put_in_offer(turn, what, paid, (send_id, key));
            }
            Fate::Judged(Verdict::Continue) => false,
            Fate::Judged(Verdict::Defer) => true,
        };
        let waiting = Waiting {
            source: from,
            bits,
            length: header.length,
            slot: paid.slot(),
            payload: Payload::Offer { send_id, key },
        };
        self.core.keep(waiting, deferred);
    }

    /// What becomes of a message whose sender had credit for it. `body`: `None` of one that was offered.
    #[inline]
    pub(super) fn fate<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        from: PartnerId,
        header: &Header,
        paid: Paid,
        body: Option<&B>,
    ) -> Fate {
        let bits = MatchBits(header.word);
        // What has been deferred is not overtaken, by nothing.
        let defers = !self.core.undecided.is_empty();
        if !defers {
            match self.core.find_receive(from, bits) {
                Found::Receive(id) => {
                    self.core.stats.matched += 1;
                    return Fate::Posted(id);
                }
                Found::Foreign => {
                    self.core.consumed(from, paid);
                    self.core.violation(link, from.to_word(), FOREIGN);
                    return Fate::Over;
                }
                Found::Nothing => {}
            }
        }
        self.core.stats.unmatched += 1;
        if !self.core.has_room() {
            self.core.consumed(from, paid);
            self.core.out_of_room(link, from);
            return Fate::Over;
        }
        if defers {
            return Fate::Judged(Verdict::Defer);
        }
        match self.core.arrival(from, bits, header.length) {
            Some(arrival) => Fate::Judged(self.core.owner.arrived(&arrival, body)),
            None => Fate::Over,
        }
    }

    fn data<B: Source + ?Sized>(&mut self, from: PartnerId, header: &Header, body: &B) {
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
        from: PartnerId,
        header: &Header,
        body: &B,
    ) {
        if body.len() > CONTROL_BODY_MAX {
            return self
                .core
                .violation(link, cookie, "an oversized control packet");
        }
        let mut bytes = [0; CONTROL_BODY_MAX];
        let bytes = &mut bytes[..body.len()];
        body.copy_to(0, bytes);
        match header.kind {
            wire::Kind::Connect => self.core.on_connect(link, Some(from), header, bytes),
            wire::Kind::Reply => self.core.on_reply(link, from, header, bytes),
            wire::Kind::Offer => self.offer(link, cookie, from, header, bytes),
            wire::Kind::Pull => match PullBody::parse(bytes) {
                Some(pull) => self.core.on_pull(from, header, pull, self.clock),
                None => self.core.violation(link, cookie, "a malformed pull"),
            },
            wire::Kind::Notify => self.core.on_notify(from, header),
            wire::Kind::Withdraw => self.core.on_withdraw(from, header, self.clock.now()),
            wire::Kind::Disconnect => self.core.part_from(from, DownReason::Disconnected),
            wire::Kind::Ping => self.core.on_ping(from, header.word),
            wire::Kind::Pong => self.core.introductions.answered(from, header.word),
            // That it has come is all it says.
            wire::Kind::Credit => {}
            wire::Kind::Confirm | wire::Kind::Confirmed => {
                let what = "a question that is for strangers";
                self.core.violation(link, cookie, what);
            }
            wire::Kind::Challenge => self.core.on_challenge(link, from, bytes),
            wire::Kind::Prove => {
                let what = "a proof that nobody has asked for";
                self.core.violation(link, cookie, what);
            }
            wire::Kind::Revoke => self.core.on_revoke(from, header),
            wire::Kind::Return => self.core.on_return(link, cookie, from, header),
            // These two never get here; see `on_packet`.
            wire::Kind::Eager | wire::Kind::Data => {}
        }
    }
}

impl<O: Owner> Core<O> {
    /// Whose link it is. One that has changed hands during the same poll has another cookie yet, or
    /// none, and one that is about to be closed is nobody's.
    #[inline]
    pub(super) fn partner_of(&self, link: LinkId, cookie: u64) -> PartnerId {
        let id = PartnerId::from_word(cookie);
        match self.partners.of(id) {
            Some(partner) if partner.owns(link) => id,
            _ => self.partner_bound(link),
        }
    }

    #[cold]
    fn partner_bound(&self, link: LinkId) -> PartnerId {
        let bound = self.errands.iter().rev().find_map(|errand| match errand {
            super::Errand::Bind(to, cookie) if *to == link => Some(PartnerId::from_word(*cookie)),
            _ => None,
        });
        let owns = |id: &PartnerId| self.partners.of(*id).is_some_and(|of| of.owns(link));
        bound.filter(owns).unwrap_or(NOBODY)
    }

    /// Is the link to be closed as soon as the port is not being polled, or has sent its last packet?
    fn is_closing(&self, link: LinkId) -> bool {
        let closes = |errand: &super::Errand<O::Memory>| matches!(errand, super::Errand::Close(of, _) if *of == link);
        self.session_out.ends(link) || self.errands.iter().any(closes)
    }

    /// Keeps a packet behind an answer whose sender is still being looked at: no more of them than we
    /// have promised to take.
    #[cold]
    fn put_behind<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        bytes: &HeaderBytes,
        body: &B,
    ) {
        let from = self.partner_of(link, cookie);
        if self.may_put_behind(link, from, body.len() as u32) {
            self.introductions.put_behind(link, bytes, body);
        } else {
            self.violation(link, cookie, TOO_MUCH_BEHIND);
        }
    }

    /// May a packet with a body of that length be kept there?
    pub(super) fn may_put_behind(&self, link: LinkId, from: PartnerId, len: u32) -> bool {
        let partner = self.partners.of(from);
        let opening = partner.map_or(0, |partner| partner.opening as usize);
        let most = (opening + 2) * CREDIT + 64 * 256;
        self.introductions.bytes_behind(link, len as usize) <= most
    }

    /// The peer does not speak our protocol: its link, and with it the partner, ends.
    #[cold]
    pub(super) fn violation(&mut self, link: LinkId, cookie: u64, what: &'static str) {
        self.stats.malformed += 1;
        self.forget_introduction(link);
        let partner = self.partner_of(link, cookie);
        log::debug!("link {link:?}: {what}; closing it");
        self.errands.push(super::Errand::Close(link, Close::Now));
        self.fail_partner(partner, DownReason::Protocol(what));
    }

    /// Is there memory for a message that no receive accepts?
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        !self.config.supply.is_dire() && {
            let waiting = self.unexpected.len() + self.undecided.len() + self.inbox.len();
            self.messages.covers(waiting)
        }
    }

    /// There is no memory for a message, which cannot be left out: its sender's session ends, and may
    /// begin anew.
    #[cold]
    pub(super) fn out_of_room(&mut self, link: LinkId, from: PartnerId) {
        self.stats.out_of_memory += 1;
        self.errands.push(super::Errand::Close(link, Close::Now));
        self.fail_partner(from, DownReason::NoMemory);
    }

    pub(super) fn arrival(
        &self,
        source: PartnerId,
        bits: MatchBits,
        length: u32,
    ) -> Option<Arrival> {
        let partner = self.partners.of(source)?;
        let (source_context, identity) = (partner.context, partner.identity());
        Some(Arrival {
            source,
            source_context,
            identity,
            bits,
            length,
        })
    }

    /// The whole of a message goes into a receive that is in no list.
    #[inline]
    pub(super) fn fill_receive<B: Source + ?Sized>(
        &mut self,
        id: RequestId,
        from: PartnerId,
        bits: MatchBits,
        body: &B,
    ) {
        let record = self.ops.record_mut(id.index());
        let length = body.len() as u32;
        let memory = record.state.memory_mut();
        let transferred = memory.map_or(0, |memory| memory.fill(0, body.len(), body, 0));
        if let Some(timer) = record.timer.take() {
            self.wheel.clear(timer);
        }
        if record.from_one {
            self.estrange(id);
        }
        if self.ops.finish(id) {
            let transferred = transferred as u32;
            let status = inbound_status(transferred, length);
            let outcome = Outcome::received(status, from, bits, transferred, length);
            self.owner.completed(&mut self.ops, id, outcome);
        }
    }

    /// A message that `from` has offered goes into a receive that is in no list.
    pub(super) fn match_offer(
        &mut self,
        id: RequestId,
        from: PartnerId,
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
    pub(super) fn begin_pull(&mut self, id: RequestId, from: PartnerId, now: Instant) {
        let reach = self.partners.reach(from);
        let State::Pulling(pulling) = &mut self.ops.record_mut(id.index()).state else {
            return;
        };
        if !reach.remote_read {
            pulling.key = None;
        }
        self.names.insert((from, pulling.send_id), Named::Pull(id));
        if !self.ops.record(id.index()).from_one {
            self.befriend(id, from);
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
            let mut header = Header::new(wire::Kind::Notify, send_id, pulling.received);
            let status = inbound_status(pulling.received, pulling.length);
            header.aux = notify_code(status);
            let received = pulling.received;
            self.complete(id, status, received);
            return self.push_control(from, header, &[]);
        }
        if pulling.key.is_some() {
            if pulling.requested == 0 {
                pulling.requested = pulling.wanted;
                self.errands.push(super::Errand::Read(id));
            }
            return;
        }
        let block = self.partners.reach(from).pull_block;
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

    fn on_notify(&mut self, from: PartnerId, header: &Header) {
        let id = RequestId::from_word(header.word);
        if let Some(record) = self.ops.get(id)
            && record.remote == from
            && let State::Offered { .. } | State::Serving { .. } = record.state
            && header.length <= record.state.room()
        {
            self.complete(id, notify_status(header.aux), header.length);
        } else {
            self.stats.stale += 1;
        }
    }

    /// The sender calls an offered message off. A receive that had matched it goes back to where
    /// it was, as if the message had never been.
    fn on_withdraw(&mut self, from: PartnerId, header: &Header, now: Instant) {
        let unmatched = self.unexpected.withdraw(from, header.word);
        if let Some(waiting) = unmatched.or_else(|| self.undecided.withdraw(from, header.word)) {
            return self.consumed(from, waiting.paid());
        }
        let id = match self.names.get(&(from, header.word)).copied() {
            Some(Named::Pull(id)) => id,
            Some(Named::Inbox(place)) => return self.throw_away(place),
            None => {
                self.stats.stale += 1;
                return;
            }
        };
        if let Some(State::Pulling(pulling)) = self.ops.get_mut(id).map(|record| &mut record.state)
            && pulling.reading
        {
            // The port still writes into its memory; it reports when it has stopped.
            pulling.withdrawn = true;
            return;
        }
        self.unmatch(id, now);
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
        if self.names.get(&name) == Some(&Named::Pull(id)) {
            self.names.remove(&name);
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
        if let Some(waiting) = self.take_early(from, bits, position.mask) {
            return self.fill_waiting(id, waiting, now);
        }
        // Somebody else's link may have ended, but not its own remote's.
        let record = self.ops.record_mut(id.index());
        record.become_next(|memory| State::Posted {
            memory,
            position,
            head: Head::NONE,
        });
        self.posted.enter(&mut self.ops, id);
        self.start_timer(id, now);
    }
}

/// What the posted receives say to a message.
pub(super) enum Found {
    /// It is for this one, which is in no list now.
    Receive(RequestId),
    /// Its bits are those of a receive from somebody else.
    Foreign,
    /// None accepts it.
    Nothing,
}

/// What no peer does: the names that make up match bits are given to one remote each.
pub(super) const FOREIGN: &str = "a message that a receive from somebody else accepts";

impl<O: Owner> Core<O> {
    /// The oldest posted receive that accepts a message. One that is for another remote's messages stays
    /// where it is.
    #[inline(always)]
    pub(super) fn find_receive(&mut self, from: PartnerId, bits: MatchBits) -> Found {
        let Some(id) = self.posted.take(&mut self.ops, bits) else {
            return Found::Nothing;
        };
        let record = self.ops.record(id.index());
        if record.from_one && record.remote != from {
            self.posted.enter(&mut self.ops, id);
            return Found::Foreign;
        }
        Found::Receive(id)
    }

    /// The oldest message that is here and accepted by a receive of messages from `from`, [`NOBODY`] for
    /// anybody's.
    pub(super) fn take_early(
        &mut self,
        from: PartnerId,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Option<Waiting> {
        loop {
            let waiting = self.unexpected.take(bits, mask)?;
            if from == NOBODY || waiting.source == from {
                return Some(waiting);
            }
            self.refuse_early(&waiting);
        }
    }

    /// A message that has come before its receive turns out to be from somebody else than it should be.
    #[cold]
    pub(super) fn refuse_early(&mut self, waiting: &Waiting) {
        let source = waiting.source;
        self.finish(waiting, Status::Aborted);
        // Of whoever has gone it may be an old life's.
        if self.partners.living(source).is_some() {
            self.stats.malformed += 1;
            self.fail_partner(source, DownReason::Protocol(FOREIGN));
        }
    }
}

impl<M> Pulling<M> {
    /// Is this the next part of the message?
    fn accepts(&self, header: &Header) -> bool {
        header.length == self.received
            && header.body_len != 0
            && header.body_len <= self.requested - self.received
            && self.key.is_none()
    }
}

/// What no peer does: it was told how much that may be.
pub(super) const TOO_MUCH_BEHIND: &str = "more behind its introduction than was allowed";

/// Larger than any control packet's body today, so that a later version may append to them.
const CONTROL_BODY_MAX: usize = 128;
