//! Two endpoints joined by queues that a test can hold, cut and change.

use mx_proto::ops::{Chunks, Ops};
use mx_proto::origin::{Address, Seen, Source};
use mx_proto::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, LinkDown, Port, RemoteKey,
    RemoteMemory, RemoteRead, RemoteUse, SendError, Sent, Sink,
};
use mx_proto::secret::Secret;
use mx_proto::wire::{Header, Kind};
use mx_proto::{
    Arrival, Config, Down, Endpoint, EndpointId, Identity, Instant, Key, LinkId, MatchBits,
    MatchMask, Memory, NicId, Outcome, Owner, Posted, Received, RemoteId, RequestId, Route,
    SendMode, SessionId, Status, Target, Verdict,
};
use mx_sim::Completion;
use mx_sim::Queue;
use mx_sim::{Buffer, Queued, VirtualClock};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use zeroize::Zeroizing;

pub(crate) const KEY: u32 = 0x7076_6673;
pub(crate) const UNEXPECTED_MAX: usize = 300_000;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Keeps what it is told, and answers as a test wants.
pub(crate) struct TestOwner {
    queue: Queue<Buffer>,
    /// The verdict on a message that no receive accepts.
    pub(crate) answer: Answer,
    /// There is memory for messages of the inbox.
    pub(crate) memory: bool,
    /// Turns of which a message could be had.
    pub(crate) ready: Vec<u32>,
    /// Those that it was asked about: length, and the bytes that came.
    pub(crate) asked: Vec<(u32, Vec<u8>)>,
}

pub(crate) type Answer = fn(&Arrival) -> Verdict;

pub(crate) fn keep(_: &Arrival) -> Verdict {
    Verdict::Continue
}

/// All messages go to the inbox; the turn is in the bits.
pub(crate) fn put_in(it: &Arrival) -> Verdict {
    let turn = (it.bits.0 >> 32) as u32 & 0xff;
    Verdict::Inbox { turn }
}

pub(crate) fn defer(_: &Arrival) -> Verdict {
    Verdict::Defer
}

impl TestOwner {
    fn new() -> Self {
        Self {
            queue: Queue::default(),
            answer: keep,
            memory: true,
            ready: Vec::new(),
            asked: Vec::new(),
        }
    }
}

impl Queued for TestOwner {
    fn queue(&mut self) -> &mut Queue<Buffer> {
        &mut self.queue
    }
}

impl Owner for TestOwner {
    type Memory = Buffer;
    type Word = u64;
    type Places = Chunks<Buffer, u64>;

    fn lane(bits: MatchBits) -> mx_proto::flow::Lane {
        if bits.0 >> 63 == 1 {
            mx_proto::flow::Lane::Unexpected
        } else {
            mx_proto::flow::Lane::Matched
        }
    }

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.queue.keep(ops, op, how);
    }

    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.queue.keep_down(down);
    }

    fn arrived<B: mx_proto::Source + ?Sized>(&mut self, it: &Arrival, body: Option<&B>) -> Verdict {
        let body = body.map(mx_proto::Source::to_vec).unwrap_or_default();
        self.asked.push((it.length, body));
        (self.answer)(it)
    }

    fn memory(&mut self, len: usize) -> Option<Buffer> {
        self.memory.then(|| vec![0x5a; len].into())
    }

    fn ready(&mut self, turn: u32) {
        self.ready.push(turn);
    }

    fn has_events(&self) -> bool {
        self.queue.has_events()
    }
}

pub(crate) type Node = Endpoint<QueuePort, VirtualClock, TestOwner>;

/// Operations of a node that most tests begin with.
pub(crate) trait Acts {
    /// Sends, and does not wait for a receive.
    fn sends(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        data: impl Into<Buffer>,
        context: u64,
    ) -> Posted;

    /// Posts a receive that no message is there for.
    fn posts(&mut self, bits: MatchBits, buffer: Buffer, context: u64) -> RequestId;

    fn next_completion(&mut self) -> Option<Completion>;

    fn next_down(&mut self) -> Option<Down>;

    /// The status of the operation that has ended first.
    fn ended(&mut self) -> Status {
        self.next_completion().expect("one has ended").status
    }
}

impl Acts for Node {
    fn sends(
        &mut self,
        to: RemoteId,
        bits: MatchBits,
        data: impl Into<Buffer>,
        context: u64,
    ) -> Posted {
        self.send(to, bits, data.into(), context, SendMode::Standard)
            .unwrap()
    }

