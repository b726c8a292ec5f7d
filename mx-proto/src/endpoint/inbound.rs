//! Events of the port: incoming packets and changes of links.
//!
//! ```text
//!   header --parse--> session packet?  -> sessions
//!                     message?         -> credit check -> posted receive, owner, or unexpected
//!                     about a request? -> look it up, check it belongs to this remote
//! ```
//!
//! Everything from the wire is checked before use. A packet about an ended request or remote is counted and dropped; a
//! protocol violation ends the link.

use super::Endpoint;
use super::commands::inbound_status;
use super::deadlines::Deadline;
use super::introductions::Distrust;
use super::unexpected::filled;
use crate::event::{Arrival, Outcome, Verdict};
use crate::flow::{self, Payment};
use crate::ids::{EntryId, LinkId, MatchBits, MatchMask, RemoteId, RequestId};
use crate::memory::Source;
use crate::ops::{ListKind, NO_REMOTE, Ops};
use crate::owner::{Events, Owner};
use crate::port::{Close, HeaderBytes, Port};
use crate::remote::{COMMAND_LINK, LinkState, RemoteState};
use crate::round::PortEvent;
use crate::status::{DownReason, Status, Violation};
use crate::time::Clock;
use crate::timer::{TimerId, Wheel};
use crate::unexpected::{self, UnexpectedMessage};
use crate::wire::{self, ClaimBody, Header, PullBody};

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Handles an event of the port other than a packet ([`Self::on_packet`]).
    #[cold]
    #[inline(never)]
    pub(super) fn on_event(&mut self, event: PortEvent) {
        match event {
            PortEvent::Packet { .. } => debug_assert!(false, "a packet"),
            PortEvent::Part {
                link,
                header,
                begin,
            } => self.on_part(link, &header, begin),
            PortEvent::Placed { link, header } => self.on_placed(link, &header),
            PortEvent::Up(link) | PortEvent::Writable(link)
                if self.moves.session_of(link).is_some() =>
            {
                self.added_link_ready(link);
            }
            PortEvent::Up(link) => match self.data_links.session_of(link) {
                Some(_) => self.data_link_up(link),
                None => self.link_up(link, self.remote_on(link)),
            },
            PortEvent::Down(link, reason) => {
                if self.data_links.session_of(link).is_some() {
                    return self.data_link_down(link, reason);
                }
                if self.moves.session_of(link).is_some() {
                    return self.added_link_down(link, reason);
                }
                self.log_silent(link, reason);
                let remote = self.remote_on(link);
                let cut = self.forget_link(link);
                self.link_down(link, remote, reason);
                self.lose(cut, reason);
            }
            PortEvent::Writable(link) => {
                let data = self.data_links.session_of(link);
                self.open(data.unwrap_or_else(|| self.remote_on(link)), link);
                self.send_challenge(link);
            }
            PortEvent::RemoteActivity(_, what) => self.being_read(what),
            PortEvent::RemoteRead { token, ok, .. } => self.has_read(token, ok),
            PortEvent::PlacesShort => self.give_up_meeting_links(),
        }
    }

    #[inline]
    pub(super) fn on_packet(&mut self, link: LinkId, bytes: &HeaderBytes) {
        self.stats.packets_in += 1;
        match Header::parse(bytes) {
            Some(header) if header.body_len as usize == self.port.body().len() => {
                self.on_header(link, &header);
            }
            _ => self.violation(link, Violation::NotOurs),
        }
    }

    /// Front of [`Self::on_packet`]: takes ordinary packets from the port. An ordinary packet is a message with its
    /// data, paid in credits, of a connected remote that requests no credits, for which a receive is posted. Returns
    /// what [`Rounds::take_packets`](crate::round::Rounds::take_packets) does.
    #[inline(always)]
    pub(super) fn take_ordinary(&mut self) -> Option<bool> {
        let Self {
            port,
            bound,
            remotes,
            flow,
            unexpected,
            posted,
            ops,
            order,
            stats,
            ..
        } = self;
        port.take_packets(|link, bytes, body| {
            let cost = flow::cost(body.len() as u32);
            if bytes[0] != wire::Kind::Eager as u8 || unexpected.undecided() != 0 {
                return false;
            }
            let (Some(header), Some(from)) = (Header::parse(bytes), bound.find(link)) else {
                return false;
            };
            let bits = MatchBits(header.word);
            let Some(remote) = remotes.of_mut(from) else {
                return false;
            };
            if header.credit_fields.wanted != 0
                || !Payment::is_in_credits(header.aux)
                || header.length != header.body_len
                || remote.connected().is_none()
                || order.holds(from, bits)
            {
                return false;
            }
            let taken = posted.take_if(ops, bits, |receive| {
                (!receive.from_one || receive.remote == from)
                    && flow.passes(&mut remote.lends, cost)
            });
            let Some(place) = taken else {
                return false;
            };
            let from_one = ops.record(place).from_one;
            if remote.hears(&header.credit_fields) {
                self.ready.push_back(from);
            }
            if from_one {
                ops.leave(ListKind::Remote, &mut remote.operations, place);
            }
            stats.packets_in += 1;
            stats.matched += 1;
            let filled = ops.finish_filled(place, body);
            let told = (&mut self.owner, &mut *ops, &mut self.events);
            report_filled::<O>(told, &mut self.wheel, filled, (from, bits, header.length));
            true
        })
    }

    #[inline(always)]
    fn on_header(&mut self, link: LinkId, header: &Header) {
        if let Some(from) = self.sender(link, header) {
            match header.kind {
                wire::Kind::Eager => self.eager(link, from, header),
                wire::Kind::Data => self.data(from, COMMAND_LINK, header),
                _ => self.control(link, from, header),
            }
        }
    }

    /// Handles a part of a body: places its bytes where they belong, or skips them.
    #[inline(never)]
    fn on_part(&mut self, link: LinkId, bytes: &HeaderBytes, begin: bool) {
        let read = Header::parse(bytes).is_some_and(|header| match header.kind {
            wire::Kind::Data => self.read_data(link, &header),
            wire::Kind::Eager if begin => self.begin_streamed(link, &header),
            wire::Kind::Eager => self.read_streamed(link),
            _ => false,
        });
        if !read {
            self.port.skip();
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

    /// Returns the remote that sent a packet, with the packet's credit fields applied. `None`: no remote may send this
    /// packet, and it has been dealt with.
    fn sender(&mut self, link: LinkId, header: &Header) -> Option<RemoteId> {
        let from = self.remote_on(link);
        let Some(remote) = self.remotes.of_mut(from) else {
            self.stranger_packet(link, &{ *header });
            return None;
        };
        if self.config.secret.is_some()
            && remote.state_of(link) < Some(LinkState::Proven)
            && !matches!(
                header.kind,
                wire::Kind::Connect | wire::Kind::Reply | wire::Kind::Challenge
            )
        {
            self.distrust(from, None, Distrust::Unasked);
            return None;
        }
        let is_message = matches!(header.kind, wire::Kind::Eager | wire::Kind::Offer);
        let RemoteState::Connected(met) = &mut remote.state else {
            if is_message {
                self.violation(link, Violation::TooEarly);
            }
            return (!is_message).then_some(from);
        };
        if !header.kind.has_credit_fields() {
            met.silent = 0;
            return Some(from);
        }
        if remote.hears(&header.credit_fields) {
            self.ready.push_back(from);
        }
        // A remote may end over a request, so look it up once more.
        if header.credit_fields.wanted > 0 {
            self.note_request(from, &{ header.credit_fields });
            return self.remotes.of(from).map(|_| from);
        }
        Some(from)
    }

    /// Handles a message that carries its data.
    fn eager(&mut self, link: LinkId, from: RemoteId, header: &Header) {
        let len = header.body_len;
        if header.length != len {
            return self.violation(link, Violation::Length);
        }
        let paid = match self.received(from, header.aux, flow::cost(len)) {
            Ok(paid) => paid,
            Err(violation) => return self.violation(link, violation),
        };
        let bits = MatchBits(header.word);
        // No message may overtake an undecided one.
        if self.unexpected.undecided() == 0
            && let Some(place) = self.posted.take(&mut self.ops, bits)
        {
            let record = self.ops.record(place);
            let (from_one, foreign) = (record.from_one, record.remote != from);
            if from_one && foreign && !self.is_also_for(place, from) {
                self.posted.enter(&mut self.ops, place);
                return self.foreign(link, from, paid);
            }
            let Some(remote) = self.remotes.of_mut(from) else {
                return;
            };
            if from_one {
                self.ops
                    .leave(ListKind::Remote, &mut remote.operations, place);
            }
            self.stats.matched += 1;
            let overdue = self.flow.taken(&mut remote.lends, remote.source, paid);
            if self.order.holds(from, bits) {
                self.hold_eager(place, from, bits);
            } else {
                let filled = self.ops.finish_filled(place, &self.port.body());
                self.has_filled(filled, from, bits, len);
            }
            if overdue {
                self.tell(from);
            }
            return;
        }
        self.unmatched(from, header, paid);
    }

    /// Copies a message that carries its data into the receive at a slot, which is reported after earlier ones of its
    /// line.
    #[cold]
    fn hold_eager(&mut self, place: u32, from: RemoteId, bits: MatchBits) {
        if let Some(id) = self.ops.at(place) {
            let body = self.port.body().to_vec();
            if self.ops.record(place).from_one {
                self.attach_op(id, from);
            }
            self.hold(id, from, bits, &body[..]);
        }
    }

    #[cold]
    fn stranger_packet(&mut self, link: LinkId, header: &Header) {
        if self.moves.session_of(link).is_some() {
            self.on_added_link(link, header);
        } else if self.data_links.session_of(link).is_some() {
            match self.sender_of_data(link) {
                Some((from, number)) if header.kind == wire::Kind::Data => {
                    self.data(from, number, header);
                }
                _ => self.on_data_link(link, header),
            }
        } else if header.kind == wire::Kind::Connect {
            let body = self.port.body().to_vec();
            self.on_connect(link, None, header, &body);
        } else if header.kind == wire::Kind::Attach {
            let body = self.port.body().to_vec();
            self.on_attach(link, header, &body);
        } else if header.kind == wire::Kind::Prove {
            let body = self.port.body().to_vec();
            self.on_prove(link, &body);
        } else {
            self.violation(link, Violation::TooEarly);
        }
    }

    /// Applies the credit fields of a header. Returns the remote if it still exists.
    pub(super) fn apply_credit_fields(
        &mut self,
        from: RemoteId,
        header: &Header,
    ) -> Option<RemoteId> {
        let remote = self.remotes.of_mut(from)?;
        if remote.takes_turn_for(&header.credit_fields) {
            self.ready.push_back(from);
        }
        if header.credit_fields.wanted > 0 {
            self.note_request(from, &{ header.credit_fields });
        }
        self.remotes.of(from).map(|_| from)
    }

    /// Handles a message with its data for which no receive is posted.
    #[inline(never)]
    fn unmatched(&mut self, from: RemoteId, header: &Header, paid: Payment) {
        if !self.has_room(from, paid) {
            return;
        }
        let what = (from, MatchBits(header.word), header.length);
        let arrival = self.arrival_to_judge(what);
        let (verdict, kept) = {
            let (owner, events, body) = (&mut self.owner, &mut self.events, self.port.body());
            let verdict =
                arrival.unwrap_or_else(|arrival| owner.arrived(events, &arrival, Some(&body)));
            let bytes = || unexpected::Body::Bytes(body.to_vec());
            let kept = match verdict {
                Verdict::Finished => None,
                Verdict::Continue | Verdict::Defer => Some(bytes()),
                Verdict::Inbox { .. } => {
                    let memory = filled(owner, &body).map(unexpected::Body::Memory);
                    Some(memory.unwrap_or_else(bytes))
                }
            };
            (verdict, kept)
        };
        let Some(body) = kept else {
            return self.consumed(from, paid);
        };
        let message = UnexpectedMessage::new(what, paid, None, body);
        let id = self.unexpected.add(message);
        self.keep(id, verdict);
    }

    /// Returns, as the error, the arrival that the owner has to judge; or the verdict, if the owner need not be asked.
    #[inline]
    pub(super) fn arrival_to_judge(
        &mut self,
        (from, bits, length): (RemoteId, MatchBits, u32),
    ) -> Result<Verdict, Arrival> {
        self.stats.unmatched += 1;
        if self.unexpected.undecided() != 0 {
            return Ok(Verdict::Defer);
        }
        self.arrival(from, bits, length)
            .map_or(Ok(Verdict::Finished), Err)
    }

    /// Returns whether there is memory for a paid message without a receive. If there is none, the sender's session
    /// ends, because a message must not be left out; the peer may connect again.
    #[inline]
    pub(super) fn has_room(&mut self, from: RemoteId, paid: Payment) -> bool {
        let room = !self.config.supply.is_critical() && self.messages.covers(self.unexpected.len());
        if !room {
            self.consumed(from, paid);
            self.out_of_room(from);
        }
        room
    }

    /// Handles a message that only a receive for another remote's messages accepts.
    #[cold]
    pub(super) fn foreign(&mut self, link: LinkId, from: RemoteId, paid: Payment) {
        self.consumed(from, paid);
        self.violation(link, Violation::Foreign);
    }

    fn control(&mut self, link: LinkId, from: RemoteId, header: &Header) {
        let len = header.body_len as usize;
        if header.kind == wire::Kind::Upgrade {
            return self.on_upgrade(link, from, header);
        }
        if len > CONTROL_BODY_MAX {
            return self.violation(link, Violation::Oversized);
        }
        let mut bytes = [0; CONTROL_BODY_MAX];
        let bytes = &mut bytes[..len];
        self.port.body().copy_to(0, bytes);
        match header.kind {
            wire::Kind::Connect => self.on_connect(link, Some(from), header, bytes),
            wire::Kind::Reply => self.on_reply(link, from, header, bytes, self.clock.now()),
            wire::Kind::Offer => self.offer(link, from, header, bytes),
            wire::Kind::Pull => match PullBody::parse(bytes) {
                Some(pull) => self.on_pull(from, header, pull),
                None => self.violation(link, Violation::Pull),
            },
            wire::Kind::Notify => self.on_notify(from, header),
            wire::Kind::Withdraw => self.on_withdraw(from, header, self.clock.now()),
            wire::Kind::Disconnect => self.fail_remote(from, DownReason::Disconnected),
            wire::Kind::Ping => self.on_ping(from, header.word),
            wire::Kind::Pong => self.on_answer(from),
            // The credit fields have been applied, and there is nothing else in it.
            wire::Kind::Credit => {}
            wire::Kind::Claim => match ClaimBody::parse(bytes) {
                Some(claim) => self.on_claim(from, &claim),
                None => self.violation(link, Violation::Claim),
            },
            wire::Kind::Challenge => self.on_challenge(link, from, bytes),
            wire::Kind::Prove => {
                self.violation(link, Violation::Proof);
            }
            wire::Kind::Revoke => self.on_revoke(from, header),
            wire::Kind::Return => self.on_return(link, from, header),
            wire::Kind::Lost => self.on_lost(from, header.length),
            wire::Kind::Fence => self.on_fence(link, from),
            wire::Kind::Get => self.on_get(link, from, header, bytes),
            wire::Kind::Put => self.on_put(link, from, header, bytes),
            wire::Kind::Attach | wire::Kind::Attached => self.violation(link, Violation::Attach),
            // Other functions handle these kinds; see `on_header` and `control`.
            wire::Kind::Eager | wire::Kind::Data | wire::Kind::Upgrade => {}
        }
    }

    /// Returns the remote of a link; [`NO_REMOTE`] if the link is a stranger's.
    #[inline]
    pub(super) fn remote_on(&self, link: LinkId) -> RemoteId {
        let id = self.bound.get(link).unwrap_or(NO_REMOTE);
        debug_assert!(self.remotes.of(id).is_none_or(|of| of.owns(link)));
        id
    }

    /// Ends a link because its peer violated the protocol. The remote ends with its command link.
    #[cold]
    pub(super) fn violation(&mut self, link: LinkId, what: Violation) {
        self.stats.malformed += 1;
        log::debug!("link {link:?}: {what}; closing it");
        let remote = self.remote_on(link);
        if self.remotes.of(remote).is_some() {
            // The remote's link is closed with it.
            self.fail_remote(remote, DownReason::Protocol(what));
        } else if !self.distrust_data_link(link) {
            self.close_link(link, Close::Now);
        }
    }

    /// Ends a remote because there is no memory for its message.
    #[cold]
    pub(super) fn out_of_room(&mut self, from: RemoteId) {
        self.stats.out_of_memory += 1;
        self.fail_remote(from, DownReason::NoMemory);
    }

    /// Returns the description of an unexpected message for the owner.
    pub(super) fn arrival_of(&self, id: EntryId) -> Option<Arrival> {
        let message = self.unexpected.get(id)?;
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

    /// Reports a posted receive into which a message has been copied.
    fn has_filled(&mut self, filled: Filled, from: RemoteId, bits: MatchBits, length: u32) {
        let told = (&mut self.owner, &mut self.ops, &mut self.events);
        report_filled::<O>(told, &mut self.wheel, filled, (from, bits, length));
    }

    /// Copies a whole message into a receive, which may still be among the operations of its remote.
    pub(super) fn fill_receive(
        &mut self,
        id: RequestId,
        from: RemoteId,
        bits: MatchBits,
        body: &[u8],
    ) {
        if self.order.holds(from, bits) {
            return self.hold(id, from, bits, body);
        }
        if self.ops.record(id.index()).from_one {
            self.detach_op(id);
        }
        let filled = self.ops.finish_filled(id.index(), body);
        self.has_filled(filled, from, bits, body.len() as u32);
    }
}

/// Receive into which a whole message has been copied: its id, the bytes transferred, and its timer.
type Filled = (RequestId, usize, Option<TimerId>);

/// Reports a filled receive to the owner.
#[inline(always)]
fn report_filled<O: Owner>(
    (owner, ops, events): (&mut O, &mut Ops<O>, &mut Events<O>),
    wheel: &mut Wheel<Deadline>,
    (id, transferred, timer): Filled,
    (from, bits, length): (RemoteId, MatchBits, u32),
) {
    if let Some(timer) = timer {
        wheel.clear(timer);
    }
    let transferred = transferred as u32;
    let status = inbound_status(transferred, length);
    let how = || Outcome::received(status, from, bits, transferred, length);
    match status {
        Status::Success => owner.received(ops, events, id, transferred, how),
        _ => owner.completed(ops, events, id, how()),
    }
}

/// Result of a search among the posted receives.
pub(super) enum MatchResult {
    /// A receive, which has been taken out of the index, gets the message.
    Receive(RequestId),
    /// Only a receive for another remote's messages matches.
    Foreign,
    /// No receive matches.
    Nothing,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Takes the oldest posted receive that accepts a message. A receive for another remote's messages stays posted.
    pub(super) fn find_receive(&mut self, from: RemoteId, bits: MatchBits) -> MatchResult {
        let taken = self.posted.take(&mut self.ops, bits);
        let Some(id) = taken.and_then(|place| self.ops.at(place)) else {
            return MatchResult::Nothing;
        };
        let record = self.ops.record(id.index());
        if record.from_one && record.remote != from && !self.is_also_for(id.index(), from) {
            self.posted.enter(&mut self.ops, id.index());
            return MatchResult::Foreign;
        }
        MatchResult::Receive(id)
    }

    /// Returns the oldest unexpected message that a receive for messages from `from` accepts; [`NO_REMOTE`] stands for
    /// any remote. Messages of other remotes that match are refused.
    pub(super) fn find_unexpected(
        &mut self,
        from: RemoteId,
        bits: MatchBits,
        mask: MatchMask,
    ) -> Option<EntryId> {
        loop {
            let early = self.unexpected.front(bits, mask)?;
            if from == NO_REMOTE || self.are_joined(self.unexpected.get(early)?.source, from) {
                return Some(early);
            }
            self.refuse_unexpected(early);
        }
    }

    /// Refuses an unexpected message that only a receive for another remote's messages accepts.
    #[cold]
    pub(super) fn refuse_unexpected(&mut self, early: EntryId) {
        let Some(source) = self.unexpected.get(early).map(|message| message.source) else {
            return;
        };
        self.finish(early, Status::Aborted);
        // A message without a living remote may be of an old life of its peer.
        if self.remotes.living(source).is_some() {
            self.stats.malformed += 1;
            self.fail_remote(source, DownReason::Protocol(Violation::Foreign));
        }
    }
}

/// Maximum body length of a control packet: larger than any today, so that a later version may append to them.
const CONTROL_BODY_MAX: usize = 256;
