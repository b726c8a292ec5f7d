//! Shared code of the tests: two ports in one process, and ports against misbehaving peers.

mod active;
mod crowds;
mod cycles;
mod front;
mod idle;
mod limit;
mod meeting;
mod pieces;
mod queue;
mod rogues;
mod sleeping;
mod strangers;
mod streams;
mod users;

use super::socket::Name;
use super::{LocalOptions, LocalPort};
use mx_proto::port::LinkControl;
use mx_proto::port::{
    BODY_LEN_AT, Body, ConnectError, Destination, HeaderBytes, LinkDown, Place, SendError, Sent,
    body_len,
};
use mx_proto::{Clock, LinkId, Source};
use mx_sim::Sink;
use mx_sim::VirtualClock;
use mx_sim::tell_all;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Call of the sink.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Up(LinkId),
    Down(LinkId, LinkDown),
    Packet(LinkId, Vec<u8>),
    Writable(LinkId),
}

/// Records all calls.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) events: Vec<Event>,
    /// Body that is arriving in pieces.
    pieces: Vec<u8>,
}

impl Sink<Vec<u8>> for Recorder {
    fn on_up(&mut self, link: LinkId) {
        self.events.push(Event::Up(link));
    }
    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.events.push(Event::Down(link, reason));
    }
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        // Whatever the peer does, only a checked length is handed on.
        let len = header[BODY_LEN_AT..BODY_LEN_AT + 4].try_into().unwrap();
        assert_eq!(u32::from_le_bytes(len) as usize, body.len());
        self.events.push(Event::Packet(link, body.to_vec()));
    }
    fn place(&mut self, _: LinkId, header: &HeaderBytes, _: bool) -> Option<Place<'_, Vec<u8>>> {
        self.pieces.resize(body_len(header), 0);
        Some(Place {
            memory: Destination::Bytes(&mut self.pieces),
            offset: 0,
        })
    }
    fn on_placed(&mut self, link: LinkId, _: &HeaderBytes) {
        let body = std::mem::take(&mut self.pieces);
        self.events.push(Event::Packet(link, body));
    }
    fn on_writable(&mut self, link: LinkId) {
        self.events.push(Event::Writable(link));
    }
    fn on_remote_activity(&mut self, _: LinkId, _: mx_proto::port::RemoteUse) {}

    fn on_remote_read(&mut self, _: LinkId, _: u64, _: bool) {}
}

/// A port with everything needed to poll it.
pub(super) struct Node {
    pub(super) port: LocalPort,
    pub(super) clock: VirtualClock,
    pub(super) log: Recorder,
    endpoint: u32,
    turn: u32,
}

/// Returns a name that is unique among this process and its children.
pub(super) fn fresh_name() -> Name {
    static BOARD: LazyLock<u32> = LazyLock::new(std::process::id);
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let child = std::process::id().wrapping_sub(*BOARD);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Name {
        port_base: 1,
        board: *BOARD,
        endpoint: child << 14 | number,
    }
}

impl Node {
    pub(super) fn new() -> Self {
        Self::with_limit(1000)
    }

    fn with_limit(limit: usize) -> Self {
        Self::with_options(LocalOptions {
            max_links: limit,
            ..LocalOptions::default()
        })
    }

    pub(super) fn with_options(options: LocalOptions) -> Self {
        let Name {
            port_base,
            board,
            endpoint,
        } = fresh_name();
        let port = LocalPort::with_options(port_base, board, endpoint, options).unwrap();
        Self {
            port,
            clock: VirtualClock::default(),
            log: Recorder::default(),
            endpoint,
            turn: 0,
        }
    }

    pub(super) fn name(&self) -> Name {
        self.port.name
    }

    pub(super) fn poll(&mut self) -> bool {
        let any = self.poll_some(64);
        // Bind a link after its first packet, as an endpoint does after an introduction.
        for event in &self.log.events {
            if let Event::Packet(link, _) = event
                && let Some(entry) = self.port.links.get(*link)
                && entry.stranger
            {
                self.port.accept(*link);
            }
        }
        any
    }

    /// Polls with this budget.
    pub(super) fn poll_some(&mut self, budget: usize) -> bool {
        self.turn += 1;
        self.port.begin_round(self.turn, self.clock.now(), budget);
        tell_all(&mut self.port, &mut self.log)
    }

    /// Polls recently active links with this budget.
    pub(super) fn poll_active(&mut self, budget: usize) -> bool {
        self.port.begin_active(budget) && tell_all(&mut self.port, &mut self.log)
    }

    /// Polls, descriptors included, until nothing happens any more.
    pub(super) fn poll_until_idle(&mut self) {
        loop {
            self.port.note_control();
            self.port.slept = true;
            if !self.poll() && !self.poll() {
                return;
            }
        }
    }

    /// Number of links whose rings no poll looks at.
    pub(super) fn idle_links(&self) -> usize {
        let links = self.port.links.iter();
        links.filter(|(_, entry)| !entry.is_active()).count()
    }

    pub(super) fn connect(&mut self, other: &Self) -> Result<LinkId, ConnectError> {
        self.port
            .connect_to(self.port.name.board, other.endpoint, self.clock.now())
    }

    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8]) -> Result<Sent, SendError> {
        self.port
            .send::<Vec<u8>>(link, &header(bytes.len()), &Body::Bytes(bytes))
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log.events)
    }

    /// Returns the link of the first packet among the recorded events.
    pub(super) fn first_link(&self) -> LinkId {
        let link = self.log.events.iter().find_map(|event| match event {
            Event::Packet(link, _) => Some(*link),
            _ => None,
        });
        link.expect("no packet has arrived")
    }

    pub(super) fn bodies(&mut self) -> Vec<Vec<u8>> {
        let events = self.take();
        events
            .into_iter()
            .map(|event| match event {
                Event::Packet(_, bytes) => bytes,
                other => panic!("not a packet: {other:?}"),
            })
            .collect()
    }
}

pub(super) fn header(len: usize) -> HeaderBytes {
    mx_sim::header_of(7, len)
}

/// Returns the link of the last packet among these events.
pub(super) fn last_link(events: &[Event]) -> LinkId {
    let link = events.iter().rev().find_map(|event| match event {
        Event::Packet(link, _) => Some(*link),
        _ => None,
    });
    link.expect("no packet has arrived")
}

/// Creates two nodes with a link whose first packet has arrived: (a, its link, b, its link).
pub(super) fn linked() -> (Node, LinkId, Node, LinkId) {
    let (mut a, mut b) = (Node::new(), Node::new());
    let ab = link_up(&mut a, &mut b);
    let ba = b.first_link();
    b.take();
    (a, ab, b, ba)
}

/// Links `a` to `b` and leaves one packet in `b`'s log.
pub(super) fn link_up(a: &mut Node, b: &mut Node) -> LinkId {
    let link = a.connect(b).unwrap();
    b.poll_until_idle();
    a.poll_until_idle();
    assert_eq!(a.take(), [Event::Up(link)]);
    assert_eq!(a.send(link, b"hello"), Ok(Sent::Whole));
    b.poll_until_idle();
    link
}

pub(super) fn readable(fd: Option<i32>) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.unwrap(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid element.
    let n = unsafe { libc::poll(&raw mut poll, 1, 0) };
    n == 1 && poll.revents & libc::POLLIN != 0
}
