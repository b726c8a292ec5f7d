//! Peers on one machine at the limit of descriptors: none is rejected, counts as hostile, or is
//! lost.
//!
//! ```text
//!   descriptors left   accept    memory
//!     none             waits     -                        tried again every 100 ms
//!     one              works     its descriptor is lost   packets go over the socket
//! ```
//!
//! A case takes all descriptors of its process.

use crate::cases;
use crate::local_common::{self, Event, Node as PortNode};
use crate::node::{self, LONG, Node, NotConnected};
use mx_port_local::LocalOptions;
use mx_proto::port::ConnectError;
use mx_proto::{Clock, Config, EndpointId, LinkId, NicId, Route, Status, Target};
use mx_sys::{EndpointChoice, MonotonicClock, OpenOptions, ROUTE_TCP};
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Case = fn();

const CASES: &[(&str, Case)] = cases::named![
    a_caller_whose_memory_was_cut_off_is_heard_all_the_same,
    a_sleeping_link_whose_memory_is_cut_off_carries_packets,
    without_descriptors_callers_wait_and_nothing_spins,
    a_server_at_its_limit_is_reached_all_the_same,
    a_client_at_its_limit_is_told_that_and_nothing_else,
];

pub(crate) fn run() -> ExitCode {
    set_limit(256);
    let cases = CASES.iter().map(|(name, case)| ((*name).to_owned(), case));
    cases::run("local_starved", cases)
}

fn set_limit(descriptors: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one `rlimit` that outlives both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = descriptors;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

/// Takes all descriptors except `left`.
fn hoard(left: usize) -> Vec<File> {
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    all.truncate(all.len().saturating_sub(left));
    all
}

fn pair() -> (PortNode, PortNode, (u32, u32)) {
    let (board, endpoint) = local_common::fresh();
    let soon = LocalOptions {
        idle: Some(Duration::from_millis(20)),
        ..LocalOptions::default()
    };
    let server = PortNode::open_with(board, endpoint, soon);
    let client = PortNode::open_with(board, endpoint + 1_000, soon);
    (server, client, (board, endpoint))
}

fn a_caller_whose_memory_was_cut_off_is_heard_all_the_same() {
    let (mut server, mut client, (board, endpoint)) = pair();
    let link = client
        .port
        .connect_or(board, endpoint, Some(ROUTE_TCP), MonotonicClock.now())
        .unwrap();
    // Enough to accept the connection, but not to receive the descriptor that comes with it.
    let all = hoard(1);
    server.until("a caller", |server| server.port.stats().turned_away > 0);
    assert_eq!(client.next(), (link, Event::Up));
    client.send(link, b"hello");
    assert_eq!(server.packet().1, b"hello");
    drop(all);
    let stats = server.port.stats();
    assert_eq!((stats.accepted, stats.turned_away), (1, 1));
    assert_eq!((stats.violations, stats.bytes), (0, 0));
}

fn a_sleeping_link_whose_memory_is_cut_off_carries_packets() {
    for back in [false, true] {
        let (mut server, mut client, (board, endpoint)) = pair();
        let link = client
            .port
            .connect_to(board, endpoint, MonotonicClock.now())
            .unwrap();
        server.until("a caller", |server| server.port.stats().accepted == 1);
        assert_eq!(client.next(), (link, Event::Up));
        client.send(link, b"hello");
        let (link_back, _) = server.packet();
        let begin = Instant::now();
        while server.port.stats().asleep + client.port.stats().asleep < 2 {
            server.poll();
            client.poll();
            assert!(begin.elapsed() < LONG, "awake");
        }
        let (from, to, link): (_, _, LinkId) = if back {
            (&mut server, &mut client, link_back)
        } else {
            (&mut client, &mut server, link)
        };
        // No memory can be made, sent, or received.
        let mut all = hoard(0);
        for round in 0..200u8 {
            if round == 100 {
                // Now memory can be made and sent.
                all.truncate(all.len() - 1);
            }
            while from.try_send(link, &[round]).is_err() {
                from.poll();
                to.poll();
            }
            assert_eq!(to.packet().1, [round]);
        }
        assert_eq!(to.port.stats().violations + from.port.stats().violations, 0);
        drop(all);
        let begin = Instant::now();
        while from.port.stats().asleep + to.port.stats().asleep != 0 {
            while from.try_send(link, b"on").is_err() {
                from.poll();
                to.poll();
            }
            assert_eq!(to.packet().1, b"on");
            from.poll();
            assert!(begin.elapsed() < LONG, "without memory");
        }
    }
}

fn without_descriptors_callers_wait_and_nothing_spins() {
    let (mut server, mut client, (board, endpoint)) = pair();
    let link = client
        .port
        .connect_or(board, endpoint, Some(ROUTE_TCP), MonotonicClock.now())
        .unwrap();
    let all = hoard(0);
    for _ in 0..100_000 {
        server.poll();
    }
    // The server sleeps between two attempts.
    let begin = Instant::now();
    let mut sleeps = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        server.doze(Duration::from_millis(50));
        server.poll();
        sleeps += 1;
    }
    assert!(sleeps < 100, "{sleeps}");
    client.poll();
    assert!(client.events.is_empty(), "{:?}", client.events);
    drop(all);
    server.until("the caller", |server| server.port.stats().accepted == 1);
    assert_eq!(client.next(), (link, Event::Up));
}

