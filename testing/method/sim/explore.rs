//! Every order of a few steps between methods whose hosts act like file servers and their clients:
//! requests, cancels, delays, processes that are stopped and go on, new lives, time.
//!
//! ```text
//!   client                                    server
//!   Ask:   request (unexpected) ------------> received by itself
//!          receive of the answer <----------- Serve: answer, receive of the data
//!   Continue: receive of the end
//!          data (40 kB) --------------------> received
//!          the end <------------------------- Serve: end
//! ```
//!
//! Whatever happens, each operation ends by itself, unless either host has cancelled the exchange;
//! without a fault all operations succeed; and the next request always gets through.
//!
//! `make explore DEPTH=n` goes deeper than `make check`. testing/sim/README.md tells how to read
//! and replay an order that fails.

use crate::rig::{self, Host, Rig};
use bmi_method::abi::constants::*;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::method::PostKind;
use bmi_method::peer::attempts::ATTEMPT_DELAY;
use mx_sim::explore::{self, Hand, Move, Moves, Report};
use mx_sim::{NodeId, Profile};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::time::Duration;

/// A step of an order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Net(Move),
    /// The first node sends a request to the second.
    Ask(NodeId, NodeId),
    /// The client has got its answer and sends the data.
    Continue(NodeId),
    /// The server takes the next step for a client that has asked it.
    Serve(NodeId),
    /// The client cancels the exchange that it has begun,
    GiveUp(NodeId),
    /// or the oldest one that another has begun with it.
    Refuse(NodeId),
    /// The node dies, and another life of it begins.
    Restart(NodeId),
}

/// Allowed steps, and their numbers.
#[derive(Clone, Debug)]
struct Alphabet {
    nodes: usize,
    /// Clients and servers: the first may ask the second,
    asks: Vec<(NodeId, NodeId)>,
    /// this often each, if the exchange before is over.
    each: usize,
    /// Maximum number of exchanges cancelled at each node.
    cancels: usize,
    /// Nodes that may die, once.
    restarts: Vec<NodeId>,
    moves: Moves,
    /// Whether all clients have had an exchange before the first step.
    acquainted: bool,
    /// Whether clients know two addresses of their servers.
    two_addresses: bool,
}

impl Alphabet {
    fn new(nodes: usize, asks: &[(NodeId, NodeId)]) -> Self {
        let ways = asks.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
        Self {
            nodes,
            asks: asks.to_vec(),
            each: 1,
            cancels: 1,
            restarts: (0..nodes).collect(),
            moves: Moves {
                stops: (0..nodes).collect(),
                delays: ways.collect(),
                times: 1,
                span: PEER_TIMEOUT * 3 / 2,
            },
            acquainted: false,
            two_addresses: false,
        }
    }
}

const PEER_TIMEOUT: Duration = Duration::from_millis(800);
/// Number of peer time-outs without an end after which nothing will end: operations that wait for a
/// silent peer, for a peer that does not answer a call, or for both one after the other, end within
/// three.
const FRUITLESS: u32 = 5;
/// Bytes of a message that is announced and pulled.
const DATA: usize = 40_000;
const SMALL: usize = 16;

/// Name of an exchange among all: the node that began it, its life, and the number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    client: NodeId,
    life: usize,
    number: usize,
}

impl Name {
    fn tag(self) -> i32 {
        (self.client * 10_000 + self.life * 100 + self.number) as i32
    }

    /// Returns the bytes of one message of the exchange.
    fn bytes(self, what: Part, len: usize) -> Vec<u8> {
        let head = [
            self.client as u8,
            self.life as u8,
            self.number as u8,
            what as u8,
        ];
        let mut pattern = head.repeat(len.div_ceil(head.len()));
        pattern.truncate(len);
        pattern
    }

