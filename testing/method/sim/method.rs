//! The whole method on the simulated network: its promises, in one thread and from a seed.

use crate::rig::{Addr, NIC, OTHER_NIC, Rig, context_of};
use bmi_method::abi::constants::*;
use bmi_method::method::PostKind;
use bmi_method::peer::state::State;
use mx_sim::{NodeId, Profile};
use std::time::Duration;

/// Posts an operation with four equal bytes, or for four bytes.
fn post(rig: &mut Rig, node: NodeId, kind: PostKind, addr: Addr, byte: u8) -> u64 {
    let host = rig.host(node);
    host.post(kind, addr, 1, vec![byte; 4].into()).unwrap()
}

#[test]
fn endpoint_under_two_names_is_two_peers() {
    let (mut rig, a, b) = Rig::of_two(6);
    let names = [NIC, OTHER_NIC, NIC].map(|nic| rig.host(a).look_up(b, nic));
    let callers = names.map(|addr| {
        rig.host(a).use_addr(b, addr);
        rig.introduce(a, b);
        rig.host(b).addr(a)
    });
    assert_ne!(callers[0], callers[1]);
    assert_eq!(callers[0], callers[2], "equal names share a session");
    for node in [a, b] {
        assert_eq!(rig.peek(node).method.peers().len(), 2);
    }
    // Equal tags, posted in turns: each session has its own order.
    let sends = [0, 1, 2, 1, 0, 1].map(|n| post(&mut rig, a, PostKind::Send, names[n], n as u8));
    for (n, bytes) in [(0, [0, 2, 0]), (1, [1, 1, 1])] {
        for byte in bytes {
            let recv = post(&mut rig, b, PostKind::Recv, callers[n], 9);
            assert_eq!(rig.wait(b, recv), 0);
            assert_eq!(rig.peek(b).bytes(recv), [byte; 4]);
        }
        let recv = post(&mut rig, a, PostKind::Recv, names[n], 9);
        post(&mut rig, b, PostKind::Send, callers[n], 7 + n as u8);
        assert_eq!(rig.wait(a, recv), 0);
        assert_eq!(rig.peek(a).bytes(recv), [7 + n as u8; 4]);
    }
    for send in sends {
        assert_eq!(rig.wait(a, send), 0);
    }
    // A session ends with the last object of its name, and the other session stays.
    rig.host(a).drop_addr(names[0]);
    assert!(matches!(rig.peek(a).state(names[2]), State::Ready(_)));
    rig.host(a).drop_addr(names[2]);
    rig.run("the end", |rig| rig.peek(b).forgotten == [1]);
    assert_eq!(rig.peek(b).state(callers[0]), State::Init);
    rig.host(a).use_addr(b, names[1]);
    rig.introduce(a, b);
    assert_eq!(rig.host(b).addr(a), callers[1]);
    rig.host(a).drop_addr(names[1]);
    assert!(rig.peek(a).method.peers().is_empty());
    // Either name reaches it again, as another peer there.
    for nic in [OTHER_NIC, NIC] {
        let addr = rig.host(a).look_up(b, nic);
        rig.host(a).use_addr(b, addr);
        rig.introduce(a, b);
        assert!(!callers.contains(&rig.host(b).addr(a)));
        rig.host(a).drop_addr(addr);
    }
}

#[test]
fn two_that_call_each_other_have_two_sessions() {
    for seed in 0..20 {
        let (mut rig, a, b) = Rig::of_two(seed);
        let addrs = [(a, b), (b, a)].map(|(from, to)| {
            rig.host(from).send_unexpected(to, 1, b"a call");
            rig.host(from).addr(to)
        });
        rig.run("both calls", |rig| {
            [a, b].iter().all(|node| rig.peek(*node).got.len() == 1)
        });
        for (node, own) in [a, b].into_iter().zip(addrs) {
            let host = rig.peek(node);
            assert_ne!(host.got[0].addr(), own);
            assert_eq!(host.method.peers().len(), 2);
            assert_eq!(host.method.endpoint().remotes(), 2);
        }
        // Each answers on the session of the other's call; ending one session leaves the other.
        for (from, to, addr) in [(b, a, addrs[0]), (a, b, addrs[1])] {
            let caller = rig.peek(from).got[0].addr();
            let recv = post(&mut rig, to, PostKind::Recv, addr, 9);
            let send = post(&mut rig, from, PostKind::Send, caller, 3);
            assert_eq!([rig.wait(to, recv), rig.wait(from, send)], [0, 0]);
        }
        rig.host(a).drop_addr(addrs[0]);
        rig.run("the end", |rig| rig.peek(b).forgotten == [1]);
        assert!(matches!(rig.peek(b).state(addrs[1]), State::Ready(_)));
        rig.introduce(b, a);
        assert!(rig.peek(a).forgotten.is_empty());
    }
}

