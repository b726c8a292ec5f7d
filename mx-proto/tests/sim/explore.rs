//! Every order of a few steps between endpoints: calls, messages, cancels, delays, restarts,
//! address changes, time.
//!
//! ```text
//!   Step --> Node (mx-sim's application, told what to do) -- Endpoint -- SimPort, by hand
//!                `-- Book: the rules, after every step
//!   recover: everything arrives, is received and ends, and the nodes work again
//! ```
//!
//! `make explore DEPTH=n` goes deeper than `make check`. testing/sim/README.md says how to read and
//! replay an order that fails.

use mx_proto::{Config, NicId};
use mx_sim::check::Selector;
use mx_sim::explore::{self, Hand, Move, Moves, Report};
use mx_sim::node::{KEY, NIC};
use mx_sim::scenario::{Network, Reliably, Stage};
use mx_sim::{Buffer, Habits, Node, NodeId, Profile, SimFabric, SimPort, World};
use std::time::Duration;

/// A step of an exploration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    Net(Move),
    /// The first node calls the second at one of its addresses.
    Call(NodeId, NodeId, usize),
    /// The node cancels all its calls.
    HangUp(NodeId),
    /// The node ends the session with its first remote.
    Part(NodeId),
    /// The node sends a message of so many bytes to its first remote.
    Send(NodeId, usize),
    /// The node cancels its sends.
    CancelSends(NodeId),
    /// The node posts a receive.
    Recv(NodeId),
    /// The node cancels its receives.
    CancelRecvs(NodeId),
    /// The node dies, and another life of it begins.
    Restart(NodeId),
    /// The node's addresses change; its links end, or fall silent if the flag is set.
    Move(NodeId, bool),
    /// All links between the two are reset.
    Reset(NodeId, NodeId),
}

/// The number of times that each step may happen at each node, and the setting.
#[derive(Clone, Debug)]
struct Alphabet {
    nodes: usize,
    /// Number of addresses of each node; 0: all nodes are on one machine without addresses.
    addresses: usize,
    calls: usize,
    hang_ups: usize,
    partings: usize,
    sends: usize,
    /// Lengths of messages.
    lens: Vec<usize>,
    recvs: usize,
    cancels: usize,
    restarts: usize,
    changes: usize,
    resets: usize,
    /// Whether sessions move to links of a fabric.
    fabric: bool,
    moves: Moves,
    /// Steps that are taken before the exploration.
    before: Vec<Step>,
}

impl Alphabet {
    fn new(nodes: usize) -> Self {
        let paths = |from| {
            (0..nodes)
                .filter(move |to| *to != from)
                .map(move |to| (from, to))
        };
        let moves = Moves {
            stops: (0..nodes).collect(),
            delays: (0..nodes).flat_map(paths).collect(),
            times: 1,
            span: Duration::from_millis(2_500),
        };
        Self {
            nodes,
            addresses: 0,
            calls: 2,
            hang_ups: 1,
            partings: 1,
            sends: 2,
            lens: vec![SMALL, LARGE],
            recvs: 1,
            cancels: 1,
            restarts: 1,
            changes: 0,
            resets: 0,
            fabric: false,
            moves,
            before: Vec::new(),
        }
    }
}

/// Length of a message that may be sent with its data.
const SMALL: usize = 300;
/// Length of a message that is offered.
const LARGE: usize = 40_000;
const BITS: u64 = 5;

/// Returns the addresses of a node after `changes` changes. Links to an even address leave from an
/// even address.
fn addresses(id: NodeId, changes: usize, count: usize) -> Vec<NicId> {
    let first = 0x10 * (id as u64 + 1) + 0x100 * changes as u64;
    (0..count as u64).map(|nth| NicId(first + nth)).collect()
}

struct Endpoints {
    alphabet: Alphabet,
    stage: Stage<Reliably>,
    hand: Hand,
    taken: Vec<Step>,
}

