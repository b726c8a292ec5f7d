//! The port of a scripted network.
//!
//! Keeps a port's own promises and checks the endpoint's: lengths, limits, and the rest of a packet that was
//! taken in part.

use super::net::{Net, Open, ScriptedNet, Step, copy, link};
use super::{Delivery, Event, RemoteCall, Script};
use crate::aside::aside;
use crate::fronts;
use mx_proto::origin::LinkOrigin;
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Place, Port, RemoteKey,
    RemoteMemory, RemoteRead, SendError, Sent,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::secret::Binding;
use mx_proto::wire::{Header, Kind};
use mx_proto::{Identity, Instant, LinkId, Memory, NicId, Source, Target};
use std::collections::VecDeque;

/// The port of one node.
#[derive(Debug)]
pub struct ScriptedPort<S: Script> {
    net: ScriptedNet<S>,
    node: usize,
    /// Steps that may still be taken in this round, and whether there has been one.
    left: usize,
    any: bool,
    /// The events of the last step.
    waiting: VecDeque<Waiting>,
    /// The body of a packet that has been given out.
    lent: Option<Vec<u8>>,
    /// The part that has been given out.
    part: Option<Part>,
    /// The answer of `next` that its front has left to it.
    held: Option<Next>,
}

#[derive(Debug)]
enum Waiting {
    Event(PortEvent),
    Packet(LinkId, HeaderBytes, Vec<u8>),
    Part(Part),
}

/// A body that is read from `at` on, to its end or its middle.
#[derive(Debug)]
struct Part {
    link: LinkId,
    header: HeaderBytes,
    body: Vec<u8>,
    begin: bool,
    at: usize,
    halves: bool,
}

impl<S: Script> ScriptedPort<S> {
    pub(super) fn new(net: ScriptedNet<S>, node: usize) -> Self {
        Self {
            net,
            node,
            left: 0,
            any: false,
            waiting: VecDeque::new(),
            lent: None,
            part: None,
            held: None,
        }
    }

    fn record(&self, call: RemoteCall<'_, S::Memory>) {
        self.net.with(|net| net.script.on_remote_call(call));
    }

    /// The events that a step comes to.
    fn give(&mut self, step: Step) {
        let Step { link, rest, event } = step;
        if let Some(Event::Packet(header, body, _)) = rest {
            let at = body.len() / 2;
            self.waiting.push_back(Waiting::Part(Part {
                link,
                header,
                body,
                begin: false,
                at,
                halves: true,
            }));
        }
        let event = match event {
            Event::Up => PortEvent::Up(link),
            Event::Writable => PortEvent::Writable(link),
            Event::Activity(what) => PortEvent::RemoteActivity(link, what),
            Event::Read(token, ok) => PortEvent::RemoteRead { link, token, ok },
            Event::Down(reason) => PortEvent::Down(link, reason),
            Event::Packet(header, body, delivery) => {
                let (begin, halves) = match delivery {
                    Delivery::Whole => {
                        let packet = Waiting::Packet(link, header, body);
                        return self.waiting.push_back(packet);
                    }
                    Delivery::Placed { begin } => (begin, false),
                    Delivery::Halves => (true, true),
                };
                return self.waiting.push_back(Waiting::Part(Part {
                    link,
                    header,
                    body,
                    begin,
                    at: 0,
                    halves,
                }));
            }
        };
        self.waiting.push_back(Waiting::Event(event));
    }

