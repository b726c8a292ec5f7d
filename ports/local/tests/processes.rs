//! Two processes with shared memory between them, of which one may die at any moment.
//!
//! The other process is this program again, running the ignored test `the_other_process` of this
//! file.

use crate::common::{BOARD, ENDPOINT, Event, Events, Node, Other, ROLE, fresh, pattern};
use crate::own_process::in_own_process;
use mx_port_base::clock::MonotonicClock;
use mx_port_local::LocalPort;
use mx_proto::port::{Close, LinkControl, LinkDown, SendError};
use mx_proto::{Clock, LinkId};
use mx_sim::Polled;
use mx_sim::{Hearing, VirtualClock};
use std::collections::HashSet;
use std::time::Duration;

fn start(role: &str, board: u32, endpoint: u32) -> Other {
    Other::start("processes::the_other_process", role, board, endpoint, &[])
}

#[test]
#[ignore = "started by the other tests of this file"]
fn the_other_process() {
    let Ok(role) = std::env::var(ROLE) else {
        panic!("this is not a test of its own: see {ROLE}");
    };
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let (board, endpoint) = (number(BOARD), number(ENDPOINT));
    let mut node = Node::open(board, endpoint + 1_000_000);
    let link = node.connect(board, endpoint);
    match role.as_str() {
        "echo" => loop {
            match node.next() {
                (from, Event::Packet(bytes)) => node.send(from, &bytes),
                (_, Event::Down(LinkDown::Closed)) => return,
                (_, Event::Writable) => {}
                other => panic!("unexpected: {other:?}"),
            }
        },
        "talk then hang" => {
            for at in 0..50 {
                node.send(link, &pattern(1000, at));
            }
            loop {
                node.next();
            }
        }
        "hold still" => {
            node.send(link, b"here");
            loop {
                std::thread::park();
            }
        }
        "close" => {
            for at in 0..50 {
                node.send(link, &pattern(1000, at));
            }
            node.port.close(link, Close::Flush);
        }
        other => panic!("unknown role {other}"),
    }
}

#[test]
fn a_million_bytes_come_back_as_they_went() {
    let (board, endpoint) = fresh();
    let mut node = Node::open(board, endpoint);
    let mut other = start("echo", board, endpoint);
    // The other process connects; as this one sends the first packet, it has to find the link
    // first.
    let link = loop {
        node.poll();
        if node.port.stats().accepted == 1 {
            break LinkId::new(0, 1);
        }
    };
    for round in 0..3000 {
        let len = [0, 1, 8, 24, 25, 88, 89, 1000, 5000, 32 * 1024][round % 10];
        let bytes = pattern(len, round);
        node.send(link, &bytes);
        assert_eq!(node.packet(), (link, bytes), "round {round}");
    }
    // A burst, so that both rings fill up and both sides block and sleep.
    let (mut sent, mut got) = (0, 0);
    while got < 2000 {
        if sent < 2000 && node.try_send(link, &pattern(sent * 7 % 9000, sent)).is_ok() {
            sent += 1;
            continue;
        }
        match node.next() {
            (_, Event::Packet(bytes)) => {
                assert_eq!(bytes, pattern(got * 7 % 9000, got));
                got += 1;
            }
            (_, Event::Writable) => {}
            other => panic!("unexpected: {other:?}"),
        }
    }
    node.port.close(link, Close::Flush);
    assert!(other.wait().success());
}

