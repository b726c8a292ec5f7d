//! Messages that are decided later: none overtakes them, nothing is lost, credit is exact.

use super::pair::{self, Acts, Pair, defer};
use super::{EXACT, associated, bits, completions, connected, pattern, pending, waiting};
use mx_proto::{
    Clock, Decision, Deferred, MatchMask, PREVIEW_MAX, Received, RemoteId, RequestId, SendMode,
    Status,
};
use mx_sim::CallOff;
use std::time::Duration;

fn send(pair: &mut Pair, to: RemoteId, tag: u64, data: Vec<u8>) -> Option<RequestId> {
    let data = pair.filled(data);
    let posted = pair.a.send(to, bits(tag), data, 0, SendMode::Standard);
    match posted.unwrap() {
        mx_proto::Posted::Pending(id) => Some(id),
        mx_proto::Posted::Complete => None,
    }
}

fn arrive(pair: &mut Pair) {
    pair.run_with(defer);
}

fn next(pair: &mut Pair) -> Deferred {
    pair.b.next_deferred().expect("a message is undecided")
}

#[test]
fn nothing_overtakes_a_deferred_message_and_nothing_is_taken_in_while_one_is_shown() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1]);
    arrive(&mut pair);
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (1, 1));
    send(&mut pair, b, 2, vec![2]);
    pair.b.posts(bits(2), pair.shared(1), 2);
    arrive(&mut pair);
    // It has come, and waits behind the first although there is a receive for it.
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (2, 2));
    assert_eq!(pair.b.next_completion(), None);
    let first = next(&mut pair);
    send(&mut pair, b, 3, vec![3]);
    assert_eq!(
        (first.arrival.bits, first.body()),
        (bits(1), Some(&[1][..]))
    );
    // It is still undecided, and it is the only one to be had.
    assert!(pair.b.next_deferred().is_none());
    assert!(!pair.b_works(defer));
    assert_eq!(pair.b.undecided(), 2);
    pair.b.decide(first, Decision::Finished);
    arrive(&mut pair);
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (2, 2));
    let third = next(&mut pair);
    assert_eq!(third.arrival.bits, bits(3));
    assert_eq!(pair.b.next_completion().unwrap().bits, bits(2));
    pair.b.decide(third, Decision::Finished);
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
}

#[test]
fn posting_cancelling_and_sending_go_on_while_a_message_is_being_decided() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1]);
    arrive(&mut pair);
    let message = next(&mut pair);
    let source = message.arrival.source;
    let answer = pending(pair.b.sends(source, bits(3), vec![5; 100_000], 0));
    let receive = pair.b.posts(bits(9), pair.shared(1), 0);
    assert!(pair.b.cancel_unmatched(receive));
    // The offer goes out although b takes nothing in.
    pair.a.posts(bits(3), pair.shared(100_000), 3);
    arrive(&mut pair);
    assert_eq!((pair.a.posted_receives(), pair.b.requests()), (0, 1));
    pair.b.decide(message, Decision::Continue);
    arrive(&mut pair);
    assert_eq!(pair.a.next_completion().unwrap().context, 3);
    assert_eq!(pair.b.next_completion().unwrap().request, answer);
}

#[test]
fn continue_leaves_a_message_as_unexpected_unless_a_receive_was_posted_meanwhile() {
    for len in [0, 5, 100_000] {
        for posted_meanwhile in [false, true] {
            let (mut pair, b) = associated();
            send(&mut pair, b, 1, pattern(len, 7));
            arrive(&mut pair);
            let message = next(&mut pair);
            assert_eq!(message.arrival.length as usize, len);
            assert_eq!(message.body().is_some(), len < 100_000);
            let buffer = pair.shared(len);
            if posted_meanwhile {
                pair.b.posts(bits(1), buffer.clone(), 1);
            }
            pair.b.decide(message, Decision::Continue);
            if !posted_meanwhile {
                assert_eq!(pair.b.probe(bits(1), EXACT).unwrap().length as usize, len);
                match pair.b.recv(bits(1), EXACT, buffer.clone(), 1).unwrap() {
                    Received::Complete(done) => assert_eq!(done.status, Status::Success),
                    Received::Pending(_) => assert_eq!(len, 100_000),
                }
            }
            arrive(&mut pair);
            let late = posted_meanwhile || len == 100_000;
            assert_eq!(pair.b.next_completion().is_some(), late);
            assert_eq!(buffer.bytes(), pattern(len, 7));
            assert_eq!(pair.b.unexpected_bytes() + pair.a.requests(), 0);
        }
    }
}

