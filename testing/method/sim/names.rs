//! Names that resolve to another address than in the look-up.

use crate::rig::{NIC, NOWHERE, OTHER_NIC, Rig, target};
use bmi_method::abi::constants::*;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::method::PostKind;
use bmi_method::peer::state::{State, WaitState};
use mx_proto::NicId;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::ptr::NonNull;
use std::time::Duration;

/// Makes a client, a server, and the client's object for the server, at an address that the server
/// has left.
fn moved() -> (Rig, [NodeId; 2], NonNull<bmi_method_addr>) {
    let mut rig = Rig::new(1);
    let nodes = [(); 2].map(|()| rig.add(Profile::default()));
    let addr = rig.host(nodes[0]).look_up(nodes[1], NOWHERE);
    rig.host(nodes[0]).use_addr(nodes[1], addr);
    (rig, nodes, addr)
}

/// Answers every question with that interface; returns the number of questions.
fn answer(rig: &mut Rig, node: NodeId, nic: NicId) -> usize {
    let method = &mut rig.host(node).method;
    let questions = method.take_questions();
    for question in &questions {
        method.resolved(question, &[nic]);
    }
    questions.len()
}

#[test]
fn moved_peer_is_reached_by_the_pending_connect() {
    let (mut rig, [client, server], addr) = moved();
    let first = rig.host(client).send(server, 1, b"first");
    assert!(!rig.peek(client).method.has_questions(), "it is new");
    assert_eq!(rig.wait(client, first), -BMI_ECONNREFUSED);
    assert_eq!(answer(&mut rig, client, NIC), 0, "nothing needs it");
    let second = rig.host(client).send_unexpected(server, 2, b"second");
    assert!(matches!(
        rig.peek(client).state(addr),
        State::Wait(WaitState::Connecting)
    ));
    // It has not moved.
    assert_eq!(answer(&mut rig, client, NOWHERE), 1);
    assert_eq!(rig.wait(client, second), -BMI_ECONNREFUSED);
    let third = rig.host(client).send_unexpected(server, 2, b"third");
    assert_eq!(answer(&mut rig, client, NIC), 1);
    assert_eq!(rig.wait(client, third), 0);
    rig.run("the message", |rig| !rig.peek(server).got.is_empty());
    // While it is connected, its name may resolve to anything.
    rig.host(client).send(server, 3, b"fourth");
    assert_eq!(answer(&mut rig, client, NOWHERE), 0);
    let key = rig.peek(client).method.peers().of_addr(addr.as_ptr());
    let peers = rig.peek(client).method.peers();
    assert_eq!(peers.called(target(server)), key);
}

#[test]
fn a_connection_that_is_not_up_is_doubted_each_second() {
    let (mut rig, [client, server], _) = moved();
    let addr = rig.host(client).look_up(server, NIC);
    rig.host(client).use_addr(server, addr);
    rig.cluster.stall(server, Duration::from_secs(60));
    let send = rig.host(client).send(server, 1, b"");
    for _ in 0..3 {
        assert_eq!(answer(&mut rig, client, NIC), 0);
        rig.run_for(Duration::from_millis(1100));
        assert_eq!(answer(&mut rig, client, NIC), 1);
    }
    assert_eq!(rig.peek(client).error(send), None);
}

#[test]
fn name_the_resolver_misses_keeps_its_address_and_is_retried() {
    let (mut rig, [client, server], _) = moved();
    let addr = rig.host(client).look_up(server, NIC);
    rig.host(client).use_addr(server, addr);
    rig.cluster.stall(server, Duration::from_secs(4));
    let send = rig.host(client).send_unexpected(server, 1, b"long ago");
    for _ in 0..3 {
        rig.run_for(Duration::from_millis(1100));
        // The resolver returns an error for each, so there is no answer.
        let asked = rig.host(client).method.take_questions();
        let before: Vec<_> = asked.iter().map(|question| question.before()).collect();
        assert_eq!(before, [Some(NIC)]);
        let peers = rig.peek(client).method.peers();
        let named = peers.called(target(server));
        assert_eq!(named, peers.of_addr(addr.as_ptr()));
    }
    assert_eq!(rig.wait(client, send), 0);
    rig.run("the message", |rig| !rig.peek(server).got.is_empty());
    // Once it is connected, nothing is asked.
    rig.host(client).method.take_questions();
    rig.run_for(Duration::from_secs(3));
    assert!(!rig.peek(client).method.has_questions());
}

