//! Nodes on one network, and all that any run does with them.
//!
//! Owns: the nodes, and the book of what they send each other.

use super::{Network, Tally};
use crate::{Book, Cluster, Habits, Mood, Node, NodeId, World, seeds};
use mx_proto::Config;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Some nodes of one run.
pub struct Stage<N: Network> {
    /// Where they are.
    pub world: World,
    /// The network between them.
    pub network: N,
    /// All that they have sent.
    pub book: Rc<RefCell<Book>>,
    /// The nodes.
    pub cluster: Cluster<Node<N::Port>>,
    /// Configuration of nodes that begin from now on.
    pub config: Config,
    /// Habits of nodes that begin from now on.
    pub habits: Habits,
    /// Mood of nodes that begin from now on.
    pub mood: Mood,
    pub(super) nodes: usize,
}

/// More steps than any run takes; a run that needs more is stuck in a loop.
const STEPS: u64 = 50_000_000;

impl<N: Network> Stage<N> {
    /// So many nodes that do as they like, or, if `quiet`, what they are told. A failure prints the log.
    pub fn new(
        (world, network): (&World, N),
        nodes: usize,
        (config, habits): (Config, Habits),
        quiet: bool,
    ) -> Self {
        seeds::watch(world);
        world.note(0, format!("{config:?} {habits:?}"));
        let mut stage = Self {
            world: world.clone(),
            network,
            book: Rc::default(),
            cluster: Cluster::new(world),
            config,
            habits,
            mood: if quiet { Mood::Quiet } else { Mood::Busy },
            nodes,
        };
        (0..nodes).for_each(|id| stage.begin(id));
        stage
    }

    /// Begins a life of a node, if it is not alive.
    pub fn begin(&mut self, id: NodeId) {
        if self.cluster.node(id).is_some() {
            return;
        }
        let port = self.network.open(id);
        let (config, who) = (self.config.clone(), (id, self.nodes));
        let mut node = Node::new(&self.world, &self.book, who, config, self.habits, port);
        node.mood = self.mood;
        if id < self.cluster.len() {
            self.cluster.restart(id, node);
        } else {
            self.cluster.add(node);
        }
    }

    /// Ends it.
    pub fn kill(&mut self, id: NodeId) {
        if let Some(node) = self.cluster.kill(id) {
            self.world.note(id, "killed");
            self.book.borrow_mut().died(node.life(), self.world.now());
        }
    }

    /// A living node, which has a turn next.
    pub fn at(&mut self, id: NodeId) -> &mut Node<N::Port> {
        self.cluster.poke(id);
        self.cluster.node(id).expect("it lives")
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(
            self.cluster.run_until(until, STEPS),
            "more than {STEPS} steps in {span:?}"
        );
    }

    /// Messages received so far.
    pub fn received(&self) -> u64 {
        self.book.borrow().received()
    }

    /// Runs until so many messages have been received.
    pub fn run_until_received(&mut self, all: u64, steps: u64) {
        let book = Rc::clone(&self.book);
        let going = |_: &mut _| book.borrow().received() < all;
        let done = self.cluster.run_while(steps, going);
        assert!(done, "{} of {all} messages arrived", self.received());
    }

    /// Waits until all has arrived that must, while the nodes take in whatever comes, and nothing is
    /// outstanding.
    pub fn take_in_the_rest(&mut self) {
        for id in 0..self.nodes {
            if let Some(node) = self.cluster.node(id) {
                node.mood = Mood::Draining;
                node.cancel_receives();
                self.cluster.poke(id);
            }
        }
        // The longest time-outs one after the other: a stalled node, a dead link, a request.
        let until = self.world.now().after(Duration::from_secs(60));
        while self.world.now() < until && self.something_left() {
            self.run(Duration::from_millis(5));
        }
        for id in 0..self.nodes {
            if let Some(node) = self.cluster.node(id) {
                let left = node.outstanding();
                assert_eq!(left, 0, "never completed: {}", node.describe());
            }
        }
        let book = self.book.borrow();
        let missing = book.missing();
        let first = missing.first().map(|serial| book.message(*serial));
        assert!(
            missing.is_empty(),
            "messages {missing:?} never arrived, the first is {first:?}"
        );
    }

    fn something_left(&mut self) -> bool {
        let cluster = &mut self.cluster;
        let busy =
            (0..cluster.len()).any(|id| cluster.node(id).is_some_and(|n| n.outstanding() > 0));
        busy || !self.book.borrow().missing().is_empty()
    }

    /// Adds what was counted, so that it is seen whether the runs did anything.
    pub fn tally(&self, tally: &mut Tally) {
        count(&self.book.borrow(), tally);
    }
}

/// Adds the counts of a book.
pub(super) fn count(book: &Book, tally: &mut Tally) {
    for (what, count) in book.tally() {
        *tally.entry(what.clone()).or_default() += count;
    }
    *tally.entry("received".into()).or_default() += book.received();
    *tally.entry("runs".into()).or_default() += 1;
}

impl<N: Network> std::fmt::Debug for Stage<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stage")
    }
}
