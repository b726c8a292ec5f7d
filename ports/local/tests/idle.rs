//! Two processes whose links fall asleep and wake up, of which one may die at any moment, and the
//! cost of a sleeping link.
//!
//! The other process is this program again, running the ignored test `the_other_process` of this
//! file.

use crate::common::{BOARD, ENDPOINT, Event, LONG, Node, Other, ROLE, fresh, pattern};
use mx_port_base::clock::MonotonicClock;
use mx_port_local::LocalOptions;
use mx_proto::port::{Close, LinkControl, LinkDown, SendError};
use mx_proto::{Clock, LinkId};
use std::fs;
use std::time::Duration;

const IDLE_US: &str = "LOCAL_IDLE_US";
const SEED: &str = "LOCAL_IDLE_SEED";
const LINKS: &str = "LOCAL_IDLE_LINKS";

/// Bytes that an idle peer may cost, in all layers.
const PROMISED: u64 = 2048;

/// Returns options for links that sleep after `idle_us` microseconds; 0 means never.
fn sleeping_after(idle_us: u64) -> LocalOptions {
    LocalOptions {
        idle: (idle_us != 0).then(|| Duration::from_micros(idle_us)),
        ..LocalOptions::default()
    }
}

fn start(role: &str, board: u32, endpoint: u32, idle_us: u64, more: &[(&str, u64)]) -> Other {
    let mut all = vec![(IDLE_US, idle_us.to_string())];
    all.extend(more.iter().map(|(name, value)| (*name, value.to_string())));
    Other::start("idle::the_other_process", role, board, endpoint, &all)
}

/// A generator of numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

#[test]
#[ignore = "started by the other tests of this file"]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else {
        panic!("this is not a test of its own: see {ROLE}");
    };
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let (board, endpoint) = (number(BOARD) as u32, number(ENDPOINT) as u32);
    let options = sleeping_after(number(IDLE_US));
    let mut node = Node::open_with(board, endpoint + 1_000_000, options);
    match role.as_str() {
        "echo" => {
            node.connect(board, endpoint);
            loop {
                match node.next() {
                    (from, Event::Packet(bytes)) => node.send(from, &bytes),
                    (_, Event::Down(LinkDown::Closed)) => return,
                    (_, Event::Writable) => {}
                    other => panic!("unexpected: {other:?}"),
                }
            }
        }
        "talk" => {
            let link = node.connect(board, endpoint);
            let mut talk = Talk::new(link, number(SEED));
            while !talk.over {
                talk.step(&mut node, false);
            }
            talk.end(&mut node);
            node.until("the end", |node| node.events.iter().any(is_closed));
        }
        "cost" => cost(
            &mut node,
            board,
            endpoint,
            number(LINKS),
            options.idle.is_some(),
        ),
        other => panic!("unknown role {other}"),
    }
}

fn is_closed(event: &(LinkId, Event)) -> bool {
    event.1 == Event::Down(LinkDown::Closed)
}

/// Waits for the other process to connect, and accepts its link.
fn accepted(node: &mut Node) -> LinkId {
    node.until("a link", |node| node.port.stats().accepted == 1);
    let link = LinkId::new(0, 1);
    node.port.accept(link);
    link
}

/// Returns the number of the other process's mappings that contain `what`, and of its descriptors.
fn holds(other: &Other, what: &str) -> (usize, usize) {
    let id = other.0.id();
    let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let mapped = maps.lines().filter(|line| line.contains(what)).count();
    let fds = fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    (mapped, fds)
}

#[test]
fn memory_and_descriptors_are_given_back_again_and_again() {
    let (board, endpoint) = fresh();
    let mut node = Node::open_with(board, endpoint, sleeping_after(5_000));
    let mut other = start("echo", board, endpoint, 5_000, &[]);
    let link = accepted(&mut node);
    let mut fds = None;
    for round in 0..40 {
        node.until("sleep", |node| node.port.stats().asleep == 1);
        assert_eq!(node.port.stats().bytes, 0);
        node.until("the other's memory back", |_| {
            holds(&other, "mx-local").0 == 0
        });
        let now = holds(&other, "mx-local").1;
        assert_eq!(*fds.get_or_insert(now), now, "descriptors, round {round}");
        for at in 0..round % 3 + 1 {
            let bytes = pattern([8, 3_000, 32_768][at], round);
            node.send(link, &bytes);
            node.until("memory", |node| node.port.stats().bytes > 0);
            let back = loop {
                match node.next() {
                    (_, Event::Writable) => {}
                    (_, Event::Packet(back)) => break back,
                    event => panic!("{event:?}"),
                }
            };
            assert!(back == bytes, "round {round}");
        }
    }
    // The first memory may come after the first sleep.
    assert!(node.port.stats().slept >= 39);
    node.port.close(link, Close::Flush);
    assert!(other.wait().success());
}