#[test]
fn a_killed_peer_is_noticed_and_what_it_had_sent_is_delivered() {
    let (board, endpoint) = fresh();
    let mut node = Node::open(board, endpoint);
    let mut other = start("talk then hang", board, endpoint);
    let (link, first) = node.packet();
    assert_eq!(first, pattern(1000, 0));
    // All 50 are in the ring when the last one is; wait for the last without taking more.
    for at in 1..25 {
        assert_eq!(node.packet(), (link, pattern(1000, at)));
    }
    for at in 25..50 {
        let event = node.next();
        if at == 25 {
            other.signal(libc::SIGKILL);
            assert!(!other.wait().success());
        }
        match event {
            (_, Event::Packet(bytes)) => assert_eq!(bytes, pattern(1000, at)),
            // Killed before it had sent all.
            (_, Event::Down(reason)) => {
                assert_eq!(reason, LinkDown::Reset);
                return;
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(node.next(), (link, Event::Down(LinkDown::Reset)));
    assert_eq!(node.try_send(link, b"x"), Err(SendError::Down));
}

#[test]
fn a_sleeper_is_woken_by_the_death_of_its_peer() {
    let (board, endpoint) = fresh();
    let mut node = Node::open(board, endpoint);
    let mut other = start("hold still", board, endpoint);
    let (link, _) = node.packet();
    let killer = std::thread::spawn(move || {
        other.signal(libc::SIGKILL);
        other.wait()
    });
    assert_eq!(node.next(), (link, Event::Down(LinkDown::Reset)));
    killer.join().unwrap();
    let names = std::fs::read_dir("/dev/shm").map(|dir| {
        dir.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.contains("mx-local"))
            .collect::<Vec<_>>()
    });
    assert_eq!(names.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn a_stopped_peer_blocks_its_link_and_nothing_else() {
    let (board, endpoint) = fresh();
    let mut node = Node::open(board, endpoint);
    let mut other = start("hold still", board, endpoint);
    let (stopped, _) = node.packet();
    other.signal(libc::SIGSTOP);
    let bytes = pattern(10_000, 1);
    while node.try_send(stopped, &bytes).is_ok() {}
    assert_eq!(node.try_send(stopped, &bytes), Err(SendError::WouldBlock));
    let mut lively = Node::open(board, endpoint + 2_000_000);
    let link = lively
        .port
        .connect_to(board, endpoint, MonotonicClock.now())
        .unwrap();
    while lively.events.pop_front() != Some((link, Event::Up)) {
        node.poll();
        lively.poll();
    }
    lively.send(link, b"fine");
    assert_eq!(node.packet().1, b"fine");
    node.port.close(stopped, Close::Flush);
    other.signal(libc::SIGKILL);
    other.wait();
}

/// Returns the descriptors of this process, and whether they are closed on exec.
fn descriptors() -> HashSet<(i32, bool)> {
    let numbers: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    let flags = |fd| {
        // SAFETY: plain system call.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        (flags >= 0).then_some((fd, flags & libc::FD_CLOEXEC != 0))
    };
    // The directory's own descriptor is closed by now.
    numbers.into_iter().filter_map(flags).collect()
}

fn poll_until_idle(ports: &mut [&mut LocalPort], clock: &dyn Clock) -> Vec<(LinkId, Event)> {
    let mut sink = Events::default();
    for _ in 0..10 {
        for port in ports.iter_mut() {
            port.note_control();
            Polled::poll(&mut **port, clock.now(), 64, &mut Hearing(&mut sink));
        }
    }
    sink.0
}

#[test]
fn no_descriptor_is_left_over_or_inherited() {
    in_own_process!();
    let (board, endpoint) = (std::process::id(), 1);
    let before = descriptors();
    let clock = VirtualClock::default();
    let mut a = LocalPort::open(5, board, endpoint).unwrap();
    let mut b = LocalPort::open(5, board, endpoint + 1).unwrap();
    for _ in 0..20 {
        let link = a.connect_to(board, endpoint + 1, clock.now()).unwrap();
        let events = poll_until_idle(&mut [&mut a, &mut b], &clock);
        assert_eq!(events, [(link, Event::Up)]);
        let ours: Vec<_> = descriptors().difference(&before).copied().collect();
        // Two ports with a listener and two sets each, and the two ends of one connection; mapped
        // memory needs no descriptor.
        assert_eq!(ours.len(), 8, "{ours:?}");
        assert!(ours.iter().all(|(_, cloexec)| *cloexec), "{ours:?}");
        a.close(link, Close::Flush);
        poll_until_idle(&mut [&mut a, &mut b], &clock);
    }
    drop((a, b));
    assert_eq!(descriptors(), before);
}

/// Sets the number of descriptors that this process may have. Returns the previous limit.
fn limit_descriptors(limit: u64) -> u64 {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limits` is valid.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) };
    assert_eq!(got, 0);
    let usual = std::mem::replace(&mut limits.rlim_cur, limit);
    // SAFETY: `limits` is valid.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
    assert_eq!(set, 0);
    usual
}

#[test]
fn lack_of_descriptors_pauses_accepting_and_loses_no_peer() {
    in_own_process!();
    let (board, endpoint) = (std::process::id(), 1);
    let clock = VirtualClock::default();
    let mut server = LocalPort::open(6, board, endpoint).unwrap();
    let mut client = LocalPort::open(6, board, endpoint + 1).unwrap();
    let links = [(); 3].map(|()| client.connect_to(board, endpoint, clock.now()).unwrap());
    // No more descriptors than there are now.
    let most = descriptors().iter().map(|(fd, _)| *fd).max().unwrap() as u64 + 1;
    let usual = limit_descriptors(most);
    // Fill the gaps below the limit.
    let mut fillers = Vec::new();
    loop {
        // SAFETY: plain system call.
        let fd = unsafe { libc::dup(2) };
        if fd < 0 {
            break;
        }
        fillers.push(fd);
    }
    assert!(poll_until_idle(&mut [&mut server], &clock).is_empty());
    assert_eq!(server.link_count(), 0);
    // The port does not spin: nothing is readable, and its deadline says when to poll again.
    let control = server.descriptors().control.unwrap();
    let mut poll = libc::pollfd {
        fd: control,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid element.
    assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
    let again = server.deadline().unwrap();
    assert!(again > clock.now() && again <= clock.now().after(Duration::from_secs(1)));
    // A connect is rejected as well.
    assert!(client.connect_to(board, endpoint, clock.now()).is_err());
    limit_descriptors(usual);
    clock.advance_to(again);
    let mut events = poll_until_idle(&mut [&mut server, &mut client], &clock);
    events.sort_by_key(|(link, _)| link.index());
    assert_eq!(events, links.map(|link| (link, Event::Up)));
    // Only links that may fall asleep have a deadline now.
    assert!(server.deadline().unwrap() > clock.now().after(Duration::from_secs(1)));
}
