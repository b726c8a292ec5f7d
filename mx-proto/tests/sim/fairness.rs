//! One greedy remote among a hundred does not more than double the others' delay.
//!
//! ```text
//!   99 polite clients: a request of 8 bytes, its answer, the next request ...
//!    1 greedy one:     one of `Greed`                        server: a microsecond for each packet
//! ```
//!
//! The simulated port hands packets over in the order in which they arrive from all clients, so
//! nothing but the endpoint's windows keeps the greedy one's from going before the others'.

use mx_proto::ops::{Chunks, Ops};
use mx_proto::{
    Arrival, Config, Down, Endpoint, EndpointId, Identity, Instant, MatchBits, MatchMask, NicId,
    Outcome, Owner, Posted, Received, RemoteId, RequestId, Route, SendMode, SessionId, Source,
    Target, Verdict,
};
use mx_sim::Queue;
use mx_sim::world::World;
use mx_sim::{Buffer, Cluster, Drive, Fabric, Profile, SimPort, VirtualClock, seeds};
use std::time::Duration;

const NIC: NicId = NicId(0x77);
const KEY: u32 = 7;
const CLIENTS: u32 = 100;
const REQUEST: MatchBits = MatchBits(1);
const ANSWER: MatchBits = MatchBits(2);
/// The server drops these messages.
const FLOOD: MatchBits = MatchBits(3);
const LARGE: usize = 1 << 20;

/// The difference of the one client from the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Greed {
    /// Nothing.
    None,
    /// Sends messages of this size, many at a time.
    Sends(usize),
    /// Has the server send it large messages, many at a time.
    Gets,
}

type Node = Endpoint<SimPort<Buffer>, VirtualClock, TestOwner>;

/// Messages a greedy client has under way.
const MANY: usize = 400;

struct Client {
    node: Node,
    world: World,
    greed: Greed,
    server: Option<RemoteId>,
    asked: Option<Instant>,
    delays: Vec<Duration>,
    under_way: usize,
}

impl Client {
    fn ask(&mut self, server: RemoteId) {
        self.asked = Some(self.world.now());
        let room = Buffer::new(vec![0; 8]);
        let posted = self.node.recv(ANSWER, MatchMask::EXACT, room, 1);
        assert!(matches!(posted, Ok(Received::Pending(_))));
        self.send(server, REQUEST, 8);
    }

    fn send(&mut self, server: RemoteId, bits: MatchBits, len: usize) {
        let data = Buffer::new(vec![1; len]);
        let posted = self.node.send(server, bits, data, 2, SendMode::Standard);
        self.under_way += usize::from(matches!(posted, Ok(Posted::Pending(_))));
    }

    fn be_greedy(&mut self, server: RemoteId) {
        match self.greed {
            Greed::None => {}
            Greed::Sends(len) => {
                while self.under_way < MANY {
                    self.send(server, FLOOD, len);
                }
            }
            Greed::Gets => {
                while self.node.posted_receives() < MANY {
                    let room = Buffer::new(vec![0; LARGE]);
                    let posted = self.node.recv(FLOOD, MatchMask::EXACT, room, 3);
                    if let Ok(Received::Complete(_)) = posted {
                        unreachable!("large messages come in parts");
                    }
                }
            }
        }
    }
}

impl Drive for Client {
    fn progress(&mut self) -> bool {
        let busy = self.node.progress();
        while let Some(done) = self.node.owner_mut().queue.next_completion() {
            match done.context {
                0 => self.server = Some(done.remote),
                1 => {
                    let asked = self.asked.take().expect("it has asked");
                    self.delays.push(self.world.now().since(asked));
                }
                2 => self.under_way -= 1,
                _ => {}
            }
        }
        if let Some(server) = self.server {
            if self.greed != Greed::None {
                self.be_greedy(server);
            } else if self.asked.is_none() {
                self.ask(server);
            }
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.node.deadline()
    }
}

/// Keeps the clients that wait for an answer.
#[derive(Default)]
struct TestOwner {
    queue: Queue<Buffer>,
    waiting: Vec<RemoteId>,
}

impl Owner for TestOwner {
    type Memory = Buffer;
    type Word = u64;
    type Places = Chunks<Buffer, u64>;

    fn completed(&mut self, ops: &mut Ops<Self>, op: RequestId, how: Outcome) {
        self.queue.keep(ops, op, how);
    }

    fn down(&mut self, _: &mut Ops<Self>, down: Down) {
        self.queue.keep_down(down);
    }

    fn has_events(&self) -> bool {
        self.queue.has_events()
    }

    fn arrived<B: Source + ?Sized>(&mut self, it: &Arrival, _: Option<&B>) -> Verdict {
        if it.bits == REQUEST {
            self.waiting.push(it.source);
            return Verdict::Finished;
        }
        Verdict::Inbox { turn: 1 }
    }

