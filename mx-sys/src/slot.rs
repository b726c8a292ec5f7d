//! A slot for one endpoint at a time, behind its lock, with what surrounds it: the thread that looks after
//! it, the page that tools look at.
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
//! Owns: the owner of the ports over a fork, what becomes of the parent's.
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

/// An endpoint over a machine's ports, with its owner.
pub trait Engine: Sized + Send + 'static {
    /// The library, as its page names it.
    const LIBRARY: &'static str;
    /// The endpoint's owner.
    type Owner: Owner<Memory = UserMemory>;
    /// A state of the slot that outlives its engines.
    type PersistentState: Send;

    /// The endpoint.
    fn endpoint(&self) -> &Endpoint<HostPorts, MonotonicClock, Self::Owner>;

    /// The endpoint, to arm and disarm it and to reach its port.
    fn endpoint_mut(&mut self) -> &mut Endpoint<HostPorts, MonotonicClock, Self::Owner>;

    /// See [`Progress::progress`].
    fn progress(&mut self, beside: &mut Self::PersistentState) -> bool;

    /// See [`Progress::take_produced`].
    fn take_produced(&mut self) -> Interest;

    /// Whether nothing may be taken in at present: then threads sleep without the ports, until who ends that wakes them or a
    /// [keep-alive](mx_proto::port::LinkControl::keep_alive) is due.
    fn is_halted(&self) -> bool {
        false
    }

    /// The figures of a method, if it is one.
    fn gauges(&self) -> Option<MethodGauges> {
        None
    }

    /// The engine has left its slot.
    fn on_taken(&mut self, beside: &mut Self::PersistentState);

    /// In a child of `fork`, right after it: the threads beside this one do not exist here.
    fn forget_threads(slot: &mut Slot<Self>);

    /// In a child of `fork`: ends what is the parent's. Until [`Engine::reopen`] nothing may be posted.
    fn inherit(&mut self);

    /// Goes on over these ports, opened on the board of that number if one was asked for. Those of before come back.
    fn reopen(
        &mut self,
        board: Option<u32>,
        config: Config,
        identity: Identity,
        ports: HostPorts,
    ) -> HostPorts;

    /// Drops everything but the ports, which stay in memory as they are.
    fn leave_port(self);

    /// See [`Progress::give_back_due`].
    fn give_back_due() -> Option<Instant> {
        None
    }

    /// See [`Progress::give_back`].
    fn give_back() {}
}

/// The state behind the lock.
pub struct Slot<E: Engine> {
    open: Option<Open<E>>,
    /// Counts the endpoints that were here: a thread that waits for one must not go on with the next.
    generation: u32,
    /// An endpoint has just left: all waiting threads must wake.
    ended: bool,
    ports: Ports,
    /// The state that outlives engines.
    pub persistent: E::PersistentState,
}

/// An endpoint in its slot.
pub struct Open<E: Engine> {
    /// By itself in memory: this value is moved on callers' stacks, which may be small.
    pub engine: Box<E>,
    /// The number of its board.
    pub board: u32,
    helper: Option<Helper<Slot<E>>>,
    publisher: Publisher,
    reopen_options: ReopenOptions,
}

/// Is it time to [show](Slot::publish) what has been counted?
#[inline]
pub fn is_to_be_shown(engine: &impl Engine) -> bool {
    let endpoint = engine.endpoint();
    endpoint.looked_around() && Publisher::is_due(endpoint.port().turn())
}

/// The owner of the ports of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ports {
    /// The slot is this process's.
    Own,
    /// The process that this one was forked from. They must not be used, and what is under way is over.
    Parents,
    /// The parent's endpoint, and everything that was under way has ended.
    Missing,
    /// No process: the host has closed their descriptors. Everything that was under way has ended.
    Lost,
}

/// Why there is no endpoint.
#[derive(Debug)]
pub enum SlotError {
    /// Ports cannot be opened.
    Ports(OpenError),
    /// There are no random numbers.
    Random(io::Error),
    /// There are no descriptors to wake threads with.
    Doorbells(io::Error),
    /// There is no helper thread.
    Helper(io::Error),
}

impl<E: Engine> Slot<E> {
    /// An empty one.
    pub fn new(beside: E::PersistentState) -> Self {
        Self {
            open: None,
            generation: 0,
            ended: false,
            ports: Ports::Own,
            persistent: beside,
        }
    }

