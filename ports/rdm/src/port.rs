//! Implementation of the port trait.

use super::RdmPort;
use super::fabric::NotSent;
use super::frame::{AT_ONCE, FRAME_LEN, FrameKind};
use super::incoming::STREAMED_MAX;
use super::links::{Link, State};
use super::remote::Remote;
use mx_port_base::cancellation::CancellationDisabled;
use mx_proto::port::{
    Body, Close, ConnectError, HEADER_LEN, HeaderBytes, Limits, LinkControl, PACKET_LEAST, Port,
    RemoteKey, RemoteMemory, RemoteRead, SendError, Sent, WakeDescriptors,
};
use mx_proto::secret::Binding;
use mx_proto::{Instant, LinkId, Memory, Target};
use std::time::Duration;

/// Bytes of a copied large message that the receiver requests at once; two requests per message are outstanding. A
/// small message waits behind all of them in the provider: 2 ms for each large message at 1 Gbit/s.
const PULL_BLOCK: usize = 128 << 10;

/// Polling interval of a provider without a descriptor while there is traffic ...
const POLL_BUSY: Duration = Duration::from_millis(1);
/// ... and when there has been none for [`BUSY_FOR`]: a poll costs some microseconds.
const POLL_IDLE: Duration = Duration::from_millis(10);
/// Time without traffic after which a port counts as idle.
const BUSY_FOR: Duration = Duration::from_millis(200);

impl LinkControl for RdmPort {
    fn limits(&self, _link: LinkId) -> Limits {
        let body = self.body_max();
        let remote = self
            .fabric
            .as_ref()
            .and_then(|fabric| fabric.remote.as_ref());
        let reads = remote.is_some();
        Limits {
            packet_max: body,
            // Remote reads are better for bodies of more than two frames.
            streamed_max: if reads { 2 * body } else { STREAMED_MAX },
            data_max: body,
            pull_block: PULL_BLOCK,
            remote_read: reads,
            refusal_ends_link: remote.is_some_and(Remote::is_connected),
            data_links: 0,
        }
    }

    /// Fails always: links start with [`RdmPort::call`].
    fn connect(&mut self, _target: Target, _now: Instant) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoRoute)
    }

    fn probe_peer(&mut self, link: LinkId, now: Instant) -> bool {
        if self.links.probe_peer(link, now) {
            self.send_control(link, FrameKind::Ping, &AT_ONCE);
        }
        true
    }

    fn binding(&self, link: LinkId) -> Binding {
        self.links.of(link).map_or([0; 2], Link::binding)
    }

    fn close(&mut self, id: LinkId, how: Close) {
        self.queued.retain(|event| event.link() != Some(id));
        let Some(link) = self.links.of_mut(id) else {
            return;
        };
        // The session tells the peer of a link that never came up, and no frames wait to leave.
        let greeted = match link.state {
            State::Greeting { .. } => how == Close::Flush,
            state => state == State::Up,
        };
        self.links.closing(id, self.now);
        self.with_remote(|remote, outlet| remote.on_link_down(outlet, id));
        match how {
            Close::Now | Close::Flush if greeted => {
                if how == Close::Now
                    && let Some(link) = self.links.of_mut(id)
                {
                    link.control.clear();
                }
                // Injections leave before the Bye, in order; its completion covers them.
                self.queue_control(id, FrameKind::Bye, &[]);
                if !self.flush_control(id) {
                    self.block(id);
                }
            }
            Close::Now | Close::Flush => {
                self.drop_link(id);
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let polled = |span| Some(self.polled.after(span));
        let room = (!self.blocked.is_empty()).then_some(self.room_at);
        let fabric = self.fabric.as_ref();
        let look = match self.wait_fd() {
            None if fabric.is_some() && self.links.len() > 0 => {
                let busy = self.polled.since(self.busy) < BUSY_FOR;
                polled(if busy { POLL_BUSY } else { POLL_IDLE })
            }
            _ => None,
        };
        let remote = fabric.and_then(|fabric| fabric.remote.as_ref()?.deadline());
        // Without links, nothing else detects a removed device.
        let device = (fabric.is_some() && self.in_use.is_some()).then_some(self.give_back_at);
        Instant::earliest([room, look, remote, device, self.links.deadline()])
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        let last = self.polled.max(self.signed);
        (self.links.len() > 0).then(|| last.after(self.links.sign_every()))
    }

    fn keep_alive(&mut self, now: Instant) {
        if self.keep_alive_due().is_none_or(|due| now < due) {
            return;
        }
        self.signed = now;
        for id in self.links.ids() {
            if self
                .links
                .of(id)
                .is_some_and(|link| link.state == State::Up)
            {
                // A Pong has no answer, so nothing accumulates.
                self.send_control(id, FrameKind::Pong, &[]);
            }
        }
    }

    fn arm(&mut self) -> bool {
        let told = self.queued.is_empty() && self.broken.is_empty();
        let fd = self.wait_fd();
        let Some(fabric) = &mut self.fabric else {
            return told;
        };
        if !told || !fabric.backlog.is_empty() || !fabric.out.is_empty() {
            return false;
        }
        let Some(fd) = fd else {
            // Polled at the deadline.
            return true;
        };
        fabric.domain.may_sleep() && self.hold_on(fd)
    }

    fn disarm(&mut self) {
        self.let_go();
    }

    fn link_count(&self) -> usize {
        self.links.len()
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: None,
            data: Some(self.nest.raw()),
        }
    }
}

