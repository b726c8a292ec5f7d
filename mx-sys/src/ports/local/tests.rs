//! Two ports in one process, and ports against peers that do not play by the rules.

mod cycles;
mod limit;
mod rogues;
mod slumber;

use super::handshake::{Hello, MESSAGE_LEN, Traits, Welcome};
use super::layout::{BODY_MAX, CELL, CELL_TAIL_AT, Geometry};
use super::link::State;
use super::socket::{Name, Received, Socket};
use super::{COOL_AFTER, HOT_KEPT, HOT_MAX, LISTEN_EVERY, LocalOptions, LocalPort};
use crate::sealed::Region;
use mx_proto::port::{
    BODY_LEN_AT, Body, Close, ConnectError, HEADER_LEN, HeaderBytes, LinkDown, Place, SendError,
    Sent, Sink,
};
use mx_proto::{Clock, Instant, LinkId, Source};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a sink was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Up(LinkId),
    Down(LinkId, LinkDown),
    Packet(LinkId, Vec<u8>),
    Writable(LinkId),
}

/// Writes everything down.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) events: Vec<Event>,
    pub(super) cookies: Vec<u64>,
}

impl Sink<Vec<u8>> for Recorder {
    fn on_up(&mut self, link: LinkId, cookie: u64) {
        self.events.push(Event::Up(link));
        self.cookies.push(cookie);
    }
    fn on_down(&mut self, link: LinkId, cookie: u64, reason: LinkDown) {
        self.events.push(Event::Down(link, reason));
        self.cookies.push(cookie);
    }
    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        cookie: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        // Whatever the peer does, what is handed on is what was checked.
        let len = header[BODY_LEN_AT..BODY_LEN_AT + 4].try_into().unwrap();
        assert_eq!(u32::from_le_bytes(len) as usize, body.len());
        self.events.push(Event::Packet(link, body.to_vec()));
        self.cookies.push(cookie);
    }
    fn place(&mut self, _: LinkId, _: u64, _: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
        None
    }
    fn on_placed(&mut self, _: LinkId, _: u64, _: &HeaderBytes) {}
    fn on_writable(&mut self, link: LinkId, cookie: u64) {
        self.events.push(Event::Writable(link));
        self.cookies.push(cookie);
    }
    fn on_released(&mut self, _: LinkId, _: u64, _: u64) {}
    fn on_remote_activity(&mut self, _: LinkId, _: u64, _: mx_proto::port::RemoteUse) {}

    fn on_remote_read(&mut self, _: LinkId, _: u64, _: u64, _: bool) {}
}

/// Time that a test moves.
#[derive(Default)]
pub(super) struct TestClock(Cell<u64>);

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant(self.0.get())
    }
}

impl TestClock {
    pub(super) fn advance(&self, span: Duration) {
        self.0.set(self.0.get() + span.as_nanos() as u64);
    }
}

/// A port with everything it needs to be polled.
pub(super) struct Node {
    pub(super) port: LocalPort,
    pub(super) clock: TestClock,
    pub(super) log: Recorder,
    endpoint: u32,
}

/// Names of this process's own, each used once.
pub(super) fn fresh_name() -> Name {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let endpoint = NEXT.fetch_add(1, Ordering::Relaxed);
    Name {
        port_base: 1,
        board: std::process::id(),
        endpoint,
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
            clock: TestClock::default(),
            log: Recorder::default(),
            endpoint,
        }
    }

    pub(super) fn name(&self) -> Name {
        self.port.name
    }

    pub(super) fn poll(&mut self) -> bool {
        self.port.poll(&self.clock, 64, &mut self.log)
    }

    /// Polls, descriptors included, until nothing happens any more.
    pub(super) fn settle(&mut self) {
        loop {
            self.port.note_control();
            self.port.slept = true;
            if !self.poll() && !self.poll() {
                return;
            }
        }
    }

    pub(super) fn connect(&mut self, other: &Self) -> Result<LinkId, ConnectError> {
        self.port
            .connect_to(self.port.name.board, other.endpoint, &self.clock)
    }

    pub(super) fn send(&mut self, link: LinkId, bytes: &[u8]) -> Result<Sent, SendError> {
        self.port
            .send::<Vec<u8>>(link, &header(bytes.len()), &Body::Bytes(bytes))
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log.events)
    }

    /// The link of the first packet among the events so far.
    pub(super) fn first_link(&self) -> LinkId {
        let link = self.log.events.iter().find_map(|event| match event {
            Event::Packet(link, _) => Some(*link),
            _ => None,
        });
        link.expect("no packet has arrived")
    }

    /// Any link that is not hot.
    fn cold_link(&self) -> LinkId {
        let mut ids = (0..self.port.links.len() as u32).map(|index| LinkId::new(index, 0));
        let cold = |id: &LinkId| self.port.links.get(*id).is_some_and(|entry| entry.cold);
        ids.find(cold).expect("all links are hot")
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
    let mut header = [7; HEADER_LEN];
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    header
}

