//! Operations that fail together: whatever ends them, and wherever they wait, the host is told of
//! the sends first. `rig/order` checks that in random programs.

use crate::rig::{NIC, Rig, context_of};
use bmi_method::abi::constants::*;
use bmi_method::method::Settings;
use bmi_method::peer::state::State;
use mx_proto::port::LinkDown;
use mx_sim::{NodeId, Profile};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(800);
/// Bytes of a message that is announced, and waits for its receiver.
const LARGE: usize = 300_000;

fn pair(seed: u64, limit: Option<Duration>) -> (Rig, NodeId, NodeId) {
    let mut rig = Rig::new(seed);
    rig.endpoint.peer_timeout = Some(TIMEOUT);
    rig.settings = Settings {
        connect_timeout: Some(TIMEOUT),
        send_timeout: limit,
        unexpected_timeout: limit,
        recv_timeout: limit,
        ..Settings::default()
    };
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    (rig, a, b)
}

/// Checks three exchanges as a host posts them, ended by `end`: all end with `code`, sends first,
/// each kind in the order of posting.
fn all_fail(rig: &mut Rig, a: NodeId, b: NodeId, code: i32, end: impl FnOnce(&mut Rig)) {
    let host = rig.host(a);
    host.fetching = false;
    host.begin_context();
    let before = host.told.len();
    let posted = [
        host.recv(b, 1, 10),
        host.send(b, 1, &[1; LARGE]),
        host.recv(b, 2, LARGE),
        host.recv(b, 3, 10),
        host.send_unexpected(b, 2, &[2; LARGE]),
        host.send(b, 3, &[3; LARGE]),
    ];
    assert_eq!(context_of(posted[0]), context_of(posted[5]));
    assert_eq!(rig.peek(a).outstanding(), posted);
    end(rig);
    for label in posted {
        assert_eq!(rig.wait(a, label), -code);
    }
    let [recv, send, large, last, unexpected, data] = posted;
    let expected = [send, unexpected, data, recv, large, last];
    assert_eq!(rig.peek(a).told[before..], expected);
}

#[test]
fn with_a_peer_that_dies() {
    let (mut rig, a, b) = pair(1, None);
    rig.introduce(a, b);
    all_fail(&mut rig, a, b, BMI_ENETRESET, |rig| rig.kill(b));
}

#[test]
fn with_a_peer_that_is_silent() {
    let (mut rig, a, b) = pair(2, None);
    rig.introduce(a, b);
    rig.cluster.stall(b, TIMEOUT * 4);
    all_fail(&mut rig, a, b, BMI_ETIMEDOUT, |_| {});
}

#[test]
fn with_a_peer_that_was_restarted() {
    let mut rig = Rig::new(3);
    // A new life of the peer makes the endpoint check the old one, which does not answer.
    rig.endpoint.peer_timeout = None;
    let (a, b) = (rig.add(Profile::default()), rig.add(Profile::default()));
    rig.introduce(a, b);
    all_fail(&mut rig, a, b, BMI_ETIMEDOUT, |rig| {
        rig.fabric.power_off(b);
        rig.kill(b);
        rig.restart(b, Profile::default());
        rig.host(b).send_unexpected(a, 7, b"new life");
    });
}

#[test]
fn with_a_link_that_ends_all_for_its_reason() {
    for (reason, code) in [
        (LinkDown::Reset, BMI_ENETRESET),
        (LinkDown::Unreachable, BMI_EHOSTUNREACH),
        (LinkDown::TimedOut, BMI_ETIMEDOUT),
        (LinkDown::Protocol, BMI_EPROTO),
    ] {
        let (mut rig, a, b) = pair(8, None);
        rig.introduce(a, b);
        all_fail(&mut rig, a, b, code, |rig| {
            rig.fabric.break_links(a, b, reason)
        });
    }
}

