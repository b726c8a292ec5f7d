//! Two ports with sessions, on a net where a program decides about every datagram and forges
//! others.
//!
//! ```text
//!   Reliable<End 0> === wire === Reliable<End 1>        strangers 2, 3: may call, may violate the rules
//!        |    drop, double, reorder, cut, damage, join         |
//!   User, checks                                          User, checks
//! ```
//!
//! | events so far                              | property                                          |
//! |--------------------------------------------|---------------------------------------------------|
//! | any                                        | no panic; heap and sessions bounded               |
//! | none forged with the cookies               | packets arrive once, whole, in order              |
//! | ... and no end closed, no long delays      | no link ends; all arrive once faults stop         |
//! | a forged datagram without the cookies      | changes nothing, and gets no long answer          |
//! | a stranger has proven nothing              | gets no more bytes than came from there           |

mod hostile;
use crate::input::{Input, digest};
use crate::meter::{self, within};
use crate::net::{Address, Datagram, Net};
use crate::packets::Packet;
use crate::program::{Program, run};
use crate::user::User;
use hostile::Stranger;
use mx_proto::port::{Body, Close, LinkControl, LinkDown, Port};
use mx_proto::reliability::{DatagramError, Reliable, ReliableConfig};
use mx_proto::time::Instant;
use mx_proto::{EndpointId, LinkId, NicId, Route, Target};
use mx_sim::Polled;
use mx_sim::SimDatagrams;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Steps of one program.
const STEPS_MAX: usize = 300;

/// Heap of one port with the limits of [`config`]: bytes to be sent (and as much in free blocks),
/// bytes received early, the first fragment and tables of each session, and the heap of a port
/// without sessions.
const HEAP_MAX: isize =
    (SEND_ALL * 2 + EARLY_ALL + SESSIONS * (PACKET_MAX + (32 << 10)) + (512 << 10)) as isize;
const SEND_ALL: usize = 512 << 10;
const EARLY_ALL: usize = 128 << 10;
const LINKS: usize = 6;
/// Callers that have sent nothing yet do not count as links.
const SESSIONS: usize = 2 * LINKS;
const PACKET_MAX: usize = 8192;
const DATA_MAX: usize = 20_000;

fn config(input: &mut Input<'_>) -> ReliableConfig {
    let flags = input.byte();
    ReliableConfig {
        window: if flags & 1 == 0 { 256 } else { 96 },
        send_bytes: 128 << 10,
        send_bytes_all: SEND_ALL,
        early_bytes: 64 << 10,
        early_bytes_all: EARLY_ALL,
        packet_max: PACKET_MAX,
        data_max: DATA_MAX,
        max_links: LINKS,
        always_sum: flags & 2 != 0,
        first_seq: (flags & 4 != 0).then_some(u32::MAX - 3),
        ..ReliableConfig::default()
    }
}

/// Runs one input.
pub fn session(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let world = World::new(&mut input, digest(bytes));
    run(world, &mut input, STEPS_MAX);
}

struct World {
    net: Rc<RefCell<Net>>,
    ports: [Reliable<SimDatagrams>; 2],
    users: [User; 2],
    /// Flow and next serial of each sending link.
    flows: BTreeMap<(usize, u64), (u64, u64)>,
    secret: u64,
    started: Instant,
    connects: usize,
    /// True once an event may end a link.
    disturbed: bool,
    strangers: [Stranger; 2],
    proven: BTreeSet<Address>,
    /// Cookies of sessions with strangers.
    unlawful: BTreeSet<u64>,
}

impl World {
    fn new(input: &mut Input<'_>, secret: u64) -> Self {
        meter::clear();
        let config = config(input);
        let flags = input.byte();
        let datagram_max = [9000, 1472, 548, 65_507][usize::from(flags & 3)];
        let net = Net::new(datagram_max, flags & 4 != 0);
        let mut key = [0; 16];
        key[..8].copy_from_slice(&secret.to_le_bytes());
        let port = |own: usize| {
            let end = net.borrow().open(own as u8);
            let mut key = key;
            key[15] = own as u8;
            within(1 + own, || Reliable::new(end, config, key))
        };
        let ports = [port(0), port(1)];
        let user = || User::new(PACKET_MAX, DATA_MAX);
        let started = net.borrow().now();
        let mut world = Self {
            ports,
            users: [user(), user()],
            flows: BTreeMap::new(),
            secret,
            started,
            connects: 0,
            disturbed: false,
            strangers: Default::default(),
            proven: BTreeSet::new(),
            unlawful: BTreeSet::new(),
            net,
        };
        if flags & 8 == 0 {
            world.connect(0);
            world.rounds(8);
            world.send(0, 0, 10);
            world.rounds(8);
        }
        world
    }

