//! Posting: every rule an operation must keep, and what is lent with it.
//!
//! ```text
//!   call --> ready? --> segments, prefix, limits --> registered? --> context free? --> lend
//!              |                 |                        |               |             |
//!           EAGAIN           violation                violation       violation    operations[n]
//! ```
//!
//! Owns: the checks, the operations' records, scribbling over contexts and prefixes.
//! Knows nothing of: C's argument lists, or how messages move once posted.

use std::sync::Arc;

use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::{Span, skip, total};
use crate::faults::{Call, Death};
use crate::objects::{Id, code};
use crate::shape::Shape;
use crate::state::{Link, Message, MessageBody, Multi, Operation, State, What};

/// A send, however it was called.
pub(crate) struct SendCall {
    pub(crate) name: &'static str,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    pub(crate) to: u64,
    pub(crate) context: usize,
    /// Of `fi_sendmsg`.
    pub(crate) flags: Option<u64>,
    /// `fi_inject`: no completion, no context.
    pub(crate) silent: bool,
}

/// A receive, however it was called.
pub(crate) struct ReceiveCall {
    pub(crate) name: &'static str,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    pub(crate) context: usize,
    pub(crate) flags: Option<u64>,
}

/// What a peer's address leads to.
pub(crate) enum Route {
    /// Connected, or allowed to queue until it is.
    To(Id),
    /// Not connected yet.
    Later,
    Gone(Death),
}

/// Bytes at the beginning of a posted receive that only the provider may change.
const CANARY: usize = 32;

impl State {
    /// Whether anything can be posted at all.
    pub(crate) fn ready(&mut self, ep: Id, name: &str) -> Result<Arc<Shape>, isize> {
        if let Some(error) = self.refused(Call::Post) {
            return Err(error);
        }
        let Some(endpoint) = self.endpoints.get_mut(&ep) else {
            return Err(code(FI_EINVAL));
        };
        if !endpoint.enabled {
            self.violation(format!("{name} on endpoint {ep}, which is not enabled"));
            return Err(code(FI_EOPBADSTATE));
        }
        if endpoint.dead {
            return Err(self.again());
        }
        if endpoint.storm > 0 {
            endpoint.storm -= 1;
            return Err(self.again());
        }
        let shape = endpoint.shape.clone();
        if self.rng.chance(self.faults.again) {
            let more = self.rng.upto(self.faults.again_run);
            if let Some(endpoint) = self.endpoints.get_mut(&ep) {
                endpoint.storm = more;
            }
            return Err(self.again());
        }
        Ok(shape)
    }

    pub(crate) fn again(&mut self) -> isize {
        self.stats.again += 1;
        code(FI_EAGAIN)
    }

    pub(crate) fn wrong(&mut self, name: &str, ep: Id, text: &str, error: i32) -> isize {
        self.violation(format!("{name} on endpoint {ep}: {text}"));
        code(error)
    }

    /// The segments themselves: how many, where, room for the prefix.
    pub(crate) fn check_segments(
        &mut self,
        ep: Id,
        name: &str,
        spans: &[Span],
        limit: usize,
        prefix: usize,
    ) -> Result<(), isize> {
        if spans.len() > limit {
            let text = format!("{} segments, {limit} are allowed", spans.len());
            return Err(self.wrong(name, ep, &text, FI_EINVAL));
        }
        let nowhere = |span: &Span| {
            span.len > 0 && (span.start == 0 || span.start.checked_add(span.len).is_none())
        };
        if spans.iter().any(nowhere) {
            return Err(self.wrong(name, ep, "memory at null or beyond the end", FI_EINVAL));
        }
        if spans.first().map_or(0, |span| span.len) < prefix {
            return Err(self.wrong(name, ep, "no room for the prefix", FI_EINVAL));
        }
        Ok(())
    }

    pub(crate) fn check_registered(
        &mut self,
        ep: Id,
        name: &str,
        spans: &[Span],
        descs: &[usize],
        access: u64,
    ) -> Result<(), isize> {
        for (index, span) in spans.iter().enumerate() {
            let desc = descs.get(index).copied().unwrap_or(0);
            if let Err(text) = self.local_access(ep, *span, desc, access) {
                return Err(self.wrong(name, ep, &text, FI_EINVAL));
            }
        }
        Ok(())
    }

    pub(crate) fn check_context(
        &mut self,
        ep: Id,
        name: &str,
        shape: &Shape,
        context: usize,
    ) -> Result<(), isize> {
        let size = shape.context_bytes();
        if size == 0 {
            return Ok(());
        }
        if context == 0 {
            return Err(self.wrong(name, ep, "a null context where room is wanted", FI_EINVAL));
        }
        if context % align_of::<fi_context2>() != 0 {
            return Err(self.wrong(name, ep, "a context out of line", FI_EINVAL));
        }
        let mine = Span::new(context, size);
        let taken = self
            .operations
            .values()
            .any(|operation| Span::new(operation.context, operation.scribbled).overlaps(mine));
        if taken {
            // A provider would go on and lose one of the two.
            self.wrong(name, ep, "a context that is in use", FI_EINVAL);
            return Err(code(FI_EINVAL));
        }
        Ok(())
    }