    fn posts(&mut self, bits: MatchBits, buffer: Buffer, context: u64) -> RequestId {
        match self.recv(bits, MatchMask::EXACT, buffer, context).unwrap() {
            Received::Pending(id) => id,
            Received::Complete(done) => panic!("completed at once: {done:?}"),
        }
    }

    fn next_completion(&mut self) -> Option<Completion> {
        self.owner_mut().queue.next_completion()
    }

    fn next_down(&mut self) -> Option<Down> {
        self.owner_mut().queue.next_down()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    A,
    B,
}

/// One direction of a link.
#[derive(Default, Debug)]
struct Lane {
    packets: VecDeque<(HeaderBytes, Vec<u8>)>,
    /// A packet of which more bytes are to come.
    open: Option<(HeaderBytes, Vec<u8>, usize)>,
    /// Half of the first packet has been taken out.
    begun: bool,
    blocked: bool,
}

#[derive(Debug)]
struct Cable {
    /// Node numbers of both ends; the first opened it.
    ends: [usize; 2],
    cookies: [u64; 2],
    /// `lanes[i]` is read by end `i`.
    lanes: [Lane; 2],
    up_told: bool,
    refused: bool,
    /// Ends that have still to hear that it is over.
    down: [Option<LinkDown>; 2],
    gone: [bool; 2],
}

#[derive(Default, Debug)]
struct Hub {
    cables: Vec<Cable>,
    hold_data: bool,
    newest_first: bool,
    /// Cables from which nothing is taken out.
    held: Vec<usize>,
    /// The network cannot tell b who its peers are.
    unnamed: bool,
    /// No translator changes the addresses that are called.
    no_translator: bool,
    /// The interface and the address that the other end of a cable has, where they are not the claimed ones.
    seen: Vec<(usize, u64)>,
    /// Cables of one source.
    sources: Vec<(usize, u64)>,
    /// The port says whether there is room when it is asked.
    tells_of_room: bool,
    /// The port asks where messages go when their headers have come.
    streams: bool,
    /// And nothing comes behind the half of one.
    stops_midway: bool,
    /// The port can read memory of the other side's; reads begin and do not end.
    reads_remotely: bool,
    /// And one that is refused would end the link.
    refusals_end_links: bool,
    /// Tokens of reads that need not go on, and keys that are not valid any more.
    stopped: Vec<u64>,
    deregistered: Vec<RemoteKey>,
    /// The token of the last read.
    reading: Option<u64>,
    /// A handle of the memory that it goes to.
    into: Option<Buffer>,
    /// The next report of a node's port about a read that goes on.
    moving: Option<(usize, RemoteUse)>,
    /// And about one of b's that is over: whether it was read.
    over: Option<(u64, bool)>,
    /// Packets sent without message data.
    heard: Vec<(HeaderBytes, Vec<u8>)>,
}

/// Another address of a's machine.
pub(crate) const ALIAS_OF_A: u128 = 102;

/// An interface that no endpoint of ours stands behind.
pub(crate) const IMPOSTOR: u64 = 107;

/// Packets one lane holds before the sender must wait.
const ROOM: usize = 8;

/// Bytes of the rest of a packet that a lane takes at a time.
const PART: usize = 20 * 1024;

#[derive(Debug)]
pub(crate) struct QueuePort {
    hub: Rc<RefCell<Hub>>,
    node: usize,
}

impl QueuePort {
    /// Link ids name a cable's end: index 2n or 2n+1.
    fn end(link: LinkId) -> (usize, usize) {
        (link.index() as usize / 2, link.index() as usize % 2)
    }
}

impl LinkControl for QueuePort {
    fn limits(&self, _: LinkId) -> Limits {
        Limits {
            packet_max: 32 * 1024,
            streamed_max: if self.hub.borrow().streams {
                512 << 10
            } else {
                0
            },
            data_max: 64 * 1024,
            pull_block: 96 * 1024,
            remote_read: self.hub.borrow().reads_remotely,
            refusal_ends_link: self.hub.borrow().refusals_end_links,
        }
    }

