//! Random operations and random faults: everything may happen, at any time.
//!
//! ```text
//!   everything happens: kill, restart, stall, cut, heal, reset
//!      --> all is healed, what must still arrive is taken in --> everything is closed
//! ```
//!
//! Owns: the nodes of one run, and what has been counted in several.

use super::Network;
use crate::{Book, Cluster, Habits, Mood, Node, NodeId, Rng, World};
use mx_proto::Config;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

fn random_config(rng: &mut Rng, peer_timeout: Option<Duration>) -> Config {
    let mut config = Config {
        eager_max: rng.pick(&[0, 100, 4 << 10, 32 << 10, 512 << 10]),
        unexpected_bytes: rng.pick(&[0, 10_000, 100_000, 64 << 20]),
        first_credits: rng.pick(&[0, 1, 4, 80]),
        request_timeout: Some(Duration::from_secs(2)),
        waiting_timeout: Some(Duration::from_secs(2)),
        peer_timeout: None,
        poll_budget: rng.pick(&[1, 3, 64]),
        burst: rng.pick(&[1, 16]),
        max_remotes: rng.pick(&[1, 3, 1 << 20]),
        keep_tombstones: rng.pick(&[0, 2, 4096]),
        connect_again: false,
        ..Config::default()
    };
    if rng.chance(0.25) {
        // Then large messages go with their data, in parts where the port takes no more.
        (config.eager_max, config.unexpected_bytes) = (512 << 10, 64 << 20);
        config.first_credits = 2_000;
    }
    config.peer_timeout = peer_timeout;
    config.fetched_max = (config.unexpected_bytes / 2).min(1 << 20) as u32;
    // It belongs to tombstones; it is not drawn, so that old seeds keep what they drew.
    config.connect_again = config.keep_tombstones > 0;
    config
}

/// The counts of all runs of a test.
pub type Tally = BTreeMap<String, u64>;

/// One run.
pub struct Run<N: Network> {
    network: N,
    world: World,
    rng: Rng,
    book: Rc<RefCell<Book>>,
    cluster: Cluster<Node<N::Port>>,
    nodes: usize,
    config: Config,
    habits: Habits,
    gentle: bool,
}

/// More steps than any run takes; a run that needs more is stuck in a loop.
const STEPS: u64 = 20_000_000;

impl<N: Network> Run<N> {
    /// Some nodes, which have not begun.
    pub fn new(world: World, rng: Rng, network: N) -> Self {
        Self::with_habits(world, rng, network, |_| {})
    }

    /// The same, with other habits than those that were drawn.
    pub fn with_habits(
        world: World,
        mut rng: Rng,
        network: N,
        change: impl FnOnce(&mut Habits),
    ) -> Self {
        let nodes = rng.within(2..=4);
        // Where nothing is ever called off, the order of all messages can be checked.
        let gentle = rng.chance(0.3);
        let mut habits = Habits {
            message_max: rng.pick(&[100, 33_000, 200 << 10]),
            pause: Duration::from_micros(rng.pick(&[20, 300, 5_000])),
            grid: Duration::from_nanos(rng.pick(&[1, 10_000])),
            disconnects: !gentle && rng.chance(0.7),
            cancels: !gentle && rng.chance(0.7),
            outstanding: rng.pick(&[5, 40]),
            pieces: true,
            copies: false,
            deliberates: rng
                .pick(&[None, Some(0), Some(50), Some(8_000)])
                .map(Duration::from_micros),
            answers: false,
        };
        // Drawn elsewhere, so that the seeds of old keep what they drew.
        let mut other = Rng::new(world.seed() ^ 0x7065_6572);
        let millis = other.pick(&[None, None, Some(100), Some(1_000)]);
        habits.copies = other.chance(0.7);
        change(&mut habits);
        let config = random_config(&mut rng, millis.map(Duration::from_millis));
        world.note(0, format!("{config:?} {habits:?}"));
        let cluster = Cluster::new(&world);
        let book = Rc::default();
        let mut run = Self {
            network,
            world,
            rng,
            book,
            cluster,
            nodes,
            config,
            habits,
            gentle,
        };
        for id in 0..nodes {
            let node = run.node(id);
            run.cluster.add(node);
        }
        run
    }

    fn node(&mut self, id: NodeId) -> Node<N::Port> {
        let port = self.network.open(id);
        let who = (id, self.nodes);
        Node::new(
            &self.world,
            &self.book,
            who,
            self.config.clone(),
            self.habits,
            port,
        )
    }

    fn kill(&mut self, id: NodeId) {
        if let Some(node) = self.cluster.kill(id) {
            self.world.note(id, "killed");
            self.book.borrow_mut().died(node.life(), self.world.now());
            drop(node);
        }
    }

    fn revive(&mut self, id: NodeId) {
        if self.cluster.node(id).is_none() {
            let node = self.node(id);
            self.cluster.restart(id, node);
        }
    }

    fn go_on(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(
            self.cluster.run_until(until, STEPS),
            "more than {STEPS} steps in {span:?}"
        );
    }

