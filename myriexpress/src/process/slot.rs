//! A slot for one endpoint at a time, behind its lock.
//!
//! ```text
//!   Shared<Slot>:  generation 6, empty --open--> generation 7, engine --close--> 7, empty
//! ```
//!
//! A slot is never freed, so that a stale handle can be recognised.
//!
//! A child of `fork` inherits it: handles stay good. Its first call that needs the network ends what is
//! the parent's and opens ports anew; without one nothing happens.
//!
//! Owns: the engine, the thread that looks after it.
//! Not here: the table, waiting.

use super::open::{LIBRARY, refused, start_helper};
use super::wait::this_thread;
use crate::engine::Engine;
use crate::error::{Code, Error};
use crate::handles::EndpointHandle;
use mx_proto::Instant;
use mx_proto::port::WakeDescriptors;
use mx_sys::progress::{Guard, WaitStats};
use mx_sys::published::{PortView, Publisher, Sample, values};
use mx_sys::{
    Helper, HostPorts, Interest, MonotonicClock, OpenAnew, OpenError, Progress, Shared, thread,
};
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::RawFd;
use std::sync::Arc;

/// The engine on a real machine.
pub(super) type HostEngine = Engine<HostPorts, MonotonicClock>;

/// The state behind the lock.
#[derive(Default)]
pub(super) struct Slot {
    /// Counts the endpoints that were here.
    generation: u32,
    open: Option<Open>,
    /// An endpoint has just been closed: all waiting threads must wake.
    ended: bool,
    /// See [`Engine::next_generation`].
    request_generation: u32,
    ports: Ports,
}

/// An open endpoint.
pub(super) struct Open {
    /// By itself in memory: this value is moved on callers' stacks, which may be small.
    pub(super) engine: Box<HostEngine>,
    pub(super) about: About,
    pub(super) publisher: Publisher,
    pub(super) helper: Option<Helper<Slot>>,
    pub(super) anew: OpenAnew,
}

/// The owner of the ports of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Ports {
    /// This process.
    #[default]
    Own,
    /// The process that this one was forked from. They must not be used, and what is under way is over.
    Parents,
    /// The same, and everything that was under way has ended.
    Missing,
}

/// The constants of an open endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// The number of its board.
    pub(super) board: u32,
    /// A C function, or 0: only handed through.
    pub(super) error_handler: usize,
}

impl Slot {
    /// The generation of the next endpoint here, and the first one of its requests.
    pub(super) fn next(&self) -> (u32, u32) {
        (self.generation.wrapping_add(1), self.request_generation)
    }

    /// Takes in the endpoint that was made with what [`Self::next`] said.
    pub(super) fn put(&mut self, open: Open) {
        debug_assert!(self.open.is_none());
        self.generation = self.generation.wrapping_add(1);
        self.open = Some(open);
    }

    /// Takes the endpoint out.
    pub(super) fn take(&mut self) -> Option<Open> {
        let open = self.open.take()?;
        self.request_generation = open.engine.next_generation();
        self.ended = true;
        Some(open)
    }

    /// In a child of `fork`: ends what is the parent's.
    #[cold]
    pub(super) fn take_over(&mut self) {
        if self.ports == Ports::Parents {
            self.ports = Ports::Missing;
            if let Some(open) = &mut self.open {
                open.engine.inherit();
            }
        }
    }

    /// In a child of `fork`: opens the ports of the endpoint anew, if there is one, and the slot is this
    /// process's. `shared`: where it is.
    #[cold]
    pub(super) fn open_anew(
        slot: &mut Guard<'_, Self>,
        shared: &Arc<Shared<Self>>,
    ) -> Result<(), Error> {
        if shared.is_mine() {
            // Another thread was faster.
            return Ok(());
        }
        slot.take_over();
        if let Some(tuning) = slot.open.as_ref().map(|open| open.anew.tuning) {
            slot.retune(tuning).map_err(|e| no_descriptors(&e))?;
        }
        if let Some(open) = &mut slot.open {
            // Any call may come to this, on a stack that is too small for opening ports.
            thread::apart("mx-open", || open.open_anew(shared))?;
        }
        slot.claim(shared);
        Ok(())
    }

    /// In a child of `fork`: without the endpoint that it has from its parent, the slot is this process's.
    #[cold]
    pub(super) fn drop_inherited(&mut self, shared: &Shared<Self>) {
        self.take_over();
        if let Some(open) = self.take() {
            open.engine.leave_port();
        }
        self.claim(shared);
    }

    fn claim(&mut self, shared: &Shared<Self>) {
        self.ports = Ports::Own;
        shared.claim();
    }

    /// The generation of the endpoint that is open.
    pub(super) fn open_generation(&self) -> Option<u32> {
        self.open.as_ref().map(|_| self.generation)
    }

    /// The endpoint a handle names.
    #[inline]
    pub(super) fn opened(&mut self, ep: EndpointHandle) -> Result<&mut Open, Error> {
        match &mut self.open {
            Some(open) if self.generation == ep.generation() => Ok(open),
            _ => Err(not_open(ep)),
        }
    }

