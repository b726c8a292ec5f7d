//! Links over TCP: connecting, closing, dying.

use crate::tcp_common::*;
use mx_port_tcp::TcpPort;
use mx_proto::Clock;
use mx_proto::port::{Close, ConnectError, LinkControl, LinkDown, SendError};
use socket2::{SockFilter, SockRef};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[test]
fn a_second_port_at_the_same_number_is_refused() {
    let first = Node::open(Ipv4Addr::UNSPECIFIED);
    let number = first.port.local_port();
    for ip in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST] {
        let error = TcpPort::open(options(&[SocketAddr::from((ip, number))])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
    drop(first);
    TcpPort::open(options(&[SocketAddr::from((
        Ipv4Addr::UNSPECIFIED,
        number,
    ))]))
    .unwrap();
}

#[test]
fn both_families_listen_at_one_number() {
    let mut b = Node::with(options(&[
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    ]));
    let mut a = Node::with(options(&[]));
    assert_eq!(a.port.local_port(), 0);
    let links = [4, 6].map(|nic| a.connect(nic, b.port.local_port()));
    until(&mut a, &mut b, "both are up", |a, _| {
        links.iter().all(|link| a.sink.is_up(*link))
    });
}

#[test]
fn an_unknown_interface_and_a_full_table_fail_at_once() {
    let mut small = options(&[]);
    small.max_links = 1;
    let mut a = Node::with(small);
    let clock = VirtualClock::default();
    let unknown = a.port.connect(target(9, 1), clock.now());
    assert_eq!(unknown, Err(ConnectError::UnknownNic));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = listener.local_addr().unwrap().port();
    a.connect(4, number);
    let full = a.port.connect(target(4, number), clock.now());
    assert_eq!(full, Err(ConnectError::NoResources));
}

#[test]
fn a_number_without_a_listener_refuses() {
    let number = free_number();
    let mut a = Node::open(Ipv4Addr::LOCALHOST);
    let link = a.connect(4, number);
    a.accept(link);
    until_one(&mut a, "it is refused", |a| !a.sink.events.is_empty());
    assert_eq!(a.sink.events, [Event::Down(link, LinkDown::Refused)]);
    assert_eq!(a.send(link, 1, b"x"), Err(SendError::Down));
    assert_eq!(a.port.link_count(), 0);
}

#[test]
fn the_second_address_is_tried_when_the_first_refuses() {
    let mut b = Node::open(Ipv6Addr::LOCALHOST);
    let mut a = Node::open(Ipv4Addr::LOCALHOST);
    // 46: first 127.0.0.1, without a listener, then ::1.
    let link = a.connect(46, b.port.local_port());
    until(&mut a, &mut b, "it is up", |a, _| a.sink.is_up(link));
    a.send(link, 1, b"over IPv6").unwrap();
    arrives(&mut a, &mut b, 1);
}

#[test]
fn an_address_that_does_not_answer_times_out() {
    // A full backlog makes connection attempts hang.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: no pointers; the call makes the backlog small.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = listener.local_addr().unwrap();
    let _fill: Vec<_> = (0..3)
        .map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)))
        .collect();
    let mut a = Node::open(Ipv4Addr::LOCALHOST);
    let link = a.connect(4, address.port());
    for _ in 0..1000 {
        a.poll();
    }
    assert!(a.sink.events.is_empty(), "it hangs");
    let deadline = a.port.deadline().expect("it wants to be called");
    a.clock.advance(Duration::from_nanos(deadline.0 - 1));
    a.look();
    assert!(a.sink.events.is_empty(), "not before its time");
    a.clock.advance(Duration::from_nanos(1));
    a.look();
    assert_eq!(a.sink.events, [Event::Down(link, LinkDown::TimedOut)]);
}

#[test]
fn packets_sent_before_the_link_is_up_must_wait() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut a = Node::open(Ipv4Addr::LOCALHOST);
    let link = a.connect(4, b.port.local_port());
    assert_eq!(a.send(link, 1, b"early"), Err(SendError::WouldBlock));
    until(&mut a, &mut b, "room is announced", |a, _| {
        a.sink.writables() == 1
    });
    assert!(a.sink.is_up(link));
    a.send(link, 1, b"now").unwrap();
    arrives(&mut a, &mut b, 1);
}