/// Two nodes with a link between them, whose first packet has arrived: (a, its link, b, its link).
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
    b.settle();
    a.settle();
    assert_eq!(a.take(), [Event::Up(link)]);
    assert_eq!(a.send(link, b"hello"), Ok(Sent::Whole));
    b.settle();
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

// ---- meeting ----

#[test]
fn packets_go_both_ways_in_order() {
    let (mut a, ab, mut b, ba) = linked();
    a.port.bind(ab, 11);
    b.port.bind(ba, 22);
    for round in 0..500u32 {
        let bytes: Vec<u8> = (0..(round * 37) % 3000)
            .map(|at| (at + round) as u8)
            .collect();
        assert_eq!(a.send(ab, &bytes), Ok(Sent::Whole));
        assert_eq!(b.send(ba, &bytes), Ok(Sent::Whole));
        assert!(a.poll() && b.poll());
        assert_eq!(a.take(), [Event::Packet(ab, bytes.clone())]);
        assert_eq!(b.take(), [Event::Packet(ba, bytes)]);
    }
    assert!(a.log.cookies[1..].iter().all(|cookie| *cookie == 11));
    assert!(b.log.cookies[1..].iter().all(|cookie| *cookie == 22));
}

#[test]
fn a_second_server_on_an_endpoint_is_told_so() {
    let a = Node::new();
    let Name {
        port_base,
        board,
        endpoint,
    } = a.name();
    let error = LocalPort::open(port_base, board, endpoint).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(a);
    assert!(LocalPort::open(port_base, board, endpoint).is_ok());
}

#[test]
fn where_nobody_listens_there_is_no_route() {
    let mut a = Node::new();
    let board = a.name().board;
    let nobody = fresh_name().endpoint;
    assert_eq!(
        a.port.connect_to(board, nobody, &a.clock),
        Err(ConnectError::Refused)
    );
    assert_eq!(a.port.link_count(), 0);
}

#[test]
fn an_endpoint_can_talk_to_itself() {
    let mut a = Node::new();
    let endpoint = a.endpoint;
    let board = a.name().board;
    let out = a.port.connect_to(board, endpoint, &a.clock).unwrap();
    a.settle();
    assert_eq!(a.take(), [Event::Up(out)]);
    a.send(out, b"me").unwrap();
    a.poll();
    assert_eq!(a.bodies(), [b"me"]);
}

#[test]
fn sending_before_the_link_is_up_blocks_until_it_is() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let link = a.connect(&b).unwrap();
    assert_eq!(a.send(link, b"early"), Err(SendError::WouldBlock));
    b.settle();
    a.settle();
    assert_eq!(a.take(), [Event::Up(link), Event::Writable(link)]);
}

#[test]
fn a_full_backlog_is_tried_again() {
    // A listener that takes one connection and then none until it accepts.
    let name = fresh_name();
    let listener = Socket::listen(name).unwrap();
    // SAFETY: plain system call on a descriptor the test owns.
    assert_eq!(unsafe { libc::listen(listener.raw(), 0) }, 0);
    let filler = Socket::new().unwrap();
    filler.connect(name).unwrap();
    let mut a = Node::new();
    let link = a
        .port
        .connect_to(name.board, name.endpoint, &a.clock)
        .unwrap();
    assert!(a.port.deadline().is_some());
    for _ in 0..5 {
        a.clock.advance(Duration::from_millis(60));
        a.settle();
        assert_eq!(a.take(), []);
    }
    drop(listener.accept().unwrap());
    a.clock.advance(Duration::from_millis(60));
    a.settle();
    assert_eq!(a.port.deadline(), None);
    let peer = listener.accept().unwrap();
    let mut message = [0; MESSAGE_LEN];
    let Received::Message(len, Some(_memory)) = peer.receive(&mut message).unwrap() else {
        panic!("no hello");
    };
    assert!(Hello::decode(&message[..len]).is_ok());
    peer.send(&welcome().encode(), None).unwrap();
    a.settle();
    assert_eq!(a.take(), [Event::Up(link)]);
}

#[test]
fn a_backlog_that_closes_refuses() {
    let name = fresh_name();
    let listener = Socket::listen(name).unwrap();
    // SAFETY: plain system call on a descriptor the test owns.
    assert_eq!(unsafe { libc::listen(listener.raw(), 0) }, 0);
    let filler = Socket::new().unwrap();
    filler.connect(name).unwrap();
    let mut a = Node::new();
    let waiting = a
        .port
        .connect_to(name.board, name.endpoint, &a.clock)
        .unwrap();
    drop(listener);
    a.clock.advance(Duration::from_millis(60));
    a.settle();
    assert_eq!(a.take(), [Event::Down(waiting, LinkDown::Refused)]);
}

