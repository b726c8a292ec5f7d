//! Peers with several sessions: crossing connects, and connects under several names.

use super::{KEY, NIC, Net};
use crate::handles::{Address, RequestHandle};
use crate::status::StatusCode;
use mx_proto::{NicId, RemoteId};
use mx_sim::world::NodeId;
use mx_sim::{Profile, seeds};
use std::time::Duration;

const ALL: u64 = u64::MAX;

/// Makes two endpoints whose connects have crossed: two sessions, and the address of each at the other.
fn crossed() -> (Net, [Address; 2]) {
    let mut net = Net::of(2);
    let known = calls(&mut net, Duration::ZERO);
    assert_eq!(net.remotes(), [2, 2]);
    (net, known)
}

/// Connects node 0 to node 1, and `later` node 1 to node 0. Returns the addresses, node 1's first.
fn calls(net: &mut Net, later: Duration) -> [Address; 2] {
    let first = net.iconnect(0, 1, KEY);
    net.pass(later);
    let second = net.iconnect(1, 0, KEY);
    net.run_until_idle();
    [(0, first), (1, second)].map(|(node, connect)| {
        let status = net.done(node, connect);
        assert_eq!(status.code, StatusCode::Success as u32);
        status.source
    })
}

fn sessions(net: &mut Net, node: NodeId, of: Address) -> Vec<RemoteId> {
    let engine = net.engine(node);
    let peer = engine.connected(of).unwrap();
    peer.sessions().collect()
}

/// Returns the source that node `to` sees of a message.
fn source(net: &mut Net, from: NodeId, at: Address, to: NodeId) -> Address {
    let recv = net.irecv(to, 7, ALL, 1);
    let send = net.isend(from, at, 7, b"x");
    net.run_until_idle();
    assert_eq!(net.code(from, send), StatusCode::Success);
    net.done(to, recv.handle).source
}

#[test]
fn calls_that_cross_lead_to_one_peer_at_both_ends() {
    let mut crossings = 0;
    for later in 0..40 {
        let mut net = Net::of(2);
        let [b, a] = calls(&mut net, Duration::from_micros(later));
        let known = net.remotes();
        assert!(known == [1, 1] || known == [2, 2], "{known:?}");
        crossings += usize::from(known == [2, 2]);
        net.engine(0).set_peer_context(b, 0xb).unwrap();
        for _ in 0..2 {
            assert_eq!(source(&mut net, 0, b, 1), a);
            assert_eq!(source(&mut net, 1, a, 0), b);
        }
        assert_eq!((net.connect(0, 1), net.connect(1, 0)), (b, a));
        assert_eq!(net.engine(0).peer_context(b).unwrap(), 0xb);
        assert_eq!(net.remotes(), known);
        assert_eq!(net.engine(0).peers().len(), 2);
        net.engine(0).disconnect(b).unwrap();
        net.run_until_idle();
        assert_eq!(net.remotes(), [0, 0]);
    }
    assert!((1..40).contains(&crossings), "{crossings}");
}

#[test]
fn connects_at_once_to_one_endpoint_share_a_session() {
    let mut net = Net::of(2);
    let connects = [KEY, KEY + 1, KEY].map(|key| net.iconnect(0, 1, key));
    net.run_until_idle();
    let [first, wrong, other] = connects.map(|connect| net.done(0, connect));
    assert_eq!(wrong.code, StatusCode::BadKey as u32);
    assert_eq!((first.code, first.source), (other.code, other.source));
    assert_eq!(net.remotes(), [1, 1]);
}

/// Each of two nodes sends as soon as it knows an address: when its connect is answered, or a message has arrived.
#[test]
fn messages_have_one_source_and_one_order_while_calls_cross() {
    seeds::each(100, |seed| {
        let mut net = Net::new(seed, Profile::default());
        let mut rng = net.world.fork_rng();
        net.profile = Profile::random(&mut rng);
        let nodes = [net.add(None), net.add(None)];
        let mut connects: [Option<RequestHandle>; 2] = [None; 2];
        let mut known = [None; 2];
        let (mut sent, mut heard) = ([0; 2], [0; 2]);
        for step in 0.. {
            let span = rng.span(Duration::from_micros(300));
            net.pass(span);
            for node in nodes {
                let starts = step == 0 && node == 0 || rng.chance(0.3);
                if connects[node].is_none() && starts {
                    connects[node] = Some(net.iconnect(node, 1 - node, KEY));
                }
                if let Some(connect) = connects[node]
                    && let Ok(Some(status)) = net.engine(node).test(connect)
                {
                    assert_eq!(status.code, StatusCode::Success as u32);
                    assert_eq!(*known[node].get_or_insert(status.source), status.source);
                }
                while let Some(status) = net.engine(node).probe(0, 0).unwrap() {
                    assert_eq!(status.match_info, heard[node]);
                    assert_eq!(*known[node].get_or_insert(status.source), status.source);
                    let recv = net.irecv(node, 0, 0, 1);
                    assert_eq!(net.done(node, recv.handle).source, status.source);
                    heard[node] += 1;
                }
                if let Some(to) = known[node].filter(|_| sent[node] < 30) {
                    let send = net.isend(node, to, sent[node], b"x");
                    net.engine(node).forget(send).unwrap();
                    sent[node] += 1;
                }
            }
            if heard == [30; 2] {
                break;
            }
            assert!(step < 10_000, "{sent:?} {heard:?}");
        }
    });
}

