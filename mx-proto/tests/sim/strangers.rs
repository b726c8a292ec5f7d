//! An endpoint whose packets come out wrong, among two that behave.
//!
//! ```text
//!   honest n0 -- numbered messages --> honest n1
//!        ^                                ^
//!        '---- evil n2: a real endpoint over a port that changes, repeats and drops packets
//! ```
//!
//! No endpoint falls over, the memory that strangers take stays below the limit, and the honest two
//! do not notice anything.

use mx_proto::owner::Queue;
use mx_proto::port::{
    BODY_LEN_AT, Body, Close, ConnectError, HEADER_LEN, HeaderBytes, Limits, Port, RemoteKey,
    RemoteRead, SendError, Sent, Sink,
};
use mx_proto::{
    Clock, Config, Down, Endpoint, EndpointId, Identity, Instant, LinkId, MatchBits, MatchMask,
    NicId, Received, RemoteId, Route, SendMode, SessionId, Status, Target,
};
use mx_sim::{Buffer, Cluster, Drive, Fabric, Profile, Rng, SimPort, VirtualClock, World, seeds};
use std::collections::BTreeMap;

const NIC: NicId = NicId(0x0304_0506_0708);
const KEY: u32 = 0x1357_9bdf;
const TAG: u64 = 0x77;
const UNEXPECTED: usize = 100_000;
const MESSAGES: u64 = 60;

/// Names so far apart that no single changed byte makes one of another.
fn name(node: usize) -> EndpointId {
    EndpointId(0x1111_1111 * (node as u32 + 1))
}

fn target(node: usize) -> Target {
    Target {
        nic: NIC,
        endpoint: name(node),
        route: Route::AUTO,
    }
}

/// A port that spoils what is sent over it.
struct Spoiler {
    port: SimPort<Buffer>,
    rng: Rng,
    spoil: f64,
}

impl Spoiler {
    fn spoil_header(&mut self, header: &mut HeaderBytes) {
        for _ in 0..self.rng.within(1..=3) {
            let at = self.rng.index(HEADER_LEN);
            // The length of the body belongs to the port below; its lies are that port's tests.
            if (BODY_LEN_AT..BODY_LEN_AT + 4).contains(&at) {
                continue;
            }
            let any = self.rng.bits() as u8;
            header[at] = self
                .rng
                .pick(&[any, any, 0, 1, 255, header[at] ^ 1, any % 12]);
        }
        // Half of them should get past the first check.
        if self.rng.chance(0.5) {
            header[1..4].copy_from_slice(&[0, b'M', b'X']);
        }
    }
}

impl Port<Buffer> for Spoiler {
    fn limits(&self, link: LinkId) -> Limits {
        self.port.limits(link)
    }

    fn connect(&mut self, target: Target, clock: &dyn Clock) -> Result<LinkId, ConnectError> {
        self.port.connect(target, clock)
    }

    fn bind(&mut self, link: LinkId, cookie: u64) {
        self.port.bind(link, cookie);
    }

    fn send(
        &mut self,
        link: LinkId,
        header: &HeaderBytes,
        body: Body<'_, Buffer>,
    ) -> Result<Sent, SendError> {
        if !self.rng.chance(self.spoil) {
            return self.port.send(link, header, body);
        }
        let mut header = *header;
        match (self.rng.below(4), body) {
            (0, _) => Ok(Sent::Whole),
            (1, Body::Bytes(bytes)) => {
                // More, less or other bytes of a control packet.
                let mut bytes = bytes.to_vec();
                let len = self.rng.within(0..=bytes.len() + 150);
                bytes.resize(len, 0xff);
                if len > 0 {
                    bytes[self.rng.index(len)] = self.rng.bits() as u8;
                }
                header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
                self.port.send(link, &header, Body::Bytes(&bytes))
            }
            (2, Body::Bytes(bytes)) => {
                let first = self.port.send(link, &header, Body::Bytes(bytes))?;
                let _ = self.port.send(link, &header, Body::Bytes(bytes));
                Ok(first)
            }
            (_, body) => {
                self.spoil_header(&mut header);
                self.port.send(link, &header, body)
            }
        }
    }

    fn resume(
        &mut self,
        link: LinkId,
        memory: &Buffer,
        offset: usize,
        len: usize,
    ) -> Result<Sent, SendError> {
        self.port.resume(link, memory, offset, len)
    }

    fn detach(&mut self, link: LinkId, memory: &Buffer, offset: usize, len: usize) {
        self.port.detach(link, memory, offset, len);
    }

