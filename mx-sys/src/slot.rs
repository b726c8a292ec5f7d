//! A slot for one endpoint at a time, behind its lock, with the endpoint's helper thread and its published page.
//!
//! ```text
//!   Shared<Slot>:   empty --put--> endpoint --take--> empty
//!                                     |  fork
//!                                     v
//!                                 inherited --a call that needs the network--> open_anew, as in the parent
//!                                     |  `---- one that starts or ends ------> drop_inherited: empty
//!                                     `------- no call: nothing happens
//! ```
//!
//! Owns: the record of who owns the ports after a fork, the end of the parent's operations.
//! Out of scope: the lock, waiting ([`Shared`]), the calls of an engine.

use crate::clock::MonotonicClock;
use crate::nic;
use crate::progress::{Guard, Helper, Interest, Progress, Shared, WaitStats};
use crate::published::{MethodGauges, Publisher, Sample};
use crate::route::host::HostPorts;
use crate::route::open::OpenError;
use crate::route::reopen::ReopenOptions;
use crate::user_memory::UserMemory;
use crate::{reserve, thread};
use mx_port_base::close_on_fork;
use mx_proto::port::{LinkControl, WakeDescriptors};
use mx_proto::{Config, Endpoint, Identity, Instant, Owner};
use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Library's part of an open endpoint: the protocol endpoint over this machine's ports, with the owner of its
/// operations.
pub trait Engine: Sized + Send + 'static {
    /// Name of the library on the published page.
    const LIBRARY: &'static str;
    /// Owner type of the endpoint.
    type Owner: Owner<Memory = UserMemory>;
    /// State of the slot that outlives its engines.
    type PersistentState: Send;

    /// Returns the endpoint.
    fn endpoint(&self) -> &Endpoint<HostPorts, MonotonicClock, Self::Owner>;

    /// Returns the endpoint, to arm and disarm it and to reach its port.
    fn endpoint_mut(&mut self) -> &mut Endpoint<HostPorts, MonotonicClock, Self::Owner>;

    /// See [`Progress::progress`].
    fn progress(&mut self, beside: &mut Self::PersistentState) -> bool;

    /// See [`Progress::take_produced`].
    fn take_produced(&mut self) -> Interest;

    /// Returns whether the program has suspended receiving. If so, threads sleep without the ports until the thread
    /// that ends the halt wakes them, or a [keep-alive](mx_proto::port::LinkControl::keep_alive) is due.
    fn is_halted(&self) -> bool {
        false
    }

    /// Returns the counters of a method; `None` if the engine is none.
    fn gauges(&self) -> Option<MethodGauges> {
        None
    }

    /// Adapts the persistent state when the engine leaves its slot.
    fn on_taken(&mut self, beside: &mut Self::PersistentState);

    /// Forgets the parent's other threads, which do not exist in a child of `fork`; called in the child right after
    /// `fork`.
    fn forget_threads(slot: &mut Slot<Self>);

    /// Ends all operations without using the ports: in a child of `fork`, whose ports are the parent's, or after the
    /// host has closed the descriptors. Nothing may be posted until [`Engine::reopen`].
    fn inherit(&mut self);

    /// Continues over new ports, opened on board `board` if one was asked for. Returns the old ports.
    fn reopen(
        &mut self,
        board: Option<u32>,
        config: Config,
        identity: Identity,
        ports: HostPorts,
    ) -> HostPorts;

    /// Drops everything but the ports, which are leaked.
    fn leave_port(self);

    /// See [`Progress::give_back_due`].
    fn give_back_due() -> Option<Instant> {
        None
    }

    /// See [`Progress::give_back`].
    fn give_back() {}
}

/// State behind the lock of one endpoint: the endpoint, while it is open, and the state that outlives it.
pub struct Slot<E: Engine> {
    open: Option<Open<E>>,
    /// Number of endpoints so far: a thread that waits for one must not continue with the next.
    generation: u32,
    /// Whether an endpoint has just left, so that all waiting threads must wake.
    ended: bool,
    ports: Ports,
    /// State that outlives engines.
    pub persistent: E::PersistentState,
}