#[test]
fn posts_to_a_gone_caller_end_and_it_returns_as_another() {
    // It dies, or only the connection is lost, and it calls again.
    for dies in [true, false] {
        let (mut rig, client, server) = Rig::of_two(18);
        rig.introduce(client, server);
        let gone = rig.host(server).addr(client);
        if dies {
            rig.kill(client);
        } else {
            rig.fabric.reset_links(client, server);
        }
        rig.run("the host being told", |rig| {
            !rig.peek(server).forgotten.is_empty()
        });
        for kind in [
            PostKind::Send,
            PostKind::Recv,
            PostKind::SendUnexpected,
            PostKind::Send,
        ] {
            let label = post(&mut rig, server, kind, gone, 1);
            rig.peek(server).reap();
            assert_eq!(rig.peek(server).error(label), Some(-BMI_ENETRESET));
        }
        if dies {
            rig.restart(client, Profile::default());
        }
        let own = rig.host(client).addr(server);
        rig.introduce(client, server);
        assert_eq!(rig.host(client).addr(server), own);
        assert_ne!(rig.host(server).addr(client), gone);
        assert_eq!(rig.peek(server).state(gone), State::Init);
        assert_eq!(rig.peek(server).forgotten, [1]);
        assert!(rig.peek(server).method.may_drop(gone.as_ptr()));
        rig.host(server).drop_addr(gone);
        assert_eq!(rig.peek(server).method.peers().len(), 1);
        rig.talk(client, server);
    }
}

#[test]
fn a_caller_that_is_dropped_takes_its_waiting_messages_with_it() {
    // Before the host has been told, it cannot drop the address: it is told of the first message.
    for gone in [false, true] {
        let (mut rig, client, server) = Rig::of_two(19);
        rig.introduce(client, server);
        rig.peek(server).fetching = false;
        for _ in 0..3 {
            rig.host(client).send_unexpected(server, 1, b"waits");
        }
        rig.run("the messages", |rig| {
            rig.peek(server).method.unexpected() == 3
        });
        let caller = rig.host(server).addr(client);
        if gone {
            rig.kill(client);
            rig.run("the end", |rig| {
                rig.peek(server).state(caller) == State::Init
            });
            assert!(!rig.peek(server).method.may_drop(caller.as_ptr()));
        }
        rig.host(server).drop_addr(caller);
        let method = &rig.peek(server).method;
        assert!(method.peers().is_empty());
        assert_eq!(method.unexpected(), 0);
        assert_eq!(method.endpoint().inbox_stats().bytes, 0);
        rig.run_for(Duration::from_millis(10));
        rig.host(server).fetching = true;
        rig.run_for(Duration::from_millis(10));
        assert!(rig.peek(server).got.is_empty());
    }
}

#[test]
fn a_call_of_oneself_has_two_ends() {
    let mut rig = Rig::new(21);
    let node = rig.add(Profile::default());
    let call = rig.host(node).addr(node);
    rig.host(node).send_unexpected(node, 1, b"to oneself");
    rig.run("the message", |rig| rig.peek(node).got.len() == 1);
    let caller = rig.peek(node).got[0].addr();
    assert_ne!(caller, call);
    assert_eq!(rig.peek(node).method.peers().len(), 2);
    for (from, to) in [(call, caller), (caller, call)] {
        let send = post(&mut rig, node, PostKind::Send, from, 5);
        let recv = post(&mut rig, node, PostKind::Recv, to, 9);
        assert_eq!([rig.wait(node, send), rig.wait(node, recv)], [0, 0]);
    }
    rig.host(node).drop_addr(call);
    rig.run("the end", |rig| rig.peek(node).forgotten == [1]);
    rig.host(node).drop_addr(caller);
    assert!(rig.peek(node).method.peers().is_empty());
}

