//! Nodes and the loop that runs them.
//!
//! ```text
//!   agenda: (time, order, node) --> step(): clock moves, node.progress() until it has no more
//!                                   to do, its deadline goes back into the agenda
//! ```
//!
//! Generic over what a node is: an endpoint with an application, or any layer above a port.
//! Finds by itself: nodes that want to be polled for ever while no time passes.

use crate::world::{NodeId, World};
use mx_proto::Instant;
use std::time::Duration;

/// A node, as the loop uses it.
pub trait Drive {
    /// Does what can be done now. Returns true when anything happened.
    fn progress(&mut self) -> bool;

    /// When it wants to be called although nothing arrives.
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
    /// The time until which the node lives but does nothing.
    stalled_until: Instant,
    /// The earliest wake-up in the agenda for its deadline.
    planned: Option<Instant>,
    /// Wake-ups in a row that were asked for, were due and achieved nothing.
    fruitless: u32,
}

/// Calls of one node's `progress` in a row, all of them saying "something happened", while no time
/// passes. Far above what the largest test message needs.
const BUSY_LIMIT: u32 = 100_000;

/// See [`Slot::fruitless`]. A deadline may be rounded by its timer, so a few are no fault.
const FRUITLESS_LIMIT: u32 = 100;

impl<D: Drive> Cluster<D> {
    /// No nodes yet.
    pub fn new(world: &World) -> Self {
        Self {
            world: world.clone(),
            slots: Vec::new(),
            steps: 0,
        }
    }

    /// The world it runs in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Number the next node will have.
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

    /// Nodes ever added.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A node, unless it is dead. Callers that give it something to do call [`Self::poke`] after.
    pub fn node(&mut self, id: NodeId) -> Option<&mut D> {
        self.slots.get_mut(id)?.driver.as_mut()
    }

    /// A node, to be looked at, unless it is dead.
    pub fn peek(&self, id: NodeId) -> Option<&D> {
        self.slots.get(id)?.driver.as_ref()
    }

    /// Runs a node at the present time, in the next step.
    pub fn poke(&self, id: NodeId) {
        self.world.wake(self.world.now(), id);
    }

    /// Takes a node out; dropping what comes back is its death.
    pub fn kill(&mut self, id: NodeId) -> Option<D> {
        let slot = self.slots.get_mut(id)?;
        slot.planned = None;
        slot.driver.take()
    }

    /// Puts a new life in a dead node's place.
    pub fn restart(&mut self, id: NodeId, driver: D) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.driver = Some(driver);
            slot.stalled_until = Instant::default();
            slot.planned = None;
            self.world.wake(self.world.now(), id);
        }
    }

    /// The node does nothing for a while; its port fills up meanwhile.
    pub fn stall(&mut self, id: NodeId, span: Duration) {
        let until = self.world.now().after(span);
        if let Some(slot) = self.slots.get_mut(id) {
            slot.stalled_until = until;
            self.world.wake(until, id);
        }
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Goes to the next entry of the agenda and runs its node. `None`: nothing will ever happen
    /// again by itself.
    ///
    /// # Panics
    /// When a node wants to be polled for ever without time passing.
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

    /// Steps until `until`. Returns false when the step limit was reached before.
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

    /// Steps until `done` says so. Returns false when nothing happens any more or the step limit
    /// was reached before.
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

    /// Steps until nothing happens any more. Returns false when the step limit was reached before.
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