impl Endpoints {
    fn begin(alphabet: &Alphabet) -> Self {
        let world = World::new(1);
        let profile = Profile {
            fabric: alphabet.fabric.then_some(SimFabric {
                strict: false,
                remote_read: false,
                places: usize::MAX,
            }),
            ..Profile::default()
        };
        let network = Reliably::new(&world, false, profile);
        network.fabric.by_hand();
        for id in 0..alphabet.nodes {
            world.set_addresses(id, addresses(id, 0, alphabet.addresses));
        }
        let config = Config {
            request_timeout: Some(Duration::from_secs(2)),
            waiting_timeout: Some(Duration::from_secs(2)),
            peer_timeout: Some(Duration::from_secs(1)),
            // The first message goes in its slot; the next waits for the slot or for credits that
            // the first asked for.
            first_credits: 0,
            ..Config::default()
        };
        let habits = Habits {
            pieces: false,
            ..Habits::default()
        };
        let mut endpoints = Self {
            alphabet: alphabet.clone(),
            stage: Stage::new((&world, network), alphabet.nodes, (config, habits), true),
            hand: Hand::new(alphabet.moves.clone(), alphabet.nodes),
            taken: Vec::new(),
        };
        alphabet.before.iter().for_each(|step| endpoints.go(step));
        endpoints.taken.clear();
        endpoints
    }

    fn at(&mut self, id: NodeId) -> &mut Node<SimPort<Buffer>> {
        self.stage.at(id)
    }

    fn peek(&self, id: NodeId) -> &Node<SimPort<Buffer>> {
        self.stage.cluster.peek(id).expect("all nodes live")
    }

    fn times(&self, which: impl Fn(&Step) -> bool) -> usize {
        self.taken.iter().filter(|step| which(step)).count()
    }

    fn run(&mut self) {
        self.hand
            .run(&self.stage.network.fabric, &mut self.stage.cluster);
    }

    fn pass(&mut self, span: Duration) {
        let fabric = &self.stage.network.fabric;
        self.hand.pass(span, fabric, &mut self.stage.cluster);
    }

    fn go(&mut self, step: &Step) {
        self.taken.push(*step);
        self.stage.world.note(0, format!("--- {step:?}"));
        let id = match *step {
            Step::Net(step) => {
                let fabric = &self.stage.network.fabric;
                return self.hand.take(step, fabric, &mut self.stage.cluster);
            }
            Step::Call(id, to, at) => {
                let addresses = self.stage.world.addresses(to);
                let nic = addresses.get(at).copied().unwrap_or(NIC);
                self.at(id).connect_at(to, nic, KEY);
                id
            }
            Step::HangUp(id) => {
                self.at(id).cancel_connects();
                id
            }
            Step::Part(id) => {
                if let Some(remote) = self.at(id).remotes().first().copied() {
                    self.at(id).disconnect(remote);
                }
                id
            }
            Step::Send(id, len) => {
                if let Some(remote) = self.at(id).remotes().first().copied() {
                    self.at(id).send(remote, BITS, len);
                }
                id
            }
            Step::CancelSends(id) => {
                self.at(id).cancel_sends();
                id
            }
            Step::Recv(id) => {
                self.at(id).recv(Selector::exact(BITS), LARGE);
                id
            }
            Step::CancelRecvs(id) => {
                self.at(id).cancel_receives();
                id
            }
            Step::Restart(id) => {
                self.stage.kill(id);
                self.stage.begin(id);
                id
            }
            Step::Move(id, silent) => {
                let changes = self.times(|step| matches!(step, Step::Move(of, _) if *of == id));
                let addresses = addresses(id, changes, self.alphabet.addresses);
                self.stage.network.fabric.move_to(id, addresses, silent);
                return self.run();
            }
            Step::Reset(a, b) => {
                self.stage.network.reset(a, b);
                return self.run();
            }
        };
        self.hand.asked(id, *step, &mut self.stage.cluster);
        self.run();
    }

