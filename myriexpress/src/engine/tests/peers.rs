//! Peers: addresses, pointers, restarts, disconnects.

use super::handler::HANDLER_OF_TESTS;
use super::{KEY, NIC, Net, fails};
use crate::error::Code;
use crate::handles::{Address, PeerKey};
use crate::status::StatusCode;
use mx_proto::SendMode;
use mx_sys::UserMemory;
use std::time::Duration;

const ALL: u64 = u64::MAX;

#[test]
fn a_stranger_can_be_answered_at_the_source_of_its_message() {
    let (mut net, b) = Net::pair();
    let recv = net.irecv(1, 0, 0, 8);
    net.isend(0, b, 1, b"ping");
    net.run_until_idle();
    let a = net.done(1, recv.handle).source;
    assert_eq!(net.engine(1).peer_context(a).unwrap(), 0);
    net.engine(1).set_peer_context(a, 0xa).unwrap();
    let answer = net.irecv(0, 0, 0, 8);
    let send = net.isend(1, a, 2, b"pong");
    net.run_until_idle();
    assert_eq!(net.code(1, send), StatusCode::Success);
    assert_eq!(&net.bytes(answer)[..4], b"pong");
    assert_eq!(net.done(0, answer.handle).source, b);
    // Connecting to a connected peer returns the same address and keeps the pointer. The key is checked.
    let wrong = net.iconnect(1, 0, KEY + 1);
    assert_eq!(net.connect(1, 0), a);
    assert_eq!(net.code(1, wrong), StatusCode::BadKey);
    assert_eq!(net.engine(1).peer_context(a).unwrap(), 0xa);
    assert_eq!(net.remotes(), [1, 1]);
}

#[test]
fn a_restarted_peer_is_the_same_with_another_session() {
    let (mut net, b) = Net::pair();
    net.engine(0).set_peer_context(b, 0xb).unwrap();
    let before = net.engine(0).decompose(b).unwrap();
    let waiting = net.issend(0, b, 1, b"x");
    net.run_until_idle();
    net.kill(1);
    net.run_until_idle();
    assert_eq!(net.code(0, waiting), StatusCode::EndpointUnreachable);
    // The peer is lost, but known: sends to it are posted and fail.
    assert_eq!(net.engine(0).decompose(b).unwrap(), before);
    let dead = net.isend(0, b, 1, b"x");
    assert_eq!(
        net.done(0, dead).code,
        StatusCode::EndpointUnreachable as u32
    );
    net.restart(1);
    assert_eq!(net.connect(0, 1), b);
    let after = net.engine(0).decompose(b).unwrap();
    assert_eq!((after.nic, after.endpoint), (before.nic, before.endpoint));
    assert_ne!(after.session, before.session);
    assert_eq!(net.engine(0).peer_context(b).unwrap(), 0xb);
    let send = net.isend(0, b, 1, b"x");
    net.run_until_idle();
    assert_eq!(net.code(0, send), StatusCode::Success);
}

#[test]
fn returning_peer_is_recognised_by_its_first_message() {
    let (mut net, b) = Net::pair();
    net.engine(0).set_peer_context(b, 0xb).unwrap();
    net.kill(1);
    net.run_until_idle();
    net.restart(1);
    let a = net.connect(1, 0);
    net.isend(1, a, 3, b"again");
    net.run_until_idle();
    // Nothing has been received, and still the source can be sent to and disconnected.
    let send = net.isend(0, b, 1, b"x");
    net.run_until_idle();
    assert_eq!(net.code(0, send), StatusCode::Success);
    assert_eq!(net.engine(0).probe(0, 0).unwrap().unwrap().source, b);
    net.engine(0).disconnect(b).unwrap();
    assert_eq!(net.engine(0).probe(0, 0).unwrap(), None);
}

#[test]
fn disconnecting_ends_everything_with_a_peer() {
    let mut net = Net::of(3);
    let (b, c) = (net.connect(0, 1), net.connect(0, 2));
    net.engine(0).set_peer_context(b, 0xb).unwrap();
    let a = net.connect(1, 0);
    net.isend(1, a, 9, b"thrown away");
    net.run_until_idle();
    let sends = [net.issend(0, b, 1, b"x"), net.isend(0, b, 2, &[0; 100_000])];
    let other = net.issend(0, c, 1, b"x");
    let posted = net.irecv(0, 1, ALL, 1);
    net.run_until_idle();
    net.engine(0).disconnect(b).unwrap();
    for send in sends {
        let status = net.done(0, send);
        assert_eq!(status.code, StatusCode::EndpointUnreachable as u32);
        assert_eq!(status.source, b);
    }
    assert_eq!(net.engine(0).probe(0, 0).unwrap(), None);
    assert!(net.pending(0, other) && net.pending(0, posted.handle));
    // The address is invalid; only a send reports that by its request.
    let engine = net.engine(0);
    for result in [
        engine.decompose(b).map(|_| ()),
        engine.peer_context(b).map(|_| ()),
        engine.set_peer_context(b, 1),
    ] {
        fails(result, Code::BadEndpoint);
    }
    engine.disconnect(b).unwrap();
    let stale = net.isend(0, b, 1, b"x");
    assert_eq!(net.code(0, stale), StatusCode::EndpointUnreachable);
    net.run_until_idle();
    let again = net.connect(0, 1);
    assert_ne!(again, b);
    assert_eq!(net.engine(0).peer_context(again).unwrap(), 0);
    assert!(net.engine(0).decompose(b).is_err());
    let send = net.isend(0, again, 1, b"x");
    net.run_until_idle();
    assert_eq!(net.code(0, send), StatusCode::Success);
}

