//! Two endpoints in two processes, over each port: cases in which the other process dies, is
//! stopped, comes back, or is copied.
//!
//! ```text
//!   this process                       the same program as "child peers WAY ENDPOINT", a server
//!     bits ECHO: a message   ------>     sends it back with bits BACK
//!     bits ONE_WAY           ------>     receives, and prints "flowing" after some messages
//!     bits NOWHERE           ------>     never received
//!                                      the same program as "child peers WAY ENDPOINT of another", a client
//!     receives ONE_WAY       <------     sends for ever
//! ```
//!
//! The kernel reports a death at once over shared memory, TCP and its own UDP. Over libfabric the
//! TCP link on which the session began ends, and then the peer is silent.

use crate::node::{self, LONG, Node, NotConnected, pattern, pending, waiting};
use crate::{cases, signal};
use mx_port_dgram::BackendChoice;
use mx_proto::port::ConnectError;
use mx_proto::{
    Config, Down, DownReason, EndpointId, Identity, MatchBits, MatchMask, NicId, PostError,
    ReceivePosted, RemoteId, Route, Status, Target,
};
use mx_sim::{Cancelled, Completion};
use mx_sys::{
    EndpointChoice, MallocBuffer, OpenOptions, ROUTE_DGRAM, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP,
    UserMemory,
};
use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Match bits of the messages.
const ECHO: u64 = 1;
const BACK: u64 = 2;
const ONE_WAY: u64 = 3;
const NOWHERE: u64 = 4;

/// Length of the longest echoed message, and of the longest in a stream: too large to be sent
/// unasked, so each is under way for a while.
const LARGE: usize = 4 << 20;
const FLOWING: usize = 2_400_000;

fn flowing(way: Way) -> Vec<u8> {
    let part = if way.route == ROUTE_LOCAL { 1 } else { 4 };
    pattern(FLOWING / part, 2)
}

/// Number of messages after which a stream is flowing.
const SOME: u32 = 50;

/// A port, and its carrier.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    route: Route,
    backend: BackendChoice,
    /// Silence after which a peer counts as dead.
    give_up: Duration,
    /// The time within which a death must have been noticed.
    noticed: Duration,
    /// The usual time until the death of a peer is noticed with which nothing is under way and for
    /// whose messages a receive waits.
    missed: Duration,
    /// Whether a child of fork can open an endpoint of its own; libfabric belongs to the parent.
    after_fork: bool,
}

/// Time beyond that in the documentation, for processes that wait for a processor.
const MARGIN: Duration = Duration::from_secs(2);

/// Long enough that a busy host does not make living peers count as dead.
const SILENCE: Duration = Duration::from_secs(2);

/// The kernel reports a death at once, long before this time-out.
const UDP: Way = Way {
    name: "udp",
    route: ROUTE_DGRAM,
    backend: BackendChoice::Udp,
    give_up: LONG,
    noticed: MARGIN,
    missed: Duration::from_millis(100),
    after_fork: true,
};

const FABRIC: Way = Way {
    name: "fabric",
    backend: BackendChoice::Fabric,
    give_up: SILENCE,
    noticed: MARGIN,
    // The end of the first link, and a quarter of a second without an answer.
    missed: Duration::from_secs(1),
    after_fork: false,
    ..UDP
};

const WAYS: [Way; 5] = [
    Way {
        name: "local",
        route: ROUTE_LOCAL,
        ..UDP
    },
    Way {
        name: "tcp",
        route: ROUTE_TCP,
        ..UDP
    },
    Way {
        name: "rdm",
        route: ROUTE_RDM,
        ..FABRIC
    },
    UDP,
    FABRIC,
];

type Case = fn(Way);

const CASES: &[(&str, Case)] = cases::named![
    killed_peer_ends_its_operations_and_frees_its_name,
    a_killed_peer_that_is_only_waited_for_is_missed_at_once,
    peer_restarted_before_its_death_was_noticed_is_reachable,
    peer_stopped_for_long_connects_anew_when_it_continues,
    a_killed_client_is_missed_and_the_others_go_on,
    a_forked_child_leaves_its_parents_endpoint_alone,
    a_blocked_server_uses_no_processor,
];

pub(crate) fn run() -> ExitCode {
    cases::run(
        "peers",
        CASES.iter().flat_map(|(name, case)| {
            WAYS.map(|way| (format!("{name} ({})", way.name), move || case(way)))
        }),
    )
}