    /// Returns whether nodes have only called, sent and received, and no time has passed.
    fn is_peaceful(&self) -> bool {
        self.times(|step| {
            !matches!(step, Step::Call(..) | Step::Send(..) | Step::Recv(_))
                && (!matches!(step, Step::Net(_)) || *step == Step::Net(Move::Time))
        }) == 0
    }

    /// Returns the number of calls that have timed out.
    fn timed_out(&self) -> u64 {
        let book = self.stage.book.borrow();
        let times = book.tally().get("Connect Timeout");
        times.copied().unwrap_or(0)
    }

    /// Asserts, when all is quiet, that each session has two ends and that there is at most one
    /// session for each called name.
    fn check_sessions(&self) {
        let names = self.alphabet.addresses.max(1);
        for id in 0..self.alphabet.nodes {
            for other in 0..id {
                let ends = [self.sessions(id, other), self.sessions(other, id)];
                assert_eq!(ends[0], ends[1], "sessions of {id} and {other}");
                assert!(
                    ends[0] <= 2 * names,
                    "{} sessions of {id} and {other}",
                    ends[0]
                );
            }
        }
    }

    /// Returns the number of sessions of a node with another.
    fn sessions(&self, id: NodeId, other: NodeId) -> usize {
        let life = self.peek(other).endpoint.identity().session;
        let lives = self.peek(id).lives_met().into_iter();
        lives.filter(|met| *met == life).count()
    }

    /// Checks that a node can send to another, which it calls if they have no session any more.
    fn works(&mut self, from: NodeId, to: NodeId) {
        for _ in 0..2 {
            let known = self.at(from).remotes().to_vec();
            let known = known.into_iter().find(|remote| {
                let identity = self.peek(from).endpoint.remote_identity(*remote);
                identity.is_some_and(|peer| peer.endpoint.0 as NodeId == to)
            });
            if let Some(remote) = known {
                let before = self.stage.received();
                self.at(to).recv(Selector::exact(6), LARGE);
                self.hand.asked(to, "recv", &mut self.stage.cluster);
                self.at(from).send(remote, 6, LARGE);
                self.hand.asked(from, "send", &mut self.stage.cluster);
                self.run();
                self.pass(Duration::from_secs(5));
                let received = self.stage.received();
                assert_eq!(received, before + 1, "{from} cannot send to {to}");
                return;
            }
            self.at(from).connect(to, KEY);
            self.hand.asked(from, "connect", &mut self.stage.cluster);
            self.run();
            self.pass(Duration::from_secs(5));
        }
        panic!("{from} cannot reach {to}");
    }
}