    fn read(bytes: &[u8]) -> Self {
        let [client, life, number] = [0, 1, 2].map(|at| bytes[at].into());
        let name = Self {
            client,
            life,
            number,
        };
        assert_eq!(
            bytes,
            name.bytes(Part::Request, SMALL),
            "a request that was not made"
        );
        name
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Request = 1,
    Answer,
    Data,
    End,
}

/// An operation of an exchange.
#[derive(Clone, Copy, Debug)]
struct Op {
    part: Part,
    label: u64,
    receives: bool,
}

/// An exchange as seen by one node.
#[derive(Clone, Debug)]
struct Exchange {
    name: Name,
    with: NonNull<bmi_method_addr>,
    ops: Vec<Op>,
    /// Whether an operation has failed: the host continues it no further.
    failed: bool,
    /// Whether the host has cancelled it.
    given_up: bool,
}

impl Exchange {
    fn new(name: Name, with: NonNull<bmi_method_addr>) -> Self {
        Self {
            name,
            with,
            ops: Vec::new(),
            failed: false,
            given_up: false,
        }
    }

    fn post(&mut self, host: &mut Host, part: Part, receives: bool) {
        let tag = self.name.tag();
        let len = if part == Part::Data { DATA } else { SMALL };
        let (kind, bytes) = match part {
            _ if receives => (PostKind::Recv, vec![0xee; len]),
            Part::Request => (PostKind::SendUnexpected, self.name.bytes(part, len)),
            _ => (PostKind::Send, self.name.bytes(part, len)),
        };
        let label = host.post(kind, self.with, tag, bytes.into()).unwrap();
        self.ops.push(Op {
            part,
            label,
            receives,
        });
    }

    fn is_well(&self) -> bool {
        !self.failed && !self.given_up
    }

    /// Returns whether this part of it has been received.
    fn has(&self, host: &Host, part: Part) -> bool {
        let op = self.ops.iter().find(|op| op.part == part && op.receives);
        op.is_some_and(|op| host.error(op.label) == Some(0))
    }

    fn posted(&self, part: Part) -> bool {
        self.ops.iter().any(|op| op.part == part)
    }

    fn pending(&self, host: &Host) -> Vec<Op> {
        let pending = self.ops.iter().filter(|op| host.error(op.label).is_none());
        pending.copied().collect()
    }

    fn cancel(&self, host: &mut Host) {
        self.ops.iter().for_each(|op| host.cancel(op.label));
    }

    /// Handles completions.
    fn look(&mut self, host: &Host) {
        for op in &self.ops {
            let Some(ended) = host.ended.get(&op.label) else {
                continue;
            };
            self.failed |= ended.error != 0;
            if op.receives && ended.error == 0 {
                let expected = self.name.bytes(op.part, ended.bytes.len());
                assert_eq!(ended.bytes, expected, "{:?} of another exchange", op.part);
            }
        }
    }
}

/// Exchanges of a host.
#[derive(Clone, Default, Debug)]
struct App {
    /// Exchanges that it has begun; the last one may be under way.
    asked: Vec<Exchange>,
    /// Exchanges that others have begun.
    served: Vec<Exchange>,
    /// Number of unexpected messages handled so far.
    fetched: usize,
}

struct Methods {
    alphabet: Alphabet,
    rig: Rig,
    hand: Hand,
    apps: Vec<App>,
    lives: Vec<usize>,
    taken: Vec<Step>,
    /// All exchanges so far, with their server.
    begun: Vec<(Name, NodeId)>,
    /// Exchanges that either host has cancelled.
    called_off: BTreeSet<Name>,
}

impl Methods {
    fn begin(alphabet: &Alphabet) -> Self {
        let mut rig = Rig::new(1);
        rig.fabric.by_hand();
        rig.endpoint.peer_timeout = Some(PEER_TIMEOUT);
        rig.settings.connect_timeout = Some(PEER_TIMEOUT);
        for _ in 0..alphabet.nodes {
            rig.add(Profile::default());
        }
        for (client, server) in alphabet.asks.iter().filter(|_| alphabet.two_addresses) {
            let host = rig.host(*client);
            let addr = host.look_up_at(*server, &[rig::NIC, rig::OTHER_NIC]);
            host.use_addr(*server, addr);
        }
        let mut methods = Self {
            alphabet: alphabet.clone(),
            rig,
            hand: Hand::new(alphabet.moves.clone(), alphabet.nodes),
            apps: vec![App::default(); alphabet.nodes],
            lives: vec![0; alphabet.nodes],
            taken: Vec::new(),
            begun: Vec::new(),
            called_off: BTreeSet::new(),
        };
        if alphabet.acquainted {
            for (client, server) in alphabet.asks.clone() {
                methods.exchange(client, server);
            }
            methods.taken.clear();
        }
        methods
    }

