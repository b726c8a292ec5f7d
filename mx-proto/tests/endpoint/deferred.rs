//! Messages whose verdict comes later: none overtakes them, nothing is lost, and the credits are
//! exact.

use super::pair::{Acts, Pair, defer};
use super::{EXACT, associated, bits, completions, connected, pattern, pending, waiting};
use mx_proto::{
    Clock, Decision, Deferred, MatchMask, PREVIEW_MAX, ReceivePosted, RemoteId, RequestId,
    SendMode, Status,
};
use mx_sim::{CallOff, Reports};
use std::time::Duration;

fn send(pair: &mut Pair, to: RemoteId, tag: u64, data: Vec<u8>) -> Option<RequestId> {
    let data = pair.filled(data);
    let posted = pair.a.send(to, bits(tag), data, 0, SendMode::Standard);
    match posted.unwrap() {
        mx_proto::SendPosted::Pending(id) => Some(id),
        mx_proto::SendPosted::Complete => None,
    }
}

fn arrive(pair: &mut Pair) {
    pair.run_with(defer);
}

fn next(pair: &mut Pair) -> Deferred {
    pair.b.next_deferred().expect("a message is undecided")
}

#[test]
fn deferred_bytes_may_be_changed_before_the_decision() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1, 2]);
    arrive(&mut pair);
    let mut message = next(&mut pair);
    message.body_mut().unwrap()[0] = 9;
    // A change of the message's arrival has no effect.
    message.arrival.bits = bits(2);
    let buffer = pair.shared(2);
    pair.b.posts(bits(1), buffer.clone(), 1);
    pair.b.decide(message, Decision::Continue);
    assert_eq!(buffer.bytes(), [9, 2]);
}

#[test]
fn a_source_that_goes_takes_its_undecided_messages_along() {
    for close in [false, true] {
        let (mut pair, b) = associated();
        send(&mut pair, b, 1, vec![1; 10]);
        send(&mut pair, b, 2, vec![2; 20]);
        send(&mut pair, b, 3, vec![3; 50_000]);
        arrive(&mut pair);
        let message = next(&mut pair);
        assert_eq!(pair.b.undecided(), 3);
        if close {
            pair.b.close();
        } else {
            pair.b.disconnect(message.arrival.source);
        }
        // Its bytes remain as long as a caller looks at them.
        assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (1, 10));
        assert_eq!(message.body(), Some(&[1; 10][..]));
        pair.b.posts(bits(1), pair.shared(10), 1);
        let decision = if close {
            Decision::Finished
        } else {
            Decision::Continue
        };
        pair.b.decide(message, decision);
        assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
        assert!(pair.b.next_deferred().is_none());
        assert_eq!(completions(&mut pair.b), []);
        assert!(pair.b.probe(bits(0), MatchMask(0)).is_none());
        let credits = pair.b.flow_stats();
        assert_eq!(credits.free, credits.total);
    }
}

#[test]
fn an_endpoint_that_decides_does_not_wait_for_time() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1]);
    arrive(&mut pair);
    let receive = pair.b.recv(bits(2), EXACT, pair.shared(0), 0).unwrap();
    let receive = waiting(receive);
    assert!(pair.b.set_timeout_of(receive, Some(Duration::from_secs(1))));
    assert!(pair.b.arm(), "who decides is told of it by its owner");
    pair.b.disarm();
    let source = {
        let message = next(&mut pair);
        let source = message.arrival.source;
        pending(pair.b.sends(source, bits(1), vec![0; 50_000], 0));
        assert_eq!(pair.b.deadline(), None);
        pair.b.decide(message, Decision::Finished);
        source
    };
    assert!(pair.b.remote_identity(source).is_some());
    assert!(
        pair.b
            .deadline()
            .is_some_and(|at| at > pair.b.clock().now())
    );
}

#[test]
fn nothing_is_taken_in_while_a_message_is_decided() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1]);
    arrive(&mut pair);
    let message = next(&mut pair);
    send(&mut pair, b, 2, vec![2]);
    assert!(!pair.b_works(defer));
    assert_eq!(pair.b.undecided(), 1);
    pair.b.decide(message, Decision::Finished);
    assert!(pair.b_works(defer));
    assert_eq!(pair.b.undecided(), 1);
    assert_eq!(next(&mut pair).arrival.bits, bits(2));
}