#[test]
fn disconnect_ends_a_connect_to_a_restarted_peer() {
    let (mut net, b) = Net::pair();
    net.kill(1);
    net.run_until_idle();
    net.restart(1);
    let request = net.iconnect(0, 1, KEY);
    net.engine(0).disconnect(b).unwrap();
    net.run_until_idle();
    assert_eq!(net.code(0, request), StatusCode::EndpointUnreachable);
    let again = net.connect(0, 1);
    assert_ne!(again, b);
    let send = net.isend(0, again, 1, b"x");
    net.run_until_idle();
    assert_eq!(net.code(0, send), StatusCode::Success);
}

#[test]
fn a_receive_whose_message_breaks_off_tells_from_whom_it_was() {
    for dies in [false, true] {
        let (mut net, b) = Net::pair();
        let recv = net.irecv(1, 0, 0, 4 << 20);
        net.isend(0, b, 0x77, &vec![1; 4 << 20]);
        // Long enough for the first bytes, not for the last.
        net.pass(Duration::from_micros(12));
        if dies {
            net.kill(0);
        } else {
            net.engine(0).disconnect(b).unwrap();
        }
        net.run_until_idle();
        let status = net.done(1, recv.handle);
        assert_eq!(
            status.code,
            StatusCode::EndpointUnreachable as u32,
            "{dies}"
        );
        let who = net.engine(1).decompose(status.source).unwrap();
        assert_eq!((who.nic, who.endpoint.0), (NIC, 0));
        assert_eq!((status.match_info, status.msg_length), (0x77, 4 << 20));
    }
}

#[test]
fn last_messages_of_a_dying_peer_keep_its_name() {
    let (mut net, b) = Net::pair();
    let recvs: Vec<_> = (0..3).map(|_| net.irecv(1, 0, 0, 8)).collect();
    // One progress handles everything: messages and the end of the link.
    net.cluster.node(1).unwrap().idle = true;
    for n in 0..3 {
        net.isend(0, b, n, b"last");
    }
    net.kill(0);
    net.run_until_idle();
    net.cluster.node(1).unwrap().idle = false;
    net.run_until_idle();
    for (n, recv) in recvs.into_iter().enumerate() {
        let status = net.done(1, recv.handle);
        assert_eq!((status.code, status.match_info), (0, n as u64));
        let who = net.engine(1).decompose(status.source).unwrap();
        assert_eq!(who.endpoint.0, 0);
    }
}

#[test]
fn what_a_peer_sent_before_it_went_can_still_be_received() {
    for handled in [false, true] {
        let (mut net, b) = Net::pair();
        if handled {
            net.engine(1).set_handler(Some(HANDLER_OF_TESTS));
        }
        // With a handler, the peer's end is handled together with the messages.
        net.cluster.node(1).unwrap().idle = handled;
        for n in 0..4 {
            net.isend(0, b, n, b"words");
        }
        net.run_until_idle();
        net.kill(0);
        net.run_until_idle();
        net.cluster.node(1).unwrap().idle = false;
        net.run_until_idle();
        if handled {
            let turn = net.engine(1).next_turn(|| 1).unwrap();
            let who = net.engine(1).decompose(turn.source).unwrap();
            assert_eq!((who.endpoint.0, turn.deferred.arrival.bits.0), (0, 0));
            net.engine(1).end_turn(turn.deferred, false);
            net.engine(1).set_handler(None);
            net.run_until_idle();
        }
        // The next life sends a message, too.
        net.restart(0);
        let b = net.connect(0, 1);
        net.isend(0, b, 4, b"words");
        net.run_until_idle();
        let probed = net.engine(1).probe(0, 0).unwrap().unwrap();
        assert_eq!((probed.match_info, probed.msg_length), (0, 5));
        for n in 0..2 {
            let recv = net.irecv(1, 0, 0, 5);
            let status = net.done(1, recv.handle);
            assert_eq!((status.match_info, status.source), (n, probed.source));
            assert_eq!(net.bytes(recv), b"words");
            let who = net.engine(1).decompose(status.source).unwrap();
            assert_eq!(who.endpoint.0, 0);
        }
        // The source is the same peer, and the new life can be sent to.
        let recv = net.irecv(1, 4, ALL, 5);
        assert_eq!(net.done(1, recv.handle).source, probed.source);
        let send = net.isend(1, probed.source, 9, b"x");
        net.run_until_idle();
        assert_eq!(net.code(1, send), StatusCode::Success);
        // After a disconnect its messages are dropped.
        net.engine(1).disconnect(probed.source).unwrap();
        assert_eq!(net.engine(1).probe(0, 0).unwrap(), None);
    }
}

