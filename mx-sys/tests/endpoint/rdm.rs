//! Endpoints over libfabric in one process, with the TCP provider, which needs no special hardware.
//!
//! Needs libfabric1 (`make deps`).

use crate::node::{LONG, Node, NotConnected};
use mx_proto::{Config, RemoteId, Route, Status};
use mx_sys::{
    EndpointChoice, OpenError, OpenOptions, ROUTE_LOCAL, ROUTE_RDM, ROUTE_TCP, RdmOptions,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Returns options for the loopback, over the provider that each libfabric with TCP has in some
/// form.
fn options(policy: Route) -> OpenOptions {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = policy;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options
}

fn node(policy: Route) -> Node {
    Node::open(options(policy), Config::default(), true).unwrap()
}

/// Connects two nodes over the fabric. Returns them and the first one's name for the second.
fn pair() -> (Node, Node, RemoteId) {
    let (a, b) = (node(ROUTE_RDM), node(ROUTE_RDM));
    let remote = a.connect(b.target(Route::AUTO)).unwrap();
    (a, b, remote)
}

/// Waits until `node` has these links. The link on which the session began remains beside the
/// fabric's.
fn wait_for_links(node: &Node, expected: (usize, usize, usize)) {
    let begin = std::time::Instant::now();
    while node.links() != expected {
        assert!(begin.elapsed() < LONG, "{:?}", node.links());
        node.try_done(77, Duration::from_millis(1));
    }
}

#[test]
fn peers_find_each_other_through_tcp_which_then_only_watches() {
    let (a, b, to_b) = pair();
    assert_eq!(a.send_all(to_b, 1, b"over the fabric"), Status::Success);
    let mut got = [0; 15];
    assert_eq!(b.receive(1, &mut got).status, Status::Success);
    assert_eq!(&got, b"over the fabric");
    wait_for_links(&a, (0, 1, 1));
    wait_for_links(&b, (0, 1, 1));
    // An address may ask for each of the other ports, and for this one.
    for route in [ROUTE_LOCAL, ROUTE_TCP, ROUTE_RDM] {
        let c = node(Route::AUTO);
        let to_b = c.connect(b.target(route)).unwrap();
        assert_eq!(c.send_all(to_b, 2, b"x"), Status::Success);
        assert_eq!(b.receive(2, &mut got[..1]).status, Status::Success);
        let has = |ways: &[Route]| usize::from(ways.contains(&route));
        let tcp = has(&[ROUTE_TCP, ROUTE_RDM]);
        wait_for_links(&c, (has(&[ROUTE_LOCAL]), tcp, has(&[ROUTE_RDM])));
    }
}

#[test]
fn missing_or_banned_provider_is_named_with_a_remedy() {
    for (provider, says) in [("cxi", "found "), ("sockets", "unset MX_PROVIDER")] {
        let mut options = options(ROUTE_RDM);
        options.rdm = RdmOptions {
            provider: Some(provider.to_owned()),
            ..RdmOptions::default()
        };
        let error = Node::open(options, Config::default(), true).unwrap_err();
        assert!(matches!(error, OpenError::Port("rdm", _)), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("no rdm port: "), "{text}");
        assert!(text.contains(provider) && text.contains(says), "{text}");
    }
    // An endpoint that does not ask for the port does not need its provider.
    let mut options = options(Route::AUTO);
    options.rdm.provider = Some("cxi".to_owned());
    let a = Node::open(options, Config::default(), true).unwrap();
    let b = node(ROUTE_RDM);
    a.connect(b.target(Route::AUTO)).unwrap();
    let refused = a.connect(b.target(ROUTE_RDM));
    assert!(
        matches!(refused, Ok(_) | Err(NotConnected::AtOnce(_))),
        "{refused:?}"
    );
}