#[test]
fn links_beyond_the_limit_are_refused_on_either_side() {
    let (mut a, mut b) = (Node::with_limit(3), Node::with_limit(1));
    let first = link_up(&mut a, &mut b);
    let second = a.connect(&b).unwrap();
    b.settle();
    a.settle();
    assert_eq!(a.take(), [Event::Down(second, LinkDown::Refused)]);
    assert_eq!((b.port.stats().accepted, b.port.stats().refused), (1, 1));
    assert_eq!(b.connect(&a), Err(ConnectError::NoResources));
    a.port.close(first, Close::Flush);
    b.settle();
    let third = a.connect(&b).unwrap();
    b.settle();
    a.settle();
    assert_eq!(a.take(), [Event::Up(third)]);
}

// ---- room ----

#[test]
fn a_full_ring_blocks_and_says_when_there_is_room() {
    for len in [8, 2000, BODY_MAX] {
        let (mut a, ab, mut b, _) = linked();
        let body = vec![1; len];
        let mut sent = 0;
        while a.send(ab, &body) == Ok(Sent::Whole) {
            sent += 1;
        }
        assert!(sent >= 7, "{sent} packets of {len} bytes");
        assert_eq!(a.send(ab, &body), Err(SendError::WouldBlock));
        for _ in 0..10 {
            a.poll();
        }
        assert_eq!(a.take(), [], "no room yet");
        b.settle();
        assert_eq!(b.bodies().len(), sent);
        assert!(a.poll());
        assert_eq!(a.take(), [Event::Writable(ab)]);
        assert!(!a.poll(), "said once");
        assert_eq!(a.send(ab, &body), Ok(Sent::Whole));
    }
}

#[test]
fn a_sleeper_that_waits_for_room_is_woken() {
    let (mut a, ab, mut b, _) = linked();
    a.settle();
    while a.send(ab, &[1; 5000]) == Ok(Sent::Whole) {}
    assert!(a.port.arm());
    assert!(!readable(a.port.descriptors().data));
    b.settle();
    assert!(readable(a.port.descriptors().data));
    a.port.disarm();
    assert!(a.poll());
    assert_eq!(a.take(), [Event::Writable(ab)]);
    // The wake-up itself does not keep it from sleeping again.
    a.settle();
    assert!(a.port.arm());
    assert!(!readable(a.port.descriptors().data));
}

#[test]
fn a_poll_takes_about_its_budget_and_is_fair() {
    let (mut a, mut c, mut b) = (Node::new(), Node::new(), Node::new());
    let ab = link_up(&mut a, &mut b);
    let cb = link_up(&mut c, &mut b);
    b.take();
    for at in 0..100 {
        a.send(ab, &[at]).unwrap();
        c.send(cb, &[at]).unwrap();
    }
    b.poll();
    let events = b.take();
    assert!((16..=80).contains(&events.len()), "{}", events.len());
    b.port.poll(&b.clock, 1, &mut b.log);
    assert_eq!(b.take().len(), 1);
    let mut seen = std::collections::HashMap::new();
    while b.poll() {
        for event in b.take() {
            let Event::Packet(link, _) = event else {
                panic!("{event:?}")
            };
            *seen.entry(link).or_insert(0) += 1;
        }
        let counts: Vec<i32> = seen.values().copied().collect();
        assert!(
            counts.iter().all(|n| counts[0].abs_diff(*n) <= 70),
            "{counts:?}"
        );
    }
}

// ---- sleeping ----

#[test]
fn arming_fails_while_something_is_there() {
    let (mut a, ab, mut b, ba) = linked();
    b.settle();
    a.send(ab, b"there").unwrap();
    assert!(!b.port.arm());
    b.settle();
    assert_eq!(b.take(), [Event::Packet(ba, b"there".to_vec())]);
    assert!(b.port.arm());
    b.port.note_control();
    assert!(!b.port.arm());
}

#[test]
fn a_packet_wakes_a_sleeper_once() {
    let (mut a, ab, mut b, _) = linked();
    b.settle();
    assert!(b.port.arm());
    assert!(!readable(b.port.descriptors().data));
    for _ in 0..5 {
        a.send(ab, b"x").unwrap();
    }
    assert!(readable(b.port.descriptors().data));
    let bells = count_bells(&b);
    assert_eq!(bells, 1);
    b.port.disarm();
    b.settle();
    assert_eq!(b.bodies().len(), 5);
    // Awake, nobody rings.
    a.send(ab, b"y").unwrap();
    assert!(!readable(b.port.descriptors().data));
    b.settle();
}

