//! Endpoints over libfabric's datagrams: sessions begin over TCP and move, over `udp` of the
//! installed libfabric and over a simulated card.

use crate::dgram_common::{
    a_closed_endpoint_is_not_found, a_successor_is_another_one, only_tcp_leads_there,
    wait_for_links,
};
use crate::node::traffic::{exchange, stream};
use crate::node::{Node, pattern};
use libfabric_fake::{Fake, Shape};
use mx_port_dgram::BackendChoice;
use mx_proto::{Config, RemoteId, Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_DGRAM, ROUTE_TCP};
use std::net::{IpAddr, Ipv4Addr};

fn options(policy: Route) -> OpenOptions {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = policy;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.dgram.backend = BackendChoice::Fabric;
    options.dgram.provider = Some("udp".into());
    options
}

fn open(options: OpenOptions) -> Node {
    Node::open(options, Config::default(), true).expect("libfabric with its udp provider")
}

fn node() -> Node {
    open(options(ROUTE_DGRAM))
}

/// Opens a node over a card with an endpoint address.
fn on_address(fake: &Fake) -> Node {
    let mut options = options(ROUTE_DGRAM);
    options.dgram.provider = None;
    options.dgram.library = Some(fake.library());
    open(options)
}

fn pair(a: Node, b: Node) -> (Node, Node, RemoteId) {
    let remote = a.connect(b.target(Route::AUTO)).unwrap();
    (a, b, remote)
}

#[test]
fn messages_of_every_size_cross_in_both_directions() {
    let (a, b, to_b) = pair(node(), node());
    exchange(
        &a,
        &b,
        to_b,
        &[0, 1, 33, 700, 1400, 4097, 32_769, 3_000_001],
    );
    stream(&a, &b, to_b, 500);
    // Each node has called the other.
    for node in [&a, &b] {
        wait_for_links(node, (2, 2));
    }
}

#[test]
fn hardware_addresses_are_found_by_host_and_number() {
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let (a, b, to_b) = pair(on_address(&fake), on_address(&fake));
    exchange(&a, &b, to_b, &[0, 1, 700, 4097, 32_769, 1_000_001]);
    // Each node has called the other.
    for node in [&a, &b] {
        wait_for_links(node, (2, 2));
    }
    drop((a, b));
    fake.assert_clean();
}

#[test]
fn both_ends_may_ask_at_once() {
    let (a, b) = (node(), node());
    std::thread::scope(|scope| {
        for (one, other, bits) in [(&a, &b, 1), (&b, &a, 2)] {
            scope.spawn(move || {
                let to = one.connect(other.target(Route::AUTO)).unwrap();
                assert_eq!(
                    one.send_all(to, bits, &pattern(100_000, bits)),
                    Status::Success
                );
            });
        }
        for (node, bits) in [(&b, 1), (&a, 2)] {
            let mut buffer = vec![0; 100_000];
            assert_eq!(node.receive(bits, &mut buffer).status, Status::Success);
            assert!(buffer == pattern(100_000, bits));
        }
    });
}

#[test]
fn peer_elsewhere_is_reached_by_tcp_unless_dgram_is_forced() {
    let kernel = || {
        let mut options = options(ROUTE_DGRAM);
        options.dgram.backend = BackendChoice::Udp;
        open(options)
    };
    let fake = Fake::new(Shape::verbs_ud(), 1);
    let without = || open(options(ROUTE_TCP));
    // Without the port, over the kernel's sockets, over another provider.
    for b in [without(), kernel(), on_address(&fake)] {
        only_tcp_leads_there(&node(), &b, &node());
    }
}

#[test]
fn a_closed_endpoint_refuses_as_over_tcp() {
    a_closed_endpoint_is_not_found(&node(), node());
}

#[test]
fn a_successor_is_found_under_its_own_address() {
    a_successor_is_another_one(&node(), node(), (1, 1), |endpoint| {
        let mut options = options(ROUTE_DGRAM);
        options.endpoint = endpoint;
        open(options)
    });
}
