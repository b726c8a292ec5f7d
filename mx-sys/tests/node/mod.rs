//! A complete endpoint for tests: protocol, ports, lock and helper thread.
//!
//! ```text
//!   Node --> Shared< Engine { mx_proto::Endpoint<HostPorts, MonotonicClock, Queue> } >
//!               `-- Helper thread: makes progress while the test uses another node
//! ```

#![allow(dead_code, reason = "every test binary uses another part of it")]

pub(crate) mod numbers;
pub(crate) mod traffic;

use mx_port_local::LocalPort;
use mx_port_rdm::RdmPort;
use mx_port_tcp::TcpPort;
use mx_proto::port::{ConnectError, LinkControl, WakeDescriptors};
use mx_proto::{
    Config, Down, Endpoint, EndpointId, Identity, Instant, MatchBits, MatchMask, NicId, OpKind,
    PostError, ReceivePosted, RemoteId, RequestId, Route, SendMode, SendPosted, SessionId, Status,
    Target,
};
use mx_sim::Completion;
use mx_sim::{CallOff, Cancelled};
use mx_sim::{Queue, Reports};
use mx_sys::clock::MonotonicClock;
use mx_sys::{
    EndpointChoice, Helper, HostPorts, Interest, OpenError, OpenOptions, Progress, Shared, Tuning,
    UserMemory,
};
use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// A time after which something counts as hanging.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) type Ends = Endpoint<HostPorts, MonotonicClock, Queue<UserMemory>>;

/// Prints the identity of this process for the process that has started it.
pub(crate) fn say(identity: Identity) {
    let (nic, endpoint) = (identity.nic.0, identity.endpoint.0);
    println!("{nic} {endpoint} {}", identity.session.0);
    std::io::stdout().flush().unwrap();
}

/// Reads the identity of a process that was started.
pub(crate) fn hear(lines: &mut impl BufRead) -> Identity {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let mut words = line.split_whitespace().map(|word| word.parse().unwrap());
    let mut word = || -> u64 { words.next().unwrap() };
    Identity {
        nic: NicId(word()),
        endpoint: EndpointId(word() as u32),
        session: SessionId(word()),
    }
}

/// An endpoint, with its completions and events.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) endpoint: Ends,
    pub(crate) done: VecDeque<Completion>,
    pub(crate) events: VecDeque<Down>,
    produced: Interest,
    open: bool,
}

impl Engine {
    fn collect(&mut self) {
        while let Some(completion) = self.endpoint.next_completion() {
            self.done.push_back(completion);
            self.produced |= 1;
        }
        while let Some(event) = self.endpoint.next_down() {
            self.events.push_back(event);
            self.produced |= 2;
        }
    }
}

impl Progress for Engine {
    fn progress(&mut self) -> bool {
        let some = self.open && self.endpoint.progress();
        self.collect();
        some
    }

    fn take_produced(&mut self) -> Interest {
        self.collect();
        std::mem::take(&mut self.produced)
    }

    fn arm(&mut self) -> bool {
        self.endpoint.arm()
    }

    fn disarm(&mut self) {
        self.endpoint.disarm();
    }

    fn note_control(&mut self) {
        self.endpoint.port_mut().note_control();
    }

    fn note_ready(&mut self, tokens: &[u64]) {
        self.endpoint.port_mut().note_ready(tokens);
    }

    fn set(&self) -> Option<(RawFd, u64)> {
        Some(self.endpoint.port().set())
    }

    fn deadline(&self) -> Option<Instant> {
        self.endpoint.deadline()
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.endpoint.descriptors()
    }

    fn active(&self) -> bool {
        self.open
    }
}

/// An open endpoint with its lock and helper.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) shared: Arc<Shared<Engine>>,
    pub(crate) identity: Identity,
    _helper: Option<Helper<Engine>>,
}

/// The reason for which a connect failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotConnected {
    AtOnce(ConnectError),
    Later(Status),
}

/// Opens the ports; a node that may have any number gets one that no other test program uses.
fn open_ports(mut options: OpenOptions) -> Result<(Box<HostPorts>, Identity), OpenError> {
    if !matches!(options.endpoint, EndpointChoice::Any) {
        return HostPorts::open(options);
    }
    let mut attempts = numbers::BLOCK;
    loop {
        attempts -= 1;
        options.endpoint = EndpointChoice::Exact(numbers::next());
        match HostPorts::open(options.clone()) {
            Err(OpenError::InUse { .. }) if attempts > 0 => {}
            opened => return opened,
        }
    }
}

pub(crate) const KEY: u32 = 0x6d78;

impl Node {
    /// Opens a node under a free number.
    pub(crate) fn any() -> Self {
        Self::open(
            OpenOptions::new(EndpointChoice::Any),
            Config::default(),
            true,
        )
        .unwrap()
    }

    pub(crate) fn exact(endpoint: EndpointId) -> Result<Self, OpenError> {
        let options = OpenOptions::new(EndpointChoice::Exact(endpoint));
        Self::open(options, Config::default(), true)
    }

    pub(crate) fn open(
        options: OpenOptions,
        config: Config,
        helper: bool,
    ) -> Result<Self, OpenError> {
        Self::tuned(options, config, helper, Tuning::default())
    }

