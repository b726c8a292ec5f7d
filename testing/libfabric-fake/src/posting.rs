//! Posting: the rules for operations, and the memory lent with them.
//!
//! ```text
//!   call --> ready? --> segments, prefix, limits --> registered? --> context free? --> lend
//!              |                 |                        |               |             |
//!           EAGAIN           violation                violation       violation    operations[n]
//! ```
//!
//! Owns: the checks, the operations' records, overwriting contexts and prefixes.
//! Out of scope: C's argument lists, the movement of messages.

use std::sync::Arc;

use libfabric_sys::abi::*;

use crate::bytes;
use crate::checker::{Span, skip, total};
use crate::faults::Death;
use crate::objects::{Id, code};
use crate::remote::Remote;
use crate::shape::Shape;
use crate::state::{Link, Message, MessageBody, Multi, Operation, State, What};

/// An operation, from any call.
pub(crate) struct Post {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) spans: Vec<Span>,
    pub(crate) descs: Vec<usize>,
    pub(crate) peer: u64,
    pub(crate) context: usize,
    /// Flags of `fi_sendmsg` and `fi_recvmsg`.
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Receive,
    Send,
    /// `fi_inject`: no completion, no context.
    Inject,
    /// Address of the memory at the peer.
    Read {
        addr: u64,
        key: u64,
    },
}

/// The result of looking up a peer's address.
pub(crate) enum Route {
    /// The link is connected, or messages may queue until it is.
    To(Id),
    /// The link is not connected yet.
    Later,
    Gone(Death),
}

/// Bytes at the beginning of a posted receive that only the provider may change.
const CANARY: usize = 32;

impl State {
    /// Checks that an operation can be posted at all.
    fn ready(&mut self, ep: Id, name: &str) -> Result<Arc<Shape>, isize> {
        let endpoint = self.ep(ep);
        if !endpoint.enabled {
            return Err(self.violated(
                FI_EOPBADSTATE,
                format!("{name} on endpoint {ep}, which is not enabled"),
            ));
        }
        if endpoint.dead {
            return Err(self.again());
        }
        if endpoint.storm > 0 {
            endpoint.storm -= 1;
            return Err(self.again());
        }
        if self.rng.chance(self.faults.again) {
            self.ep(ep).storm = self.rng.upto(self.faults.again_run);
            return Err(self.again());
        }
        Ok(self.ep(ep).shape.clone())
    }

    pub(crate) fn again(&mut self) -> isize {
        self.stats.again += 1;
        code(FI_EAGAIN)
    }

    pub(crate) fn wrong(&mut self, name: &str, ep: Id, text: &str, error: i32) -> isize {
        self.violation(format!("{name} on endpoint {ep}: {text}"));
        code(error)
    }

    /// Returns errors of the segments themselves: number, addresses, space for the prefix.
    fn wrong_segments(spans: &[Span], limit: usize, prefix: usize) -> Option<String> {
        let nowhere = |span: &Span| {
            span.len > 0 && (span.start == 0 || span.start.checked_add(span.len).is_none())
        };
        if spans.len() > limit {
            Some(format!("{} segments, {limit} are allowed", spans.len()))
        } else if spans.iter().any(nowhere) {
            Some("memory at null or beyond the end".to_owned())
        } else {
            let short = spans.first().map_or(0, |span| span.len) < prefix;
            short.then(|| "no room for the prefix".to_owned())
        }
    }

    fn wrong_registrations(&self, ep: Id, post: &Post, access: u64) -> Option<String> {
        let wrong = |(index, span): (usize, &Span)| {
            let desc = post.descs.get(index).copied().unwrap_or(0);
            self.local_access(ep, *span, desc, access).err()
        };
        post.spans.iter().enumerate().find_map(wrong)
    }