fn killed_peer_ends_its_operations_and_frees_its_name(way: Way) {
    let (node, mut server, to) = with_server(way);
    let identity = server.identity;
    let (large, flowing) = (pattern(LARGE, 1), flowing(way));
    for context in 0..3 {
        pending(node.send(to, NOWHERE, &large, context));
    }
    let mut stream = Stream::start(&node, to, &flowing);
    while !server.has_said("flowing") {
        stream.go_on(&node, to, &flowing);
    }
    // Data under way in both directions.
    let mut got = vec![0; LARGE];
    pending(node.send(to, ECHO, &large, 3));
    let receive = waiting(node.post(BACK, &mut got, 4));
    let begin = Instant::now();
    server.signal(libc::SIGKILL);
    stream.end(&node, to, &flowing);
    for context in 0..3 {
        assert_ne!(node.done(context).status, Status::Success);
    }
    node.done(3);
    let Down {
        remote,
        identity: gone,
        reason,
        ..
    } = node.event();
    assert_eq!((remote, gone), (to, identity));
    assert!(matches!(reason, DownReason::Link(_)), "{reason:?}");
    let took = begin.elapsed();
    println!("  noticed after {} ms: {reason:?}", took.as_millis());
    assert!(took < way.noticed, "{took:?}");
    // A receive that the message had matched has ended; one that nothing matched is still posted.
    match node.cancel(receive) {
        Cancelled::Unknown => assert_ne!(node.done(4).status, Status::Success),
        cancelled => assert_eq!(cancelled, Cancelled::Withdrawn),
    }
    assert_eq!(node.shared.lock().endpoint.requests(), 0);
    drop(server);

    let refused = node.connect(target(way, identity)).unwrap_err();
    match way.route {
        ROUTE_LOCAL => assert_eq!(refused, NotConnected::AtOnce(ConnectError::Refused)),
        ROUTE_TCP => assert_eq!(refused, NotConnected::Later(Status::EndpointClosed)),
        _ => assert!(matches!(refused, NotConnected::Later(_)), "{refused:?}"),
    }
    // The name is free for any endpoint ...
    let exact = EndpointChoice::Exact(identity.endpoint);
    drop(open(way, exact));
    // ... and for a successor, in another session.
    let server = Server::start(way, Some(identity.endpoint));
    assert_ne!(server.identity.session, identity.session);
    let to = node.connect(target(way, server.identity)).unwrap();
    assert!(round_trip(&node, to, &large) == large);
}

fn a_killed_peer_that_is_only_waited_for_is_missed_at_once(way: Way) {
    // Waiting times, in ms. If only silence shows a death, each takes its time.
    let waits: &[u64] = match way.give_up {
        LONG => &[0, 7, 30, 60, 110, 350, 1_510],
        _ => &[0, 350],
    };
    let one = |wait: &u64| {
        let (node, server, to) = with_server(way);
        let memory = UserMemory::owned(MallocBuffer::new(8).unwrap());
        let (bits, mask) = (MatchBits(NOWHERE), MatchMask::EXACT);
        let receive = (node.shared.lock().endpoint).recv_from(to, bits, mask, (memory, 1));
        assert!(matches!(receive, Ok(ReceivePosted::Pending(_))));
        std::thread::sleep(Duration::from_millis(*wait));
        let begin = Instant::now();
        server.signal(libc::SIGKILL);
        let Down { identity, .. } = node.event();
        assert_eq!(identity, server.identity);
        begin.elapsed()
    };
    // On a busy machine, one of three rounds has to show the usual time.
    let usually = (0..3).any(|_| {
        let mut took: Vec<Duration> = waits.iter().map(one).collect();
        println!("  missed after {took:?}, having been waited for {waits:?} ms");
        took.sort_unstable();
        assert!(took[took.len() - 1] < way.noticed, "at worst");
        took[took.len() / 2] < way.missed
    });
    assert!(usually, "usually");
}

fn peer_restarted_before_its_death_was_noticed_is_reachable(way: Way) {
    let (node, server, to) = with_server(way);
    let old = server.identity;
    let large = pattern(LARGE, 1);
    pending(node.send(to, NOWHERE, &large, 1));
    server.signal(libc::SIGKILL);
    drop(server);
    let server = Server::start(way, Some(old.endpoint));
    // A call on the old link ends with it, and the next call finds the successor.
    let begin = Instant::now();
    let first = node.connect(target(way, server.identity));
    let again = first.or_else(|_| node.connect(target(way, server.identity)));
    let again = again.unwrap();
    assert!(begin.elapsed() < way.noticed, "{:?}", begin.elapsed());
    assert_eq!(round_trip(&node, again, b"who are you"), b"who are you");
    // Operations with the predecessor have ended.
    assert_ne!(node.done(1).status, Status::Success);
    let Down { identity: gone, .. } = node.event();
    assert_eq!(gone, old);
    assert!(round_trip(&node, again, &large) == large);
}

