//! Honest nodes that hostile ones attack while they get to know each other.
//!
//! ```text
//!   machines with addresses: honest ones share some, hostile ones have their own
//!      --> the attack, while one honest node after the other begins --> the attack ends
//!      --> what must still arrive is taken in; all honest nodes reach each other --> all is closed
//! ```
//!
//! The guarantees meanwhile are in [`Siege`]. Nothing else goes wrong here: all failures are brought
//! about by the attackers.

use super::stage::count;
use super::{Network, Tally};
use crate::cluster::Drive;
use crate::hostile::{Gang, Hostile};
use crate::node::{KEY, Siege};
use crate::{Book, Cluster, Habits, Home, Mood, Node, NodeId, Rng, World};
use mx_proto::secret::Secret;
use mx_proto::{Config, EndpointId, Instant, NicId};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// The secrets of the two sides.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// The site's.
    pub site: Option<Secret>,
    /// Another one: the attackers'.
    pub other: Option<Secret>,
}

/// A run in which some nodes attack the others.
pub struct Besieged<N: Network> {
    world: World,
    network: N,
    rng: Rng,
    book: Rc<RefCell<Book>>,
    gang: Rc<RefCell<Gang>>,
    cluster: Cluster<Actor<N>>,
    siege: Siege,
    honest: usize,
    nodes: usize,
    secrets: Secrets,
    config: Config,
}

/// A node of the run.
#[derive(Debug)]
enum Actor<N: Network> {
    Honest(Box<Node<N::Port>>),
    Hostile(Box<Hostile<N::Port>>),
}

impl<N: Network> Drive for Actor<N> {
    fn progress(&mut self) -> bool {
        match self {
            Self::Honest(node) => node.progress(),
            Self::Hostile(node) => node.progress(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Honest(node) => node.deadline(),
            Self::Hostile(node) => node.deadline(),
        }
    }
}

/// More steps than any run takes.
const STEPS: u64 = 20_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// Links that one hostile node may have to one honest one, with some that are just going.
const LINKS: usize = 256;

/// The nodes, and their machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ground {
    honest: usize,
    hostile: usize,
}

impl Ground {
    /// Draws nodes, and puts them on machines; hostile ones beside honest ones only if those
    /// can be told from each other: by a secret, over links with a binding.
    pub fn drawn(world: &World, rng: &mut Rng, told_apart: bool) -> Self {
        let ground = Self::on_one_machine(rng);
        let mut machines: Vec<Vec<NicId>> = Vec::new();
        let mut drawn = 0;
        for id in 0..ground.honest + ground.hostile {
            let first = if id < ground.honest || told_apart {
                0
            } else {
                ground.honest
            };
            let beside = rng.chance(0.3) && id > first;
            let home = if beside {
                machines[rng.within(first..=id - 1)].clone()
            } else {
                let addresses = rng.pick(&[1, 1, 2, 3]);
                drawn += addresses;
                let numbers = drawn - addresses..drawn;
                numbers.map(|nth| NicId(0x0a00_0001 + nth)).collect()
            };
            world.set_addresses(id, home.clone());
            machines.push(home);
        }
        if rng.chance(0.5) {
            ground.hide_some(world, rng);
        }
        ground
    }

    /// Puts some behind translators, honest and hostile ones together, with few numbers for all.
    fn hide_some(self, world: &World, rng: &mut Rng) {
        for id in 0..self.honest + self.hostile {
            // The first can be called.
            if id > 0 && rng.chance(0.5) {
                let translator = NicId(0x0b00_0001 + rng.below(2));
                let number = EndpointId(100 + rng.below(2) as u32);
                let home = world.home(id);
                world.set_home(
                    id,
                    Home {
                        translator: Some(translator),
                        number: Some(number),
                        ..home
                    },
                );
            }
        }
    }

    /// Draws the nodes: all on one machine, which only a secret can tell apart.
    pub fn on_one_machine(rng: &mut Rng) -> Self {
        Self {
            honest: rng.within(2..=4),
            hostile: rng.within(1..=3),
        }
    }
}

impl<N: Network> Besieged<N> {
    /// Nodes that have not begun. The network knows of `gang` what is said on it.
    pub fn new(
        (world, mut rng): (&World, Rng),
        network: N,
        gang: &Rc<RefCell<Gang>>,
        ground: Ground,
        secrets: &Secrets,
    ) -> Self {
        let (honest, nodes) = (ground.honest, ground.honest + ground.hostile);
        let config = Config {
            eager_max: rng.pick(&[100, 4 << 10, 32 << 10]),
            request_timeout: Some(3 * SECOND),
            waiting_timeout: None,
            peer_timeout: None,
            poll_budget: rng.pick(&[1, 3, 64]),
            max_remotes: 256,
            secret: secrets.site.clone(),
            ..Config::default()
        };
        world.note(0, format!("{ground:?} {config:?}"));
        for id in 0..nodes {
            world.note(id, format!("{:x?}", world.home(id)));
        }
        Self {
            world: world.clone(),
            network,
            rng,
            book: Rc::default(),
            gang: Rc::clone(gang),
            cluster: Cluster::new(world),
            siege: Siege::new(world, honest, nodes, secrets.site.is_some()),
            honest,
            nodes,
            secrets: secrets.clone(),
            config,
        }
    }

