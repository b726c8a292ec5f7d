//! Two endpoints in two processes: what only shows when the other side can die.
//!
//! ```text
//!   this process, the client           the same program as "child endpoint ENDPOINT", the server
//!     bits 1: a message     ------>      sends it back with bits 2
//!     bits 3: 16 MiB        ------>      sends them back with bits 4
//!     bits 9: anything      ------>      never receives it
//! ```

use crate::node::{self, LONG, Node, NotConnected, pattern, pending, waiting};
use crate::{cases, signal};
use mx_proto::port::ConnectError;
use mx_proto::{Down, DownReason, EndpointId, Identity, Received, RemoteId, Route, Status, Target};
use mx_sim::Cancelled;
use mx_sim::Completion;
use mx_sys::{ROUTE_LOCAL, ROUTE_TCP};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const LARGE: usize = 16 << 20;

/// The time within which a death must have been noticed; a time-out of any kind takes much longer.
const AT_ONCE: Duration = Duration::from_secs(2);

type Case = fn(Route);

const CASES: &[(&str, Case)] = cases::named![
    messages_come_back_as_they_went,
    large_messages_come_back_as_they_went,
    a_cancelled_send_leaves_the_connection_alone,
    a_blocked_server_uses_no_processor,
    a_disconnected_server_is_told_and_serves_again,
    a_stopped_peer_blocks_no_other,
    a_killed_peer_ends_everything_and_can_come_back,
    a_second_server_on_an_endpoint_is_refused,
];

pub(crate) fn run() -> ExitCode {
    cases::run(
        "endpoint",
        CASES.iter().flat_map(|(name, case)| {
            [("local", ROUTE_LOCAL), ("tcp", ROUTE_TCP)]
                .map(|(port, route)| (format!("{name} ({port})"), move || case(route)))
        }),
    )
}

/// The other process: `ENDPOINT`, or any.
pub(crate) fn child(args: &[&str]) {
    serve(args.first().and_then(|id| id.parse().ok()).map(EndpointId));
}

fn messages_come_back_as_they_went(route: Route) {
    let (node, _server, to) = with_server(route);
    for n in 0..2_000u64 {
        let sent = pattern(n as usize % 3000, n);
        assert_eq!(round_trip(&node, to, 1, &sent), sent);
    }
}

fn large_messages_come_back_as_they_went(route: Route) {
    let (node, _server, to) = with_server(route);
    for n in 0..4 {
        let sent = pattern(LARGE, n);
        assert!(round_trip(&node, to, 3, &sent) == sent);
    }
}

fn a_cancelled_send_leaves_the_connection_alone(route: Route) {
    let (node, _server, to) = with_server(route);
    let large = pattern(LARGE, 1);
    for context in 0..20 {
        let request = pending(node.send(to, 9, &large, context));
        assert_eq!(node.cancel(request), Cancelled::Withdrawn);
        assert_eq!(node.cancel(request), Cancelled::Unknown);
        assert_eq!(round_trip(&node, to, 1, b"still there"), b"still there");
    }
    // A receive that is cancelled while its message comes in.
    let mut got = vec![0; LARGE];
    pending(node.send(to, 3, &large, 50));
    let request = waiting(node.post(4, &mut got, 51));
    assert_eq!(node.done(50).status, Status::Success);
    let cancelled = node.cancel(request);
    let before = got.clone();
    if cancelled == Cancelled::Withdrawn {
        // It came too late to be matched, so another receive gets it.
        assert_eq!(node.receive(4, &mut vec![0; LARGE]).status, Status::Success);
    }
    assert_eq!(round_trip(&node, to, 1, b"still there"), b"still there");
    assert!(
        got == before,
        "{cancelled:?}: memory was touched after the cancel"
    );
}