#[test]
fn data_sent_before_an_orderly_close_arrives_before_the_end() {
    let (mut a, mut b, at_a, at_b) = joined();
    let body = pattern(40_000, 1);
    let mut sent = 0;
    while a.send(at_a, sent, &body).is_ok() {
        sent += 1;
    }
    // The last packet is partly in the backlog.
    a.close(at_a, Close::Flush);
    assert_eq!(a.send(at_a, 1, b"x"), Err(SendError::Down));
    until(&mut a, &mut b, "the end", |_, b| !b.sink.downs().is_empty());
    assert_eq!(b.sink.packet_count() as u64, sent);
    assert_eq!(
        b.sink.events.last(),
        Some(&Event::Down(at_b, LinkDown::Closed))
    );
    until(&mut a, &mut b, "nothing is left", |a, b| {
        a.port.link_count() == 0 && b.port.link_count() == 0
    });
    assert!(
        a.sink.downs().is_empty(),
        "one's own close is not announced"
    );
}

#[test]
fn last_packets_arrive_although_the_port_is_dropped() {
    let (mut a, mut b, at_a, at_b) = joined();
    b.send(at_b, 1, b"this is never read!!!").unwrap();
    a.send(at_a, 2, b"goodbye").unwrap();
    a.close(at_a, Close::Flush);
    drop(a);
    until_one(&mut b, "the end", |b| !b.sink.downs().is_empty());
    assert_eq!(b.sink.packets(), [(2, b"goodbye".to_vec())]);
    assert_eq!(b.sink.downs(), [LinkDown::Closed]);
}

#[test]
fn lingering_is_bounded() {
    let (mut a, _b, at_a, _) = joined();
    while a.send(at_a, 1, &[0; 40_000]).is_ok() {}
    a.close(at_a, Close::Flush);
    assert!(!a.port.arm(), "its alarm is not set yet");
    a.look();
    assert!(a.port.arm());
    assert_eq!(a.port.link_count(), 1);
    a.clock.advance(Duration::from_secs(2));
    a.look();
    assert_eq!(a.port.link_count(), 0);
}

#[test]
fn a_killed_peer_resets_the_link_after_its_data() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let raw = b.raw(&[frame(1, b"one"), frame(2, b"two")]);
    reset(raw);
    until_one(&mut b, "the end", |b| !b.sink.downs().is_empty());
    assert_eq!(
        b.sink.packets(),
        [(1, b"one".to_vec()), (2, b"two".to_vec())]
    );
    assert_eq!(b.sink.downs(), [LinkDown::Reset]);
    assert_eq!(b.port.link_count(), 0);
}

#[test]
fn a_dead_peer_met_by_sending_is_announced_after_its_data() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut raw = b.raw(&[frame(1, b"hello")]);
    until_one(&mut b, "a packet", |b| b.sink.packet_count() == 1);
    let link = b.sink.first_link();
    raw.write_all(&frame(2, b"last words")).unwrap();
    reset(raw);
    let start = std::time::Instant::now();
    while b.send(link, 3, b"are you there?") != Err(SendError::Down) {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert!(!b.port.arm(), "there is something to tell");
    until_one(&mut b, "the end", |b| !b.sink.downs().is_empty());
    assert_eq!(b.sink.packets()[1], (2, b"last words".to_vec()));
    assert_eq!(b.sink.downs(), [LinkDown::Reset]);
}

#[test]
fn an_end_in_the_middle_of_a_packet_is_no_orderly_one() {
    let whole = frame(2, &[1; 100]);
    for cut in [1, 31, 32, 33, whole.len() - 1] {
        let mut b = Node::open(Ipv4Addr::LOCALHOST);
        let raw = b.raw(&[frame(1, b"hello"), whole[..cut].to_vec()]);
        drop(raw);
        until_one(&mut b, "the end", |b| !b.sink.downs().is_empty());
        assert_eq!(b.sink.packet_count(), 1);
        assert_eq!(b.sink.downs(), [LinkDown::Reset], "cut after {cut} bytes");
    }
}