fn peer_stopped_for_long_connects_anew_when_it_continues(way: Way) {
    let (node, server, to) = with_server(way);
    let large = pattern(LARGE, 1);
    server.signal(libc::SIGSTOP);
    let stopped = pending(node.send(to, NOWHERE, &large, 1));
    if way.give_up == LONG {
        // The peer does not count as dead, and its silence delays nothing.
        assert_eq!(node.cancel(stopped), Cancelled::Withdrawn);
    } else {
        assert_ne!(node.done(1).status, Status::Success);
        assert_eq!(node.event().identity, server.identity);
    }
    server.signal(libc::SIGCONT);
    let to = node.connect(target(way, server.identity)).unwrap();
    assert!(round_trip(&node, to, &large) == large);
}

/// A thread blocked in a wait and the helper thread beside it, with a remote.
fn a_blocked_server_uses_no_processor(way: Way) {
    if way.give_up != LONG {
        // The threads of libfabric are not ours.
        return;
    }
    let (node, server, to) = with_server(way);
    let text = Node::exact(server.identity.endpoint).unwrap_err();
    let used = format!("endpoint {} is in use", server.identity.endpoint.0);
    assert!(text.to_string().starts_with(&used), "{text}");
    assert_eq!(round_trip(&node, to, b"there"), b"there");
    // The woken threads come to rest, within at most one long tick of the helper.
    std::thread::sleep(Duration::from_millis(200));
    let (before, span) = (server.activity(), Duration::from_secs(1));
    std::thread::sleep(span);
    let after = server.activity();
    let (wakes, used) = (after.0 - before.0, after.1 - before.1);
    println!("  blocked: {wakes} wakes, {used:?} of processor time in {span:?}");
    // The helper's ticks, and two checks a second that the descriptors still exist. The cost of a
    // wake depends on the machine: up to 2 ms when a virtual machine loses its processor. A
    // spinning thread would use all of the time.
    assert!(wakes <= 16 && used < span / 4, "{wakes} wakes, {used:?}");
    assert_eq!(round_trip(&node, to, b"still there"), b"still there");
}

fn a_killed_client_is_missed_and_the_others_go_on(way: Way) {
    let node = open(way, EndpointChoice::Any);
    let clients = [(); 2].map(|()| Server::client(way, node.identity));
    let mut buffer = vec![0; FLOWING];
    // The sender of the next message, or the status if the sender died during it.
    let mut receive = || {
        let done = node.receive(ONE_WAY, &mut buffer);
        let engine = node.shared.lock();
        match done.status {
            Status::Success => Ok(engine.endpoint.remote_identity(done.remote)),
            status => Err(status),
        }
    };
    let [dead, alive] = clients;
    for client in [&dead, &alive] {
        while receive().unwrap() != Some(client.identity) {}
    }
    let begin = Instant::now();
    dead.signal(libc::SIGKILL);
    let (mut cut_short, mut down) = (0, None);
    while down.is_none() {
        cut_short += usize::from(receive().is_err());
        down = node.shared.lock().events.pop_front();
        assert!(begin.elapsed() < way.give_up + MARGIN, "never missed");
    }
    let Some(Down { identity, .. }) = down else {
        panic!("{down:?}");
    };
    assert_eq!(identity, dead.identity);
    // There was one receive at a time.
    assert!(cut_short <= 1, "{cut_short}");
    let mut left = 50;
    while left > 0 {
        left -= usize::from(receive().unwrap() == Some(alive.identity));
    }
}