    fn connect(&mut self, target: Target, _: Instant) -> Result<LinkId, ConnectError> {
        let mut hub = self.hub.borrow_mut();
        let to = match target.nic.0 {
            nic @ (100..=101 | IMPOSTOR) => (nic - 100) as usize,
            nic if u128::from(nic) == ALIAS_OF_A => 0,
            999 => 1,
            _ => usize::MAX,
        };
        hub.cables.push(Cable {
            ends: [self.node, to],
            cookies: [0; 2],
            lanes: Default::default(),
            up_told: false,
            refused: to == usize::MAX,
            down: [None; 2],
            gone: [false; 2],
        });
        Ok(LinkId::new(2 * (hub.cables.len() as u32 - 1), 1))
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        let (cable, end) = Self::end(link);
        self.hub.borrow_mut().cables[cable].cookies[end] = cookie;
    }

    fn seen(&self, link: LinkId, claimed: &Identity) -> Seen {
        let hub = self.hub.borrow();
        let (cable, end) = Self::end(link);
        let found = |all: &[(usize, u64)]| all.iter().find(|it| it.0 == cable).map(|it| it.1);
        let is_stranger = hub.cables[cable].ends[1 - end] > 1;
        let nic = match found(&hub.seen) {
            Some(nic) => NicId(nic),
            None if is_stranger => claimed.nic,
            None => NicId(100 + hub.cables[cable].ends[1 - end] as u64),
        };
        Seen {
            source: found(&hub.sources).map_or(Source::TRUSTED, Source),
            user: None,
            nic: (!hub.unnamed || self.node != 1).then_some(nic),
            address: Address(nic.0.into()),
            oneself: hub.cables[cable].ends == [self.node; 2],
        }
    }

    fn has_address(&self, address: Address) -> bool {
        let own = 100 + self.node as u128;
        address.0 == own || self.node == 0 && address.0 == ALIAS_OF_A
    }

    fn has_interface(&self, nic: NicId) -> bool {
        let alias = if self.node == 0 { ALIAS_OF_A } else { 999 };
        let own = nic.0 == 100 + self.node as u64 || u128::from(nic.0) == alias;
        own || !self.hub.borrow().no_translator
    }

    fn has_room(&mut self, link: LinkId) -> bool {
        let (cable, end) = Self::end(link);
        let hub = self.hub.borrow();
        hub.tells_of_room && hub.cables[cable].lanes[1 - end].packets.len() < ROOM
    }

