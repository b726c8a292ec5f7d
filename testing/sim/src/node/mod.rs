//! An endpoint with an application that posts random operations and checks how they end.
//!
//! ```text
//!   random op --> Endpoint --> completion, event --> Book: exactly once, right bytes, in order
//!                                   |
//!                                   `--> Buffer::give_back: no access from here on
//! ```
//!
//! Owns: its pending operations.
//! Out of scope: other nodes, except through the [`Book`].

mod deliberation;
mod inbox;
mod judge;
mod results;
mod siege;
mod turns;

pub use results::are_joined;
pub use siege::Siege;

use crate::buffer::Buffer;
use crate::check::{Book, LifeId, Selector, Serial};
use crate::clock::VirtualClock;
use crate::cluster::Drive;
use crate::owner::{Queue, Reports};
use crate::rng::Rng;
use crate::world::{NodeId, World};
use deliberation::Thought;
pub use judge::Judge;
use mx_proto::flow::CREDIT;
use mx_proto::port::Port;
use mx_proto::{
    Config, Endpoint, EndpointId, Identity, Instant, Key, NicId, RemoteId, RequestId, Route,
    SessionId, Target,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Interface of all simulated nodes.
pub const NIC: NicId = NicId(0x6d78_7369_6d00);

/// Key of all nodes.
pub const KEY: u32 = 0x5042_4653;

/// Key that no node accepts.
pub const WRONG_KEY: u32 = 0xbad;

/// Messages with this bit go to the unexpected handler; no receive is posted for them.
const FOR_HANDLER: u64 = 1 << 63;

/// Match bits that masked receives compare.
const TAG_MASK: u64 = FOR_HANDLER | 0xff;

/// Returns the interface by which node `id` names itself.
pub fn home(world: &World, id: NodeId) -> NicId {
    world.addresses(id).first().copied().unwrap_or(NIC)
}

/// Returns the target for node `id`, if all nodes share an interface.
pub fn target(id: NodeId) -> Target {
    Target {
        nic: NIC,
        endpoint: EndpointId(id as u32),
        route: Route::AUTO,
    }
}

/// Activity of the application in its turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// Any operation.
    Busy,
    /// Receives only.
    Draining,
    /// Nothing.
    Quiet,
}

/// Limits of the application.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Largest message.
    pub message_max: usize,
    /// Longest pause between two turns.
    pub pause: Duration,
    /// Turns come at multiples of this time, so that they coincide with events of ports; at least 1
    /// ns.
    pub grid: Duration,
    /// Whether it disconnects.
    pub disconnects: bool,
    /// Whether it cancels.
    pub cancels: bool,
    /// Maximum number of pending operations.
    pub outstanding: usize,
    /// Whether memory consists of several pieces.
    pub pieces: bool,
    /// Whether some waiting sends may be copied, and complete.
    pub copies: bool,
    /// Longest time for which the decision about some messages is deferred.
    pub deliberates: Option<Duration>,
    /// Whether the node also sends to nodes that have sent it something, as a server does.
    pub answers: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            message_max: 200 << 10,
            pause: Duration::from_millis(1),
            grid: Duration::from_nanos(1),
            disconnects: true,
            cancels: true,
            outstanding: 40,
            pieces: true,
            copies: false,
            deliberates: None,
            answers: false,
        }
    }
}

/// A simulated node.
pub struct Node<P> {
    /// Endpoint, for tests that inspect it.
    pub endpoint: Endpoint<P, VirtualClock, Queue<Buffer, Judge>>,
    /// Current activity.
    pub mood: Mood,
    habits: Habits,
    id: NodeId,
    life: LifeId,
    nodes: usize,
    world: World,
    thought: Option<Thought>,
    ops: BTreeMap<u64, Op>,
    peers: Vec<RemoteId>,
    next_turn: Instant,
    /// Number of checked joins.
    joins: usize,
    /// Number of messages taken from the inbox.
    taken: u64,
    unexpected_max: usize,
    limit: Duration,
}

struct Op {
    what: What,
    request: Option<RequestId>,
    buffer: Buffer,
    posted_at: Instant,
}

enum What {
    Send {
        serial: Serial,
        acknowledged: bool,
        to: LifeId,
    },
    Recv {
        selector: Selector,
    },
    Connect {
        to: NodeId,
        key: u32,
    },
}

