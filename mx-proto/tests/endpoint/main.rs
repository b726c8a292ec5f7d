//! The rules of an endpoint, one test each, over a port that is two queues.

mod again;
mod asking;
mod copies;
mod crossing;
mod deferred;
mod inbox;
mod inherit;
mod introductions;
mod oneself;
mod pair;
mod requests;
mod secret;
mod streamed;
mod tombstones;
mod view;
mod waiting;

use mx_proto::wire::{Header, Kind as Packet};
use mx_proto::{
    Completion, Down, DownReason, Kind, MatchBits, MatchMask, PostError, Posted, Received,
    RemoteId, RequestId, SendMode, Status,
};
use mx_sim::{CallOff, Cancelled};
use pair::{Acts, Pair, Side};
use std::time::Duration;

const EXACT: MatchMask = MatchMask::EXACT;

fn bits(word: u64) -> MatchBits {
    MatchBits(word)
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

/// Two endpoints that know each other, and what a calls b.
fn associated() -> (Pair, RemoteId) {
    let mut pair = Pair::new();
    let (b, _) = connected(&mut pair);
    (pair, b)
}

/// Connects a to b and tells what each calls the other.
fn connected(pair: &mut Pair) -> (RemoteId, RemoteId) {
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let done = pair.a.next_completion().expect("a connect completes");
    assert_eq!(
        (done.kind, done.status, done.context),
        (Kind::Connect, Status::Success, 1)
    );
    // B has never been told of A; a message names it.
    pair.a.sends(done.remote, bits(77), vec![], 0);
    let Received::Pending(_) = pair.b.recv(bits(77), EXACT, pair.shared(0), 0).unwrap() else {
        panic!("nothing can be there yet")
    };
    pair.run();
    let first = pair.b.next_completion().expect("the first message arrives");
    (done.remote, first.remote)
}

fn pending(posted: Posted) -> RequestId {
    match posted {
        Posted::Pending(id) => id,
        Posted::Complete => panic!("completed at once"),
    }
}

fn waiting(received: Received) -> RequestId {
    match received {
        Received::Pending(id) => id,
        Received::Complete(done) => panic!("completed at once: {done:?}"),
    }
}

fn completions(endpoint: &mut pair::Node) -> Vec<Completion> {
    std::iter::from_fn(|| endpoint.next_completion()).collect()
}

#[test]
fn messages_of_every_size_arrive_whole_whichever_side_is_first() {
    let (mut pair, b) = associated();
    for len in [0, 1, 24, 4096, 32 * 1024, 32 * 1024 + 1, 100_000, 3 << 20] {
        for receive_first in [true, false] {
            let data = pattern(len, 3);
            let buffer = pair.shared(len);
            if receive_first {
                pair.b.posts(bits(5), buffer.clone(), 9);
            }
            pair.a.sends(b, bits(5), data.clone(), 8);
            pair.run();
            let done = if receive_first {
                pair.b.next_completion()
            } else {
                match pair.b.recv(bits(5), EXACT, buffer.clone(), 9).unwrap() {
                    Received::Complete(done) => Some(done.at_once(9)),
                    Received::Pending(_) => {
                        pair.run();
                        pair.b.next_completion()
                    }
                }
            };
            let done = done.expect("the receive completes");
            assert_eq!(
                (done.status, done.context),
                (Status::Success, 9),
                "{len} {receive_first}"
            );
            assert_eq!((done.length, done.transferred), (len as u32, len as u32));
            assert_eq!(buffer.bytes(), data, "{len} {receive_first}");
            completions(&mut pair.a);
        }
    }
    assert_eq!(pair.a.requests() + pair.b.requests(), 0);
    assert_eq!(pair.b.unexpected_bytes(), 0);
}

#[test]
fn a_short_receive_is_truncated_and_both_sides_learn_it() {
    let (mut pair, b) = associated();
    for (len, room) in [(100, 10), (100_000, 10), (100_000, 40_000), (100_000, 0)] {
        let buffer = pair.shared(room);
        pair.b.posts(bits(1), buffer.clone(), 0);
        pair.a.sends(b, bits(1), pattern(len, 1), 0);
        pair.run();
        let done = pair.b.next_completion().unwrap();
        assert_eq!(done.status, Status::Truncated);
        assert_eq!((done.length, done.transferred), (len as u32, room as u32));
        assert_eq!(buffer.bytes(), pattern(len, 1)[..room]);
        if let Some(sent) = pair.a.next_completion() {
            assert_eq!(
                (sent.status, sent.transferred),
                (Status::Truncated, room as u32)
            );
        }
    }
}

#[test]
fn equal_bits_keep_their_order_across_sizes() {
    let (mut pair, b) = associated();
    let sizes = [10, 200_000, 3, 50_000, 0, 32_768, 1];
    for (n, len) in sizes.into_iter().enumerate() {
        pair.a.sends(b, bits(4), pattern(len, n as u8), 0);
    }
    pair.run();
    let buffers: Vec<_> = sizes.iter().map(|_| pair.shared(200_000)).collect();
    let mut got = vec![None; sizes.len()];
    for (n, buffer) in buffers.iter().enumerate() {
        if let Received::Complete(done) = pair
            .b
            .recv(bits(4), EXACT, buffer.clone(), n as u64)
            .unwrap()
        {
            got[n] = Some(done.transferred);
        }
    }
    pair.run();
    for done in completions(&mut pair.b) {
        got[done.context as usize] = Some(done.transferred);
    }
    for (n, len) in sizes.into_iter().enumerate() {
        assert_eq!(got[n], Some(len as u32), "message {n}");
        assert_eq!(buffers[n].bytes()[..len], pattern(len, n as u8));
    }
}

#[test]
fn a_large_message_arrives_before_a_smaller_one_that_was_sent_after_it() {
    let (mut pair, b) = associated();
    // Of three parts and of two.
    for (context, len) in [(1, 180_000), (2, 100_000)] {
        let room = pair.shared(len);
        pair.b.posts(bits(context), room, context);
        pending(pair.a.sends(b, bits(context), pattern(len, 1), context));
    }
    pair.run();
    let order = completions(&mut pair.b);
    assert_eq!(
        order.iter().map(|done| done.context).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn a_synchronous_send_waits_for_its_receive() {
    let (mut pair, b) = associated();
    pending(
        pair.a
            .send(b, bits(2), pair.filled(vec![7]), 3, SendMode::Synchronous)
            .unwrap(),
    );
    pair.run();
    assert_eq!(pair.a.next_completion(), None);
    let buffer = pair.shared(1);
    pair.b.posts(bits(2), buffer.clone(), 0);
    pair.run();
    assert_eq!(pair.a.ended(), Status::Success);
    assert_eq!(buffer.bytes(), [7]);
}

#[test]
fn a_sender_with_few_credits_offers_and_nothing_stalls() {
    let (mut pair, b) = associated();
    for n in 0..20u32 {
        pair.a.sends(b, bits(6), pattern(10_000, n as u8), 0);
    }
    pair.run();
    assert!(pair.b.unexpected_bytes() <= pair::UNEXPECTED_MAX);
    assert!(pair.a.stats().offered_for_credit > 0);
    // A message with other bits still gets through.
    let buffer = pair.shared(3);
    pair.b.posts(bits(7), buffer.clone(), 0);
    pair.a.sends(b, bits(7), vec![1, 2, 3], 0);
    pair.run();
    assert_eq!(pair.b.next_completion().unwrap().bits, bits(7));
    for n in 0..20u32 {
        let buffer = pair.shared(10_000);
        let received = pair.b.recv(bits(6), EXACT, buffer.clone(), 0).unwrap();
        pair.run();
        if let Received::Pending(_) = received {
            assert_eq!(pair.b.ended(), Status::Success);
        }
        assert_eq!(buffer.bytes(), pattern(10_000, n as u8), "message {n}");
    }
    assert_eq!(pair.b.unexpected_bytes(), 0);
}

#[test]
fn without_message_credit_sends_wait_in_order() {
    let (mut pair, b) = associated();
    for n in 0..2000u32 {
        pair.a.sends(b, bits(6), n.to_le_bytes().to_vec(), 0);
    }
    pair.run();
    assert!(
        pair.a.requests() > 0,
        "two thousand messages exceed the window"
    );
    for n in 0..2000u32 {
        let buffer = pair.shared(4);
        let received = pair.b.recv(bits(6), EXACT, buffer.clone(), 0).unwrap();
        pair.run();
        if let Received::Pending(_) = received {
            assert!(pair.b.next_completion().is_some());
        }
        assert_eq!(buffer.bytes(), n.to_le_bytes());
    }
    assert_eq!(pair.a.requests(), 0);
}

#[test]
fn a_cancelled_offer_puts_its_receive_back() {
    let (mut pair, b) = associated();
    pair.hold_data = true;
    let first = pair.shared(100_000);
    let second = pair.shared(100_000);
    pair.b.posts(bits(1), first.clone(), 1);
    pair.b.posts(bits(1), second.clone(), 2);
    let data = pair.filled(pattern(100_000, 1));
    let send = pending(pair.a.sends(b, bits(1), data.clone(), 0));
    pair.run();
    assert_eq!(pair.a.cancel(send), Cancelled::Withdrawn);
    data.give_back();
    pair.hold_data = false;
    // It waits as long as it has to.
    pair.advance(2 * pair::TIMEOUT);
    assert_eq!(pair.b.next_completion(), None);
    pair.a.sends(b, bits(1), vec![9; 5], 0);
    pair.run();
    let done = pair.b.next_completion().unwrap();
    assert_eq!((done.context, done.transferred), (1, 5));
    assert_eq!(pair.a.cancel(send), Cancelled::Unknown);
    assert_eq!(completions(&mut pair.a), []);
}

#[test]
fn a_cancelled_offer_that_was_there_first_leaves_its_receive_posted() {
    let (mut pair, b) = associated();
    pair.hold_data = true;
    let data = pair.filled(pattern(100_000, 1));
    let send = pending(pair.a.sends(b, bits(1), data, 0));
    pair.run();
    pair.b.posts(bits(1), pair.shared(100_000), 1);
    pair.b.posts(bits(1), pair.shared(100_000), 2);
    pair.run();
    assert_eq!(pair.a.cancel(send), Cancelled::Withdrawn);
    pair.hold_data = false;
    pair.a.sends(b, bits(1), vec![9; 5], 0);
    pair.run();
    let done = pair.b.next_completion().unwrap();
    assert_eq!((done.context, done.transferred), (1, 5));
}

#[test]
fn cancelling_a_matched_receive_tells_the_sender_and_frees_the_buffer() {
    let (mut pair, b) = associated();
    pair.hold_data = true;
    let buffer = pair.shared(1 << 20);
    let recv = pair.b.posts(bits(1), buffer.clone(), 1);
    pending(pair.a.sends(b, bits(1), pattern(1 << 20, 1), 0));
    pair.run();
    assert_eq!(pair.b.cancel(recv), Cancelled::Aborted);
    buffer.give_back();
    pair.hold_data = false;
    pair.run();
    assert_eq!(pair.b.next_completion(), None);
    assert_eq!(pair.a.ended(), Status::Aborted);
    // The session goes on.
    pair.a.sends(b, bits(2), vec![1], 0);
    pair.run();
    assert!(matches!(
        pair.b.recv(bits(2), EXACT, pair.shared(1), 0),
        Ok(Received::Complete(_))
    ));
}

#[test]
fn unmatched_receives_are_cancelled_without_a_trace() {
    let (mut pair, b) = associated();
    let recv = pair.b.posts(bits(1), pair.shared(4), 1);
    assert_eq!(pair.b.cancel(recv), Cancelled::Withdrawn);
    assert_eq!(pair.b.cancel(recv), Cancelled::Unknown);
    pair.a.sends(b, bits(1), vec![1], 0);
    pair.run();
    assert_eq!(pair.b.next_completion(), None);
    assert_eq!(pair.b.posted_receives(), 0);
}

#[test]
fn disconnect_ends_everything_on_both_sides_and_a_new_connect_starts_afresh() {
    let mut pair = Pair::new();
    let (b, a) = connected(&mut pair);
    assert!(pair.b.set_remote_context(a, 42));
    pending(pair.a.sends(b, bits(1), vec![0; 50_000], 5));
    pair.run();
    pair.a.disconnect(b);
    pair.run();
    let done = completions(&mut pair.a);
    assert_eq!(
        (done.len(), done[0].context, done[0].status),
        (1, 5, Status::Unreachable)
    );
    assert_eq!(pair.a.next_down(), None);
    let Some(Down {
        remote,
        context,
        reason,
        ..
    }) = pair.b.next_down()
    else {
        panic!("b is told")
    };
    assert_eq!((remote, context, reason), (a, 42, DownReason::Disconnected));
    let refused = pair
        .a
        .send(b, bits(1), pair.filled(vec![]), 0, SendMode::Standard);
    assert_eq!(refused, Err(PostError::UnknownRemote));
    assert!(!pair.b.set_remote_context(a, 1));
    // Messages that b had not received are gone.
    pair.b.posts(bits(1), pair.shared(1), 0);
    let (again, _) = connected(&mut pair);
    assert_ne!(again, b);
}

#[test]
fn a_peer_that_disconnects_and_returns_at_once_stays_connected() {
    let mut pair = Pair::new();
    let (b, a) = connected(&mut pair);
    pending(pair.a.sends(b, bits(1), vec![0; 50_000], 5));
    pair.newest_first();
    pair.a.disconnect(b);
    completions(&mut pair.a);
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let done = pair.a.next_completion().unwrap();
    assert_eq!(done.status, Status::Success);
    let Some(Down { remote, reason, .. }) = pair.b.next_down() else {
        panic!("the old association is over")
    };
    assert_eq!((remote, reason), (a, DownReason::Disconnected));
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1));
    for n in 0..2000u32 {
        pair.a
            .sends(done.remote, bits(2), n.to_le_bytes().to_vec(), 0);
        pair.b.posts(bits(2), pair.shared(4), 0);
        pair.run();
        assert_eq!(pair.b.ended(), Status::Success);
    }
    assert_eq!((pair.a.next_down(), pair.b.next_down()), (None, None));
}

#[test]
fn a_lost_link_fails_the_remote_on_both_sides() {
    let (mut pair, b) = associated();
    pair.b.posts(bits(2), pair.shared(1), 3);
    pending(pair.a.sends(b, bits(1), vec![0; 50_000], 5));
    pair.cut();
    pair.run();
    assert_eq!(pair.a.ended(), Status::Unreachable);
    assert!(matches!(pair.a.next_down(), Some(Down { .. })));
    assert!(matches!(pair.b.next_down(), Some(Down { .. })));
    // A receive that nothing matched stays: it belongs to no remote.
    assert_eq!(pair.b.next_completion(), None);
    assert_eq!(pair.b.posted_receives(), 1);
}

#[test]
fn a_wrong_key_is_refused_and_an_absent_peer_is_closed() {
    let mut pair = Pair::new();
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY + 1, bits(9), 4).unwrap();
    pair.run();
    let done = pair.a.next_completion().unwrap();
    assert_eq!(
        (done.status, done.context, done.bits),
        (Status::BadKey, 4, bits(9))
    );
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (0, 0));
    pair.a
        .connect(pair.nowhere(), pair::KEY, bits(9), 4)
        .unwrap();
    pair.run();
    assert_eq!(pair.a.ended(), Status::EndpointClosed);
    assert_eq!(pair.a.remotes(), 0);
}