#[test]
fn a_peer_that_stops_reading_is_not_taken_for_dead() {
    // A closed window for longer than the limit, by the kernel's clock as well as by the test's.
    // `TCP_USER_TIMEOUT` would end this link after 2.5 s.
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut a = Node::impatient();
    let (at_a, _) = linked(&mut a, &mut b, 4);
    while a.send(at_a, 1, &[0; 40_000]).is_ok() {}
    let start = std::time::Instant::now();
    let mut last = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(4) {
        // The test's clock runs like the kernel's.
        let now = start.elapsed();
        a.clock.advance(now - last);
        last = now;
        a.look();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(a.sink.downs().is_empty(), "{:?}", a.sink.downs());
    until(&mut a, &mut b, "there is room again", |a, _| {
        a.sink.writables() == 1
    });
}

#[test]
fn a_host_that_vanishes_is_noticed_when_it_owes_an_answer() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    let mut a = Node::impatient();
    let raw = a.raw(&[frame(1, b"hello")]);
    until(&mut a, &mut b, "a packet", |a, _| {
        a.sink.packet_count() == 1
    });
    let link = a.sink.first_link();
    vanish(&raw);
    a.send(link, 2, b"are you there?").unwrap();
    let took = wait_for_down(&mut a);
    assert_eq!(a.sink.downs(), [LinkDown::TimedOut]);
    assert!(
        took > Duration::from_secs(1) && took < Duration::from_secs(4),
        "{took:?}"
    );
}

#[test]
fn a_host_that_vanishes_is_noticed_although_nothing_is_sent() {
    let mut a = Node::impatient();
    let raw = a.raw(&[frame(1, b"hello")]);
    until_one(&mut a, "a packet", |a| a.sink.packet_count() == 1);
    vanish(&raw);
    let took = wait_for_down(&mut a);
    assert_eq!(a.sink.downs(), [LinkDown::TimedOut]);
    // Keep-alive counts in whole seconds: one of silence, four for probes.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn stale_id_reaches_no_link_although_its_slot_is_reused() {
    let (mut a, mut b, old, _) = joined();
    a.close(old, Close::Now);
    let new = a.connect(4, b.port.local_port());
    assert_eq!(new.index(), old.index());
    assert_ne!(new, old);
    until(&mut a, &mut b, "it is up", |a, _| a.sink.is_up(new));
    a.accept(old);
    assert_eq!(a.send(old, 1, b"x"), Err(SendError::Down));
    a.close(old, Close::Flush);
    a.send(new, 2, b"y").unwrap();
    arrives(&mut a, &mut b, 1);
    assert_eq!(b.sink.packets(), [(2, b"y".to_vec())]);
}

#[test]
fn idle_port_signals_control_when_a_peer_connects() {
    let mut b = Node::open(Ipv4Addr::LOCALHOST);
    until_one(&mut b, "it may sleep", |b| b.port.arm());
    let fds = b.port.descriptors();
    assert!(!readable(&[fds.control], 0));
    let mut raw = TcpStream::connect(("127.0.0.1", b.port.local_port())).unwrap();
    assert!(readable(&[fds.control], 5000));
    raw.write_all(&[preamble(), frame(1, b"hello")].concat())
        .unwrap();
    // As the helper thread does: only control is due.
    let mut polls = 0;
    while b.sink.packet_count() == 0 {
        b.port.note_control();
        b.poll();
        polls += 1;
        assert!(polls < 1000);
    }
    assert!(
        !readable(&[fds.control], 0),
        "everything about control is settled"
    );
}

/// Returns a number without a listener, which was free a moment ago and is not drawn again soon.
fn free_number() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Loses everything that is sent to `socket`, as if its host had vanished.
fn vanish(socket: &TcpStream) {
    // Return 0 bytes.
    let nothing = SockFilter::new(0x06, 0, 0, 0);
    SockRef::from(socket).attach_filter(&[nothing]).unwrap();
}

/// Lets the port's clock run like the kernel's until a link goes down. Returns the time.
fn wait_for_down(node: &mut Node) -> Duration {
    let start = std::time::Instant::now();
    let mut last = Duration::ZERO;
    while node.sink.downs().is_empty() {
        let now = start.elapsed();
        node.clock.advance(now - last);
        last = now;
        node.look();
        assert!(now < Duration::from_secs(20), "it is not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// Closes a socket as the kernel does when its process is killed with data unread.
fn reset(socket: TcpStream) {
    let now = Some(Duration::ZERO);
    SockRef::from(&socket).set_linger(now).unwrap();
}
