//! A port whose process has no descriptors left, in a process of its own, because the test takes
//! all of them.

use crate::own_process::in_own_process;
use crate::tcp_common::*;
use mx_proto::Clock;
use mx_proto::port::{ConnectError, LinkControl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

#[test]
fn without_descriptors_connections_wait_and_nothing_spins() {
    in_own_process!();
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut early = b.raw(&[frame(1, b"early")]);
    until_one(&mut b, "a packet", |b| b.sink.packet_count() == 1);
    // An accepted link keeps its place when the late caller comes.
    let link = b.sink.first_link();
    b.accept(link);

    let late = TcpStream::connect(("127.0.0.1", b.port.local_port())).unwrap();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one `rlimit` that outlives both calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = 64;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }

    until_one(&mut b, "accepting fails", |b| {
        b.look();
        b.port.stats().starved == 1
    });
    let clock = VirtualClock::default();
    let none = b.port.connect(target(4, 1), clock.now());
    assert_eq!(none, Err(ConnectError::NoResources));
    for _ in 0..1000 {
        b.look();
    }
    assert_eq!(b.port.stats().starved, 1, "it rests");
    let asleep = !readable(&[b.port.descriptors().control], 0);
    assert!(asleep, "no thread is woken meanwhile");
    early.write_all(&frame(2, b"others go on")).unwrap();
    until_one(&mut b, "a packet", |b| b.sink.packet_count() == 2);

    b.clock.advance(Duration::from_millis(100));
    b.look();
    b.look();
    assert_eq!(b.port.stats().starved, 2, "it tries again");
    drop(hoard);
    b.clock.advance(Duration::from_millis(100));
    until_one(&mut b, "the late one is accepted", |b| {
        b.look();
        b.port.stats().accepted == 2
    });
    drop(late);
}

#[test]
fn few_descriptors_are_the_limit_that_a_refusal_names() {
    in_own_process!();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
    let mut small = options(&[(Ipv4Addr::LOCALHOST, 0).into()]);
    small.source_share = 1;
    let mut b = Node::with(small);
    let _in = b.raw(&[frame(1, b"in")]);
    until_one(&mut b, "a packet", |b| b.sink.packet_count() == 1);
    let link = b.sink.first_link();
    b.accept(link);
    let _refused = b.raw(&[]);
    let lines = mx_sim::log_lines(|| {
        until_one(&mut b, "one is refused", |b| {
            b.look();
            b.port.stats().turned_away == 1
        });
    });
    let limit = "of 56 links; RLIMIT_NOFILE is 64: raise it with ulimit -n or LimitNOFILE=";
    assert!(lines[0].contains(limit), "{lines:?}");
}
