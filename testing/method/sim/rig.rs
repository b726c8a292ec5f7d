//! Several methods, and strangers, on the simulated network: the base of all scenarios.
//!
//! ```text
//!   Rig -- Cluster of Node -- Host      a method with an application that checks everything
//!                         `-- Stranger  a bare endpoint that sends any message
//! ```
//!
//! The application checks that every operation, named by a label (its user pointer), completes
//! exactly once, in the order that hosts rely on, and that its buffer does not change afterwards.

mod order;

use bmi_method::abi::types::bmi_method_addr;
use bmi_method::address;
use bmi_method::match_layout::KEY;
use bmi_method::method::{self, Method, NextUnexpected, Post, PostKind, PostOutcome, Settings};
use bmi_method::op::data::OpData;
use bmi_method::peer::state::State;
use bmi_method::peer::table::PeerKey;
use bmi_method::peer_name::PeerName;
use mx_proto::{
    Arrival, Clock, Endpoint, EndpointId, Identity, Instant, MatchBits, Memory, NicId, Owner,
    RemoteId, Route, SendMode, SessionId, Source, Target, Verdict,
};
use mx_sim::fabric::Share;
use mx_sim::world::{NodeId, World};
use mx_sim::{
    Cluster, Drive, Fabric, Profile, Queue, Reports, SimPort, Verdicts, VirtualClock, fronts, seeds,
};
use mx_sys::UserMemory;
use order::Order;
use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::time::Duration;

/// Interface of every simulated machine.
pub const NIC: NicId = NicId(0x5151);
/// Another name of the same interface, which no peer uses for itself.
pub const OTHER_NIC: NicId = NicId(0x5252);
/// Interface of a machine without a listener.
pub const NOWHERE: NicId = NicId(0x5353);

/// Maps targets on [`OTHER_NIC`] to those on [`NIC`].
fn rename(mut target: Target) -> Target {
    match target.nic {
        OTHER_NIC => target.nic = NIC,
        NOWHERE => target.endpoint = EndpointId(u32::from(u16::MAX)),
        _ => {}
    }
    target
}

/// Tag of the messages with which nodes begin a session.
const GREETING: i32 = 0x7fff_0000;

/// An address object.
pub type Addr = NonNull<bmi_method_addr>;

pub type SimMethod = Method<SimPort<UserMemory>, VirtualClock>;

/// A pending operation.
struct Posting {
    id: i64,
    kind: PostKind,
    addr: NonNull<bmi_method_addr>,
    buffer: Box<[u8]>,
    /// Whether an operation ended while it was posted: itself, if it fails with a receive that has
    /// failed.
    at_once: bool,
}

/// Returns the context in which an operation is reported: a few in a row share one.
pub fn context_of(label: u64) -> i64 {
    (label / 8 % 16) as i64
}

/// Completion of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub error: i32,
    pub size: i64,
    /// Contents of a receive's buffer, as far as it was filled.
    pub bytes: Vec<u8>,
}

/// A reported unexpected message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Got {
    pub addr: usize,
    pub tag: i32,
    pub bytes: Vec<u8>,
}

impl Got {
    /// Returns the sender's address object.
    pub fn addr(&self) -> NonNull<bmi_method_addr> {
        NonNull::new(self.addr as *mut _).expect("an object")
    }
}

/// A method and its application.
pub struct Host {
    pub method: SimMethod,
    addrs: HashMap<NodeId, NonNull<bmi_method_addr>>,
    /// Pending operations. Declared behind `method`, so that it is dropped later.
    posted: HashMap<u64, Posting>,
    /// Returned buffers, with checksums of their contents.
    returned: Vec<(Box<[u8]>, u64)>,
    pub ended: BTreeMap<u64, Ended>,
    /// Labels, in the order of completion.
    pub told: Vec<u64>,
    pub got: Vec<Got>,
    /// Objects reported to the host.
    pub registered: Vec<usize>,
    pub forgotten: Vec<i64>,
    /// Address objects that the host has looked up.
    made: Vec<NonNull<bmi_method_addr>>,
    /// Whether unexpected messages are received.
    pub fetching: bool,
    /// Whether dead peers are reported to the host.
    pub telling: bool,
    /// Whether completions are taken.
    pub reaping: bool,
    finalized: bool,
    next_label: u64,
}