/// Both a thread blocked in a wait and the helper thread beside it, with a remote.
fn a_blocked_server_uses_no_processor(route: Route) {
    let (node, server, to) = with_server(route);
    assert_eq!(round_trip(&node, to, 1, b"there"), b"there");
    // The threads that were woken come to rest: at most one long tick of the helper's.
    std::thread::sleep(Duration::from_millis(200));
    let (before, span) = (server.processor_time(), Duration::from_secs(1));
    std::thread::sleep(span);
    let used = server.processor_time() - before;
    println!("  blocked: {used:?} of processor time in {span:?}");
    // A tenth of this on a quiet machine; on a crowded one every wake-up finds its caches cold.
    assert!(used < span / 100, "{used:?} in {span:?}");
    let begin = Instant::now();
    assert_eq!(round_trip(&node, to, 1, b"still there"), b"still there");
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}

fn a_disconnected_server_is_told_and_serves_again(route: Route) {
    let (node, mut server, to) = with_server(route);
    let large = pattern(LARGE, 1);
    pending(node.send(to, 9, &large, 1));
    node.shared.lock().endpoint.disconnect(to);
    assert_eq!(node.done(1).status, Status::Unreachable);
    assert_eq!(server.line(), "down Disconnected");
    let to = node.connect(server.target(route)).unwrap();
    assert_eq!(round_trip(&node, to, 1, b"again"), b"again");
    // The client's own end is no different.
    drop(node);
    assert_eq!(server.line(), "down Disconnected");
}

fn a_stopped_peer_blocks_no_other(route: Route) {
    let (node, server, to) = with_server(route);
    server.signal(libc::SIGSTOP);
    let begin = Instant::now();
    let large = pattern(LARGE, 1);
    let small = pattern(1000, 2);
    let unanswered = pending(node.send(to, 9, &large, 0));
    // More than it granted; what has no room waits here.
    for context in 1..=400 {
        node.send(to, 9, &small, context);
    }
    assert_eq!(node.cancel(unanswered), Cancelled::Withdrawn);
    assert!(node.try_done(0, Duration::ZERO).is_none());
    assert!(begin.elapsed() < LONG / 4, "{:?}", begin.elapsed());
    server.signal(libc::SIGCONT);
    assert_eq!(round_trip(&node, to, 1, b"awake"), b"awake");
}

fn a_killed_peer_ends_everything_and_can_come_back(route: Route) {
    let (node, server, to) = with_server(route);
    let identity = server.identity;
    let large = pattern(LARGE, 1);
    let mut got = vec![0; LARGE];
    for context in 0..3 {
        pending(node.send(to, 9, &large, context));
    }
    // Data under way in both directions.
    pending(node.send(to, 3, &large, 3));
    let receive = waiting(node.post(4, &mut got, 4));
    let begin = Instant::now();
    server.signal(libc::SIGKILL);
    for context in 0..3 {
        assert_eq!(node.done(context).status, Status::Unreachable);
    }
    let sent = node.done(3).status;
    assert!(
        matches!(sent, Status::Unreachable | Status::Success),
        "{sent:?}"
    );
    let Down {
        remote,
        identity: gone,
        reason,
        ..
    } = node.event();
    assert_eq!((remote, gone), (to, identity));
    assert!(matches!(reason, DownReason::Link(_)), "{reason:?}");
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    // A receive that the message had matched is over; one that nothing matched is still posted.
    match node.cancel(receive) {
        Cancelled::Unknown => assert_eq!(node.done(4).status, Status::Unreachable),
        cancelled => assert_eq!(cancelled, Cancelled::Withdrawn),
    }
    assert!(node.shared.lock().endpoint.requests() == 0);
    drop(server);

    let refused = node.connect(target(identity, route)).unwrap_err();
    let expected = match route {
        ROUTE_LOCAL => NotConnected::AtOnce(ConnectError::Refused),
        _ => NotConnected::Later(Status::EndpointClosed),
    };
    assert_eq!(refused, expected);

    // And back again under the same name, in another session.
    let server = Server::start(Some(identity.endpoint));
    assert_ne!(server.identity.session, identity.session);
    let to = node.connect(server.target(route)).unwrap();
    assert_eq!(round_trip(&node, to, 1, b"hello"), b"hello");
}

fn a_second_server_on_an_endpoint_is_refused(route: Route) {
    let (node, server, to) = with_server(route);
    let endpoint = server.identity.endpoint;
    let text = Node::exact(endpoint).unwrap_err().to_string();
    assert!(
        text.starts_with(&format!("endpoint {} is in use", endpoint.0)),
        "{text}"
    );
    assert_eq!(round_trip(&node, to, 1, b"unharmed"), b"unharmed");
}

