//! Rendezvous: large messages are offered by the sender, and pulled or read by the receiver.
//!
//! ```text
//!   sender                                             receiver
//!   Queued --Offer: id, length, key ------------------> match: Pulling; no receive: unexpected
//!   Offered
//!     |   <------------- Pull: two blocks a link ------ without a key
//!   Serving --Data ... Data --------------------------> into the receive's memory
//!     |   <............. the port reads by itself ..... with a key; if reading fails, Pull
//!     |   <------------- Notify: status, length ------- all bytes arrived, or no more are wanted
//!   complete
//!
//!   Withdrawn --Withdraw -----------------------------> the receive returns to its position
//!     |   <------------- Notify, if requested --------- once nothing reads the sender's memory
//!   complete
//! ```
//!
//! Owns: nothing; a message's state is in the records of its send ([`State::Offered`], `Serving`, `Withdrawn`)
//! and its receive ([`State::Pulling`]), and in `unexpected` before a receive is found.
//! Cost: one control packet for each block of data; the endpoint copies none of the data.

use super::Endpoint;
use super::commands::inbound_status;
use super::inbound::MatchResult;
use crate::flow::Flow;
use crate::ids::{LinkId, MatchBits, RemoteId, RequestId};
use crate::memory::{Memory, Source};
use crate::ops::{BucketHead, NO_LINK, Ops, Part, Parts, Position, Pulling, State};
use crate::owner::Owner;
use crate::port::{
    Body, Destination, Place, Port, RemoteKey, RemoteRead, RemoteUse, SendError, Sent,
};
use crate::queues::{Partial, Stream};
use crate::regions::PARTS_MAX;
use crate::remote::{COMMAND_LINK, Connected, Remote};
use crate::status::{Status, Violation};
use crate::time::{Clock, Instant};
use crate::unexpected::{self, OfferTarget, Stage, UnexpectedMessage};
use crate::wire::{self, Header, OfferBody, PullBody};

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Sends a packet of a stream over the link with this number.
    pub(super) fn send_data(
        &mut self,
        id: RemoteId,
        (number, link): (u32, LinkId),
        nth: usize,
    ) -> Result<(), SendError> {
        let Self {
            remotes,
            ops,
            flow,
            stats,
            ..
        } = self;
        let Some((met, queues, lends)) = remotes.sending(id) else {
            return Ok(());
        };
        let Some(&stream) = queues.streams.get(nth) else {
            return Ok(());
        };
        let record = ops.get_mut(stream.request);
        let Some((memory, touched)) = record.and_then(|record| {
            let memory = record.state.memory()?;
            Some((memory, &mut record.touched))
        }) else {
            queues.streams.remove(nth);
            return Ok(());
        };
        let apart = number != COMMAND_LINK;
        let most = if apart {
            self.port.limits(link).data_max
        } else {
            met.link_limits.data_max as usize
        };
        let len = most.min(stream.end - stream.at);
        // Messages are shorter than 2^32 bytes, and so are their parts.
        let mut header = Header::new(wire::Kind::Data, stream.recv_id, stream.at as u32);
        (header.body_len, header.aux) = (len as u32, stream.attempt);
        if !apart {
            header.credit_fields = flow.credit_fields(lends, &met.borrows, queues.cost);
        }
        let body = Body::Memory {
            memory,
            offset: stream.at,
            len,
        };
        let sent = self.port.send(link, &header.emit(), body)?;
        if apart {
            met.note_sent(number);
        } else {
            Flow::on_told(lends, &mut met.borrows, &header.credit_fields);
        }
        stats.packets_out += 1;
        *touched = true;
        if let Sent::Part(taken) = sent {
            queues.set_partial(Partial {
                link: number,
                request: stream.request,
                at: stream.at + taken.min(len),
                end: stream.at + len,
            });
        }
        queues.advance_stream(nth, len);
        if matches!(sent, Sent::Part(_)) {
            Err(SendError::WouldBlock)
        } else {
            if stream.at + len >= stream.end {
                self.end_if_lent(id, stream.request);
            }
            Ok(())
        }
    }

    /// Starts to read a message that its sender has registered; pulls it if that fails.
    pub(super) fn read_remote(&mut self, id: RequestId) {
        let Self {
            port, ops, remotes, ..
        } = self;
        let Some(record) = ops.get_mut(id) else {
            return;
        };
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        let Some(key) = pulling.key.as_deref().copied() else {
            return;
        };
        let (len, token) = (pulling.wanted as usize, read_token(id));
        let memory = &mut pulling.memory;
        let remote = remotes.of(record.remote);
        let link = remote.and_then(Remote::tx_link);
        let started = link.is_some_and(|link| {
            let read = RemoteRead {
                key,
                from: 0,
                memory,
                at: 0,
                len,
                token,
            };
            let remote = port.remote_memory(link);
            remote.is_some_and(|it| it.read(link, read).is_ok())
        });
        if started {
            pulling.reading = true;
        } else {
            pulling.key = None;
            pulling.requested = 0;
            self.continue_pull(id);
        }
    }

    pub(super) fn offer(&mut self, link: LinkId, from: RemoteId, header: &Header, body: &[u8]) {
        let Some(OfferBody { send_id, key }) = OfferBody::parse(body) else {
            return self.violation(link, Violation::Offer);
        };
        let paid = match self.received(from, header.aux, 1) {
            Ok(received) => received,
            Err(violation) => return self.violation(link, violation),
        };
        let bits = MatchBits(header.word);
        if self.unexpected.undecided() == 0 {
            match self.find_receive(from, bits) {
                MatchResult::Receive(id) => {
                    self.stats.matched += 1;
                    self.consumed(from, paid);
                    let (offer, now) = ((send_id, key), self.clock.now());
                    return self.match_offer(id, from, offer, bits, header.length, now);
                }
                MatchResult::Foreign => return self.foreign(link, from, paid),
                MatchResult::Nothing => {}
            }
        }
        if !self.has_room(from, paid) {
            return;
        }
        let what = (from, bits, header.length);
        let message =
            UnexpectedMessage::new(what, paid, Some(send_id), unexpected::Body::AtSender(key));
        let id = self.unexpected.add(message);
        let verdict = self.arrival_to_judge(what);
        let (owner, events) = (&mut self.owner, &mut self.events);
        let verdict =
            verdict.unwrap_or_else(|arrival| owner.arrived::<[u8]>(events, &arrival, None));
        self.keep(id, verdict);
    }

    /// Handles a Data packet that arrived on the link with this number.
    pub(super) fn data(&mut self, from: RemoteId, link: u32, header: &Header) {
        if let Some((touched, pulling, nth)) = next_part(&mut self.ops, from, header) {
            let memory = &mut pulling.memory;
            {
                let body = self.port.body();
                memory.fill(header.length as usize, body.len(), &body, 0);
            }
            pulling.parts.advance(nth, header.body_len, link);
            *touched = true;
            self.continue_pull(RequestId::from_word(header.word));
        } else {
            self.stats.stale += 1;
        }
    }

    /// Reads data of a message that is being pulled into its receive. Returns false if the data is not wanted.
    pub(super) fn read_data(&mut self, link: LinkId, header: &Header) -> bool {
        let Some((from, _)) = self.sender_of_data(link) else {
            return false;
        };
        let Self {
            port, ops, remotes, ..
        } = self;
        let Some((touched, pulling, _)) = next_part(ops, from, header) else {
            return false;
        };
        *touched = true;
        if let Some(met) = remotes.connected_mut(from) {
            // Parts of a large packet may arrive for long before the packet is complete.
            met.silent = 0;
        }
        port.read(Place {
            memory: Destination::Memory(&mut pulling.memory),
            offset: header.length as usize,
        });
        true
    }

    /// Handles the end of a Data packet whose bytes have all been read ([`Self::read_data`]).
    pub(super) fn data_placed(&mut self, link: LinkId, header: &Header) {
        self.stats.packets_in += 1;
        let Some((from, number)) = self.sender_of_data(link) else {
            return;
        };
        if number == COMMAND_LINK {
            let _ = self.apply_credit_fields(from, header);
        }
        if let Some((_, pulling, nth)) = next_part(&mut self.ops, from, header) {
            pulling.parts.advance(nth, header.body_len, number);
            self.continue_pull(RequestId::from_word(header.word));
        } else {
            self.stats.stale += 1;
        }
    }

    /// Notes that the port is reading a message, here or at the peer.
    pub(super) fn being_read(&mut self, what: RemoteUse) {
        let id = match what {
            RemoteUse::Reading(token) => reader(token),
            RemoteUse::Registered(token) => Some(RequestId::from_word(token)),
        };
        let Some(id) = id else { return };
        let Some(record) = self.ops.get_mut(id) else {
            return;
        };
        if matches!(what, RemoteUse::Reading(_)) && !record.state.is_reading() {
            return;
        }
        record.touched = true;
        let from = record.remote;
        if let State::Offered { registered, .. } = record.state {
            record.become_next(|memory| State::Serving { memory, registered });
            self.serving(id);
        }
        if let Some(met) = self.remotes.connected_mut(from) {
            met.silent = 0;
        }
    }

    /// Handles the end of a read by the port, successful or not.
    pub(super) fn has_read(&mut self, token: u64, ok: bool) {
        let id = reader(token).filter(|id| {
            let record = self.ops.get(*id);
            record.is_some_and(|record| record.state.is_reading())
        });
        let record = id.and_then(|id| Some((id, self.ops.get_mut(id)?)));
        let Some((id, record)) = record else {
            self.stats.stale += 1;
            return;
        };
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        (pulling.key, pulling.reading) = (None, false);
        if let Some(answer) = pulling.withdrawn.take() {
            let (from, send_id) = (record.remote, pulling.send_id);
            self.unmatch(id, self.clock.now());
            if answer {
                let told = Status::Aborted;
                self.finish_offer(from, send_id, 0, told);
            }
            return;
        }
        // If reading failed, pull instead.
        pulling.requested = if ok { pulling.wanted } else { 0 };
        self.continue_pull(id);
    }
}