/// Runs the other process, which leaves itself as many descriptors as it is told to.
pub(crate) fn child(_: &[&str]) {
    set_limit(256);
    let node = Node::open(
        OpenOptions::new(EndpointChoice::Any),
        Config::default(),
        true,
    );
    let node = node.unwrap();
    println!("{} {}", node.identity.nic.0, node.identity.endpoint.0);
    let mut kept = Vec::new();
    for line in std::io::stdin().lines() {
        kept.clear();
        if let Ok(left) = line.unwrap().parse() {
            kept = hoard(left);
        }
        println!("done");
    }
}

/// A server in a process of its own.
struct Server {
    process: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    target: Target,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["child", "local_starved"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let identity = lines.next().unwrap().unwrap();
        let (nic, endpoint) = identity.split_once(' ').unwrap();
        let target = Target {
            nic: NicId(nic.parse().unwrap()),
            endpoint: EndpointId(endpoint.parse().unwrap()),
            route: Route::AUTO,
        };
        let input = process.stdin.take().unwrap();
        Self {
            process,
            input,
            lines,
            target,
        }
    }

    /// Sets the number of descriptors that the server leaves itself.
    fn tell(&mut self, left: &str) {
        writeln!(self.input, "{left}").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "done");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn a_server_at_its_limit_is_reached_all_the_same() {
    let mut server = Server::start();
    for left in [0, 1, 2, 3, 4, 5] {
        server.tell(&left.to_string());
        let client = Node::any();
        let posted = client.shared.lock().endpoint.connect(
            server.target,
            node::KEY,
            mx_proto::MatchBits(0),
            7,
        );
        posted.unwrap();
        let done = client.try_done(7, Duration::from_millis(400));
        println!("  {left} left: {:?}", done.as_ref().map(|done| done.status));
        let done = done.unwrap_or_else(|| {
            server.tell("all");
            client.done(7)
        });
        assert_eq!(done.status, Status::Success, "{left} left");
    }
}

fn a_client_at_its_limit_is_told_that_and_nothing_else() {
    let server = Server::start();
    let mut reached = 0;
    for left in 0..12 {
        let client = Node::any();
        let all = hoard(left);
        let answer = client.connect(server.target);
        drop(all);
        match answer {
            Ok(_) => reached += 1,
            Err(NotConnected::AtOnce(ConnectError::NoResources)) => {}
            Err(NotConnected::Later(Status::NoResources | Status::Unreachable)) => {}
            Err(other) => panic!("{left} left: {other:?}"),
        }
        client.connect(server.target).unwrap();
    }
    assert!(reached > 0);
}
