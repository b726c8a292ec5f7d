//! Ports alone, without an endpoint: numbered packets go both ways and every one must arrive once,
//! whole and in order, or the link must say that it is down.
//!
//! ```text
//!   Peer --- numbered packets of random sizes ---> Peer      over SimPort and over
//!        <----------------------------------------           Reliable on faulty links
//! ```

use mx_proto::memory::{Memory, Source};
use mx_proto::port::{
    BODY_LEN_AT, Body, HeaderBytes, LinkDown, Place, Port, SendError, Sent, Sink,
};
use mx_proto::reliability::{Reliable, ReliableConfig, ReliableStats};
use mx_proto::{EndpointId, Instant, LinkId, NicId, Route, Target};
use mx_sim::{
    Buffer, Cluster, DatagramNet, Drive, Fabric, Faults, NodeId, Profile, Rng, SimDatagrams,
    SimPort, VirtualClock, World, seeds,
};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

const NIC: NicId = NicId(0x5151);

fn target(node: NodeId) -> Target {
    Target {
        nic: NIC,
        endpoint: EndpointId(node as u32),
        route: Route::AUTO,
    }
}

/// The body of packet `number` of a sender.
fn body(sender: usize, number: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(number << 8 | sender as u64);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn header(number: u64, len: usize) -> HeaderBytes {
    let mut header = [0; 32];
    header[BODY_LEN_AT..BODY_LEN_AT + 4].copy_from_slice(&(len as u32).to_le_bytes());
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header
}

fn number_of(header: &HeaderBytes) -> u64 {
    u64::from_le_bytes(header[8..16].try_into().expect("eight bytes"))
}

fn len_of(header: &HeaderBytes) -> usize {
    let at = BODY_LEN_AT;
    u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize
}

/// What a peer has been told.
#[derive(Default)]
struct Heard {
    peer: usize,
    packet_max: usize,
    /// Where packets go that are placed.
    placed: Option<(u64, Buffer)>,
    /// Numbers received, in order.
    received: Vec<u64>,
    link: Option<LinkId>,
    up: bool,
    down: Option<LinkDown>,
    writable: bool,
    released: Vec<u64>,
}

impl Heard {
    fn accept(&mut self, link: LinkId, header: &HeaderBytes, bytes: &[u8]) {
        assert!(
            self.down.is_none(),
            "a packet came after the end of its link"
        );
        assert_eq!(*self.link.get_or_insert(link), link, "a second link");
        let number = number_of(header);
        assert_eq!(number, self.received.len() as u64, "packets out of order");
        assert_eq!(
            bytes,
            body(self.peer, number, len_of(header)),
            "packet {number} is damaged"
        );
        self.received.push(number);
    }
}

impl Sink<Buffer> for Heard {
    fn on_up(&mut self, _link: LinkId, _cookie: u64) {
        assert!(!std::mem::replace(&mut self.up, true), "up twice");
    }

    fn on_down(&mut self, _link: LinkId, _cookie: u64, reason: LinkDown) {
        assert!(self.down.is_none(), "down twice");
        self.down = Some(reason);
    }

    fn on_packet<B: Source + ?Sized>(
        &mut self,
        link: LinkId,
        _: u64,
        header: &HeaderBytes,
        body: &B,
    ) {
        assert_eq!(body.len(), len_of(header));
        assert!(body.len() <= self.packet_max);
        self.accept(link, header, &body.to_vec());
    }

    fn place(&mut self, _link: LinkId, _: u64, header: &HeaderBytes) -> Option<Place<'_, Buffer>> {
        let number = number_of(header);
        // Every third small packet is nobody's until it has arrived as a whole.
        if len_of(header) <= self.packet_max && number % 3 == 0 {
            return None;
        }
        if self.placed.as_ref().is_none_or(|(of, _)| *of != number) {
            let room = vec![0xee; len_of(header) + 7];
            self.placed = Some((number, Buffer::in_pieces(room, vec![5, 1000])));
        }
        self.placed
            .as_mut()
            .map(|(_, memory)| Place { memory, offset: 7 })
    }

    fn on_placed(&mut self, link: LinkId, _: u64, header: &HeaderBytes) {
        let (number, memory) = self.placed.take().expect("placed without having asked");
        assert_eq!(number, number_of(header));
        self.accept(link, header, &memory.bytes()[7..]);
    }

    fn on_writable(&mut self, _link: LinkId, _cookie: u64) {
        self.writable = true;
    }

    fn on_released(&mut self, _link: LinkId, _cookie: u64, token: u64) {
        self.released.push(token);
    }

    fn on_remote_read(&mut self, _: LinkId, _: u64, _: u64, _: bool) {
        panic!("nothing was read");
    }
}

/// Sends packets and checks what comes.
struct Peer<P> {
    node: NodeId,
    port: P,
    clock: VirtualClock,
    heard: Heard,
    link: Option<LinkId>,
    /// Sizes of packets still to go.
    to_send: VecDeque<usize>,
    sent: u64,
    /// Number, memory and bytes taken of a packet taken in part.
    partial: Option<(Buffer, usize)>,
    held: HashMap<u64, Buffer>,
    budget: usize,
}

