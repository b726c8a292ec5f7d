//! The unexpected handler's turns.

use super::{Net, Node};
use crate::engine::{HANDLER, HandlerTurn, UNEXPECTED, UnexpectedHandler};
use crate::handles::Address;
use crate::status::StatusCode;
use mx_sim::Drive;
use std::ffi::c_void;
use std::time::Duration;

const ALL: u64 = u64::MAX;
const ME: usize = 5;

unsafe extern "C" fn never(_: *mut c_void, _: Address, _: u64, _: u32, _: *mut c_void) -> u32 {
    unreachable!("the tests play the handler's part themselves")
}

pub(super) const HANDLER_OF_TESTS: UnexpectedHandler = UnexpectedHandler {
    function: never,
    context: 0x99,
};

/// Returns two endpoints; the second has a handler.
fn pair() -> (Net, Address) {
    let (mut net, b) = Net::pair();
    net.engine(1).set_handler(Some(HANDLER_OF_TESTS));
    net.engine(1).take_produced();
    (net, b)
}

fn turn(net: &mut Net) -> Option<HandlerTurn> {
    net.engine(1).next_turn(|| ME)
}

/// Returns the next turn, after fetching its message's body if necessary.
fn shown(net: &mut Net) -> HandlerTurn {
    let at_once = turn(net);
    at_once.unwrap_or_else(|| {
        net.run_until_idle();
        turn(net).expect("a message waits")
    })
}

#[test]
fn the_handler_sees_messages_in_order_with_their_data() {
    let (mut net, b) = pair();
    for n in 0..3u8 {
        net.isend(0, b, n.into(), &[n; 10]);
    }
    net.isend(0, b, 3, &[3; 100_000]);
    net.run_until_idle();
    assert_ne!(net.engine(1).take_produced() & HANDLER, 0);
    for n in 0..4u8 {
        let HandlerTurn {
            handler,
            source,
            mut deferred,
        } = turn(&mut net).unwrap();
        assert_eq!(handler.context, 0x99);
        let who = net.engine(1).decompose(source).unwrap();
        assert_eq!(who.endpoint.0, 0);
        assert_eq!(deferred.arrival.bits.0, n.into());
        let body = deferred.body_mut().map(|body| body.to_vec());
        // Large messages have not arrived with their data.
        let expected = (n < 3).then(|| vec![n; 10]);
        assert_eq!(body, expected);
        assert!(turn(&mut net).is_none(), "one at a time");
        net.engine(1).end_turn(deferred, true);
        net.run_until_idle();
    }
    assert!(turn(&mut net).is_none());
    assert_eq!(net.engine(1).probe(0, 0).unwrap(), None);
}

#[test]
fn messages_wait_while_the_handler_runs() {
    let (mut net, b) = pair();
    let recv = net.irecv(1, 2, ALL, 8);
    net.isend(0, b, 1, b"first");
    net.run_until_idle();
    net.isend(0, b, 2, b"second");
    net.run_until_idle();
    let engine = net.engine(1);
    assert_eq!(engine.endpoint().undecided(), 2);
    let taken = turn(&mut net).unwrap();
    net.isend(0, b, 3, b"third");
    net.run_until_idle();
    let engine = net.engine(1);
    assert!(engine.is_halted() && !engine.progress());
    assert_eq!(engine.endpoint().undecided(), 2);
    // The endpoint is not locked meanwhile.
    assert!(net.pending(1, recv.handle));
    net.isend(1, taken.source, 7, b"from inside");
    let answer = net.irecv(0, 7, ALL, 20);
    net.run_until_idle();
    assert_eq!(net.code(0, answer.handle), StatusCode::Success);
    net.engine(1).end_turn(taken.deferred, false);
    net.run_until_idle();
    let third = turn(&mut net).unwrap();
    assert_eq!(third.deferred.arrival.bits.0, 3);
    assert_eq!(net.code(1, recv.handle), StatusCode::Success);
    net.engine(1).end_turn(third.deferred, true);
    assert_ne!(net.engine(1).take_produced() & UNEXPECTED, 0);
    assert_eq!(net.engine(1).probe(0, 0).unwrap().unwrap().match_info, 1);
}

#[test]
fn peer_that_withholds_announced_data_delays_no_other() {
    let mut net = Net::of(3);
    let (b, from_2) = (net.connect(0, 1), net.connect(2, 1));
    net.engine(1).set_handler(Some(HANDLER_OF_TESTS));
    let slow = net.issend(0, b, 1, b"announced");
    net.isend(0, b, 2, b"behind it");
    net.run_until_idle();
    net.isend(2, from_2, 3, b"another's");
    net.run_until_idle();
    // The body of the first is requested, and no answer has arrived yet.
    let first = turn(&mut net).unwrap();
    assert_eq!(first.deferred.arrival.bits.0, 3);
    net.engine(1).end_turn(first.deferred, true);
    assert!(turn(&mut net).is_none());
    net.engine(1).take_produced();
    net.run_until_idle();
    assert_ne!(net.engine(1).take_produced() & HANDLER, 0);
    for (bits, body) in [(1, &b"announced"[..]), (2, b"behind it")] {
        let HandlerTurn { mut deferred, .. } = turn(&mut net).unwrap();
        assert_eq!(deferred.arrival.bits.0, bits);
        assert_eq!(
            deferred.body_mut().map(|it| it.to_vec()),
            Some(body.to_vec())
        );
        net.engine(1).end_turn(deferred, true);
    }
    net.run_until_idle();
    assert_eq!(net.code(0, slow), StatusCode::Truncated);
}