#[test]
fn connecting_at_the_same_time_makes_one_remote_on_each_side() {
    let mut pair = Pair::new();
    let (to_a, to_b) = (pair.target(Side::A), pair.target(Side::B));
    pair.a.connect(to_b, pair::KEY, bits(0), 1).unwrap();
    pair.b.connect(to_a, pair::KEY, bits(0), 2).unwrap();
    pair.run();
    let b = pair.a.next_completion().unwrap();
    let a = pair.b.next_completion().unwrap();
    assert_eq!((a.status, b.status), (Status::Success, Status::Success));
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1));
    for len in [1, 100_000] {
        let (at_a, at_b) = (pair.shared(len), pair.shared(len));
        pair.a.posts(bits(1), at_a.clone(), 0);
        pair.b.posts(bits(1), at_b.clone(), 0);
        pair.a.sends(b.remote, bits(1), pattern(len, 1), 0);
        pair.b.sends(a.remote, bits(1), pattern(len, 2), 0);
        pair.run();
        assert_eq!(at_b.bytes(), pattern(len, 1));
        assert_eq!(at_a.bytes(), pattern(len, 2));
        let of_b = completions(&mut pair.b)
            .into_iter()
            .find(|done| done.kind == Kind::Recv);
        assert_eq!(of_b.unwrap().remote, a.remote);
        completions(&mut pair.a);
    }
}