pub struct Stranger {
    pub endpoint: Endpoint<SimPort<UserMemory>, VirtualClock, Queue<UserMemory, Inbox>>,
    pub connected: Option<RemoteId>,
}

/// Messages that a stranger has received.
#[derive(Default)]
pub struct Inbox {
    /// Whether further messages are left unread.
    pub closed: bool,
    pub messages: Vec<(RemoteId, MatchBits, Vec<u8>)>,
}

impl Verdicts<UserMemory> for Inbox {
    fn arrived<B: Source + ?Sized>(&mut self, arrival: &Arrival, body: Option<&B>) -> Verdict {
        if self.closed {
            return Verdict::Continue;
        }
        let bytes = body.map(Source::to_vec).unwrap_or_default();
        self.messages.push((arrival.source, arrival.bits, bytes));
        Verdict::Finished
    }
}

pub enum Node {
    Host(Box<Host>),
    Stranger(Box<Stranger>),
}

impl Drive for Node {
    fn progress(&mut self) -> bool {
        match self {
            Self::Host(host) => host.progress(),
            Self::Stranger(stranger) => stranger.progress(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Host(host) => host.method.deadline(),
            Self::Stranger(stranger) => stranger.endpoint.deadline(),
        }
    }
}

impl Stranger {
    pub fn inbox(&self) -> &Inbox {
        self.endpoint.owner()
    }

    fn progress(&mut self) -> bool {
        let busy = self.endpoint.progress();
        while let Some(completion) = self.endpoint.next_completion() {
            if completion.kind == mx_proto::OpKind::Connect {
                self.connected = Some(completion.remote);
            }
        }
        while self.endpoint.next_down().is_some() {}
        busy
    }

    /// Connects to a node.
    pub fn connect(&mut self, to: NodeId) {
        let bits = MatchBits(0xb << 60);
        self.endpoint.connect(target(to), KEY, bits, 1).unwrap();
    }

    /// Returns true unless the node has ended the connection.
    pub fn is_connected(&self) -> bool {
        let to = self.connected.expect("connected before");
        self.endpoint.remote_identity(to).is_some()
    }

    /// Sends a message to the connected node.
    pub fn send(&mut self, bits: u64, bytes: &[u8]) {
        let to = self.connected.expect("connected before");
        self.send_to(to, bits, bytes);
    }

    pub fn send_to(&mut self, to: RemoteId, bits: u64, bytes: &[u8]) {
        let mut buffer = mx_sys::MallocBuffer::new(bytes.len()).unwrap();
        buffer.bytes_mut().copy_from_slice(bytes);
        let memory = UserMemory::owned(buffer);
        self.endpoint
            .send(to, MatchBits(bits), memory, 0, SendMode::Standard)
            .unwrap();
    }
}

pub fn target(node: NodeId) -> Target {
    Target {
        nic: NIC,
        endpoint: EndpointId(node as u32),
        route: Route::AUTO,
    }
}

pub fn name(node: NodeId) -> PeerName {
    PeerName {
        host: format!("node{node}"),
        board: None,
        endpoint: Some(node as u32),
        route: Route::AUTO,
    }
}

impl Host {
    fn progress(&mut self) -> bool {
        if self.finalized {
            return self.method.leave();
        }
        let mut busy = self.method.progress();
        if self.reaping {
            busy |= self.reap();
        }
        if self.fetching {
            busy |= self.fetch();
        }
        if self.telling {
            self.forgotten.extend(self.method.take_forgotten());
        }
        busy
    }