impl<P: Port<Buffer>> Peer<P> {
    fn new(node: NodeId, peer: NodeId, port: P, clock: VirtualClock) -> Self {
        let packet_max = port.limits(LinkId::new(0, 0)).packet_max;
        let heard = Heard {
            peer,
            packet_max,
            writable: true,
            ..Heard::default()
        };
        Self {
            node,
            port,
            clock,
            heard,
            link: None,
            to_send: VecDeque::new(),
            sent: 0,
            partial: None,
            held: HashMap::new(),
            budget: 64,
        }
    }

    fn send_some(&mut self) -> bool {
        let link = self.link.or(self.heard.link);
        let Some(link) = link.filter(|_| self.heard.down.is_none()) else {
            return false;
        };
        let mut any = false;
        while self.heard.writable {
            let outcome = if let Some((memory, at)) = &self.partial {
                let left = memory.len() - at;
                self.port
                    .resume(link, memory, *at, left)
                    .map(|sent| (sent, memory.clone(), *at))
            } else if let Some(&len) = self.to_send.front() {
                let memory = Buffer::in_pieces(body(self.node, self.sent, len), vec![1, len / 2]);
                let all = Body::Memory {
                    memory: &memory,
                    offset: 0,
                    len,
                };
                let outcome = self.port.send(link, &header(self.sent, len), all);
                if outcome.is_ok() {
                    self.to_send.pop_front();
                    self.sent += 1;
                }
                outcome.map(|sent| (sent, memory.clone(), 0))
            } else {
                return any;
            };
            match outcome {
                Ok((Sent::Whole, memory, _)) => {
                    memory.give_back();
                    self.partial = None;
                }
                Ok((Sent::Held(token), memory, _)) => {
                    self.held.insert(token, memory);
                    self.partial = None;
                }
                Ok((Sent::Part(part), memory, at)) => {
                    assert!(at + part < memory.len(), "a part is less than all");
                    self.partial = Some((memory, at + part));
                    self.heard.writable = false;
                }
                Err(SendError::WouldBlock) => self.heard.writable = false,
                Err(SendError::Down) => return any,
            }
            any = true;
        }
        any
    }
}

impl<P: Port<Buffer>> Drive for Peer<P> {
    fn progress(&mut self) -> bool {
        let clock = self.clock.clone();
        let mut busy = self.port.poll(&clock, self.budget, &mut self.heard);
        for token in self.heard.released.drain(..) {
            self.held
                .remove(&token)
                .expect("released twice or never held")
                .give_back();
        }
        busy |= self.send_some();
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        self.port.deadline()
    }
}

/// Packets of random sizes, now and then an empty or a largest one.
fn sizes(rng: &mut Rng, count: usize, packet_max: usize, data_max: usize) -> VecDeque<usize> {
    let some = |rng: &mut Rng| match rng.below(10) {
        0 => 0,
        1 => packet_max,
        2 => data_max,
        3 => rng.within(0..=data_max),
        4..=6 => rng.within(0..=packet_max),
        _ => rng.within(1..=200),
    };
    (0..count).map(|_| some(rng)).collect()
}

/// Two peers exchange packets until everything has arrived.
fn exchange<P: Port<Buffer>>(
    world: &World,
    rng: &mut Rng,
    count: usize,
    ports: (P, P),
    give_up: Duration,
) -> Cluster<Peer<P>> {
    let mut cluster = Cluster::new(world);
    let mut a = Peer::new(0, 1, ports.0, world.clock());
    let mut b = Peer::new(1, 0, ports.1, world.clock());
    let limits = a.port.limits(LinkId::new(0, 0));
    a.to_send = sizes(rng, count, limits.packet_max, limits.data_max);
    let limits = b.port.limits(LinkId::new(0, 0));
    b.to_send = sizes(rng, count, limits.packet_max, limits.data_max);
    let clock = world.clock();
    a.link = Some(
        a.port
            .connect(target(1), &clock)
            .expect("the name is known"),
    );
    (a.budget, b.budget) = (rng.pick(&[1, 7, 64]), rng.pick(&[1, 7, 64]));
    cluster.add(a);
    cluster.add(b);
    let until = world.now().after(give_up);
    let done = cluster.run_while(20_000_000, |cluster| {
        assert!(cluster.world().now() < until, "not done in {give_up:?}");
        let mut all = true;
        for id in 0..2 {
            let peer = cluster.node(id).expect("nobody dies");
            assert_eq!(peer.heard.down, None);
            all &= peer.heard.received.len() == count && peer.held.is_empty();
        }
        !all
    });
    assert!(
        done,
        "nothing happens any more, but not everything has arrived"
    );
    cluster
}