    fn honest(&mut self, id: NodeId) -> &mut Node<N::Port> {
        match self.cluster.node(id) {
            Some(Actor::Honest(node)) => node,
            _ => unreachable!("honest nodes come first, and no node dies"),
        }
    }

    fn open_all(&mut self) {
        let habits = Habits {
            message_max: self.rng.pick(&[100, 33_000, 100_000]),
            pause: Duration::from_micros(self.rng.pick(&[3_000, 30_000])),
            disconnects: false,
            cancels: false,
            answers: true,
            ..Habits::default()
        };
        for id in 0..self.honest {
            let port = self.network.open(id);
            let (config, who) = (self.config.clone(), (id, self.nodes));
            let mut node = Node::new(&self.world, &self.book, who, config, habits, port);
            node.besiege(&self.siege);
            node.mood = Mood::Quiet;
            self.cluster.add(Actor::Honest(Box::new(node)));
        }
        for id in self.honest..self.nodes {
            let pause = Duration::from_millis(self.rng.pick(&[5, 20, 60]));
            let port = self.network.open(id);
            let all = (&self.book, &self.gang);
            let knows = self.secrets.other.clone();
            let who = (id, self.honest);
            let node = Hostile::new(&self.world, all, who, pause, knows, port);
            self.cluster.add(Actor::Hostile(Box::new(node)));
        }
    }

    fn go_on(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, STEPS), "too many steps");
        let (honest, hostile) = (self.honest, self.nodes - self.honest);
        for id in 0..honest {
            let node = self.honest(id);
            let known = node.endpoint.remotes();
            assert!(known <= 256, "{known} remotes");
            let under_way = node.endpoint.introductions();
            assert!(
                under_way <= LINKS * hostile + 16,
                "{under_way} introductions"
            );
        }
    }

    /// Lets the attack go on, and then all that is honest end well.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn run(&mut self) {
        self.open_all();
        let rounds = self.rng.within(2..=12);
        for round in 0..rounds {
            if round < self.honest {
                self.honest(round).mood = Mood::Busy;
                self.cluster.poke(round);
            }
            let span = self.rng.pick(&[50, 300, 1_500]);
            self.go_on(Duration::from_millis(span));
        }
        self.all_meet();
        for id in self.honest..self.nodes {
            if let Some(Actor::Hostile(node)) = self.cluster.node(id) {
                node.stop();
                self.cluster.poke(id);
            }
        }
        self.take_in_the_rest();
        self.close_all();
    }

    /// All honest nodes get to know each other, attack or not.
    fn all_meet(&mut self) {
        let world = self.world.clone();
        let honest = 0..self.honest;
        let called = |to: &NodeId| world.home(*to).translator.is_none();
        for from in honest.clone() {
            for to in honest.clone().filter(called).filter(|to| *to != from) {
                if !self.honest(from).knows(to) {
                    self.honest(from).connect(to, KEY);
                    self.cluster.poke(from);
                }
            }
        }
        self.go_on(5 * SECOND);
        let siege = self.siege.clone();
        for from in honest.clone().filter(|from| !siege.is_crowded(*from)) {
            for to in honest.clone().filter(called).filter(|to| *to != from) {
                assert!(self.honest(from).knows(to), "n{from} does not know n{to}");
            }
        }
    }

    fn take_in_the_rest(&mut self) {
        for id in 0..self.honest {
            self.honest(id).shed();
        }
        for id in 0..self.honest {
            let node = self.honest(id);
            node.mood = Mood::Draining;
            node.cancel_receives();
            node.cancel_connects();
            self.cluster.poke(id);
        }
        let until = self.world.now().after(30 * SECOND);
        while self.world.now() < until && self.something_left() {
            self.go_on(Duration::from_millis(20));
        }
        let missing = self.book.borrow().missing();
        assert!(missing.is_empty(), "messages {missing:?} never arrived");
        // Links that were never bound go, and those who have been asked whether they are there.
        self.go_on(6 * SECOND);
        for id in 0..self.honest {
            let node = self.honest(id);
            assert_eq!(node.outstanding(), 0, "left: {}", node.describe());
            let left = node.endpoint.introductions();
            assert_eq!(left, 0, "introductions left at n{id}");
            let (known, stats) = (node.endpoint.remotes(), *node.endpoint.stats());
            let mut book = self.book.borrow_mut();
            book.count(format!("known at the end: {}", known >= self.honest));
            for (what, count) in [
                ("refused", stats.refused),
                ("unproven", stats.unproven),
                ("same_name_pings", stats.same_name_pings),
            ] {
                if count > 0 {
                    book.count(what);
                }
            }
        }
    }

    fn something_left(&mut self) -> bool {
        let busy = (0..self.honest).any(|id| self.honest(id).outstanding() > 0);
        busy || !self.book.borrow().missing().is_empty()
    }

    fn close_all(&mut self) {
        for id in 0..self.honest {
            let node = self.honest(id);
            node.close();
            self.cluster.poke(id);
        }
    }

    /// Adds what was counted.
    pub fn tally(&self, tally: &mut Tally) {
        count(&self.book.borrow(), tally);
    }
}

impl<N: Network> fmt::Debug for Besieged<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Besieged")
            .field("honest", &self.honest)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
