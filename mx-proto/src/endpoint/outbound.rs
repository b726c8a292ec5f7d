//! Outgoing packets.
//!
//! ```text
//!   ready remotes, one burst each, round robin
//!     burst: partial -> control -> (message, packet of a stream)*      over the command link
//!            partial -> packet of a stream*                            over each data link
//!            control                                                   before the remote is connected
//! ```
//!
//! A packet that the port rejects stays where it was, and its remote gets no turn until the port reports room.

use super::Endpoint;
use crate::flow::{self, Borrower, Flow, Lane, Payment};
use crate::ids::{LinkId, RemoteId, RequestId};
use crate::memory::Memory;
use crate::ops::{Form, ListKind, Ops, State};
use crate::owner::Owner;
use crate::port::{Body, Close, LinkDown, Port, SendError, Sent};
use crate::queues::{Partial, Queues};
use crate::remote::{COMMAND_LINK, Remote, RemoteState, Tx};
use crate::status::{DownReason, Status};
use crate::time::Clock;
use crate::wire::{self, Header, OfferBody};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Burst {
    /// Nothing is left to send.
    Done,
    /// The turn is over, and more is left.
    More,
    /// The link has no room.
    Blocked,
}

#[derive(Clone, Copy, Debug)]
struct Next {
    send: RequestId,
    lane: Lane,
    paid: Payment,
    /// Whether the message carries its data.
    eager: bool,
}

impl Next {
    /// Returns the older of the first messages of both lanes; or the other, if there are neither credits nor a free
    /// slot for the older. `most`: size of the largest message that carries its data. `patient`: such a message is not
    /// announced while its remote may still grant credits for it.
    pub(super) fn of<O: Owner>(
        queues: &Queues,
        ops: &Ops<O>,
        borrows: &Borrower,
        most: u32,
        patient: bool,
    ) -> Option<Self> {
        let head = |lane: Lane| {
            let send = ops.first(&queues.lanes[lane as usize])?;
            match &ops.record(send.index()).state {
                State::Queued { memory, stand } => Some((send, lane, *stand, memory.len())),
                _ => None,
            }
        };
        let mut heads = Lane::ALL.map(head);
        heads.sort_unstable_by_key(|head| head.map_or(u64::MAX, |(_, _, stand, _)| stand.number));
        heads
            .into_iter()
            .flatten()
            .find_map(|(send, lane, stand, len)| {
                let whole = match stand.form {
                    Form::Copied => Some(Payment::Credits(stand.cost)),
                    // The cost was computed at posting, perhaps before the link's limits were known.
                    Form::Plain if len <= most as usize && stand.cost == flow::cost(len as u32) => {
                        let payment = borrows.payment(stand.cost, lane);
                        if payment.is_none() && patient && !borrows.is_refused() {
                            return None;
                        }
                        payment
                    }
                    Form::Plain | Form::Synchronous => None,
                };
                Some(Self {
                    send,
                    lane,
                    paid: whole.or_else(|| borrows.payment(1, lane))?,
                    eager: whole.is_some(),
                })
            })
    }
}

impl<P: Port<O::Memory>, C: Clock, O: Owner> Endpoint<P, C, O> {
    /// Sends what can be sent, fairly: at most about two polls' worth, and two bursts for each remote, so that a busy
    /// remote does not keep the endpoint from receiving.
    pub(super) fn transmit(&mut self) -> bool {
        let mut busy = false;
        let most = 2 * self.config.poll_budget / self.config.burst.max(1) + 1;
        let mut bursts = most.min(2 * self.ready.len());
        // Send small packets of one remote with one system call.
        self.port.hold(true);
        while bursts > 0
            && let Some(id) = self.ready.pop_front()
        {
            bursts -= 1;
            busy = true;
            let burst = self.burst(id);
            if let Some(remote) = self.remotes.of_mut(id) {
                if let Some(queues) = remote.queues_mut() {
                    queues.ready = false;
                }
                self.spares.tidy(&mut remote.queues);
                if burst == Burst::More {
                    self.make_ready(id);
                }
            }
        }
        self.port.hold(false);
        self.port.send_held();
        busy
    }

    /// Sends some of the packets queued for a remote over its links that have room.
    fn burst(&mut self, id: RemoteId) -> Burst {
        if self.remotes.connected(id).is_none() {
            return self.burst_of(id, COMMAND_LINK);
        }
        let mut burst = Burst::Done;
        for nth in 0.. {
            let Some((number, tx)) = self
                .remotes
                .connected(id)
                .and_then(|met| met.links().nth(nth))
            else {
                break;
            };
            if matches!(tx, Tx::Open(_)) && self.burst_of(id, number) == Burst::More {
                burst = Burst::More;
            }
        }
        burst
    }