/// Takes the wake-ups out of all sockets of a port, which has not noticed them yet.
fn count_bells(node: &Node) -> usize {
    let mut bells = 0;
    for entry in node.port.links.values() {
        let mut byte = [0; 8];
        while let Ok(Received::Message(1, None)) = entry.socket.as_ref().unwrap().receive(&mut byte)
        {
            bells += 1;
        }
    }
    bells
}

#[test]
fn control_is_readable_for_coming_and_going_but_not_for_packets() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let control = b.port.descriptors().control;
    let ab = a.connect(&b).unwrap();
    assert!(readable(control));
    b.settle();
    a.settle();
    assert!(!readable(control));
    assert!(b.port.arm());
    a.send(ab, b"data").unwrap();
    assert!(!readable(control) && readable(b.port.descriptors().data));
    b.port.disarm();
    b.settle();
    a.port.close(ab, Close::Flush);
    assert!(readable(control));
    b.settle();
    assert!(!readable(control));
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const ROUNDS: u32 = 20_000;
    let (mut a, ab, mut b, ba) = linked();
    b.settle();
    a.settle();
    let echo = std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            let bytes = next_body(&mut b);
            b.send(ba, &bytes).unwrap();
        }
        b
    });
    for round in 0..ROUNDS {
        a.send(ab, &round.to_le_bytes()).unwrap();
        assert_eq!(next_body(&mut a), round.to_le_bytes());
    }
    echo.join().unwrap();
}

/// Sleeps for the next packet at once, without polling more than it has to.
fn next_body(node: &mut Node) -> Vec<u8> {
    loop {
        node.poll();
        if let Some(bytes) = node.bodies().pop() {
            return bytes;
        }
        if node.port.arm() {
            let fds = node.port.descriptors();
            let mut poll = [fds.control, fds.data].map(|fd| libc::pollfd {
                fd: fd.unwrap(),
                events: libc::POLLIN,
                revents: 0,
            });
            // SAFETY: two valid elements.
            let n = unsafe { libc::poll(poll.as_mut_ptr(), 2, 20_000) };
            assert_ne!(n, 0, "slept for 20 seconds: a wake-up is lost");
            node.port.disarm();
        }
    }
}

#[test]
fn no_wake_up_for_room_is_lost_between_two_threads() {
    const PACKETS: usize = 30_000;
    let (mut a, ab, mut b, _) = linked();
    b.settle();
    a.settle();
    let reader = std::thread::spawn(move || {
        let mut got = 0;
        while got < PACKETS {
            if b.poll() {
                got += b.bodies().len();
            } else if b.port.arm() {
                wait(&b);
                b.port.disarm();
            }
        }
        b
    });
    let mut sent = 0;
    while sent < PACKETS {
        match a.send(ab, &[1; 3000]) {
            Ok(_) => sent += 1,
            Err(SendError::Down) => panic!("down"),
            Err(SendError::WouldBlock) => {
                while a.take().is_empty() {
                    if !a.poll() && a.port.arm() {
                        wait(&a);
                        a.port.disarm();
                    }
                }
            }
        }
    }
    reader.join().unwrap();
}

fn wait(node: &Node) {
    let fd = node.port.descriptors().data.unwrap();
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid element.
    let n = unsafe { libc::poll(&raw mut poll, 1, 20_000) };
    assert_ne!(n, 0, "slept for 20 seconds: a wake-up is lost");
}

#[test]
fn a_bell_that_another_thread_took_rings_again_for_the_sleeper() {
    // Few enough for nearly all to stay hot, and enough for some to be always cold.
    for clients in [HOT_KEPT + 2, HOT_MAX + 8] {
        bells_for_a_sleeper(clients);
    }
}

fn bells_for_a_sleeper(clients: usize) {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..clients).map(|_| Node::new()).collect();
    let links: Vec<LinkId> = clients
        .iter_mut()
        .map(|client| link_up(client, &mut server))
        .collect();
    server.take();
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    for sleep in 0..3 {
        server.settle();
        while !server.port.arm() {
            server.settle();
        }
        // The one who sleeps has not noticed yet; somebody else polls meanwhile, and more than once.
        for round in 0..3u8 {
            for (client, link) in clients.iter_mut().zip(&links) {
                assert!(!readable(server.port.descriptors().data));
                client.send(*link, &[round]).unwrap();
                assert!(readable(server.port.descriptors().data), "sleep {sleep}");
                while readable(server.port.descriptors().data) {
                    server.poll();
                }
                while server.poll() {}
                assert_eq!(server.bodies(), [[round]]);
            }
        }
        server.port.disarm();
        // Awake again: nobody is forgotten, hot or cold.
        for (client, link) in clients.iter_mut().zip(&links) {
            client.send(*link, b"x").unwrap();
            for _ in 0..LISTEN_EVERY / HOT_KEPT {
                server.poll();
            }
            assert_eq!(server.bodies(), [b"x"]);
        }
    }
}

