//! Messages of the inbox: they come in turn and whole, and cost only their sender's credits and the
//! credits drawn for them.

use super::pair::{self, Pair, put_in};
use super::{bits, connected, pattern, pending};
use mx_proto::{InboxStats, RemoteId, RequestId, SendMode, Status};
use mx_sim::Reports;
use std::time::Duration;

/// Length of the largest message that is fetched here; 196 of the 585 credits are kept for it.
const LARGE: usize = 100_000;

/// Credits of a message that is so large that only two can be fetched at a time beside the lent
/// credits.
const LARGE_COST: u32 = 196;

fn begin() -> (Pair, RemoteId, RemoteId) {
    let mut pair = Pair::with_inbox(LARGE as u32);
    let (b, a) = connected(&mut pair);
    pair.b.owner_mut().asked.clear();
    (pair, b, a)
}

/// Sends a message of a turn, which its tag identifies. Returns its id unless it is complete at
/// once.
fn send_as(
    pair: &mut Pair,
    to: RemoteId,
    turn: u64,
    tag: u64,
    len: usize,
    mode: SendMode,
) -> Option<RequestId> {
    let data = pair.filled(pattern(len, tag as u8));
    let sent = pair.a.send(to, bits(turn << 32 | tag), data, tag, mode);
    match sent.unwrap() {
        mx_proto::SendPosted::Complete => None,
        posted => Some(pending(posted)),
    }
}

fn send(pair: &mut Pair, to: RemoteId, turn: u64, tag: u64, len: usize) -> Option<RequestId> {
    send_as(pair, to, turn, tag, len, SendMode::Standard)
}

/// Takes out the next message, whose bytes are checked. Returns its turn and tag.
fn next(pair: &mut Pair) -> Option<(u32, u64)> {
    let turn = pair.b.next_turn(|_| true);
    let message = pair.b.next_message()?;
    assert_eq!(turn, Some(message.turn));
    Some(check(&message))
}

fn check(message: &mx_proto::Message<mx_sim::Buffer>) -> (u32, u64) {
    let tag = message.bits.0 & 0xffff_ffff;
    let bytes = message.memory.bytes();
    assert_eq!(bytes, pattern(bytes.len(), tag as u8), "{tag}");
    assert_eq!(u64::from(message.turn), message.bits.0 >> 32);
    (message.turn, tag)
}

/// Takes out all messages that are ready. Returns their tags.
fn tags(pair: &mut Pair) -> Vec<u64> {
    std::iter::from_fn(|| Some(next(pair)?.1)).collect()
}

/// Returns the tags of a's sends that have ended, and how each ended.
fn ended(pair: &mut Pair) -> Vec<(u64, Status)> {
    let all = std::iter::from_fn(|| pair.a.next_completion());
    let mut ended: Vec<_> = all.map(|done| (done.context, done.status)).collect();
    ended.sort_by_key(|(tag, _)| *tag);
    ended
}

/// Asserts that no message is here, no credits are held, and no operation remains at b.
fn assert_empty(pair: &mut Pair) {
    pair.run_with(put_in);
    assert_eq!(pair.b.inbox_stats(), InboxStats::default());
    assert_eq!((pair.b.messages(), pair.b.next_turn(|_| true)), (0, None));
    let flow = pair.b.flow_stats();
    assert_eq!((flow.drawn, flow.tombstones), (0, 0));
    assert_eq!(flow.free + flow.lent, flow.total);
    assert_eq!((pair.b.requests(), pair.b.ops().in_use()), (0, 0));
    // The peers can again send as much as at first.
    assert_eq!(pair.b.unexpected_bytes(), 0);
    assert!(pair.b.next_completion().is_none());
}