#[test]
fn before_the_connection_is_refused() {
    let (mut rig, a, b) = pair(4, None);
    let addr = rig.host(a).addr(b);
    rig.kill(b);
    assert_eq!(rig.host(a).addr(b), addr);
    all_fail(&mut rig, a, b, BMI_ECONNREFUSED, |_| {});
}

#[test]
fn before_the_connection_when_there_is_no_answer() {
    let (mut rig, a, b) = pair(5, None);
    rig.cluster.stall(b, TIMEOUT * 4);
    all_fail(&mut rig, a, b, BMI_ETIMEDOUT, |_| {});
}

#[test]
fn with_time_limits_that_are_over_together() {
    for connected in [false, true] {
        let (mut rig, a, b) = pair(6, Some(TIMEOUT / 2));
        if connected {
            rig.introduce(a, b);
        }
        rig.peek(b).fetching = false;
        rig.cluster.stall(b, TIMEOUT * 4);
        all_fail(&mut rig, a, b, BMI_ETIMEDOUT, |_| {});
    }
}

#[test]
fn with_the_last_address_that_is_dropped() {
    for connected in [false, true] {
        let (mut rig, a, b) = pair(7, None);
        if connected {
            rig.introduce(a, b);
        }
        let addr = rig.host(a).addr(b);
        all_fail(&mut rig, a, b, BMI_ENETRESET, |rig| {
            rig.host(a).drop_addr(addr)
        });
    }
}

/// The host takes one completion at a time, and the rest wait.
#[test]
fn however_few_the_host_takes_at_a_time() {
    let (mut rig, a, b) = pair(8, None);
    rig.introduce(a, b);
    let host = rig.host(a);
    host.reaping = false;
    host.begin_context();
    let first = host.recv(b, 1, 10);
    for tag in 2..4 {
        host.send(b, tag, &[1; LARGE]);
        host.recv(b, tag, 10);
    }
    let context = context_of(first);
    rig.kill(b);
    rig.run("the ends", |rig| {
        rig.peek(a).method.done_waiting(context) == 5
    });
    let told: Vec<_> = std::iter::from_fn(|| {
        let done = rig.host(a).method.pop_done(context);
        rig.run_for(Duration::from_micros(10));
        done.map(|done| done.user_ptr as u64 - first)
    })
    .collect();
    assert_eq!(told, [1, 3, 0, 2, 4]);
}

/// Two names of one process, with a session each, which end together.
#[test]
fn of_two_addresses_of_one_peer() {
    let (mut rig, a, b) = pair(9, None);
    let host = rig.host(a);
    let (one, other) = (host.look_up(b, NIC), host.look_up(b, crate::rig::OTHER_NIC));
    let recvs = [host.recv_at(one, 1, 10), host.recv_at(other, 2, 10)];
    host.use_addr(b, other);
    let send = host.send(b, 3, &[1; LARGE]);
    rig.run_for(TIMEOUT / 4);
    rig.kill(b);
    for label in [recvs[0], recvs[1], send] {
        rig.wait(a, label);
    }
    assert_eq!(rig.peek(a).told, [send, recvs[0], recvs[1]]);
}

/// The endpoint has lost the remote, and the method learns that in the post.
#[test]
fn send_to_a_lost_peer_fails_on_completion_not_at_post() {
    // With and without having been told.
    for told in [true, false] {
        let (mut rig, a, b) = pair(9, None);
        rig.introduce(a, b);
        let request = rig.host(a).send_unexpected(b, 9, b"a request");
        assert_eq!(rig.wait(a, request), 0);
        let host = rig.host(a);
        host.reaping = false;
        let recv = host.recv(b, 1, 10);
        if told {
            rig.cluster.stall(a, TIMEOUT / 2);
            rig.kill(b);
            rig.run_for(TIMEOUT / 4);
            rig.host(a).method.endpoint_mut().progress();
        } else {
            let addr = host.addr(b);
            let peers = host.method.peers();
            let peer = peers.of_addr(addr.as_ptr()).and_then(|key| peers.get(key));
            let remote = peer.and_then(|peer| peer.state.remote()).unwrap();
            host.method.endpoint_mut().disconnect(remote);
        }
        let host = rig.host(a);
        let send = host.send(b, 1, &[1; LARGE]);
        assert_eq!(host.outstanding(), [recv, send]);
        host.reaping = true;
        let ends = [send, recv].map(|label| -rig.wait(a, label));
        assert_eq!(ends, [BMI_ENETRESET; 2], "told: {told}");
    }
}