    /// Takes and checks completions.
    pub fn reap(&mut self) -> bool {
        let mut busy = false;
        for context in 0..16 {
            let mut order = Order::default();
            while let Some(done) = self.method.pop_done(context) {
                busy = true;
                let label = done.user_ptr as u64;
                let posting = self.posted.remove(&label);
                let posting =
                    posting.unwrap_or_else(|| panic!("operation {label} completed twice"));
                assert_eq!(posting.id, done.id, "operation {label}");
                assert!(done.error <= 0, "{done:?}");
                let (kind, peer) = (posting.kind, posting.addr.as_ptr() as usize);
                order.note(label, kind, peer, done.error, posting.at_once);
                self.told.push(label);
                self.end(label, kind, posting.buffer, done.error, done.size);
            }
        }
        busy
    }

    fn end(&mut self, label: u64, kind: PostKind, mut buffer: Box<[u8]>, error: i32, size: i64) {
        let filled = match kind {
            PostKind::Recv => buffer[..size as usize].to_vec(),
            // A later read finds bytes that were never sent.
            _ => {
                buffer.fill(0xdd);
                Vec::new()
            }
        };
        self.give_back(buffer);
        let ended = Ended {
            error,
            size,
            bytes: filled,
        };
        let before = self.ended.insert(label, ended);
        assert!(before.is_none(), "operation {label} ended twice");
    }

    /// Records a returned buffer, which must not change from now on.
    fn give_back(&mut self, buffer: Box<[u8]>) {
        let sum = sum_of(&buffer);
        self.returned.push((buffer, sum));
    }

    /// Ends in order, as `finalize` does: pending operations end without a completion.
    pub fn finalize(&mut self) {
        self.method.close();
        self.finalized = true;
        for (_, mut posting) in std::mem::take(&mut self.posted) {
            if posting.kind != PostKind::Recv {
                posting.buffer.fill(0xdd);
            }
            self.give_back(posting.buffer);
        }
    }

    /// Receives unexpected messages, as `testunexpected` does.
    pub fn fetch(&mut self) -> bool {
        self.fetch_up_to(usize::MAX)
    }

    /// Receives at most this many unexpected messages.
    pub fn fetch_up_to(&mut self, most: usize) -> bool {
        let mut busy = false;
        let enough = self.got.len().saturating_add(most);
        while self.got.len() < enough
            && let Some(handout) = self.method.next_unexpected(0)
        {
            busy = true;
            match handout {
                NextUnexpected::Register(addr) => {
                    assert!(!self.registered.contains(&(addr.as_ptr() as usize)));
                    assert!(!self.addrs.values().any(|known| *known == addr));
                    self.registered.push(addr.as_ptr() as usize);
                    let name = self.registered.len() as i64;
                    assert!(self.method.registered(addr, name));
                }
                NextUnexpected::Message(message) => {
                    let len = message.size as usize;
                    // SAFETY: from malloc with exactly this size, and owned by this host.
                    let bytes = unsafe {
                        let bytes = std::slice::from_raw_parts(message.buffer.cast::<u8>(), len);
                        let bytes = bytes.to_vec();
                        libc::free(message.buffer);
                        bytes
                    };
                    self.got.push(Got {
                        addr: message.addr.as_ptr() as usize,
                        tag: message.tag,
                        bytes,
                    });
                }
            }
        }
        busy
    }

    /// Returns the address object for a node, looked up the first time.
    pub fn addr(&mut self, of: NodeId) -> NonNull<bmi_method_addr> {
        if let Some(addr) = self.addrs.get(&of) {
            return *addr;
        }
        let addr = self.look_up(of, NIC);
        self.addrs.insert(of, addr);
        addr
    }

    /// Looks up a new address object for a node, at some interface.
    pub fn look_up(&mut self, of: NodeId, nic: NicId) -> Addr {
        self.look_up_at(of, &[nic])
    }

