//! Engines on a simulated network: the tests' common part.
//!
//! ```text
//!   Net -- Cluster of Node -- Engine over SimPort       one seed, one run
//!      `-- buffers: every message's memory, as long as the net
//! ```

mod handler;
mod messages;
mod peers;
mod random;
mod sessions;

use super::{Engine, Options};
use crate::error::{Code, Error};
use crate::handles::{Address, EndpointHandle, RequestHandle};
use crate::status::{Status, StatusCode};
use mx_proto::{Config, Endpoint, EndpointId, Identity, Instant, NicId, SendMode, SessionId};
use mx_sim::world::{NodeId, World};
use mx_sim::{Cluster, Drive, Fabric, Profile, SimPort, VirtualClock, seeds};
use mx_sys::UserMemory;
use std::time::Duration;

pub(super) type SimEngine = Engine<SimPort<UserMemory>, VirtualClock>;

pub(super) const NIC: NicId = NicId(0x4d58);
pub(super) const KEY: u32 = 0x1234;

/// Far more steps than any of these tests takes.
const STEPS: u64 = 2_000_000;

pub(super) struct Node {
    pub(super) engine: SimEngine,
    /// Whether the test itself calls progress.
    pub(super) idle: bool,
}

impl Drive for Node {
    fn progress(&mut self) -> bool {
        !self.idle && self.engine.progress()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.idle || self.engine.is_halted() {
            None
        } else {
            self.engine.endpoint().deadline()
        }
    }
}

pub(super) struct Net {
    pub(super) cluster: Cluster<Node>,
    pub(super) fabric: Fabric<UserMemory>,
    pub(super) world: World,
    profile: Profile,
    pub(super) config: Config,
    lives: u32,
    /// After the engines, so that those are dropped first.
    buffers: Vec<Vec<u8>>,
}

/// A receive and the index of its buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recv {
    pub(super) handle: RequestHandle,
    pub(super) buffer: usize,
}

impl Net {
    /// Makes a net without nodes.
    pub(super) fn new(seed: u64, profile: Profile) -> Self {
        let world = World::new(seed);
        seeds::watch(&world);
        Self {
            cluster: Cluster::new(&world),
            fabric: Fabric::new(&world, None),
            world,
            profile,
            config: Config {
                request_timeout: None,
                peer_timeout: None,
                keep_tombstones: 100,
                copies: usize::MAX,
                // As `Settings::for_mx`.
                eager_max: 32 << 10,
                ..Config::default()
            },
            lives: 0,
            buffers: Vec::new(),
        }
    }

    /// Makes `count` endpoints on a fast network, numbered from 0, not connected.
    pub(super) fn of(count: usize) -> Self {
        let mut net = Self::new(1, Profile::default());
        for _ in 0..count {
            net.add(None);
        }
        net
    }

    /// Makes two endpoints, and returns the second's address for the first.
    pub(super) fn pair() -> (Self, Address) {
        let mut net = Self::of(2);
        let b = net.connect(0, 1);
        (net, b)
    }

    fn open(&mut self, node: NodeId, context_ids: Option<super::ContextIds>) -> Node {
        let identity = Identity {
            nic: NIC,
            endpoint: EndpointId(node as u32),
            session: SessionId(0x1001 + u64::from(self.lives)),
        };
        self.open_as(node, identity, context_ids)
    }

    /// Opens an endpoint that claims `identity`.
    fn open_as(
        &mut self,
        node: NodeId,
        identity: Identity,
        context_ids: Option<super::ContextIds>,
    ) -> Node {
        self.lives += 1;
        let number = EndpointId(node as u32);
        let port = SimPort::open(&self.fabric, node, NIC, number, self.profile);
        let port = port.expect("a free name");
        let clock = self.world.clock();
        let options = Options {
            handle: EndpointHandle::new(node, self.lives),
            key: KEY,
            eager_max: self.config.eager_max,
            context_ids,
            generation: self.lives * 1000,
            error_handler: 0,
        };
        let endpoint = Endpoint::new(
            self.config.clone(),
            identity,
            KEY,
            port,
            clock,
            super::Program::new(identity, options),
        );
        Node {
            engine: Engine::new(endpoint),
            idle: false,
        }
    }

    /// Adds an endpoint.
    pub(super) fn add(&mut self, context_ids: Option<super::ContextIds>) -> NodeId {
        let node = self.open(self.cluster.len(), context_ids);
        self.cluster.add(node)
    }

    /// Adds an endpoint that others see under the name of `of`.
    pub(super) fn add_twin(&mut self, of: NodeId) -> NodeId {
        let mut identity = self.engine(of).identity();
        identity.session.0 += 0x1000;
        let node = self.open_as(self.cluster.len(), identity, None);
        self.cluster.add(node)
    }

    /// Adds an endpoint that claims the identity of `of`, life included.
    pub(super) fn add_impostor(&mut self, of: NodeId) -> NodeId {
        let identity = self.engine(of).identity();
        let node = self.open_as(self.cluster.len(), identity, None);
        self.cluster.add(node)
    }