    /// Sends some of the packets queued for one link of a remote, without checking for room first.
    pub(super) fn burst_of(&mut self, id: RemoteId, number: u32) -> Burst {
        let patient = self.config.ask_before_announcing;
        for turn in 0..self.config.burst {
            let Self {
                remotes,
                ops,
                stats,
                ..
            } = self;
            let Some((met, queues, _)) = remotes.sending(id) else {
                let Some(link) = remotes.of(id).and_then(Remote::introduces) else {
                    return Burst::Done;
                };
                if self.send_control(id, link).is_err() {
                    return Burst::Blocked;
                }
                continue;
            };
            let Some(link) = met.link(number).filter(|tx| !tx.is_fenced()).map(Tx::link) else {
                return Burst::Done;
            };
            let sent = if let Some(partial) = queues.partial(number) {
                self.send_rest(id, link, partial)
            } else if number != COMMAND_LINK {
                match queues.next_stream(number) {
                    Some(nth) => self.send_data(id, (number, link), nth),
                    None => return Burst::Done,
                }
            } else if !queues.control.is_empty() {
                self.send_control(id, link)
            } else {
                let message = Next::of(
                    queues,
                    ops,
                    &met.borrows,
                    met.link_limits.eager_max,
                    patient,
                );
                if message.is_none() && queues.cost > 0 {
                    stats.credit_stalls += u64::from(!queues.stalled);
                    queues.stalled = true;
                }
                match (message, queues.next_stream(number)) {
                    (None, None) if met.borrows.asks(queues.cost) => {
                        self.tell(id);
                        Ok(())
                    }
                    (None, None) if patient && queues.cost > 0 && met.borrows.awaits_answer() => {
                        // Credits that the remote grants arrive before the answer, or with it.
                        let question = Header::new(wire::Kind::Ping, 0, 0);
                        self.push_control(id, question, &[]);
                        Ok(())
                    }
                    (None, None) => return Burst::Done,
                    (Some(next), None) => self.send_message(id, link, next),
                    (Some(next), Some(_)) if turn % 2 == 0 => self.send_message(id, link, next),
                    (_, Some(nth)) => self.send_data(id, (number, link), nth),
                }
            };
            if sent.is_err() {
                // The port reports a link that is down.
                self.block(id, link);
                return Burst::Blocked;
            }
        }
        Burst::More
    }

    fn block(&mut self, id: RemoteId, link: LinkId) {
        if let Some(met) = self.remotes.connected_mut(id) {
            met.set_tx(Tx::Blocked(link));
        }
    }

    /// Sends the first control packet queued for a remote.
    fn send_control(&mut self, id: RemoteId, link: LinkId) -> Result<(), SendError> {
        let Self {
            remotes,
            flow,
            stats,
            controls,
            ..
        } = self;
        let Some(remote) = remotes.of_mut(id) else {
            return Ok(());
        };
        let Some(queues) = remote.queues.as_deref_mut() else {
            return Ok(());
        };
        let unread = queues.control.len() > unread_max(*controls, UNREAD_ALL);
        let Some(control) = queues.control.front_mut() else {
            return Ok(());
        };
        let kind = control.header.kind;
        let account = match &mut remote.state {
            RemoteState::Connected(met) if kind.has_credit_fields() => {
                Some((&mut remote.lends, &mut met.borrows, queues.cost))
            }
            _ => None,
        };
        let mut updated = true;
        if let Some((lends, borrows, cost)) = &account {
            // A remote that does not read its answers gets no credits for more requests.
            let fields = if unread {
                flow.same_credit_fields(lends, borrows, *cost)
            } else {
                flow.credit_fields(lends, borrows, *cost)
            };
            control.header.credit_fields = fields;
            updated = kind != wire::Kind::Credit || Flow::says_more(lends, &fields);
        }
        if updated {
            let (header, body) = control.parts();
            self.port.send(link, &header, Body::Bytes(body))?;
            stats.packets_out += 1;
        }
        if let Some((lends, borrows, _)) = account {
            Flow::on_told(lends, borrows, &control.header.credit_fields);
        }
        queues.control.pop_front();
        *controls -= 1;
        if kind == wire::Kind::Fence && self.fence(id, link) {
            return Err(SendError::WouldBlock);
        }
        Ok(())
    }