    fn recall(&mut self, link: LinkId, token: u64) {
        self.port.recall(link, token);
    }

    fn poll<S: Sink<Buffer>>(&mut self, clock: &dyn Clock, budget: usize, sink: &mut S) -> bool {
        self.port.poll(clock, budget, sink)
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.port.close(link, how);
    }

    fn arm(&mut self) -> bool {
        Port::<Buffer>::arm(&mut self.port)
    }

    fn disarm(&mut self) {
        Port::<Buffer>::disarm(&mut self.port);
    }

    fn register(&mut self, link: LinkId, memory: &Buffer, token: u64) -> Option<RemoteKey> {
        self.port.register(link, memory, token)
    }

    fn deregister(&mut self, link: LinkId, key: RemoteKey) {
        Port::<Buffer>::deregister(&mut self.port, link, key);
    }

    fn read_remote(&mut self, link: LinkId, read: RemoteRead<'_, Buffer>) -> Result<(), SendError> {
        self.port.read_remote(link, read)
    }
}

struct Actor {
    id: usize,
    endpoint: Endpoint<Spoiler, VirtualClock, Queue<Buffer>>,
    clock: VirtualClock,
    rng: Rng,
    role: Role,
    next_turn: Instant,
    /// Sessions of the two that behave.
    honest: [SessionId; 2],
    peer: Option<RemoteId>,
    /// Memory of what is posted, by context.
    memory: Vec<Buffer>,
    received: u64,
    /// Honest messages, by the receive they came into.
    numbers: BTreeMap<u64, u64>,
    evils: Vec<RemoteId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sender,
    Receiver,
    Evil,
}

/// The bytes of honest message `number`.
fn message(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let len = [9, 300, 30_000, 70_000][(number % 4) as usize];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..len).map(|_| rng.bits() as u8));
    bytes
}

impl Actor {
    fn post_recv(&mut self) {
        let buffer = Buffer::new(vec![0; 70_000]);
        let context = self.memory.len() as u64;
        self.memory.push(buffer.share());
        let posted = self
            .endpoint
            .recv(MatchBits(TAG), MatchMask::EXACT, buffer, context);
        if let Ok(Received::Complete(outcome)) = posted {
            self.on_received(outcome.at_once(context));
        }
    }

    fn on_received(&mut self, completion: mx_proto::Completion) {
        let buffer = self.memory[completion.context as usize].clone();
        buffer.give_back();
        let from = self.endpoint.remote_identity(completion.remote);
        let honest = from.is_some_and(|from| from.session == self.honest[0]);
        // A message of the hostile one with this tag is as good as any other of its messages.
        if honest && completion.status == Status::Success {
            let bytes = buffer.bytes();
            let got = &bytes[..completion.transferred as usize];
            let number = u64::from_le_bytes(got[..8].try_into().expect("eight bytes"));
            assert!(got == message(number), "honest message {number} is wrong");
            // Receives match in the order posted, whatever order they complete in.
            self.numbers.insert(completion.context, number);
            assert!(
                self.numbers.values().is_sorted(),
                "out of order: {:?}",
                self.numbers
            );
            self.received += 1;
        }
        if self.received < MESSAGES {
            self.post_recv();
        }
    }

    fn take_turn(&mut self) {
        match self.role {
            Role::Receiver => {
                if self.memory.is_empty() {
                    (0..4).for_each(|_| self.post_recv());
                }
            }
            Role::Sender => match self.peer {
                None if self.memory.is_empty() => {
                    self.memory.push(Buffer::new(Vec::new()));
                    self.endpoint
                        .connect(target(1), KEY, MatchBits(0), 0)
                        .expect("a known name");
                }
                Some(peer) if (self.memory.len() as u64) <= MESSAGES => {
                    let number = self.memory.len() as u64 - 1;
                    let buffer = Buffer::new(message(number));
                    self.memory.push(buffer.share());
                    let mode = SendMode::Standard;
                    let sent = self
                        .endpoint
                        .send(peer, MatchBits(TAG), buffer, number + 1, mode);
                    assert!(sent.is_ok(), "the honest two have been parted");
                }
                _ => {}
            },
            Role::Evil => self.do_evil(),
        }
    }