    /// Ends the process of an endpoint.
    pub(super) fn kill(&mut self, node: NodeId) {
        drop(self.cluster.kill(node).expect("a living node"));
    }

    /// Opens the endpoint again, in another process.
    pub(super) fn restart(&mut self, node: NodeId) {
        let life = self.open(node, None);
        self.cluster.restart(node, life);
    }

    pub(super) fn engine(&mut self, node: NodeId) -> &mut SimEngine {
        &mut self.cluster.node(node).expect("a living node").engine
    }

    /// Returns the number of sessions that each node has.
    pub(super) fn remotes(&mut self) -> Vec<usize> {
        let nodes = 0..self.cluster.len();
        nodes
            .map(|node| self.engine(node).endpoint().remotes())
            .collect()
    }

    /// Runs all nodes until none has anything to do.
    pub(super) fn run_until_idle(&mut self) {
        for node in 0..self.cluster.len() {
            self.cluster.poke(node);
        }
        assert!(self.cluster.run_idle(STEPS), "never at rest");
    }

    /// Lets `span` pass.
    pub(super) fn pass(&mut self, span: Duration) {
        for node in 0..self.cluster.len() {
            self.cluster.poke(node);
        }
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, STEPS), "too busy");
    }

    /// Makes memory with these bytes.
    pub(super) fn memory(&mut self, bytes: &[u8]) -> (usize, UserMemory) {
        let mut buffer = bytes.to_vec();
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        self.buffers.push(buffer);
        // SAFETY: the buffer stays where it is, and is read only through `bytes`, until the engines are dropped.
        let memory = unsafe { UserMemory::new(start.cast(), len) };
        (self.buffers.len() - 1, memory.expect("a buffer"))
    }

    /// Returns the contents of a receive's memory.
    pub(super) fn bytes(&self, recv: Recv) -> &[u8] {
        &self.buffers[recv.buffer]
    }

    pub(super) fn isend(
        &mut self,
        from: NodeId,
        to: Address,
        bits: u64,
        bytes: &[u8],
    ) -> RequestHandle {
        self.send(from, to, bits, bytes, SendMode::Buffered)
    }

    pub(super) fn issend(
        &mut self,
        from: NodeId,
        to: Address,
        bits: u64,
        bytes: &[u8],
    ) -> RequestHandle {
        self.send(from, to, bits, bytes, SendMode::Synchronous)
    }

    fn send(
        &mut self,
        from: NodeId,
        to: Address,
        bits: u64,
        bytes: &[u8],
        mode: SendMode,
    ) -> RequestHandle {
        let (_, memory) = self.memory(bytes);
        let engine = self.engine(from);
        engine.isend(memory, to, bits, 0, mode).unwrap()
    }

    pub(super) fn irecv(&mut self, node: NodeId, bits: u64, mask: u64, len: usize) -> Recv {
        let (buffer, memory) = self.memory(&vec![0xee; len]);
        let handle = self.engine(node).irecv(memory, bits, mask, 0).unwrap();
        Recv { handle, buffer }
    }

    pub(super) fn iconnect(&mut self, from: NodeId, to: NodeId, key: u32) -> RequestHandle {
        let engine = self.engine(from);
        engine
            .iconnect((NIC, to as u32), key, 0xc0, 7, false)
            .unwrap()
    }

    /// Connects `from` to `to`.
    pub(super) fn connect(&mut self, from: NodeId, to: NodeId) -> Address {
        let request = self.iconnect(from, to, KEY);
        self.run_until_idle();
        let status = self.done(from, request);
        assert_eq!(status.code, StatusCode::Success as u32);
        status.source
    }

    /// Returns the result of a request that must have ended.
    pub(super) fn done(&mut self, node: NodeId, request: RequestHandle) -> Status {
        let status = self.engine(node).test(request).unwrap();
        status.expect("the request has ended")
    }

    /// Returns the code of a request that must have ended.
    pub(super) fn code(&mut self, node: NodeId, request: RequestHandle) -> StatusCode {
        let code = self.done(node, request).code;
        let all = [
            StatusCode::Success,
            StatusCode::Timeout,
            StatusCode::Truncated,
            StatusCode::EndpointClosed,
            StatusCode::EndpointUnreachable,
            StatusCode::BadKey,
            StatusCode::BadEndpoint,
            StatusCode::Aborted,
        ];
        *all.iter().find(|known| **known as u32 == code).unwrap()
    }

    /// Returns whether a request has not ended.
    pub(super) fn pending(&mut self, node: NodeId, request: RequestHandle) -> bool {
        self.engine(node).test(request).unwrap().is_none()
    }
}

/// Asserts that a call was rejected with that code.
#[track_caller]
pub(super) fn fails<T: std::fmt::Debug>(result: Result<T, Error>, code: Code) {
    assert_eq!(result.unwrap_err().code(), code);
}