    fn close(&mut self, link: LinkId, _: Close) {
        let (cable, end) = Self::end(link);
        let cable = &mut self.hub.borrow_mut().cables[cable];
        cable.gone[end] = true;
        if !cable.gone[1 - end] {
            cable.down[1 - end] = Some(LinkDown::Closed);
        }
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

impl Port<Buffer> for QueuePort {
    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, Buffer>,
    ) -> Result<Sent, SendError> {
        let (cable, end) = Self::end(link);
        let hub = &mut *self.hub.borrow_mut();
        let cable = &mut hub.cables[cable];
        if cable.gone[end] || cable.gone[1 - end] {
            return Err(SendError::Down);
        }
        let lane = &mut cable.lanes[1 - end];
        let held = hub.hold_data && header[0] == 6;
        if lane.packets.len() >= ROOM || lane.open.is_some() || held {
            lane.blocked = true;
            return Err(SendError::WouldBlock);
        }
        let len = body.len();
        let mut bytes = Vec::with_capacity(len);
        match body {
            Body::Bytes(data) => {
                bytes.extend_from_slice(data);
                hub.heard.push((*header, data.to_vec()));
            }
            Body::Memory { memory, offset, .. } if len > 32 * 1024 => {
                memory.visit(offset, len / 2, |piece| bytes.extend_from_slice(piece));
                lane.open = Some((*header, bytes, len));
                lane.blocked = true;
                return Ok(Sent::Part(len / 2));
            }
            Body::Memory {
                memory,
                offset,
                len,
            } => {
                memory.visit(offset, len, |piece| bytes.extend_from_slice(piece));
            }
        }
        lane.packets.push_back((*header, bytes));
        Ok(Sent::Whole)
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        let (cable, end) = Self::end(link);
        let lane = &mut self.hub.borrow_mut().cables[cable].lanes[1 - end];
        let (header, mut bytes, whole) = lane.open.take().expect("a packet is open");
        assert_eq!(bytes.len() + len, whole, "the rest is the rest");
        let taken = len.min(PART);
        memory.visit(offset, taken, |piece| bytes.extend_from_slice(piece));
        if taken < len {
            lane.open = Some((header, bytes, whole));
            lane.blocked = true;
            return Ok(Sent::Part(taken));
        }
        lane.packets.push_back((header, bytes));
        Ok(Sent::Whole)
    }

    fn detach(&mut self, link: LinkId, memory: &Buffer, offset: usize, len: usize) {
        let (cable, end) = Self::end(link);
        let lane = &mut self.hub.borrow_mut().cables[cable].lanes[1 - end];
        let (header, mut bytes, whole) = lane.open.take().expect("a packet is open");
        memory.visit(offset, len, |piece| bytes.extend_from_slice(piece));
        assert_eq!(bytes.len(), whole, "the rest is the rest");
        lane.packets.push_back((header, bytes));
    }

    fn poll<S: Sink<Buffer>>(&mut self, _: Instant, budget: usize, sink: &mut S) -> bool {
        let mut busy = false;
        let cables = self.hub.borrow().cables.len();
        let newest_first = self.hub.borrow().newest_first;
        let own = |(node, _): &mut (usize, RemoteUse)| *node == self.node;
        let moving = self.hub.borrow_mut().moving.take_if(own);
        if let Some((_, what)) = moving {
            sink.on_remote_activity(LinkId::new(0, 1), 0, what);
        }
        let over = self.hub.borrow_mut().over.take_if(|_| self.node == 1);
        if let Some((token, ok)) = over {
            sink.on_remote_read(LinkId::new(0, 1), 0, token, ok);
        }
        for n in 0..cables {
            let n = if newest_first { cables - 1 - n } else { n };
            if self.hub.borrow().held.contains(&n) {
                continue;
            }
            for end in 0..2 {
                let link = LinkId::new(2 * n as u32 + end as u32, 1);
                for _ in 0..budget {
                    let mut hub = self.hub.borrow_mut();
                    let held = hub.hold_data;
                    let cable = &mut hub.cables[n];
                    if cable.ends[end] != self.node || cable.gone[end] {
                        break;
                    }
                    let cookie = cable.cookies[end];
                    if cable.refused {
                        cable.gone[end] = true;
                        drop(hub);
                        sink.on_down(link, cookie, LinkDown::Refused);
                        busy = true;
                        break;
                    }
                    if end == 0 && !cable.up_told {
                        cable.up_told = true;
                        drop(hub);
                        sink.on_up(link, cookie);
                        busy = true;
                        continue;
                    }
                    let other = 1 - end;
                    if !held
                        && cable.lanes[other].blocked
                        && cable.lanes[other].packets.len() < ROOM / 2
                    {
                        cable.lanes[other].blocked = false;
                        drop(hub);
                        sink.on_writable(link, cookie);
                        continue;
                    }
                    let streams = hub.streams;
                    let stops = hub.stops_midway;
                    let ends = hub.cables[n].down[end].is_some();
                    let lane = &mut hub.cables[n].lanes[end];
                    if lane.begun && stops {
                        if !ends {
                            break;
                        }
                        lane.packets.clear();
                    }
                    let first = lane.packets.front();
                    if first.is_some_and(|(_, body)| streams && body.len() > 1000) {
                        let begun = lane.begun;
                        lane.begun = !begun;
                        let (header, body) = lane.packets[0].clone();
                        if begun {
                            lane.packets.pop_front();
                        }
                        drop(hub);
                        busy = true;
                        let half = body.len() / 2;
                        let (at, len) = if begun {
                            (half, body.len() - half)
                        } else {
                            (0, half)
                        };
                        let place = sink.place(link, cookie, &header, !begun);
                        if let Some(mut place) = place {
                            let done = place.memory.fill(place.offset + at, len, &body[..], at);
                            assert_eq!(done, len, "all of the body fits");
                            if begun {
                                sink.on_placed(link, cookie, &header);
                            }
                            continue;
                        }
                        let lane = &mut self.hub.borrow_mut().cables[n].lanes[end];
                        if !begun {
                            lane.packets.pop_front();
                            lane.begun = false;
                            if body.len() <= 32 * 1024 {
                                sink.on_packet(link, cookie, &header, &body[..]);
                            }
                        }
                        continue;
                    }
                    if let Some((header, body)) = lane.packets.pop_front() {
                        drop(hub);
                        busy = true;
                        match sink.place(link, cookie, &header, false) {
                            Some(mut place) if body.len() > 1000 => {
                                place.memory.fill(place.offset, body.len(), &body[..], 0);
                                sink.on_placed(link, cookie, &header);
                            }
                            _ => sink.on_packet(link, cookie, &header, &body[..]),
                        }
                        continue;
                    }
                    let cable = &mut hub.cables[n];
                    if let Some(reason) = cable.down[end].take() {
                        cable.gone[end] = true;
                        drop(hub);
                        sink.on_down(link, cookie, reason);
                        busy = true;
                    }
                    break;
                }
            }
        }
        busy
    }

    fn remote_memory(&mut self, _link: LinkId) -> Option<&mut dyn RemoteMemory<Buffer>> {
        Some(self)
    }
}

impl RemoteMemory<Buffer> for QueuePort {
    fn recall(&mut self, _: LinkId, token: u64) {
        let hub = self.hub.borrow();
        assert_eq!(hub.reading, Some(token));
        let held = hub.into.as_ref().is_some_and(|memory| memory.handles() > 1);
        assert!(held, "memory went while a port could write to it");
    }