    /// Notes memory that is written by two, or written and read.
    pub(crate) fn check_overlap(&mut self, ep: Id, name: &str, spans: &[Span], writes: bool) {
        let clash = self.operations.values().find(|operation| {
            (writes || operation.writes())
                && operation
                    .spans
                    .iter()
                    .any(|a| spans.iter().any(|b| a.overlaps(*b)))
        });
        if let Some(other) = clash {
            let text = format!("memory that an operation of endpoint {} uses", other.ep);
            self.wrong(name, ep, &text, FI_EINVAL);
        }
    }

    /// Records an operation; from here on the provider has its context and memory.
    pub(crate) fn lend(&mut self, shape: &Shape, mut operation: Operation) -> u64 {
        let serial = self.next_serial();
        operation.scribbled = shape.context_bytes();
        if operation.context == 0 {
            operation.scribbled = 0;
        }
        bytes::fill(Span::new(operation.context, operation.scribbled), serial);
        self.operations.insert(serial, operation);
        serial
    }

    /// Gives context and memory back.
    pub(crate) fn end_operation(&mut self, serial: u64) {
        let Some(operation) = self.operations.remove(&serial) else {
            return;
        };
        let context = Span::new(operation.context, operation.scribbled);
        if context.len > 0 {
            if !bytes::is_filled(context, serial) {
                let ep = operation.ep;
                self.violation(format!("context of endpoint {ep} written to while in use"));
            }
            // What was there before is not there again.
            bytes::fill(context, !serial);
        }
    }