impl explore::World for Endpoints {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let alphabet = &self.alphabet;
        let net = self.hand.steps(&self.stage.network.fabric);
        let mut steps: Vec<_> = net.into_iter().map(Step::Net).collect();
        for id in (0..alphabet.nodes).filter(|id| self.hand.is_running(*id)) {
            let node = self.peek(id);
            let knows = !node.remotes().is_empty();
            let sends = self.times(|step| matches!(step, Step::Send(by, _) if *by == id));
            let calls = self.times(|step| matches!(step, Step::Call(by, ..) if *by == id));
            let changes = self.times(|step| matches!(step, Step::Move(of, _) if *of == id));
            let cancels = |step: &Step| matches!(step, Step::CancelSends(by) | Step::CancelRecvs(by) if *by == id);
            let cancels = self.times(cancels);
            if calls < alphabet.calls {
                for to in (0..alphabet.nodes).filter(|to| *to != id) {
                    let addresses = 0..alphabet.addresses.max(1);
                    steps.extend(addresses.map(|at| Step::Call(id, to, at)));
                }
            }
            if changes < alphabet.changes {
                steps.extend([true, false].map(|silent| Step::Move(id, silent)));
            }
            if knows && sends < alphabet.sends {
                steps.extend(alphabet.lens.iter().map(|len| Step::Send(id, *len)));
            }
            let mut once = |step: Step, most: usize, if_any: bool| {
                if if_any && self.times(|taken| *taken == step) < most {
                    steps.push(step);
                }
            };
            once(Step::HangUp(id), alphabet.hang_ups, node.calling() > 0);
            once(Step::Part(id), alphabet.partings, knows);
            once(Step::Recv(id), alphabet.recvs, true);
            once(Step::Restart(id), alphabet.restarts, true);
            once(Step::Reset(0, 1), alphabet.resets, true);
            if cancels < alphabet.cancels {
                let sending = node.outstanding() > node.calling();
                once(Step::CancelSends(id), 1, sending);
                once(Step::CancelRecvs(id), 1, node.posted() > node.outstanding());
            }
        }
        steps
    }

    fn take(&mut self, step: &Step) {
        self.go(step);
        if self.is_peaceful() {
            let book = self.stage.book.borrow();
            let bad = |what: &&String| what.starts_with("down:") || what.contains("Unreachable");
            assert_eq!(
                book.tally().keys().find(bad),
                None,
                "no node ended anything"
            );
            drop(book);
            for id in 0..self.alphabet.nodes {
                let early = self.peek(id).seen_too_early();
                assert_eq!(early, None, "{id} was not told before of whom it is");
            }
        }
    }

    fn fingerprint(&self) -> u128 {
        // The compared state includes the number of steps that may still happen, except moves of
        // the network.
        let nodes = 0..self.alphabet.nodes;
        let addresses: Vec<_> = nodes.map(|id| self.stage.world.addresses(id)).collect();
        self.hand.fingerprint(&self.stage.network.fabric, addresses)
    }

    fn recover(&mut self) {
        let nodes = 0..self.alphabet.nodes;
        let timed_out = self.timed_out();
        self.hand
            .let_go(&self.stage.network.fabric, &mut self.stage.cluster);
        self.run();
        // Receives all waiting and arriving messages, until none comes.
        loop {
            let before = self.stage.received();
            for id in nodes.clone() {
                self.at(id).recv(Selector { bits: 0, mask: 0 }, LARGE);
                self.hand.asked(id, "drain", &mut self.stage.cluster);
            }
            self.run();
            if self.stage.received() == before {
                break;
            }
        }
        self.pass(Duration::from_secs(10));
        for id in nodes.clone() {
            let node = self.at(id);
            assert_eq!(node.outstanding(), 0, "still waiting: {}", node.describe());
            node.cancel_receives();
        }
        let missing = self.stage.book.borrow().missing();
        assert!(missing.is_empty(), "messages {missing:?} never arrived");
        // Everything on its way arrived, unless an address has changed meanwhile or time has
        // passed.
        let late = |step: &Step| matches!(step, Step::Move(_, true) | Step::Net(Move::Time));
        if self.times(late) == 0 {
            assert_eq!(self.timed_out(), timed_out, "a call was never answered");
        }
        self.check_sessions();
        for from in nodes.clone() {
            for to in nodes.clone().filter(|to| *to != from) {
                self.works(from, to);
            }
        }
        self.check_sessions();
        for id in nodes {
            self.at(id).close();
            self.run();
            let left = self.at(id).endpoint.requests();
            assert_eq!(left, 0, "requests outlive the endpoint");
        }
    }

    fn log(&self) -> String {
        self.stage.world.dump()
    }
}

fn explore(name: &str, alphabet: &Alphabet, depth: usize) -> Report<Step> {
    explore::run(name, || Endpoints::begin(alphabet), depth)
}

#[test]
fn two_strangers_in_every_order() {
    explore("two strangers", &Alphabet::new(2), 4).expect_none();
}