    /// Looks a node up under a name that stands for several interfaces.
    pub fn look_up_at(&mut self, of: NodeId, nics: &[NicId]) -> Addr {
        self.attach(of, nics, true)
    }

    /// Returns the address object with which a node `me` was initialized.
    pub fn own_addr(&mut self, me: NodeId) -> Addr {
        self.attach(me, &[NIC], false)
    }

    fn attach(&mut self, of: NodeId, nics: &[NicId], looked_up: bool) -> Addr {
        let addr = address::create(name(of), nics.first().copied()).unwrap();
        self.method
            .attach(addr.as_ptr(), &name(of), nics, looked_up)
            .unwrap();
        self.made.push(addr);
        addr
    }

    /// Uses an address object for a node from now on.
    pub fn use_addr(&mut self, of: NodeId, addr: NonNull<bmi_method_addr>) {
        self.addrs.insert(of, addr);
    }

    pub fn drop_addr(&mut self, addr: NonNull<bmi_method_addr>) {
        self.method.drop_addr(addr.as_ptr());
        address::remove(addr.as_ptr());
        self.addrs.retain(|_, known| *known != addr);
        self.made.retain(|known| *known != addr);
        // The entry stays, because indexes are names; the object's address may be reused.
        for known in &mut self.registered {
            if *known == addr.as_ptr() as usize {
                *known = 0;
            }
        }
    }

    /// Returns the state of an address object's peer.
    pub fn state(&self, addr: NonNull<bmi_method_addr>) -> State {
        let key = self.method.peers().of_addr(addr.as_ptr()).unwrap();
        self.method.peers().get(key).unwrap().state
    }

    pub fn send(&mut self, to: NodeId, tag: i32, bytes: &[u8]) -> u64 {
        let addr = self.addr(to);
        self.post(PostKind::Send, addr, tag, bytes.into()).unwrap()
    }

    pub fn send_unexpected(&mut self, to: NodeId, tag: i32, bytes: &[u8]) -> u64 {
        let addr = self.addr(to);
        self.post(PostKind::SendUnexpected, addr, tag, bytes.into())
            .unwrap()
    }

    pub fn recv(&mut self, from: NodeId, tag: i32, len: usize) -> u64 {
        let addr = self.addr(from);
        self.recv_at(addr, tag, len)
    }

    pub fn recv_at(&mut self, addr: NonNull<bmi_method_addr>, tag: i32, len: usize) -> u64 {
        let buffer = vec![0xee; len].into_boxed_slice();
        self.post(PostKind::Recv, addr, tag, buffer).unwrap()
    }

    /// Posts an operation; returns its label, or the error code.
    pub fn post(
        &mut self,
        kind: PostKind,
        addr: NonNull<bmi_method_addr>,
        tag: i32,
        buffer: Box<[u8]>,
    ) -> Result<u64, i32> {
        let whole = [buffer.len()];
        self.post_list(kind, addr, tag, buffer, &whole)
    }