    fn register(&mut self, _: LinkId, _: &Buffer, token: u64) -> Option<RemoteKey> {
        let (address, key) = (token, 0);
        let reads = self.hub.borrow().reads_remotely;
        reads.then_some(RemoteKey { address, key })
    }

    fn read(&mut self, _: LinkId, read: RemoteRead<'_, Buffer>) -> Result<(), SendError> {
        let mut hub = self.hub.borrow_mut();
        (hub.reading, hub.into) = (Some(read.token), Some(read.memory.share()));
        Ok(())
    }

    fn stop(&mut self, _: LinkId, token: u64) {
        self.hub.borrow_mut().stopped.push(token);
    }

    fn deregister(&mut self, _: LinkId, key: RemoteKey) {
        self.hub.borrow_mut().deregistered.push(key);
    }
}

pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
    pub(crate) freeze_b: bool,
    pub(crate) hold_data: bool,
    hub: Rc<RefCell<Hub>>,
    clock: VirtualClock,
    sessions: u64,
    secret_of_a: Option<Secret>,
}

/// The secret of these letters.
pub(crate) fn secret(letters: &str) -> Secret {
    Secret::new(Zeroizing::new(letters.as_bytes().to_vec()))
}

fn settings(keep_tombstones: usize) -> Config {
    Config {
        unexpected_bytes: UNEXPECTED_MAX,
        request_timeout: Some(TIMEOUT),
        waiting_timeout: Some(TIMEOUT),
        peer_timeout: None,
        keep_tombstones,
        connect_again: keep_tombstones > 0,
        ..Config::default()
    }
}

fn node(
    hub: &Rc<RefCell<Hub>>,
    clock: &VirtualClock,
    config: Config,
    number: usize,
    session: u64,
) -> Node {
    let identity = Identity {
        nic: NicId(100 + number as u64),
        endpoint: EndpointId(3),
        session: SessionId(session),
    };
    let port = QueuePort {
        hub: hub.clone(),
        node: number,
    };
    Endpoint::new(config, identity, KEY, port, clock.clone(), TestOwner::new())
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::keeping(0)
    }

    /// Both keep so many messages whose sender has gone, and connect again (unless 0).
    pub(crate) fn keeping(tombstones: usize) -> Self {
        Self::of(settings(tombstones), settings(tombstones))
    }

    fn of(a: Config, b: Config) -> Self {
        let hub = Rc::new(RefCell::new(Hub::default()));
        let clock = VirtualClock::default();
        Self {
            a: node(&hub, &clock, a, 0, 1),
            b: node(&hub, &clock, b, 1, 2),
            freeze_b: false,
            hold_data: false,
            hub,
            clock,
            sessions: 2,
            secret_of_a: None,
        }
    }

    /// Everything the network and the ports have, to compare.
    pub(crate) fn port_states(&self) -> String {
        format!("{:?}", self.hub.borrow())
    }

    /// Another port of a's, to the same network.
    pub(crate) fn another_port(&self) -> QueuePort {
        QueuePort {
            hub: self.hub.clone(),
            node: 0,
        }
    }

