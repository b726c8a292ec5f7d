//! The whole method on the simulated network: what it promises, in one thread and from a seed.

use crate::rig::{self, OTHER_NIC, Rig, context_of};
use bmi_method::abi::constants::*;
use bmi_method::method::PostKind;
use bmi_method::peer::state::State;
use std::time::Duration;

#[test]
fn one_endpoint_under_two_names_is_one_peer_in_the_end() {
    let (mut rig, a, b) = Rig::of_two(6);
    let host = rig.host(a);
    let first = host.look_up(b, rig::NIC);
    let second = host.look_up(b, OTHER_NIC);
    let post = |rig: &mut Rig, addr, tag, byte: u8| {
        let host = rig.host(a);
        host.post(PostKind::Send, addr, tag, vec![byte; 4].into())
            .unwrap()
    };
    let sends = [
        post(&mut rig, first, 1, 1),
        post(&mut rig, second, 1, 2),
        post(&mut rig, second, 1, 3),
    ];
    let early = rig.host(a).recv_at(second, 9, 4);
    let recvs: Vec<_> = (0..3).map(|_| rig.host(b).recv(a, 1, 4)).collect();
    let mut bytes = Vec::new();
    for recv in recvs {
        assert_eq!(rig.wait(b, recv), 0);
        bytes.push(rig.peek(b).bytes(recv)[0]);
    }
    // Order holds within each name.
    bytes.retain(|byte| *byte != 1);
    assert_eq!(bytes, [2, 3]);
    for send in sends {
        assert_eq!(rig.wait(a, send), 0);
    }
    rig.host(b).send(a, 9, b"back");
    assert_eq!(rig.wait(a, early), 0);
    assert_eq!(rig.peek(a).method.peers().len(), 1);
    assert_eq!(rig.peek(b).method.peers().len(), 1);
    // Dropping one name leaves the other alive, dropping both ends the peer.
    rig.host(a).drop_addr(first);
    assert!(matches!(rig.peek(a).state(second), State::Ready(_)));
    rig.host(a).drop_addr(second);
    assert_eq!(rig.peek(a).method.peers().len(), 0);
    // Either name reaches it again.
    for nic in [OTHER_NIC, rig::NIC] {
        // Until the other side knows, what it posts belongs to the old connection.
        rig.run_for(Duration::from_millis(1));
        let addr = rig.host(a).look_up(b, nic);
        let sent = post(&mut rig, addr, 1, 4);
        let recv = rig.host(b).recv(a, 1, 4);
        assert_eq!(rig.wait(b, recv), 0);
        assert_eq!(rig.wait(a, sent), 0);
        rig.host(a).drop_addr(addr);
    }
}

#[test]
fn a_dead_client_is_forgotten_once_and_its_id_and_memory_come_back() {
    let (mut rig, client, server) = Rig::of_two(10);
    rig.host(client).send_unexpected(server, 1, b"x");
    rig.run("the message", |rig| rig.peek(server).got.len() == 1);
    let addr = std::ptr::NonNull::new(rig.peek(server).got[0].addr as *mut _).unwrap();
    assert!(!rig.peek(server).method.may_drop(addr.as_ptr()));
    rig.kill(client);
    rig.run("the host being told", |rig| {
        !rig.peek(server).forgotten.is_empty()
    });
    assert_eq!(rig.peek(server).forgotten, [1]);
    assert!(rig.peek(server).method.may_drop(addr.as_ptr()));
    rig.host(server).drop_addr(addr);
    rig.host(server).drop_addr(addr);
    assert!(rig.peek(server).method.peers().is_empty());
    rig.run_for(Duration::from_secs(30));
    assert_eq!(rig.peek(server).forgotten, [1]);
}

#[test]
fn cancelling_what_is_complete_or_reported_changes_nothing_and_no_ids_are_refused() {
    let (mut rig, a, b) = Rig::of_two(13);
    rig.introduce(a, b);
    let recv = rig.host(a).recv(b, 1, 5);
    let id = rig.peek(a).id(recv).unwrap();
    rig.host(b).send(a, 1, b"12345");
    // Its completion waits in the context while it is called off.
    rig.peek(a).reaping = false;
    rig.run("the message", |rig| {
        rig.peek(a).method.done_waiting(context_of(recv)) > 0
    });
    rig.peek(a).method.cancel(id, context_of(recv)).unwrap();
    rig.host(a).reaping = true;
    assert_eq!(rig.wait(a, recv), 0);
    assert_eq!(rig.peek(a).bytes(recv), b"12345");
    // It may be called off too late, but has no second end.
    let context = context_of(recv);
    rig.peek(a).method.cancel(id, context).unwrap();
    assert!(rig.peek(a).method.take_done(id, context).is_err());
    for none in [0, 1, -1, id + 1, i64::MAX] {
        let error = rig.peek(a).method.cancel(none, 0).unwrap_err();
        assert_eq!(error.code(), -BMI_EINVAL);
        assert!(rig.peek(a).method.take_done(none, 0).is_err());
    }
}