    /// Its engine.
    #[inline]
    pub(super) fn engine(&mut self, ep: EndpointHandle) -> Result<&mut HostEngine, Error> {
        self.opened(ep).map(|open| &mut *open.engine)
    }

    /// The engine that is open, whichever it is.
    #[inline]
    pub(super) fn any_engine(&mut self) -> Option<&mut HostEngine> {
        self.open.as_mut().map(|open| &mut *open.engine)
    }
}

/// A handle that names no open endpoint.
#[cold]
pub(super) fn not_open(ep: EndpointHandle) -> Error {
    Error::new(
        Code::BadEndpoint,
        format!("{:#x} is no open endpoint of this process", ep.0),
    )
}

#[cold]
pub(super) fn no_descriptors(error: &io::Error) -> Error {
    let what = format!("no descriptors for waking threads: {error}");
    Error::new(Code::NoResources, what)
}

impl Open {
    fn open_anew(&mut self, shared: &Arc<Shared<Slot>>) -> Result<(), Error> {
        let anew = self.anew.attempt();
        let (ports, identity) = anew.open().map_err(|error| refused(&error))?;
        let config = ports.endpoint_config(self.engine.endpoint().config());
        let config = config.map_err(|error| refused(&OpenError::System(error)))?;
        let helper = start_helper(anew.helper, shared)?;
        let parents = self.engine.reopen(config, identity, *ports);
        // Not ours to close, not even in order.
        let _ = ManuallyDrop::new(parents);
        self.publisher = Publisher::new(LIBRARY, &identity, self.about.board);
        self.helper = helper;
        self.anew = anew.opened();
        let id = identity.endpoint.0;
        log::info!(
            "endpoint {id} is open after a fork, session {:#x}",
            identity.session.0
        );
        Ok(())
    }

    /// The counters now.
    pub(super) fn counters(&self, waits: WaitStats) -> Vec<u64> {
        values(&self.sample(waits)).to_vec()
    }

    /// The largest message that goes with its data over whichever port.
    pub(super) fn copy_send_max(&self) -> usize {
        let ports = self.engine.endpoint().port();
        ports.eager_max().min(self.engine.eager_max())
    }

    fn sample(&self, waits: WaitStats) -> Sample<'_> {
        let endpoint = self.engine.endpoint();
        Sample::of(endpoint, PortView::of(endpoint.port()), waits)
    }

    #[cold]
    fn publish(&mut self) {
        let endpoint = self.engine.endpoint();
        let ports = PortView::of(endpoint.port());
        let sample = Sample::of(endpoint, ports, self.publisher.waits());
        self.publisher.publish(&sample);
    }
}

impl Progress for Slot {
    #[inline]
    fn progress(&mut self) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        let busy = open.engine.progress();
        let endpoint = open.engine.endpoint();
        if endpoint.looked_around() && Publisher::is_due(endpoint.port().turn()) {
            open.publish();
        }
        busy
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        if mem::take(&mut self.ended) {
            return Interest::MAX;
        }
        self.any_engine().map_or(0, Engine::take_produced)
    }

    fn arm(&mut self) -> bool {
        self.any_engine().is_some_and(Engine::arm)
    }

    fn disarm(&mut self) {
        if let Some(engine) = self.any_engine() {
            engine.disarm();
        }
    }

    fn note_control(&mut self) {
        if let Some(engine) = self.any_engine() {
            engine.endpoint_mut().port_mut().note_control();
        }
    }

    fn note_ready(&mut self, tokens: &[u64]) {
        if let Some(engine) = self.any_engine() {
            engine.endpoint_mut().port_mut().note_ready(tokens);
        }
    }

    fn set(&self) -> Option<(RawFd, u64)> {
        let open = self.open.as_ref()?;
        Some(open.engine.endpoint().port().set())
    }

    fn deadline(&self) -> Option<Instant> {
        self.open.as_ref().and_then(|open| open.engine.deadline())
    }

    fn descriptors(&self) -> WakeDescriptors {
        let engine = self.open.as_ref().map(|open| &open.engine);
        engine.map_or_else(WakeDescriptors::default, |engine| engine.descriptors())
    }

    fn active(&self) -> bool {
        self.open.is_some() && self.ports == Ports::Own
    }

    fn on_sleep(&mut self, waits: &WaitStats) {
        if let Some(open) = &mut self.open {
            open.publisher.note_waits(waits);
            open.publish();
        }
    }

    fn in_child(&mut self) {
        self.ports = Ports::Parents;
        if let Some(open) = &mut self.open {
            // The thread does not exist here, nor does the page; neither is to be dropped here.
            let helper = ManuallyDrop::new(open.helper.take());
            let publisher = mem::replace(&mut open.publisher, Publisher::silent());
            let _ = (helper, ManuallyDrop::new(publisher));
            open.engine.forget_other_threads(this_thread());
        }
    }
}
