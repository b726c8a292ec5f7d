//! Moves of nodes and packets in an exploration: nothing happens but a step's immediate effects.
//!
//! ```text
//!   Stop(n)        the process is not polled        Delay(a, b)    packets from a to b are held
//!   Go(n)          it is polled again               Deliver(b, l)  the next held packet on b's link l arrives
//!   Time           a while passes for all that      Pass(a, b)     links with held packets keep them,
//!                  are not stopped                                 the others deliver
//!                                                   Flow(a, b)     all held packets arrive
//! ```
//!
//! Everything that is neither delayed nor for a stopped node arrives at once: a delay costs one
//! step, and packets that are not delayed cost none.
//!
//! The fingerprint consists of each node's history: packets, timers and requests, each with its
//! time, in the node's own order. A node reacts to the same inputs in the same way, so worlds whose
//! nodes have the same histories are equal, in whichever order the nodes had their turns.
//!
//! Owns: the stopped nodes, the delays, the histories.

use crate::cluster::{Cluster, Drive};
use crate::fabric::{Fabric, UnderWay};
use crate::world::NodeId;
use mx_proto::Memory;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A step that does not depend on the kind of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Move {
    /// Stops a process: it is no longer polled.
    Stop(NodeId),
    /// Lets the node go on.
    Go(NodeId),
    /// Holds everything from the first node to the second.
    Delay(NodeId, NodeId),
    /// Delivers the next held packet on one link of this node.
    Deliver(NodeId, u32),
    /// Leaves links with held packets behind; everything else arrives again.
    Pass(NodeId, NodeId),
    /// Delivers everything held between them.
    Flow(NodeId, NodeId),
    /// Lets a span pass in which all nodes that are not stopped do what is due.
    Time,
}

/// Allowed moves of an exploration.
#[derive(Clone, Debug)]
pub struct Moves {
    /// Nodes that may be stopped.
    pub stops: Vec<NodeId>,
    /// Paths that may be delayed.
    pub delays: Vec<(NodeId, NodeId)>,
    /// Maximum number of [`Move::Time`],
    pub times: usize,
    /// and the span of each.
    pub span: Duration,
}

/// Moves nodes and packets, and records histories.
#[derive(Debug)]
pub struct Hand {
    moves: Moves,
    stopped: BTreeSet<NodeId>,
    delayed: BTreeSet<(NodeId, NodeId)>,
    /// Links that were left behind: sender, receiver, and the number there.
    behind: BTreeSet<(NodeId, NodeId, u32)>,
    times: usize,
    histories: Vec<u64>,
}

/// Maximum number of consecutive calls of one node's `progress`, or of consecutive packets; far
/// above what any test needs.
const BUSY_LIMIT: u32 = 100_000;

impl Hand {
    /// Begins without delays and stops.
    pub fn new(moves: Moves, nodes: usize) -> Self {
        Self {
            moves,
            stopped: BTreeSet::new(),
            delayed: BTreeSet::new(),
            behind: BTreeSet::new(),
            times: 0,
            histories: vec![0; nodes],
        }
    }

    /// Returns whether the node is polled.
    pub fn is_running(&self, node: NodeId) -> bool {
        !self.stopped.contains(&node)
    }

    /// Returns the possible moves.
    pub fn steps<M: Memory>(&self, fabric: &Fabric<M>) -> Vec<Move> {
        let mut steps = Vec::new();
        for node in &self.moves.stops {
            let stopped = self.stopped.contains(node);
            steps.push(if stopped {
                Move::Go(*node)
            } else {
                Move::Stop(*node)
            });
        }
        let mut delayed = fabric.under_way();
        delayed.retain(|next| self.is_delayed(next));
        for (from, to) in self.moves.delays.iter().copied() {
            let waits = delayed
                .iter()
                .any(|next| (next.from, next.to) == (from, to));
            let is_delayed = self.delayed.contains(&(from, to));
            if !is_delayed {
                steps.push(Move::Delay(from, to));
            }
            if is_delayed && waits {
                steps.push(Move::Pass(from, to));
            }
            if is_delayed
                || self
                    .behind
                    .iter()
                    .any(|link| (link.0, link.1) == (from, to))
            {
                steps.push(Move::Flow(from, to));
            }
        }
        let waiting = delayed.iter().filter(|next| self.is_running(next.to));
        steps.extend(waiting.map(|next| Move::Deliver(next.to, next.link.index())));
        if self.times < self.moves.times {
            steps.push(Move::Time);
        }
        steps
    }

    fn is_delayed(&self, next: &UnderWay) -> bool {
        self.delayed.contains(&(next.from, next.to))
            || self
                .behind
                .contains(&(next.from, next.to, next.link.index()))
    }