/// The peer rejects between the post of an exchange's receive and that of its send, which then
/// fails at once.
#[test]
fn send_fails_with_its_exchanges_unreported_receive() {
    let (mut rig, a, b) = pair(10, None);
    rig.introduce(a, b);
    rig.kill(b);
    rig.run_for(TIMEOUT);
    let host = rig.host(a);
    host.reaping = false;
    let recv = host.recv(b, 7, 10);
    let (context, before) = (context_of(recv), host.told.len());
    let ended = |rig: &mut Rig| rig.peek(a).method.done_waiting(context);
    rig.run("the refusal", |rig| ended(rig) == 1);
    let host = rig.host(a);
    let posted = [
        host.send_unexpected(b, 8, b"of another exchange"),
        host.send_unexpected(b, 7, b"a request"),
        host.send(b, 7, &[1; LARGE]),
    ];
    let [other, request, data] = posted;
    assert_eq!(ended(&mut rig), 3);
    rig.host(a).reaping = true;
    for label in [recv, other, request, data] {
        assert_eq!(rig.wait(a, label), -BMI_ECONNREFUSED);
    }
    assert_eq!(rig.peek(a).told[before..], [request, data, recv, other]);
}

/// A cancelled receive does not concern the peer's state.
#[test]
fn a_send_does_not_fail_with_a_receive_that_was_cancelled() {
    let (mut rig, a, b) = pair(11, None);
    rig.introduce(a, b);
    let host = rig.host(a);
    host.reaping = false;
    let recv = host.recv(b, 7, 10);
    host.cancel(recv);
    let request = host.send_unexpected(b, 7, b"a request");
    host.reaping = true;
    assert_eq!(rig.wait(a, request), 0);
    assert_eq!(rig.wait(a, recv), -BMI_ECANCEL);
}

/// The receive has timed out; its peer would still accept the message.
#[test]
fn a_small_send_fails_with_its_exchanges_receive_although_the_peer_is_ready() {
    let (mut rig, a, b) = pair(12, Some(TIMEOUT));
    rig.introduce(a, b);
    let host = rig.host(a);
    host.reaping = false;
    host.begin_context();
    let recv = host.recv(b, 7, 10);
    let (context, before) = (context_of(recv), host.told.len());
    rig.run("the time-out", |rig| {
        rig.peek(a).method.done_waiting(context) == 1
    });
    let host = rig.host(a);
    let send = host.send(b, 7, b"small");
    let other = host.send(b, 8, b"small");
    host.reaping = true;
    assert_eq!(rig.wait(a, other), 0);
    for label in [send, recv] {
        assert_eq!(rig.wait(a, label), -BMI_ETIMEDOUT);
    }
    assert_eq!(rig.peek(a).told[before..], [send, recv]);
}

/// Without operations for so long that the peer's silence is no longer watched.
#[test]
fn with_a_peer_that_is_silent_when_a_receive_is_posted_after_a_pause() {
    let (mut rig, a, b) = pair(13, None);
    rig.introduce(a, b);
    rig.run_for(4 * TIMEOUT);
    let addr = rig.host(a).addr(b);
    assert!(matches!(rig.peek(a).state(addr), State::Ready(_)));
    rig.cluster.stall(b, 20 * TIMEOUT);
    let recv = rig.host(a).recv(b, 1, 10);
    rig.run_for(3 * TIMEOUT);
    assert_eq!(rig.peek(a).error(recv), Some(-BMI_ETIMEDOUT));
}