/// The host was told of an object for this process as a caller, because no messages come from the
/// object that it listens on.
#[test]
fn our_call_is_repeated_although_the_host_heard_of_its_end() {
    let mut rig = Rig::new(22);
    let node = rig.add(Profile::default());
    let own = rig.host(node).own_addr(node);
    post(&mut rig, node, PostKind::SendUnexpected, own, 1);
    rig.run("the message", |rig| rig.peek(node).got.len() == 1);
    let caller = rig.peek(node).got[0].addr();
    post(&mut rig, node, PostKind::SendUnexpected, caller, 2);
    rig.run("the answer", |rig| rig.peek(node).got.len() == 2);
    let registered = rig.peek(node).got[1].addr();
    assert!(![own, caller].contains(&registered));
    rig.fabric.reset_links(node, node);
    rig.run("the ends", |rig| rig.peek(node).forgotten.len() == 2);
    assert_eq!(rig.peek(node).state(own), State::Init);
    let again = post(&mut rig, node, PostKind::SendUnexpected, registered, 3);
    assert_eq!(rig.wait(node, again), 0);
    rig.run("the message", |rig| rig.peek(node).got.len() == 3);
    let answer = post(&mut rig, node, PostKind::Send, caller, 4);
    assert_eq!(rig.wait(node, answer), -BMI_ENETRESET);
}

#[test]
fn dead_client_is_forgotten_once_and_its_id_is_reused() {
    let (mut rig, client, server) = Rig::of_two(10);
    rig.host(client).send_unexpected(server, 1, b"x");
    rig.run("the message", |rig| rig.peek(server).got.len() == 1);
    let addr = rig.peek(server).got[0].addr();
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
fn cancelling_complete_or_unknown_ids_changes_nothing() {
    let (mut rig, a, b) = Rig::of_two(13);
    rig.introduce(a, b);
    let recv = rig.host(a).recv(b, 1, 5);
    let id = rig.peek(a).id(recv).unwrap();
    rig.host(b).send(a, 1, b"12345");
    // Its completion waits in the context while it is cancelled.
    rig.peek(a).reaping = false;
    rig.run("the message", |rig| {
        rig.peek(a).method.done_waiting(context_of(recv)) > 0
    });
    rig.peek(a).method.cancel(id, context_of(recv)).unwrap();
    rig.host(a).reaping = true;
    assert_eq!(rig.wait(a, recv), 0);
    assert_eq!(rig.peek(a).bytes(recv), b"12345");
    // It may be cancelled too late, but must not end twice.
    let context = context_of(recv);
    rig.peek(a).method.cancel(id, context).unwrap();
    assert!(rig.peek(a).method.take_done(id, context).is_err());
    for none in [0, 1, -1, id + 1, i64::MAX] {
        let error = rig.peek(a).method.cancel(none, 0).unwrap_err();
        assert_eq!(error.code(), -BMI_EINVAL);
        assert!(rig.peek(a).method.take_done(none, 0).is_err());
    }
}

/// Every number near a valid id, and every state that an operation can be in.
#[test]
fn only_the_id_of_an_operation_in_its_own_context_names_it() {
    let (mut rig, a, b) = Rig::of_two(14);
    // One waits for its connection, later ones are at the endpoint.
    let pending = rig.host(a).recv(b, 1, 5);
    let refused = |rig: &mut Rig, id: i64, context: i64| {
        let method = &mut rig.host(a).method;
        // A number that is or was an id may be cancelled too late.
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
    // After their end they are unknown, and so are the numbers of another method.
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
fn pending_operations_never_start_after_finalize() {
    for micros in [0, 3, 6, 9, 12, 15, 20, 30, 100] {
        let (mut rig, a, b) = Rig::of_two(20);
        let mine = rig.host(b).send_unexpected(a, 1, b"to a");
        let theirs = rig.host(a).send_unexpected(b, 1, b"to b");
        rig.run_for(Duration::from_micros(micros));
        if rig.peek(a).error(theirs).is_some() || rig.peek(b).error(mine).is_some() {
            assert!(micros > 3);
            continue;
        }
        rig.host(a).finalize();
        let late = rig.peek(b).got.len();
        // It reaches a, which is still there, and is rejected; in the second round a has left.
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