    /// Where an address of the endpoint's vector leads.
    pub(crate) fn route(&mut self, ep: Id, name: &str, to: u64) -> Result<Route, isize> {
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return Err(code(FI_EINVAL));
        };
        let (offer, shape) = (endpoint.offer, endpoint.shape.clone());
        let vector = endpoint.vector.and_then(|av| self.vectors.get(&av));
        let Some(address) = vector.and_then(|av| av.lookup(to)).map(<[u8]>::to_vec) else {
            let text = format!("peer {to:#x}, which is not in the address vector");
            return Err(self.wrong(name, ep, &text, FI_EINVAL));
        };
        let Some(peer) = self.resident(offer, &address) else {
            let death = self.graves.get(&address).copied().unwrap_or(shape.no_peer);
            return Ok(Route::Gone(death));
        };
        if self.connected(ep, peer, shape.connect_polls) || shape.connect_queues {
            Ok(Route::To(peer))
        } else {
            Ok(Route::Later)
        }
    }

    fn connected(&mut self, ep: Id, peer: Id, polls: u32) -> bool {
        let pair = (ep.min(peer), ep.max(peer));
        if let Some(link) = self.links.get(&pair) {
            return link.up;
        }
        let up = polls == 0;
        let link = Link { polls: [0; 2], up };
        self.links.insert(pair, link);
        if !up {
            self.connecting.push(pair);
            self.nudge(ep);
            self.nudge(peer);
        }
        up
    }

    pub(crate) fn post_send(&mut self, ep: Id, call: SendCall) -> Result<(), isize> {
        let name = call.name;
        let shape = self.ready(ep, name)?;
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return Err(code(FI_EINVAL));
        };
        let (caps, source) = (endpoint.caps, endpoint.address.clone());
        let full = endpoint.outstanding >= endpoint.tx_size;
        if caps & FI_MSG == 0 {
            return Err(self.wrong(name, ep, "without the capability", FI_ENOSYS));
        }
        self.check_segments(ep, name, &call.spans, shape.iov_limit, shape.prefix)?;
        let body = skip(&call.spans, shape.prefix);
        let len = total(&body);
        if len > shape.max_msg {
            return Err(self.wrong(name, ep, "a message longer than max_msg_size", FI_EMSGSIZE));
        }
        let flags = call.flags.unwrap_or(0);
        let inject = call.silent || flags & FI_INJECT != 0;
        if flags & FI_MORE != 0 && !shape.knows_more {
            return Err(code(FI_EBADFLAGS));
        }
        let unguarded = shape.resource_mgmt == FI_RM_DISABLED;
        if unguarded && (full || call.silent) {
            self.wrong(
                name,
                ep,
                "more than there is room for, or inject",
                FI_EINVAL,
            );
        }
        if inject && len > shape.inject {
            return Err(self.wrong(name, ep, "an inject longer than inject_size", FI_EINVAL));
        }
        if !inject {
            self.check_registered(ep, name, &call.spans, &call.descs, FI_SEND)?;
        }
        let route = self.route(ep, name, call.to)?;
        if full || matches!(route, Route::Later | Route::Gone(Death::Again)) {
            return Err(self.again());
        }
        if !call.silent {
            self.check_context(ep, name, &shape, call.context)?;
        }
        self.check_overlap(ep, name, &call.spans, false);
        self.stats.sends += 1;
        self.stats.injects += u64::from(call.silent);

        // A send may have its prefix written to; an inject's buffer is only ever read.
        let prefix = Span::new(
            call.spans.first().map_or(0, |span| span.start),
            shape.prefix,
        );
        if !inject {
            bytes::fill(prefix, 0x11);
        }
        let copied = inject.then(|| bytes::gather(&body));
        let datagram = match shape.ep_type {
            FI_EP_DGRAM => body.clone(),
            _ => Vec::new(),
        };
        let sender = (!call.silent).then(|| {
            let operation = Operation {
                ep,
                what: What::Send,
                context: call.context,
                scribbled: 0,
                sum: bytes::sum(&body),
                spans: if inject { Vec::new() } else { body },
                descs: if inject { Vec::new() } else { call.descs },
                canary: None,
                done: false,
            };
            self.lend(&shape, operation)
        });
        if shape.ep_type == FI_EP_DGRAM {
            let to = match route {
                Route::To(peer) => Some(peer),
                Route::Later | Route::Gone(_) => None,
            };
            let bytes = copied.unwrap_or_else(|| bytes::gather(&datagram));
            let message = Message {
                from: ep,
                source,
                len,
                body: MessageBody::Copied(bytes),
                sender,
            };
            self.send_datagram(ep, to, message, flags & FI_MORE != 0);
            return Ok(());
        }
        let small = inject || len <= shape.eager;
        match route {
            Route::To(peer) => {
                if let Some(endpoint) = self.endpoints.get_mut(&ep) {
                    endpoint.outstanding += 1;
                }
                let message = Message {
                    from: ep,
                    source,
                    len,
                    body: copied.map_or(MessageBody::Lent, MessageBody::Copied),
                    sender,
                };
                self.channels
                    .entry((peer, ep))
                    .or_default()
                    .push_back(message);
                self.nudge(peer);
            }
            Route::Gone(death) => self.send_to_nobody(ep, death, sender, small),
            Route::Later => {}
        }
        Ok(())
    }

    pub(crate) fn post_receive(&mut self, ep: Id, call: ReceiveCall) -> Result<(), isize> {
        let name = call.name;
        let shape = self.ready(ep, name)?;
        let Some(endpoint) = self.endpoints.get(&ep) else {
            return Err(code(FI_EINVAL));
        };
        let (caps, least) = (endpoint.caps, endpoint.least_multi);
        let full = endpoint.posted.len() >= endpoint.rx_size;
        let flags = call.flags.unwrap_or(0);
        if caps & FI_MSG == 0 {
            return Err(self.wrong(name, ep, "without the capability", FI_ENOSYS));
        }
        self.check_segments(ep, name, &call.spans, shape.iov_limit, shape.prefix)?;
        self.check_registered(ep, name, &call.spans, &call.descs, FI_RECV)?;
        let multi = if flags & FI_MULTI_RECV != 0 {
            if caps & FI_MULTI_RECV == 0 || call.spans.len() != 1 {
                return Err(self.wrong(name, ep, "multi-receive where there is none", FI_EINVAL));
            }
            if total(&call.spans) < least {
                self.wrong(
                    name,
                    ep,
                    "a multi-receive buffer below its minimum",
                    FI_EINVAL,
                );
            }
            Some(Multi {
                used: 0,
                least: least.max(1),
                landing: 0,
                full: false,
            })
        } else {
            None
        };
        if full {
            if shape.resource_mgmt == FI_RM_DISABLED {
                self.wrong(name, ep, "more than there is room for", FI_EINVAL);
            }
            return Err(self.again());
        }
        self.check_context(ep, name, &shape, call.context)?;
        self.check_overlap(ep, name, &call.spans, true);
        self.stats.receives += 1;

        let canary = call
            .spans
            .first()
            .map(|span| span.first(CANARY))
            .filter(|span| span.len > 0);
        let operation = Operation {
            ep,
            what: What::Receive(multi),
            context: call.context,
            scribbled: 0,
            spans: call.spans,
            descs: call.descs,
            sum: 0,
            canary,
            done: false,
        };
        let serial = self.lend(&shape, operation);
        if let Some(canary) = canary {
            bytes::fill(canary, serial);
        }
        if let Some(endpoint) = self.endpoints.get_mut(&ep) {
            endpoint.posted.push_back(serial);
            endpoint.look_again = true;
        }
        self.nudge(ep);
        Ok(())
    }
}