    fn host(&self, id: NodeId) -> &Host {
        match self.rig.cluster.peek(id) {
            Some(rig::Node::Host(host)) => host,
            _ => panic!("node {id} is no living host"),
        }
    }

    /// Returns the application of a node with its host.
    fn at(&mut self, id: NodeId) -> (&mut App, &mut Host) {
        (&mut self.apps[id], self.rig.peek(id))
    }

    fn may_continue(&self, id: NodeId) -> bool {
        self.apps[id].asked.last().is_some_and(|exchange| {
            exchange.is_well()
                && exchange.has(self.host(id), Part::Answer)
                && !exchange.posted(Part::Data)
        })
    }

    /// Returns the exchange that a node can continue.
    fn to_serve(&self, id: NodeId) -> Option<usize> {
        self.apps[id].served.iter().position(|exchange| {
            let begun = exchange.posted(Part::Answer);
            let data = exchange.has(self.host(id), Part::Data);
            exchange.is_well() && (!begun || data && !exchange.posted(Part::End))
        })
    }

    /// Returns the oldest exchange that others have begun and that is not over.
    fn to_refuse(&self, id: NodeId) -> Option<usize> {
        self.apps[id].served.iter().position(|exchange| {
            exchange.is_well()
                && !(exchange.posted(Part::End) && exchange.pending(self.host(id)).is_empty())
        })
    }

    fn is_asking(&self, id: NodeId) -> bool {
        let exchange = self.apps[id].asked.last();
        exchange
            .is_some_and(|exchange| exchange.is_well() && !exchange.has(self.host(id), Part::End))
    }

    fn count(&self, which: impl Fn(&Step) -> bool) -> usize {
        self.taken.iter().filter(|step| which(step)).count()
    }

    fn go(&mut self, step: &Step) {
        self.taken.push(*step);
        self.rig.world.note(0, format!("--- {step:?}"));
        let id = match *step {
            Step::Net(step) => {
                self.hand
                    .take(step, &self.rig.fabric, &mut self.rig.cluster);
                return self.look();
            }
            Step::Ask(id, server) => {
                let number = self.apps[id].asked.len() + 1;
                let name = Name {
                    client: id,
                    life: self.lives[id],
                    number,
                };
                self.begun.push((name, server));
                let (app, host) = self.at(id);
                let mut exchange = Exchange::new(name, host.addr(server));
                exchange.post(host, Part::Answer, true);
                exchange.post(host, Part::Request, false);
                app.asked.push(exchange);
                id
            }
            Step::Continue(id) => {
                let (app, host) = self.at(id);
                let exchange = app.asked.last_mut().expect("it may go on");
                exchange.post(host, Part::End, true);
                exchange.post(host, Part::Data, false);
                id
            }
            Step::Serve(id) => {
                let which = self.to_serve(id).expect("it has something to do");
                let (app, host) = self.at(id);
                let exchange = &mut app.served[which];
                if exchange.posted(Part::Answer) {
                    exchange.post(host, Part::End, false);
                } else {
                    exchange.post(host, Part::Data, true);
                    exchange.post(host, Part::Answer, false);
                }
                id
            }
            Step::GiveUp(id) => {
                let (app, host) = self.at(id);
                let exchange = app.asked.last_mut().expect("it is asking");
                exchange.given_up = true;
                exchange.cancel(host);
                let name = exchange.name;
                self.called_off.insert(name);
                id
            }
            Step::Refuse(id) => {
                let which = self.to_refuse(id).expect("there is one");
                let (app, host) = self.at(id);
                let exchange = &mut app.served[which];
                exchange.given_up = true;
                exchange.cancel(host);
                let name = exchange.name;
                self.called_off.insert(name);
                id
            }
            Step::Restart(id) => {
                self.rig.kill(id);
                self.rig.restart(id, Profile::default());
                self.lives[id] += 1;
                self.apps[id] = App::default();
                id
            }
        };
        self.hand.asked(id, *step, &mut self.rig.cluster);
        self.run();
    }