/// Open endpoint in its [`Slot`], with its helper thread and the page that tools read.
pub struct Open<E: Engine> {
    /// Engine; boxed because this value is moved on callers' stacks, which may be small.
    pub engine: Box<E>,
    /// Number of the endpoint's board.
    pub board: u32,
    helper: Option<Helper<Slot<E>>>,
    publisher: Publisher,
    reopen_options: ReopenOptions,
}

/// Returns whether [`Slot::publish`] is due after a poll.
#[inline]
pub fn is_to_be_shown(engine: &impl Engine) -> bool {
    Publisher::is_due(engine.endpoint().port().turn())
}

/// Owner of an endpoint's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ports {
    /// The current process.
    Own,
    /// The parent of this forked process. The ports must not be used, and operations in progress are lost.
    Parents,
    /// No process: the parent's operations have ended, and the ports are not reopened yet.
    Missing,
    /// No process: the host has closed the descriptors, and all operations have ended.
    Lost,
}

/// Reasons why an endpoint cannot be opened, or reopened in a child of `fork`.
#[derive(Debug)]
pub enum SlotError {
    /// The ports cannot be opened.
    Ports(OpenError),
    /// The kernel has no random numbers.
    Random(io::Error),
    /// No descriptors are left for doorbells.
    Doorbells(io::Error),
    /// The helper thread cannot be started.
    Helper(io::Error),
}

impl<E: Engine> Slot<E> {
    /// Makes a slot without an endpoint; `beside` is its persistent state.
    pub fn new(beside: E::PersistentState) -> Self {
        Self {
            open: None,
            generation: 0,
            ended: false,
            ports: Ports::Own,
            persistent: beside,
        }
    }

    /// Returns the number of the current endpoint, counting the endpoints of this slot; of the last one if none is
    /// open, and 0 before the first.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Stores a newly opened endpoint, with the next number, in this slot, which must be empty; publishes its counters.
    pub fn put(&mut self, open: Open<E>) {
        debug_assert!(self.open.is_none());
        self.generation = self.generation.wrapping_add(1);
        self.open = Some(open);
        self.publish();
    }

    /// Removes the endpoint and wakes all threads that wait for it; `None` if the slot is empty. If the host has closed
    /// its descriptors ([`Guard::check_lost`]), the caller must leak the ports ([`Engine::leave_port`]).
    pub fn take(&mut self) -> Option<Open<E>> {
        let mut open = self.open.take()?;
        open.engine.on_taken(&mut self.persistent);
        self.ended = true;
        if self.ports == Ports::Lost {
            self.ports = Ports::Own;
        }
        Some(open)
    }

    /// Returns the endpoint; `None` if none is open.
    #[inline]
    pub fn open(&self) -> Option<&Open<E>> {
        self.open.as_ref()
    }

    /// Returns the engine of the endpoint; `None` if none is open.
    #[inline]
    pub fn engine(&mut self) -> Option<&mut E> {
        self.open.as_mut().map(|open| &mut *open.engine)
    }

    /// Returns the engine (`None` if no endpoint is open) and the persistent state.
    #[inline]
    pub fn parts(&mut self) -> (Option<&mut E>, &mut E::PersistentState) {
        let engine = self.open.as_mut().map(|open| &mut *open.engine);
        (engine, &mut self.persistent)
    }

    /// Writes the counters, and some of the peers, to the page that tools read. Called when [`is_to_be_shown`] says so.
    /// Also ends all operations if the ports have found that the host closed their descriptors.
    #[cold]
    pub fn publish(&mut self) {
        if self.is_used()
            && self
                .engine()
                .is_some_and(|engine| engine.endpoint().port().is_lost())
        {
            self.lose();
        }
        if let Some(open) = &mut self.open {
            let waits = open.publisher.waits();
            open.publisher.publish(&sample(&*open.engine, waits));
            open.publisher.publish_peers(open.engine.endpoint());
        }
    }