    /// The number of the endpoint that is here, or was last.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Takes in an endpoint, with the next number.
    pub fn put(&mut self, open: Open<E>) {
        debug_assert!(self.open.is_none());
        self.generation = self.generation.wrapping_add(1);
        self.open = Some(open);
        self.publish();
    }

    /// Takes the endpoint out. If the host has closed its descriptors ([`Guard::check_lost`]), its ports are to be left
    /// as they are ([`Engine::leave_port`]).
    pub fn take(&mut self) -> Option<Open<E>> {
        let mut open = self.open.take()?;
        open.engine.on_taken(&mut self.persistent);
        self.ended = true;
        if self.ports == Ports::Lost {
            self.ports = Ports::Own;
        }
        Some(open)
    }

    /// The endpoint that is here.
    #[inline]
    pub fn open(&self) -> Option<&Open<E>> {
        self.open.as_ref()
    }

    /// Its engine.
    #[inline]
    pub fn engine(&mut self) -> Option<&mut E> {
        self.open.as_mut().map(|open| &mut *open.engine)
    }

    /// Its engine, and the state beside it.
    #[inline]
    pub fn parts(&mut self) -> (Option<&mut E>, &mut E::PersistentState) {
        let engine = self.open.as_mut().map(|open| &mut *open.engine);
        (engine, &mut self.persistent)
    }

    /// Shows tools what has been counted. Its time is when [`is_to_be_shown`] says so, which is also when the ports
    /// have found their descriptors closed.
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

    /// There is an endpoint whose ports are this process's.
    fn is_used(&self) -> bool {
        self.open.is_some() && self.ports == Ports::Own
    }

    /// Whether the host has closed descriptors of the endpoint that is here. Completions can still be taken; nothing
    /// else will happen.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.ports == Ports::Lost
    }

    /// Ends everything without the ports, whose descriptors the host has closed.
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

    /// In a child of `fork`: ends what is the parent's. There are ports again after [`Self::open_anew`].
    #[cold]
    pub fn take_over(&mut self) {
        if self.ports == Ports::Parents {
            self.ports = Ports::Missing;
            if let Some(engine) = self.engine() {
                engine.inherit();
            }
        }
    }

    /// In a child of `fork`: opens the ports of the endpoint anew, if there is one, and the slot is this
    /// process's. `shared`: where it is.
    #[cold]
    pub fn open_anew(
        slot: &mut Guard<'_, Self>,
        shared: &Arc<Shared<Self>>,
    ) -> Result<(), SlotError> {
        if shared.is_mine() {
            // Another thread was faster.
            return Ok(());
        }
        slot.take_over();
        if let Some(tuning) = slot.open().map(|open| open.reopen_options.tuning) {
            slot.retune(tuning).map_err(SlotError::Doorbells)?;
        }
        if let Some(open) = &mut slot.open {
            reserve::fill();
            // Any call may come to this, on a stack that is too small for opening ports.
            thread::apart("mx-open", || open.reopen(shared))?;
            slot.publish();
        }
        slot.claim(shared);
        Ok(())
    }

    /// In a child of `fork`: without the endpoint that it has from its parent, the slot is this process's. Returns
    /// whether there was one.
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

    /// From now on this process's calls go straight to the engine.
    fn claim(&mut self, shared: &Shared<Self>) {
        self.ports = Ports::Own;
        shared.claim();
    }
}

impl<E: Engine> Open<E> {
    /// An engine and what surrounds it; it is opened anew like this. Waiting threads are tuned already.
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

    /// The figures now.
    pub fn sample(&self, waits: WaitStats) -> Sample<'_> {
        sample(&*self.engine, waits)
    }

    /// Takes the engine out and drops the rest: ends the helper thread, waiting up to two seconds for it, and
    /// closes the page that tools read. The caller must not hold the slot's lock, which the thread takes to end.
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
        // Not ours to close, not even in order.
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
            // The thread does not exist here, nor does the page; neither is to be dropped here.
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
        // The ports have not been looked at since they were opened.
        assert!(awake.data.is_some() && !slot.arm());
        slot.engine().unwrap().halted = true;
        assert!(slot.arm());
        assert_eq!(slot.descriptors(), WakeDescriptors::default());
        assert_eq!(slot.deadline(), None);
        slot.engine().unwrap().halted = false;
        assert_eq!(slot.descriptors(), awake);
    }
}