fn a_forked_child_leaves_its_parents_endpoint_alone(way: Way) {
    let (node, server, to) = with_server(way);
    let large = pattern(LARGE, 1);
    let mut got = vec![0; LARGE];
    // In both directions, while the process is copied.
    assert!(matches!(
        node.post(BACK, &mut got, 1),
        ReceivePosted::Pending(_)
    ));
    pending(node.send(to, ECHO, &large, 2));
    // SAFETY: the child opens what it uses, touches nothing of the parent's, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let ok = catch_unwind(AssertUnwindSafe(|| {
            if way.after_fork {
                let own = open(way, EndpointChoice::Any);
                let to = own.connect(target(way, server.identity)).unwrap();
                assert_eq!(round_trip(&own, to, b"from the child"), b"from the child");
            }
        }));
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(i32::from(ok.is_err())) };
    }
    assert_eq!(node.done(2).status, Status::Success);
    assert_eq!(node.done(1).status, Status::Success);
    assert!(got == large);
    let mut status = 0;
    // SAFETY: our own child; `status` is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "failed in its own process");
    assert!(round_trip(&node, to, &large) == large);
    assert!(node.shared.lock().events.is_empty());
}

fn open(way: Way, endpoint: EndpointChoice) -> Node {
    let mut options = OpenOptions::new(endpoint);
    options.policy = way.route;
    options.rdm.keepalive = way.give_up;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.dgram.backend = way.backend;
    options.dgram.reliable.give_up = way.give_up;
    options.dgram.reliable.connect_give_up = SILENCE;
    if way.backend == BackendChoice::Fabric {
        options.dgram.provider = Some("udp".into());
    }
    let config = Config {
        peer_timeout: Some(LONG),
        ..Config::default()
    };
    Node::open(options, config, true).unwrap()
}

/// Returns the target that is reached over that port and no other.
fn target(way: Way, identity: Identity) -> Target {
    Target {
        nic: identity.nic,
        endpoint: identity.endpoint,
        route: way.route,
    }
}

/// Returns a node connected to a new server.
fn with_server(way: Way) -> (Node, Server, RemoteId) {
    let server = Server::start(way, None);
    let node = open(way, EndpointChoice::Any);
    let to = node.connect(target(way, server.identity)).unwrap();
    (node, server, to)
}

/// Sends a message and receives the echo.
fn round_trip(node: &Node, to: RemoteId, bytes: &[u8]) -> Vec<u8> {
    let mut got = vec![0; bytes.len()];
    let posted = node.post(BACK, &mut got, 1 << 40);
    assert_eq!(node.send_all(to, ECHO, bytes), Status::Success);
    let done = match posted {
        ReceivePosted::Complete(done) => Completion::at_once(done, 1 << 40),
        ReceivePosted::Pending(_) => node.done(1 << 40),
    };
    let result = (done.status, done.length as usize);
    assert_eq!(result, (Status::Success, bytes.len()));
    got
}

/// A fixed number of messages under way at a time.
struct Stream;

impl Stream {
    const FIRST: u64 = 100;
    const AT_A_TIME: u64 = 8;

    fn start(node: &Node, to: RemoteId, bytes: &[u8]) -> Self {
        for n in 0..Self::AT_A_TIME {
            pending(node.send(to, ONE_WAY, bytes, Self::FIRST + n));
        }
        Self
    }

    fn is_one(done: &Completion) -> bool {
        (Self::FIRST..Self::FIRST + Self::AT_A_TIME).contains(&done.context)
    }

    /// Waits for the next of them that has ended.
    fn next(node: &Node) -> Completion {
        let next = node.shared.wait_for(1, Some(LONG), |engine| {
            let at = engine.done.iter().position(Self::is_one)?;
            engine.done.remove(at)
        });
        next.expect("the stream has stopped")
    }

    /// Sends a message when another has ended.
    fn go_on(&mut self, node: &Node, to: RemoteId, bytes: &[u8]) {
        let done = Self::next(node);
        assert_eq!(done.status, Status::Success);
        pending(node.send(to, ONE_WAY, bytes, done.context));
    }

    /// Goes on until a message fails or is refused because the peer is gone, and waits for all others.
    fn end(self, node: &Node, to: RemoteId, bytes: &[u8]) {
        let (mut left, mut is_over) = (Self::AT_A_TIME, false);
        while left > 0 {
            let done = Self::next(node);
            is_over |= done.status != Status::Success;
            let next = (!is_over).then(|| node.try_send(to, ONE_WAY, bytes, done.context));
            match next {
                Some(Ok(posted)) => _ = pending(posted),
                Some(Err(refused)) => {
                    assert_eq!(refused, PostError::UnknownRemote);
                    (left, is_over) = (left - 1, true);
                }
                None => left -= 1,
            }
        }
    }
}

/// The other process, which is killed when this is dropped.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    identity: Identity,
}

impl Server {
    /// Starts a server, under a given number or a new one. This process keeps the number for the
    /// server's successor.
    fn start(way: Way, endpoint: Option<EndpointId>) -> Self {
        let number = endpoint.unwrap_or_else(node::numbers::next);
        Self::spawn(way, &[number.0.to_string()])
    }

