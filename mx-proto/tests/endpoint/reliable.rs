//! Two ports made of datagrams, on a network on which a test can see and drop every datagram.
//!
//! ```text
//!   Reliable, node 0 --- DatagramNet: in order, without latency --- Reliable, node 1
//!                            `- Seen: all datagrams sent, and those of them that are lost
//! ```
//!
//! The simulator (`tests/sim/ports`) tries faulty networks at length.

mod links;
mod rounds;
mod sending;

use mx_proto::memory::Source;
use mx_proto::port::{
    Body, Close, Destination, HeaderBytes, LinkControl, LinkDown, Place, Port, SendError, Sent,
};
use mx_proto::reliability::{
    Channel, DatagramError, GsoBatch, Reliable, ReliableConfig, ReliableStats,
};
use mx_proto::{EndpointId, Instant, LinkId, NicId, Route, Target};
use mx_sim::Polled;
use mx_sim::datagram::header::{KIND, PING};
use mx_sim::datagram::{Passage, Terms};
use mx_sim::link::Fate;
use mx_sim::{DatagramNet, Ear, Faults, Hearing, SimAddress, SimDatagrams, World, header_of};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

const NIC: NicId = NicId(1);

fn micros(span: u64) -> Duration {
    Duration::from_micros(span)
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

fn target(endpoint: u32) -> Target {
    Target {
        nic: NIC,
        endpoint: EndpointId(endpoint),
        route: Route::AUTO,
    }
}

/// Returns the command channel of an endpoint; only those of 0 and 1 exist.
fn command(endpoint: u32) -> SimAddress {
    SimAddress::command(NIC, EndpointId(endpoint))
}

#[derive(Default)]
struct Seen {
    /// Every datagram sent: the sending node, the channel, the bytes.
    log: Vec<(usize, Channel, Vec<u8>)>,
    /// Indices in the log of the datagrams that do not arrive.
    lose: Vec<usize>,
    /// Number of datagrams whose source address does not matter.
    express: usize,
    /// Size beyond which the service rejects datagrams.
    refuse_above: Option<usize>,
    /// Number of such rejections.
    refused: usize,
}

impl Seen {
    fn pass(&mut self, to: SimAddress, batch: GsoBatch<'_>) -> Passage {
        if to.channel() == Channel::Command && to.number() > 1 {
            return Passage::Failed(DatagramError::Unreachable);
        }
        if let Some(most) = self.refuse_above.filter(|most| batch.segment > *most) {
            self.refused += 1;
            return Passage::Failed(DatagramError::TooLarge(most));
        }
        self.express += usize::from(batch.express);
        Passage::Sent
    }

    fn decide(&mut self, from: usize, channel: Channel, bytes: &[u8]) -> Fate {
        self.log.push((from, channel, bytes.to_vec()));
        if self.lose.contains(&(self.log.len() - 1)) {
            Fate::Drop
        } else {
            Fate::Pass
        }
    }
}

/// A user of one port, which keeps what arrives. Packets with a body of more than 32 KiB are
/// placed.
#[derive(Default)]
struct User {
    up: Vec<LinkId>,
    down: Vec<LinkDown>,
    /// Number of calls of `on_writable`.
    writable: usize,
    from: Option<LinkId>,
    packets: Vec<(u8, Vec<u8>)>,
    /// Memory of placed bodies, by mark.
    rooms: HashMap<u8, Vec<u8>>,
}

impl Ear for User {
    fn on_up(&mut self, link: LinkId) {
        self.up.push(link);
    }

    fn on_down(&mut self, _: LinkId, reason: LinkDown) {
        self.down.push(reason);
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B) {
        self.from = Some(link);
        self.packets.push((header[0], body.to_vec()));
    }

    fn place(&mut self, _: LinkId, header: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
        let len = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        if len <= 32 << 10 {
            return None;
        }
        let memory = self.rooms.entry(header[0]).or_insert_with(|| vec![0; len]);
        Some(Place {
            memory: Destination::Memory(memory),
            offset: 0,
        })
    }

    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes) {
        self.from = Some(link);
        let body = self.rooms.remove(&header[0]).expect("a place");
        self.packets.push((header[0], body));
    }

    fn on_writable(&mut self, _: LinkId) {
        self.writable += 1;
    }
}

struct Pair {
    world: World,
    net: DatagramNet,
    seen: Rc<RefCell<Seen>>,
    ports: [Reliable<SimDatagrams>; 2],
    users: [User; 2],
    /// Whether a link that brings a packet is bound at once.
    binds: bool,
    /// The last link that was bound; binding it again would wake it.
    bound: Option<LinkId>,
}

impl Pair {
    fn new(config: ReliableConfig) -> Self {
        Self::with_mtu(9000, config)
    }