    fn send_message(&mut self, id: RemoteId, link: LinkId, next: Next) -> Result<(), SendError> {
        let register_from = self.config.small_max();
        let Self {
            remotes,
            ops,
            flow,
            stats,
            clock,
            ..
        } = self;
        let Some((met, queues, lends)) = remotes.sending(id) else {
            return Ok(());
        };
        let Next { send, lane, .. } = next;
        let place = send.index();
        let record = ops.record_mut(place);
        let State::Queued { memory, stand } = &record.state else {
            debug_assert!(false, "{send:?} has no turn");
            ops.leave(ListKind::State, &mut queues.lanes[lane as usize], place);
            return Ok(());
        };
        let (stand, len) = (*stand, memory.len() as u32);
        let kind = if next.eager {
            wire::Kind::Eager
        } else {
            wire::Kind::Offer
        };
        let mut header = Header::new(kind, record.bits.0, len);
        header.aux = next.paid.aux();
        header.credit_fields = flow.credit_fields(lends, &met.borrows, queues.cost);
        if next.eager {
            header.body_len = len;
            let body = Body::Memory {
                memory,
                offset: 0,
                len: len as usize,
            };
            let sent = self.port.send(link, &header.emit(), body)?;
            Flow::on_told(lends, &mut met.borrows, &header.credit_fields);
            if stand.form != Form::Copied {
                met.borrows.pay(next.paid);
            }
            let waited = clock.now().since(stand.since);
            let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
            met.longest_wait = met.longest_wait.max(waited);
            stats.longest_wait_us = stats.longest_wait_us.max(u64::from(waited));
            stats.packets_out += 1;
            stats.eager_out += 1;
            let Sent::Part(at) = sent else {
                self.complete(send, Status::Success, len);
                return Ok(());
            };
            queues.exit(lane, stand);
            let form = stand.form;
            record.become_next(|memory| State::Draining { memory, form });
            ops.leave(ListKind::State, &mut queues.lanes[lane as usize], place);
            queues.set_partial(Partial {
                link: COMMAND_LINK,
                request: send,
                at,
                end: len as usize,
            });
            self.serving(send);
            return Err(SendError::WouldBlock);
        }
        // A small message is pulled soon.
        let registered = if met.link_limits.remote_read && len as usize > register_from {
            let remote = self.port.remote_memory(link);
            remote.and_then(|it| it.register(link, memory, send.to_word()))
        } else {
            None
        };
        let (body, body_len) = OfferBody {
            send_id: send.to_word(),
            key: registered,
        }
        .emit();
        header.body_len = body_len as u32;
        if let Err(error) = self
            .port
            .send(link, &header.emit(), Body::Bytes(&body[..body_len]))
        {
            if let (Some(key), Some(it)) = (registered, self.port.remote_memory(link)) {
                it.deregister(link, key);
            }
            return Err(error);
        }
        Flow::on_told(lends, &mut met.borrows, &header.credit_fields);
        met.borrows.pay(next.paid);
        queues.exit(lane, stand);
        stats.packets_out += 1;
        stats.offers_out += 1;
        let small = stand.form != Form::Synchronous && len <= met.link_limits.eager_max;
        stats.offered_for_credit += u64::from(small);
        record.become_next(|memory| State::Offered { memory, registered });
        ops.leave(ListKind::State, &mut queues.lanes[lane as usize], place);
        self.want_data_link(id, len.into());
        Ok(())
    }

    fn send_rest(&mut self, id: RemoteId, link: LinkId, partial: Partial) -> Result<(), SendError> {
        let Self { remotes, ops, .. } = self;
        let Some(queues) = remotes.of_mut(id).and_then(Remote::queues_mut) else {
            return Ok(());
        };
        let record = ops.get_mut(partial.request);
        let memory = record.and_then(|record| {
            record.touched = true;
            let eager = matches!(record.state, State::Draining { .. });
            Some((record.state.memory()?, eager))
        });
        let Some((memory, eager)) = memory else {
            // `release` removes the partial packet of an ended request, so this is a bug; a packet that cannot be
            // finished ends the link.
            debug_assert!(false, "a partial packet without its request");
            queues.end_partial(partial.link);
            self.close_link(link, Close::Now);
            self.fail_remote(id, DownReason::Link(LinkDown::Reset));
            return Ok(());
        };
        let len = partial.end - partial.at;
        match self.port.resume(link, memory, partial.at, len)? {
            Sent::Whole => {
                queues.end_partial(partial.link);
                if eager {
                    let len = partial.end as u32;
                    self.complete(partial.request, Status::Success, len);
                } else {
                    self.end_if_lent(id, partial.request);
                }
            }
            Sent::Part(taken) => {
                let at = partial.at + taken.min(len);
                queues.set_partial(Partial { at, ..partial });
                return Err(SendError::WouldBlock);
            }
        }
        Ok(())
    }
}

/// Returns the number of packets that may wait for one remote before it gets no more credits. `all`: packets that wait
/// for all remotes, which are too many from `many` on.
#[inline]
pub(super) fn unread_max(all: usize, many: usize) -> usize {
    if all < many {
        UNREAD_MAX
    } else {
        UNREAD_WHEN_FULL
    }
}

/// Maximum number of packets without data that may wait for a remote before it is granted nothing more: far more than a
/// remote that reads has, although each of its messages may cause an answer.
const UNREAD_MAX: usize = 256;
/// Maximum number once [`UNREAD_ALL`] packets wait for all remotes together, about two megabytes.
const UNREAD_WHEN_FULL: usize = 4;
pub(super) const UNREAD_ALL: usize = 16 * 1024;
