//! Endpoints over datagrams in one process: kernel UDP on the loopback, with and without faults.

use crate::dgram_common::{
    a_closed_endpoint_is_not_found, a_successor_is_another_one, links, only_tcp_leads_there,
    wait_for_links,
};
use crate::node::traffic::{exchange, stream};
use crate::node::{Node, pattern};
use mx_port_dgram::DgramPort;
use mx_port_dgram::faults::FaultPlan;
use mx_proto::{Config, RemoteId, Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_DGRAM, ROUTE_TCP};
use std::net::{IpAddr, Ipv4Addr};

fn options(policy: Route, faults: Option<&str>) -> OpenOptions {
    let mut options = OpenOptions::new(EndpointChoice::Any);
    options.policy = policy;
    options.tcp_bind = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.dgram.faults = faults.map(|text| FaultPlan::parse(text).unwrap());
    options
}

fn node(policy: Route, faults: Option<&str>) -> Node {
    Node::open(options(policy, faults), Config::default(), true).unwrap()
}

/// Connects two nodes over datagrams. Returns them and the first one's name for the second.
fn pair(faults: [Option<&str>; 2]) -> (Node, Node, RemoteId) {
    let [a, b] = faults.map(|faults| node(ROUTE_DGRAM, faults));
    let remote = a.connect(b.target(Route::AUTO)).unwrap();
    (a, b, remote)
}

#[test]
fn all_message_sizes_cross_over_datagrams_alone() {
    let (a, b, to_b) = pair([None, None]);
    let sizes = [
        0, 1, 33, 700, 800, 1400, 4097, 32_767, 32_769, 65_537, 1_000_003, 9_000_001,
    ];
    exchange(&a, &b, to_b, &sizes);
    // Each node has called the other, and each session has its data link.
    for node in [&a, &b] {
        wait_for_links(node, (0, 4));
    }
}

#[test]
fn many_small_messages_arrive_whole_and_in_order() {
    let (a, b, to_b) = pair([None, None]);
    stream(&a, &b, to_b, 3_000);
}

#[test]
fn loss_duplication_reordering_delay_and_damage_are_repaired() {
    let faults = "loss=0.02,dup=0.02,reorder=0.05,delay=0.01,corrupt=0.02";
    let seeds = [format!("{faults},seed=1"), format!("{faults},seed=2")];
    let (a, b, to_b) = pair([Some(&seeds[0]), Some(&seeds[1])]);
    exchange(&a, &b, to_b, &[0, 8, 1000, 40_000, 3_000_001]);
    stream(&a, &b, to_b, 1_000);
    let engine = a.shared.lock();
    let stats = engine.endpoint.port().view().dgram;
    assert!(stats.resent > 0 && stats.damaged > 0, "{stats:?}");
}

#[test]
fn peer_without_port_is_reached_by_tcp_unless_forced() {
    let [a, c] = [(); 2].map(|()| node(ROUTE_DGRAM, None));
    let b = node(ROUTE_TCP, None);
    only_tcp_leads_there(&a, &b, &c);
    wait_for_links(&b, (1, 0));
}

#[test]
fn an_address_that_says_dgram_opens_the_port_when_it_is_needed() {
    let a = node(ROUTE_DGRAM, None);
    let b = node(ROUTE_TCP, None);
    assert!(
        b.shared
            .lock()
            .endpoint
            .port()
            .port_of::<DgramPort>()
            .is_none()
    );
    let to_a = b.connect(a.target(ROUTE_DGRAM)).unwrap();
    assert_eq!(links(&b), (0, 1));
    assert_eq!(b.send_all(to_a, 1, b"late"), Status::Success);
    assert_eq!(a.receive(1, &mut [0; 4]).status, Status::Success);
}

#[test]
fn a_closed_endpoint_refuses_as_over_tcp() {
    a_closed_endpoint_is_not_found(&node(ROUTE_DGRAM, None), node(ROUTE_DGRAM, None));
}

#[test]
fn ended_peer_is_noticed_and_its_successor_is_new() {
    let [a, b] = [(); 2].map(|()| node(ROUTE_DGRAM, None));
    a_successor_is_another_one(&a, b, (0, 1), |endpoint| {
        let mut options = options(ROUTE_DGRAM, None);
        options.endpoint = endpoint;
        Node::open(options, Config::default(), true).unwrap()
    });
}

#[test]
fn many_peers_talk_to_one() {
    let server = node(ROUTE_DGRAM, None);
    let clients: Vec<Node> = (0..24).map(|_| node(ROUTE_DGRAM, None)).collect();
    std::thread::scope(|scope| {
        for (n, client) in clients.iter().enumerate() {
            let target = server.target(Route::AUTO);
            scope.spawn(move || {
                let remote = client.connect(target).unwrap();
                let message = pattern(200_000, n as u64 + 1);
                assert_eq!(client.send_all(remote, n as u64, &message), Status::Success);
            });
        }
        for n in 0..clients.len() {
            let mut buffer = vec![0; 200_000];
            let done = server.receive(n as u64, &mut buffer);
            assert_eq!(done.status, Status::Success);
            assert!(buffer == pattern(200_000, n as u64 + 1), "client {n}");
        }
    });
    wait_for_links(&server, (0, 2 * clients.len()));
}