/// Returns a pair in which a small offer of a's is the oldest undecided message, and its bytes are
/// on their way.
fn previewing(data: Vec<u8>) -> (Pair, RemoteId, RequestId) {
    let (mut pair, b) = associated();
    let data = pair.filled(data);
    let posted = pair.a.send(b, bits(1), data, 0, SendMode::Synchronous);
    let offer = pending(posted.unwrap());
    arrive(&mut pair);
    assert!(pair.b.next_deferred().is_none());
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (1, 0));
    (pair, b, offer)
}

/// Asserts that nothing remains of the message or of its cost.
fn assert_nothing_left(pair: &mut Pair) {
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
    assert_eq!(pair.b.requests(), 0);
    assert!(pair.b.next_deferred().is_none());
    assert!(pair.b.probe(bits(0), MatchMask(0)).is_none());
}

#[test]
fn small_offer_is_previewed_and_bytes_are_not_kept() {
    for len in [1, PREVIEW_MAX as usize] {
        let (mut pair, _, _) = previewing(pattern(len, 3));
        arrive(&mut pair);
        let message = next(&mut pair);
        assert_eq!(message.body(), Some(&pattern(len, 3)[..]));
        assert_eq!(pair.a.next_completion(), None);
        pair.b.decide(message, Decision::Continue);
        arrive(&mut pair);
        assert_eq!(pair.a.next_completion(), None);
        assert_eq!(pair.b.unexpected_bytes(), 0);
        let buffer = pair.shared(len);
        pair.b.posts(bits(1), buffer.clone(), 1);
        arrive(&mut pair);
        assert_eq!(completions(&mut pair.b).len(), 1);
        assert_eq!(buffer.bytes(), pattern(len, 3));
        let told = pair.a.next_completion().unwrap();
        assert_eq!(
            (told.status, told.transferred),
            (Status::Success, len as u32)
        );
        assert_nothing_left(&mut pair);
    }
}

#[test]
fn previewed_bytes_go_to_a_receive_without_a_new_transfer() {
    for (room, status) in [(4, Status::Success), (2, Status::Truncated)] {
        let (mut pair, _, _) = previewing(vec![7; 4]);
        arrive(&mut pair);
        let message = next(&mut pair);
        let buffer = pair.shared(room);
        pair.b.posts(bits(1), buffer.clone(), 1);
        pair.b.decide(message, Decision::Continue);
        let done = completions(&mut pair.b);
        assert_eq!((done.len(), done[0].status), (1, status));
        assert_eq!(buffer.bytes(), vec![7; room]);
        arrive(&mut pair);
        let told = pair.a.next_completion().unwrap();
        assert_eq!((told.status, told.transferred), (status, room as u32));
        assert_nothing_left(&mut pair);
    }
}

#[test]
fn offer_withdrawn_during_its_preview_is_not_shown() {
    let (mut pair, b, offer) = previewing(vec![1; 100]);
    send(&mut pair, b, 2, vec![2]);
    pair.a.cancel(offer);
    arrive(&mut pair);
    let message = next(&mut pair);
    assert_eq!(message.arrival.bits, bits(2));
    pair.b.decide(message, Decision::Finished);
    assert_nothing_left(&mut pair);
}

#[test]
fn undecided_message_becomes_unexpected_during_preview() {
    let (mut pair, b, _) = previewing(vec![5; 100]);
    send(&mut pair, b, 2, vec![6]);
    pair.b_works(defer);
    pair.b.keep_undecided();
    assert_eq!(pair.b.undecided(), 0);
    let buffers = [pair.shared(100), pair.shared(1)];
    for (n, buffer) in buffers.iter().enumerate() {
        let tag = bits(n as u64 + 1);
        let received = pair.b.recv(tag, EXACT, buffer.clone(), n as u64).unwrap();
        assert_eq!(matches!(received, ReceivePosted::Pending(_)), n == 0);
    }
    arrive(&mut pair);
    assert_eq!(buffers[0].bytes(), vec![5; 100]);
    assert_eq!(buffers[1].bytes(), [6]);
    assert_eq!(pair.a.ended(), Status::Success);
    assert_nothing_left(&mut pair);
}

#[test]
fn preview_of_a_small_offer_is_pulled_not_read() {
    let mut pair = Pair::reading_remotely();
    let (b, _) = connected(&mut pair);
    let data = pair.filled(vec![1; 100]);
    let posted = pair.a.send(b, bits(1), data, 0, SendMode::Synchronous);
    pending(posted.unwrap());
    arrive(&mut pair);
    assert!(pair.b.next_deferred().is_none());
    arrive(&mut pair);
    let message = next(&mut pair);
    assert_eq!(message.body(), Some(&[1; 100][..]));
    pair.b.decide(message, Decision::Finished);
    arrive(&mut pair);
    assert_nothing_left(&mut pair);
}
