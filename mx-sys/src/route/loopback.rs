//! The port from an endpoint to itself: a queue.
//!
//! ```text
//!            link A (connect)                link B (its other end)
//!   send(A) ---.                                      .--- send(B)
//!              v                                      v
//!        [ Up A | packet to B | packet to A | Down B ]   one queue, in order
//!              |
//!            next --> Up, Packet, Part, Down
//! ```
//!
//! Both ends of a link belong to the same endpoint. The endpoint learns of the far end by its first packet, as with
//! an unknown peer. Bodies are copied into buffers that are reused.
//!
//! Owns: the packets in flight, at most about [`LINK_BYTES`] for each direction of a link.
//! Out of scope: addresses.
//! Cost: no system call, and no allocation once the buffers have grown.

use mx_port_base::eventfd::EventFd;
use mx_port_base::ports;
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkDown, Place, Port, SendError,
    Sent, WakeDescriptors,
};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::table::Table;
use mx_proto::{Instant, LinkId, Memory, Target};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

/// Maximum number of bytes in flight in one direction of a link of an endpoint to itself; a direction that has reached
/// it accepts no more packets.
pub const LINK_BYTES: usize = 1 << 20;

/// Packets in flight from which a direction of a link accepts no more.
const LINK_PACKETS: usize = 4096;

const LIMITS: Limits = Limits {
    packet_max: 32 << 10,
    streamed_max: 0,
    data_max: 256 << 10,
    pull_block: 1 << 20,
    remote_read: false,
    refusal_ends_link: false,
    data_links: 0,
};

/// Maximum number of buffers kept for reuse, and the capacity in bytes up to which one is kept.
const SPARE_BUFFERS: usize = 64;
const SPARE_BYTES: usize = 256 << 10;

/// Port over which an endpoint sends to itself, in memory.
#[derive(Debug)]
pub struct LoopbackPort {
    ends: Table<LinkId, End>,
    queue: VecDeque<Event>,
    spare: Vec<Vec<u8>>,
    /// Events that this round may still return, and whether there has been one.
    left: usize,
    any: bool,
    /// Packet returned last.
    lent: Option<Packet>,
    /// Whether its body has been read into a place.
    placed: bool,
    /// Whether a thread may sleep; the next event rings the doorbell.
    armed: bool,
    /// Whether the doorbell has been rung and not silenced since.
    rung: bool,
    doorbell: EventFd,
}

/// An end of a link.
#[derive(Debug)]
struct End {
    /// The other end, which may be closed already.
    other: LinkId,
    /// Whether the endpoint knows this end.
    known: bool,
    /// Bytes in flight from this end.
    bytes: usize,
    packets: usize,
    /// Whether a sender was told to wait.
    blocked: bool,
}

#[derive(Debug)]
enum Event {
    Up(LinkId),
    Packet(Packet),
    Writable(LinkId),
    Down(LinkId),
}

#[derive(Debug)]
struct Packet {
    from: LinkId,
    to: LinkId,
    header: HeaderBytes,
    body: Vec<u8>,
}

