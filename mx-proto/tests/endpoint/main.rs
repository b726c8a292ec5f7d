//! The rules of an endpoint, one test each, over mx-sim's scripted port; and those of the port made of datagrams
//! (`reliable`).

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
mod regions;
mod reliable;
mod requests;
mod secret;
mod streamed;
mod tombstones;
mod versions;
mod view;
mod waiting;

use mx_proto::port::LinkDown;
use mx_proto::wire::{Header, Kind as Packet};
use mx_proto::{
    Down, DownReason, MatchBits, MatchMask, OpKind, ReceivePosted, RemoteId, RequestId, SendMode,
    SendPosted, Status, Violation,
};
use mx_sim::Completion;
use mx_sim::{CallOff, Cancelled, Reports};
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

/// Returns two connected endpoints, and a's name for b.
fn associated() -> (Pair, RemoteId) {
    let mut pair = Pair::new();
    let (b, _) = connected(&mut pair);
    (pair, b)
}

/// Connects a to b. Returns what each calls the other.
fn connected(pair: &mut Pair) -> (RemoteId, RemoteId) {
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let done = pair.a.next_completion().expect("a connect completes");
    assert_eq!(
        (done.kind, done.status, done.context),
        (OpKind::Connect, Status::Success, 1)
    );
    // B learns the name of A from a message.
    pair.a.sends(done.remote, bits(77), vec![], 0);
    let ReceivePosted::Pending(_) = pair.b.recv(bits(77), EXACT, pair.shared(0), 0).unwrap() else {
        panic!("nothing can be there yet")
    };
    pair.run();
    let first = pair.b.next_completion().expect("the first message arrives");
    (done.remote, first.remote)
}

fn pending(posted: SendPosted) -> RequestId {
    match posted {
        SendPosted::Pending(id) => id,
        SendPosted::Complete => panic!("completed at once"),
    }
}

fn waiting(received: ReceivePosted) -> RequestId {
    match received {
        ReceivePosted::Pending(id) => id,
        ReceivePosted::Complete(done) => panic!("completed at once: {done:?}"),
    }
}

fn completions(endpoint: &mut pair::Node) -> Vec<Completion> {
    std::iter::from_fn(|| endpoint.next_completion()).collect()
}

#[test]
fn large_message_with_fewer_bytes_left_arrives_first() {
    // Messages of three parts and of two; of equal ones the first arrives first.
    for (lens, order) in [([180_000, 100_000], [2, 1]), ([180_000; 2], [1, 2])] {
        let (mut pair, b) = associated();
        for (context, len) in (1..).zip(lens) {
            let room = pair.shared(len);
            pair.b.posts(bits(context), room, context);
            pending(pair.a.sends(b, bits(context), pattern(len, 1), context));
        }
        pair.run();
        let done = completions(&mut pair.b);
        let done: Vec<_> = done.iter().map(|done| done.context).collect();
        assert_eq!(done, order, "{lens:?}");
    }
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
    // The receive waits as long as it has to.
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
fn cancelled_earlier_offer_leaves_its_receive_posted() {
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
    // The key is also checked for a connected peer.
    connected(&mut pair);
    completions(&mut pair.a);
    pair.a.connect(target, pair::KEY + 1, bits(9), 4).unwrap();
    pair.run();
    assert_eq!(pair.a.ended(), Status::BadKey);
    assert_eq!((pair.a.remotes(), pair.b.stats().refused), (1, 2));
}

#[test]
fn a_restarted_peer_is_a_new_remote_and_the_old_one_goes_down() {
    let second = Duration::from_secs(1);
    let mut pair = Pair::losing(2 * second);
    let (_, old) = connected(&mut pair);
    pair.restart_a_silently();
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    assert_eq!(pair.a.ended(), Status::Success);
    // The old remote is asked whether it is there, and has the time that every silent peer has.
    assert_eq!((pair.b.remotes(), pair.b.next_down()), (2, None));
    for _ in 0..3 {
        pair.advance(second);
    }
    let Some(Down { remote, reason, .. }) = pair.b.next_down() else {
        panic!("told")
    };
    assert_eq!(remote, old);
    assert_eq!(reason, DownReason::Link(LinkDown::TimedOut));
    assert_eq!(pair.b.remotes(), 1);
}

#[test]
fn a_peer_that_asks_for_ever_and_reads_no_answer_is_failed() {
    let mut pair = Pair::new();
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    pair.a.progress();
    let (header, body) = pair.next_for_b().expect("an introduction is under way");
    pair.run();
    assert_eq!(pair.b.remotes(), 1);
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

#[test]
fn a_message_that_is_not_as_long_as_its_body_ends_its_session() {
    for (length, posted) in [(0, false), (2, false), (0, true), (2, true)] {
        let mut pair = Pair::new();
        connected(&mut pair);
        if posted {
            waiting(pair.b.recv(bits(1), EXACT, pair.shared(8), 0).unwrap());
        }
        let mut header = Header::new(Packet::Eager, 1, length);
        header.body_len = 1;
        pair.inject_from_a(header.emit(), vec![7]);
        pair.run();
        let end = (pair.b.remotes(), pair.b.stats().malformed);
        assert_eq!(end, (0, 1), "{length}, {posted}");
        // The receive waits for another remote.
        assert_eq!(pair.b.requests(), usize::from(posted));
    }
}

#[test]
fn a_message_for_a_receive_from_another_remote_ends_its_session() {
    // Alone in the index, and behind a receive of the sender's that has taken an earlier message.
    for earlier in [false, true] {
        let mut pair = Pair::new();
        let (to, from) = connected(&mut pair);
        let target = pair.target(Side::B);
        pair.b.connect(target, pair::KEY, bits(0), 2).unwrap();
        pair.run();
        let done = completions(&mut pair.b).into_iter();
        let itself = done.map(|done| done.remote).find(|&remote| remote != from);
        let itself = itself.expect("b has called itself");
        if earlier {
            let buffer = (pair.shared(8), 3);
            waiting(pair.b.recv_from(from, bits(2), EXACT, buffer).unwrap());
            pair.a.sends(to, bits(2), vec![7], 0);
            pair.run();
            let done = pair.b.next_completion().expect("the message arrives");
            assert_eq!((done.status, done.remote), (Status::Success, from));
        }
        let buffer = pair.shared(8);
        let receive = pair.b.recv_from(itself, bits(1), EXACT, (buffer, 4));
        let receive = waiting(receive.unwrap());
        pair.a.sends(to, bits(1), vec![7], 0);
        pair.run();
        assert_eq!(pair.b.stats().malformed, 1);
        let lost = pair.b.next_down().expect("the session has ended");
        assert_eq!(
            (lost.remote, lost.reason),
            (from, DownReason::Protocol(Violation::Foreign))
        );
        assert_eq!(pair.b.cancel(receive), Cancelled::Withdrawn);
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
fn invalid_pulls_are_counted_and_dropped() {
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