/// Numbered packets in both directions, with pauses about as long as the time until the link
/// sleeps.
struct Talk {
    link: LinkId,
    random: Random,
    sent: u64,
    got: u64,
    writable: bool,
    /// Whether the other process has sent its last packet.
    over: bool,
    /// The reason for which the link has ended.
    down: Option<LinkDown>,
}

impl Talk {
    fn new(link: LinkId, seed: u64) -> Self {
        Self {
            link,
            random: Random(seed * 2 + 1),
            sent: 0,
            got: 0,
            writable: true,
            over: false,
            down: None,
        }
    }

    /// Sends some packets, and polls for a while.
    fn step(&mut self, node: &mut Node, polling: bool) {
        for _ in 0..self.random.below(4) {
            let len = [8, 80, 2_000, 30_000][self.random.below(4) as usize];
            if !self.writable || self.over || self.down.is_some() {
                break;
            }
            let mut bytes = pattern(len, self.sent as usize);
            bytes[..8].copy_from_slice(&self.sent.to_le_bytes());
            match node.try_send(self.link, &bytes) {
                Ok(()) => self.sent += 1,
                Err(SendError::WouldBlock) => self.writable = false,
                // The end comes as an event.
                Err(SendError::Down) => break,
            }
        }
        let pause = Duration::from_micros(self.random.below(4_000));
        let end = MonotonicClock.now().after(pause);
        while MonotonicClock.now() < end {
            if !node.poll() && !polling {
                node.doze(end.since(MonotonicClock.now()));
            }
            self.take(node);
        }
    }

    fn take(&mut self, node: &mut Node) {
        while let Some((_, event)) = node.events.pop_front() {
            match event {
                Event::Packet(bytes) if bytes.len() == 1 => self.over = true,
                Event::Packet(bytes) => {
                    assert_eq!(bytes[..8], self.got.to_le_bytes());
                    assert!(bytes[8..] == pattern(bytes.len(), self.got as usize)[8..]);
                    self.got += 1;
                }
                Event::Writable => self.writable = true,
                Event::Down(reason) => self.down = Some(reason),
                Event::Up => panic!("up twice"),
            }
        }
    }

    /// Sends the last packet.
    fn end(&mut self, node: &mut Node) {
        while node.try_send(self.link, b"!").is_err() {
            self.writable = false;
            node.until("room", |node| {
                self.take(node);
                self.writable
            });
        }
    }
}

#[test]
fn thousand_suspends_between_processes_lose_nothing() {
    const SLEEPS: u64 = 1_000;
    let (board, endpoint) = fresh();
    let mut node = Node::open_with(board, endpoint, sleeping_after(1_000));
    let mut other = start("talk", board, endpoint, 1_000, &[(SEED, 5)]);
    let link = accepted(&mut node);
    let mut talk = Talk::new(link, 6);
    let end = MonotonicClock.now().after(LONG * 3);
    while node.port.stats().slept < SLEEPS {
        assert!(MonotonicClock.now() < end, "{:?}", node.port.stats());
        talk.step(&mut node, false);
        assert_eq!(talk.down, None);
    }
    talk.end(&mut node);
    node.until("the other's last", |node| {
        talk.take(node);
        talk.over
    });
    assert!(talk.sent > SLEEPS / 4 && talk.got > SLEEPS / 4);
    node.port.close(link, Close::Flush);
    assert!(other.wait().success());
}