impl LoopbackPort {
    /// Makes a port without links. Fails if no descriptor is left for the doorbell.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            ends: Table::default(),
            queue: VecDeque::new(),
            spare: Vec::new(),
            left: 0,
            any: false,
            lent: None,
            placed: false,
            armed: false,
            rung: false,
            doorbell: EventFd::new()?,
        })
    }

    /// Returns whether nothing is in flight, so that polling is useless.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn open_end(&mut self) -> LinkId {
        let end = End {
            other: LinkId::new(0, 0),
            known: false,
            bytes: 0,
            packets: 0,
            blocked: false,
        };
        self.ends.insert(end).at_port(ports::LOOPBACK)
    }

    fn push(&mut self, event: Event) {
        self.queue.push_back(event);
        if self.armed {
            // A sleeper polls after waking, so one ring covers all later events.
            self.armed = false;
            self.rung = true;
            self.doorbell.ring();
        }
    }

    fn recycle(&mut self, mut body: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && (1..=SPARE_BYTES).contains(&body.capacity()) {
            body.clear();
            self.spare.push(body);
        }
    }

    /// Frees a consumed packet's share of its sender's limits.
    fn landed(&mut self, Packet { from, body, .. }: Packet) {
        let bytes = body.len();
        self.recycle(body);
        let Some(end) = self.ends.get_mut(from) else {
            return;
        };
        end.bytes -= bytes;
        end.packets -= 1;
        if end.blocked && end.bytes <= LINK_BYTES / 2 && end.packets <= LINK_PACKETS / 2 {
            end.blocked = false;
            self.push(Event::Writable(from));
        }
    }

    /// Returns the event that a queued one leads to by now; `None` if its link is closed.
    fn take(&mut self, event: Event) -> Option<PortEvent> {
        match event {
            Event::Up(link) => self.ends.get(link).map(|_| PortEvent::Up(link)),
            Event::Writable(link) => self.ends.get(link).map(|_| PortEvent::Writable(link)),
            Event::Down(link) => {
                let end = self.ends.remove(link)?;
                end.known.then_some(PortEvent::Down(link, LinkDown::Closed))
            }
            Event::Packet(packet) => {
                let (link, header) = (packet.to, packet.header);
                let Some(end) = self.ends.get_mut(link) else {
                    self.landed(packet);
                    return None;
                };
                end.known = true;
                let whole = packet.body.len() <= LIMITS.packet_max;
                self.lent = Some(packet);
                Some(if whole {
                    PortEvent::Packet { link, header }
                } else {
                    let begin = false;
                    PortEvent::Part {
                        link,
                        header,
                        begin,
                    }
                })
            }
        }
    }
}

impl LinkControl for LoopbackPort {
    fn limits(&self, _link: LinkId) -> Limits {
        LIMITS
    }

    fn connect(&mut self, _target: Target, _now: Instant) -> Result<LinkId, ConnectError> {
        let near = self.open_end();
        let far = self.open_end();
        if let Some(end) = self.ends.get_mut(near) {
            end.other = far;
            end.known = true;
        }
        if let Some(end) = self.ends.get_mut(far) {
            end.other = near;
        }
        self.push(Event::Up(near));
        Ok(near)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        let Some(end) = self.ends.get(link) else {
            return;
        };
        let other = end.other;
        if how == Close::Now {
            self.queue
                .retain(|event| !matches!(event, Event::Packet(packet) if packet.from == link));
        }
        self.ends.remove(link);
        self.push(Event::Down(other));
    }

    fn arm(&mut self) -> bool {
        if !self.queue.is_empty() {
            return false;
        }
        self.disarm();
        self.armed = true;
        true
    }

    fn disarm(&mut self) {
        self.armed = false;
        if std::mem::take(&mut self.rung) {
            self.doorbell.silence();
        }
    }

    fn descriptors(&self) -> WakeDescriptors {
        WakeDescriptors {
            control: None,
            data: Some(self.doorbell.as_raw_fd()),
        }
    }
}

impl<M: Memory> Port<M> for LoopbackPort {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, M>,
    ) -> Result<Sent, SendError> {
        let to = self.ends.get(link).ok_or(SendError::Down)?.other;
        if self.ends.get(to).is_none() {
            return Err(SendError::Down);
        }
        // Looked up again because it changes; it cannot be missing.
        let end = self.ends.get_mut(link).ok_or(SendError::Down)?;
        if end.bytes >= LINK_BYTES || end.packets >= LINK_PACKETS {
            end.blocked = true;
            return Err(SendError::WouldBlock);
        }
        end.bytes += body.len();
        end.packets += 1;
        let mut bytes = if body.is_empty() {
            Vec::new()
        } else {
            self.spare.pop().unwrap_or_default()
        };
        match body {
            Body::Bytes(piece) => bytes.extend_from_slice(piece),
            Body::Memory {
                memory,
                offset,
                len,
            } => {
                bytes.reserve(len);
                memory.visit(offset, len, |piece| bytes.extend_from_slice(piece));
                bytes.resize(len, 0);
            }
        }
        self.push(Event::Packet(Packet {
            from: link,
            to,
            header: *header,
            body: bytes,
        }));
        Ok(Sent::Whole)
    }

    fn resume(
        &mut self,
        _link: LinkId,
        _memory: &M,
        _offset: usize,
        _len: usize,
    ) -> Result<Sent, SendError> {
        // Never called: `send` takes packets whole.
        Err(SendError::Down)
    }

    fn detach(&mut self, _link: LinkId, _memory: &M, _offset: usize, _len: usize) {}
}