    /// Posts an operation in pieces of these lengths, which cover the buffer.
    pub fn post_list(
        &mut self,
        kind: PostKind,
        addr: NonNull<bmi_method_addr>,
        tag: i32,
        mut buffer: Box<[u8]>,
        lens: &[usize],
    ) -> Result<u64, i32> {
        assert_eq!(lens.iter().sum::<usize>(), buffer.len());
        self.next_label += 1;
        let label = self.next_label;
        let mut start = buffer.as_mut_ptr();
        let pieces = lens.iter().map(|len| {
            let piece = (start.cast(), *len);
            start = start.wrapping_add(*len);
            piece
        });
        // SAFETY: the buffer is kept until the operation completes, and not accessed before.
        let memory = unsafe { UserMemory::list(pieces) }.unwrap();
        let key = self
            .method
            .peers()
            .of_addr(addr.as_ptr())
            .expect("an address in use");
        let mut post = Post {
            kind,
            addr,
            memory,
            tag,
            class: 0,
            user_ptr: label as *mut _,
            context: context_of(label),
        };
        let mut id = 0;
        let before = self.method.done_waiting(post.context);
        let posted = match self.post_at_once(key, &mut post, &buffer, &mut id) {
            Some(posted) => Ok(posted),
            None => self.method.post(key, &mut post, &mut id),
        };
        match posted {
            Ok(PostOutcome::Pending) => {
                assert_ne!(id, 0);
                let posting = Posting {
                    id,
                    kind,
                    addr,
                    buffer,
                    at_once: self.method.done_waiting(post.context) > before,
                };
                self.posted.insert(label, posting);
            }
            Ok(PostOutcome::Complete { size }) => self.end(label, kind, buffer, 0, size),
            Err(error) => return Err(error.code()),
        }
        Ok(label)
    }

    /// Posts an operation by the front, as the exported functions do first. Returns `None` if the
    /// general path has to.
    fn post_at_once(
        &mut self,
        key: PeerKey,
        post: &mut Post,
        buffer: &[u8],
        id: &mut i64,
    ) -> Option<PostOutcome> {
        if !fronts::are_on() || buffer.is_empty() {
            return None;
        }
        let (tag, size) = (post.tag as u32, buffer.len() as i64);
        let posted = match post.kind {
            PostKind::Send if size <= 4096 => {
                let sent = self.method.send_at_once(key, tag, post.context, buffer);
                sent.then_some(PostOutcome::Complete { size })
            }
            PostKind::Recv => {
                let word = OpData::new(post, key);
                let memory = || (post.memory.take(), word);
                *id = self.method.recv_at_once(key, tag, memory)?;
                Some(PostOutcome::Pending)
            }
            _ => None,
        };
        posted.inspect(|_| fronts::note_answer())
    }

    /// Begins a context in which the next eight operations are reported.
    pub fn begin_context(&mut self) {
        self.next_label = self.next_label / 8 * 8 + 7;
    }

    /// Cancels an operation, unless it has completed.
    pub fn cancel(&mut self, label: u64) {
        if let Some(id) = self.id(label) {
            self.method.cancel(id, context_of(label)).unwrap();
        }
    }

    /// Returns the id of a pending operation.
    pub fn id(&self, label: u64) -> Option<i64> {
        self.posted.get(&label).map(|posting| posting.id)
    }

    /// Returns the pending operations.
    pub fn outstanding(&self) -> Vec<u64> {
        let mut labels: Vec<_> = self.posted.keys().copied().collect();
        labels.sort_unstable();
        labels
    }

    /// Returns the code of an operation; `None` while it is pending.
    pub fn error(&self, label: u64) -> Option<i32> {
        self.ended.get(&label).map(|ended| ended.error)
    }

    pub fn bytes(&self, label: u64) -> &[u8] {
        &self.ended[&label].bytes
    }