/// The receiver's side.
impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Matches an offered message of `from` with a receive that is in no list.
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

    /// Begins the transfer into a receive that has become `Pulling`.
    pub(super) fn begin_pull(&mut self, id: RequestId, from: RemoteId, now: Instant) {
        let reach = self.remotes.link_limits(from);
        let State::Pulling(pulling) = &mut self.ops.record_mut(id.index()).state else {
            return;
        };
        if !reach.remote_read {
            pulling.key = None;
        }
        if pulling.fetch.is_none() {
            let name = (from, pulling.send_id);
            self.unexpected.names.insert(name, OfferTarget::Pull(id));
        }
        self.wait_in_order(id, from, now);
        self.continue_pull(id);
    }

    /// Requests more of a message, or completes its receive.
    pub(super) fn continue_pull(&mut self, id: RequestId) {
        let Some(record) = self.ops.get_mut(id) else {
            return;
        };
        let from = record.remote;
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        let send_id = pulling.send_id;
        if pulling.is_whole() && pulling.is_get() {
            let got = pulling.wanted;
            return self.complete(id, Status::Success, got);
        }
        if pulling.is_whole() {
            let received = pulling.wanted;
            let status = inbound_status(received, pulling.length);
            // While a message is undecided, its sender is not told the result.
            let fetches = pulling.fetch.is_some();
            let message = pulling.fetch.and_then(|it| self.unexpected.at(it.place()));
            let undecided = message.is_some_and(|(_, it)| it.stage == Stage::Undecided);
            if fetches {
                self.complete(id, status, received);
            } else {
                self.arrived_whole(id, from);
            }
            if !undecided {
                self.finish_offer(from, send_id, received, status);
            }
            return;
        }
        if pulling.key.is_some() {
            if pulling.requested == 0 {
                pulling.requested = pulling.wanted;
                self.read_remote(id);
            }
            return;
        }
        if pulling.requested == 0 {
            let length = pulling.length;
            self.want_data_link(from, length.into());
        }
        self.pull(id, from);
    }

    /// Requests as much of a message as may be outstanding: two parts for each link.
    pub(super) fn pull(&mut self, id: RequestId, from: RemoteId) {
        let get = self.transfer(from, id);
        let numbered = get.is_some() || self.numbers_parts(from);
        let pull_block = self.remotes.link_limits(from).pull_block;
        while let Some(State::Pulling(pulling)) =
            self.ops.get_mut(id).map(|record| &mut record.state)
        {
            let met = self.remotes.connected(from);
            let links = met.map_or(0, |met| met.links_for(pulling.length).count());
            let block = match links {
                0 if met.is_some_and(Connected::expects_link) => COMMAND_BLOCK,
                0 | 1 => pull_block,
                // Spread the rest over all links; the last parts are small.
                _ => (pulling.missing() / (2 * links as u32)).max(STRIPE_LEAST),
            };
            let block = block.min(pull_block);
            let has_enough = match pulling.parts.open() {
                [first, ..] if !numbered => pulling.requested - first.at >= block.saturating_mul(2),
                _ => pulling.parts.asked() >= 2 * links.max(1),
            };
            if has_enough || get.is_some() && pulling.parts.asked() >= PARTS_MAX {
                return;
            }
            let Some((at, end)) = pulling.take_missing(block) else {
                return;
            };
            let attempt = if numbered {
                self.data_links.next_attempt()
            } else {
                0
            };
            let link = match self.remotes.connected(from) {
                Some(met) => best_link(&pulling.parts, (met, pulling.length), attempt as usize),
                None => COMMAND_LINK,
            };
            let part = Part {
                attempt,
                link,
                at,
                end,
            };
            match pulling.parts.open_mut() {
                [first] if !numbered => first.end = end,
                _ => pulling.parts.push(part),
            }
            if let Some(get) = get {
                self.ask_region(from, get, &part);
                continue;
            }
            let mut header = Header::new(wire::Kind::Pull, pulling.send_id, at);
            header.aux = attempt;
            let (body, len) = PullBody {
                recv_id: id.to_word(),
                len: end - at,
                link: numbered.then_some(part.link),
            }
            .emit();
            self.push_control(from, header, &body[..len]);
        }
    }

    /// Requests again the parts that were to come on a lost link.
    pub(super) fn pull_again(&mut self, id: RequestId, from: RemoteId, lost: u32) {
        if let Some(State::Pulling(pulling)) = self.ops.get_mut(id).map(|record| &mut record.state)
        {
            let parts = pulling.parts.open_mut().iter_mut();
            for part in parts.filter(|part| part.link == lost) {
                // Data with the old number is stale from now on.
                (part.attempt, part.link) = (self.data_links.next_attempt(), NO_LINK);
            }
            self.pull(id, from);
        }
    }

    /// Tells the sender of an offer that no more of its data is wanted, and how its send ends.
    pub(super) fn finish_offer(
        &mut self,
        source: RemoteId,
        send_id: u64,
        transferred: u32,
        told: Status,
    ) {
        let mut done = Header::new(wire::Kind::Notify, send_id, transferred);
        done.aux = notify_code(told);
        self.push_control(source, done, &[]);
    }

    /// Handles the withdrawal of an offered message. A receive that had matched it returns to its position, as if the
    /// message had never existed.
    pub(super) fn on_withdraw(&mut self, from: RemoteId, header: &Header, now: Instant) {
        if header.aux == wire::OF_GET {
            return self.on_withdrawn_get(from, header.word);
        }
        let (send_id, answer) = (header.word, header.aux == wire::ANSWER);
        let Some(named) = self.unexpected.names.get(&(from, send_id)).copied() else {
            // The offer has been answered already.
            self.stats.stale += 1;
            return;
        };
        let op = match named {
            OfferTarget::Pull(op) => Some(op),
            OfferTarget::Unexpected(id) => {
                self.unexpected.get(id).and_then(UnexpectedMessage::fetch)
            }
        };
        if let Some(op) = op {
            if self.stops_reading(op, from, answer) {
                return;
            }
            self.unmatch(op, now);
        }
        if let OfferTarget::Unexpected(id) = named {
            self.take_out(id);
        }
        if answer {
            self.finish_offer(from, send_id, 0, Status::Aborted);
        }
    }

    /// Asks the port to stop reading a withdrawn message; the port reports when it has. Returns false if the port is
    /// not reading it.
    fn stops_reading(&mut self, id: RequestId, from: RemoteId, answer: bool) -> bool {
        let state = self.ops.get_mut(id).map(|record| &mut record.state);
        let Some(State::Pulling(pulling)) = state.filter(|state| state.is_reading()) else {
            return false;
        };
        pulling.withdrawn = Some(answer);
        if let Some(link) = self.remotes.of(from).and_then(Remote::tx_link)
            && let Some(memory) = self.port.remote_memory(link)
        {
            memory.stop(link, read_token(id));
        }
        true
    }

    /// Undoes the match of a receive with a message that will not come.
    pub(super) fn unmatch(&mut self, id: RequestId, now: Instant) {
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
        self.unexpected.forget_name(name, OfferTarget::Pull(id));
        let line = self.leave_order(id);
        if !from_one {
            self.detach_op(id);
        }
        self.repost(id, position, now);
        if let Some(line) = line {
            self.report_in_order(line);
        }
    }

    /// Forgets the message of a receive: its sender has been told the result, so later packets about it are stale.
    pub(super) fn forget_name(&mut self, id: RequestId) {
        if let Some(record) = self.ops.get(id)
            && let State::Pulling(pulling) = &record.state
        {
            self.unexpected
                .forget_name((record.remote, pulling.send_id), OfferTarget::Pull(id));
        }
    }

    /// Reposts a receive whose message was withdrawn, unless an unexpected message that it accepts has arrived
    /// meanwhile. Undecided messages look for a receive later.
    fn repost(&mut self, id: RequestId, position: Position, now: Instant) {
        let record = self.ops.record(id.index());
        let (from, bits) = (record.remote, record.bits);
        if let Some(early) = self.find_unexpected(from, bits, position.mask) {
            return self.fill_unexpected(id, early, now);
        }
        // `find_unexpected` may have ended another remote, but not the receive's own.
        let record = self.ops.record_mut(id.index());
        record.become_next(|memory| State::Posted {
            memory,
            position,
            head: BucketHead::NONE,
        });
        self.posted.enter(&mut self.ops, id.index());
        self.start_timer(id, now);
    }
}

