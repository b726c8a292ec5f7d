//! Time-outs of single requests, and cancels that apply only to unmatched ones.

use super::pair::{self, Acts, Pair, Side, TIMEOUT};
use super::{EXACT, associated, bits, completions, connected, pattern, pending, waiting};
use mx_proto::port::RemoteUse;
use mx_proto::{RemoteId, RequestId, SendMode, Status};
use mx_sim::Completion;
use mx_sim::{CallOff, Cancelled};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Sends a message that is not received.
fn unanswered(pair: &mut Pair, to: RemoteId, context: u64) -> RequestId {
    let data = pair.filled(vec![1]);
    let posted = pair
        .a
        .send(to, bits(1), data, context, SendMode::Synchronous);
    pending(posted.unwrap())
}

fn timed_out(done: &[Completion]) -> Vec<u64> {
    assert!(done.iter().all(|done| done.status == Status::Timeout));
    done.iter().map(|done| done.context).collect()
}

#[test]
fn one_request_gets_a_time_out_of_its_own_counted_from_now() {
    let (mut pair, b) = associated();
    let [shorter, longer, never] = [1, 2, 3].map(|context| unanswered(&mut pair, b, context));
    pair.advance(SECOND);
    assert!(pair.a.set_timeout_of(shorter, Some(SECOND)));
    assert!(pair.a.set_timeout_of(longer, Some(2 * TIMEOUT)));
    assert!(pair.a.set_timeout_of(never, None));
    pair.advance(SECOND / 2);
    assert_eq!(completions(&mut pair.a), []);
    pair.advance(SECOND);
    assert_eq!(timed_out(&completions(&mut pair.a)), [1]);
    assert!(!pair.a.set_timeout_of(shorter, Some(SECOND)));
    pair.advance(TIMEOUT);
    assert_eq!(completions(&mut pair.a), []);
    pair.advance(TIMEOUT);
    assert_eq!(timed_out(&completions(&mut pair.a)), [2]);
    pair.advance(100 * TIMEOUT);
    assert_eq!(pair.a.requests(), 1);
    assert!(pair.a.set_timeout_of(never, Some(SECOND)));
    pair.advance(2 * SECOND);
    assert_eq!(timed_out(&completions(&mut pair.a)), [3]);
}

#[test]
fn remote_read_with_progress_does_not_time_out() {
    let mut pair = Pair::reading_remotely();
    let (b, _) = connected(&mut pair);
    let buffer = pair.shared(100_000);
    pair.b.posts(bits(1), buffer, 2);
    let word = pending(pair.a.sends(b, bits(1), pattern(100_000, 1), 1)).to_word();
    pair.run();
    let token = pair.reading().expect("b reads it");
    for _ in 0..4 {
        pair.advance(TIMEOUT * 3 / 4);
        pair.moves(Side::A, RemoteUse::Registered(word));
        pair.moves(Side::B, RemoteUse::Reading(token));
    }
    assert_eq!(completions(&mut pair.a), []);
    assert_eq!(completions(&mut pair.b), []);
    // A send reads nothing, whatever is reported about it.
    pair.advance(TIMEOUT * 3 / 4);
    pair.moves(Side::A, RemoteUse::Reading(1 << 63 | word));
    pair.advance(TIMEOUT * 3 / 4);
    assert_eq!(timed_out(&completions(&mut pair.a)), [1]);
    assert_eq!(timed_out(&completions(&mut pair.b)), [2]);
}

/// Begins a send that b reads, where a rejected read ends the link. Returns a's name for b, the id
/// of the send, and the token of b's read.
fn being_read(pair: &mut Pair) -> (RemoteId, RequestId, u64) {
    let (b, _) = connected(pair);
    let buffer = pair.shared(100_000);
    pair.b.posts(bits(1), buffer, 2);
    let send = pending(pair.a.sends(b, bits(1), pattern(100_000, 1), 1));
    pair.run();
    (b, send, pair.reading().expect("b reads it"))
}

#[test]
fn a_send_that_is_read_ends_when_the_receiver_has_stopped() {
    let mut pair = Pair::reading_over_connections();
    let (b, send, token) = being_read(&mut pair);
    assert_eq!(pair.a.cancel(send), Cancelled::Later);
    assert_eq!(pair.a.cancel(send), Cancelled::Later);
    pair.run();
    assert_eq!((pair.stopped(), pair.closed()), (vec![token], vec![]));
    assert_eq!(completions(&mut pair.a), []);
    pair.end_read(token, false);
    assert_eq!(pair.closed(), [send.to_word()]);
    let ends = completions(&mut pair.a);
    assert_eq!((ends.len(), ends[0].status), (1, Status::Cancelled));
    // The receive waits again.
    pair.talk(b);
    assert_eq!(completions(&mut pair.b), []);
    let data = pair.filled(pattern(100, 3));
    let small = pair.a.send(b, bits(1), data, 4, SendMode::Standard);
    assert!(small.is_ok());
    pair.run();
    assert_eq!(completions(&mut pair.b)[0].context, 2);
}