    fn target(end: usize) -> Target {
        Target {
            nic: NicId(1),
            endpoint: EndpointId(end as u32),
            route: Route::AUTO,
        }
    }

    fn connect(&mut self, end: usize) {
        let (port, now) = (&mut self.ports[end], self.net.borrow().now());
        let link = within(1 + end, || port.connect(Self::target(1 - end), now));
        if let Ok(link) = link {
            self.connects += 1;
            self.users[end].links.push(link);
        }
    }

    fn close(&mut self, end: usize, at: usize, how: u8) {
        let user = &mut self.users[end];
        if user.links.is_empty() {
            return;
        }
        self.disturbed = true;
        let link = user.links.remove(at % user.links.len());
        let how = if how & 1 == 0 {
            Close::Flush
        } else {
            Close::Now
        };
        let port = &mut self.ports[end];
        within(1 + end, || port.close(link, how));
    }

    fn link(&self, end: usize, at: usize) -> Option<LinkId> {
        let links = &self.users[end].links;
        links.get(at % links.len().max(1)).copied()
    }

    fn send(&mut self, end: usize, at: usize, len: usize) {
        if let Some(link) = self.link(end, at) {
            self.send_on(end, link, len);
        }
    }

    fn send_on(&mut self, end: usize, link: LinkId, len: usize) {
        let fresh = (self.flows.len() as u64 + 1).wrapping_mul(self.secret | 1);
        let flow = self
            .flows
            .entry((end, link.to_word()))
            .or_insert((fresh, 0));
        // The first packet is small: the other end accepts a link for it.
        let len = if flow.1 == 0 { len.min(64) } else { len };
        let packet = Packet {
            flow: flow.0,
            serial: flow.1,
            len,
            wants_place: len > PACKET_MAX,
        };
        let (header, body) = (packet.header(), packet.body());
        let port = &mut self.ports[end];
        let body: Body<'_, Vec<u8>> = Body::Bytes(&body);
        let sent = within(1 + end, || port.send(link, &header, body));
        flow.1 += u64::from(sent.is_ok());
    }

    fn poll(&mut self, end: usize, budget: usize) -> bool {
        let (port, user, now) = (
            &mut self.ports[end],
            &mut self.users[end],
            self.net.borrow().now(),
        );
        let did = within(1 + end, || port.poll(now, budget, user));
        for link in &user.links {
            within(1 + end, || port.accept(*link));
        }
        for link in std::mem::take(&mut user.up) {
            self.send_on(end, link, 0);
        }
        did
    }

    fn pass(&mut self, span: Duration) {
        self.net.borrow().pass(span);
    }

    /// Delivers and handles everything, and lets a little time pass.
    fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.net.borrow_mut().arrive_all();
            for end in 0..2 {
                self.poll(end, 64);
            }
            self.pass(Duration::from_micros(20));
        }
    }

    fn take_from_wire(&mut self, at: usize) -> Option<Datagram> {
        let mut net = self.net.borrow_mut();
        let len = net.wire.len();
        net.wire.remove(at % len.max(1))
    }

    fn may_exceed(&self, channel: u8) -> bool {
        let tainted = self.users.iter().any(|user| user.tainted);
        channel == 1 && tainted
    }

    fn elapsed(&self) -> Duration {
        self.net.borrow().now().since(self.started)
    }

    fn all_arrived(&self) -> bool {
        self.flows.iter().all(|((end, _), (flow, sent))| {
            let other = &self.users[1 - end];
            let foreign = self.users[*end].foreign;
            other.delivered(*flow) == *sent || other.was_unwilling || foreign
        })
    }
}