    /// The next event of the steps that have been taken, but of links that have ended meanwhile.
    fn next_waiting(&mut self) -> Option<PortEvent> {
        if let Some(body) = self.lent.take() {
            aside(|| drop(body));
        }
        loop {
            let waiting = self.waiting.pop_front()?;
            match waiting {
                // The network has closed the link of an end already.
                Waiting::Event(event @ PortEvent::Down(..)) => return Some(event),
                Waiting::Event(event) if event.link().is_none_or(|link| self.is_open(link)) => {
                    return Some(event);
                }
                Waiting::Packet(link, header, body) if self.is_open(link) => {
                    self.lent = Some(body);
                    return Some(PortEvent::Packet { link, header });
                }
                Waiting::Part(part) if self.is_open(part.link) => {
                    let (link, header, begin) = (part.link, part.header, part.begin);
                    self.part = Some(part);
                    return Some(PortEvent::Part {
                        link,
                        header,
                        begin,
                    });
                }
                Waiting::Packet(_, _, body) | Waiting::Part(Part { body, .. }) => {
                    aside(|| drop(body));
                }
                Waiting::Event(_) => {}
            }
        }
    }

    fn is_open(&self, link: LinkId) -> bool {
        self.net.with(|net| !net.end(link).closed)
    }
}

impl<S: Script> LinkControl for ScriptedPort<S> {
    fn limits(&self, _: LinkId) -> Limits {
        self.net.with(|net| net.script.limits())
    }

    fn connect(&mut self, target: Target, _: Instant) -> Result<LinkId, ConnectError> {
        self.net.with(|net| {
            let (to, first) = net.script.connect(self.node, target)?;
            let link = link(net.lay([Some(self.node), to]), 0);
            if let Some(event) = first {
                net.tell(link, event);
            }
            Ok(link)
        })
    }

    fn accept(&mut self, link: LinkId) {
        self.net.with(|net| net.end_mut(link).accepted = true);
    }

    fn has_room(&mut self, link: LinkId) -> bool {
        self.net.with(|net| net.tells_of_room && net.has_room(link))
    }

    fn close(&mut self, link: LinkId, _: Close) {
        self.net.with(|net| net.close(link));
    }

    fn arm(&mut self) -> bool {
        self.net.with(|net| !net.is_due(self.node))
    }

    fn disarm(&mut self) {}

    fn link_origin(&self, link: LinkId, claimed: &Identity) -> LinkOrigin {
        self.net
            .with(|net| net.script.seen(link, net.ends(link), claimed))
    }

    fn has_interface(&self, nic: NicId) -> bool {
        self.net
            .with(|net| net.script.has_interface(self.node, nic))
    }

    fn binding(&self, link: LinkId) -> Binding {
        self.net.with(|net| net.script.binding(link))
    }
}

/// Checks a packet, and returns the number of its body's bytes that the port takes.
fn first_part<S: Script>(net: &Net<S>, header: &HeaderBytes, body: &Body<'_, S::Memory>) -> usize {
    let (len, limits) = (body.len(), net.script.limits());
    let parsed = Header::parse(header).expect("a header of the protocol");
    assert_eq!(parsed.body_len as usize, len, "a header that lies");
    let most = match parsed.kind {
        Kind::Eager => limits.eager_max(),
        Kind::Data => limits.data_max,
        _ => limits.packet_max,
    };
    assert!(len <= most, "a body of {len} bytes");
    match body {
        Body::Memory { .. } if len > limits.packet_max => net.script.part(len, true),
        _ => len,
    }
}

impl<S: Script> Port<S::Memory> for ScriptedPort<S> {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, S::Memory>,
    ) -> Result<Sent, SendError> {
        self.net.with(|net| {
            net.may_send(link, header, false)?;
            let (len, part) = (body.len(), first_part(net, header, &body));
            let mut bytes = Vec::with_capacity(len);
            match body {
                Body::Bytes(all) => bytes.extend_from_slice(all),
                Body::Memory { memory, offset, .. } => copy(&mut bytes, memory, offset, part),
            }
            net.script.on_sent(link, header, &bytes);
            let header = *header;
            Ok(net.accept(link, Open { header, bytes, len }, part))
        })
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &S::Memory,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.net.with(|net| {
            let end = net.end(link);
            if end.closed {
                return Err(SendError::Down);
            }
            let header = end.open.as_ref().expect("a packet is open").header;
            net.may_send(link, &header, true)?;
            let part = net.script.part(len, false);
            Ok(net.go_on(link, memory, (offset, len), part))
        })
    }

    fn detach(&mut self, link: LinkId, memory: &S::Memory, offset: usize, len: usize) {
        self.net.with(|net| {
            if !net.end(link).closed {
                net.go_on(link, memory, (offset, len), len);
            }
        });
    }

    fn remote_memory(&mut self, _: LinkId) -> Option<&mut dyn RemoteMemory<S::Memory>> {
        Some(self)
    }
}