impl<P: Port<Buffer>> Node<P> {
    /// Opens an endpoint over `port` and begins a life of node `id` of `nodes`.
    pub fn new(
        world: &World,
        book: &Rc<RefCell<Book>>,
        (id, nodes): (NodeId, usize),
        config: Config,
        habits: Habits,
        port: P,
    ) -> Self {
        let mut rng = world.fork_rng();
        let session = SessionId(rng.bits());
        let identity = Identity {
            nic: home(world, id),
            endpoint: world.number(id),
            session,
        };
        let life = book.borrow_mut().born(id, session);
        // Different for each life; not drawn, so that seeds keep their sequences.
        let config = Config {
            key: Key((u128::from(session.0) << 64 | id as u128).to_le_bytes()),
            ..config
        };
        let unexpected_max = config.unexpected_bytes;
        let limit = config.request_timeout.unwrap_or(Duration::from_secs(20)) * 3;
        let judge = Judge {
            rng,
            book: Rc::clone(book),
            life,
            mood: Mood::Busy,
            defers: habits.deliberates.is_some(),
            next_context: 1,
            ready: 0,
            heard_of: habits.answers.then(Vec::new),
            joined: Vec::new(),
            seen: Vec::new(),
            siege: None,
            world: world.clone(),
        };
        world.note(id, format!("life {life} begins, session {:x}", session.0));
        Self {
            endpoint: Endpoint::new(
                config,
                identity,
                KEY,
                port,
                world.clock(),
                Queue::new(judge),
            ),
            mood: Mood::Busy,
            habits,
            id,
            life,
            nodes,
            world: world.clone(),
            thought: None,
            ops: BTreeMap::new(),
            peers: Vec::new(),
            next_turn: world.now(),
            joins: 0,
            taken: 0,
            unexpected_max,
            limit,
        }
    }

    /// Returns the number of its life.
    pub fn life(&self) -> LifeId {
        self.life
    }

    /// Returns the number of pending sends and connects.
    pub fn outstanding(&self) -> usize {
        self.ops
            .values()
            .filter(|op| !matches!(op.what, What::Recv { .. }))
            .count()
    }

    /// Returns the number of pending connects.
    pub fn calling(&self) -> usize {
        let calls = |op: &&Op| matches!(op.what, What::Connect { .. });
        self.ops.values().filter(calls).count()
    }

    /// Returns the number of all pending operations.
    pub fn posted(&self) -> usize {
        self.ops.len()
    }

    /// Returns a line about all pending operations, for a failure's report.
    pub fn describe(&self) -> String {
        let mut text = format!("node {} life {}:", self.id, self.life);
        for (context, op) in &self.ops {
            let what = match &op.what {
                What::Send { serial, .. } => format!("send of message {serial}"),
                What::Recv { selector } => format!("recv {:x}/{:x}", selector.bits, selector.mask),
                What::Connect { to, .. } => format!("connect to n{to}"),
            };
            let at = op.posted_at.0 as f64 / 1e6;
            text += &format!("\n  {context} {what} of {at} ms {:?}", op.request);
        }
        text
    }

    /// Cancels all posted receives.
    pub fn cancel_receives(&mut self) {
        self.cancel_all(|op| matches!(op.what, What::Recv { .. }));
    }

    /// Cancels all pending sends.
    pub fn cancel_sends(&mut self) {
        self.cancel_all(|op| matches!(op.what, What::Send { .. }));
    }

    /// Cancels all pending connects.
    pub fn cancel_connects(&mut self) {
        self.cancel_all(|op| matches!(op.what, What::Connect { .. }));
    }

    fn cancel_all(&mut self, wanted: impl Fn(&Op) -> bool) {
        let ops = self.ops.iter().filter(|(_, op)| wanted(op));
        let contexts: Vec<u64> = ops.map(|(context, _)| *context).collect();
        for context in contexts {
            self.cancel(context);
        }
    }

    /// Returns the remotes that the node is connected to, as far as it knows.
    pub fn remotes(&self) -> &[RemoteId] {
        &self.peers
    }

    /// Returns the lives at the other ends of all its sessions, including those of which it has not
    /// been told.
    pub fn lives_met(&self) -> Vec<SessionId> {
        let places = 0..self.endpoint.view_places();
        let views = places.filter_map(|place| self.endpoint.view_at(place));
        let names: BTreeSet<_> = views.map(|view| (view.nic, view.endpoint)).collect();
        let of = |(nic, number)| self.endpoint.remotes_of(nic, number);
        let identity = |remote| self.endpoint.remote_identity(remote);
        let met = names.into_iter().flat_map(of).filter_map(identity);
        met.map(|identity| identity.session).collect()
    }

