//! Two ports in one process, polled in turn, and a sink that records events.

#![allow(dead_code, unreachable_pub)] // each test file uses its own part of this
use mx_port_tcp::{TcpOptions, TcpPort};
use mx_proto::port::{
    BODY_LEN_AT, Body, Destination, HEADER_LEN, HeaderBytes, LinkControl, LinkDown, Place, Port,
    SendError, Sent,
};
use mx_proto::{Clock, EndpointId, LinkId, Memory, NicId, Route, Source, Target};
use mx_sim::Polled;
use mx_sim::Sink;
pub use mx_sim::{Pieces, VirtualClock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Up(LinkId),
    Down(LinkId, LinkDown),
    Packet(LinkId, u64, Vec<u8>),
    Placed(LinkId, u64),
    Writable(LinkId),
}

/// Records the events of a port. A packet's tag is at 8 of its header.
#[derive(Debug, Default)]
pub struct Recorder {
    pub events: Vec<Event>,
    /// Memory of bodies, by tag.
    pub posted: HashMap<u64, Pieces>,
    /// The number of times that a place was asked for.
    pub asked: usize,
}

impl Recorder {
    pub fn packets(&self) -> Vec<(u64, Vec<u8>)> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Packet(_, tag, body) => Some((*tag, body.clone())),
                _ => None,
            })
            .collect()
    }

    pub fn packet_count(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, Event::Packet(..)))
            .count()
    }

    pub fn downs(&self) -> Vec<LinkDown> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::Down(_, reason) => Some(*reason),
                _ => None,
            })
            .collect()
    }

    pub fn is_up(&self, link: LinkId) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Up(up) if *up == link))
    }

    pub fn is_placed(&self, tag: u64) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Placed(_, placed) if *placed == tag))
    }

    pub fn writables(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, Event::Writable(..)))
            .count()
    }

    /// Returns the link of the first packet.
    pub fn first_link(&self) -> LinkId {
        self.events
            .iter()
            .find_map(|event| match event {
                Event::Packet(link, ..) => Some(*link),
                _ => None,
            })
            .expect("a packet has come")
    }
}

impl Sink<Pieces> for Recorder {
    fn on_up(&mut self, link: LinkId) {
        self.events.push(Event::Up(link));
    }

    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.events.push(Event::Down(link, reason));
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        self.events
            .push(Event::Packet(link, tag_of(header), body.to_vec()));
    }

    fn place(&mut self, _: LinkId, header: &HeaderBytes, _: bool) -> Option<Place<'_, Pieces>> {
        let memory = self.posted.get_mut(&tag_of(header))?;
        self.asked += 1;
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 0,
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.events.push(Event::Placed(link, tag_of(header)));
    }

    fn on_writable(&mut self, link: LinkId) {
        self.events.push(Event::Writable(link));
    }

    fn on_remote_activity(&mut self, _: LinkId, _: mx_proto::port::RemoteUse) {}

    fn on_remote_read(&mut self, _link: LinkId, _token: u64, _ok: bool) {
        panic!("this port reads nothing remotely");
    }
}

/// A port with its sink and its time.
#[derive(Debug)]
pub struct Node {
    pub port: TcpPort,
    pub sink: Recorder,
    pub clock: VirtualClock,
}

impl Node {
    /// Listens at `ip`. Targets are addresses on 127.0.0.1 (nic 4) or ::1 (nic 6), and the endpoint
    /// is the port number.
    pub fn open(ip: impl Into<std::net::IpAddr>) -> Self {
        Self::with(options(&[SocketAddr::new(ip.into(), 0)]))
    }

    pub fn two() -> [Self; 2] {
        [(); 2].map(|()| Self::open(Ipv4Addr::LOCALHOST))
    }

    /// Opens a node for which a silent host counts as dead after two seconds.
    pub fn impatient() -> Self {
        let mut options = options(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]);
        options.dead_after = Duration::from_secs(2);
        Self::with(options)
    }

    /// Connects a bare socket to this node, and sends the preamble and these packets.
    pub fn raw(&self, packets: &[Vec<u8>]) -> TcpStream {
        let mut raw = TcpStream::connect(("127.0.0.1", self.port.local_port())).unwrap();
        raw.write_all(&[preamble(), packets.concat()].concat())
            .unwrap();
        raw
    }

    pub fn with(options: TcpOptions) -> Self {
        Self {
            port: TcpPort::open(options).expect("a port opens"),
            sink: Recorder::default(),
            clock: VirtualClock::default(),
        }
    }

    pub fn poll(&mut self) -> bool {
        self.port.poll(self.clock.now(), 64, &mut self.sink)
    }

    /// Polls so that everything is checked.
    pub fn look(&mut self) {
        let _ = self.port.arm();
        self.poll();
        self.port.disarm();
    }

    /// Returns whether the node's data descriptor becomes readable within `timeout_ms`.
    pub fn readable(&self, timeout_ms: i32) -> bool {
        readable(&[self.port.descriptors().data], timeout_ms)
    }

    pub fn connect(&mut self, nic: u64, port: u16) -> LinkId {
        self.port
            .connect(target(nic, port), self.clock.now())
            .expect("it starts")
    }

    pub fn accept(&mut self, link: LinkId) {
        self.port.accept(link);
    }

    pub fn send(&mut self, link: LinkId, tag: u64, body: &[u8]) -> Result<Sent, SendError> {
        Port::<Pieces>::send(
            &mut self.port,
            link,
            &header(tag, body.len()),
            Body::Bytes(body),
        )
    }

    pub fn send_memory(
        &mut self,
        link: LinkId,
        tag: u64,
        memory: &Pieces,
    ) -> Result<Sent, SendError> {
        let len = memory.len();
        self.port.send(
            link,
            &header(tag, len),
            Body::Memory {
                memory,
                offset: 0,
                len,
            },
        )
    }

    pub fn close(&mut self, link: LinkId, how: mx_proto::port::Close) {
        self.port.close(link, how);
    }
}