#[test]
fn unread_send_ends_when_the_receiver_confirms() {
    let mut pair = Pair::reading_over_connections();
    let (b, _) = connected(&mut pair);
    let send = pending(pair.a.sends(b, bits(1), pattern(100_000, 1), 1));
    pair.run();
    assert_eq!(pair.a.cancel(send), Cancelled::Later);
    assert_eq!((completions(&mut pair.a), pair.closed()), (vec![], vec![]));
    pair.run();
    let ends = completions(&mut pair.a);
    assert_eq!((ends.len(), ends[0].status), (1, Status::Cancelled));
    assert_eq!(pair.closed(), [send.to_word()]);
}

#[test]
fn a_receiver_that_goes_on_reading_is_not_waited_for_for_long() {
    let mut pair = Pair::reading_over_connections();
    let (_, send, _) = being_read(&mut pair);
    assert_eq!(pair.a.cancel(send), Cancelled::Later);
    pair.advance(Duration::from_millis(1900));
    assert_eq!((completions(&mut pair.a), pair.closed()), (vec![], vec![]));
    // Reported progress does not extend the time.
    pair.moves(Side::A, RemoteUse::Registered(send.to_word()));
    pair.advance(Duration::from_millis(200));
    let ends = completions(&mut pair.a);
    assert_eq!((ends.len(), ends[0].status), (1, Status::Cancelled));
    assert_eq!(pair.closed(), [send.to_word()]);
}

#[test]
fn a_send_whose_time_is_over_waits_for_the_receiver_as_well() {
    let mut pair = Pair::reading_over_connections();
    let (_, send, _) = being_read(&mut pair);
    assert!(pair.a.set_timeout_of(send, Some(SECOND)));
    pair.advance(SECOND + Duration::from_millis(100));
    assert_eq!((completions(&mut pair.a), pair.closed()), (vec![], vec![]));
    pair.advance(2 * SECOND + Duration::from_millis(100));
    assert_eq!(timed_out(&completions(&mut pair.a)), [1]);
}

#[test]
fn a_send_that_was_called_off_too_late_ends_as_it_did() {
    let mut pair = Pair::reading_over_connections();
    let (_, send, token) = being_read(&mut pair);
    pair.freeze_b = true;
    assert_eq!(pair.a.cancel(send), Cancelled::Later);
    pair.run();
    pair.freeze_b = false;
    pair.end_read(token, true);
    let ends = completions(&mut pair.a);
    assert_eq!((ends.len(), ends[0].status), (1, Status::Success));
    assert_eq!(completions(&mut pair.b)[0].status, Status::Success);
}

#[test]
fn receives_for_a_remote_are_listed_alone() {
    let mut pair = Pair::new();
    let (_, a) = connected(&mut pair);
    let own = [1, 2].map(|tag| {
        let receive = pair.b.recv_from(a, bits(tag), EXACT, (pair.shared(8), tag));
        waiting(receive.unwrap())
    });
    pair.b.posts(bits(3), pair.shared(8), 3);
    pending(pair.b.sends(a, bits(4), pattern(50_000, 4), 4));
    assert!(pair.b.receives_from(a).eq(own));
    pair.b.disconnect(a);
    assert_eq!(pair.b.receives_from(a).count(), 0);
}

#[test]
fn unmatched_receive_can_be_cancelled_matched_one_not() {
    let (mut pair, b) = associated();
    let first = pair.shared(100_000);
    let receive = pair.b.posts(bits(1), first.clone(), 1);
    assert!(pair.b.cancel_unmatched(receive));
    first.give_back();
    assert!(!pair.b.cancel_unmatched(receive));
    let second = pair.shared(100_000);
    let receive = pair.b.posts(bits(1), second.clone(), 2);
    pair.hold_data = true;
    let send = pending(pair.a.sends(b, bits(1), pattern(100_000, 1), 3));
    pair.run();
    assert!(!pair.b.cancel_unmatched(receive));
    assert!(!pair.a.cancel_unmatched(send));
    pair.hold_data = false;
    // Held data is polled again when there is anything to do.
    unanswered(&mut pair, b, 4);
    pair.run();
    let done = completions(&mut pair.b);
    assert_eq!((done.len(), done[0].context), (1, 2));
    assert_eq!(second.bytes(), pattern(100_000, 1));
    assert_eq!(completions(&mut pair.a)[0].context, 3);
    assert!(!pair.b.cancel_unmatched(receive) && !pair.a.cancel_unmatched(send));
}

#[test]
fn a_connect_without_an_answer_can_be_taken_back() {
    let mut pair = Pair::new();
    pair.freeze_b = true;
    let target = pair.target(Side::B);
    let connect = pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    assert!(pair.a.cancel_unmatched(connect));
    assert_eq!((pair.a.requests(), pair.a.remotes()), (0, 0));
    pair.freeze_b = false;
    pair.run();
    assert_eq!(completions(&mut pair.a), []);
    let connect = pair.a.connect(target, pair::KEY, bits(0), 2).unwrap();
    pair.run();
    assert_eq!(completions(&mut pair.a)[0].context, 2);
    assert!(!pair.a.cancel_unmatched(connect));
    assert_eq!(pair.a.cancel(connect), Cancelled::Unknown);
}
