//! What goes out.
//!
//! ```text
//!   session packets -> ready partners, one burst each, round robin
//!                        burst: partial -> control -> (message, part of a stream)*
//! ```
//!
//! A packet the port does not take has not happened: it stays where it was, and the partner leaves
//! the round until the port says that there is room.

use super::aside::After;
use super::{Core, Endpoint, Errand, read_token};
use crate::ids::{LinkId, PartnerId, RequestId};
use crate::memory::Memory;
use crate::ops::{State, Strand, Turn};
use crate::owner::Owner;
use crate::partner::Partner;
use crate::port::{Body, Close, LinkDown, Port, RemoteRead, SendError, Sent};
use crate::queues::{Partial, Stream};
use crate::status::{DownReason, Status};
use crate::time::Clock;
use crate::wire::{self, Header, OfferBody, PullBody};

/// How a partner's burst ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Burst {
    /// Nothing more to send.
    Done,
    /// Its turn is over, it has more.
    More,
    /// The link has no room.
    Blocked,
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Gives out what can go, fairly: at most about two polls' worth, and to each partner two bursts,
    /// so that one that takes much does not keep the endpoint from taking in what others send.
    pub(super) fn transmit(&mut self) -> bool {
        let mut busy = self.transmit_sessions();
        let most = 2 * self.core.config.poll_budget / self.core.config.burst.max(1) + 1;
        let mut bursts = most.min(2 * self.core.ready.len());
        while bursts > 0
            && let Some(id) = self.core.ready.pop_front()
        {
            bursts -= 1;
            busy = true;
            let burst = self.burst(id);
            if let Some(partner) = self.core.partners.of_mut(id) {
                partner.ready = false;
                partner.tidy_queues(&mut self.core.spares);
                match burst {
                    Burst::Done => {}
                    Burst::More => self.core.make_ready(id),
                    Burst::Blocked => partner.writable = false,
                }
            }
        }
        busy
    }

    fn transmit_sessions(&mut self) -> bool {
        let mut busy = false;
        // Those whose links have no room go to the end, and the next ones are tried next time.
        for _ in 0..self.core.session_out.len().min(SESSIONS_AT_ONCE) {
            let Some((link, control, after)) = self.core.session_out.pop() else {
                break;
            };
            let (header, body) = control.parts();
            match self.port.send(link, &header, Body::Bytes(body)) {
                Ok(_) => {
                    self.core.stats.packets_out += 1;
                    busy = true;
                    if after != After::Open {
                        self.core.errands.push(Errand::Close(link, Close::Flush));
                    }
                }
                Err(SendError::WouldBlock) => {
                    self.core.session_out.push(link, control, after);
                }
                Err(SendError::Down) => {}
            }
        }
        busy
    }

    fn burst(&mut self, id: PartnerId) -> Burst {
        for turn in 0..self.core.config.burst {
            let Some(partner) = self.core.partners.of(id) else {
                return Burst::Done;
            };
            let Some(link) = partner.tx else {
                return Burst::Done;
            };
            let Some(queues) = partner.queues() else {
                return Burst::Done;
            };
            let sent = if let Some(partial) = queues.partial {
                self.send_rest(id, link, partial)
            } else if !queues.control.is_empty() {
                self.send_control(id, link)
            } else {
                let message = !queues.pending.is_empty() && partner.credit.message_allowed();
                match (message, queues.streams.is_empty()) {
                    (false, true) => return Burst::Done,
                    (true, true) => self.send_message(id, link),
                    (false, false) => self.send_data(id, link),
                    (true, false) if turn % 2 == 0 => self.send_message(id, link),
                    (true, false) => self.send_data(id, link),
                }
            };
            if sent.is_err() {
                // A link that is down says so by itself.
                return Burst::Blocked;
            }
        }
        Burst::More
    }

    fn send_control(&mut self, id: PartnerId, link: LinkId) -> Result<(), SendError> {
        let unread_max = self.core.unread_max();
        let Core {
            partners,
            budget,
            stats,
            controls,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(queues) = &mut partner.queues else {
            return Ok(());
        };
        // Who reads no answers is allowed nothing more that would be answered.
        let unread = queues.control.len() > unread_max;
        let Some(control) = queues.control.front_mut() else {
            return Ok(());
        };
        // What a Connect promises was settled when it was made.
        let opens = control.header.kind == wire::Kind::Connect;
        let terms = partner.credit.terms(budget, unread || opens);
        if !opens {
            terms.put(&mut control.header);
        }
        let (header, body) = control.parts();
        self.port.send(link, &header, Body::Bytes(body))?;
        partner.credit.on_told(terms, budget);
        stats.packets_out += 1;
        match control.header.kind {
            wire::Kind::Credit => partner.credit_queued = false,
            wire::Kind::Yield => partner.yield_queued = false,
            wire::Kind::Ping => partner.vigil.ping_queued = false,
            wire::Kind::Pong => partner.vigil.pong_queued = false,
            _ => {}
        }
        queues.control.pop_front();
        *controls -= 1;
        Ok(())
    }

    fn send_message(&mut self, id: PartnerId, link: LinkId) -> Result<(), SendError> {
        let expose_from = self.core.config.eager_max;
        let Core {
            partners,
            ops,
            budget,
            stats,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(queues) = &mut partner.queues else {
            return Ok(());
        };
        let Some(send_id) = ops.first(&queues.pending) else {
            return Ok(());
        };
        let place = send_id.index();
        let record = ops.record_mut(place);
        let State::Queued { memory, turn } = &record.state else {
            debug_assert!(false, "{send_id:?} has no turn");
            ops.leave(Strand::Own, &mut queues.pending, place);
            return Ok(());
        };
        let (turn, len) = (*turn, memory.len() as u32);
        let small = turn != Turn::Synchronous && len <= partner.eager_max;
        // What is reserved for others behind it is not its own.
        let own = if turn == Turn::Reserved { len } else { 0 };
        let others = queues.reserved.saturating_sub(own);
        // A reservation is lost only with the acquaintance it was made in: the peer had parted.
        let eager = small && partner.credit.bytes_allowed(len.saturating_add(others));
        let kind = if eager {
            wire::Kind::Eager
        } else {
            wire::Kind::Offer
        };
        let mut header = Header::new(kind, record.bits.0, len);
        let terms = partner.credit.terms(budget, false);
        terms.put(&mut header);
        if eager {
            header.body_len = len;
            let body = Body::Memory {
                memory,
                offset: 0,
                len: len as usize,
            };
            let sent = self.port.send(link, &header.emit(), body)?;
            partner.credit.on_told(terms, budget);
            partner.credit.on_sent(len);
            stats.packets_out += 1;
            stats.eager_out += 1;
            match sent {
                Sent::Held(token) => {
                    queues.reserved = others;
                    record.become_next(|memory| State::Draining { memory });
                    ops.leave(Strand::Own, &mut queues.pending, place);
                    self.core.owner.departed(send_id);
                    self.core.held.insert((link, token), send_id);
                    self.core.serving(send_id, &self.clock);
                }
                Sent::Whole | Sent::Part(_) => {
                    debug_assert_eq!(sent, Sent::Whole, "a small body is taken whole");
                    self.core.complete(send_id, Status::Success, len);
                }
            }
            return Ok(());
        }
        let exposed = match partner.reach {
            // A small one is soon pulled.
            Some(reach) if reach.remote_read && len as usize > expose_from => {
                self.port.expose(link, memory, send_id.to_word())
            }
            _ => None,
        };
        let (body, body_len) = OfferBody {
            send_id: send_id.to_word(),
            key: exposed,
        }
        .emit();
        header.body_len = body_len as u32;
        if let Err(error) = self
            .port
            .send(link, &header.emit(), Body::Bytes(&body[..body_len]))
        {
            if let Some(key) = exposed {
                self.port.conceal(link, key);
            }
            return Err(error);
        }
        partner.credit.on_told(terms, budget);
        partner.credit.on_sent(0);
        queues.reserved = others;
        stats.packets_out += 1;
        stats.offers_out += 1;
        stats.offered_for_credit += u64::from(small);
        record.become_next(|memory| State::Offered { memory, exposed });
        ops.leave(Strand::Own, &mut queues.pending, place);
        self.core.owner.departed(send_id);
        Ok(())
    }

    fn send_data(&mut self, id: PartnerId, link: LinkId) -> Result<(), SendError> {
        let Core {
            partners,
            ops,
            budget,
            stats,
            held,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(queues) = &mut partner.queues else {
            return Ok(());
        };
        let Some(&stream) = queues.streams.front() else {
            return Ok(());
        };
        let record = ops.get_mut(stream.request);
        let Some((memory, touched)) = record.and_then(|record| {
            let memory = record.state.memory()?;
            Some((memory, &mut record.touched))
        }) else {
            queues.streams.pop_front();
            return Ok(());
        };
        let data_max = partner.reach.map_or(u32::MAX, |reach| reach.data_max);
        let len = (data_max as usize).min(stream.end - stream.at);
        // Offsets of a message stay below 2^32, and so do parts of it.
        let mut header = Header::new(wire::Kind::Data, stream.recv_id, stream.at as u32);
        header.body_len = len as u32;
        let terms = partner.credit.terms(budget, false);
        terms.put(&mut header);
        let body = Body::Memory {
            memory,
            offset: stream.at,
            len,
        };
        let sent = self.port.send(link, &header.emit(), body)?;
        partner.credit.on_told(terms, budget);
        stats.packets_out += 1;
        *touched = true;
        match sent {
            Sent::Whole => {}
            Sent::Part(taken) => {
                let at = stream.at + taken.min(len);
                let end = stream.at + len;
                queues.partial = Some(Partial {
                    request: stream.request,
                    at,
                    end,
                });
            }
            Sent::Held(token) => {
                held.insert((link, token), stream.request);
            }
        }
        queues.streams.pop_front();
        if stream.at + len < stream.end {
            queues.streams.push_back(Stream {
                at: stream.at + len,
                ..stream
            });
        }
        if matches!(sent, Sent::Part(_)) {
            Err(SendError::WouldBlock)
        } else {
            Ok(())
        }
    }

    fn send_rest(
        &mut self,
        id: PartnerId,
        link: LinkId,
        partial: Partial,
    ) -> Result<(), SendError> {
        let Core { partners, ops, .. } = &mut self.core;
        let Some(queues) = partners.of_mut(id).and_then(Partner::queues_mut) else {
            return Ok(());
        };
        let memory = ops.get_mut(partial.request).and_then(|record| {
            record.touched = true;
            record.state.memory()
        });
        let Some(memory) = memory else {
            // `release` takes care of what a request leaves behind, so this is a fault of ours;
            // a packet that cannot be ended ends the link.
            debug_assert!(false, "a partial packet without its request");
            queues.partial = None;
            self.core.errands.push(Errand::Close(link, Close::Now));
            self.core
                .fail_partner(id, DownReason::Link(LinkDown::Reset));
            return Ok(());
        };
        let len = partial.end - partial.at;
        match self.port.resume(link, memory, partial.at, len)? {
            Sent::Whole => queues.partial = None,
            Sent::Part(taken) => {
                let at = partial.at + taken.min(len);
                queues.partial = Some(Partial { at, ..partial });
                return Err(SendError::WouldBlock);
            }
            Sent::Held(token) => {
                queues.partial = None;
                self.core.held.insert((link, token), partial.request);
            }
        }
        Ok(())
    }

    /// Reads a message that its sender has exposed.
    pub(super) fn read_remote(&mut self, id: RequestId) {
        let core = &mut self.core;
        let Some(record) = core.ops.get_mut(id) else {
            return;
        };
        let State::Pulling(pulling) = &mut record.state else {
            return;
        };
        if pulling.reading {
            // Its message was withdrawn and another took its place before this errand was run:
            // there are two of them, and the first has begun.
            return;
        }
        let Some(key) = pulling.key.as_deref().copied() else {
            return;
        };
        let (len, token) = (pulling.wanted as usize, read_token(id));
        let memory = &mut pulling.memory;
        let partner = core.partners.of(record.remote);
        let link = partner.and_then(|partner| partner.tx);
        let started = link.is_some_and(|link| {
            let read = RemoteRead {
                key,
                from: 0,
                memory,
                at: 0,
                len,
                token,
            };
            self.port.read_remote(link, read).is_ok()
        });
        if started {
            pulling.reading = true;
        } else {
            pulling.key = None;
            pulling.requested = 0;
            core.continue_pull(id);
        }
    }
}

impl<O: Owner> Core<O> {
    /// What may wait for a partner before it is granted nothing more.
    #[inline]
    pub(super) fn unread_max(&self) -> usize {
        match self.controls < UNREAD_ALL {
            true => UNREAD_MAX,
            false => UNREAD_CROWDED,
        }
    }

    /// A send has been matched: the time-out of transfers counts from now on, if it is another one.
    pub(super) fn serving(&mut self, id: RequestId, clock: &impl Clock) {
        if let Some(record) = self.ops.get_mut(id)
            && record.waiting != record.patience
        {
            record.touched = false;
            self.start_timer(id, clock.now());
        }
    }

    /// The receiver asks for a part of an offered message.
    pub(super) fn on_pull(
        &mut self,
        from: PartnerId,
        header: &Header,
        pull: PullBody,
        clock: &impl Clock,
    ) {
        let id = RequestId::from_word(header.word);
        let asked = self.ops.get_mut(id).filter(|asked| asked.remote == from);
        let Some(record) = asked else {
            self.stats.stale += 1;
            return;
        };
        let (first, exposed) = match record.state {
            State::Offered { exposed, .. } => (true, exposed),
            State::Serving { exposed, .. } => (false, exposed),
            _ => {
                self.stats.stale += 1;
                return;
            }
        };
        let at = header.length as usize;
        let end = at + pull.len as usize;
        if pull.len == 0 || end > record.state.room() as usize {
            self.stats.stale += 1;
            return;
        }
        record.touched = true;
        if first {
            record.become_next(|memory| State::Serving { memory, exposed });
            self.serving(id, clock);
        }
        let Some(partner) = self.partners.of_mut(from) else {
            return;
        };
        let part = Stream {
            request: id,
            recv_id: pull.recv_id,
            at,
            end,
        };
        if !partner.fill_queues(&mut self.spares).extend_stream(part) {
            // More at once than a receiver of ours has outstanding.
            self.stats.stale += 1;
            return;
        }
        self.make_ready(from);
    }
}

/// A receive's end as the number it has in a notify packet.
pub(super) fn notify_code(status: Status) -> u32 {
    match status {
        Status::Success => 0,
        Status::Truncated => 1,
        _ => 2,
    }
}

/// The inverse; what it does not know counts as aborted.
pub(super) fn notify_status(code: u32) -> Status {
    match code {
        0 => Status::Success,
        1 => Status::Truncated,
        _ => Status::Aborted,
    }
}

/// Packets without data that may wait for a partner before it is granted nothing more: far more than
/// one that reads has there, as each of its messages may cost an answer.
const UNREAD_MAX: usize = 256;
/// The same once there are [`UNREAD_ALL`], about a megabyte, for all partners together.
const UNREAD_CROWDED: usize = 4;
const UNREAD_ALL: usize = 16 * 1024;
/// Session packets that one call tries to give out.
const SESSIONS_AT_ONCE: usize = 256;