#[test]
fn the_sender_of_a_message_finished_later_learns_it() {
    for (len, status) in [(0, Status::Success), (3, Status::Truncated)] {
        let (mut pair, b) = associated();
        let data = pair.filled(vec![1; len]);
        pending(
            pair.a
                .send(b, bits(1), data, 0, SendMode::Synchronous)
                .unwrap(),
        );
        arrive(&mut pair);
        if len > 0 {
            // Its bytes are fetched first.
            assert!(pair.b.next_deferred().is_none());
            arrive(&mut pair);
        }
        let message = next(&mut pair);
        assert_eq!(message.body().is_some(), len > 0);
        assert_eq!(pair.a.next_completion(), None);
        pair.b.decide(message, Decision::Finished);
        arrive(&mut pair);
        assert_eq!(pair.a.ended(), status);
        assert!(pair.b.probe(bits(1), EXACT).is_none());
    }
}

#[test]
fn messages_of_one_poll_are_deferred_without_asking_again_and_decided_in_order() {
    let (mut pair, b) = associated();
    pair.b.posts(bits(50), pair.shared(1), 50);
    for n in 0..4u8 {
        let large = usize::from(n % 2) * 50_000;
        send(&mut pair, b, n.into(), vec![n; large + 1]);
    }
    send(&mut pair, b, 50, vec![50]);
    pair.run_with(defer);
    assert_eq!((pair.b.owner().asked.len(), pair.b.undecided()), (1, 5));
    for n in 0..4 {
        let message = next(&mut pair);
        assert_eq!(message.arrival.bits, bits(n));
        pair.b.decide(message, Decision::Continue);
    }
    // One for which a receive was posted has its turn like others, but is not shown.
    assert_eq!(pair.b.next_completion(), None);
    assert!(pair.b.next_deferred().is_none());
    assert_eq!(pair.b.next_completion().unwrap().context, 50);
    for n in 0..4 {
        let oldest = pair.b.probe(bits(0), MatchMask(0)).unwrap();
        assert_eq!(oldest.bits, bits(n));
        let _ = pair.b.recv(oldest.bits, EXACT, pair.shared(50_001), n);
        pair.run();
    }
}

#[test]
fn a_receive_does_not_get_its_message_before_one_that_waits_to_be_decided() {
    for len in [5, 100_000] {
        let (mut pair, b) = associated();
        let second = pair.shared(len);
        pair.b.posts(bits(2), second.clone(), 2);
        send(&mut pair, b, 1, vec![1; 5]);
        send(&mut pair, b, 2, pattern(len, 2));
        arrive(&mut pair);
        // The program takes the second for a proof of the first, which it has asked for meanwhile.
        let first = pair.shared(5);
        pair.b.posts(bits(1), first.clone(), 1);
        assert_eq!((pair.b.undecided(), pair.b.next_completion()), (2, None));
        assert!(pair.b.next_deferred().is_none(), "both are received");
        arrive(&mut pair);
        let ends: Vec<_> = std::iter::from_fn(|| pair.b.next_completion()).collect();
        let contexts: Vec<_> = ends.iter().map(|end| end.context).collect();
        assert_eq!(contexts, [1, 2]);
        assert_eq!(
            (first.bytes(), second.bytes()),
            (vec![1; 5], pattern(len, 2))
        );
        assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
    }
}

#[test]
fn a_receive_posted_meanwhile_gets_the_oldest_message_without_its_being_shown() {
    let (mut pair, b) = associated();
    for n in 0..3 {
        send(&mut pair, b, 1, vec![n]);
    }
    arrive(&mut pair);
    let first = next(&mut pair);
    let buffers = [pair.shared(1), pair.shared(1)];
    for (n, buffer) in buffers.iter().enumerate() {
        let received = pair.b.recv(bits(1), EXACT, buffer.clone(), n as u64);
        waiting(received.unwrap());
    }
    pair.b.decide(first, Decision::Continue);
    let third = next(&mut pair);
    let done = completions(&mut pair.b);
    assert_eq!(
        done.iter().map(|done| done.context).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!([buffers[0].bytes(), buffers[1].bytes()], [[0], [1]]);
    assert_eq!(third.body(), Some(&[2][..]));
    pair.b.decide(third, Decision::Finished);
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
}

#[test]
fn the_bytes_of_a_deferred_message_may_be_changed_before_the_decision() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1, 2]);
    arrive(&mut pair);
    let mut message = next(&mut pair);
    message.body_mut().unwrap()[0] = 9;
    // A change of its arrival does not count.
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
        // Its bytes are there as long as a caller looks at them.
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
fn an_offer_withdrawn_in_the_poll_that_brought_it_is_not_shown() {
    let (mut pair, b) = associated();
    send(&mut pair, b, 1, vec![1]);
    let offer = send(&mut pair, b, 1, vec![2; 50_000]).unwrap();
    pair.a.cancel(offer);
    arrive(&mut pair);
    let message = next(&mut pair);
    assert_eq!(message.arrival.length, 1);
    pair.b.decide(message, Decision::Finished);
    assert!(pair.b.next_deferred().is_none());
}