#[test]
fn a_peer_that_is_stopped_asleep_and_killed_is_noticed() {
    let (board, endpoint) = fresh();
    let mut node = Node::open_with(board, endpoint, sleeping_after(5_000));
    let mut other = start("echo", board, endpoint, 5_000, &[]);
    let link = accepted(&mut node);
    node.send(link, b"known");
    assert_eq!(node.packet().1, b"known");
    node.until("sleep", |node| node.port.stats().asleep == 1);
    // The peer takes in nothing, so only the socket has room.
    other.signal(libc::SIGSTOP);
    let mut sent = 0;
    while node.try_send(link, &pattern(5_000, sent)).is_ok() {
        sent += 1;
    }
    assert!((1..1_000).contains(&sent), "{sent}");
    for _ in 0..10_000 {
        node.poll();
    }
    assert!(node.events.iter().all(|event| event.1 == Event::Writable));
    node.events.clear();
    assert_eq!((node.port.stats().bytes, node.port.stats().asleep), (0, 1));
    other.signal(libc::SIGKILL);
    other.wait();
    assert_eq!(node.next(), (link, Event::Down(LinkDown::Reset)));
    let stats = node.port.stats();
    assert_eq!(
        (stats.bytes, stats.asleep, node.port.link_count()),
        (0, 0, 0)
    );
}

#[test]
fn a_peer_may_be_killed_at_any_moment() {
    let mut random = Random(77);
    for round in 0..40 {
        let (board, endpoint) = fresh();
        let mut node = Node::open_with(board, endpoint, sleeping_after(500));
        let mut other = start("talk", board, endpoint, 500, &[(SEED, 100 + round)]);
        let link = accepted(&mut node);
        let mut talk = Talk::new(link, 200 + round);
        for _ in 0..random.below(12) {
            talk.step(&mut node, round % 2 == 0);
        }
        other.signal(libc::SIGKILL);
        other.wait();
        node.until("the end", |node| {
            talk.take(node);
            // A stranger that never sent a packet ends without an event.
            talk.down.is_some() || (talk.got == 0 && node.port.link_count() == 0)
        });
        assert!(matches!(talk.down, Some(LinkDown::Reset) | None));
        let stats = node.port.stats();
        assert_eq!(
            (stats.bytes, stats.asleep, node.port.link_count()),
            (0, 0, 0)
        );
    }
}

// ---- the cost ----

/// Returns the bytes of this process that are in memory, shared ones in full.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Raises the number of descriptors to the most that this process may have.
fn raise_descriptors() {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limits` is valid.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits), 0);
        limits.rlim_cur = limits.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits), 0);
    }
}

/// Measures a process with many links and nothing else.
fn cost(node: &mut Node, board: u32, endpoint: u32, links: u64, sleeps: bool) {
    raise_descriptors();
    let exchange = |node: &mut Node| {
        let link = node.connect(board, endpoint);
        for at in 0..8 {
            let bytes = pattern(4_000, at);
            node.send(link, &bytes);
            let same = |event: &(LinkId, Event)| matches!(&event.1, Event::Packet(_));
            node.until("an echo", |node| node.events.iter().any(same));
            let at = node.events.iter().position(same).unwrap();
            assert_eq!(node.events.remove(at), Some((link, Event::Packet(bytes))));
        }
    };
    // The first links cause allocations that are made once.
    for _ in 0..4 {
        exchange(node);
    }
    let wait_until_idle = |node: &mut Node| {
        let all = node.port.link_count() as u64;
        node.until("sleep", |node| !sleeps || node.port.stats().asleep == all);
    };
    wait_until_idle(node);
    let before = resident();
    for _ in 0..links {
        exchange(node);
    }
    wait_until_idle(node);
    let each = resident().saturating_sub(before) / links;
    let state = if sleeps { "asleep" } else { "awake" };
    eprintln!("a peer {state}, after 64 KB of traffic: {each} bytes of user memory");
    if sleeps {
        assert!(each <= PROMISED, "{each} bytes");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("mx-local"));
        // Once the port has found no peer awake, it need not be woken for any of them.
        node.until("no time set", |node| node.port.deadline().is_none());
    }
}

/// The kernel's memory (the socket, and its places in two sets) is not in the figure.
#[test]
fn a_sleeping_peer_costs_no_more_than_was_promised() {
    raise_descriptors();
    for (idle_us, links) in [(20_000, 1_000), (0, 200)] {
        let (board, endpoint) = fresh();
        let mut node = Node::open_with(board, endpoint, sleeping_after(idle_us));
        let mut other = start("cost", board, endpoint, idle_us, &[(LINKS, links)]);
        while other.0.try_wait().unwrap().is_none() {
            if !node.poll() {
                node.doze(Duration::from_millis(20));
            }
            while let Some((from, event)) = node.events.pop_front() {
                if let Event::Packet(bytes) = event {
                    node.send(from, &bytes);
                }
            }
        }
        assert!(other.wait().success());
    }
}