    /// Checks that no returned buffer has changed.
    pub fn check_buffers(&self) {
        for (buffer, then) in &self.returned {
            assert_eq!(
                sum_of(buffer),
                *then,
                "a buffer was touched after its operation"
            );
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_buffers();
        }
        let objects = self.made.iter().map(|addr| addr.as_ptr() as usize);
        let told = self.registered.iter().copied().filter(|addr| *addr != 0);
        for addr in objects.chain(told) {
            address::remove(addr as *const _);
        }
    }
}

/// A world with methods.
pub struct Rig {
    pub world: World,
    pub fabric: Fabric<UserMemory>,
    pub cluster: Cluster<Node>,
    pub settings: Settings,
    pub endpoint: mx_proto::Config,
    sessions: u64,
}

/// Returns a checksum that every changed byte changes.
fn sum_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut sum: u64 = 1;
    for word in words.iter().chain([&last]) {
        sum = (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    sum
}

/// Makes a second handle of the same memory.
fn share(memory: &UserMemory) -> UserMemory {
    let mut pieces = Vec::new();
    memory.visit(0, memory.len(), |piece| {
        pieces.push((piece.as_ptr().cast_mut().cast(), piece.len()));
    });
    // SAFETY: the fabric drops it when the endpoint takes the memory back, before the operation
    // completes; the buffer lives at least as long.
    unsafe { UserMemory::list(pieces) }.unwrap()
}

/// Far more steps than any scenario needs.
const STEPS: u64 = 2_000_000;

impl Rig {
    pub fn new(seed: u64) -> Self {
        Self::with_share(seed, None)
    }

    /// Makes a rig with two hosts.
    pub fn of_two(seed: u64) -> (Self, NodeId, NodeId) {
        let mut rig = Self::new(seed);
        let [a, b] = [Profile::default(); 2].map(|profile| rig.add(profile));
        (rig, a, b)
    }

    /// Makes a rig in which ports read held bodies as late as they may, straight from the sender's
    /// memory, and can read peers' memory.
    pub fn sharing(seed: u64) -> Self {
        Self::with_share(seed, Some(share))
    }

    fn with_share(seed: u64, share: Option<Share<UserMemory>>) -> Self {
        let world = World::new(seed);
        seeds::watch(&world);
        let fabric = Fabric::new(&world, share);
        fabric.rename(rename);
        Self {
            fabric,
            cluster: Cluster::new(&world),
            world,
            settings: Settings::default(),
            endpoint: mx_proto::Config::default(),
            sessions: 0,
        }
    }

    fn endpoint<O: Owner<Memory = UserMemory>>(
        &mut self,
        node: NodeId,
        profile: Profile,
        owner: O,
    ) -> Endpoint<SimPort<UserMemory>, VirtualClock, O> {
        self.sessions += 1;
        let endpoint = EndpointId(node as u32);
        let port = SimPort::open(&self.fabric, node, NIC, endpoint, profile);
        let identity = Identity {
            nic: NIC,
            endpoint,
            session: SessionId(0x1000 + self.sessions),
        };
        let config = mx_proto::Config {
            key: mx_proto::Key(u128::from(self.sessions).to_le_bytes()),
            ..self.endpoint.clone()
        };
        Endpoint::new(
            config,
            identity,
            KEY,
            port.expect("a free name"),
            self.world.clock(),
            owner,
        )
    }

    fn host_at(&mut self, node: NodeId, profile: Profile) -> Node {
        let owner = method::Host::new(&self.settings);
        let endpoint = self.endpoint(node, profile, owner);
        let method = Method::new(self.settings.clone(), name(node).to_string(), endpoint);
        Node::Host(Box::new(Host {
            method,
            addrs: HashMap::new(),
            posted: HashMap::new(),
            returned: Vec::new(),
            ended: BTreeMap::new(),
            told: Vec::new(),
            got: Vec::new(),
            registered: Vec::new(),
            forgotten: Vec::new(),
            made: Vec::new(),
            fetching: true,
            reaping: true,
            telling: true,
            finalized: false,
            next_label: 0,
        }))
    }

    /// Limits the credits that nodes added from now on lend each peer.
    pub fn lend(&mut self, credits: u16) {
        // A peer's limit is a quarter of the lendable credits, which are seven eighths of all.
        let all = (usize::from(credits) * 4 * 8).div_ceil(7);
        self.endpoint.unexpected_bytes = all * mx_proto::flow::CREDIT;
        self.endpoint.first_credits = credits;
    }

    /// Limits the bytes of messages without a receive, and the size of unexpected messages, for
    /// nodes added from now on.
    pub fn limit_unexpected(&mut self, memory: usize, largest: usize) {
        self.settings.unexpected_max = largest;
        self.endpoint.unexpected_bytes = memory;
        self.endpoint.fetched_max = largest as u32;
    }

    pub fn add(&mut self, profile: Profile) -> NodeId {
        let node = self.cluster.next_id();
        let host = self.host_at(node, profile);
        self.cluster.add(host)
    }

    pub fn add_stranger(&mut self) -> NodeId {
        let node = self.cluster.next_id();
        let endpoint = self.endpoint(node, Profile::default(), Queue::default());
        self.cluster.add(Node::Stranger(Box::new(Stranger {
            endpoint,
            connected: None,
        })))
    }

    /// Kills a node without a notice; its links break.
    pub fn kill(&mut self, node: NodeId) {
        drop(self.cluster.kill(node));
    }

    pub fn restart(&mut self, node: NodeId, profile: Profile) {
        let host = self.host_at(node, profile);
        self.cluster.restart(node, host);
    }

    /// Returns a living host, which runs next.
    pub fn host(&mut self, node: NodeId) -> &mut Host {
        self.cluster.poke(node);
        match self.cluster.node(node) {
            Some(Node::Host(host)) => host,
            _ => panic!("node {node} is no living host"),
        }
    }

    pub fn stranger(&mut self, node: NodeId) -> &mut Stranger {
        self.cluster.poke(node);
        match self.cluster.node(node) {
            Some(Node::Stranger(stranger)) => stranger,
            _ => panic!("node {node} is no stranger"),
        }
    }

    /// Returns a stranger for inspection.
    pub fn peek_stranger(&mut self, node: NodeId) -> &mut Stranger {
        match self.cluster.node(node) {
            Some(Node::Stranger(stranger)) => stranger,
            _ => panic!("node {node} is no stranger"),
        }
    }

    /// Runs until `done`; panics if that never happens.
    pub fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..STEPS {
            if done(self) {
                return;
            }
            assert!(
                self.cluster.step().is_some(),
                "nothing happens any more, but not: {what}"
            );
        }
        panic!("not within {STEPS} steps: {what}");
    }

    /// Runs for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        assert!(self.cluster.run_until(until, STEPS), "too busy");
    }