    fn with_mtu(mtu: usize, config: ReliableConfig) -> Self {
        let world = World::new(1);
        world.clock().advance(Duration::from_secs(1));
        let terms = Terms {
            faults: Faults {
                latency: Duration::ZERO,
                ..Faults::default()
            },
            mtu,
            datagram_max: 9000,
            coalesce: 0.0,
            answers_refused: false,
            ..Terms::default()
        };
        let net = DatagramNet::new(&world, terms);
        let seen = Rc::new(RefCell::new(Seen::default()));
        let gate = Rc::clone(&seen);
        net.set_gate(Box::new(move |_, to, batch| {
            gate.borrow_mut().pass(to, batch)
        }));
        let port = |own: usize| {
            let script = Rc::clone(&seen);
            let script = move |channel: Channel, bytes: &[u8]| {
                script.borrow_mut().decide(own, channel, bytes)
            };
            net.set_script(own, 1 - own, Some(Box::new(script)));
            let name = EndpointId(own as u32);
            let datagrams = SimDatagrams::open(&net, own, NIC, name).expect("a free name");
            Reliable::new(datagrams, config, [own as u8 + 1; 16])
        };
        Self {
            ports: [port(0), port(1)],
            users: Default::default(),
            world,
            net,
            seen,
            binds: true,
            bound: None,
        }
    }

    /// Returns two ports with a link that has brought a packet and is not bound at the called end.
    fn strange(config: ReliableConfig) -> (Self, LinkId) {
        let mut pair = Self::new(config);
        pair.binds = false;
        let link = pair.call(1);
        pair.introduce(link);
        (pair, link)
    }

    /// Returns two ports with an established link.
    fn connected(config: ReliableConfig) -> (Self, LinkId) {
        let mut pair = Self::new(config);
        let link = pair.call(1);
        pair.introduce(link);
        assert_eq!(pair.users[0].up, [link]);
        (pair, link)
    }

    fn introduce(&mut self, link: LinkId) {
        self.run(millis(50));
        self.send(0, link, 0xff, b"my introduction").unwrap();
        self.run(millis(50));
        assert_eq!(self.users[1].packets.len(), 1);
        self.users[1].packets.clear();
    }

    fn call(&mut self, endpoint: u32) -> LinkId {
        let now = self.now();
        self.ports[0].connect(target(endpoint), now).unwrap()
    }

    fn now(&self) -> Instant {
        self.world.now()
    }

    fn poll(&mut self, end: usize) {
        self.poll_some(end, 1000);
    }

    fn poll_some(&mut self, end: usize, budget: usize) {
        let (now, user) = (self.now(), &mut self.users[end]);
        self.ports[end].poll(now, budget, &mut Hearing(user));
        if self.binds {
            self.accept(end);
        }
    }

    fn accept(&mut self, end: usize) {
        let new = self.users[end]
            .from
            .filter(|link| self.bound != Some(*link));
        if let Some(link) = new {
            self.ports[end].accept(link);
            self.bound = Some(link);
        }
    }

    /// Polls both ends every 20 us.
    fn run(&mut self, span: Duration) {
        let end = self.now().after(span);
        while self.now() < end {
            self.poll(0);
            self.poll(1);
            self.pass(micros(20));
        }
    }

    /// Polls the first end only, every 100 us.
    fn run_alone(&mut self, span: Duration) {
        let end = self.now().after(span);
        while self.now() < end {
            self.poll(0);
            self.pass(micros(100));
        }
    }

    fn pass(&self, span: Duration) {
        self.world.clock().advance(span);
    }

    fn send(&mut self, end: usize, link: LinkId, mark: u8, body: &[u8]) -> Result<(), SendError> {
        let header = header_of(mark, body.len());
        let body: Body<'_, Vec<u8>> = Body::Bytes(body);
        self.ports[end].send(link, &header, body).map(|_| ())
    }

    /// Sends a message from `memory` at the first end.
    fn bring(&mut self, link: LinkId, mark: u8, memory: &Vec<u8>) -> Result<Sent, SendError> {
        let len = memory.len();
        let body = Body::Memory {
            memory,
            offset: 0,
            len,
        };
        self.ports[0].send(link, &header_of(mark, len), body)
    }

    fn sent_since(&self, from: usize) -> Vec<(usize, Channel, u8)> {
        let seen = self.seen.borrow();
        let kinds = seen.log[from..].iter();
        kinds
            .map(|(end, channel, bytes)| (*end, *channel, bytes[KIND.at]))
            .collect()
    }

    fn logged(&self) -> usize {
        self.seen.borrow().log.len()
    }

    /// Returns the last datagram that a port has sent.
    fn last_of(&self, end: usize) -> Vec<u8> {
        let seen = self.seen.borrow();
        let last = seen.log.iter().rfind(|(from, _, _)| *from == end);
        last.expect("it has sent something").2.clone()
    }

    /// Loses the next `count` datagrams.
    fn lose_next(&self, count: usize) {
        let next = self.logged();
        self.seen.borrow_mut().lose = (next..next + count).collect();
    }

    /// Has polls leave out the data channel from now on.
    fn leave_out_data(&self) {
        self.net.change(|terms| terms.glances = u32::MAX - 1);
    }

    fn close(&mut self, end: usize, link: LinkId, how: Close) {
        self.ports[end].close(link, how);
    }

    /// Measures the time after which a lost packet is asked for: the RTO.
    fn time_until_asked(&mut self, link: LinkId) -> Duration {
        self.lose_next(10_000);
        self.send(0, link, 0, b"lost").unwrap();
        let (began, before) = (self.now(), self.logged());
        while !self
            .sent_since(before)
            .iter()
            .any(|(_, _, kind)| *kind == PING)
        {
            self.poll(0);
            self.pass(micros(20));
        }
        self.now().since(began)
    }

    fn sessions(&self) -> usize {
        self.ports.iter().map(Reliable::sessions).sum()
    }

    fn stats(&self, end: usize) -> ReliableStats {
        *self.ports[end].stats()
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
