//! The port of a scripted network.
//!
//! Keeps a port's own promises and checks the endpoint's: lengths, limits, and the rest of a packet that was
//! taken in part.

use super::net::{Net, Open, ScriptedNet, Step, copy, link};
use super::{Delivery, Event, RemoteCall, Script};
use crate::aside::aside;
use mx_proto::origin::{Address, Seen};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, Port, RemoteKey, RemoteMemory,
    RemoteRead, SendError, Sent, Sink,
};
use mx_proto::secret::Binding;
use mx_proto::wire::{Header, Kind};
use mx_proto::{Identity, Instant, LinkId, Memory, NicId, Target};

/// The port of one node.
#[derive(Debug)]
pub struct ScriptedPort<S: Script> {
    net: ScriptedNet<S>,
    node: usize,
}

impl<S: Script> ScriptedPort<S> {
    pub(super) fn new(net: ScriptedNet<S>, node: usize) -> Self {
        Self { net, node }
    }

    fn record(&self, call: RemoteCall<'_, S::Memory>) {
        self.net.with(|net| net.script.on_remote_call(call));
    }

    fn give<T: Sink<S::Memory>>(&self, step: Step, sink: &mut T) {
        let Step { link, rest, event } = step;
        if let Some(Event::Packet(header, body, _)) = rest {
            self.give_rest(link, (header, body), sink);
        }
        match event {
            Event::Up => sink.on_up(link),
            Event::Writable => sink.on_writable(link),
            Event::Activity(what) => sink.on_remote_activity(link, what),
            Event::Read(token, ok) => sink.on_remote_read(link, token, ok),
            Event::Down(reason) => sink.on_down(link, reason),
            Event::Packet(header, body, delivery) => {
                self.give_packet(link, (header, body), delivery, sink);
            }
        }
    }

    /// Hands over the second half of a body.
    fn give_rest<T: Sink<S::Memory>>(
        &self,
        link: LinkId,
        (header, body): (HeaderBytes, Vec<u8>),
        sink: &mut T,
    ) {
        if let Some(mut place) = sink.place(link, &header, false) {
            let (at, len) = (body.len() / 2, body.len().div_ceil(2));
            place.memory.fill(place.offset + at, len, &body[..], at);
            sink.on_placed(link, &header);
        }
        aside(|| drop(body));
    }

    fn give_packet<T: Sink<S::Memory>>(
        &self,
        link: LinkId,
        (header, body): (HeaderBytes, Vec<u8>),
        delivery: Delivery,
        sink: &mut T,
    ) {
        let begin = match delivery {
            Delivery::Whole => None,
            Delivery::Placed { begin } => Some(begin),
            Delivery::Halves => Some(true),
        };
        let place = begin.and_then(|begin| sink.place(link, &header, begin));
        if let Some(mut place) = place {
            let room = place.memory.len() - place.offset;
            assert!(body.len() <= room, "a place too small");
            if delivery == Delivery::Halves {
                let half = body.len() / 2;
                place.memory.fill(place.offset, half, &body[..], 0);
                if self.net.with(|net| net.halts) {
                    return self.net.with(|net| net.put_back(link, header, body));
                }
                return self.give_rest(link, (header, body), sink);
            }
            place.memory.fill(place.offset, body.len(), &body[..], 0);
            sink.on_placed(link, &header);
        } else if body.len() <= self.limits(link).packet_max {
            sink.on_packet(link, &header, &body[..]);
        }
        aside(|| drop(body));
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

    fn seen(&self, link: LinkId, claimed: &Identity) -> Seen {
        self.net
            .with(|net| net.script.seen(link, net.ends(link), claimed))
    }

    fn has_address(&self, address: Address) -> bool {
        self.net
            .with(|net| net.script.has_address(self.node, address))
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

    fn poll<T: Sink<S::Memory>>(&mut self, _: Instant, budget: usize, sink: &mut T) -> bool {
        for done in 0..budget {
            let Some(step) = self.net.with(|net| net.next(self.node)) else {
                return done > 0;
            };
            self.give(step, sink);
        }
        true
    }

    fn remote_memory(&mut self, _: LinkId) -> Option<&mut dyn RemoteMemory<S::Memory>> {
        Some(self)
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