/// Returns an alphabet of two nodes that call, disconnect, cancel calls and send; paths are slow at
/// times.
fn callers() -> Alphabet {
    let mut alphabet = Alphabet::new(2);
    alphabet.moves.stops.clear();
    alphabet.moves.times = 0;
    (alphabet.restarts, alphabet.cancels, alphabet.recvs) = (0, 0, 0);
    alphabet.lens = vec![SMALL];
    alphabet
}

/// A session moves to a fabric while messages are sent, calls are cancelled, and the called side
/// dies.
#[test]
fn a_move_in_every_order() {
    let mut alphabet = callers();
    (alphabet.fabric, alphabet.calls, alphabet.moves.times) = (true, 1, 1);
    (alphabet.recvs, alphabet.restarts, alphabet.resets) = (1, 1, 1);
    alphabet.before = vec![Step::Net(Move::Delay(0, 1)), Step::Call(0, 1, 0)];
    explore("a move", &alphabet, 4).expect_none();
}

/// Returns an alphabet that begins with a session between 0 and 1, which 0 called and on which 1
/// has received a message; the answer to an earlier call of 1 is on its way.
fn crossed() -> Alphabet {
    let mut alphabet = callers();
    (alphabet.calls, alphabet.hang_ups, alphabet.sends) = (1, 0, 1);
    alphabet.before = vec![
        Step::Net(Move::Delay(0, 1)),
        Step::Call(1, 0, 0),
        Step::Net(Move::Pass(0, 1)),
        Step::Call(0, 1, 0),
        Step::Recv(1),
        Step::Send(0, SMALL),
    ];
    alphabet
}

#[test]
fn callers_in_every_order() {
    explore("callers", &callers(), 6).expect_none();
}

/// Sessions end and begin while an old call is answered.
#[test]
fn calls_that_have_crossed_in_every_order() {
    explore("crossed calls", &crossed(), 5).expect_none();
}

/// Returns an alphabet of two nodes with two addresses each, in which packets arrive in every
/// order, except that each link keeps its order.
fn crossing() -> Alphabet {
    let mut alphabet = callers();
    alphabet.addresses = 2;
    alphabet.moves.delays.clear();
    (alphabet.calls, alphabet.hang_ups, alphabet.sends) = (1, 0, 0);
    alphabet.partings = 0;
    let slow = [(0, 1), (1, 0)].map(|(from, to)| Step::Net(Move::Delay(from, to)));
    alphabet.before = slow.to_vec();
    alphabet
}

/// A call of each node, to any address of the other, until everything has arrived.
#[test]
fn calls_cross_over_two_networks_in_every_order() {
    explore("crossing calls", &crossing(), 16).expect_none();
}

#[test]
fn calls_cross_and_call_again_in_every_order() {
    let mut alphabet = crossing();
    (alphabet.calls, alphabet.partings, alphabet.resets) = (2, 1, 1);
    explore("crossing calls again", &alphabet, 6).expect_none();
}

/// The addresses of both nodes change at any time, while they call each other.
#[test]
fn addresses_change_in_every_order() {
    let mut alphabet = crossing();
    (alphabet.calls, alphabet.changes, alphabet.sends) = (2, 1, 1);
    alphabet.moves.times = 1;
    explore("changing addresses", &alphabet, 5).expect_none();
}

#[test]
fn three_strangers_in_every_order() {
    explore("three strangers", &Alphabet::new(3), 3).expect_none();
}

/// Orders that once failed.
mod orders {
    use super::Move::{Delay, Deliver};
    use super::Step::{Net, Part};
    use super::*;

    /// Node 0 disconnects from 1, which does not know that yet when its old call arrives.
    #[test]
    fn a_call_gets_through_after_another_session_has_ended() {
        let up_and_reply = [Net(Deliver(1, 0)); 2];
        let steps = [&[Net(Delay(0, 1)), Part(0)], &up_and_reply[..]].concat();
        if let Err(failure) = explore::replay(|| Endpoints::begin(&crossed()), &steps) {
            panic!("{failure}");
        }
    }
}