    /// The site's secret, as each of them has it; both with a key, and one packet at a time if need be.
    pub(crate) fn with_secrets(
        a: Option<&str>,
        b: Option<&str>,
        tombstones: usize,
        poll_budget: usize,
    ) -> Self {
        let config = |key, letters: Option<&str>| Config {
            key: Key([key; 16]),
            secret: letters.map(secret),
            poll_budget,
            ..settings(tombstones)
        };
        Self {
            secret_of_a: a.map(secret),
            ..Self::of(config(1, a), config(2, b))
        }
    }

    /// Where no endpoint of ours is, but a link leads.
    pub(crate) fn impostor(&self) -> Target {
        Target {
            nic: NicId(IMPOSTOR),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// A calls b: how that ends, and what it calls b then.
    pub(crate) fn call(&mut self) -> (Status, RemoteId) {
        let target = self.target(Side::B);
        self.a.connect(target, KEY, MatchBits(0), 1).unwrap();
        self.run();
        let done = self.a.next_completion().expect("it ends at once");
        (done.status, done.remote)
    }

    /// The same, and it goes well.
    pub(crate) fn connected(&mut self) -> RemoteId {
        let (status, b) = self.call();
        assert_eq!(status, Status::Success);
        b
    }

    /// A message gets from a to b.
    pub(crate) fn talk(&mut self, b: RemoteId) {
        let (bits, data) = (MatchBits(9), Buffer::from(vec![5; 100]));
        self.a.send(b, bits, data, 0, SendMode::Standard).unwrap();
        self.run();
        let got = self
            .b
            .recv(bits, MatchMask::EXACT, Buffer::from(vec![0; 100]), 0);
        assert!(matches!(got, Ok(Received::Complete(_))));
    }

    /// Ports ask where messages go when their headers have come.
    pub(crate) fn streaming(first_credits: u16) -> Self {
        let pair = Self::lending(first_credits);
        pair.hub.borrow_mut().streams = true;
        pair
    }

    /// Ports read memory of the other side's.
    pub(crate) fn reading_remotely() -> Self {
        let pair = Self::new();
        pair.read_remotely();
        pair
    }

    /// From now on they do.
    pub(crate) fn read_remotely(&self) {
        self.hub.borrow_mut().reads_remotely = true;
    }

    /// The same where a refusal ends the link.
    pub(crate) fn reading_over_connections() -> Self {
        let pair = Self::reading_remotely();
        pair.hub.borrow_mut().refusals_end_links = true;
        pair
    }

    /// Reads of b's that need not go on.
    pub(crate) fn stopped(&self) -> Vec<u64> {
        self.hub.borrow().stopped.clone()
    }

    /// Registrations that are closed, by the tokens that they were made with.
    pub(crate) fn closed(&self) -> Vec<u64> {
        let hub = self.hub.borrow();
        hub.deregistered.iter().map(|key| key.address).collect()
    }

    /// A read of b's ends.
    pub(crate) fn end_read(&mut self, token: u64, ok: bool) {
        self.hub.borrow_mut().over = Some((token, ok));
        self.run();
    }

    /// The token of the read that has begun last.
    pub(crate) fn reading(&self) -> Option<u64> {
        self.hub.borrow().reading
    }

    /// A port says to one side that bytes are moving.
    pub(crate) fn moves(&mut self, side: Side, what: RemoteUse) {
        let node = usize::from(side == Side::B);
        self.hub.borrow_mut().moving = Some((node, what));
        self.run();
    }

    /// From now on nothing comes behind the half of a body, or does again.
    pub(crate) fn stop_midway(&self, stop: bool) {
        self.hub.borrow_mut().stops_midway = stop;
    }

    /// From now on ports say whether there is room when they are asked.
    pub(crate) fn tell_of_room(&self) {
        self.hub.borrow_mut().tells_of_room = true;
    }

    /// Packets that the calling end has sent on a link.
    pub(crate) fn said(&mut self, cable: usize) -> Vec<(HeaderBytes, Vec<u8>)> {
        self.hub.borrow_mut().cables[cable].lanes[1]
            .packets
            .drain(..)
            .collect()
    }

    /// The answer to that.
    pub(crate) fn answer(&mut self, cable: usize, header: HeaderBytes, body: Vec<u8>) {
        self.hub.borrow_mut().cables[cable].lanes[0]
            .packets
            .push_back((header, body));
    }

    /// Sends that are not matched have no time-out.
    pub(crate) fn waiting_for_ever() -> Self {
        let config = Config {
            waiting_timeout: None,
            ..settings(0)
        };
        Self::of(config.clone(), config)
    }

    /// Messages of so many bytes are fetched into the inbox of b.
    pub(crate) fn with_inbox(fetched_max: u32) -> Self {
        let config = Config {
            fetched_max,
            ..settings(0)
        };
        Self::of(settings(0), config)
    }

    /// B lends so many credits first.
    pub(crate) fn lending(first_credits: u16) -> Self {
        let config = Config {
            first_credits,
            ..settings(0)
        };
        Self::of(settings(0), config)
    }

    /// A asks before it announces; b has so many credits in all, and lends so many first.
    pub(crate) fn asking(credits: usize, first_credits: u16) -> Self {
        let patient = Config {
            ask_before_announcing: true,
            ..settings(0)
        };
        let lender = Config {
            unexpected_bytes: credits * mx_proto::flow::CREDIT,
            first_credits,
            ..settings(0)
        };
        Self::of(patient, lender)
    }

    pub(crate) fn target(&self, side: Side) -> Target {
        let nic = NicId(if side == Side::A { 100 } else { 101 });
        Target {
            nic,
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// Another interface of b's host.
    pub(crate) fn alias_of_b(&self) -> Target {
        Target {
            nic: NicId(999),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    /// Another interface of a's host.
    pub(crate) fn alias_of_a(&self) -> Target {
        Target {
            nic: NicId(ALIAS_OF_A as u64),
            ..self.target(Side::A)
        }
    }

    pub(crate) fn nowhere(&self) -> Target {
        Target {
            nic: NicId(1),
            endpoint: EndpointId(3),
            route: Route::AUTO,
        }
    }

    pub(crate) fn shared(&self, len: usize) -> Buffer {
        vec![0xaa; len].into()
    }

    pub(crate) fn filled(&self, bytes: Vec<u8>) -> Buffer {
        bytes.into()
    }

    /// Lets both sides work until nothing happens any more.
    pub(crate) fn run(&mut self) {
        self.run_with(keep);
    }

    /// The same with b's answer to what no receive accepts.
    pub(crate) fn run_with(&mut self, answer: Answer) {
        self.b.owner_mut().answer = answer;
        self.hub.borrow_mut().hold_data = self.hold_data;
        let mut quiet = 0;
        for _ in 0..100_000 {
            let mut busy = self.a.progress();
            if !self.freeze_b {
                busy |= self.b.progress();
            }
            quiet = if busy { 0 } else { quiet + 1 };
            if quiet == 3 {
                return;
            }
        }
        panic!("the endpoints never come to rest");
    }

    /// B alone works once, and answers so.
    pub(crate) fn b_works(&mut self, answer: Answer) -> bool {
        self.b.owner_mut().answer = answer;
        let busy = self.b.progress();
        self.b.owner_mut().answer = keep;
        busy
    }

    /// Lets time pass in ten steps or more, none of which is taken for an absence.
    pub(crate) fn advance(&mut self, span: Duration) {
        let steps = (span.as_secs() as u32 * 2).max(10);
        for _ in 0..steps {
            self.clock.advance(span / steps);
            self.run();
        }
    }

    /// The number of links there have been.
    pub(crate) fn links(&self) -> usize {
        self.hub.borrow().cables.len()
    }

    /// From now on nothing arrives on these links, the oldest being 0, and on all others everything.
    pub(crate) fn hold(&mut self, links: &[usize]) {
        self.hub.borrow_mut().held = links.to_vec();
    }

    /// One side takes in what is next on one link, at most.
    pub(crate) fn step(&mut self, side: Side, link: usize) {
        let others: Vec<_> = (0..self.links()).filter(|other| *other != link).collect();
        self.hold(&others);
        match side {
            Side::A => self.a.progress(),
            Side::B => self.b.progress(),
        };
        self.hold(&[]);
    }

    /// The port looks at its newest link first.
    pub(crate) fn newest_first(&mut self) {
        self.hub.borrow_mut().newest_first = true;
    }

    /// Every link is lost.
    pub(crate) fn cut(&mut self) {
        for cable in &mut self.hub.borrow_mut().cables {
            cable.down = [Some(LinkDown::Reset); 2];
        }
    }

    /// A comes back as another session; b is not told.
    pub(crate) fn restart_a_silently(&mut self) {
        self.sessions += 1;
        for cable in &mut self.hub.borrow_mut().cables {
            for end in 0..2 {
                cable.gone[end] |= cable.ends[end] == 0;
            }
        }
        self.a = node(&self.hub, &self.clock, settings(0), 0, self.sessions);
    }

    /// A closes and is opened again at once, as another session.
    pub(crate) fn reopen_a(&mut self, tombstones: usize) {
        self.sessions += 1;
        self.a.close();
        let config = Config {
            key: Key([self.sessions as u8; 16]),
            secret: self.secret_of_a.clone(),
            ..settings(tombstones)
        };
        self.a = node(&self.hub, &self.clock, config, 0, self.sessions);
    }

    /// A link to b that no endpoint of ours stands behind.
    pub(crate) fn stranger(&mut self) -> usize {
        let mut hub = self.hub.borrow_mut();
        hub.cables.push(Cable {
            ends: [7, 1],
            cookies: [0; 2],
            lanes: Default::default(),
            up_told: true,
            refused: false,
            down: [None; 2],
            gone: [false; 2],
        });
        hub.cables.len() - 1
    }

    pub(crate) fn inject(&mut self, cable: usize, header: HeaderBytes, body: Vec<u8>) {
        self.hub.borrow_mut().cables[cable].lanes[1]
            .packets
            .push_back((header, body));
    }

    /// The packet that b would be given next.
    pub(crate) fn next_for_b(&self) -> Option<(HeaderBytes, Vec<u8>)> {
        self.hub.borrow().cables[0].lanes[1]
            .packets
            .front()
            .cloned()
    }

    /// From now on addresses that are called are those of the endpoints.
    pub(crate) fn translate_none(&mut self) {
        self.hub.borrow_mut().no_translator = true;
    }

    /// From now on the network cannot tell b who its peers are.
    pub(crate) fn unname(&mut self) {
        self.hub.borrow_mut().unnamed = true;
    }

    /// The interface, and address, that the other end of a cable has.
    pub(crate) fn seen_as(&mut self, cable: usize, nic: u64) {
        self.hub.borrow_mut().seen.push((cable, nic));
    }

    /// The body of the first packet of that kind that was sent.
    pub(crate) fn overheard(&self, kind: Kind) -> Vec<u8> {
        let hub = self.hub.borrow();
        let mut heard = hub.heard.iter();
        let found = heard.find(|(header, _)| header[0] == kind as u8);
        found.expect("it has been sent").1.clone()
    }

    /// The same of the last one.
    pub(crate) fn overheard_last(&self, kind: Kind) -> Vec<u8> {
        self.last_of(kind).1
    }

    /// The header of the last packet of that kind that was sent.
    pub(crate) fn overheard_header(&self, kind: Kind) -> Header {
        Header::parse(&self.last_of(kind).0).expect("a header")
    }

    fn last_of(&self, kind: Kind) -> (HeaderBytes, Vec<u8>) {
        let hub = self.hub.borrow();
        let mut heard = hub.heard.iter().rev();
        let found = heard.find(|(header, _)| header[0] == kind as u8);
        found.expect("it has been sent").clone()
    }

    /// As if b had sent it, on its own call.
    pub(crate) fn inject_to_a(&mut self, header: HeaderBytes, body: Vec<u8>) {
        self.inject(0, header, body);
    }

    /// Packets that b has sent on a link that it did not begin, and whether it has closed it.
    pub(crate) fn told(&mut self, cable: usize) -> (Vec<(HeaderBytes, Vec<u8>)>, bool) {
        let mut hub = self.hub.borrow_mut();
        let cable = &mut hub.cables[cable];
        (cable.lanes[0].packets.drain(..).collect(), cable.gone[1])
    }

    /// Whether the calling end has closed that link.
    pub(crate) fn left(&self, cable: usize) -> bool {
        self.hub.borrow().cables[cable].gone[0]
    }

    /// Gives a secret of its own to each side, as a host that opens an endpoint does.
    pub(crate) fn with_keys() -> Self {
        let config = |key| Config {
            key: Key([key; 16]),
            ..settings(0)
        };
        Self::of(config(1), config(2))
    }

    /// As if a had sent it.
    pub(crate) fn inject_from_a(&mut self, header: HeaderBytes, body: Vec<u8>) {
        self.inject(0, header, body);
    }
}