/// The sender's side.
impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Restarts the timer of a send that has been matched, if the time-out of transfers differs.
    pub(super) fn serving(&mut self, id: RequestId) {
        if let Some(record) = self.ops.get_mut(id)
            && record.waiting != record.timeout
        {
            record.touched = false;
            let now = self.clock.now();
            self.start_timer(id, now);
        }
    }

    /// Handles a Pull: the receiver requests a part of an offered message.
    pub(super) fn on_pull(&mut self, from: RemoteId, header: &Header, pull: PullBody) {
        let id = RequestId::from_word(header.word);
        let asked = self.ops.get_mut(id).filter(|asked| asked.remote == from);
        let Some(record) = asked else {
            self.stats.stale += 1;
            return;
        };
        let (first, registered) = match record.state {
            State::Offered { registered, .. } => (true, registered),
            State::Serving { registered, .. } => (false, registered),
            _ => {
                self.stats.stale += 1;
                return;
            }
        };
        let at = header.length as usize;
        let end = at + pull.len as usize;
        let length = record.state.room();
        if pull.len == 0 || end > length as usize {
            self.stats.stale += 1;
            return;
        }
        record.touched = true;
        if first {
            record.become_next(|memory| State::Serving { memory, registered });
            self.serving(id);
        }
        let Some(remote) = self.remotes.of_mut(from) else {
            return;
        };
        // Only the receiver may have this link yet, or still.
        let link = pull.link.unwrap_or(COMMAND_LINK);
        let is_there = remote
            .connected()
            .is_some_and(|met| met.link(link).is_some());
        let part = Stream {
            request: id,
            recv_id: pull.recv_id,
            attempt: header.aux,
            link: if is_there { link } else { COMMAND_LINK },
            at,
            end,
            length: length as usize,
            passed: 0,
        };
        if !self
            .spares
            .get_or_alloc(&mut remote.queues)
            .add_stream(part)
        {
            // A correct receiver does not have so many parts outstanding.
            self.stats.stale += 1;
            return;
        }
        self.want_data_link(from, length.into());
        self.make_ready(from);
    }

    pub(super) fn on_notify(&mut self, from: RemoteId, header: &Header) {
        let id = RequestId::from_word(header.word);
        let status = notify_status(header.aux);
        if let Some(record) = self.ops.get(id)
            && record.remote == from
            && header.length <= record.state.room()
            && match &record.state {
                State::Offered { .. } | State::Serving { .. } | State::Withdrawn { .. } => true,
                // A get completes with its last byte; only its refusal is notified.
                State::Pulling(pulling) => pulling.is_get() && status != Status::Success,
                _ => false,
            }
        {
            self.note_refusal(from, status);
            self.complete(id, status, header.length);
        } else {
            self.stats.stale += 1;
        }
    }

    /// Asks the receiver to stop reading a send. The send completes with the answer, or without it a little later.
    pub(super) fn withdraw(
        &mut self,
        id: RequestId,
        registered: RemoteKey,
        status: Status,
        now: Instant,
    ) {
        let record = self.ops.record_mut(id.index());
        let to = record.remote;
        record.become_next(|memory| State::Withdrawn {
            memory,
            registered,
            status,
        });
        if let Some(queues) = self.remotes.of_mut(to).and_then(Remote::queues_mut) {
            queues.forget(id);
        }
        self.start_timer(id, now);
        let mut header = Header::new(wire::Kind::Withdraw, id.to_word(), 0);
        header.aux = wire::ANSWER;
        self.push_farewell(to, header);
    }
}

