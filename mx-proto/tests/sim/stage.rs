//! Nodes of the simulator's that do only what they are told.

use mx_proto::Config;
use mx_proto::port::Port;
use mx_proto::reliability::ReliableConfig;
use mx_sim::node::KEY;
use mx_sim::scenario::Unreliably;
use mx_sim::{
    Book, Buffer, Cluster, DatagramNet, Habits, Mood, Node, NodeId, Rng, Terms, World, seeds,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) struct Stage<P> {
    pub(crate) world: World,
    pub(crate) book: Rc<RefCell<Book>>,
    pub(crate) cluster: Cluster<Node<P>>,
}

/// Ports over datagrams, of the world with that seed.
pub(crate) fn unreliably(seed: u64, terms: Terms, config: ReliableConfig) -> (World, Unreliably) {
    let world = World::new(seed);
    seeds::watch(&world);
    world.note(0, format!("{terms:?} {config:?}"));
    let network = Unreliably {
        net: DatagramNet::new(&world, terms),
        config,
        faults: terms.faults,
        rng: Rng::new(seed),
    };
    (world, network)
}

impl<P: Port<Buffer>> Stage<P> {
    /// Two nodes with these ports.
    pub(crate) fn new(world: &World, config: &Config, ports: [P; 2]) -> Self {
        let book = Rc::new(RefCell::new(Book::default()));
        let mut cluster = Cluster::new(world);
        for (id, port) in ports.into_iter().enumerate() {
            let (config, habits) = (config.clone(), Habits::default());
            let mut node = Node::new(world, &book, (id, 2), config, habits, port);
            node.mood = Mood::Quiet;
            cluster.add(node);
        }
        let world = world.clone();
        Self {
            world,
            book,
            cluster,
        }
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node<P> {
        self.cluster.poke(id);
        self.cluster.node(id).expect("it lives")
    }

    pub(crate) fn connect(&mut self, from: NodeId, to: NodeId) {
        self.node(from).connect(to, KEY);
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, 50_000_000), "too busy");
    }

    pub(crate) fn received(&self) -> u64 {
        self.book.borrow().received()
    }

    /// Runs until so many messages have been received.
    pub(crate) fn run_until_received(&mut self, all: u64, steps: u64) {
        let book = Rc::clone(&self.book);
        let done = self
            .cluster
            .run_while(steps, |_| book.borrow().received() < all);
        assert!(done, "{} of {all} messages arrived", self.received());
    }
}
