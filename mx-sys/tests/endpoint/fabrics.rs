//! Endpoints on machines with different simulated fabric hardware: which of them connect, and over
//! which ports.

use crate::node::{Node, NotConnected, pattern, pending};
use libfabric_fake::{Fake, Shape};
use libfabric_sys::Library;
use mx_proto::{Config, Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_RDM, RdmOptions};
use std::net::{IpAddr, Ipv4Addr};

fn on(library: Library) -> Node {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = ROUTE_RDM;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.rdm = RdmOptions {
        library: Some(library),
        ..RdmOptions::default()
    };
    Node::open(options, Config::default(), true).unwrap()
}

fn provider(node: &Node) -> String {
    let engine = node.shared.lock();
    engine.endpoint.port().view().provider.to_owned()
}

/// Returns the numbers of links over TCP and over the fabric.
fn links(node: &Node) -> (usize, usize) {
    let (_, tcp, rdm) = node.links();
    (tcp, rdm)
}

/// Returns the number of connections that a node has accepted over TCP.
fn accepted(node: &Node) -> u64 {
    let engine = node.shared.lock();
    engine.endpoint.port().view().tcp.accepted
}

/// Sends a small and a large message from `a` to `b`.
fn exchange(a: &Node, b: &Node) {
    let to_b = a.connect(b.target(Route::AUTO)).unwrap();
    assert_eq!(a.send_all(to_b, 1, b"small"), Status::Success);
    assert_eq!(b.receive(1, &mut [0; 5]).status, Status::Success);
    let large = pattern(1_000_001, 5);
    let mut got = vec![0; large.len()];
    pending(a.send(to_b, 2, &large, 2));
    assert_eq!(b.receive(2, &mut got).status, Status::Success);
    assert_eq!(a.done(2).status, Status::Success);
    assert!(got == large);
}

/// Endpoint addresses have any form; those of cxi and psm3 are no socket addresses.
#[test]
fn peers_with_equal_hardware_connect_at_any_address() {
    let shapes = [
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::psm3(),
        Shape::efa(),
    ];
    for shape in shapes {
        let fake = Fake::new(shape, 1);
        let (a, b) = (on(fake.library()), on(fake.machine(&[]).library()));
        exchange(&a, &b);
        assert_eq!(links(&a).1, 1, "{}", provider(&a));
        // One connection carried both endpoint addresses, and with them the proof of identity.
        assert_eq!((accepted(&a), accepted(&b)), (0, 1));
        let c = on(fake.machine(&[]).library());
        c.connect(b.target(ROUTE_RDM)).unwrap();
        assert_eq!(links(&b).1, 2);
        fake.assert_clean();
    }
}

#[test]
fn peers_with_other_hardware_use_tcp_unless_rdm_is_forced() {
    let fake = Fake::offering(vec![Shape::verbs_rxm(), Shape::psm3()], 2);
    let a = on(fake.machine(&["verbs;ofi_rxm"]).library());
    let b = on(fake.machine(&["psm3"]).library());
    assert_eq!((&*provider(&a), &*provider(&b)), ("verbs;ofi_rxm", "psm3"));
    exchange(&a, &b);
    // The session's own link, and perhaps the one for bulk data.
    assert!(matches!((links(&a), links(&b)), ((1..=2, 0), (1..=2, 0))));
    let c = on(fake.machine(&["psm3"]).library());
    let refused = c.connect(a.target(ROUTE_RDM));
    assert_eq!(refused, Err(NotConnected::Later(Status::Unreachable)));
    assert_eq!(links(&c), (0, 0));
}
