//! Checks of endpoints over datagrams, for every carrier and every way of finding peers.

use crate::node::{LONG, Node, NotConnected, pattern, pending};
use mx_port_dgram::DgramPort;
use mx_port_tcp::TcpPort;
use mx_proto::port::LinkControl;
use mx_proto::{Down, DownReason, Route, Status};
use mx_sys::{EndpointChoice, ROUTE_DGRAM, ROUTE_TCP};
use std::time::{Duration, Instant};

/// Returns the numbers of links over TCP and over datagrams.
pub(crate) fn links(node: &Node) -> (usize, usize) {
    let engine = node.shared.lock();
    let ports = engine.endpoint.port();
    let dgram = ports.port_of().map_or(0, DgramPort::sessions);
    (ports.port_of().map_or(0, TcpPort::link_count), dgram)
}

/// Waits until `node` has these numbers of links, some of which end later.
pub(crate) fn wait_for_links(node: &Node, expected: (usize, usize)) {
    let begin = Instant::now();
    while links(node) != expected {
        assert!(begin.elapsed() < LONG, "{:?}", links(node));
        node.try_done(77, Duration::from_millis(1));
    }
}

/// Asserts that `a` reaches `b`, which has no such port or another, over TCP, and that `c`, which
/// may not use TCP, does not.
pub(crate) fn only_tcp_leads_there(a: &Node, b: &Node, c: &Node) {
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.send_all(to_b, 1, b"through tcp"), Status::Success);
    assert_eq!(b.receive(1, &mut [0; 11]).status, Status::Success);
    wait_for_links(a, (1, 0));
    let refused = c.connect(b.target(ROUTE_DGRAM));
    assert!(
        matches!(refused, Err(NotConnected::Later(_))),
        "{refused:?}"
    );
    wait_for_links(c, (0, 0));
}

/// Asserts that `a` cannot connect to a closed node over any route, with the same status for each.
pub(crate) fn a_closed_endpoint_is_not_found(a: &Node, gone: Node) {
    let targets = [ROUTE_TCP, ROUTE_DGRAM, Route::AUTO].map(|route| gone.target(route));
    drop(gone);
    let refused = targets.map(|target| a.connect(target));
    assert!(
        matches!(refused[0], Err(NotConnected::Later(_))),
        "{refused:?}"
    );
    assert!(
        refused.iter().all(|other| *other == refused[0]),
        "{refused:?}"
    );
    wait_for_links(a, (0, 0));
}

/// Asserts that the end of a peer is noticed, and that its successor under the same number is
/// another remote, with these links.
pub(crate) fn a_successor_is_another_one(
    a: &Node,
    b: Node,
    links: (usize, usize),
    open: impl FnOnce(EndpointChoice) -> Node,
) {
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    let big = pattern(4 << 20, 1);
    pending(a.send(to_b, 1, &big, 1));
    let endpoint = b.identity.endpoint;
    drop(b);
    assert_ne!(a.done(1).status, Status::Success);
    let Down { reason, .. } = a.event();
    assert!(!matches!(reason, DownReason::Protocol(_)), "{reason:?}");
    let b = open(EndpointChoice::Exact(endpoint));
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.send_all(to_b, 2, b"again"), Status::Success);
    assert_eq!(b.receive(2, &mut [0; 5]).status, Status::Success);
    wait_for_links(a, links);
}