    pub(crate) fn tuned(
        options: OpenOptions,
        config: Config,
        helper: bool,
        tuning: Tuning,
    ) -> Result<Self, OpenError> {
        let (ports, identity) = open_ports(options)?;
        let endpoint = Endpoint::new(
            config,
            identity,
            KEY,
            *ports,
            MonotonicClock,
            Queue::default(),
        );
        let engine = Engine {
            endpoint,
            done: VecDeque::new(),
            events: VecDeque::new(),
            produced: 0,
            open: true,
        };
        let shared = Arc::new(Shared::new(engine, tuning).unwrap());
        let helper = helper.then(|| Helper::start(Arc::clone(&shared)).unwrap());
        Ok(Self {
            shared,
            identity,
            _helper: helper,
        })
    }

    pub(crate) fn target(&self, route: Route) -> Target {
        Target {
            nic: self.identity.nic,
            endpoint: self.identity.endpoint,
            route,
        }
    }

    /// Returns the numbers of links over shared memory, TCP and the fabric.
    pub(crate) fn links(&self) -> (usize, usize, usize) {
        let engine = self.shared.lock();
        let ports = engine.endpoint.port();
        (
            ports.port_of().map_or(0, LocalPort::link_count),
            ports.port_of().map_or(0, TcpPort::link_count),
            ports.port_of().map_or(0, RdmPort::link_count),
        )
    }

    /// Connects and waits for the answer.
    pub(crate) fn connect(&self, target: Target) -> Result<RemoteId, NotConnected> {
        const CONNECT: u64 = u64::MAX;
        let posted = self
            .shared
            .lock()
            .endpoint
            .connect(target, KEY, MatchBits(0), CONNECT);
        posted.map_err(NotConnected::AtOnce)?;
        let done = self.done(CONNECT);
        assert_eq!(done.kind, OpKind::Connect);
        match done.status {
            Status::Success => Ok(done.remote),
            status => Err(NotConnected::Later(status)),
        }
    }

    /// Waits for the completion of the operation posted with `context`.
    pub(crate) fn done(&self, context: u64) -> Completion {
        self.try_done(context, LONG).unwrap_or_else(|| {
            let engine = self.shared.lock();
            panic!(
                "operation {context} never completed: {:?}",
                engine.endpoint.stats()
            );
        })
    }

    pub(crate) fn try_done(&self, context: u64, timeout: Duration) -> Option<Completion> {
        self.shared.wait_for(1, Some(timeout), |engine| {
            let at = engine
                .done
                .iter()
                .position(|done| done.context == context)?;
            engine.done.remove(at)
        })
    }

    /// Waits for the next lost remote.
    pub(crate) fn event(&self) -> Down {
        self.shared
            .wait_for(2, Some(LONG), |engine| engine.events.pop_front())
            .expect("an event")
    }

    /// Posts a send. The bytes must live until the send is done.
    pub(crate) fn send(&self, to: RemoteId, bits: u64, bytes: &[u8], context: u64) -> SendPosted {
        self.try_send(to, bits, bytes, context).unwrap()
    }

    /// Posts a send, as [`Self::send`] does, to a remote that may be gone.
    pub(crate) fn try_send(
        &self,
        to: RemoteId,
        bits: u64,
        bytes: &[u8],
        context: u64,
    ) -> Result<SendPosted, PostError> {
        let memory = reading(bytes);
        let mut engine = self.shared.lock();
        engine
            .endpoint
            .send(to, MatchBits(bits), memory, context, SendMode::Standard)
    }

    /// Sends and waits until the send is done.
    pub(crate) fn send_all(&self, to: RemoteId, bits: u64, bytes: &[u8]) -> Status {
        match self.send(to, bits, bytes, 1 << 62 | bits) {
            SendPosted::Complete => Status::Success,
            SendPosted::Pending(_) => self.done(1 << 62 | bits).status,
        }
    }

    /// Posts a receive. The bytes must live, and must not be used, until the receive is done.
    pub(crate) fn post(&self, bits: u64, bytes: &mut [u8], context: u64) -> ReceivePosted {
        let memory = writing(bytes);
        let mut engine = self.shared.lock();
        engine
            .endpoint
            .recv(MatchBits(bits), MatchMask::EXACT, memory, context)
            .unwrap()
    }

    /// Receives and waits until the receive is done.
    pub(crate) fn receive(&self, bits: u64, bytes: &mut [u8]) -> Completion {
        match self.post(bits, bytes, 1 << 61 | bits) {
            ReceivePosted::Complete(done) => Completion::at_once(done, 1 << 61 | bits),
            ReceivePosted::Pending(_) => self.done(1 << 61 | bits),
        }
    }

    pub(crate) fn cancel(&self, request: RequestId) -> Cancelled {
        self.shared.lock().endpoint.cancel(request)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut engine = self.shared.lock();
        engine.endpoint.close();
        engine.open = false;
    }
}

pub(crate) fn pending(posted: SendPosted) -> RequestId {
    match posted {
        SendPosted::Pending(request) => request,
        SendPosted::Complete => panic!("complete at once"),
    }
}

pub(crate) fn waiting(received: ReceivePosted) -> RequestId {
    match received {
        ReceivePosted::Pending(request) => request,
        ReceivePosted::Complete(done) => panic!("complete at once: {done:?}"),
    }
}

fn reading(bytes: &[u8]) -> UserMemory {
    // SAFETY: the tests keep the bytes until the send is done, which only reads them.
    unsafe { UserMemory::new(bytes.as_ptr().cast_mut().cast(), bytes.len()) }.unwrap()
}

fn writing(bytes: &mut [u8]) -> UserMemory {
    // SAFETY: the tests keep the bytes, and do not access them, until the receive is done.
    unsafe { UserMemory::new(bytes.as_mut_ptr().cast(), bytes.len()) }.unwrap()
}

/// Returns bytes that depend on their position and on `seed`.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}