/// Returns the addresses of two peers of node 0 behind one address, each with a message waiting there.
fn twins() -> (Net, [Address; 2]) {
    let mut net = Net::of(2);
    let twin = net.add_twin(1);
    for node in [1, twin] {
        let to = net.connect(node, 0);
        net.isend(node, to, node as u64, b"words");
        net.run_until_idle();
    }
    let engine = net.engine(0);
    let known = [1, twin].map(|node| engine.probe(node as u64, ALL).unwrap().unwrap().source);
    assert_ne!(known[0], known[1]);
    (net, known)
}

#[test]
fn disconnecting_one_of_two_peers_at_an_address_keeps_other() {
    for (gone, stays) in [(0, 1), (1, 0)] {
        let (mut net, known) = twins();
        net.engine(0).disconnect(known[gone]).unwrap();
        net.run_until_idle();
        assert_eq!(net.engine(0).probe(1 + gone as u64, ALL).unwrap(), None);
        let recv = net.irecv(0, 1 + stays as u64, ALL, 5);
        assert_eq!(net.done(0, recv.handle).source, known[stays]);
        let send = net.isend(0, known[stays], 9, b"x");
        let recv = net.irecv(1 + stays, 9, ALL, 1);
        net.run_until_idle();
        assert_eq!(net.code(0, send), StatusCode::Success);
        assert_eq!(net.code(1 + stays, recv.handle), StatusCode::Success);
    }
}

#[test]
fn leftovers_of_two_peers_at_one_address_stay_separate() {
    for (dies, stays) in [(0, 1), (1, 0)] {
        let (mut net, known) = twins();
        net.kill(1 + dies);
        net.run_until_idle();
        let (left, other) = (1 + dies as u64, 1 + stays as u64);
        for (bits, source) in [(left, known[dies]), (other, known[stays])] {
            assert_eq!(
                net.engine(0).probe(bits, ALL).unwrap().unwrap().source,
                source
            );
        }
        net.engine(0).disconnect(known[stays]).unwrap();
        net.run_until_idle();
        assert_eq!(net.engine(0).probe(other, ALL).unwrap(), None);
        let recv = net.irecv(0, left, ALL, 5);
        assert_eq!(net.done(0, recv.handle).source, known[dies]);
    }
}

#[test]
fn connects_fail_in_words_of_their_own() {
    let mut net = Net::of(2);
    let wrong = net.iconnect(0, 1, KEY + 1);
    let absent = net.iconnect(0, 77, KEY);
    net.run_until_idle();
    let status = net.done(0, wrong);
    assert_eq!(status.code, StatusCode::BadKey as u32);
    assert_eq!((status.match_info, status.context), (0xc0, 7));
    assert_eq!(net.code(0, absent), StatusCode::EndpointClosed);
    net.fabric.cut(0, 1);
    net.engine(0)
        .set_request_timeout(Some(Duration::from_secs(1)));
    let lost = net.iconnect(0, 1, KEY);
    net.pass(Duration::from_secs(2));
    assert_eq!(net.code(0, lost), StatusCode::Timeout);
    assert_eq!(net.engine(0).requests(), 0);
}

#[test]
fn made_up_peers_are_told_from_former_ones() {
    let (mut net, b) = Net::pair();
    let handle = b.endpoint();
    let known = b.peer().unwrap();
    let made_up = [
        PeerKey {
            index: 999,
            ..known
        },
        PeerKey {
            generation: known.generation + 1,
            ..known
        },
        PeerKey {
            generation: 0,
            ..known
        },
    ];
    for peer in made_up {
        let engine = net.engine(0);
        let address = Address::new(handle, peer);
        let sent = engine.isend(UserMemory::empty(), address, 0, 0, SendMode::Buffered);
        fails(sent, Code::BadEndpoint);
        fails(engine.disconnect(address), Code::BadEndpoint);
    }
}