    fn memory(&mut self, len: usize) -> Option<Buffer> {
        Some(Buffer::new(vec![0; len]))
    }
}

struct Server {
    node: Node,
    world: World,
    /// It is busy with packets until then.
    until: Instant,
    /// It was polled meanwhile.
    called: bool,
    /// The client that gets large messages, and those under way.
    gets: Option<EndpointId>,
    under_way: usize,
}

impl Server {
    fn packets(&self) -> u64 {
        let stats = self.node.stats();
        stats.packets_in + stats.packets_out
    }
}

impl Drive for Server {
    fn progress(&mut self) -> bool {
        let now = self.world.now();
        if now < self.until {
            self.called = true;
            return false;
        }
        let before = self.packets();
        self.node.progress();
        while self.node.next_message().is_some() {}
        for source in std::mem::take(&mut self.node.owner_mut().waiting) {
            let answer = Buffer::new(vec![3; 8]);
            let sent = self
                .node
                .send(source, ANSWER, answer, 0, SendMode::Standard);
            sent.expect("no client goes");
        }
        while let Some(done) = self.node.owner_mut().queue.next_completion() {
            self.under_way -= usize::from(done.context == 5);
        }
        if let Some(greedy) = self.gets.and_then(|name| self.node.remote_of(NIC, name)) {
            while self.under_way < MANY {
                let data = Buffer::new(vec![4; LARGE]);
                let sent = self.node.send(greedy, FLOOD, data, 5, SendMode::Standard);
                sent.expect("it stays");
                self.under_way += 1;
            }
        }
        let cost = self.packets() - before;
        self.until = now.after(Duration::from_micros(cost));
        self.called = cost > 0;
        false
    }

    fn deadline(&self) -> Option<Instant> {
        self.called.then_some(self.until)
    }
}

enum Program {
    Server(Box<Server>),
    Client(Box<Client>),
}

impl Drive for Program {
    fn progress(&mut self) -> bool {
        match self {
            Self::Server(server) => server.progress(),
            Self::Client(client) => client.progress(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Server(server) => server.deadline(),
            Self::Client(client) => client.deadline(),
        }
    }
}

/// The mean and the longest delay of the polite clients' requests.
fn delays(greed: Greed) -> (Duration, Duration) {
    let world = World::new(1);
    seeds::watch(&world);
    let fabric = Fabric::new(&world, None);
    let mut cluster = Cluster::new(&world);
    // A packet with data takes the server as long as a small one: eight kilobytes in a microsecond.
    let profile = Profile {
        data_max: 8 << 10,
        ..Profile::default()
    };
    for number in 0..=CLIENTS {
        let name = EndpointId(number);
        let port = SimPort::open(&fabric, number as usize, NIC, name, profile);
        let identity = Identity {
            nic: NIC,
            endpoint: name,
            session: SessionId(u64::from(number) + 1),
        };
        let port = port.expect("a free name");
        let mut node = Endpoint::new(
            Config::default(),
            identity,
            KEY,
            port,
            world.clock(),
            TestOwner::default(),
        );
        let program = if number == 0 {
            Program::Server(Box::new(Server {
                node,
                world: world.clone(),
                until: Instant::default(),
                called: false,
                gets: (greed == Greed::Gets).then_some(EndpointId(1)),
                under_way: 0,
            }))
        } else {
            let target = Target {
                nic: NIC,
                endpoint: EndpointId(0),
                route: Route::AUTO,
            };
            node.connect(target, KEY, MatchBits(0), 0)
                .expect("it can be started");
            Program::Client(Box::new(Client {
                node,
                world: world.clone(),
                greed: if number == 1 { greed } else { Greed::None },
                server: None,
                asked: None,
                delays: Vec::new(),
                under_way: 0,
            }))
        };
        cluster.add(program);
    }
    let mut run = |span: Duration| {
        let until = world.now().after(span);
        assert!(cluster.run_until(until, 50_000_000), "too busy");
    };
    run(Duration::from_millis(50));
    let mut all = Vec::new();
    for number in 2..=CLIENTS as usize {
        if let Some(Program::Client(client)) = cluster.node(number) {
            // The first half is how it came to rest.
            all.extend_from_slice(&client.delays[client.delays.len() / 2..]);
        }
    }
    assert!(all.len() > 1_000, "{}", all.len());
    let mean = all.iter().sum::<Duration>() / all.len() as u32;
    (mean, all.into_iter().max().unwrap_or_default())
}

#[test]
fn one_greedy_remote_among_a_hundred_does_not_double_the_delay_of_the_others() {
    let (mean, longest) = delays(Greed::None);
    println!("all polite: {mean:?} in the mean, {longest:?} at most");
    let kinds = [
        Greed::Sends(0),
        Greed::Sends(8),
        Greed::Sends(4_000),
        Greed::Sends(32 << 10),
        Greed::Sends(LARGE),
        Greed::Gets,
    ];
    let all = kinds.map(|greed| (greed, delays(greed)));
    for (greed, (with, at_most)) in all {
        println!("{greed:?}: {with:?} in the mean, {at_most:?} at most");
    }
    for (greed, (with, _)) in all {
        assert!(with <= 2 * mean, "{greed:?}: {with:?} instead of {mean:?}");
    }
}