/// Returns the number of the data link for the next part: the link with the fewest outstanding bytes of the message.
/// Ties are broken in turn, so that short messages are spread, too.
fn best_link(parts: &Parts, (met, length): (&Connected, u32), turn: usize) -> u32 {
    let count = met.links_for(length).count();
    let links = met.links_for(length).map(|(number, _)| number).enumerate();
    let best = links.min_by_key(|(nth, number)| {
        let turns = (nth + count - turn % count) % count;
        (parts.awaited(*number), turns)
    });
    best.map_or(COMMAND_LINK, |(_, number)| number)
}

/// Returns the receive for which a packet from `from` brings the next bytes of a part, with its progress mark and the
/// index of the part. `None`: no such part is open.
fn next_part<'a, O: Owner>(
    ops: &'a mut Ops<O>,
    from: RemoteId,
    header: &Header,
) -> Option<(&'a mut bool, &'a mut Pulling<O::Memory>, usize)> {
    let record = ops.get_mut(RequestId::from_word(header.word))?;
    let State::Pulling(pulling) = &mut record.state else {
        return None;
    };
    let parts = &pulling.parts;
    let nth = parts.next(header.aux, header.length, header.body_len)?;
    (record.remote == from).then_some((&mut record.touched, pulling, nth))
}

/// Returns a receive's status as its code in a Notify packet.
pub(super) fn notify_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::Truncated => 1,
        Status::NoRegion => 3,
        Status::OutOfRange => 4,
        Status::NotAllowed => 5,
        Status::NoResources => 6,
        _ => 2,
    }
}

/// Returns the status of a code; unknown codes mean aborted.
pub(super) fn notify_status(code: u32) -> Status {
    match code {
        0 => Status::Success,
        1 => Status::Truncated,
        3 => Status::NoRegion,
        4 => Status::OutOfRange,
        5 => Status::NotAllowed,
        6 => Status::NoResources,
        _ => Status::Aborted,
    }
}

/// Returns the token of an operation's read of remote memory, distinct from a port's own tokens.
pub(super) fn read_token(id: RequestId) -> u64 {
    READS | id.to_word()
}

/// Returns the operation of a token; `None` if the token is a port's own.
pub(super) fn reader(token: u64) -> Option<RequestId> {
    (token & READS != 0).then(|| RequestId::from_word(token & !READS))
}

/// Bytes requested at once over the command link while a data link is being set up: 1 ms at 1 Gbit/s, because small
/// messages wait behind them.
const COMMAND_BLOCK: u32 = 128 << 10;
/// Minimum size in bytes of a part when a message uses several links; the cost of its Pull is then negligible.
const STRIPE_LEAST: u32 = 256 << 10;
/// Bit that marks the token of a read; operation ids stay below it.
const READS: u64 = 1 << 63;