    fn do_evil(&mut self) {
        let len = self.rng.pick(&[0, 10, 5_000, 60_000]);
        let bits = MatchBits(self.rng.pick(&[TAG, 1, 2, u64::MAX]));
        match self.rng.below(6) {
            0 => {
                let key = if self.rng.chance(0.9) { KEY } else { 1 };
                let to = target(self.rng.index(2));
                let _ = self.endpoint.connect(to, key, bits, 0);
            }
            1 => {
                let memory = Buffer::new(vec![0; len]);
                let _ = self.endpoint.recv(bits, MatchMask::EXACT, memory, 1);
            }
            2 if self.rng.chance(0.1) => {
                if let Some(remote) = self.evils.pop() {
                    self.endpoint.disconnect(remote);
                }
            }
            _ => {
                if let Some(remote) = self.evils.last() {
                    let memory = Buffer::new(vec![0xee; len]);
                    let _ = self
                        .endpoint
                        .send(*remote, bits, memory, 2, SendMode::Standard);
                }
            }
        }
    }

    fn is_done(&self) -> bool {
        self.role != Role::Receiver || self.received == MESSAGES
    }
}

impl Drive for Actor {
    fn progress(&mut self) -> bool {
        let mut busy = self.endpoint.progress();
        while let Some(completion) = self.endpoint.owner_mut().next_completion() {
            busy = true;
            match (self.role, completion.kind) {
                (Role::Sender, mx_proto::Kind::Connect) => {
                    assert_eq!(completion.status, Status::Success);
                    self.peer = Some(completion.remote);
                }
                (Role::Sender, _) => assert_eq!(completion.status, Status::Success),
                (Role::Receiver, _) => self.on_received(completion),
                (Role::Evil, mx_proto::Kind::Connect) => self.evils.push(completion.remote),
                (Role::Evil, _) => {}
            }
        }
        while let Some(Down {
            identity, reason, ..
        }) = self.endpoint.owner_mut().next_down()
        {
            busy = true;
            let honest = self.honest.contains(&identity.session);
            let parted = honest && self.role != Role::Evil;
            assert!(
                !parted,
                "n{}: honest {identity:?} is down: {reason}",
                self.id
            );
        }
        assert!(self.endpoint.unexpected_bytes() <= UNEXPECTED);
        if self.next_turn <= self.clock.now() {
            busy = true;
            let pause = self.rng.span(std::time::Duration::from_micros(300));
            self.next_turn = self
                .clock
                .now()
                .after(pause)
                .after(std::time::Duration::from_nanos(1));
            self.take_turn();
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.endpoint
            .deadline()
            .into_iter()
            .chain([self.next_turn])
            .min()
    }
}

#[test]
fn two_that_behave_do_not_notice_one_whose_packets_are_wrong() {
    let (mut malformed, mut stale) = (0, 0);
    seeds::each(150, |seed| {
        let world = World::new(seed);
        seeds::watch(&world);
        let mut rng = Rng::new(seed);
        let fabric = Fabric::new(&world, Some(Buffer::share));
        let profile = Profile {
            remote_read: rng.chance(0.3),
            ..Profile::random(&mut rng)
        };
        world.note(0, format!("{profile:?}"));
        let honest = [SessionId(rng.bits()), SessionId(rng.bits())];
        let mut cluster = Cluster::new(&world);
        for (id, role) in [Role::Sender, Role::Receiver, Role::Evil]
            .into_iter()
            .enumerate()
        {
            let port = SimPort::open(&fabric, id, NIC, name(id), profile).expect("a free name");
            let spoil = if role == Role::Evil { 0.3 } else { 0.0 };
            let port = Spoiler {
                port,
                rng: rng.fork(),
                spoil,
            };
            let other = SessionId(rng.bits());
            let session = honest.get(id).copied().unwrap_or(other);
            let identity = Identity {
                nic: NIC,
                endpoint: name(id),
                session,
            };
            let config = Config {
                unexpected_bytes: UNEXPECTED,
                ..Config::default()
            };
            cluster.add(Actor {
                id,
                endpoint: Endpoint::new(
                    config,
                    identity,
                    KEY,
                    port,
                    world.clock(),
                    Queue::default(),
                ),
                clock: world.clock(),
                rng: rng.fork(),
                role,
                next_turn: world.now(),
                honest,
                peer: None,
                memory: Vec::new(),
                received: 0,
                numbers: BTreeMap::new(),
                evils: Vec::new(),
            });
        }
        let done = cluster.run_while(2_000_000, |cluster| {
            (0..3).any(|id| !cluster.node(id).expect("it lives").is_done())
        });
        assert!(done, "the honest two get nowhere");
        let stats = *cluster.node(1).expect("it lives").endpoint.stats();
        malformed += stats.malformed;
        stale += stats.stale;
    });
    println!("{malformed} malformed and {stale} stale packets");
    assert!(malformed > 0 && stale > 0, "nothing wrong ever arrived");
}