impl Program for World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 24 {
            0 | 1 => {
                let (end, link) = (input.below(2), input.below(8));
                let len = input.choose(&[0, 1, 100, 736, 737, 1400, 3000, 8192, 8193, 20_000]);
                for _ in 0..=input.below(8) {
                    self.send(end, link, len);
                }
            }
            2 => {
                let (end, budget) = (input.below(2), 1 + input.below(64));
                self.poll(end, budget);
            }
            3 => {
                for _ in 0..=input.below(32) {
                    if let Some(datagram) = self.take_from_wire(0) {
                        self.net.borrow_mut().arrive(datagram);
                    }
                }
            }
            4 => {
                let micros = input.choose(&[
                    1, 20, 60, 300, 600, 1500, 6000, 30_000, 200_000, 1_100_000, 4_000_000,
                ]);
                self.pass(Duration::from_micros(micros));
            }
            5 => {
                let at = input.below(64);
                for _ in 0..=input.below(16) {
                    self.take_from_wire(at);
                }
            }
            6 => {
                let at = input.below(64);
                let copy = self.net.borrow().wire.get(at).cloned();
                if let Some(copy) = copy {
                    let mut net = self.net.borrow_mut();
                    for _ in 0..=input.below(4) {
                        net.wire.push_back(copy.clone());
                    }
                }
            }
            7 => {
                // Puts a datagram behind all others.
                let at = input.below(64);
                if let Some(datagram) = self.take_from_wire(at) {
                    self.net.borrow_mut().wire.push_back(datagram);
                }
            }
            8 => self.shorten(input),
            9 => self.damage(input),
            10 => self.join(input),
            11..=13 => self.forge(input),
            14 => self.replay(input),
            15 => {
                let (end, at, how) = (input.below(2), input.below(4), input.byte());
                self.close(end, at, how);
            }
            16 => {
                let end = input.below(2);
                self.connect(end);
            }
            17 => {
                let fault = input.choose(&[
                    DatagramError::WouldBlock,
                    DatagramError::Unreachable,
                    DatagramError::TooLarge(1400),
                    DatagramError::TooLarge(600),
                    DatagramError::TooLarge(0),
                ]);
                self.disturbed |= fault == DatagramError::TooLarge(0);
                self.net.borrow_mut().faults = (input.byte(), Some(fault));
            }
            18 => self.rumour(input),
            19 => {
                let user = &mut self.users[input.below(2)];
                user.unwilling = !user.unwilling;
                user.was_unwilling |= user.unwilling;
            }
            20 => self.rounds(1 + input.below(32)),
            21 => self.call_as_stranger(input),
            22 => self.lie_as_stranger(input),
            _ => self.raw(input),
        }
    }

    fn check(&self) {
        let lawful = self.connects + self.unlawful.len();
        for end in 0..2 {
            let held = meter::held(1 + end);
            assert!(held <= HEAP_MAX, "end {end} holds {held} bytes");
            let sessions = self.ports[end].sessions();
            assert!(sessions <= lawful.min(SESSIONS), "{sessions} sessions");
            for (host, channel) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
                let address = (host, channel);
                let excess = self.net.borrow().excess(end, address);
                assert!(
                    excess <= 0 || self.proven.contains(&address) || self.may_exceed(channel),
                    "{excess} bytes more to {address:?} than came from there"
                );
            }
            for (link, reason) in &self.users[end].down {
                let tainted = self.users[end].tainted || self.users[end].foreign;
                assert!(
                    tainted || *reason != LinkDown::Protocol,
                    "{link:?} ended: {reason} of an honest peer"
                );
                assert!(
                    self.disturbed || self.users[end].foreign || self.elapsed() > TIMEOUT,
                    "{link:?} ended without cause: {reason}"
                );
            }
        }
    }

    /// Ends the faults: accepted packets arrive, unless an event may have ended a link. Then closes
    /// everything, and nothing remains.
    fn finish(mut self) {
        self.net.borrow_mut().faults = (0, None);
        let fair = !self.disturbed && self.elapsed() < TIMEOUT;
        for _ in 0..if fair { KIND_STEPS } else { 50 } {
            if self.all_arrived() {
                break;
            }
            let moved = self.net.borrow_mut().arrive_all();
            let busy = self.poll(0, 64) | self.poll(1, 64);
            if !moved && !busy {
                let deadlines = self.ports.iter().filter_map(LinkControl::deadline);
                let Some(at) = deadlines.min() else { break };
                let wait = at.since(self.net.borrow().now());
                self.pass(wait.max(Duration::from_micros(1)));
            }
            self.check();
        }
        if fair && self.elapsed() < TIMEOUT * 2 {
            assert!(
                self.all_arrived(),
                "not everything arrived: {:?}",
                self.flows
            );
        }
        let [a, b] = self.ports;
        within(1, || drop(a));
        within(2, || drop(b));
        for end in 0..2 {
            assert_eq!(meter::held(1 + end), 0, "end {end} leaves memory behind");
        }
    }
}

/// Less than the time after which a link gives up.
const TIMEOUT: Duration = Duration::from_secs(4);

const KIND_STEPS: usize = 4000;