#[test]
fn a_receive_whose_message_was_withdrawn_gets_what_lies_there_oldest_first() {
    for unexpected_first in [false, true] {
        let (mut pair, b) = associated();
        let buffer = pair.shared(50_000);
        pair.b.posts(bits(1), buffer.clone(), 1);
        let offer = send(&mut pair, b, 1, vec![1; 50_000]).unwrap();
        // Only b works, so that a does not hear that it is asked for the bytes.
        pair.b.progress();
        assert_eq!(pair.b.posted_receives(), 0);
        if unexpected_first {
            send(&mut pair, b, 1, vec![2]);
            pair.b.progress();
        }
        send(&mut pair, b, 1, vec![3]);
        pair.a.cancel(offer);
        pair.b_works(defer);
        assert_eq!(pair.b.undecided(), 1);
        let shown = pair.b.next_deferred();
        let done = pair.b.next_completion().expect("it has another message");
        assert_eq!((done.context, done.length), (1, 1));
        assert_eq!(buffer.bytes()[0], if unexpected_first { 2 } else { 3 });
        assert_eq!(shown.is_some(), unexpected_first);
    }
}

#[test]
fn credit_returns_whatever_is_decided() {
    let (mut pair, b) = associated();
    for n in 0..600u32 {
        let len = [9_000, 0, 40_000][n as usize % 3];
        send(&mut pair, b, n.into(), pattern(len, n as u8));
        arrive(&mut pair);
        assert!(pair.b.unexpected_bytes() <= pair::UNEXPECTED_MAX);
        let message = next(&mut pair);
        assert_eq!(message.arrival.bits, bits(n.into()));
        match n % 4 {
            0 => pair.b.decide(message, Decision::Finished),
            1 => {
                let buffer = pair.shared(len);
                pair.b.posts(bits(n.into()), buffer, 0);
                pair.b.decide(message, Decision::Continue);
            }
            _ => {
                pair.b.decide(message, Decision::Continue);
                let received = pair.b.recv(bits(n.into()), EXACT, pair.shared(len), 0);
                received.unwrap();
            }
        }
        arrive(&mut pair);
        completions(&mut pair.b);
        assert_eq!(pair.b.unexpected_bytes() + pair.b.requests(), 0, "{n}");
    }
    assert_eq!(pair.a.requests(), 0);
    assert_eq!(pair.a.stats().offered_for_credit, 0);
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

/// A small offer of a's is the oldest undecided message, and its bytes are on their way.
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

/// Nothing is left of the message, or of what it cost.
fn assert_nothing_left(pair: &mut Pair) {
    assert_eq!((pair.b.undecided(), pair.b.unexpected_bytes()), (0, 0));
    assert_eq!(pair.b.requests(), 0);
    assert!(pair.b.next_deferred().is_none());
    assert!(pair.b.probe(bits(0), MatchMask(0)).is_none());
}

#[test]
fn a_small_offer_is_shown_with_its_bytes_which_are_not_kept_for_a_later_receive() {
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
fn bytes_that_have_been_shown_go_into_a_receive_posted_meanwhile_without_another_transfer() {
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
fn an_offer_withdrawn_while_its_bytes_are_on_their_way_is_not_shown() {
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
fn a_source_that_goes_while_bytes_are_on_their_way_takes_the_message_along() {
    let (mut pair, _, _) = previewing(vec![1; 100]);
    let a = pair.a.identity();
    let source = pair.b.remote_of(a.nic, a.endpoint).unwrap();
    pair.b.disconnect(source);
    arrive(&mut pair);
    assert_nothing_left(&mut pair);
    let credits = pair.b.flow_stats();
    assert_eq!(credits.free, credits.total);
}

#[test]
fn what_is_kept_undecided_is_unexpected_also_while_its_bytes_are_on_their_way() {
    let (mut pair, b, _) = previewing(vec![5; 100]);
    send(&mut pair, b, 2, vec![6]);
    pair.b_works(defer);
    pair.b.keep_undecided();
    assert_eq!(pair.b.undecided(), 0);
    let buffers = [pair.shared(100), pair.shared(1)];
    for (n, buffer) in buffers.iter().enumerate() {
        let tag = bits(n as u64 + 1);
        let received = pair.b.recv(tag, EXACT, buffer.clone(), n as u64).unwrap();
        assert_eq!(matches!(received, Received::Pending(_)), n == 0);
    }
    arrive(&mut pair);
    assert_eq!(buffers[0].bytes(), vec![5; 100]);
    assert_eq!(buffers[1].bytes(), [6]);
    assert_eq!(pair.a.ended(), Status::Success);
    assert_nothing_left(&mut pair);
}

#[test]
fn without_memory_an_offer_is_shown_without_its_bytes() {
    let (mut pair, b) = associated();
    pair.b.owner_mut().memory = false;
    let data = pair.filled(vec![1; 100]);
    let posted = pair.a.send(b, bits(1), data, 0, SendMode::Synchronous);
    pending(posted.unwrap());
    arrive(&mut pair);
    let message = next(&mut pair);
    assert_eq!(message.body(), None);
    pair.b.decide(message, Decision::Finished);
    arrive(&mut pair);
    assert_nothing_left(&mut pair);
}

#[test]
fn the_bytes_of_a_small_offer_are_asked_for_and_not_read_from_its_senders_memory() {
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