/// A node connected to a fresh server.
fn with_server(route: Route) -> (Node, Server, RemoteId) {
    let server = Server::start(None);
    let node = Node::any();
    let begin = Instant::now();
    let to = node.connect(server.target(route)).unwrap();
    assert!(
        begin.elapsed() < AT_ONCE,
        "connected after {:?}",
        begin.elapsed()
    );
    (node, server, to)
}

/// Sends with `bits`, receives what comes back with the next ones.
fn round_trip(node: &Node, to: RemoteId, bits: u64, bytes: &[u8]) -> Vec<u8> {
    const BACK: u64 = 1 << 40;
    let mut got = vec![0; bytes.len()];
    let posted = node.post(bits + 1, &mut got, BACK);
    assert_eq!(node.send_all(to, bits, bytes), Status::Success);
    let done = match posted {
        Received::Complete(done) => Completion::at_once(done, BACK),
        Received::Pending(_) => node.done(BACK),
    };
    assert_eq!(
        (done.status, done.length as usize),
        (Status::Success, bytes.len())
    );
    got
}

fn target(identity: Identity, route: Route) -> Target {
    Target {
        nic: identity.nic,
        endpoint: identity.endpoint,
        route,
    }
}

/// The other process. Killed when it is dropped.
struct Server {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    identity: Identity,
}

impl Server {
    fn start(endpoint: Option<EndpointId>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child", "endpoint"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(endpoint) = endpoint {
            command.arg(endpoint.0.to_string());
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let identity = node::hear(&mut lines);
        Self {
            child,
            lines,
            identity,
        }
    }

    fn target(&self, route: Route) -> Target {
        target(self.identity, route)
    }

    /// The server's next line.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Processor time of all its threads so far.
    fn processor_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let nanos = tasks.map(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            stat.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanos.sum())
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

/// The server: sends back what it gets until its input ends.
fn serve(endpoint: Option<EndpointId>) {
    let node = match endpoint {
        Some(endpoint) => Node::exact(endpoint).unwrap(),
        None => Node::any(),
    };
    node::say(node.identity);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent is gone.
        std::process::exit(0);
    });
    let mut services = [
        Service {
            bits: 1,
            buffer: vec![0; 1 << 16],
            posted: false,
        },
        Service {
            bits: 3,
            buffer: vec![0; LARGE],
            posted: false,
        },
    ];
    loop {
        for service in &mut services {
            service.post(&node);
        }
        let next = node.shared.wait_until(None, |engine| {
            if let Some(Down { reason, .. }) = engine.events.pop_front() {
                return Some(Err(reason));
            }
            engine.done.pop_front().map(Ok)
        });
        match next {
            Some(Err(reason)) => say(&format!("down {reason:?}")),
            Some(Ok(done)) => {
                if let Some(service) = services.iter_mut().find(|s| s.bits == done.context) {
                    service.posted = false;
                    service.answer(&node, &done);
                }
            }
            None => return,
        }
    }
}

/// Messages of one kind.
struct Service {
    bits: u64,
    buffer: Vec<u8>,
    posted: bool,
}

impl Service {
    /// Answers what is there, and waits for more.
    fn post(&mut self, node: &Node) {
        while !self.posted {
            match node.post(self.bits, &mut self.buffer, self.bits) {
                Received::Pending(_) => self.posted = true,
                Received::Complete(done) => {
                    self.answer(node, &Completion::at_once(done, self.bits))
                }
            }
        }
    }

    fn answer(&self, node: &Node, done: &Completion) {
        if done.status == Status::Success {
            reply(
                node,
                done.remote,
                self.bits + 1,
                &self.buffer[..done.length as usize],
            );
        }
    }
}

/// Sends back, unless the client has gone meanwhile.
fn reply(node: &Node, to: RemoteId, bits: u64, bytes: &[u8]) {
    if node.shared.lock().endpoint.remote_identity(to).is_some() {
        node.send_all(to, bits, bytes);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
