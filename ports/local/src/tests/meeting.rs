//! Connecting two ports: the listener, the caller, and failures between.

use super::limit::TCP;
use super::{Event, Node, fresh_name, link_up};
use crate::LocalPort;
use crate::handshake::{ControlMessage, MESSAGE_LEN};
use crate::socket::{Name, Received, Socket};
use mx_proto::Clock;
use mx_proto::port::{Close, ConnectError, LinkControl, LinkDown};
use std::time::Duration;

#[test]
fn a_second_server_on_an_endpoint_is_told_so() {
    let a = Node::new();
    let Name {
        port_base,
        board,
        endpoint,
    } = a.name();
    let error = LocalPort::open(port_base, board, endpoint).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(a);
    assert!(LocalPort::open(port_base, board, endpoint).is_ok());
}

#[test]
fn without_a_listener_there_is_no_route() {
    let mut a = Node::new();
    let board = a.name().board;
    let closed = fresh_name().endpoint;
    assert_eq!(
        a.port.connect_to(board, closed, a.clock.now()),
        Err(ConnectError::Refused)
    );
    assert_eq!(a.port.link_count(), 0);
}

/// Creates a listener whose backlog is full with one connection.
fn full_backlog() -> (Name, Socket, Socket) {
    let name = fresh_name();
    let listener = Socket::listen(name).unwrap();
    // SAFETY: plain system call on a descriptor the test owns.
    assert_eq!(unsafe { libc::listen(listener.raw(), 0) }, 0);
    let filler = Socket::new().unwrap();
    filler.connect(name).unwrap();
    (name, listener, filler)
}

#[test]
fn a_full_backlog_is_tried_again() {
    let (name, listener, _filler) = full_backlog();
    let mut a = Node::new();
    let link = a
        .port
        .connect_to(name.board, name.endpoint, a.clock.now())
        .unwrap();
    assert!(a.port.deadline().is_some());
    for _ in 0..5 {
        a.clock.advance(Duration::from_millis(60));
        a.poll_until_idle();
        assert_eq!(a.take(), []);
    }
    drop(listener.accept().unwrap());
    a.clock.advance(Duration::from_millis(60));
    a.poll_until_idle();
    assert_eq!(a.port.deadline(), None);
    let peer = listener.accept().unwrap();
    let mut message = [0; MESSAGE_LEN];
    let Received::Message(len, None) = peer.receive(&mut message).unwrap() else {
        panic!("no hello");
    };
    assert!(matches!(
        ControlMessage::decode(&message[..len]),
        Ok(ControlMessage::Hello { .. })
    ));
    let welcome = ControlMessage::Welcome { asymmetric: true };
    peer.send(&welcome.encode(), None).unwrap();
    a.poll_until_idle();
    assert_eq!(a.take(), [Event::Up(link)]);
}

#[test]
fn a_backlog_that_closes_refuses() {
    let (name, listener, _filler) = full_backlog();
    let mut a = Node::new();
    let mut call = |instead| {
        let (board, endpoint) = (name.board, name.endpoint);
        let link = a.port.connect_or(board, endpoint, instead, a.clock.now());
        link.unwrap()
    };
    let (waiting, another) = (call(None), call(Some(TCP)));
    drop(listener);
    a.clock.advance(Duration::from_millis(60));
    a.poll_until_idle();
    let (refused, elsewhere) = (LinkDown::Refused, LinkDown::Elsewhere(TCP));
    let ends = [(waiting, refused), (another, elsewhere)];
    assert_eq!(
        a.take(),
        ends.map(|(link, reason)| Event::Down(link, reason))
    );
}

#[test]
fn links_beyond_the_limit_are_refused_on_either_side() {
    let (mut a, mut b) = (Node::with_limit(3), Node::with_limit(1));
    let first = link_up(&mut a, &mut b);
    let second = a.connect(&b).unwrap();
    b.poll_until_idle();
    a.poll_until_idle();
    // The listener exists after all.
    assert_eq!(a.take(), [Event::Down(second, LinkDown::Unreachable)]);
    let Name {
        board, endpoint, ..
    } = b.name();
    let again = a
        .port
        .connect_or(board, endpoint, Some(TCP), a.clock.now())
        .unwrap();
    b.poll_until_idle();
    a.poll_until_idle();
    let elsewhere = LinkDown::Elsewhere(TCP);
    assert_eq!(a.take(), [Event::Down(again, elsewhere)]);
    assert_eq!((b.port.stats().accepted, b.port.stats().refused), (1, 2));
    assert_eq!(b.connect(&a), Err(ConnectError::NoResources));
    a.port.close(first, Close::Flush);
    b.poll_until_idle();
    let third = a.connect(&b).unwrap();
    b.poll_until_idle();
    a.poll_until_idle();
    assert_eq!(a.take(), [Event::Up(third)]);
}