impl<M: Memory> Port<M> for RdmPort {
    #[inline]
    fn send(
        &mut self,
        id: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let len = body.len();
        let first = len.min(self.body_max());
        self.give(id, FrameKind::Packet, HEADER_LEN + first, |out| {
            let (head, rest) = out.split_at_mut(HEADER_LEN);
            head.copy_from_slice(header);
            match body {
                Body::Bytes(bytes) => rest.copy_from_slice(bytes),
                Body::Memory { memory, offset, .. } => copy(memory, offset, rest),
            }
        })?;
        let Body::Memory { memory, offset, .. } = body else {
            return Ok(Sent::Whole);
        };
        if first == len {
            return Ok(Sent::Whole);
        }
        Ok(match self.resume(id, memory, offset + first, len - first) {
            Ok(Sent::Part(more)) => Sent::Part(first + more),
            Ok(sent) => sent,
            // Sent even if the link is down by now: the endpoint is told of its end soon.
            Err(_) => Sent::Part(first),
        })
    }

    fn resume(
        &mut self,
        id: LinkId,
        memory: &M,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let most = self.body_max() + HEADER_LEN;
        if let Some(link) = self.links.of_mut(id) {
            link.midway = true;
        }
        let mut taken = 0;
        while taken < len {
            let piece = most.min(len - taken);
            let fill = |out: &mut [u8]| copy(memory, offset + taken, out);
            match self.give(id, FrameKind::Rest, piece, fill) {
                Ok(()) => taken += piece,
                Err(SendError::WouldBlock) if taken > 0 => return Ok(Sent::Part(taken)),
                Err(error) => return Err(error),
            }
        }
        self.packet_ended(id);
        Ok(Sent::Whole)
    }

    fn detach(&mut self, id: LinkId, memory: &M, offset: usize, len: usize) {
        let most = self.body_max() + HEADER_LEN;
        for at in (0..len).step_by(most) {
            let mut rest = vec![0; most.min(len - at)];
            copy(memory, offset + at, &mut rest);
            self.send_control(id, FrameKind::Rest, &rest);
        }
        self.packet_ended(id);
    }

    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<M>> {
        Some(self)
    }
}

impl<M: Memory> RemoteMemory<M> for RdmPort {
    fn recall(&mut self, link: LinkId, token: u64) {
        let _off = CancellationDisabled::new();
        self.with_remote(|remote, outlet| remote.recall(outlet, link, token));
    }

    fn register(&mut self, link: LinkId, memory: &M, token: u64) -> Option<RemoteKey> {
        let _off = CancellationDisabled::new();
        self.with_remote(|remote, outlet| remote.register(outlet, link, memory, token))?
    }

    fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        let _off = CancellationDisabled::new();
        self.with_remote(|remote, outlet| remote.deregister(outlet, link, key));
    }

    fn read(&mut self, link: LinkId, read: RemoteRead<'_, M>) -> Result<(), SendError> {
        let _off = CancellationDisabled::new();
        self.with_remote(|remote, outlet| remote.read(outlet, link, read))
            .unwrap_or(Err(SendError::Down))
    }

    fn stop(&mut self, link: LinkId, token: u64) {
        let _off = CancellationDisabled::new();
        self.with_remote(|remote, outlet| remote.stop_reading(outlet, link, token));
    }
}

impl RdmPort {
    /// Maximum bytes of a body that fit into a frame with their packet's header.
    fn body_max(&self) -> usize {
        let frame = self.fabric.as_ref().map_or(0, super::Fabric::frame_max);
        // Providers with smaller messages are not used.
        frame
            .saturating_sub(FRAME_LEN + HEADER_LEN)
            .max(PACKET_LEAST)
    }

    /// Passes a frame of a packet to the provider, with `len` bytes that `fill` writes. If there is no room, the
    /// endpoint is told when there is.
    #[inline]
    fn give(
        &mut self,
        id: LinkId,
        kind: FrameKind,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let (Some(fabric), Some(link)) = (&mut self.fabric, self.links.of_mut(id)) else {
            return Err(SendError::Down);
        };
        if link.state != State::Up {
            return Err(SendError::Down);
        }
        if link.blocked || (link.midway && kind == FrameKind::Packet) {
            link.wanted = true;
            return Err(SendError::WouldBlock);
        }
        match fabric.send(link, kind, len, fill) {
            Ok(()) => {
                link.pause = Duration::ZERO;
                Ok(())
            }
            Err(NotSent::Busy) => {
                link.wanted = true;
                self.block(id);
                Err(SendError::WouldBlock)
            }
            Err(NotSent::Failed(code)) => {
                log::debug!("link {id:?}: {}", self.library.strerror(code));
                self.broken.push(id);
                Err(SendError::Down)
            }
        }
    }

    /// Marks a packet as sent or queued completely: the next may follow, and blocked links are notified.
    fn packet_ended(&mut self, id: LinkId) {
        let Some(link) = self.links.of_mut(id) else {
            return;
        };
        link.midway = false;
        if link.wanted {
            self.block(id);
        }
    }
}

fn copy<M: Memory>(memory: &M, offset: usize, out: &mut [u8]) {
    let mut at = 0;
    memory.visit(offset, out.len(), |piece| {
        out[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    });
}
