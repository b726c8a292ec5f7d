//! Endpoints over the rdm port, all in one thread, over the provider of this machine.

use super::{DirectPort, Directory};
use mx_port_base::clock::MonotonicClock;
use mx_port_rdm::{Device, RdmError, RdmOptions};
use mx_proto::{
    Clock, Config, Endpoint, EndpointId, Identity, MatchBits, MatchMask, Memory, NicId,
    ReceivePosted, RemoteId, RequestId, Route, SendMode, SendPosted, SessionId, Status, Target,
};
use mx_sim::Completion;
use mx_sim::{CallOff, Cancelled};
use mx_sim::{Queue, Reports};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::slice;
use std::time::{Duration, Instant};

pub(crate) type Ends = Endpoint<DirectPort, TestClock, Queue<Lent>>;

/// A clock that a test can put forward.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Rc<Cell<Duration>>);

impl Clock for TestClock {
    fn now(&self) -> mx_proto::Instant {
        MonotonicClock.now().after(self.0.get())
    }
}

const KEY: u32 = 0x6d78;
/// A time after which something counts as hanging.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Returns options for the loopback, with any provider.
pub(crate) fn options() -> RdmOptions {
    RdmOptions {
        device: Device::only(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ..RdmOptions::default()
    }
}

/// Some nodes, with the completions of each.
pub(crate) struct Nodes {
    directory: Directory,
    options: RdmOptions,
    pub(crate) ends: Vec<Option<Ends>>,
    pub(crate) done: Vec<Vec<Completion>>,
    config: Config,
    sessions: u64,
    clock: TestClock,
}

impl Nodes {
    /// Makes `count` nodes. Returns `None` and prints a line if there is no libfabric.
    pub(crate) fn new(count: usize) -> Option<Self> {
        Self::with(count, Config::default())
    }

    pub(crate) fn with(count: usize, config: Config) -> Option<Self> {
        Self::over(count, config, options())
    }

    pub(crate) fn over(count: usize, config: Config, options: RdmOptions) -> Option<Self> {
        let mut nodes = Self {
            directory: Directory::default(),
            options,
            ends: Vec::new(),
            done: Vec::new(),
            config,
            sessions: 100,
            clock: TestClock::default(),
        };
        for _ in 0..count {
            nodes.add()?;
        }
        Some(nodes)
    }

    /// Adds a node with options of its own.
    pub(crate) fn add_with(&mut self, options: RdmOptions) -> Option<usize> {
        let before = std::mem::replace(&mut self.options, options);
        let number = self.add();
        self.options = before;
        number
    }

    /// Adds a node. Returns its number.
    pub(crate) fn add(&mut self) -> Option<usize> {
        let number = self.ends.len();
        let end = self.open(number)?;
        self.ends.push(Some(end));
        self.done.push(Vec::new());
        Some(number)
    }

    fn open(&mut self, number: usize) -> Option<Ends> {
        let endpoint = EndpointId(number as u32);
        let port = match self.directory.open(endpoint, self.options.clone()) {
            Ok(port) => port,
            Err(RdmError::NoLibrary(why)) => {
                eprintln!("NOT TESTED: {why}");
                return None;
            }
            Err(other) => panic!("{other}"),
        };
        self.sessions += 1;
        let identity = Identity {
            nic: NicId(1),
            endpoint,
            session: SessionId(self.sessions),
        };
        let config = self.config.clone();
        Some(Endpoint::new(
            config,
            identity,
            KEY,
            port,
            self.clock.clone(),
            Queue::default(),
        ))
    }

    /// Removes a node without any notice to others.
    pub(crate) fn kill(&mut self, node: usize) {
        self.ends[node] = None;
        self.done[node].clear();
    }

    /// Restarts a node under its name.
    pub(crate) fn restart(&mut self, node: usize) {
        self.ends[node] = None;
        self.ends[node] = self.open(node);
    }

    pub(crate) fn end(&mut self, node: usize) -> &mut Ends {
        self.ends[node].as_mut().expect("a node that lives")
    }

    /// Lets time pass while no node works.
    pub(crate) fn skip(&self, time: Duration) {
        let TestClock(ahead) = &self.clock;
        ahead.set(ahead.get() + time);
    }

    pub(crate) fn turn(&mut self) {
        for (end, done) in self.ends.iter_mut().zip(&mut self.done) {
            let Some(end) = end else { continue };
            end.progress();
            while let Some(completion) = end.next_completion() {
                done.push(completion);
            }
        }
    }

    /// Lets all nodes work until `found` finds something.
    pub(crate) fn until<T>(&mut self, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let until = Instant::now() + LONG;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            if Instant::now() >= until {
                for end in self.ends.iter().flatten() {
                    eprintln!("{:?} {:?}", end.port().rdm(), end.stats());
                }
                panic!("it hangs");
            }
            self.turn();
        }
    }

    pub(crate) fn wait(&mut self, node: usize, context: u64) -> Completion {
        self.until(|nodes| {
            let done = &mut nodes.done[node];
            let at = done.iter().position(|c| c.context == context)?;
            Some(done.swap_remove(at))
        })
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> RemoteId {
        let done = self.try_connect(from, to);
        assert_eq!(done.status, Status::Success);
        done.remote
    }

    pub(crate) fn try_connect(&mut self, from: usize, to: usize) -> Completion {
        let target = Target {
            nic: NicId(1),
            endpoint: EndpointId(to as u32),
            route: Route::AUTO,
        };
        let context = u64::MAX;
        let posted = self.end(from).connect(target, KEY, MatchBits(0), context);
        posted.unwrap();
        self.wait(from, context)
    }

    /// Sends a message. Returns `None` if the send is complete at once. The bytes must stay until
    /// the send is complete.
    pub(crate) fn send(
        &mut self,
        from: usize,
        to: RemoteId,
        bits: u64,
        bytes: &[u8],
        context: u64,
    ) -> Option<RequestId> {
        let memory = memory(bytes.as_ptr().cast_mut(), bytes.len());
        let bits = MatchBits(bits);
        let mode = SendMode::Standard;
        match self.end(from).send(to, bits, memory, context, mode) {
            Ok(SendPosted::Complete) => None,
            Ok(SendPosted::Pending(id)) => Some(id),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Sends a message, and waits for the end.
    pub(crate) fn send_all(&mut self, from: usize, to: RemoteId, bits: u64, bytes: &[u8]) {
        let context = u64::MAX - 1;
        if self.send(from, to, bits, bytes, context).is_some() {
            assert_eq!(self.wait(from, context).status, Status::Success);
        }
    }

    /// Posts a receive. The bytes must stay until the receive is complete.
    pub(crate) fn post(
        &mut self,
        at: usize,
        bits: u64,
        bytes: &mut [u8],
        context: u64,
    ) -> Option<RequestId> {
        let memory = memory(bytes.as_mut_ptr(), bytes.len());
        let bits = MatchBits(bits);
        let posted = self.end(at).recv(bits, MatchMask::EXACT, memory, context);
        match posted.unwrap() {
            ReceivePosted::Complete(done) => {
                self.done[at].push(Completion::at_once(done, context));
                None
            }
            ReceivePosted::Pending(id) => Some(id),
        }
    }

    /// Receives and waits for the message.
    pub(crate) fn receive(&mut self, at: usize, bits: u64, bytes: &mut [u8]) -> Completion {
        let context = u64::MAX - 2;
        self.post(at, bits, bytes, context);
        self.wait(at, context)
    }

    pub(crate) fn cancel(&mut self, at: usize, request: RequestId) -> Cancelled {
        self.end(at).cancel(request)
    }
}

/// A buffer of a test, which keeps the buffer until its operation is complete.
#[derive(Debug)]
pub(crate) struct Lent {
    start: *mut u8,
    len: usize,
}

impl Lent {
    /// Returns up to `len` bytes from `offset` on, as far as there are any.
    fn part(&self, offset: usize, len: usize) -> (*mut u8, usize) {
        let from = offset.min(self.len);
        (self.start.wrapping_add(from), len.min(self.len - from))
    }
}

impl Memory for Lent {
    fn len(&self) -> usize {
        self.len
    }

    fn visit(&self, offset: usize, len: usize, mut visitor: impl FnMut(&[u8])) {
        let (start, len) = self.part(offset, len);
        // SAFETY: within the buffer, which still exists.
        visitor(unsafe { slice::from_raw_parts(start, len) });
    }

    fn visit_mut(&mut self, offset: usize, len: usize, mut visitor: impl FnMut(&mut [u8])) {
        let (start, len) = self.part(offset, len);
        // SAFETY: as above, and a buffer that is received into is not used otherwise.
        visitor(unsafe { slice::from_raw_parts_mut(start, len) });
    }
}

fn memory(start: *mut u8, len: usize) -> Lent {
    Lent { start, len }
}

pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| at.wrapping_mul(seed * 2 + 1).wrapping_add(at >> 8) as u8)
        .collect()
}