    fn run(&mut self) {
        self.hand.run(&self.rig.fabric, &mut self.rig.cluster);
        self.look();
    }

    /// Handles completions and messages, and checks them.
    fn look(&mut self) {
        for id in 0..self.alphabet.nodes {
            let (app, host) = self.at(id);
            while let Some(got) = host.got.get(app.fetched) {
                app.fetched += 1;
                let addr = got.addr();
                let name = Name::read(&got.bytes);
                assert_eq!(got.tag, name.tag());
                let known = app.served.iter().map(|exchange| exchange.name);
                let later = known.filter(|known| known.client == name.client);
                assert!(
                    later.max() < Some(name),
                    "request {name:?} came twice, or too late"
                );
                app.served.push(Exchange::new(name, addr));
            }
            let all = app.asked.iter_mut().chain(&mut app.served);
            all.for_each(|exchange| exchange.look(host));
            let endpoint = host.method.endpoint();
            assert_eq!(
                endpoint.stats().malformed,
                0,
                "{id}: a peer was failed as none of ours"
            );
        }
    }

    /// Returns true if nothing has happened that may make an operation fail.
    fn is_peaceful(&self) -> bool {
        let Moves { times, span, .. } = self.alphabet.moves;
        let times_out = span * times as u32 >= PEER_TIMEOUT;
        self.count(|step| match step {
            Step::GiveUp(_) | Step::Refuse(_) | Step::Restart(_) => true,
            Step::Net(Move::Time) => times_out,
            _ => false,
        }) == 0
    }

    /// Lets all nodes work until everything has ended, or nothing has for a while.
    fn work(&mut self) {
        let (mut before, mut fruitless) = (usize::MAX, 0);
        while fruitless < FRUITLESS {
            let nodes = 0..self.alphabet.nodes;
            let go_on = nodes.clone().find(|id| self.may_continue(*id));
            let serve = nodes.clone().find(|id| self.to_serve(*id).is_some());
            if let Some(id) = go_on {
                self.go(&Step::Continue(id));
                continue;
            } else if let Some(id) = serve {
                self.go(&Step::Serve(id));
                continue;
            }
            let pending = nodes.map(|id| self.host(id).outstanding().len()).sum();
            if pending == 0 {
                return;
            }
            fruitless = if pending < before { 0 } else { fruitless + 1 };
            before = pending;
            let (fabric, cluster) = (&self.rig.fabric, &mut self.rig.cluster);
            self.hand.pass(PEER_TIMEOUT, fabric, cluster);
            self.look();
        }
    }

    /// Makes an exchange that must succeed.
    fn exchange(&mut self, client: NodeId, server: NodeId) {
        self.go(&Step::Ask(client, server));
        self.work();
        let host = self.host(client);
        let exchange = self.apps[client].asked.last().expect("it has asked");
        let errors: Vec<_> = exchange
            .ops
            .iter()
            .map(|op| (op.part, host.error(op.label)))
            .collect();
        assert!(
            errors.len() == 4 && errors.iter().all(|(_, error)| *error == Some(0)),
            "{client} cannot have an exchange with {server}: {errors:?}"
        );
    }

    /// Checks that every call has a session with a peer at each end, and that there are no others.
    fn check_sessions(&self) {
        for id in 0..self.alphabet.nodes {
            let ends = |(client, server): &(NodeId, NodeId)| [*client, *server].contains(&id);
            let calls = self.alphabet.asks.iter().filter(|ask| ends(ask)).count();
            let method = &self.host(id).method;
            let found = (method.peers().len(), method.endpoint().remotes());
            assert_eq!(found, (calls, calls), "peers and sessions of {id}");
        }
    }

    /// Returns true if either host has cancelled the exchange; or if a connection was lost and its
    /// client has begun another exchange since, so that the client can no longer tell which session
    /// an operation is meant for. A server always can: each session of a client has an object of
    /// its own.
    fn is_excused(&self, id: NodeId, exchange: &Exchange) -> bool {
        let at = |name: Name| self.begun.iter().position(|(begun, _)| *begun == name);
        let Some(at) = at(exchange.name) else {
            return false;
        };
        let ends = |(name, server): &(Name, NodeId)| (name.client, *server);
        let (client, server) = ends(&self.begun[at]);
        let mut later = self.begun[at + 1..].iter();
        let again = id == client && later.any(|other| ends(other) == (client, server));
        self.called_off.contains(&exchange.name) || again && !self.is_peaceful()
    }