impl<S: Script> Rounds<S::Memory> for ScriptedPort<S> {
    type Lent<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn begin(&mut self, _: Instant, budget: usize) {
        (self.left, self.any) = (budget, false);
    }

    fn next(&mut self) -> Next {
        if let Some(next) = self.held.take() {
            return next;
        }
        assert!(
            self.part.is_none(),
            "a part that is neither read nor skipped"
        );
        loop {
            if let Some(event) = self.next_waiting() {
                return Next::Event(event);
            }
            let step = match self.left {
                0 => None,
                _ => self.net.with(|net| net.next(self.node)),
            };
            let Some(step) = step else {
                return Next::End { any: self.any };
            };
            (self.left, self.any) = (self.left - 1, true);
            self.give(step);
        }
    }

    fn take_packets(
        &mut self,
        take: impl FnMut(LinkId, &HeaderBytes, &dyn Source) -> bool,
    ) -> Option<bool> {
        fronts::take_packets(self, |port| &mut port.held, take)
    }

    fn body(&self) -> &[u8] {
        self.lent.as_deref().unwrap_or(&[])
    }

    fn read(&mut self, mut place: Place<'_, S::Memory>) {
        let mut part = self.part.take().expect("a part is lent");
        let (link, header, all) = (part.link, part.header, part.body.len());
        let end = if part.halves && part.at == 0 {
            all / 2
        } else {
            all
        };
        assert!(
            all <= place.memory.len() - place.offset,
            "a place too small"
        );
        place.memory.fill(
            place.offset + part.at,
            end - part.at,
            &part.body[..],
            part.at,
        );
        if end == all {
            self.waiting
                .push_front(Waiting::Event(PortEvent::Placed { link, header }));
            aside(|| drop(part));
        } else if self.net.with(|net| net.halts) {
            self.net.with(|net| net.put_back(link, header, part.body));
        } else {
            (part.at, part.begin) = (end, false);
            self.waiting.push_front(Waiting::Part(part));
        }
    }

    fn skip(&mut self) {
        let part = self.part.take().expect("a part is lent");
        if part.at == 0 && part.body.len() <= self.limits(part.link).packet_max {
            let packet = Waiting::Packet(part.link, part.header, part.body);
            self.waiting.push_front(packet);
        } else {
            aside(|| drop(part));
        }
    }
}

impl<S: Script> RemoteMemory<S::Memory> for ScriptedPort<S> {
    fn register(&mut self, link: LinkId, _: &S::Memory, token: u64) -> Option<RemoteKey> {
        let (address, key) = (token, 0);
        let reads = self.limits(link).remote_read;
        reads.then_some(RemoteKey { address, key })
    }

    fn deregister(&mut self, _: LinkId, key: RemoteKey) {
        self.record(RemoteCall::Deregister(key));
    }

    fn read(&mut self, _: LinkId, read: RemoteRead<'_, S::Memory>) -> Result<(), SendError> {
        self.record(RemoteCall::Read(read.token, read.memory));
        Ok(())
    }

    fn stop(&mut self, _: LinkId, token: u64) {
        self.record(RemoteCall::Stop(token));
    }

    fn recall(&mut self, _: LinkId, token: u64) {
        self.record(RemoteCall::Recall(token));
    }
}
