//! The handle that tests hold.
//!
//! ```text
//!   Fake --+-- library(), machine(..).library() ---> libfabric_sys::Library ---> code under test
//!          +-- faults(), kill, die, step  ---------> events that the code has to handle
//!          `-- violations(), stats(), lent() ------> its effects
//! ```
//!
//! Clones are handles of the same fabric.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use libfabric_sys::Library;

use crate::checker::{Span, Stats};
use crate::endpoint::Endpoint;
use crate::faults::{Death, Faults};
use crate::objects::{Id, Shared};
use crate::shape::Shape;
use crate::slots::{Slot, Tenant};
use crate::state::{MachineRecord, State};

/// A fabric in memory, with one machine on it that has all providers; [`Fake::machine`] adds more.
///
/// A test keeps a handle while any of its libraries is in use.
#[derive(Clone)]
pub struct Fake {
    shared: Arc<Shared>,
    first: Machine,
}

/// A process or machine: its view of a fabric, and the objects it opens.
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
    /// Reserves the functions of `library` until it is dropped.
    _slot: Arc<Slot>,
    /// Library of all callers: offers of one library cannot be opened through another.
    library: Library,
    number: usize,
}

impl Fake {
    /// Makes a fabric with one provider. Equal shapes, seeds and calls give equal runs.
    pub fn new(shape: Shape, seed: u64) -> Self {
        Self::offering(vec![shape], seed)
    }

    /// Makes a fabric with several providers, in the order in which `fi_getinfo` lists them. They
    /// cannot communicate with each other.
    pub fn offering(shapes: Vec<Shape>, seed: u64) -> Self {
        let offers = shapes.into_iter().map(Arc::new).collect();
        let shared = Arc::new_cyclic(|me| Shared {
            state: Mutex::new(State::new(me.clone(), offers, seed)),
        });
        let first = Machine::on(&shared, None);
        Self { shared, first }
    }

    /// Returns the library of the first machine.
    pub fn library(&self) -> Library {
        self.first.library()
    }

    /// Returns the first machine.
    pub fn first(&self) -> &Machine {
        &self.first
    }

    /// Adds a machine to the fabric. It has only the named providers, or all if none is named.
    pub fn machine(&self, providers: &[&str]) -> Machine {
        let named = providers
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>();
        Machine::on(&self.shared, (!named.is_empty()).then_some(named))
    }

    /// Changes the faults from now on.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.with(|state| change(&mut state.faults));
    }

    /// Makes every endpoint poll once.
    pub fn step(&self) {
        self.shared.with(State::step);
    }

    /// Returns all violations so far, in order.
    pub fn violations(&self) -> Vec<String> {
        self.shared.with(|state| state.violations.clone())
    }

    /// Takes the violations so far, for tests that break rules.
    pub fn take_violations(&self) -> Vec<String> {
        self.shared
            .with(|state| std::mem::take(&mut state.violations))
    }

    /// # Panics
    ///
    /// If a rule was broken.
    pub fn assert_clean(&self) {
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "rules broken:\n  {}",
            violations.join("\n  ")
        );
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> Stats {
        self.shared.with(|state| state.stats)
    }

    /// Returns the number of operations whose memory and contexts the provider has: posted, and
    /// neither completed nor returned by closing.
    pub fn lent(&self) -> usize {
        self.shared.with(|state| state.operations.len())
    }

    /// Returns the number of open registrations, and their bytes.
    pub fn registered(&self) -> (usize, usize) {
        self.shared.with(|state| {
            let bytes = state.regions.values().map(|region| region.span.len).sum();
            (state.regions.len(), bytes)
        })
    }

    /// Returns the objects that are still open, for tests of leaks.
    pub fn open_objects(&self) -> Vec<String> {
        self.shared.with(|state| state.open_objects(|_, _| true))
    }

    /// Returns the addresses of the endpoints that are enabled and alive, oldest first.
    pub fn addresses(&self) -> Vec<Vec<u8>> {
        self.shared.with(|state| {
            let alive = state.endpoints.values().filter(|ep| ep.enabled && !ep.dead);
            alive.map(|ep| ep.address.clone()).collect()
        })
    }

    /// Kills the endpoint at an address: it stops, and its peers see `death`. Returns false if
    /// there is none.
    pub fn kill(&self, address: &[u8], death: Death) -> bool {
        self.shared.with(|state| {
            let found = state
                .endpoints
                .iter()
                .find(|(_, ep)| ep.enabled && !ep.dead && ep.address == address);
            let found = found.map(|(id, _)| *id);
            found.inspect(|id| kill(state, *id, death)).is_some()
        })
    }

    /// Cuts two machines off from each other, without errors.
    pub fn cut(&self, a: &Machine, b: &Machine) {
        self.shared.with(|state| state.cut(a.number, b.number));
    }

    /// Ends a cut; waiting operations continue.
    pub fn heal(&self, a: &Machine, b: &Machine) {
        self.shared.with(|state| state.heal(a.number, b.number));
    }

    /// Drops everything in flight between two machines, whose endpoints have to connect again.
    /// Operations end with `FI_ECONNRESET`.
    pub fn sever(&self, a: &Machine, b: &Machine) {
        self.shared.with(|state| state.sever(a.number, b.number));
    }

    /// Returns the operations and registrations that use this memory.
    pub fn holds(&self, start: *const u8, len: usize) -> Vec<String> {
        self.shared
            .with(|state| state.holders(Span::new(start.addr(), len)))
    }

    /// Breaks every open completion queue: `-FI_EOVERRUN` from the next read on.
    pub fn overrun(&self) {
        self.shared.with(|state| state.break_queues(None));
    }
}