    fn says(&self, id: NodeId, exchange: &Exchange, why: &str) -> String {
        let pending = exchange.pending(self.host(id));
        let errors = exchange
            .ops
            .iter()
            .map(|op| (op.part, self.host(id).error(op.label)));
        let errors: Vec<_> = errors.collect();
        format!(
            "{why}: at {id}, {:?}: {pending:?} of {errors:?}",
            exchange.name
        )
    }
}

impl explore::World for Methods {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let alphabet = &self.alphabet;
        let net = self.hand.steps(&self.rig.fabric);
        let mut steps: Vec<_> = net.into_iter().map(Step::Net).collect();
        for (client, server) in &alphabet.asks {
            let ask = Step::Ask(*client, *server);
            if self.hand.is_running(*client)
                && !self.is_asking(*client)
                && self.count(|step| *step == ask) < alphabet.each
            {
                steps.push(ask);
            }
        }
        for id in (0..alphabet.nodes).filter(|id| self.hand.is_running(*id)) {
            let cancels = |step: &Step| [Step::GiveUp(id), Step::Refuse(id)].contains(step);
            let may_cancel = self.count(cancels) < alphabet.cancels;
            let restart = Step::Restart(id);
            let may_restart = alphabet.restarts.contains(&id) && !self.taken.contains(&restart);
            let steps_of_it = [
                (Step::Continue(id), self.may_continue(id)),
                (Step::Serve(id), self.to_serve(id).is_some()),
                (Step::GiveUp(id), may_cancel && self.is_asking(id)),
                (Step::Refuse(id), may_cancel && self.to_refuse(id).is_some()),
                (restart, may_restart),
            ];
            steps.extend(
                steps_of_it
                    .iter()
                    .filter(|(_, may)| *may)
                    .map(|(step, _)| *step),
            );
        }
        steps
    }

    fn take(&mut self, step: &Step) {
        self.go(step);
        for id in 0..self.alphabet.nodes {
            self.host(id).check_buffers();
            for (label, ended) in &self.host(id).ended {
                let error = ended.error;
                let mut codes = vec![0, -BMI_ENETRESET, -BMI_ETIMEDOUT, -BMI_ECANCEL];
                if !self.called_off.is_empty() {
                    // A send whose receive was cancelled.
                    codes.push(-BMI_ENORECVR);
                }
                let text = || format!("operation {label} of {id} ended with {error}");
                assert!(codes.contains(&error), "{}", text());
                let reason = error == 0 || !self.is_peaceful();
                assert!(reason, "{}, without a cause", text());
            }
        }
    }

    fn fingerprint(&self) -> u128 {
        self.hand.fingerprint(&self.rig.fabric, ())
    }

    fn recover(&mut self) {
        self.hand.let_go(&self.rig.fabric, &mut self.rig.cluster);
        self.look();
        self.work();
        let nodes = 0..self.alphabet.nodes;
        for id in nodes.clone() {
            let app = &self.apps[id];
            for exchange in app.asked.iter().chain(&app.served) {
                let over = exchange.pending(self.host(id)).is_empty();
                let text = || self.says(id, exchange, "it waits for ever");
                assert!(over || self.is_excused(id, exchange), "{}", text());
                let well = exchange.is_well() || !self.is_peaceful();
                assert!(
                    well,
                    "{}",
                    self.says(id, exchange, "it failed without a reason")
                );
            }
            // The rest is cancelled.
            let (app, host) = self.at(id);
            let all = app.asked.iter_mut().chain(&mut app.served);
            for exchange in all {
                exchange.given_up |= !exchange.pending(host).is_empty();
                exchange.cancel(host);
            }
            self.hand.asked(id, "cancel", &mut self.rig.cluster);
            self.run();
            let left = self.host(id).outstanding();
            assert!(left.is_empty(), "{left:?} of {id} cannot be called off");
        }
        for (client, server) in self.alphabet.asks.clone() {
            self.exchange(client, server);
        }
        if self.is_peaceful() {
            self.check_sessions();
        }
        nodes.for_each(|id| self.host(id).check_buffers());
    }