// ---- many links ----

#[test]
fn idle_links_cool_down_and_their_packets_still_arrive() {
    const CLIENTS: usize = 40;
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..CLIENTS).map(|_| Node::new()).collect();
    let links: Vec<LinkId> = clients
        .iter_mut()
        .map(|a| link_up(a, &mut server))
        .collect();
    server.take();
    assert!((HOT_KEPT..=HOT_MAX).contains(&server.port.hot.len()));
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    assert_eq!(server.port.hot.len(), HOT_KEPT);
    assert_eq!(server.port.cold, CLIENTS - HOT_KEPT);
    // Awake: the first packet of a cold link is found soon.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        client.send(*link, &[at as u8]).unwrap();
        for _ in 0..LISTEN_EVERY / HOT_KEPT {
            server.poll();
        }
        assert_eq!(server.bodies(), [[at as u8]]);
    }
    let hot = server.port.hot.len();
    assert!((HOT_KEPT..=HOT_MAX).contains(&hot));
    assert_eq!(server.port.cold, CLIENTS - hot);
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    // Asleep: the first packet rings, whichever link it is.
    for (at, (client, link)) in clients.iter_mut().zip(&links).enumerate() {
        server.settle();
        while !server.port.arm() {
            server.settle();
        }
        assert!(!readable(server.port.descriptors().data), "client {at}");
        client.send(*link, &[at as u8]).unwrap();
        assert!(readable(server.port.descriptors().data), "client {at}");
        server.port.disarm();
        assert!(server.poll());
        assert_eq!(server.bodies(), [[at as u8]]);
    }
}

#[test]
fn a_cold_link_that_is_sent_to_becomes_hot() {
    let mut server = Node::new();
    let mut clients: Vec<Node> = (0..20).map(|_| Node::new()).collect();
    for client in &mut clients {
        link_up(client, &mut server);
    }
    for _ in 0..=COOL_AFTER {
        server.poll();
    }
    let cold = server.cold_link();
    assert_eq!(server.send(cold, b"x"), Ok(Sent::Whole));
    assert!(server.port.hot.contains(&cold));
    assert_eq!(server.port.cold, 3);
    // And it ends like any other, from either group.
    for link in [cold, server.cold_link()] {
        server.port.close(link, Close::Now);
    }
    assert_eq!((server.port.hot.len(), server.port.cold), (HOT_KEPT, 2));
    server.settle();
}

// ---- the end ----

#[test]
fn closing_with_packets_in_flight_delivers_them_first() {
    let (mut a, ab, mut b, ba) = linked();
    b.port.bind(ba, 5);
    for at in 0..100 {
        a.send(ab, &vec![at; 1000]).unwrap();
    }
    a.port.close(ab, Close::Flush);
    assert_eq!(a.send(ab, b"x"), Err(SendError::Down));
    b.settle();
    let events = b.take();
    assert_eq!(events.len(), 101);
    for (at, event) in events[..100].iter().enumerate() {
        assert_eq!(*event, Event::Packet(ba, vec![at as u8; 1000]));
    }
    assert_eq!(events[100], Event::Down(ba, LinkDown::Closed));
    assert_eq!(*b.log.cookies.last().unwrap(), 5);
    assert_eq!(b.send(ba, b"x"), Err(SendError::Down));
    assert_eq!((a.port.link_count(), b.port.link_count()), (0, 0));
}