    /// Runs until an operation of a node has ended; returns its code.
    pub fn wait(&mut self, node: NodeId, label: u64) -> i32 {
        self.run("the operation's end", |rig| {
            rig.peek(node).error(label).is_some()
        });
        self.peek(node).error(label).unwrap()
    }

    /// Returns a living host for inspection.
    pub fn peek(&mut self, node: NodeId) -> &mut Host {
        match self.cluster.node(node) {
            Some(Node::Host(host)) => host,
            _ => panic!("node {node} is no living host"),
        }
    }

    pub fn now(&self) -> Instant {
        self.world.clock().now()
    }

    /// Opens a client's session with a server, and exchanges expected messages, too.
    pub fn introduce(&mut self, client: NodeId, server: NodeId) {
        let request = self.open(client, server);
        assert_eq!(self.wait(client, request), 0);
        self.talk(client, server);
    }

    /// Sends an expected message each way between two connected nodes.
    pub fn talk(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            let send = self.host(from).send(to, GREETING, b"hello");
            let recv = self.host(to).recv(from, GREETING, 5);
            assert_eq!([self.wait(to, recv), self.wait(from, send)], [0, 0]);
        }
    }

    /// Opens a client's session with a server by an unexpected message; from then on the server
    /// uses the address object by which it came. Returns the message's label.
    pub fn open(&mut self, client: NodeId, server: NodeId) -> u64 {
        let request = self.host(client).send_unexpected(server, GREETING, b"hi");
        let greeting = |host: &Host| host.got.iter().position(|got| got.tag == GREETING);
        self.run("the greeting", |rig| greeting(rig.peek(server)).is_some());
        let host = self.host(server);
        let got = host.got.remove(greeting(host).expect("it has come"));
        assert_eq!(got.bytes, b"hi");
        host.use_addr(client, got.addr());
        request
    }
}