    /// Returns whether there is an endpoint whose ports this process owns.
    fn is_used(&self) -> bool {
        self.open.is_some() && self.ports == Ports::Own
    }

    /// Returns whether the host has closed descriptors of the endpoint. All operations have then ended; their
    /// completions can still be collected, but nothing is sent or received any more.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.ports == Ports::Lost
    }

    /// Ends all operations without using the ports, whose descriptors the host has closed.
    #[cold]
    fn lose(&mut self) {
        if !self.is_used() {
            return;
        }
        self.ports = Ports::Lost;
        let Some(engine) = self.engine() else {
            return;
        };
        engine.endpoint_mut().port_mut().lose();
        engine.inherit();
        self.ended = true;
        close_on_fork::forget_lost();
        log::error!(
            "the host has closed descriptors of this library: the endpoint has ended; close only descriptors that \
             the host has opened, or do so before the library is initialized"
        );
    }

    /// Ends the parent's operations in a child of `fork`, without using the ports; has no effect otherwise, or a second
    /// time. [`Self::open_anew`] opens new ports.
    #[cold]
    pub fn take_over(&mut self) {
        if self.ports == Ports::Parents {
            self.ports = Ports::Missing;
            if let Some(engine) = self.engine() {
                engine.inherit();
            }
        }
    }

    /// Reopens the ports of the endpoint, if there is one, in a child of `fork`, and claims the slot for this process.
    /// Has no effect in a process that owns the slot already. `shared`: the slot's lock.
    #[cold]
    pub fn open_anew(
        slot: &mut Guard<'_, Self>,
        shared: &Arc<Shared<Self>>,
    ) -> Result<(), SlotError> {
        if shared.is_mine() {
            // Another thread has reopened them.
            return Ok(());
        }
        slot.take_over();
        if let Some(tuning) = slot.open().map(|open| open.reopen_options.tuning) {
            slot.retune(tuning).map_err(SlotError::Doorbells)?;
        }
        if let Some(open) = &mut slot.open {
            reserve::fill();
            // Any call may get here, on a stack that is too small for opening ports.
            thread::apart("mx-open", || open.reopen(shared))?;
            slot.publish();
        }
        slot.claim(shared);
        Ok(())
    }

    /// Drops the endpoint in a child of `fork`, without closing the parent's connections, and claims the slot for this
    /// process. Returns whether there was an endpoint.
    #[cold]
    pub fn drop_inherited(&mut self, shared: &Shared<Self>) -> bool {
        self.take_over();
        let open = self.take();
        self.claim(shared);
        let there = open.is_some();
        if let Some(open) = open {
            open.engine.leave_port();
        }
        there
    }

    /// Lets this process's calls use the engine directly.
    fn claim(&mut self, shared: &Shared<Self>) {
        self.ports = Ports::Own;
        shared.claim();
    }
}

impl<E: Engine> Open<E> {
    /// Makes the slot's entry for an engine: starts the helper thread, if `reopen_options` ask for one, and creates the
    /// page that tools read. The settings of waiting threads are applied already ([`Shared::retune`]).
    pub fn new(
        engine: Box<E>,
        reopen_options: ReopenOptions,
        shared: &Arc<Shared<Slot<E>>>,
    ) -> Result<Self, SlotError> {
        let identity = engine.endpoint().identity();
        let mut open = Self {
            engine,
            board: 0,
            helper: None,
            publisher: Publisher::silent(),
            reopen_options,
        };
        open.surround(&identity, shared)?;
        Ok(open)
    }

    fn surround(
        &mut self,
        identity: &Identity,
        shared: &Arc<Shared<Slot<E>>>,
    ) -> Result<(), SlotError> {
        let helper = self
            .reopen_options
            .helper
            .then(|| Helper::start(Arc::clone(shared)));
        self.helper = helper.transpose().map_err(SlotError::Helper)?;
        let board = nic::board_number(identity.nic).or_else(|| self.reopen_options.board());
        self.board = board.unwrap_or_default();
        let method = self.engine.gauges().is_some();
        self.publisher = Publisher::new(E::LIBRARY, identity, self.board, method);
        Ok(())
    }