#[test]
fn a_peer_that_goes_without_a_word_is_a_reset() {
    let (mut a, ab, mut b, ba) = linked();
    a.send(ab, b"last").unwrap();
    a.port.close(ab, Close::Now);
    b.settle();
    assert_eq!(
        b.take(),
        [
            Event::Packet(ba, b"last".to_vec()),
            Event::Down(ba, LinkDown::Reset)
        ]
    );
    let (a, _, mut b, ba) = linked();
    drop(a);
    b.settle();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn a_sleeper_notices_the_end_of_its_peer() {
    let (a, _, mut b, ba) = linked();
    b.settle();
    assert!(b.port.arm());
    drop(a);
    assert!(readable(b.port.descriptors().control));
    b.port.disarm();
    // No note_control: the first poll after sleeping looks by itself.
    assert!(b.poll() || b.poll());
    b.poll();
    assert_eq!(b.take(), [Event::Down(ba, LinkDown::Closed)]);
}

#[test]
fn a_stranger_who_never_sent_a_packet_ends_without_a_word() {
    let (mut a, mut b) = (Node::new(), Node::new());
    let link = a.connect(&b).unwrap();
    b.settle();
    a.settle();
    a.port.close(link, Close::Flush);
    b.settle();
    assert_eq!(b.take(), []);
    assert_eq!(b.port.link_count(), 0);
}

#[test]
fn stale_names_reach_nobody() {
    let (mut a, ab, mut b, _) = linked();
    a.port.close(ab, Close::Now);
    b.settle();
    b.take();
    let again = link_up(&mut a, &mut b);
    assert_eq!(again.index(), ab.index());
    b.take();
    a.port.bind(ab, 99);
    assert_eq!(a.send(ab, b"x"), Err(SendError::Down));
    a.port.close(ab, Close::Now);
    assert_eq!(a.send(again, b"y"), Ok(Sent::Whole));
    b.settle();
    assert_eq!(b.bodies(), [b"y"]);
}

// ---- peers that do not play by the rules ----

/// A hand-made initiator.
pub(super) struct Rogue {
    pub(super) socket: Socket,
    pub(super) region: Region,
}

pub(super) const GEOMETRY: Geometry = Geometry::STANDARD;

pub(super) const TRAITS: Traits = Traits {
    asymmetric: true,
    sleeps: true,
};

fn welcome() -> Welcome {
    Welcome {
        traits: TRAITS,
        asleep: false,
    }
}

impl Rogue {
    pub(super) fn connect(to: &mut Node) -> Self {
        let (region, fd) = Region::create(c"test", GEOMETRY.total()).unwrap();
        let socket = Socket::new().unwrap();
        socket.connect(to.name()).unwrap();
        let hello = Hello {
            geometry: GEOMETRY,
            traits: TRAITS,
        };
        socket.send(&hello.encode(), Some(&fd)).unwrap();
        to.settle();
        let mut message = [0; MESSAGE_LEN];
        assert!(matches!(
            socket.receive(&mut message),
            Ok(Received::Message(MESSAGE_LEN, None))
        ));
        Self { socket, region }
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.region.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the region, as just checked.
            unsafe { self.region.base().add(at + index).write_volatile(*byte) };
        }
    }

    /// Puts a packet with an empty body into cell `cell` of the first lap.
    pub(super) fn write_packet(&self, cell: usize) {
        let at = GEOMETRY.cells_at(0) + cell * CELL;
        self.write(at + 8, &header(0));
        self.write(at, &1u64.to_le_bytes());
    }
}

#[test]
fn nonsense_in_the_ring_ends_that_link_and_no_other() {
    let mut server = Node::new();
    let mut good = Node::new();
    let link = link_up(&mut good, &mut server);
    server.take();
    for flag in [
        2u64,
        u64::MAX,
        1 | 1 << 32,
        1 | 0xffff_ffff << 32,
        0xdead_beef,
    ] {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.settle();
        let from = server.first_link();
        server.take();
        rogue.write(GEOMETRY.cells_at(0) + CELL, &flag.to_le_bytes());
        server.settle();
        assert_eq!(
            server.take(),
            [Event::Down(from, LinkDown::Protocol)],
            "{flag:#x}"
        );
        let mut message = [0; MESSAGE_LEN];
        assert!(matches!(
            rogue.socket.receive(&mut message),
            Ok(Received::HangUp)
        ));
    }
    assert_eq!(server.port.stats().violations, 5);
    good.send(link, b"fine").unwrap();
    server.settle();
    assert_eq!(server.bodies(), [b"fine"]);
}

#[test]
fn impossible_tails_end_the_link() {
    let mut server = Node::new();
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.settle();
    let from = server.first_link();
    server.take();
    rogue.write(GEOMETRY.head_at(1) + CELL_TAIL_AT, &u64::MAX.to_le_bytes());
    let outcome = (0..1000)
        .map(|_| server.send(from, b"x"))
        .find(Result::is_err);
    assert_eq!(outcome, Some(Err(SendError::Down)));
    server.settle();
    assert_eq!(server.take(), [Event::Down(from, LinkDown::Protocol)]);
}

#[test]
fn random_scribbling_never_hurts_more_than_its_own_link() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut server = Node::new();
    let mut good = Node::new();
    let link = link_up(&mut good, &mut server);
    let answer_on = server.first_link();
    let mut ended = 0;
    for _ in 0..200 {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.settle();
        let from = server.take().iter().rev().find_map(|event| match event {
            Event::Packet(link, _) => Some(*link),
            _ => None,
        });
        let from = from.unwrap();
        for _ in 0..50 {
            // Mostly where it matters: the heads and the cells.
            let span = if random() % 4 == 0 {
                GEOMETRY.total()
            } else {
                GEOMETRY.data_at(0)
            };
            let at = (random() as usize % (span - 8)) & !7;
            let value = match random() % 4 {
                0 => random(),
                1 => (random() % 4) | ((random() % 40_000) << 32),
                2 => random() % 200,
                _ => u64::MAX - random() % 200,
            };
            rogue.write(at, &value.to_le_bytes());
            rogue.write_packet(random() as usize % 128);
            rogue.socket.ring();
            let _ = server.send(from, &[1; 300]);
            if server.port.arm() {
                server.port.disarm();
            }
            server.poll();
        }
        good.send(link, b"fine").unwrap();
        server.settle();
        assert!(
            server
                .take()
                .contains(&Event::Packet(answer_on, b"fine".to_vec()))
        );
        drop(rogue);
        server.settle();
        ended += server
            .take()
            .iter()
            .filter(|event| matches!(event, Event::Down(..)))
            .count();
    }
    assert!(ended > 0);
    assert_eq!(server.port.link_count(), 1);
}

