//! Nodes and the loop that runs them.
//!
//! ```text
//!   agenda: (time, order, node) --> step(): the clock advances, node.progress() until nothing
//!                                   is left to do, its deadline goes back into the agenda
//! ```
//!
//! Generic over nodes: an endpoint with an application, or any layer above a port. Detects nodes
//! that poll for ever while no time passes.

use crate::world::{NodeId, World};
use mx_proto::Instant;
use std::time::Duration;

/// Interface of a node to the loop.
pub trait Drive {
    /// Does everything possible now. Returns true if anything happened.
    fn progress(&mut self) -> bool;

    /// Returns the time at which the node has to be called although nothing arrives.
    fn deadline(&self) -> Option<Instant>;
}

/// Some nodes in one world.
#[derive(Debug)]
pub struct Cluster<D> {
    world: World,
    slots: Vec<Slot<D>>,
    steps: u64,
}

#[derive(Debug)]
struct Slot<D> {
    driver: Option<D>,
    /// Time until which the node lives but does nothing.
    stalled_until: Instant,
    /// Earliest entry of the agenda for its deadline.
    planned: Option<Instant>,
    /// Consecutive wake-ups that were requested, were due and achieved nothing.
    fruitless: u32,
}

/// Maximum number of consecutive calls of one node's `progress` that return true while no time
/// passes. Far above what the largest test message needs.
const BUSY_LIMIT: u32 = 100_000;

/// Maximum of [`Slot::fruitless`]. A timer may round a deadline, so a few are allowed.
const FRUITLESS_LIMIT: u32 = 100;

