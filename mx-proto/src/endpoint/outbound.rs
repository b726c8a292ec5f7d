//! What goes out.
//!
//! ```text
//!   session packets -> ready partners, one burst each, round robin
//!                        burst: partial -> control -> (message, part of a stream)*
//! ```
//!
//! A packet the port does not take has not happened: it stays where it was, and the partner leaves
//! the round until the port says that there is room.

use super::{Core, Endpoint, Errand};
use crate::ids::{LinkId, PartnerId, RequestId};
use crate::memory::Memory;
use crate::partner::{Partial, Partner, Stream};
use crate::port::{Body, Close, LinkDown, Port, RemoteRead, SendError, Sent};
use crate::request::State;
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

impl<P: Port<M>, M: Memory, C: Clock> Endpoint<P, M, C> {
    /// Gives out what can go, fairly, at most about two polls' worth.
    pub(super) fn transmit(&mut self) -> bool {
        let mut busy = self.transmit_sessions();
        let mut bursts = 2 * self.core.config.poll_budget / self.core.config.burst.max(1) + 1;
        while bursts > 0
            && let Some(id) = self.core.ready.pop_front()
        {
            bursts -= 1;
            busy = true;
            let burst = self.burst(id);
            if let Some(partner) = self.core.partners.of_mut(id) {
                partner.ready = false;
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
        for _ in 0..self.core.session_out.len() {
            let Some((link, control, close)) = self.core.session_out.pop_front() else {
                break;
            };
            let (header, body) = control.parts();
            match self.port.send(link, &header, Body::Bytes(body)) {
                Ok(_) => {
                    self.core.stats.packets_out += 1;
                    busy = true;
                    if close {
                        self.core.errands.push(Errand::Close(link, Close::Flush));
                    }
                }
                Err(SendError::WouldBlock) => {
                    self.core.session_out.push_back((link, control, close));
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
            let sent = if let Some(partial) = partner.partial {
                self.send_rest(id, link, partial)
            } else if !partner.control.is_empty() {
                self.send_control(id, link)
            } else {
                let message = !partner.pending.is_empty() && partner.credit.message_allowed();
                match (message, partner.streams.is_empty()) {
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
        let Core {
            partners,
            budget,
            stats,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(control) = partner.control.front_mut() else {
            return Ok(());
        };
        let (bytes, messages) = partner.credit.grant(budget);
        (control.header.credit_bytes, control.header.credit_messages) = (bytes, messages);
        let (header, body) = control.parts();
        self.port.send(link, &header, Body::Bytes(body))?;
        stats.packets_out += 1;
        match control.header.kind {
            wire::Kind::Credit => partner.credit_queued = false,
            wire::Kind::Ping => partner.vigil.ping_queued = false,
            wire::Kind::Pong => partner.vigil.pong_queued = false,
            _ => {}
        }
        partner.control.pop_front();
        if partner.control.is_empty() && partner.control.capacity() > CONTROL_KEPT {
            partner.control.shrink_to(CONTROL_KEPT);
        }
        Ok(())
    }

    fn send_message(&mut self, id: PartnerId, link: LinkId) -> Result<(), SendError> {
        let expose_from = self.core.config.eager_max;
        let Core {
            partners,
            requests,
            budget,
            stats,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(&send_id) = partner.pending.front() else {
            return Ok(());
        };
        let Some(request) = requests.of_mut(send_id) else {
            // Cancelled or timed out meanwhile.
            partner.pending.pop_front();
            return Ok(());
        };
        let (State::Queued { synchronous, .. }, Some(memory)) = (&request.state, &request.memory)
        else {
            partner.pending.pop_front();
            return Ok(());
        };
        let len = memory.len() as u32;
        let small = !synchronous && len <= partner.eager_max;
        let eager = small && partner.credit.bytes_allowed(len);
        let kind = if eager {
            wire::Kind::Eager
        } else {
            wire::Kind::Offer
        };
        let mut header = Header::new(kind, request.bits.0, len);
        (header.credit_bytes, header.credit_messages) = partner.credit.grant(budget);
        if eager {
            header.body_len = len;
            let body = Body::Memory {
                memory,
                offset: 0,
                len: len as usize,
            };
            let sent = self.port.send(link, &header.emit(), body)?;
            partner.credit.on_sent(len);
            partner.pending.pop_front();
            stats.packets_out += 1;
            stats.eager_out += 1;
            match sent {
                Sent::Held(token) => {
                    request.become_next(State::Draining { to: id });
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
        let exposed = match partner.limits {
            // A small one is soon pulled, and its memory can be exchanged meanwhile.
            Some(limits) if limits.remote_read && len as usize > expose_from => {
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
        partner.credit.on_sent(0);
        partner.pending.pop_front();
        stats.packets_out += 1;
        stats.offers_out += 1;
        stats.offered_for_credit += u64::from(small);
        request.become_next(State::Offered { to: id, exposed });
        Ok(())
    }

    fn send_data(&mut self, id: PartnerId, link: LinkId) -> Result<(), SendError> {
        let Core {
            partners,
            requests,
            budget,
            stats,
            held,
            ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let Some(&stream) = partner.streams.front() else {
            return Ok(());
        };
        let Some(request) = requests.of_mut(stream.request) else {
            partner.streams.pop_front();
            return Ok(());
        };
        let Some(memory) = &request.memory else {
            return Ok(());
        };
        let data_max = partner
            .limits
            .map_or(usize::MAX, |limits| limits.data_max)
            .max(1);
        let len = data_max.min(stream.end - stream.at);
        // Offsets of a message stay below 2^32, and so do parts of it.
        let mut header = Header::new(wire::Kind::Data, stream.recv_id, stream.at as u32);
        header.body_len = len as u32;
        (header.credit_bytes, header.credit_messages) = partner.credit.grant(budget);
        let body = Body::Memory {
            memory,
            offset: stream.at,
            len,
        };
        let sent = self.port.send(link, &header.emit(), body)?;
        stats.packets_out += 1;
        request.touched = true;
        match sent {
            Sent::Whole => {}
            Sent::Part(taken) => {
                let at = stream.at + taken.min(len);
                let end = stream.at + len;
                partner.partial = Some(Partial {
                    request: stream.request,
                    at,
                    end,
                });
            }
            Sent::Held(token) => {
                held.insert((link, token), stream.request);
            }
        }
        partner.streams.pop_front();
        if stream.at + len < stream.end {
            partner.streams.push_back(Stream {
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
        let Core {
            partners, requests, ..
        } = &mut self.core;
        let Some(partner) = partners.of_mut(id) else {
            return Ok(());
        };
        let memory = requests.of_mut(partial.request).and_then(|request| {
            request.touched = true;
            request.memory.as_ref()
        });
        let Some(memory) = memory else {
            // `release` takes care of what a request leaves behind, so this is a fault of ours;
            // a packet that cannot be ended ends the link.
            debug_assert!(false, "a partial packet without its request");
            partner.partial = None;
            self.core.errands.push(Errand::Close(link, Close::Now));
            self.core
                .fail_partner(id, DownReason::Link(LinkDown::Reset));
            return Ok(());
        };
        let len = partial.end - partial.at;
        match self.port.resume(link, memory, partial.at, len)? {
            Sent::Whole => partner.partial = None,
            Sent::Part(taken) => {
                let at = partial.at + taken.min(len);
                partner.partial = Some(Partial { at, ..partial });
                return Err(SendError::WouldBlock);
            }
            Sent::Held(token) => {
                partner.partial = None;
                self.core.held.insert((link, token), partial.request);
            }
        }
        Ok(())
    }

    /// Reads a message that its sender has exposed.
    pub(super) fn read_remote(&mut self, id: RequestId) {
        let core = &mut self.core;
        let Some(request) = core.requests.of_mut(id) else {
            return;
        };
        let State::Pulling(pulling) = &mut request.state else {
            return;
        };
        if pulling.read.is_some() {
            // Its message was withdrawn and another took its place before this errand was run:
            // there are two of them, and the first has begun.
            return;
        }
        let (Some(key), Some(memory)) = (pulling.key, &mut request.memory) else {
            return;
        };
        let (len, token) = (pulling.wanted as usize, core.next_read);
        let link = core
            .partners
            .of(pulling.from)
            .and_then(|partner| partner.tx);
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
            core.next_read += 1;
            pulling.read = Some(token);
            core.reads.insert(token, id);
        } else {
            pulling.key = None;
            pulling.requested = 0;
            core.continue_pull(id);
        }
    }
}

impl<M: Memory> Core<M> {
    /// A send has been matched: the time-out of transfers counts from now on, if it is another one.
    pub(super) fn serving(&mut self, id: RequestId, clock: &impl Clock) {
        if let Some(request) = self.requests.of_mut(id)
            && request.waiting != request.patience
        {
            request.touched = false;
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
        let Some(request) = self.requests.of_mut(id) else {
            self.stats.stale += 1;
            return;
        };
        let exposed = match request.state {
            State::Offered { to, exposed } | State::Serving { to, exposed } if to == from => {
                exposed
            }
            _ => {
                self.stats.stale += 1;
                return;
            }
        };
        let len = request.memory.as_ref().map_or(0, Memory::len);
        let at = header.length as usize;
        let end = at + pull.len as usize;
        if pull.len == 0 || end > len {
            self.stats.stale += 1;
            return;
        }
        let first = request.state.is_waiting();
        request.become_next(State::Serving { to: from, exposed });
        request.touched = true;
        if first {
            self.serving(id, clock);
        }
        let Some(partner) = self.partners.of_mut(from) else {
            return;
        };
        if partner.streams.len() >= STREAMS_MAX {
            // More at once than a receiver of ours can have outstanding: it repeats itself.
            self.stats.stale += 1;
            return;
        }
        partner.extend_stream(Stream {
            request: id,
            recv_id: pull.recv_id,
            at,
            end,
        });
        self.make_ready(from);
    }
}

impl Partner {
    /// Parts that follow each other go out as one, so that they stay in order.
    fn extend_stream(&mut self, part: Stream) {
        let open = self
            .streams
            .iter_mut()
            .rev()
            .find(|stream| stream.request == part.request);
        match open {
            Some(stream) if stream.end == part.at && stream.recv_id == part.recv_id => {
                stream.end = part.end;
            }
            _ => self.streams.push_back(part),
        }
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

/// Parts of messages one partner may have asked for and not got.
const STREAMS_MAX: usize = 1 << 16;
/// Entries of memory a partner's control queue keeps when it is empty.
const CONTROL_KEPT: usize = 8;
