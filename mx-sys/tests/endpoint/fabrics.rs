//! Endpoints on machines with different fabric hardware, which is made up: who finds whom, and how.

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

/// Links over TCP and the fabric.
fn links(node: &Node) -> (usize, usize) {
    let (_, tcp, rdm) = node.links();
    (tcp, rdm)
}

/// Returns the number of connections that a node has accepted over TCP.
fn accepted(node: &Node) -> u64 {
    let engine = node.shared.lock();
    engine.endpoint.port().view().tcp.accepted
}

/// A small and a large message there.
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

/// Addresses carry addresses of any form: cxi's and psm3's are no socket addresses.
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
        // One connection brought both endpoint addresses, and with them what proves who is who.
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