#[test]
fn peer_lost_with_its_send_session_returns_over_the_other() {
    let (mut net, [b, a]) = crossed();
    net.engine(0).set_peer_context(b, 0xb).unwrap();
    let waiting = net.issend(0, b, 1, b"x");
    net.run_until_idle();
    // The other end of node 0's first session is node 1's second one.
    let [_, second] = sessions(&mut net, 1, a)[..] else {
        panic!("two sessions");
    };
    net.engine(1).endpoint_mut().disconnect(second);
    net.run_until_idle();
    assert_eq!(net.code(0, waiting), StatusCode::EndpointUnreachable);
    let lost = net.isend(0, b, 1, b"x");
    assert_eq!(net.code(0, lost), StatusCode::EndpointUnreachable);
    // Messages from there still belong to the peer.
    assert_eq!(source(&mut net, 1, a, 0), b);
    assert_eq!(net.connect(0, 1), b);
    assert_eq!(net.remotes(), [1, 1]);
    assert_eq!(net.engine(0).peer_context(b).unwrap(), 0xb);
    assert_eq!(source(&mut net, 0, b, 1), a);
}

#[test]
fn the_end_of_another_session_ends_its_own_messages_only() {
    let (mut net, [b, a]) = crossed();
    let waiting = net.issend(0, b, 1, b"x");
    let broken = net.irecv(0, 2, ALL, 4 << 20);
    net.isend(1, a, 2, &vec![1; 4 << 20]);
    // Long enough for the first bytes, not for the last.
    net.pass(Duration::from_micros(12));
    let [first, _] = sessions(&mut net, 1, a)[..] else {
        panic!("two sessions");
    };
    net.engine(1).endpoint_mut().disconnect(first);
    net.run_until_idle();
    let status = net.done(0, broken.handle);
    assert_eq!(status.code, StatusCode::EndpointUnreachable as u32);
    assert_eq!(status.source, b);
    assert!(net.pending(0, waiting));
    let recv = net.irecv(1, 1, ALL, 1);
    net.run_until_idle();
    assert_eq!(net.code(0, waiting), StatusCode::Success);
    assert_eq!(net.done(1, recv.handle).source, a);
    assert_eq!(source(&mut net, 0, b, 1), a);
    assert_eq!(net.remotes(), [1, 1]);
}

#[test]
fn a_peer_with_two_sessions_that_restarts_is_the_same() {
    let (mut net, [b, _]) = crossed();
    net.engine(0).set_peer_context(b, 0xb).unwrap();
    for calls_back in [false, true] {
        net.kill(1);
        net.run_until_idle();
        assert_eq!(net.engine(0).endpoint().remotes(), 0);
        net.restart(1);
        if calls_back {
            let a = net.connect(1, 0);
            assert_eq!(source(&mut net, 1, a, 0), b);
        }
        assert_eq!(net.connect(0, 1), b);
        assert_eq!(net.remotes(), [1, 1]);
        let _ = source(&mut net, 0, b, 1);
        assert_eq!(net.engine(0).peer_context(b).unwrap(), 0xb);
    }
}

#[test]
fn claimant_of_a_peers_life_is_always_another_peer() {
    for impostor_first in [false, true] {
        let mut net = Net::of(2);
        let impostor = net.add_impostor(1);
        let order = if impostor_first {
            [impostor, 1]
        } else {
            [1, impostor]
        };
        let known = order.map(|node| {
            let to = net.connect(node, 0);
            net.isend(node, to, node as u64, b"x");
            net.run_until_idle();
            let message = net.engine(0).probe(node as u64, ALL).unwrap();
            message.unwrap().source
        });
        assert_ne!(known[0], known[1]);
        net.engine(0).set_peer_context(known[0], 0xa).unwrap();
        assert_eq!(net.engine(0).peer_context(known[1]).unwrap(), 0);
        for (node, at) in order.into_iter().zip(known) {
            let own = net.irecv(node, 9, ALL, 1);
            net.isend(0, at, 9, b"x");
            net.run_until_idle();
            assert_eq!(net.code(node, own.handle), StatusCode::Success);
        }
        // The end of one is not the end of the other.
        net.kill(order[0]);
        net.run_until_idle();
        let lost = net.isend(0, known[0], 9, b"x");
        assert_eq!(net.code(0, lost), StatusCode::EndpointUnreachable);
        let send = net.isend(0, known[1], 9, b"x");
        net.run_until_idle();
        assert_eq!(net.code(0, send), StatusCode::Success);
    }
}

#[test]
fn a_peer_has_one_address_whichever_name_of_it_is_called() {
    let names = [NicId(NIC.0 + 2), NicId(NIC.0 + 3)];
    for first in names {
        let mut net = Net::new(1, Profile::default());
        net.world.set_addresses(0, vec![NIC]);
        net.world.set_addresses(1, names.to_vec());
        let nodes = [net.add(None), net.add(None)];
        let a = net.connect(nodes[1], nodes[0]);
        let b = source(&mut net, 1, a, 0);
        for name in [first, names[0], names[1]] {
            let connect = net.engine(0).iconnect((name, 1), KEY, 0, 0, false);
            net.run_until_idle();
            let status = net.done(0, connect.unwrap());
            assert_eq!((status.code, status.source), (0, b));
        }
        assert_eq!(net.remotes(), [2, 2]);
        assert_eq!(net.engine(0).peers().len(), 2);
        assert_eq!(source(&mut net, 0, b, 1), a);
    }
}