    fn wrong_context(&self, shape: &Shape, context: usize) -> Option<&'static str> {
        let mine = Span::new(context, shape.context_bytes());
        let taken = |other: &Operation| Span::new(other.context, other.scribbled).overlaps(mine);
        if mine.len == 0 {
            None
        } else if context == 0 {
            Some("a null context where room is wanted")
        } else if context % align_of::<fi_context2>() != 0 {
            Some("a context out of line")
        } else {
            // A provider would continue and lose one of the two.
            let taken = self.operations.values().any(taken);
            taken.then_some("a context that is in use")
        }
    }

    /// Records memory that two operations write, or that one writes and another reads.
    fn check_overlap(&mut self, ep: Id, post: &Post, writes: bool) {
        let clash = self.operations.values().find(|operation| {
            let overlaps = |a: &Span| post.spans.iter().any(|b| a.overlaps(*b));
            (writes || operation.writes()) && operation.spans.iter().any(overlaps)
        });
        if let Some(other) = clash {
            let text = format!("memory that an operation of endpoint {} uses", other.ep);
            self.wrong(post.name, ep, &text, FI_EINVAL);
        }
    }

    /// Records an operation; from here on the provider has its context and memory.
    fn lend(&mut self, shape: &Shape, mut operation: Operation) -> u64 {
        self.serial += 1;
        let serial = self.serial;
        if operation.context != 0 {
            operation.scribbled = shape.context_bytes();
        }
        bytes::fill(Span::new(operation.context, operation.scribbled), serial);
        self.operations.insert(serial, operation);
        serial
    }

    /// Returns context and memory.
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
            // The previous contents are not restored.
            bytes::fill(context, !serial);
        }
    }

    /// Looks up an address of the endpoint's vector.
    fn route(&mut self, ep: Id, name: &str, to: u64) -> Result<Route, isize> {
        let endpoint = &self.endpoints[&ep];
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

    pub(crate) fn post(&mut self, ep: Id, post: Post) -> Result<(), isize> {
        let (name, kind, flags) = (post.name, post.kind, post.flags);
        let shape = self.ready(ep, name)?;
        let endpoint = &self.endpoints[&ep];
        let (access, needs, prefix, full) = match kind {
            Kind::Receive => {
                let full = endpoint.posted.len() >= endpoint.rx_size;
                (FI_RECV, FI_MSG, shape.prefix, full)
            }
            Kind::Send | Kind::Inject => {
                let full = endpoint.outstanding >= endpoint.tx_size;
                (FI_SEND, FI_MSG, shape.send_prefix(), full)
            }
            Kind::Read { .. } => {
                let full = endpoint.outstanding >= endpoint.tx_size;
                (FI_READ, FI_RMA | FI_READ, 0, full)
            }
        };
        if endpoint.caps & needs != needs {
            return Err(self.wrong(name, ep, "without the capability", FI_ENOSYS));
        }
        if let Some(text) = Self::wrong_segments(&post.spans, shape.iov_limit, prefix) {
            return Err(self.wrong(name, ep, &text, FI_EINVAL));
        }
        let inject = kind == Kind::Inject;
        let body = skip(&post.spans, prefix);
        let len = total(&body);
        if kind != Kind::Receive && len > shape.max_msg {
            return Err(self.wrong(name, ep, "a message longer than max_msg_size", FI_EMSGSIZE));
        }
        if kind == Kind::Send && flags & FI_MORE != 0 && !shape.knows_more {
            return Err(code(FI_EBADFLAGS));
        }
        if shape.resource_mgmt == FI_RM_DISABLED && (full || inject) {
            let text = "more than there is room for, or inject";
            self.wrong(name, ep, text, FI_EINVAL);
        }
        if inject && len > shape.inject {
            return Err(self.wrong(name, ep, "an inject longer than inject_size", FI_EINVAL));
        }
        if !inject && let Some(text) = self.wrong_registrations(ep, &post, access) {
            return Err(self.wrong(name, ep, &text, FI_EINVAL));
        }
        let multi = self.multi(ep, &post)?;
        let route = match kind {
            Kind::Receive => Route::To(ep),
            _ => self.route(ep, name, post.peer)?,
        };
        if full || matches!(route, Route::Later | Route::Gone(Death::Again)) {
            return Err(self.again());
        }
        if !inject && let Some(text) = self.wrong_context(&shape, post.context) {
            return Err(self.wrong(name, ep, text, FI_EINVAL));
        }
        self.check_overlap(ep, &post, access != FI_SEND);
        match kind {
            Kind::Receive => self.receive(ep, &shape, post, multi),
            Kind::Read { addr, key } => self.read(ep, &shape, post, route, (addr, key)),
            Kind::Send | Kind::Inject => self.send(ep, &shape, post, route, body),
        }
        Ok(())
    }

    /// Checks a receive for several messages.
    fn multi(&mut self, ep: Id, post: &Post) -> Result<Option<Multi>, isize> {
        if post.flags & FI_MULTI_RECV == 0 {
            return Ok(None);
        }
        let (caps, least) = (self.ep(ep).caps, self.ep(ep).least_multi);
        if caps & FI_MULTI_RECV == 0 || post.spans.len() != 1 {
            let text = "multi-receive where there is none";
            return Err(self.wrong(post.name, ep, text, FI_EINVAL));
        }
        if total(&post.spans) < least {
            let text = "a multi-receive buffer below its minimum";
            self.wrong(post.name, ep, text, FI_EINVAL);
        }
        Ok(Some(Multi {
            used: 0,
            least: least.max(1),
            landing: 0,
            full: false,
        }))
    }

    fn send(&mut self, ep: Id, shape: &Shape, post: Post, route: Route, body: Vec<Span>) {
        let inject = post.kind == Kind::Inject;
        self.stats.sends += 1;
        self.stats.injects += u64::from(inject);
        self.stats.sent += total(&body) as u64;
        // The provider may write to a send's prefix; an inject's buffer is only read.
        if !inject {
            let start = post.spans.first().map_or(0, |span| span.start);
            bytes::fill(Span::new(start, shape.send_prefix()), 0x11);
        }
        let len = total(&body);
        let datagram = shape.ep_type == FI_EP_DGRAM;
        let copied = (inject || datagram).then(|| bytes::gather(&body));
        let sender = (!inject).then(|| {
            let sum = bytes::sum(&body);
            let operation = Operation::new(ep, What::Send, post.context, body, post.descs);
            self.lend(shape, Operation { sum, ..operation })
        });
        let message = Message {
            from: ep,
            source: self.ep(ep).address.clone(),
            len,
            body: copied.map_or(MessageBody::Lent, MessageBody::Copied),
            sender,
        };
        match route {
            Route::To(peer) if !datagram => {
                self.ep(ep).outstanding += 1;
                let channel = self.channels.entry((peer, ep)).or_default();
                channel.push_back(message);
                self.nudge(peer);
            }
            Route::Gone(death) if !datagram => {
                self.send_to_gone(ep, death, sender, inject || len <= shape.eager);
            }
            Route::To(peer) => self.send_datagram(ep, Some(peer), message, post.flags),
            Route::Later | Route::Gone(_) => self.send_datagram(ep, None, message, post.flags),
        }
    }

    fn read(&mut self, ep: Id, shape: &Shape, post: Post, route: Route, remote: (u64, u64)) {
        self.stats.remotes += 1;
        let operation = Operation::new(ep, What::Read, post.context, post.spans, post.descs);
        let serial = self.lend(shape, operation);
        let wait = self.rng.upto(self.faults.landing_polls);
        self.ep(ep).outstanding += 1;
        match route {
            Route::To(target) => self.ep(ep).remote.push(Remote {
                serial,
                target,
                remote,
                wait,
            }),
            Route::Gone(death) => self.end_with_peer(serial, death, false),
            Route::Later => {}
        }
        self.nudge(ep);
    }

    fn receive(&mut self, ep: Id, shape: &Shape, post: Post, multi: Option<Multi>) {
        let canary = post.spans.first().map(|span| span.first(CANARY));
        let canary = canary.filter(|span| span.len > 0);
        let what = What::Receive(multi);
        let operation = Operation::new(ep, what, post.context, post.spans, post.descs);
        let serial = self.lend(
            shape,
            Operation {
                canary,
                ..operation
            },
        );
        if let Some(canary) = canary {
            bytes::fill(canary, serial);
        }
        let endpoint = self.ep(ep);
        endpoint.posted.push_back(serial);
        endpoint.look_again = true;
        self.nudge(ep);
    }
}