/// Makes a link from `a` to `b` over which one packet (tag 0) has gone each way. Returns its id at
/// each.
pub fn linked(a: &mut Node, b: &mut Node, nic: u64) -> (LinkId, LinkId) {
    let at_a = a.connect(nic, b.port.local_port());
    a.accept(at_a);
    until(a, b, "the link is up", |a, _| a.sink.is_up(at_a));
    a.send(at_a, 0, b"first").expect("it is sent");
    until(a, b, "the first packet arrives", |_, b| {
        b.sink.packet_count() == 1
    });
    let at_b = b.sink.first_link();
    b.accept(at_b);
    b.send(at_b, 0, b"second").expect("it is sent");
    until(a, b, "the answer arrives", |a, _| {
        a.sink.packet_count() == 1
    });
    a.sink.events.clear();
    b.sink.events.clear();
    (at_a, at_b)
}

/// Makes two nodes with such a link.
pub fn joined() -> (Node, Node, LinkId, LinkId) {
    let [mut a, mut b] = Node::two();
    let (at_a, at_b) = linked(&mut a, &mut b, 4);
    (a, b, at_a, at_b)
}

/// Polls both until `count` packets have arrived at `b`.
pub fn arrives(a: &mut Node, b: &mut Node, count: usize) {
    until(a, b, "it arrives", |_, b| b.sink.packet_count() == count);
}

/// Polls both until `done`.
pub fn until(
    a: &mut Node,
    b: &mut Node,
    what: &str,
    mut done: impl FnMut(&mut Node, &mut Node) -> bool,
) {
    let start = std::time::Instant::now();
    while !done(a, b) {
        a.poll();
        b.poll();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "not within 20 s: {what}"
        );
    }
}

/// Polls one until `done`.
pub fn until_one(a: &mut Node, what: &str, mut done: impl FnMut(&mut Node) -> bool) {
    let start = std::time::Instant::now();
    while !done(a) {
        a.poll();
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "not within 20 s: {what}"
        );
    }
}

/// Returns whether one of the descriptors becomes readable within `timeout_ms`.
pub fn readable(fds: &[Option<i32>], timeout_ms: i32) -> bool {
    let asked = |fd: &Option<i32>| libc::pollfd {
        fd: fd.expect("it has one"),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut all: Vec<_> = fds.iter().map(asked).collect();
    // SAFETY: the array has that many elements and outlives the call.
    unsafe { libc::poll(all.as_mut_ptr(), all.len() as u64, timeout_ms) > 0 }
}

pub fn options(listen: &[SocketAddr]) -> TcpOptions {
    let resolver = |target: Target| {
        let port = target.endpoint.0 as u16;
        let four = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let six = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        let mut addresses = SmallVec::new();
        match target.nic.0 {
            4 => addresses.push(four),
            6 => addresses.push(six),
            46 => addresses.extend([four, six]),
            _ => return Err(mx_proto::port::ConnectError::UnknownNic),
        }
        Ok(addresses)
    };
    TcpOptions::new(listen.to_vec(), Box::new(resolver))
}

pub fn target(nic: u64, port: u16) -> Target {
    Target {
        nic: NicId(nic),
        endpoint: EndpointId(u32::from(port)),
        route: Route::AUTO,
    }
}

pub fn header(tag: u64, len: usize) -> HeaderBytes {
    let mut bytes = [0xa5; HEADER_LEN];
    bytes[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    bytes[8..16].copy_from_slice(&tag.to_le_bytes());
    bytes
}

pub fn tag_of(header: &HeaderBytes) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

/// Returns bytes that differ from place to place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Returns the preamble of a peer of ours, for peers made of bare sockets.
pub fn preamble() -> Vec<u8> {
    b"\x93MXTCP\x01\x00".to_vec()
}

pub fn frame(tag: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = header(tag, body.len()).to_vec();
    bytes.extend_from_slice(body);
    bytes
}