/// Every number that is near one of ours, and every state that an operation of it can be in.
#[test]
fn only_the_id_of_an_operation_in_its_own_context_names_it() {
    let (mut rig, a, b) = Rig::of_two(14);
    // One waits for its connection, later ones are at the endpoint.
    let pending = rig.host(a).recv(b, 1, 5);
    let refused = |rig: &mut Rig, id: i64, context: i64| {
        let method = &mut rig.host(a).method;
        // One that is or was an id may be called off too late.
        let given_out = method.endpoint().ops().places().was_given_out(id);
        let expected = if given_out { Ok(()) } else { Err(-BMI_EINVAL) };
        let answer = method.cancel(id, context).map_err(|error| error.code());
        assert_eq!(answer, expected, "{id:#x} in context {context}");
        assert!(method.take_done(id, context).is_err());
    };
    let check = |rig: &mut Rig, labels: &[u64]| {
        let of = |label: &u64| (rig.peek(a).id(*label).unwrap(), context_of(*label));
        let known: Vec<(i64, i64)> = labels.iter().map(of).collect();
        for &(id, own) in &known {
            for context in (-1..=16).filter(|context| *context != own) {
                refused(rig, id, context);
            }
            for near in (id - 512..id + 512).filter(|near| known.iter().all(|of| of.0 != *near)) {
                refused(rig, near, own);
            }
            assert_eq!(rig.host(a).method.take_done(id, own).unwrap(), None);
        }
    };
    check(&mut rig, &[pending]);
    rig.introduce(a, b);
    let posted: Vec<_> = (0..3).map(|tag| rig.host(a).recv(b, 10 + tag, 5)).collect();
    let all = [&[pending][..], &posted].concat();
    check(&mut rig, &all);
    // Once gone they are unknown, and so is a number that another method gave.
    let gone = rig.peek(a).id(posted[1]).unwrap();
    rig.host(a)
        .method
        .cancel(gone, context_of(posted[1]))
        .unwrap();
    rig.wait(a, posted[1]);
    refused(&mut rig, gone, context_of(posted[1]));
    let other = rig.host(b).recv(a, 1, 5);
    let theirs = rig.peek(b).id(other).unwrap();
    refused(&mut rig, theirs, context_of(other));
    check(&mut rig, &[pending, posted[0], posted[2]]);
}

#[test]
fn an_orderly_end_is_told_at_once() {
    let (mut rig, a, b) = Rig::of_two(15);
    rig.introduce(a, b);
    let recv = rig.host(b).recv(a, 1, 5);
    let began = rig.now();
    rig.host(a).method.close();
    assert_eq!(rig.wait(b, recv), -BMI_ENETRESET);
    assert!(rig.now().since(began) < Duration::from_millis(1));
}

#[test]
fn a_connect_to_a_peer_that_is_dropped_is_called_off() {
    let (mut rig, a, b) = Rig::of_two(17);
    rig.cluster.stall(b, Duration::from_secs(1));
    let send = rig.host(a).send_unexpected(b, 1, b"too late");
    let addr = rig.host(a).addr(b);
    rig.host(a).drop_addr(addr);
    assert_eq!(rig.wait(a, send), -BMI_ENETRESET);
    assert_eq!(rig.peek(a).method.endpoint().requests(), 0);
}

#[test]
fn what_waits_for_a_connection_never_goes_once_the_method_has_ended() {
    for micros in [0, 3, 6, 9, 12, 15, 20, 30, 100] {
        let (mut rig, a, b) = Rig::of_two(20);
        let mine = rig.host(b).send_unexpected(a, 1, b"to a");
        rig.host(a).send_unexpected(b, 1, b"to b");
        rig.run_for(Duration::from_micros(micros));
        if rig.peek(a).error(mine).is_some() {
            assert!(micros > 15);
            continue;
        }
        rig.host(a).finalize();
        let late = rig.peek(b).got.len();
        // It reaches a, which is still there, and is turned away; a second time a is gone.
        rig.run_for(Duration::from_millis(10));
        assert_eq!(rig.peek(b).got.len(), late, "after {micros} us");
        assert_eq!(rig.peek(a).method.endpoint().remotes(), 0);
        rig.kill(a);
        let code = rig.wait(b, mine);
        assert!(
            [-BMI_ECONNREFUSED, -BMI_ENETRESET].contains(&code),
            "{code}"
        );
    }
}