#[test]
fn one_peer_under_two_addresses_is_one_remote() {
    let (mut pair, b) = associated();
    let alias = pair.alias_of_b();
    pair.a.connect(alias, pair::KEY, bits(3), 6).unwrap();
    pair.run();
    let done = pair.a.next_completion().unwrap();
    assert_eq!((done.status, done.remote), (Status::Success, b));
    assert_eq!((pair.a.remotes(), pair.b.remotes()), (1, 1));
}

#[test]
fn a_restarted_peer_is_a_new_remote_and_the_old_one_goes_down() {
    let mut pair = Pair::new();
    connected(&mut pair);
    pair.restart_a_silently();
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    // The old one has not been heard of its end: it is asked, and has a second.
    assert_eq!(pair.a.next_completion(), None);
    pair.advance(Duration::from_millis(900));
    assert_eq!(pair.a.next_completion(), None);
    // Its link takes nothing, so the question has not gone out.
    pair.advance(Duration::from_millis(2600));
    assert_eq!(pair.a.ended(), Status::Success);
    let Some(Down { reason, .. }) = pair.b.next_down() else {
        panic!("told")
    };
    assert_eq!(reason, DownReason::Restarted);
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn a_silent_peer_times_requests_out() {
    let (mut pair, b) = associated();
    pair.freeze_b = true;
    pending(pair.a.sends(b, bits(1), vec![0; 50_000], 5));
    pair.run();
    pair.advance(pair::TIMEOUT / 2);
    assert_eq!(pair.a.next_completion(), None);
    pair.advance(pair::TIMEOUT);
    assert_eq!(pair.a.ended(), Status::Timeout);
    pair.freeze_b = false;
    pair.run();
    // The offer was withdrawn: nothing is left of it at b.
    pair.b.posts(bits(1), pair.shared(1), 0);
    assert_eq!(pair.a.requests(), 0);
}

#[test]
fn the_owner_may_consume_receive_or_keep() {
    let (mut pair, b) = associated();
    pair.a.sends(b, bits(1), vec![1, 2], 0);
    pair.a.sends(b, bits(1), vec![3; 50_000], 7);
    pair.run_with(pair::finish);
    assert_eq!(pair.b.owner().asked, [(2, vec![1, 2]), (50_000, vec![])]);
    assert_eq!(pair.a.ended(), Status::Truncated);
    for len in [10, 30_000, 35_000] {
        pair.a.sends(b, bits(3 << 32 | 1), pattern(len, 5), 7);
        pair.run_with(pair::put_in);
        let message = pair.b.next_message().unwrap();
        assert_eq!((message.turn, message.bits), (3, bits(3 << 32 | 1)));
        assert_eq!(message.memory.bytes(), pattern(len, 5));
        assert!(pair.b.next_completion().is_none());
    }
    pair.a.sends(b, bits(8), vec![5], 0);
    pair.run();
    let arrival = pair.b.probe(bits(8), EXACT).unwrap();
    assert_eq!((arrival.length, arrival.bits), (1, bits(8)));
    assert!(matches!(
        pair.b.recv(bits(8), EXACT, pair.shared(1), 0),
        Ok(Received::Complete(_))
    ));
}

#[test]
fn a_peer_that_asks_for_ever_and_reads_no_answer_is_failed() {
    for asks in [Packet::Connect, Packet::Confirm] {
        let mut pair = Pair::new();
        let target = pair.target(Side::B);
        pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
        pair.a.progress();
        let (mut header, mut body) = pair.next_for_b().expect("an introduction is under way");
        pair.run();
        assert_eq!(pair.b.remotes(), 1);
        if asks == Packet::Confirm {
            body = vec![0; 32];
            let mut asking = Header::new(asks, 0, 0);
            asking.body_len = body.len() as u32;
            header = asking.emit();
        }
        let mut answered = 0;
        while pair.b.remotes() == 1 {
            assert!(answered < 10_000, "its answers are kept for ever");
            pair.inject_from_a(header, body.clone());
            pair.b.progress();
            answered += 1;
        }
        assert!(answered > 256, "a few repeated ones are no violation");
        assert_eq!(pair.b.stats().malformed, 1);
    }
}

#[test]
fn nonsense_packets_end_the_link_and_nothing_else() {
    let mut pair = Pair::new();
    connected(&mut pair);
    let eager = |len: u32, body: usize| {
        let mut header = Header::new(Packet::Eager, 1, len);
        header.body_len = body as u32;
        (header.emit(), vec![0; body])
    };
    let stranger = pair.stranger();
    for (header, body) in [
        ([0xff; 32], vec![]),
        eager(5, 5),
        (Header::new(Packet::Pull, 0, 0).emit(), vec![]),
        (Header::new(Packet::Disconnect, 0, 0).emit(), vec![]),
    ] {
        pair.inject(stranger, header, body);
        pair.run();
    }
    assert!(pair.b.stats().malformed >= 1);
    assert_eq!(pair.b.remotes(), 1, "the good peer is still there");
    for (header, body) in [
        eager(5, 4),
        (Header::new(Packet::Offer, 1, 5).emit(), vec![]),
        eager(pair::UNEXPECTED_MAX as u32 + 1, pair::UNEXPECTED_MAX + 1),
    ] {
        let mut pair = Pair::new();
        connected(&mut pair);
        pair.inject_from_a(header, body);
        pair.run();
        assert_eq!(pair.b.stats().malformed, 1);
        assert_eq!(pair.b.remotes(), 0);
        assert!(matches!(
            pair.b.next_down(),
            Some(Down {
                reason: DownReason::Protocol(_),
                ..
            })
        ));
    }
}

#[test]
fn packets_about_strange_requests_are_counted_and_dropped() {
    let mut pair = Pair::new();
    connected(&mut pair);
    for (kind, body) in [
        (Packet::Data, 4),
        (Packet::Pull, 12),
        (Packet::Notify, 0),
        (Packet::Withdraw, 0),
    ] {
        let before = pair.b.stats().stale;
        let mut header = Header::new(kind, 0x1234_5678_9abc, 0);
        header.body_len = body;
        pair.inject_from_a(header.emit(), vec![0; body as usize]);
        pair.run();
        assert_eq!(pair.b.stats().stale, before + 1, "{kind:?}");
    }
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn pulls_of_what_is_not_offered_or_lies_beyond_its_end_are_counted_and_dropped() {
    let mut pair = Pair::new();
    let (_, a) = connected(&mut pair);
    let receive = pair.b.recv_from(a, bits(1), EXACT, (pair.shared(8), 0));
    let receive = waiting(receive.unwrap());
    let offer = pending(pair.b.sends(a, bits(2), pattern(50_000, 1), 0));
    pair.run();
    let sent = pair.b.stats().packets_out;
    for (request, at, len) in [
        (receive, 0, 8),
        (offer, 0, 0),
        (offer, 50_000, 1),
        (offer, 49_999, 2),
    ] {
        let before = pair.b.stats().stale;
        let mut header = Header::new(Packet::Pull, request.to_word(), at);
        header.body_len = 12;
        let body = [&[0; 8][..], &u32::to_le_bytes(len)].concat();
        pair.inject_from_a(header.emit(), body);
        pair.run();
        assert_eq!(pair.b.stats().stale, before + 1, "{len} bytes at {at}");
    }
    assert_eq!((pair.b.stats().packets_out, pair.b.requests()), (sent, 2));
}

#[test]
fn closing_completes_whatever_is_left() {
    let (mut pair, b) = associated();
    pair.a.posts(bits(1), pair.shared(4), 1);
    pending(pair.a.sends(b, bits(1), vec![0; 50_000], 2));
    pair.a.close();
    let mut done = completions(&mut pair.a);
    done.sort_by_key(|done| done.context);
    assert_eq!(
        done.iter().map(|done| done.context).collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(
        done.iter()
            .all(|done| done.status == Status::EndpointClosed)
    );
    pair.run();
    assert!(matches!(pair.b.next_down(), Some(Down { .. })));
}
