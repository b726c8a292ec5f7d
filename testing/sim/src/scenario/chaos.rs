//! Random operations and random faults: everything may happen, at any time.
//!
//! ```text
//!   everything happens: kill, restart, stall, cut, heal, reset
//!      --> all is healed, what must still arrive is taken in --> everything is closed
//! ```
//!
//! Owns: what a run draws.

use super::{Network, Stage, Tally};
use crate::{Habits, NodeId, Rng, World};
use mx_proto::Config;
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

/// A run with random operations.
pub struct Run<N: Network> {
    stage: Stage<N>,
    rng: Rng,
    nodes: usize,
    gentle: bool,
}

impl<N: Network> Run<N> {
    /// Some nodes, which have not begun.
    pub fn new(world: World, rng: Rng, network: N) -> Self {
        Self::with_habits(world, rng, network, |_| {})
    }

    /// A run with other habits than those that were drawn.
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
            deliberates: rng
                .pick(&[None, Some(0), Some(50), Some(8_000)])
                .map(Duration::from_micros),
            ..Habits::default()
        };
        // Drawn elsewhere, so that the seeds of old keep what they drew.
        let mut other = Rng::new(world.seed() ^ 0x7065_6572);
        let millis = other.pick(&[None, None, Some(100), Some(1_000)]);
        habits.copies = other.chance(0.7);
        habits.answers = other.chance(0.5);
        change(&mut habits);
        let config = random_config(&mut rng, millis.map(Duration::from_millis));
        Self {
            stage: Stage::new((&world, network), nodes, (config, habits), false),
            rng,
            nodes,
            gentle,
        }
    }

    fn two(&mut self) -> (NodeId, NodeId) {
        let a = self.rng.index(self.nodes);
        (a, (a + 1 + self.rng.index(self.nodes - 1)) % self.nodes)
    }

    fn chaos(&mut self) {
        let (a, b) = self.two();
        let Self { stage, rng, .. } = self;
        let what = rng.below(8);
        stage.world.note(a, format!("--- {what} n{a} n{b}"));
        match what {
            0 => stage.kill(a),
            1 => {
                stage.network.power_off(a);
                stage.kill(a);
            }
            2 | 3 => stage.begin(a),
            4 => {
                let span = rng.pick(&[1, 20, 6_000]);
                stage.cluster.stall(a, Duration::from_millis(span));
            }
            5 => stage.network.cut(a, b),
            6 => stage.network.heal(a, b),
            _ => stage.network.reset(a, b),
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
            let span = self.stage.habits.pause * self.rng.within(10..=100) as u32;
            self.stage.run(span);
            if wild {
                self.chaos();
            }
        }
        for a in 0..self.nodes {
            (a + 1..self.nodes).for_each(|b| self.stage.network.heal(a, b));
        }
        self.stage.network.calm();
        self.stage.take_in_the_rest();
        self.close_all();
    }

    /// Adds what was counted, so that it is seen whether the runs did anything.
    pub fn tally(&self, tally: &mut Tally) {
        self.stage.tally(tally);
    }

    /// Ends all nodes, so that their network can be looked at without them.
    pub fn end(self) -> (World, N) {
        drop(self.stage.cluster);
        (self.stage.world, self.stage.network)
    }

    fn close_all(&mut self) {
        let stage = &mut self.stage;
        for id in 0..self.nodes {
            if let Some(node) = stage.cluster.node(id) {
                node.close();
                stage.cluster.poke(id);
            }
        }
        stage.run(Duration::from_secs(10));
        for id in 0..self.nodes {
            let Some(node) = stage.cluster.node(id) else {
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
                ("a data link", node.endpoint.stats().data_links),
                ("a data link lost", node.endpoint.stats().data_links_lost),
                ("a session moved", node.endpoint.stats().moved),
            ];
            for (what, _) in met.iter().filter(|(_, count)| *count > 0) {
                stage.book.borrow_mut().count(*what);
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
        self.stage.fmt(f)
    }
}