#[test]
fn a_sender_that_goes_leaves_what_is_whole() {
    for by_us in [false, true] {
        let (mut pair, b, a) = begin();
        pair.hold_data = true;
        for (tag, len) in [(1, 10), (2, LARGE), (3, 5_000), (4, LARGE), (5, 0)] {
            send(&mut pair, b, 5, tag, len);
        }
        // A message that was fetched, and is here.
        pair.run_with(put_in);
        if by_us {
            pair.b.disconnect(a);
        } else {
            pair.cut();
        }
        pair.hold_data = false;
        pair.run_with(put_in);
        assert_eq!(pair.b.remotes(), 0, "the name of a sender is not kept");
        let flow = pair.b.flow_stats();
        // 10 B, 5000 B and 0 B, each with the bytes kept for its sender.
        assert_eq!((flow.tombstones, flow.lent, flow.drawn), (1 + 11 + 1, 0, 0));
        assert_eq!(pair.b.owner().ready, [5; 3]);
        for tag in [1, 3, 5] {
            let message = pair.b.next_message().unwrap();
            assert_eq!((check(&message), message.source), ((5, tag), a));
        }
        assert_empty(&mut pair);
        assert_eq!(pair.b.flow_stats().free, pair.b.flow_stats().total);
    }
}

#[test]
fn fetched_message_outlives_its_sender_with_its_credits() {
    let (mut pair, b, _) = begin();
    send(&mut pair, b, 5, 1, LARGE);
    pair.run_with(put_in);
    pair.cut();
    pair.run_with(put_in);
    let flow = pair.b.flow_stats();
    assert_eq!((flow.tombstones, flow.drawn), (1, LARGE_COST - 1));
    assert_eq!(tags(&mut pair), [1]);
    assert_empty(&mut pair);
}

#[test]
fn withdrawn_announced_message_frees_the_next_fetch() {
    let (mut pair, b, _) = begin();
    let sends = [1, 2, 3].map(|turn| send(&mut pair, b, turn, turn, LARGE));
    send_as(&mut pair, b, 4, 4, 0, SendMode::Synchronous);
    pair.run_with(put_in);
    let stats = pair.b.inbox_stats();
    assert_eq!((stats.messages, stats.waiting), (2, 2));
    assert!(pair.a.end(sends[2].unwrap(), Status::Cancelled));
    pair.run_with(put_in);
    let stats = pair.b.inbox_stats();
    assert_eq!((stats.messages, stats.waiting), (3, 0));
    assert_eq!(tags(&mut pair), [1, 2, 4]);
    assert_empty(&mut pair);
}

#[test]
fn without_memory_a_message_waits_until_there_is_some() {
    let (mut pair, b, _) = begin();
    pair.b.owner_mut().memory = false;
    send(&mut pair, b, 1, 1, 1_000);
    send(&mut pair, b, 2, 2, LARGE);
    send_as(&mut pair, b, 3, 3, 0, SendMode::Synchronous);
    pair.run_with(put_in);
    for _ in 0..3 {
        assert_eq!((pair.b.messages(), pair.b.next_turn(|_| true)), (1, None));
        assert_eq!(next(&mut pair), None);
        let stats = pair.b.inbox_stats();
        assert_eq!((stats.waiting, stats.fetching), (2, 0));
        // The owner is asked for memory again and again.
        pair.advance(Duration::from_millis(100));
    }
    pair.b.owner_mut().memory = true;
    assert_eq!(next(&mut pair), Some((1, 1)));
    assert_eq!(pair.b.inbox_stats().waiting, 2);
    pair.advance(Duration::from_millis(20));
    // A message without bytes is here at once.
    assert_eq!(tags(&mut pair), [3, 2]);
    assert_empty(&mut pair);
}

#[test]
fn a_turn_without_memory_for_its_message_is_passed_by() {
    let (mut pair, b, _) = begin();
    for (turn, memory) in [(1, false), (2, true), (3, false), (4, true)] {
        pair.b.owner_mut().memory = memory;
        send(&mut pair, b, turn, turn, 1_000);
        pair.run_with(put_in);
    }
    pair.b.owner_mut().memory = false;
    assert_eq!(tags(&mut pair), [2, 4]);
    assert_eq!((pair.b.messages(), pair.b.next_turn(|_| true)), (2, None));
    pair.b.owner_mut().memory = true;
    let mut left = tags(&mut pair);
    left.sort_unstable();
    assert_eq!(left, [1, 3]);
    assert_empty(&mut pair);
}

