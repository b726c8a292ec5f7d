//! A simulated fabric in virtual time, with faults.
//!
//! ```text
//!   Network --- Fake: one machine a node          chaos: cut, sever, unplug, overrun, refuse
//!      |          |
//!      |          `-- descriptors --> rouse(): a sleeper with something to do wakes in a moment
//!      |--- ports: the open ports, for those that call them
//!      `--- lent: memory that providers had, checked again after it has come back
//! ```
//!
//! Owns: the state that all ports of a run share.

use super::port::SimRdm;
use super::weather::Weather;
use libfabric_fake::{Call, Death, Fake, Faults, Machine};
use libfabric_sys::abi::{FI_EIO, FI_ENOMEM};
use mx_port_rdm::{Device, RdmOptions, RdmPort};
use mx_sim::scenario::{Network, Tally};
use mx_sim::{Buffer, NodeId, Rng, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A handle; clones stand for the same network.
#[derive(Clone)]
pub(crate) struct FakeNetwork(Rc<RefCell<Inner>>);

struct Inner {
    world: World,
    fake: Fake,
    weather: Weather,
    rng: Rng,
    machines: BTreeMap<NodeId, Machine>,
    ports: BTreeMap<NodeId, Listed>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    lent: Vec<Lent>,
    lives: u64,
}

/// An open port.
struct Listed {
    life: u64,
    fd: i32,
    /// Whether the node relies on its descriptor, and has not been woken since.
    sleeps: bool,
    port: Weak<RefCell<RdmPort>>,
}

/// Memory of an application that a provider was given.
struct Lent {
    buffer: Buffer,
    /// Checksum of its bytes when it came back.
    sum: Option<u64>,
}

impl FakeNetwork {
    pub(crate) fn new(world: &World, rng: &mut Rng) -> Self {
        let weather = Weather::random(rng);
        Self::with(world, rng, weather)
    }

    pub(crate) fn with(world: &World, rng: &mut Rng, weather: Weather) -> Self {
        world.note(0, format!("{weather:?}"));
        let fake = Fake::new(weather.shape.clone(), rng.bits());
        fake.faults(|faults| *faults = weather.faults.clone());
        Self(Rc::new(RefCell::new(Inner {
            world: world.clone(),
            fake,
            weather,
            rng: rng.fork(),
            machines: BTreeMap::new(),
            ports: BTreeMap::new(),
            cuts: BTreeSet::new(),
            lent: Vec::new(),
            lives: 0,
        })))
    }

    pub(crate) fn world(&self) -> World {
        self.0.borrow().world.clone()
    }

    pub(crate) fn fake(&self) -> Fake {
        self.0.borrow().fake.clone()
    }

    fn machine(&self, node: NodeId) -> Machine {
        let mut inner = self.0.borrow_mut();
        let fake = inner.fake.clone();
        let machine = || fake.machine(&[]);
        inner.machines.entry(node).or_insert_with(machine).clone()
    }

    /// Lists an open port. Returns the number of its life.
    pub(crate) fn list(&self, node: NodeId, (fd, port): (i32, Weak<RefCell<RdmPort>>)) -> u64 {
        let mut inner = self.0.borrow_mut();
        inner.lives += 1;
        let life = inner.lives;
        let listed = Listed {
            life,
            fd,
            sleeps: false,
            port,
        };
        inner.ports.insert(node, listed);
        life
    }

    pub(crate) fn unlist(&self, node: NodeId, life: u64) {
        let mut inner = self.0.borrow_mut();
        if inner.ports.get(&node).is_some_and(|it| it.life == life) {
            inner.ports.remove(&node);
        }
    }

    /// Returns the port of a node that another one calls, or `None` if no path leads there.
    pub(crate) fn port_at(&self, from: NodeId, to: NodeId) -> Option<Rc<RefCell<RdmPort>>> {
        let inner = self.0.borrow();
        if inner.cuts.contains(&(from.min(to), from.max(to))) {
            return None;
        }
        inner.ports.get(&to)?.port.upgrade()
    }

    /// Notes whether the port sleeps on its descriptor.
    pub(crate) fn sleeps(&self, node: NodeId, sleeps: bool) {
        if let Some(listed) = self.0.borrow_mut().ports.get_mut(&node) {
            listed.sleeps = sleeps;
        }
    }

    /// Wakes sleepers that have something to do.
    pub(crate) fn rouse(&self) {
        let mut inner = self.0.borrow_mut();
        let Inner {
            world, ports, rng, ..
        } = &mut *inner;
        for (&node, listed) in ports.iter_mut() {
            if listed.sleeps && is_readable(listed.fd) {
                listed.sleeps = false;
                world.wake_after(rng.span(WAKE_MAX), node);
            }
        }
    }

    /// Notes that a provider may be given this memory.
    pub(crate) fn lend(&self, buffer: &Buffer) {
        let lent = Lent {
            buffer: buffer.share(),
            sum: None,
        };
        self.0.borrow_mut().lent.push(lent);
    }

    /// Asserts that memory that came back since the last call is not in use.
    pub(crate) fn look_at_memory(&self) {
        let mut inner = self.0.borrow_mut();
        let Inner { fake, lent, .. } = &mut *inner;
        for lent in lent.iter_mut() {
            if lent.sum.is_none() && lent.buffer.is_back() {
                let bytes = lent.buffer.look();
                let holders = fake.holds(bytes.as_ptr(), bytes.len());
                assert!(holders.is_empty(), "memory that came back: {holders:?}");
                lent.sum = Some(sum(&bytes));
            }
        }
    }

    /// Checks the network when all ports are closed.
    pub(crate) fn check_end(&self) {
        self.look_at_memory();
        let inner = self.0.borrow();
        for lent in &inner.lent {
            let now = sum(&lent.buffer.look());
            assert!(
                lent.sum.is_none_or(|before| before == now),
                "memory was written to after it had come back"
            );
        }
        inner.fake.assert_clean();
        assert_eq!(inner.fake.open_objects(), [] as [String; 0], "still open");
        assert_eq!(inner.fake.lent(), 0, "operations that have not ended");
    }

    /// Returns whether memory is in pieces, and whether messages are large.
    pub(crate) fn habits(&self) -> (bool, bool) {
        let weather = &self.0.borrow().weather;
        (weather.pieces, weather.large)
    }

    /// Adds the counters to a tally.
    pub(crate) fn tally(&self, tally: &mut Tally) {
        let stats = self.fake().stats();
        let counted = [
            ("fabric: sends", stats.sends),
            ("fabric: injects", stats.injects),
            ("fabric: reads", stats.remotes),
            ("fabric: errors", stats.errors),
            ("fabric: again", stats.again),
            ("fabric: reordered", stats.reordered),
        ];
        for (what, count) in counted {
            *tally.entry(what.into()).or_default() += count;
        }
        let lent = self.0.borrow().lent.len() as u64;
        *tally.entry("lent".into()).or_default() += lent;
    }

    fn options(&self, node: NodeId) -> RdmOptions {
        let machine = self.machine(node);
        let weather = &self.0.borrow().weather;
        RdmOptions {
            provider: None,
            hardware_only: false,
            device: Device::only(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            keepalive: weather.keepalive,
            library: Some(machine.library()),
            ..RdmOptions::default()
        }
    }

    fn both(&self, a: NodeId, b: NodeId) -> (Machine, Machine) {
        (self.machine(a), self.machine(b))
    }

    fn note(&self, node: NodeId, text: String) {
        self.0.borrow().world.note(node, text);
    }
}

impl Network for FakeNetwork {
    type Port = SimRdm;

    fn open(&mut self, node: NodeId) -> SimRdm {
        // Failures at the opening are reported to the caller and tested elsewhere.
        let fake = self.fake();
        let mut before = Faults::none();
        fake.faults(|faults| std::mem::swap(faults, &mut before));
        let port = SimRdm::open(self, node, self.options(node));
        fake.faults(|faults| *faults = before);
        port
    }

    fn cut(&self, a: NodeId, b: NodeId) {
        let (one, other) = self.both(a, b);
        self.0.borrow_mut().cuts.insert((a.min(b), a.max(b)));
        self.fake().cut(&one, &other);
    }

    fn heal(&self, a: NodeId, b: NodeId) {
        let (one, other) = self.both(a, b);
        self.0.borrow_mut().cuts.remove(&(a.min(b), a.max(b)));
        self.fake().heal(&one, &other);
        self.rouse();
    }

    /// Breaks a fabric in one of many ways.
    fn reset(&self, a: NodeId, b: NodeId) {
        let (one, other) = self.both(a, b);
        let kind = self.0.borrow_mut().rng.below(5);
        match kind {
            0 | 1 => {
                self.note(a, "severed".into());
                self.fake().sever(&one, &other);
            }
            2 => {
                self.note(a, "overrun".into());
                one.overrun();
            }
            3 => {
                let death = self.0.borrow_mut().rng.pick(&[
                    Death::Again,
                    Death::Vanish,
                    Death::Fail(FI_EIO),
                ]);
                self.note(a, format!("unplugged: {death:?}"));
                one.unplug(death);
            }
            _ => {
                let call = self.0.borrow_mut().rng.pick(&[
                    Call::Endpoint,
                    Call::Domain,
                    Call::MrReg,
                    Call::AvInsert,
                ]);
                self.note(a, format!("refused from now on, or not: {call:?}"));
                self.fake().faults(|faults| {
                    if faults.refuse.remove(&call).is_none() {
                        faults.refuse.insert(call, FI_ENOMEM);
                    }
                });
            }
        }
        self.rouse();
    }

    fn power_off(&self, node: NodeId) {
        self.machine(node).kill(Death::Vanish);
        self.rouse();
    }

    fn calm(&self) {
        let mut inner = self.0.borrow_mut();
        let rough = inner.rng.chance(0.5);
        inner.fake.faults(|faults| {
            *faults = if rough {
                Faults::rough()
            } else {
                Faults::none()
            };
        });
    }
}

/// The longest time in which the kernel wakes a sleeper.
const WAKE_MAX: Duration = Duration::from_micros(30);

fn is_readable(fd: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one structure of ours, and no waiting.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