    /// Starts a process that calls, and sends for ever.
    fn client(way: Way, to: Identity) -> Self {
        let of = [to.nic.0, to.endpoint.0.into()].map(|number| number.to_string());
        Self::spawn(way, &[vec!["any".to_owned()], of.to_vec()].concat())
    }

    fn spawn(way: Way, args: &[String]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "peers", way.name])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let identity = node::hear(&mut lines);
        Self {
            child,
            lines,
            identity,
        }
    }

    /// Returns whether the process has printed this line by now; does not wait.
    fn has_said(&mut self, expected: &str) -> bool {
        if self.lines.buffer().is_empty() {
            let mut poll = libc::pollfd {
                fd: std::os::fd::AsRawFd::as_raw_fd(self.lines.get_ref()),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry.
            if unsafe { libc::poll(&raw mut poll, 1, 0) } == 0 {
                return false;
            }
        }
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
        true
    }

    /// Returns the number of times that its threads went to sleep so far, and their processor time.
    fn activity(&self) -> (u64, Duration) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let of_task = |task: DirEntry| {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap();
            let (status, schedstat) = (read("status"), read("schedstat"));
            let mut lines = status.lines();
            let sleeps = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let number = |text: &str| text.trim().parse::<u64>().unwrap();
            let nanos = schedstat.split(' ').next().unwrap();
            (number(sleeps.unwrap()), number(nanos))
        };
        let (sleeps, nanos) = tasks
            .map(|task| of_task(task.unwrap()))
            .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        (sleeps, Duration::from_nanos(nanos))
    }

    fn signal(&self, signal: i32) {
        signal::send(&self.child, signal);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs the other process: `WAY ENDPOINT`, or `WAY any NIC ENDPOINT` with the endpoint to call.
pub(crate) fn child(args: &[&str]) {
    let way = WAYS.into_iter().find(|way| way.name == args[0]).unwrap();
    let endpoint = match args[1].parse() {
        Ok(number) => EndpointChoice::Exact(EndpointId(number)),
        Err(_) => EndpointChoice::Any,
    };
    let node = open(way, endpoint);
    node::say(node.identity);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent has ended.
        std::process::exit(0);
    });
    match &args[2..] {
        [nic, endpoint] => call(
            &node,
            Target {
                nic: NicId(nic.parse().unwrap()),
                endpoint: EndpointId(endpoint.parse().unwrap()),
                route: way.route,
            },
            &flowing(way),
        ),
        _ => serve(&node),
    }
}

fn call(node: &Node, target: Target, bytes: &[u8]) {
    let to = node.connect(target).unwrap();
    let mut stream = Stream::start(node, to, bytes);
    loop {
        stream.go_on(node, to, bytes);
    }
}

/// Messages of one kind that the server receives, and their number.
struct Service {
    bits: u64,
    room: Vec<u8>,
    taken: u32,
}

impl Service {
    fn new(bits: u64, len: usize) -> Self {
        Self {
            bits,
            room: vec![0; len],
            taken: 0,
        }
    }

    /// Receives the messages that are here, and posts a receive for the next.
    fn post(&mut self, node: &Node) {
        while let ReceivePosted::Complete(done) = node.post(self.bits, &mut self.room, self.bits) {
            self.take(node, &Completion::at_once(done, self.bits));
        }
    }

    fn take(&mut self, node: &Node, done: &Completion) {
        if done.status != Status::Success {
            return;
        }
        self.taken += 1;
        if self.bits == ONE_WAY && self.taken == SOME {
            say("flowing");
        }
        // Unless the client has ended meanwhile.
        let known = node.shared.lock().endpoint.remote_identity(done.remote);
        if self.bits == ECHO && known.is_some() {
            node.send_all(done.remote, BACK, &self.room[..done.length as usize]);
        }
    }
}

fn serve(node: &Node) {
    let mut services = [Service::new(ECHO, LARGE), Service::new(ONE_WAY, FLOWING)];
    for service in &mut services {
        service.post(node);
    }
    loop {
        let done = node.shared.wait_until(None, |engine| {
            engine.events.clear();
            engine.done.pop_front()
        });
        let Some(done) = done else { return };
        let of = services.iter_mut().find(|of| of.bits == done.context);
        if let Some(service) = of {
            service.take(node, &done);
            service.post(node);
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