#[test]
fn received_message_proves_earlier_ones_behind_the_handler() {
    let (mut net, b) = pair();
    let token = net.irecv(1, 2, ALL, 8);
    for (bits, bytes) in [(1, b"data"), (2, b"said")] {
        let send = net.isend(0, b, bits, bytes);
        assert_eq!(net.code(0, send), StatusCode::Success);
    }
    // Both arrive in one call.
    net.pass(Duration::from_millis(1));
    let data = net.irecv(1, 1, ALL, 4);
    net.engine(1).forget(data.handle).unwrap();
    assert!(net.pending(1, token.handle), "the data is not there");
    assert!(turn(&mut net).is_none(), "there are receives for both");
    assert_eq!(net.code(1, token.handle), StatusCode::Success);
    assert_eq!(net.bytes(data), b"data");
}

#[test]
fn a_receive_posted_by_the_handler_takes_the_message() {
    for len in [10, 100_000] {
        let (mut net, b) = pair();
        let send = net.issend(0, b, 1, &vec![8; len]);
        net.run_until_idle();
        let taken = shown(&mut net);
        let recv = net.irecv(1, 1, ALL, len);
        assert!(net.pending(1, recv.handle));
        net.engine(1).end_turn(taken.deferred, false);
        net.run_until_idle();
        assert_eq!(net.done(1, recv.handle).source, taken.source);
        assert_eq!(net.bytes(recv), vec![8; len]);
        assert_eq!(net.code(0, send), StatusCode::Success);
    }
}

#[test]
fn sender_of_a_consumed_message_learns_of_zero_bytes() {
    let (mut net, b) = pair();
    let sends = [
        (net.issend(0, b, 1, b"abc"), 3),
        (net.isend(0, b, 2, &[0; 50_000]), 50_000),
    ];
    let empty = net.issend(0, b, 3, b"");
    for _ in 0..3 {
        net.run_until_idle();
        let taken = shown(&mut net);
        net.engine(1).end_turn(taken.deferred, true);
    }
    net.run_until_idle();
    for (send, len) in sends {
        let status = net.done(0, send);
        assert_eq!(status.code, StatusCode::Truncated as u32);
        assert_eq!((status.msg_length, status.xfer_length), (len, 0));
    }
    assert_eq!(net.code(0, empty), StatusCode::Success);
}

#[test]
fn without_the_handler_what_waited_for_it_is_unexpected() {
    let (mut net, b) = pair();
    for n in 0..3 {
        net.isend(0, b, n, b"x");
    }
    net.run_until_idle();
    // Unregistered from inside: later messages are not shown.
    let taken = turn(&mut net).unwrap();
    net.engine(1).set_handler(None);
    assert_eq!(net.engine(1).running(), Some(ME));
    net.engine(1).end_turn(taken.deferred, true);
    assert_eq!(net.engine(1).running(), None);
    assert!(turn(&mut net).is_none());
    let recvs = [net.irecv(1, 0, 0, 1), net.irecv(1, 0, 0, 1)];
    for (n, recv) in recvs.into_iter().enumerate() {
        assert_eq!(net.done(1, recv.handle).match_info, n as u64 + 1);
    }
}

#[test]
fn the_handler_may_disconnect_the_sender() {
    let (mut net, b) = pair();
    for n in 0..3 {
        net.isend(0, b, n, b"x");
    }
    net.run_until_idle();
    let taken = turn(&mut net).unwrap();
    net.engine(1).disconnect(taken.source).unwrap();
    net.engine(1).end_turn(taken.deferred, false);
    assert!(turn(&mut net).is_none());
    net.run_until_idle();
    assert_eq!(net.engine(1).probe(0, 0).unwrap(), None);
    assert!(net.engine(1).decompose(taken.source).is_err());
    let send = net.isend(0, b, 1, b"x");
    assert_eq!(net.code(0, send), StatusCode::EndpointUnreachable);
    // Everything continues afterwards.
    let b = net.connect(0, 1);
    net.isend(0, b, 9, b"x");
    net.run_until_idle();
    assert_eq!(turn(&mut net).unwrap().deferred.arrival.bits.0, 9);
}

#[test]
fn nothing_happens_while_progression_is_disabled() {
    let (mut net, b) = pair();
    net.isend(0, b, 1, b"x");
    net.run_until_idle();
    net.engine(1).set_progression(false);
    assert!(turn(&mut net).is_none());
    net.engine(1).set_handler(None);
    net.isend(0, b, 2, b"x");
    net.run_until_idle();
    let engine = net.engine(1);
    assert!(engine.is_halted());
    assert_eq!(engine.probe(2, ALL).unwrap(), None);
    engine.set_progression(true);
    net.run_until_idle();
    assert!(net.engine(1).probe(2, ALL).unwrap().is_some());
}

#[test]
fn no_turn_begins_once_the_endpoint_is_about_to_close() {
    let (mut net, b) = pair();
    net.isend(0, b, 1, b"x");
    net.run_until_idle();
    net.engine(1).end_turns();
    assert!(turn(&mut net).is_none());
    net.engine(1).close();
    let node: &mut Node = net.cluster.node(1).unwrap();
    assert!(!node.progress() || !node.progress());
}