#[test]
fn a_fetch_that_takes_too_long_is_given_up() {
    let (mut pair, b, _) = begin();
    pair.hold_data = true;
    send(&mut pair, b, 5, 1, LARGE);
    send(&mut pair, b, 5, 2, 10);
    pair.run_with(put_in);
    pair.advance(pair::TIMEOUT + Duration::from_secs(1));
    assert_eq!(tags(&mut pair), [2]);
    assert_eq!(pair.b.stats().timeouts, 1);
    pair.hold_data = false;
    assert_empty(&mut pair);
    assert_eq!(ended(&mut pair).len(), 1);
}

#[test]
fn what_is_forgotten_is_thrown_away_and_its_senders_learn_it() {
    let (mut pair, b, _) = begin();
    pair.hold_data = true;
    for (tag, len) in [(1, 10), (2, LARGE), (3, 10), (4, LARGE), (5, 10)] {
        send(&mut pair, b, 5, tag, len);
    }
    send(&mut pair, b, 6, 6, 10);
    pair.run_with(put_in);
    pair.b.forget_messages(5);
    pair.b.forget_messages(99);
    assert!(!pair.b.holds_messages(5) && pair.b.holds_messages(6));
    assert_eq!(tags(&mut pair), [6]);
    // The owner is told only of messages that can be taken out.
    assert_eq!(pair.b.owner().ready, [5, 6]);
    pair.hold_data = false;
    pair.run_with(put_in);
    let aborted = Status::Aborted;
    assert_eq!(ended(&mut pair), [(2, aborted), (4, aborted)]);
    assert_empty(&mut pair);
}

#[test]
fn empty_offered_message_is_fetched_like_others() {
    let (mut pair, b, _) = begin();
    let sent = send_as(&mut pair, b, 1, 1, 0, SendMode::Synchronous);
    assert!(sent.is_some());
    pair.run_with(put_in);
    assert_eq!(ended(&mut pair), [(1, Status::Success)]);
    assert_eq!(tags(&mut pair), [1]);
    assert_empty(&mut pair);
}

#[test]
fn passive_endpoint_is_sent_no_more_than_it_lends() {
    let (mut pair, b, _) = begin();
    for tag in 0..1_000 {
        send(&mut pair, b, 1, tag, 2_000);
    }
    pair.run_with(put_in);
    let stats = pair.b.inbox_stats();
    let flow = pair.b.flow_stats();
    // The rest waits at its sender.
    assert!(stats.messages < 100 && pair.a.queued_for(b) > 900);
    assert!(stats.bytes < flow.lent as usize * mx_proto::flow::CREDIT);
    let mut taken = Vec::new();
    while taken.len() < 1_000 {
        let more = tags(&mut pair);
        assert!(!more.is_empty());
        taken.extend(more);
        pair.run_with(put_in);
    }
    assert!(taken.iter().copied().eq(0..1_000));
    assert_empty(&mut pair);
}

#[test]
fn what_is_larger_than_is_ever_fetched_is_refused() {
    let (mut pair, b, _) = begin();
    send(&mut pair, b, 1, 1, LARGE + 1_000);
    send(&mut pair, b, 1, 2, 10);
    pair.run_with(put_in);
    assert_eq!(tags(&mut pair), [2]);
    assert_eq!(ended(&mut pair), [(1, Status::Aborted)]);
    assert_empty(&mut pair);
}

#[test]
fn memory_that_a_port_reads_into_stays_until_it_has_been_told() {
    let mut pair = Pair::with_inbox(LARGE as u32);
    pair.read_remotely();
    let (b, _) = connected(&mut pair);
    send(&mut pair, b, 1, 1, 40_000);
    pair.run_with(put_in);
    assert!(pair.reading().is_some());
    // The port checks the memory when it is recalled.
    pair.b.forget_messages(1);
    assert_empty(&mut pair);
    assert_eq!(ended(&mut pair), [(1, Status::Aborted)]);
}