    /// Closes the endpoint; everything must complete now.
    ///
    /// # Panics
    /// If something does not.
    pub fn close(&mut self) {
        self.endpoint.close();
        for life in self.other_lives() {
            self.endpoint
                .owner()
                .book
                .borrow_mut()
                .parted(self.life, life);
        }
        while let Some(completion) = self.endpoint.next_completion() {
            self.on_completion(completion);
        }
        assert!(
            self.ops.is_empty(),
            "operations survived the end: {}",
            self.describe()
        );
        self.stop_thinking();
        self.mood = Mood::Quiet;
        self.empty_inbox();
        self.peers.clear();
    }

    fn other_lives(&self) -> Vec<LifeId> {
        (0..self.endpoint.owner().book.borrow().lives().len())
            .filter(|life| *life != self.life)
            .collect()
    }

    fn rng(&mut self) -> &mut Rng {
        &mut self.endpoint.owner_mut().rng
    }

    fn note(&self, text: impl Into<String>) {
        self.world.note(self.id, text);
    }

    fn post(&mut self, what: What, buffer: &Buffer) -> u64 {
        let context = self.endpoint.owner_mut().next_context();
        let op = Op {
            what,
            request: None,
            buffer: buffer.clone(),
            posted_at: self.world.now(),
        };
        self.ops.insert(context, op);
        context
    }

    /// Records the request of a pending operation.
    fn pending(&mut self, context: u64, request: RequestId) {
        if let Some(op) = self.ops.get_mut(&context) {
            op.request = Some(request);
        }
    }

    fn plan_turn(&mut self) -> Instant {
        let (now, pause) = (self.world.now(), self.habits.pause);
        let grid = (self.habits.grid.as_nanos() as u64).max(1);
        let next = now.after(self.rng().span(pause));
        Instant((next.0 / grid + 1) * grid)
    }

    /// Checks that no operation waits for a dead peer longer than its time-out.
    fn check_limits(&self) {
        let held = self.endpoint.unexpected_bytes() + self.endpoint.inbox_stats().bytes;
        // A credit stands for fewer bytes of contents; two messages of every remote need none.
        let slots = 2 * CREDIT * self.endpoint.remotes();
        assert!(
            held <= self.unexpected_max.max(CREDIT) + slots,
            "{held} bytes of unexpected messages"
        );
        let (used, limit) = self.endpoint.unexpected_usage();
        assert!(used <= limit, "{used} of {limit} bytes are promised");
        let (book, now) = (self.endpoint.owner().book.borrow(), self.world.now());
        for (context, op) in &self.ops {
            let What::Send { to, .. } = op.what else {
                continue;
            };
            let Some(died) = book.lives()[to].died else {
                continue;
            };
            let waited = now.since(op.posted_at.max(died));
            assert!(
                waited <= self.limit + Duration::from_secs(5),
                "operation {context} has waited {waited:?} for a dead peer"
            );
        }
    }
}

impl<P: Port<Buffer>> Drive for Node<P> {
    fn progress(&mut self) -> bool {
        self.endpoint.owner_mut().mood = self.mood;
        let mut busy = self.endpoint.progress();
        while let Some(completion) = self.endpoint.next_completion() {
            self.on_completion(completion);
            busy = true;
        }
        while let Some(down) = self.endpoint.next_down() {
            self.on_down(down);
            busy = true;
        }
        busy |= self.deliberate();
        self.get_to_know();
        self.check_joins();
        busy |= self.take_messages();
        self.check_limits();
        if self.mood != Mood::Quiet && self.next_turn <= self.world.now() {
            busy = true;
            self.next_turn = self.plan_turn();
            match self.mood {
                Mood::Busy => self.take_turn(),
                _ => self.drain(),
            }
        }
        busy
    }

    fn deadline(&self) -> Option<Instant> {
        let own = (self.mood != Mood::Quiet).then_some(self.next_turn);
        let endpoint = self.endpoint.deadline();
        let thought = self.thought.as_ref().map(|thought| thought.until);
        own.into_iter().chain(endpoint).chain(thought).min()
    }
}
impl<P> std::fmt::Debug for Node<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
