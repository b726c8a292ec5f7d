//! The common state of all nodes of one simulation: time, the agenda, chance, the log, and machines.
//!
//! ```text
//!   wake(at, node) --> agenda, ordered by (time, order of entry) --> next() --> clock moves
//! ```

use crate::clock::VirtualClock;
use crate::home::{Home, Homes};
use crate::rng::Rng;
use crate::trace::{Entry, Trace};
use mx_proto::{Clock, EndpointId, Instant, NicId};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// Number of a node in its cluster.
pub type NodeId = usize;

/// A handle; clones are the same world.
#[derive(Clone, Debug)]
pub struct World {
    clock: VirtualClock,
    inner: Rc<RefCell<Inner>>,
}

#[derive(Debug)]
struct Inner {
    seed: u64,
    rng: Rng,
    agenda: BinaryHeap<Reverse<(Instant, u64, NodeId)>>,
    /// Entries ever made: the second half of the order, so that equal times stay first come,
    /// first served.
    entries: u64,
    trace: Trace,
    homes: Homes,
}

impl World {
    /// A world in which chance follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            seed,
            rng: Rng::new(seed),
            agenda: BinaryHeap::new(),
            entries: 0,
            trace: Trace::default(),
            homes: Homes::default(),
        };
        Self {
            clock: VirtualClock::new(),
            inner: Rc::new(RefCell::new(inner)),
        }
    }

    /// The seed it was made from.
    pub fn seed(&self) -> u64 {
        self.inner.borrow().seed
    }

    /// The clock of all nodes.
    pub fn clock(&self) -> VirtualClock {
        self.clock.clone()
    }

    /// Now.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A generator of one's own, derived from the world's.
    pub fn fork_rng(&self) -> Rng {
        self.inner.borrow_mut().rng.fork()
    }

    /// Lets `node` be run at `at`, or now if that has passed.
    pub fn wake(&self, at: Instant, node: NodeId) {
        let at = at.max(self.now());
        let mut inner = self.inner.borrow_mut();
        inner.entries += 1;
        let order = inner.entries;
        inner.agenda.push(Reverse((at, order, node)));
    }

    /// Lets `node` be run after `span`.
    pub fn wake_after(&self, span: Duration, node: NodeId) {
        self.wake(self.now().after(span), node);
    }

    /// When the next entry of the agenda is due.
    pub fn next_at(&self) -> Option<Instant> {
        self.inner
            .borrow()
            .agenda
            .peek()
            .map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next entry and moves the clock there.
    pub fn advance(&self) -> Option<NodeId> {
        let Reverse((at, _, node)) = self.inner.borrow_mut().agenda.pop()?;
        self.clock.advance_to(at);
        Some(node)
    }

    /// Puts a node there. Nodes on the same machine have the same addresses.
    pub fn set_home(&self, node: NodeId, home: Home) {
        self.inner.borrow_mut().homes.set(node, home);
    }

    /// Gives a node a machine with these addresses.
    pub fn set_addresses(&self, node: NodeId, addresses: Vec<NicId>) {
        let home = self.home(node);
        self.set_home(node, Home { addresses, ..home });
    }

    /// The place of a node.
    pub fn home(&self, node: NodeId) -> Home {
        self.inner.borrow().homes.of(node)
    }

    /// The addresses of a node's machine; none where all are on one machine without addresses.
    pub fn addresses(&self, node: NodeId) -> Vec<NicId> {
        self.home(node).addresses
    }

    /// The endpoint number of a node.
    pub fn number(&self, node: NodeId) -> EndpointId {
        let number = self.home(node).number;
        number.unwrap_or(EndpointId(node as u32))
    }

    /// Whether a peer may know the node under that address: it has it, or had it, or is behind it.
    pub fn proves(&self, node: NodeId, nic: NicId) -> bool {
        self.inner.borrow().homes.proves(node, nic)
    }

    /// Adds an entry to the log.
    pub fn log(&self, entry: Entry) {
        let now = self.now();
        self.inner.borrow_mut().trace.push(now, entry);
    }

    /// Adds a remark to the log.
    pub fn note(&self, node: NodeId, text: impl Into<String>) {
        self.log(Entry::Note {
            node,
            text: text.into(),
        });
    }

    /// The log, readable.
    pub fn dump(&self) -> String {
        let inner = self.inner.borrow();
        format!("seed {}\n{}", inner.seed, inner.trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_run_in_the_order_of_entry() {
        let world = World::new(0);
        for node in [4, 2, 9] {
            world.wake(Instant(10), node);
        }
        world.wake(Instant(5), 1);
        let order: Vec<_> = std::iter::from_fn(|| world.advance()).collect();
        assert_eq!(order, [1, 4, 2, 9]);
        assert_eq!(world.now(), Instant(10));
    }
}