#[test]
fn scribbling_while_we_read_is_no_worse() {
    let mut server = Node::new();
    for round in 0..30u64 {
        let rogue = Rogue::connect(&mut server);
        rogue.write_packet(0);
        server.settle();
        let from = server.first_link();
        let scribbler = std::thread::spawn(move || {
            let mut seed = round * 2 + 1;
            for _ in 0..20_000 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // The flags, lengths and headers of a few cells, never quite as they should be.
                let cell = (seed % 128) as usize;
                let at = GEOMETRY.cells_at(0) + cell * CELL;
                let len = seed >> 20 & 0xffff;
                rogue.write(at + 8 + BODY_LEN_AT, &(len as u32).to_le_bytes());
                rogue.write(at, &(1 | len << 32).to_le_bytes());
            }
        });
        while !scribbler.is_finished() {
            server.poll();
            let _ = server.send(from, &[1; 1000]);
            for event in server.take() {
                if let Event::Packet(_, body) = event {
                    assert!(body.len() <= BODY_MAX);
                }
            }
        }
        scribbler.join().unwrap();
        server.settle();
        assert_eq!(server.port.link_count(), 0);
        server.take();
    }
}

/// Sends `message` with descriptors as the first words of a stranger; returns the socket.
fn say(to: &mut Node, message: &[u8], fd: Option<&OwnedFd>) -> Socket {
    let socket = Socket::new().unwrap();
    socket.connect(to.name()).unwrap();
    socket.send(message, fd).unwrap();
    to.settle();
    socket
}

pub(super) fn sealed_memfd(len: usize) -> OwnedFd {
    Region::create(c"test", len).unwrap().1
}

#[test]
fn bad_handshakes_are_refused_and_their_descriptors_closed() {
    let good = Hello {
        geometry: GEOMETRY,
        traits: TRAITS,
    }
    .encode();
    let mut bad_magic = good;
    bad_magic[0] ^= 1;
    let mut bad_version = good;
    bad_version[8] = 77;
    let mut bad_cells = good;
    bad_cells[16] = 3;
    let long = [good.as_slice(), &[0]].concat();
    let mut server = Node::new();
    let cases: [(&str, &[u8]); 6] = [
        ("magic", &bad_magic),
        ("version", &bad_version),
        ("cells", &bad_cells),
        ("short", &good[..31]),
        ("long", &long),
        ("nonsense", b"GET / HTTP/1.1"),
    ];
    for (count, (what, message)) in cases.into_iter().enumerate() {
        let fd = sealed_memfd(GEOMETRY.total());
        let socket = say(&mut server, message, Some(&fd));
        let mut answer = [0; MESSAGE_LEN];
        assert!(
            matches!(socket.receive(&mut answer), Ok(Received::HangUp)),
            "{what}"
        );
        assert_eq!(server.port.stats().refused, count as u64 + 1, "{what}");
        assert_eq!(server.port.link_count(), 0, "{what}");
    }
    // No memory at all, memory of another size, memory that is not sealed, no memory but a file.
    let (pipe_read, pipe_write) = pipe();
    let small = sealed_memfd(4096);
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    for fd in [None, Some(&small), Some(&pipe_write), Some(&file)] {
        let socket = say(&mut server, &good, fd);
        let mut answer = [0; MESSAGE_LEN];
        assert!(matches!(socket.receive(&mut answer), Ok(Received::HangUp)));
    }
    drop(pipe_write);
    // All other copies of the pipe's end are closed: it has ended.
    let mut rest = Vec::new();
    std::fs::File::from(pipe_read)
        .read_to_end(&mut rest)
        .unwrap();
    assert_eq!(rest, b"");
    assert_eq!(server.port.stats().refused, 10);
    assert_eq!(server.take(), []);
}