    fn two(&mut self) -> (NodeId, NodeId) {
        let a = self.rng.index(self.nodes);
        (a, (a + 1 + self.rng.index(self.nodes - 1)) % self.nodes)
    }

    fn chaos(&mut self) {
        let (a, b) = self.two();
        let note = |text: &str| self.world.note(a, format!("--- {text} n{a} n{b}"));
        match self.rng.below(8) {
            0 => self.kill(a),
            1 => {
                note("power off");
                self.network.power_off(a);
                self.kill(a);
            }
            2 | 3 => self.revive(a),
            4 => {
                let span = self.rng.pick(&[1, 20, 6_000]);
                note("stall");
                self.cluster.stall(a, Duration::from_millis(span));
            }
            5 => {
                note("cut");
                self.network.cut(a, b);
            }
            6 => {
                note("heal");
                self.network.heal(a, b);
            }
            _ => {
                note("reset");
                self.network.reset(a, b);
            }
        }
    }

    /// Lets everything happen.
    ///
    /// # Panics
    /// When a promise is broken.
    pub fn run(&mut self) {
        let rounds = self.rng.within(1..=6);
        let wild = !self.gentle && self.rng.chance(0.7);
        for _ in 0..rounds {
            let span = self.habits.pause * self.rng.within(10..=100) as u32;
            self.go_on(span);
            if wild {
                self.chaos();
            }
        }
        self.take_in_the_rest();
        self.close_all();
    }

    /// Heals everything and waits until what must arrive has arrived and nothing is outstanding.
    fn take_in_the_rest(&mut self) {
        for a in 0..self.nodes {
            (a + 1..self.nodes).for_each(|b| self.network.heal(a, b));
            if let Some(node) = self.cluster.node(a) {
                node.mood = Mood::Draining;
                node.cancel_receives();
                self.cluster.poke(a);
            }
        }
        self.network.calm();
        // The longest time-outs one after the other: a stalled node, a dead link, a request.
        let until = self.world.now().after(Duration::from_secs(60));
        while self.world.now() < until && self.something_left() {
            self.go_on(Duration::from_millis(5));
        }
        for id in 0..self.nodes {
            if let Some(node) = self.cluster.node(id) {
                assert_eq!(
                    node.outstanding(),
                    0,
                    "never completed: {}",
                    node.describe()
                );
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
        for (what, count) in self.book.borrow().tally() {
            *tally.entry(what.clone()).or_default() += count;
        }
        *tally.entry("received".into()).or_default() += self.book.borrow().received();
        *tally.entry("runs".into()).or_default() += 1;
    }

    /// Ends all nodes, so that their network can be looked at without them.
    pub fn end(self) -> (World, N) {
        drop(self.cluster);
        (self.world, self.network)
    }

    fn close_all(&mut self) {
        for id in 0..self.nodes {
            if let Some(node) = self.cluster.node(id) {
                node.close();
                self.cluster.poke(id);
            }
        }
        self.go_on(Duration::from_secs(10));
        for id in 0..self.nodes {
            let Some(node) = self.cluster.node(id) else {
                continue;
            };
            assert_eq!(node.endpoint.requests(), 0);
            assert_eq!(node.endpoint.unexpected_bytes(), 0, "bytes left");
            assert_eq!(node.endpoint.unexpected_usage().0, 0, "room left taken");
            let flow = node.endpoint.flow_stats();
            let met = [
                ("a message in a slot", flow.in_slots),
                ("credits lent later", flow.granted),
                ("credits given back", flow.returned),
            ];
            for (what, _) in met.iter().filter(|(_, count)| *count > 0) {
                self.book.borrow_mut().count(*what);
            }
        }
    }
}

/// Random runs that never meet a case do not test it. Only for as many runs as one makes by default.
///
/// # Panics
/// When a case was not met.
pub fn check_tally(tally: &Tally) {
    println!("{tally:#?}");
    let runs = tally.get("runs").copied().unwrap_or(0);
    let wanted = [
        "received",
        "Send at once",
        "Send Success",
        "Send Truncated",
        "Send Aborted",
        "Send Timeout",
        "Send Unreachable",
        "Recv Success",
        "Recv Truncated",
        "Recv Unreachable",
        "Connect Success",
        "Connect BadKey",
        "Connect NoResources",
        "Connect EndpointClosed",
        "cancel Withdrawn",
        "cancel Aborted",
        "deferred",
        "taken out of the inbox",
        "taken from a sender that had gone",
        "fetched for the inbox",
        "no memory for the inbox",
        "a message in a slot",
        "credits lent later",
        "down: connection reset",
        "down: disconnected by the peer",
    ];
    for what in wanted {
        assert!(
            runs < 100 || tally.contains_key(what),
            "not once in {runs} runs: {what}"
        );
    }
    assert!(
        runs < 100 || tally["received"] > 20 * runs,
        "few messages arrive"
    );
}

impl<N: Network> std::fmt::Debug for Run<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}