    /// Makes a move, with its immediate effects.
    pub fn take<M: Memory, D: Drive>(
        &mut self,
        step: Move,
        fabric: &Fabric<M>,
        cluster: &mut Cluster<D>,
    ) {
        match step {
            Move::Stop(node) => {
                self.stopped.insert(node);
            }
            Move::Go(node) => {
                self.stopped.remove(&node);
                self.timers(node, cluster);
            }
            Move::Delay(from, to) => {
                self.delayed.insert((from, to));
            }
            Move::Pass(from, to) => {
                self.delayed.remove(&(from, to));
                let mut waiting = fabric.under_way();
                waiting.retain(|next| (next.from, next.to) == (from, to));
                let links = waiting.iter().map(|next| (from, to, next.link.index()));
                self.behind.extend(links);
            }
            Move::Flow(from, to) => {
                self.delayed.remove(&(from, to));
                self.behind.retain(|link| (link.0, link.1) != (from, to));
            }
            Move::Deliver(to, link) => {
                let wanted = |next: &UnderWay| {
                    (next.to, next.link.index()) == (to, link) && self.is_delayed(next)
                };
                if let Some(next) = fabric.under_way().into_iter().find(wanted) {
                    self.deliver(next, fabric, cluster);
                }
            }
            Move::Time => {
                self.times += 1;
                self.pass(self.moves.span, fabric, cluster);
            }
        }
        self.run(fabric, cluster);
    }

    /// Ends all stops and delays.
    pub fn let_go<M: Memory, D: Drive>(&mut self, fabric: &Fabric<M>, cluster: &mut Cluster<D>) {
        self.delayed.clear();
        self.behind.clear();
        for node in std::mem::take(&mut self.stopped) {
            self.timers(node, cluster);
        }
        self.run(fabric, cluster);
    }

    /// Runs a node that was given work, or has begun a new life.
    pub fn asked<D: Drive>(&mut self, node: NodeId, what: impl Hash, cluster: &mut Cluster<D>) {
        self.remember(node, what, cluster);
        progress(node, cluster);
    }

    /// Delivers everything that is not delayed.
    pub fn run<M: Memory, D: Drive>(&mut self, fabric: &Fabric<M>, cluster: &mut Cluster<D>) {
        for _ in 0..BUSY_LIMIT {
            let free = |next: &UnderWay| !self.is_delayed(next) && self.is_running(next.to);
            let Some(next) = fabric.under_way().into_iter().find(free) else {
                return;
            };
            self.deliver(next, fabric, cluster);
        }
        panic!("packets go to and fro for ever");
    }

    /// Lets time pass, with everything due meanwhile.
    pub fn pass<M: Memory, D: Drive>(
        &mut self,
        span: Duration,
        fabric: &Fabric<M>,
        cluster: &mut Cluster<D>,
    ) {
        let clock = cluster.world().clock();
        let until = cluster.world().now().after(span);
        self.run(fabric, cluster);
        loop {
            let nodes = (0..self.histories.len()).filter(|node| self.is_running(*node));
            let due: Vec<_> = nodes
                .filter_map(|node| cluster.node(node)?.deadline())
                .collect();
            // A timer may round a deadline.
            let least = cluster.world().now().after(Duration::from_micros(1));
            let Some(next) = due.into_iter().min().map(|next| next.max(least)) else {
                break;
            };
            if next > until {
                break;
            }
            clock.advance_to(next);
            for node in 0..self.histories.len() {
                if self.is_running(node) {
                    self.timers(node, cluster);
                }
            }
            self.run(fabric, cluster);
        }
        clock.advance_to(until);
    }

    /// Returns a number that is equal only for worlds whose nodes have the same histories. `more`:
    /// further state that must be equal.
    pub fn fingerprint<M: Memory>(&self, fabric: &Fabric<M>, more: impl Hash) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            (&self.histories, self.times).hash(&mut hasher);
            (&self.stopped, &self.delayed, &self.behind).hash(&mut hasher);
            fabric.describe_all(&mut hasher);
            more.hash(&mut hasher);
            u128::from(hasher.finish())
        };
        half(1) << 64 | half(2)
    }

    fn deliver<M: Memory, D: Drive>(
        &mut self,
        next: UnderWay,
        fabric: &Fabric<M>,
        cluster: &mut Cluster<D>,
    ) {
        let mut hasher = DefaultHasher::new();
        fabric.describe(next, &mut hasher);
        self.remember(next.to, hasher.finish(), cluster);
        fabric.deliver(next);
        progress(next.to, cluster);
    }

    fn timers<D: Drive>(&mut self, node: NodeId, cluster: &mut Cluster<D>) {
        let now = cluster.world().now();
        let deadline = cluster.node(node).and_then(|node| node.deadline());
        if deadline.is_some_and(|at| at <= now) {
            self.asked(node, "timers", cluster);
        }
    }

    fn remember<D: Drive>(&mut self, node: NodeId, what: impl Hash, cluster: &Cluster<D>) {
        let mut hasher = DefaultHasher::new();
        (self.histories[node], cluster.world().now().0, what).hash(&mut hasher);
        self.histories[node] = hasher.finish();
    }
}

fn progress<D: Drive>(node: NodeId, cluster: &mut Cluster<D>) {
    let Some(driver) = cluster.node(node) else {
        return;
    };
    for _ in 0..BUSY_LIMIT {
        if !driver.progress() {
            return;
        }
    }
    panic!("node {node} is busy for ever");
}