fn sim_ports(world: &World, share: bool, profile: Profile) -> (SimPort<Buffer>, SimPort<Buffer>) {
    let fabric = Fabric::new(
        world,
        share.then_some(Buffer::share as fn(&Buffer) -> Buffer),
    );
    let open = |node| {
        SimPort::open(&fabric, node, NIC, EndpointId(node as u32), profile).expect("a free name")
    };
    (open(0), open(1))
}

#[test]
fn a_simulated_port_delivers_everything_in_order_whatever_its_behaviour() {
    seeds::each(200, |seed| {
        let world = World::new(seed);
        seeds::watch(&world);
        let mut rng = Rng::new(seed);
        let profile = Profile {
            remote_read: false,
            ..Profile::random(&mut rng)
        };
        let ports = sim_ports(&world, rng.chance(0.7), profile);
        exchange(&world, &mut rng, 40, ports, Duration::from_secs(60));
    });
}

type ReliablePeer = Reliable<SimDatagrams>;

fn reliable(net: &DatagramNet, node: NodeId, config: ReliableConfig, life: u64) -> ReliablePeer {
    let name = EndpointId(node as u32);
    let datagrams = SimDatagrams::open(net, node, NIC, name).expect("a free name");
    Reliable::new(datagrams, config, life << 32 | node as u64)
}

fn totals(cluster: &mut Cluster<Peer<ReliablePeer>>) -> ReliableStats {
    let mut sum = ReliableStats::default();
    for id in 0..cluster.len() {
        let stats = *cluster.node(id).expect("alive").port.stats();
        sum.resent += stats.resent;
        sum.duplicates += stats.duplicates;
        sum.damaged += stats.damaged;
        sum.bad_acks += stats.bad_acks;
        sum.malformed += stats.malformed;
        sum.datagrams_out += stats.datagrams_out;
    }
    sum
}

/// Exchanges over two reliable ports; the sum of what both counted.
fn over_faults(seed: u64, faults: Faults, mtu: usize, config: ReliableConfig) -> ReliableStats {
    let world = World::new(seed);
    seeds::watch(&world);
    let mut rng = Rng::new(seed);
    let net = DatagramNet::new(&world, mtu, faults);
    net.set_refuse(if rng.chance(0.3) { 0.1 } else { 0.0 });
    let ports = (
        reliable(&net, 0, config, seed),
        reliable(&net, 1, config, seed),
    );
    let mut cluster = exchange(&world, &mut rng, 30, ports, Duration::from_secs(600));
    let stats = totals(&mut cluster);
    assert_eq!(stats.bad_acks, 0, "the two disagree about what was sent");
    stats
}

#[test]
fn a_fifth_of_all_datagrams_lost_loses_nothing() {
    seeds::each(20, |seed| {
        let faults = Faults {
            loss: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.resent > 0);
    });
}

#[test]
fn doubled_datagrams_are_delivered_once() {
    seeds::each(20, |seed| {
        let faults = Faults {
            duplicate: 0.5,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.duplicates > 0);
    });
}

#[test]
fn overtaking_datagrams_are_put_in_order() {
    seeds::each(20, |seed| {
        let faults = Faults {
            reorder: 0.3,
            jitter: Duration::from_micros(100),
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, ReliableConfig::default());
    });
}

#[test]
fn damaged_datagrams_are_dropped_and_sent_again() {
    seeds::each(20, |seed| {
        let faults = Faults {
            corrupt: 0.2,
            ..Faults::default()
        };
        let stats = over_faults(seed, faults, 1472, ReliableConfig::default());
        assert!(stats.damaged + stats.malformed > 0);
        assert!(stats.resent > 0);
    });
}

#[test]
fn a_narrow_queue_slows_the_sender_down_instead_of_breaking_the_link() {
    seeds::each(10, |seed| {
        let faults = Faults {
            bandwidth: Some(10_000_000),
            queue: 20_000,
            latency: Duration::from_millis(1),
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, ReliableConfig::default());
    });
}

#[test]
fn numbers_that_wrap_disturb_nothing() {
    seeds::each(20, |seed| {
        let config = ReliableConfig {
            first_seq: Some(u32::MAX - 9),
            ..ReliableConfig::default()
        };
        let faults = Faults {
            loss: 0.1,
            reorder: 0.1,
            ..Faults::default()
        };
        over_faults(seed, faults, 1472, config);
    });
}

#[test]
fn any_mixture_of_faults_sizes_and_windows_loses_nothing() {
    seeds::each(100, |seed| {
        let mut rng = Rng::new(!seed);
        let config = ReliableConfig {
            window: rng.pick(&[8, 32, 256, 1024]),
            early_bytes: rng.pick(&[0, 5_000, 16 << 20]),
            first_seq: rng.chance(0.5).then_some(u32::MAX - 9),
            packet_max: rng.pick(&[4 << 10, 32 << 10]),
            ..ReliableConfig::default()
        };
        over_faults(
            seed,
            Faults::random(&mut rng),
            rng.pick(&[512, 1472, 9000]),
            config,
        );
    });
}