impl Machine {
    fn on(shared: &Arc<Shared>, providers: Option<Vec<String>>) -> Self {
        let number = shared.with(|state| {
            state.machines.push(MachineRecord {
                providers,
                removed: BTreeSet::new(),
            });
            state.machines.len() - 1
        });
        let slot = Slot::take(Tenant {
            home: Arc::downgrade(shared),
            machine: number,
        });
        // SAFETY: the functions behave like libfabric's, with its layouts. After the last handle is
        // dropped they report no providers, and may later belong to another fabric.
        let library = unsafe { Library::from_functions(slot.functions()) };
        Self {
            shared: shared.clone(),
            _slot: Arc::new(slot),
            library,
            number,
        }
    }

    /// Returns the library of these functions.
    pub fn library(&self) -> Library {
        self.library.clone()
    }

    /// Breaks the completion queues that this machine has opened: `-FI_EOVERRUN` from the next read
    /// on.
    pub fn overrun(&self) {
        let here = Some(self.number);
        self.shared.with(|state| state.break_queues(here));
    }

    /// Kills every endpoint that this machine has opened.
    pub fn kill(&self, death: Death) {
        self.shared.with(|state| {
            let mine = |(_, ep): &(&Id, &Endpoint)| ep.machine == self.number && !ep.dead;
            let mine = state.endpoints.iter().filter(mine);
            let all: Vec<Id> = mine.map(|(id, _)| *id).collect();
            for ep in all {
                kill(state, ep, death);
            }
        });
    }

    /// Removes the hardware under this machine's open domains: every call but `fi_close` returns
    /// `-FI_ENODEV`, and peers see `death`. Domains opened later have hardware again.
    pub fn unplug(&self, death: Death) {
        self.fail(death, |_| true);
    }

    /// Removes a device, by its index in the shape, until [`Machine::put_back`].
    pub fn remove(&self, device: usize, death: Death) {
        self.fail(death, |it| it == device);
        self.shared.with(|state| {
            state.machines[self.number].removed.insert(device);
        });
    }

    /// Restores the device.
    pub fn put_back(&self, device: usize) {
        self.shared.with(|state| {
            state.machines[self.number].removed.remove(&device);
        });
    }

    fn fail(&self, death: Death, hit: impl Fn(usize) -> bool) {
        self.shared.with(|state| {
            let mut dead = Vec::new();
            for (id, domain) in &mut state.domains {
                if domain.machine == self.number && hit(domain.device) {
                    domain.dead = true;
                    dead.push(*id);
                }
            }
            let on = |(_, ep): &(&Id, &Endpoint)| dead.contains(&ep.domain) && !ep.dead;
            let all: Vec<Id> = state
                .endpoints
                .iter()
                .filter(on)
                .map(|(id, _)| *id)
                .collect();
            for ep in all {
                kill(state, ep, death);
            }
        });
    }
}

fn kill(state: &mut State, ep: Id, death: Death) {
    state.on_gone(ep, death);
    let endpoint = state.ep(ep);
    endpoint.dead = true;
    endpoint.finishing.clear();
    endpoint.remote.clear();
}
