//! Endpoints on one host, of which one has used up its shared memory: messages with it go over
//! sockets, and no endpoint is affected.

use crate::node::{Node, pattern};
use mx_port_local::{LocalOptions, LocalStats};
use mx_proto::{Config, Route, Status};
use mx_sys::{EndpointChoice, OpenOptions, ROUTE_LOCAL};
use std::time::Duration;

const LIMIT: usize = 4 << 20;

/// Number of clients, more than there is memory for.
const PEERS: u64 = 24;

fn node_with(local: LocalOptions) -> Node {
    let options = OpenOptions {
        local,
        ..OpenOptions::new(EndpointChoice::Any)
    };
    Node::open(options, Config::default(), true).unwrap()
}

fn stats(node: &Node) -> LocalStats {
    let engine = node.shared.lock();
    engine.endpoint.port().view().local
}

/// Sends a message, which must arrive.
fn check(from: &Node, to: &Node, remote: mx_proto::RemoteId, bits: u64, len: usize) {
    let sent = pattern(len, bits + 1);
    let mut got = vec![0; len];
    crate::node::waiting(to.post(bits, &mut got, bits));
    assert_eq!(from.send_all(remote, bits, &sent), Status::Success);
    assert_eq!(to.done(bits).status, Status::Success);
    assert!(got == sent);
}

#[test]
fn peers_beyond_the_limit_do_without_memory() {
    let server = node_with(LocalOptions {
        bytes: LIMIT,
        idle: None,
        ..LocalOptions::default()
    });
    let mut clients = Vec::new();
    for _ in 0..PEERS {
        let client = Node::any();
        let remote = client.connect(server.target(ROUTE_LOCAL)).unwrap();
        clients.push((client, remote));
    }
    let got = stats(&server);
    assert!(got.turned_away > 0 && got.asleep > 0, "{got:?}");
    assert_eq!(got.accepted, PEERS);
    assert!(got.bytes <= LIMIT as u64);
    for (at, (client, remote)) in clients.iter().enumerate() {
        for (size, len) in [8, 30_000, 300_000].into_iter().enumerate() {
            check(client, &server, *remote, (at * 3 + size) as u64, len);
        }
    }
    // The server can also connect to another node.
    let other = Node::any();
    let remote = server.connect(other.target(ROUTE_LOCAL)).unwrap();
    check(&server, &other, remote, 1_000, 300_000);
    assert!(stats(&server).bytes <= LIMIT as u64);
}

#[test]
fn links_that_sleep_wake_up_for_messages_of_any_size() {
    let soon = LocalOptions {
        idle: Some(Duration::from_millis(20)),
        ..LocalOptions::default()
    };
    let (a, b) = (node_with(soon), node_with(soon));
    let to_b = a.connect(b.target(ROUTE_LOCAL)).unwrap();
    let to_a = b.connect(a.target(Route::AUTO)).unwrap();
    let links = stats(&a).accepted + stats(&a).initiated;
    for round in 0..12 {
        // No thread polls; helper threads do the work.
        let all_asleep = |node: &Node| stats(node).asleep == links;
        let mut timeout = 2_000;
        while !(all_asleep(&a) && all_asleep(&b)) {
            std::thread::sleep(Duration::from_millis(5));
            timeout -= 1;
            assert!(timeout > 0, "{:?} {:?}", stats(&a), stats(&b));
        }
        assert_eq!((stats(&a).bytes, stats(&b).bytes), (0, 0));
        let len = [0, 8, 5_000, 32_768, 100_000, 3_000_000][round as usize / 2];
        let (from, to, remote) = match round % 2 {
            0 => (&a, &b, to_b),
            _ => (&b, &a, to_a),
        };
        check(from, to, remote, round, len);
    }
}