impl<D: Drive> Cluster<D> {
    /// Makes a cluster without nodes.
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            slots: Vec::new(),
            steps: 0,
        }
    }

    /// Returns the world of the cluster.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Returns the number of the next node.
    pub fn next_id(&self) -> NodeId {
        self.slots.len()
    }

    /// Adds a node and lets it run once.
    pub fn add(&mut self, driver: D) -> NodeId {
        let id = self.slots.len();
        self.slots.push(Slot {
            driver: Some(driver),
            stalled_until: Instant::default(),
            planned: None,
            fruitless: 0,
        });
        self.world.wake(self.world.now(), id);
        id
    }

    /// Returns the number of nodes ever added.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns a node, unless it is dead. Callers that give it work call [`Self::poke`] afterwards.
    pub fn node(&mut self, id: NodeId) -> Option<&mut D> {
        self.slots.get_mut(id)?.driver.as_mut()
    }

    /// Returns a node for inspection, unless it is dead.
    pub fn peek(&self, id: NodeId) -> Option<&D> {
        self.slots.get(id)?.driver.as_ref()
    }

    /// Runs a node at the present time, in the next step.
    pub fn poke(&self, id: NodeId) {
        self.world.wake(self.world.now(), id);
    }

    /// Removes a node; dropping the result is its death.
    pub fn kill(&mut self, id: NodeId) -> Option<D> {
        let slot = self.slots.get_mut(id)?;
        slot.planned = None;
        slot.driver.take()
    }

    /// Begins a new life in a dead node's place.
    pub fn restart(&mut self, id: NodeId, driver: D) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.driver = Some(driver);
            slot.stalled_until = Instant::default();
            slot.planned = None;
            self.world.wake(self.world.now(), id);
        }
    }

    /// Lets the node do nothing for a while; its port fills up meanwhile.
    pub fn stall(&mut self, id: NodeId, span: Duration) {
        let until = self.world.now().after(span);
        if let Some(slot) = self.slots.get_mut(id) {
            slot.stalled_until = until;
            self.world.wake(until, id);
        }
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs the node of the agenda's next entry. Returns `None` if nothing will ever happen again
    /// by itself.
    ///
    /// # Panics
    /// If a node polls for ever while no time passes.
    pub fn step(&mut self) -> Option<NodeId> {
        let id = self.world.advance()?;
        self.steps += 1;
        let now = self.world.now();
        let slot = self.slots.get_mut(id)?;
        if slot.planned.is_some_and(|at| at <= now) {
            slot.planned = None;
        }
        if now < slot.stalled_until {
            return Some(id);
        }
        let Some(driver) = slot.driver.as_mut() else {
            return Some(id);
        };
        let mut calls = 0;
        while driver.progress() {
            calls += 1;
            assert!(calls < BUSY_LIMIT, "node {id} is busy for ever at {now:?}");
        }
        let Some(deadline) = driver.deadline() else {
            return Some(id);
        };
        let mut at = deadline;
        if deadline <= now {
            slot.fruitless = if calls > 0 { 0 } else { slot.fruitless + 1 };
            assert!(
                slot.fruitless < FRUITLESS_LIMIT,
                "node {id} wants to be called at {deadline:?}, which is past, but does nothing"
            );
            at = now.after(Duration::from_micros(1));
        } else {
            slot.fruitless = 0;
        }
        if slot.planned.is_none_or(|planned| at < planned) {
            slot.planned = Some(at);
            self.world.wake(at, id);
        }
        Some(id)
    }

    /// Runs until `until`. Returns false if the step limit is reached before.
    pub fn run_until(&mut self, until: Instant, step_limit: u64) -> bool {
        for _ in 0..step_limit {
            if self.world.next_at().is_none_or(|at| at > until) {
                self.world.clock().advance_to(until);
                return true;
            }
            self.step();
        }
        false
    }

    /// Runs while `going` returns true. Returns false if nothing happens any more or the step limit
    /// is reached before.
    pub fn run_while(&mut self, step_limit: u64, mut going: impl FnMut(&mut Self) -> bool) -> bool {
        for _ in 0..step_limit {
            if !going(self) {
                return true;
            }
            if self.step().is_none() {
                return !going(self);
            }
        }
        false
    }

    /// Runs until nothing happens any more. Returns false if the step limit is reached before.
    pub fn run_idle(&mut self, step_limit: u64) -> bool {
        (0..step_limit).any(|_| self.step().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Alarm {
        world: World,
        at: Option<Instant>,
        rung: u32,
    }

    impl Drive for Alarm {
        fn progress(&mut self) -> bool {
            let due = self.at.is_some_and(|at| at <= self.world.now());
            if due {
                self.at = None;
                self.rung += 1;
            }
            due
        }

        fn deadline(&self) -> Option<Instant> {
            self.at
        }
    }

    #[test]
    fn a_deadline_is_kept_and_a_stalled_node_is_late() {
        let world = World::new(0);
        let mut cluster = Cluster::new(&world);
        let alarm = |at| Alarm {
            world: world.clone(),
            at: Some(Instant(at)),
            rung: 0,
        };
        let (a, b) = (cluster.add(alarm(100)), cluster.add(alarm(100)));
        cluster.stall(b, Duration::from_nanos(500));
        assert!(cluster.run_until(Instant(200), 100));
        assert_eq!(cluster.node(a).map(|alarm| alarm.rung), Some(1));
        assert_eq!(cluster.node(b).map(|alarm| alarm.rung), Some(0));
        assert!(cluster.run_idle(100));
        assert_eq!(cluster.node(b).map(|alarm| alarm.rung), Some(1));
        assert_eq!(world.now(), Instant(500));
    }

    struct Restless;

    impl Drive for Restless {
        fn progress(&mut self) -> bool {
            false
        }

        fn deadline(&self) -> Option<Instant> {
            Some(Instant(0))
        }
    }

    #[test]
    #[should_panic(expected = "which is past, but does nothing")]
    fn a_node_that_asks_for_polls_and_does_nothing_is_found_out() {
        let mut cluster = Cluster::new(&World::new(0));
        cluster.add(Restless);
        cluster.run_idle(10_000);
    }
}