    /// Returns the current counters; `waits` are those of waiting threads, which belong to the lock
    /// ([`Shared::wait_stats`]).
    pub fn sample(&self, waits: WaitStats) -> Sample<'_> {
        sample(&*self.engine, waits)
    }

    /// Returns the engine and drops the rest: ends the helper thread, waiting up to two seconds, and closes the
    /// published page. The caller must not hold the slot's lock, which the helper takes to end.
    pub fn into_engine(self) -> Box<E> {
        self.engine
    }

    fn reopen(&mut self, shared: &Arc<Shared<Slot<E>>>) -> Result<(), SlotError> {
        let anew = self.reopen_options.attempt();
        let (ports, identity) = anew.open().map_err(SlotError::Ports)?;
        let config = ports.endpoint_config(self.engine.endpoint().config());
        let config = config.map_err(SlotError::Random)?;
        self.surround(&identity, shared)?;
        let board = anew.board();
        let parents = self.engine.reopen(board, config, identity, *ports);
        // The descriptors belong to the parent's ports and must not be closed here.
        let _ = ManuallyDrop::new(parents);
        self.reopen_options = anew.opened();
        Ok(())
    }
}

fn sample<E: Engine>(engine: &E, waits: WaitStats) -> Sample<'_> {
    let endpoint = engine.endpoint();
    Sample {
        method: engine.gauges(),
        ..Sample::of(endpoint, endpoint.port().view(), waits)
    }
}

impl<E: Engine> Progress for Slot<E> {
    #[inline]
    fn progress(&mut self) -> bool {
        let (Some(engine), beside) = self.parts() else {
            return false;
        };
        let busy = engine.progress(beside);
        if is_to_be_shown(engine) {
            self.publish();
        }
        busy
    }

    #[inline]
    fn take_produced(&mut self) -> Interest {
        if mem::take(&mut self.ended) {
            return Interest::MAX;
        }
        self.engine().map_or(0, E::take_produced)
    }

    fn arm(&mut self) -> bool {
        self.engine()
            .is_some_and(|engine| engine.is_halted() || engine.endpoint_mut().arm())
    }

    fn disarm(&mut self) {
        if let Some(engine) = self.engine() {
            engine.endpoint_mut().disarm();
        }
    }

    #[inline]
    fn holds(&self) -> bool {
        self.open()
            .is_some_and(|open| open.engine.endpoint().port().holds())
    }

    fn send_held(&mut self) {
        if let Some(engine) = self.engine() {
            engine.endpoint_mut().port_mut().send_held();
        }
    }

    fn note_control(&mut self) {
        if let Some(engine) = self.engine() {
            engine.endpoint_mut().port_mut().note_control();
        }
    }

    fn note_ready(&mut self, tokens: &[u64]) {
        if let Some(engine) = self.engine() {
            engine.endpoint_mut().port_mut().note_ready(tokens);
        }
    }

    fn set(&self) -> Option<(RawFd, u64)> {
        self.open().map(|open| open.engine.endpoint().port().set())
    }

    fn looks_at_memory(&self) -> bool {
        self.open()
            .is_none_or(|open| open.engine.endpoint().port().looks_at_memory())
    }

    fn deadline(&self) -> Option<Instant> {
        let engine = &self.open()?.engine;
        if engine.is_halted() {
            engine.endpoint().keep_alive_due()
        } else {
            engine.endpoint().deadline()
        }
    }

    fn descriptors(&self) -> WakeDescriptors {
        let open = self.open().filter(|open| !open.engine.is_halted());
        open.map_or_else(WakeDescriptors::default, |open| {
            open.engine.endpoint().descriptors()
        })
    }

    fn active(&self) -> bool {
        self.is_used()
    }

    fn lose(&mut self) {
        Self::lose(self);
    }