    fn log(&self) -> String {
        self.rig.world.dump()
    }
}

fn explore(name: &str, alphabet: &Alphabet, depth: usize) -> Report<Step> {
    explore::run(name, || Methods::begin(alphabet), depth)
}

fn pair() -> Alphabet {
    Alphabet::new(2, &[(1, 0)])
}

/// Two nodes without faults, except that either may be stopped for longer than the peer time-out.
fn stopped() -> Alphabet {
    let mut alphabet = pair();
    alphabet.restarts.clear();
    alphabet.cancels = 0;
    alphabet.moves.delays.clear();
    alphabet
}

#[test]
fn a_client_and_its_server_in_every_order() {
    explore("a client and its server", &pair(), 5).expect_none();
}

#[test]
fn a_client_that_knows_its_server_in_every_order() {
    let mut alphabet = pair();
    alphabet.acquainted = true;
    explore("a client that knows its server", &alphabet, 4).expect_none();
}

/// A client or server wrongly declares the other lost during an exchange: every order of what can
/// follow, to the end.
#[test]
fn a_client_and_its_server_that_are_stopped_in_every_order() {
    explore("stopped", &stopped(), 8).expect_none();
}

#[test]
fn a_client_that_is_stopped_in_every_order() {
    let mut alphabet = stopped();
    alphabet.moves.stops = vec![1];
    explore("a stopped client", &alphabet, 8).expect_none();
}

#[test]
fn two_servers_that_ask_each_other_in_every_order() {
    let alphabet = Alphabet::new(2, &[(1, 0), (0, 1)]);
    explore("two servers", &alphabet, 3).expect_none();
}

/// Without faults two calls are two sessions, in whichever order they arrive.
#[test]
fn two_that_call_each_other_at_once_in_every_order() {
    let mut alphabet = Alphabet::new(2, &[(1, 0), (0, 1)]);
    alphabet.restarts.clear();
    alphabet.cancels = 0;
    alphabet.moves.stops.clear();
    alphabet.moves.times = 0;
    explore("two that call each other", &alphabet, 6).expect_none();
}

/// The answers to two attempts arrive in either order, or while the other side is stopped: one
/// becomes the session, and no end keeps anything of the other.
#[test]
fn a_client_that_calls_two_addresses_in_every_order() {
    let mut alphabet = stopped();
    alphabet.two_addresses = true;
    alphabet.moves.delays = vec![(0, 1), (1, 0)];
    alphabet.moves.times = 2;
    alphabet.moves.span = ATTEMPT_DELAY + Duration::from_millis(10);
    explore("a client that calls two addresses", &alphabet, 6).expect_none();
}

#[test]
fn two_clients_of_a_server_in_every_order() {
    let alphabet = Alphabet::new(3, &[(1, 0), (2, 0)]);
    explore("two clients", &alphabet, 3).expect_none();
}

/// Orders that once failed.
mod orders {
    use super::Move::{Delay, Go, Stop, Time};
    use super::Step::{Ask, Continue, Net, Restart, Serve};
    use super::*;

    fn goes_well(alphabet: &Alphabet, steps: &[Step]) {
        if let Err(failure) = explore::replay(|| Methods::begin(alphabet), steps) {
            panic!("{failure}");
        }
    }

    /// The server has declared the client lost. The client has got its answer nevertheless, and
    /// continues an exchange that only one of the two knows.
    #[test]
    fn data_for_a_server_that_gave_up_does_not_wait_for_ever() {
        goes_well(
            &pair(),
            &[
                Ask(1, 0),
                Serve(0),
                Net(Stop(1)),
                Net(Time),
                Net(Go(1)),
                Continue(1),
            ],
        );
    }

    /// The server answers a client that has given it up, or that has a new life.
    #[test]
    fn answer_to_an_absent_client_does_not_block_the_server() {
        goes_well(&pair(), &[Ask(1, 0), Restart(1)]);
        goes_well(&pair(), &[Ask(1, 0), Net(Stop(0)), Net(Time)]);
        goes_well(&pair(), &[Ask(1, 0), Net(Delay(1, 0)), Net(Time)]);
    }
}