#[test]
fn more_descriptors_than_expected_are_closed_and_refused() {
    for count in [2usize, 5, 100] {
        let mut server = Node::new();
        let (pipe_read, pipe_write) = pipe();
        let socket = Socket::new().unwrap();
        socket.connect(server.name()).unwrap();
        let good = Hello {
            geometry: GEOMETRY,
            traits: TRAITS,
        }
        .encode();
        send_with_copies(&socket, &good, &pipe_write, count);
        server.settle();
        assert_eq!(server.port.stats().refused, 1);
        drop(pipe_write);
        let mut rest = Vec::new();
        std::fs::File::from(pipe_read)
            .read_to_end(&mut rest)
            .unwrap();
        assert_eq!(rest, b"");
    }
}

pub(super) fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are fresh and owned by nobody else.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

fn send_with_copies(socket: &Socket, message: &[u8], fd: &OwnedFd, count: usize) {
    use std::os::fd::AsRawFd;
    let bytes = count * size_of::<i32>();
    let mut control = vec![0u64; 128];
    let mut iov = libc::iovec {
        iov_base: message.as_ptr().cast_mut().cast(),
        iov_len: message.len(),
    };
    // SAFETY: the header points to `iov` and `control`, which is large enough for 100 descriptors.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as _;
        let cmsg = libc::CMSG_FIRSTHDR(&raw const header);
        (*cmsg).cmsg_level = libc::SOL_SOCKET;
        (*cmsg).cmsg_type = libc::SCM_RIGHTS;
        (*cmsg).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        for at in 0..count {
            let slot = libc::CMSG_DATA(cmsg).cast::<i32>().add(at);
            slot.write_unaligned(fd.as_raw_fd());
        }
        let sent = libc::sendmsg(socket.raw(), &raw const header, 0);
        assert_eq!(
            sent,
            message.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

#[test]
fn a_silent_stranger_is_dropped_after_a_while() {
    let mut server = Node::new();
    let socket = Socket::new().unwrap();
    socket.connect(server.name()).unwrap();
    server.settle();
    assert_eq!(server.port.link_count(), 1);
    assert_eq!(server.port.deadline(), Some(Instant(5_000_000_000)));
    server.clock.advance(Duration::from_millis(4999));
    server.settle();
    assert_eq!(server.port.link_count(), 1);
    server.clock.advance(Duration::from_millis(1));
    server.settle();
    assert_eq!(
        (server.port.link_count(), server.port.deadline()),
        (0, None)
    );
    assert_eq!(server.port.stats().refused, 1);
}

#[test]
fn many_silent_strangers_do_not_keep_others_out() {
    let mut server = Node::with_limit(70);
    let strangers: Vec<Socket> = (0..200)
        .map(|_| {
            let socket = Socket::new().unwrap();
            socket.connect(server.name()).unwrap();
            server.settle();
            socket
        })
        .collect();
    assert_eq!(server.port.link_count(), 64);
    link_up(&mut Node::new(), &mut server);
    assert_eq!(server.bodies(), [b"hello"]);
    drop(strangers);
    server.settle();
}

#[test]
fn an_acceptor_that_answers_nonsense_is_a_protocol_violation() {
    let answers: [(&[u8], LinkDown); 4] = [
        (b"nonsense", LinkDown::Protocol),
        (&[0; 32], LinkDown::Protocol),
        (&[0; 100], LinkDown::Protocol),
        (&[], LinkDown::Refused),
    ];
    for (answer, reason) in answers {
        let name = fresh_name();
        let listener = Socket::listen(name).unwrap();
        let mut a = Node::new();
        let link = a
            .port
            .connect_to(name.board, name.endpoint, &a.clock)
            .unwrap();
        let peer = listener.accept().unwrap();
        let mut hello = [0; MESSAGE_LEN];
        assert!(matches!(
            peer.receive(&mut hello),
            Ok(Received::Message(MESSAGE_LEN, Some(_)))
        ));
        if !answer.is_empty() {
            peer.send(answer, None).unwrap();
        }
        drop(peer);
        a.settle();
        assert_eq!(a.take(), [Event::Down(link, reason)]);
        assert_eq!(a.port.link_count(), 0);
    }
}

#[test]
fn a_peer_that_floods_the_bell_is_no_worse_than_noise() {
    let mut server = Node::new();
    let rogue = Rogue::connect(&mut server);
    rogue.write_packet(0);
    server.settle();
    server.take();
    for _ in 0..10_000 {
        rogue.socket.ring();
    }
    for _ in 0..10_000 {
        if server.port.arm() && !readable(server.port.descriptors().data) {
            return;
        }
        server.port.disarm();
        server.poll();
    }
    panic!("the bells never end");
}

#[test]
fn links_of_a_port_are_really_up() {
    let (a, ab, b, ba) = linked();
    for (node, link) in [(&a, ab), (&b, ba)] {
        let entry = node.port.links.get(link).unwrap();
        assert!(matches!(entry.state, State::Up(_)));
    }
    assert_eq!((a.port.stats().initiated, b.port.stats().accepted), (1, 1));
}