impl<M: Memory> Rounds<M> for LoopbackPort {
    type Lent<'a>
        = &'a [u8]
    where
        Self: 'a;

    fn begin(&mut self, _now: Instant, budget: usize) {
        (self.left, self.any) = (budget.max(1), false);
    }

    fn next(&mut self) -> Next {
        if let Some(packet) = self.lent.take() {
            let (link, header) = (packet.to, packet.header);
            self.landed(packet);
            if std::mem::take(&mut self.placed) && self.ends.get(link).is_some() {
                return Next::Event(PortEvent::Placed { link, header });
            }
        }
        while self.left != 0
            && let Some(event) = self.queue.pop_front()
        {
            (self.left, self.any) = (self.left - 1, true);
            if let Some(event) = self.take(event) {
                return Next::Event(event);
            }
        }
        Next::End { any: self.any }
    }

    fn body(&self) -> &[u8] {
        let lent = self.lent.as_ref();
        lent.map_or(&[][..], |packet| &packet.body[..])
    }

    fn read(&mut self, mut place: Place<'_, M>) {
        if let Some(Packet { body, .. }) = &self.lent {
            place.memory.fill(place.offset, body.len(), &body[..], 0);
            self.placed = true;
        }
    }

    fn skip(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use mx_port_base::clock::MonotonicClock;
    use mx_proto::{Clock, EndpointId, NicId, Route};
    use mx_sim::Polled;
    use mx_sim::recorder::{Recorder, SinkCall, header_of};

    type Buffer = Vec<u8>;

    fn connected() -> (LoopbackPort, Recorder, LinkId) {
        let mut port = LoopbackPort::new().unwrap();
        let mut sink = Recorder::default();
        let link = connect(&mut port);
        poll(&mut port, &mut sink);
        assert_eq!(sink.take(), [SinkCall::Up(link)]);
        (port, sink, link)
    }

    fn connect(port: &mut LoopbackPort) -> LinkId {
        let target = Target {
            nic: NicId(1),
            endpoint: EndpointId(2),
            route: Route::AUTO,
        };
        port.connect(target, MonotonicClock.now()).unwrap()
    }

    fn poll(port: &mut LoopbackPort, sink: &mut Recorder) -> bool {
        port.poll(MonotonicClock.now(), 10_000, sink)
    }

    fn send(
        port: &mut LoopbackPort,
        link: LinkId,
        tag: u8,
        body: &[u8],
    ) -> Result<Sent, SendError> {
        Port::<Buffer>::send(port, link, &header_of(tag, body.len()), Body::Bytes(body))
    }

    #[test]
    fn packets_and_answers_arrive_whole_and_in_order() {
        let (mut port, mut sink, near) = connected();
        for tag in 0..100 {
            assert_eq!(send(&mut port, near, tag, &[tag; 9]), Ok(Sent::Whole));
        }
        assert!(poll(&mut port, &mut sink));
        let seen = sink.take();
        let SinkCall::Packet { link: far, .. } = seen[0] else {
            panic!("{seen:?}");
        };
        assert_ne!(far, near);
        for (tag, seen) in seen.iter().enumerate() {
            assert_eq!(*seen, SinkCall::packet(far, tag as u8, &[tag as u8; 9]));
        }
        send(&mut port, far, 1, b"back").unwrap();
        send(&mut port, near, 2, b"").unwrap();
        poll(&mut port, &mut sink);
        assert_eq!(
            sink.take(),
            [
                SinkCall::packet(near, 1, b"back"),
                SinkCall::packet(far, 2, b"")
            ]
        );
        assert!(!poll(&mut port, &mut sink));
    }

    #[test]
    fn large_bodies_go_where_the_sink_says_or_nowhere() {
        let (mut port, mut sink, near) = connected();
        let body: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let memory = Body::Memory {
            memory: &body,
            offset: 1,
            len: body.len() - 1,
        };
        port.send(near, &header_of(1, body.len() - 1), memory)
            .unwrap();
        sink.place = Some(vec![0; body.len() + 1]);
        poll(&mut port, &mut sink);
        assert!(matches!(sink.take()[..], [SinkCall::Placed { .. }]));
        let placed = sink.place.take().unwrap();
        assert_eq!(placed[..2], [0, 0]);
        assert_eq!(placed[2..], body[1..]);
        let memory = Body::Memory {
            memory: &body,
            offset: 0,
            len: body.len(),
        };
        port.send(near, &header_of(1, body.len()), memory).unwrap();
        poll(&mut port, &mut sink);
        assert_eq!(sink.take(), []);
    }

    #[test]
    fn a_full_link_says_so_and_says_when_there_is_room_again() {
        let (mut port, mut sink, near) = connected();
        let body = vec![1; 32 << 10];
        let mut sent = 0;
        while send(&mut port, near, 0, &body) == Ok(Sent::Whole) {
            sent += 1;
        }
        assert_eq!(sent, LINK_BYTES / body.len());
        assert_eq!(send(&mut port, near, 0, b""), Err(SendError::WouldBlock));
        poll(&mut port, &mut sink);
        let seen = sink.take();
        assert_eq!(seen.len(), sent + 1);
        assert_eq!(seen[sent], SinkCall::Writable(near));
        assert_eq!(send(&mut port, near, 0, &body), Ok(Sent::Whole));
    }

    #[test]
    fn orderly_close_delivers_all_and_ends_the_peer_once() {
        let (mut port, mut sink, near) = connected();
        send(&mut port, near, 1, b"last").unwrap();
        port.close(near, Close::Flush);
        assert_eq!(send(&mut port, near, 1, b"no"), Err(SendError::Down));
        poll(&mut port, &mut sink);
        let seen = sink.take();
        let [
            SinkCall::Packet { link: far, .. },
            SinkCall::Down(down, LinkDown::Closed),
        ] = seen[..]
        else {
            panic!("{seen:?}");
        };
        assert_eq!(far, down);
        assert_eq!(send(&mut port, far, 1, b"no"), Err(SendError::Down));
        let again = connect(&mut port);
        assert_ne!(again, near);
        assert_ne!(again, far);
    }

    #[test]
    fn closing_at_once_drops_what_was_sent() {
        let (mut port, mut sink, near) = connected();
        send(&mut port, near, 1, b"lost").unwrap();
        port.close(near, Close::Now);
        poll(&mut port, &mut sink);
        assert_eq!(sink.take(), []);
        port.close(near, Close::Now);
        assert!(!poll(&mut port, &mut sink));
    }

    #[test]
    fn armed_port_wakes_for_arrivals_and_does_not_arm_with_work() {
        let (mut port, mut sink, near) = connected();
        let readable = |port: &LoopbackPort| {
            let fd = port.descriptors().data.unwrap();
            let mut poll = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd, valid for writing.
            unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
        };
        send(&mut port, near, 0, b"x").unwrap();
        assert!(!port.arm());
        assert!(!readable(&port));
        poll(&mut port, &mut sink);
        assert!(port.arm());
        assert!(!readable(&port));
        send(&mut port, near, 0, b"x").unwrap();
        assert!(readable(&port));
        port.disarm();
        assert!(!readable(&port));
        poll(&mut port, &mut sink);
        assert!(port.arm());
        port.disarm();
        send(&mut port, near, 0, b"x").unwrap();
        assert!(!readable(&port));
    }
}