#[test]
fn what_has_moved_to_a_known_peer_stands_for_that() {
    let (mut rig, [client, server], addr) = moved();
    let known = rig.host(client).look_up(server, NIC);
    let first = rig.host(client).send(server, 1, b"first");
    assert_eq!(rig.wait(client, first), -BMI_ECONNREFUSED);
    let second = rig.host(client).send(server, 1, b"second");
    assert_eq!(answer(&mut rig, client, NIC), 1);
    assert_eq!(rig.wait(client, second), -BMI_EHOSTUNREACH);
    let peers = rig.peek(client).method.peers();
    assert_eq!(peers.len(), 1);
    assert_eq!(peers.of_addr(addr.as_ptr()), peers.of_addr(known.as_ptr()));
    rig.host(client).use_addr(server, addr);
    rig.introduce(client, server);
    assert_eq!(rig.peek(server).method.peers().len(), 1);
}

#[test]
fn what_has_moved_at_rest_to_a_known_peer_stands_for_that() {
    let (mut rig, [client, server], addr) = moved();
    let first = rig.host(client).send(server, 1, b"first");
    assert_eq!(rig.wait(client, first), -BMI_ECONNREFUSED);
    let second = rig.host(client).send(server, 1, b"second");
    let questions = rig.host(client).method.take_questions();
    assert_eq!(rig.wait(client, second), -BMI_ECONNREFUSED);
    // The session of another object is in use meanwhile, and stays.
    let known = rig.host(client).look_up(server, NIC);
    rig.host(client).use_addr(server, known);
    rig.introduce(client, server);
    let method = &mut rig.host(client).method;
    assert_eq!(questions.len(), 1);
    method.resolved(&questions[0], &[NIC]);
    assert_eq!(method.peers().len(), 1);
    rig.host(client).use_addr(server, addr);
    rig.talk(client, server);
}

#[test]
fn of_two_objects_the_moving_one_leaves_when_idle() {
    let (mut rig, [client, server], addr) = moved();
    let other = rig.host(client).look_up(server, NOWHERE);
    let fail = |rig: &mut Rig, addr| {
        let host = rig.host(client);
        let posted = host.post(PostKind::Send, addr, 1, (*b"x").into());
        rig.wait(client, posted.unwrap())
    };
    assert_eq!(fail(&mut rig, addr), -BMI_ECONNREFUSED);
    let posted = rig.host(client).send(server, 1, b"y");
    let method = &mut rig.host(client).method;
    let questions = method.take_questions();
    assert_eq!(questions.len(), 2);
    method.resolved(&questions[0], &[OTHER_NIC]);
    assert_eq!(method.peers().len(), 1, "it has operations");
    assert_eq!(rig.wait(client, posted), -BMI_ECONNREFUSED);
    let method = &mut rig.host(client).method;
    method.resolved(&questions[0], &[OTHER_NIC]);
    assert_eq!(method.peers().len(), 2);
    method.resolved(&questions[1], &[NOWHERE]);
    rig.introduce(client, server);
    assert_eq!(fail(&mut rig, other), -BMI_ECONNREFUSED);
    // Objects dropped meanwhile cause no answer.
    rig.host(client).drop_addr(other);
    let method = &mut rig.host(client).method;
    method.resolved(&questions[1], &[OTHER_NIC]);
    assert_eq!(method.peers().len(), 1);
}