    fn check_descriptors(&mut self) {
        if self.is_used()
            && self
                .engine()
                .is_some_and(|engine| !engine.endpoint().port().is_intact())
        {
            Self::lose(self);
        }
    }

    fn is_lost(&self) -> bool {
        Self::is_lost(self)
    }

    fn on_sleep(&mut self, waits: &WaitStats) {
        if let Some(open) = &mut self.open {
            open.publisher.note_waits(waits);
        }
        self.publish();
    }

    fn give_back_due() -> Option<Instant> {
        E::give_back_due()
    }

    fn give_back() {
        E::give_back();
    }

    fn in_child(&mut self) {
        self.ports = Ports::Parents;
        if let Some(open) = &mut self.open {
            // Neither the thread nor the page exists in the child, and neither may be dropped here.
            let helper = ManuallyDrop::new(open.helper.take());
            let publisher = mem::replace(&mut open.publisher, Publisher::silent());
            let _ = (helper, ManuallyDrop::new(publisher));
        }
        E::forget_threads(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::open::{EndpointChoice, OpenOptions};
    use mx_sim::Queue;
    use std::net::Ipv4Addr;

    /// An engine that can be halted.
    struct Halting {
        endpoint: Endpoint<HostPorts, MonotonicClock, Queue<UserMemory>>,
        halted: bool,
    }

    impl Engine for Halting {
        const LIBRARY: &'static str = "test";
        type Owner = Queue<UserMemory>;
        type PersistentState = ();

        fn endpoint(&self) -> &Endpoint<HostPorts, MonotonicClock, Self::Owner> {
            &self.endpoint
        }

        fn endpoint_mut(&mut self) -> &mut Endpoint<HostPorts, MonotonicClock, Self::Owner> {
            &mut self.endpoint
        }

        fn progress(&mut self, (): &mut ()) -> bool {
            !self.halted && self.endpoint.progress()
        }

        fn take_produced(&mut self) -> Interest {
            0
        }

        fn is_halted(&self) -> bool {
            self.halted
        }

        fn on_taken(&mut self, (): &mut ()) {}

        fn forget_threads(_slot: &mut Slot<Self>) {}

        fn inherit(&mut self) {
            self.endpoint.inherit();
        }

        fn reopen(
            &mut self,
            _board: Option<u32>,
            config: Config,
            identity: Identity,
            ports: HostPorts,
        ) -> HostPorts {
            self.endpoint.reopen(config, identity, ports)
        }

        fn leave_port(self) {
            self.endpoint.leave_port();
        }
    }

    #[test]
    fn threads_sleep_without_the_ports_while_the_engine_is_halted() {
        let options = OpenOptions {
            tcp_bind: Some(Ipv4Addr::LOCALHOST.into()),
            ..OpenOptions::new(EndpointChoice::Any)
        };
        let (ports, identity) = HostPorts::open(options.clone()).unwrap();
        let config = ports.endpoint_config(&Config::default()).unwrap();
        let endpoint = Endpoint::new(
            config,
            identity,
            1,
            *ports,
            MonotonicClock,
            Queue::default(),
        );
        let engine = Box::new(Halting {
            endpoint,
            halted: false,
        });
        let tuning = crate::progress::Tuning::default();
        let shared = Arc::new(Shared::new(Slot::new(()), tuning).unwrap());
        let anew = ReopenOptions::new(options, EndpointChoice::Any, tuning, false);
        let open = Open::new(engine, anew, &shared).unwrap();
        let mut slot = shared.lock();
        slot.put(open);
        let awake = slot.descriptors();
        // The ports have not been polled since they were opened.
        assert!(awake.data.is_some() && !slot.arm());
        slot.engine().unwrap().halted = true;
        assert!(slot.arm());
        assert_eq!(slot.descriptors(), WakeDescriptors::default());
        assert_eq!(slot.deadline(), None);
        slot.engine().unwrap().halted = false;
        assert_eq!(slot.descriptors(), awake);
    }
}
