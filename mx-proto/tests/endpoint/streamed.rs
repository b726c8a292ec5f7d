//! Messages that come with their data and are placed while they come.

use super::*;

/// More than a port delivers whole.
const LEN: usize = 60_000;

/// Two of them with credit for one such message; what a calls b, and what b calls a.
fn streaming() -> (Pair, RemoteId, RemoteId) {
    let mut pair = Pair::streaming(4096);
    let (b, a) = connected(&mut pair);
    (pair, b, a)
}

/// A sends that to b.
fn send(pair: &mut Pair, b: RemoteId, word: u64, data: Vec<u8>) -> mx_sim::Buffer {
    let data = pair.filled(data);
    let posted = pair
        .a
        .send(b, bits(word), data.clone(), word, SendMode::Standard);
    posted.unwrap();
    data
}

/// B receives what has those bits into a new buffer of that length.
fn receive(pair: &mut Pair, word: u64, len: usize) -> (mx_sim::Buffer, Received) {
    let buffer = pair.shared(len);
    let received = pair.b.recv(bits(word), EXACT, buffer.clone(), word);
    (buffer, received.unwrap())
}

/// Nothing of ours is left anywhere, and all that was lent is still lent or free.
fn nothing_left(pair: &mut Pair) {
    assert_eq!((pair.a.requests(), pair.b.requests()), (0, 0));
    let (flow, waiting) = (pair.b.flow_stats(), pair.b.unexpected_bytes());
    assert_eq!((flow.tombstones, flow.drawn, waiting), (0, 0, 0));
    assert_eq!(flow.free + flow.lent, flow.total);
}

#[test]
fn what_credit_covers_goes_at_once_and_is_placed_while_it_comes() {
    let (mut pair, b, a) = streaming();
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    let half = [&pattern(LEN, 3)[..LEN / 2], &vec![0xaa; LEN / 2]].concat();
    assert_eq!(buffer.bytes(), half);
    assert!(completions(&mut pair.b).is_empty());
    let sent = completions(&mut pair.a);
    assert_eq!(sent.len(), 1, "its memory is free when the link has it");
    pair.stop_midway(false);
    pair.run();
    let ends = completions(&mut pair.b);
    let [end] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((end.status, end.transferred), (Status::Success, LEN as u32));
    assert_eq!((end.kind, end.remote), (Kind::Recv, a));
    assert_eq!(buffer.bytes(), pattern(LEN, 3));
    let stats = pair.a.stats();
    // The other one came before.
    assert_eq!((stats.offers_out, stats.eager_out), (0, 2));
    nothing_left(&mut pair);
}

#[test]
fn without_credit_it_is_announced() {
    let mut pair = Pair::streaming(16);
    let (b, _) = connected(&mut pair);
    let (buffer, _) = receive(&mut pair, 1, LEN);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 3));
    assert_eq!(pair.a.stats().offers_out, 1);
    // It was lent some for the next one.
    let (buffer, _) = receive(&mut pair, 2, LEN);
    send(&mut pair, b, 2, pattern(LEN, 4));
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 4));
    assert_eq!(pair.a.stats().eager_out, 2);
}

#[test]
fn a_receive_that_is_called_off_midway_has_its_memory_back_and_the_next_message_comes() {
    let (mut pair, b, _) = streaming();
    let (first, received) = receive(&mut pair, 1, LEN);
    let (second, _) = receive(&mut pair, 1, LEN);
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    send(&mut pair, b, 2, pattern(100, 4));
    pair.run();
    completions(&mut pair.a);
    assert!(pair.b.end(waiting(received), Status::Cancelled));
    let ends = completions(&mut pair.b);
    assert_eq!(ends[0].status, Status::Cancelled);
    first.give_back();
    pair.stop_midway(false);
    pair.run();
    assert_eq!(
        second.bytes(),
        vec![0xaa; LEN],
        "it was matched with the first"
    );
    let (small, received) = receive(&mut pair, 2, 100);
    assert!(matches!(received, Received::Complete(_)));
    assert_eq!(small.bytes(), pattern(100, 4));
    assert!(
        completions(&mut pair.a)
            .iter()
            .all(|end| end.status == Status::Success)
    );
    assert_eq!(pair.b.requests(), 1);
}

#[test]
fn an_unexpected_message_is_kept_for_receives_posted_while_it_comes_or_later() {
    let (mut pair, b, _) = streaming();
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    let (buffer, received) = receive(&mut pair, 1, LEN);
    waiting(received);
    pair.stop_midway(false);
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 3));
    send(&mut pair, b, 2, pattern(LEN, 4));
    pair.run();
    let (buffer, received) = receive(&mut pair, 2, LEN);
    assert!(matches!(received, Received::Complete(_)));
    assert_eq!(buffer.bytes(), pattern(LEN, 4));
    completions(&mut pair.b);
    nothing_left(&mut pair);
}

#[test]
fn a_receive_that_is_too_small_gets_what_fits() {
    let (mut pair, b, _) = streaming();
    let (buffer, _) = receive(&mut pair, 1, 1000);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    let ends = completions(&mut pair.b);
    assert_eq!(
        (ends[0].status, ends[0].transferred),
        (Status::Truncated, 1000)
    );
    assert_eq!(
        (ends[0].length, buffer.bytes()),
        (LEN as u32, pattern(1000, 3))
    );
    nothing_left(&mut pair);
}

#[test]
fn a_link_that_ends_midway_gives_everything_back() {
    for posted in [true, false] {
        for word in [1, 1 << 63 | 1] {
            let (mut pair, b, _) = streaming();
            let buffer = posted.then(|| receive(&mut pair, word, LEN).0);
            pair.stop_midway(true);
            send(&mut pair, b, word, pattern(LEN, 3));
            pair.run();
            pair.cut();
            pair.run();
            let ends = completions(&mut pair.b);
            if let Some(buffer) = buffer {
                buffer.give_back();
                assert_eq!(ends[0].status, Status::Unreachable, "{ends:?}");
            }
            assert_eq!(pair.b.remotes(), 0);
            completions(&mut pair.a);
            nothing_left(&mut pair);
            assert_eq!(pair.b.flow_stats().lent, 0);
        }
    }
}

#[test]
fn our_own_disconnect_midway_gives_everything_back() {
    let (mut pair, b, a) = streaming();
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    pair.b.disconnect(a);
    buffer.give_back();
    assert_eq!(completions(&mut pair.b)[0].status, Status::Unreachable);
    pair.stop_midway(false);
    pair.run();
    completions(&mut pair.a);
    nothing_left(&mut pair);
}

#[test]
fn a_send_that_is_called_off_when_half_of_it_has_gone_arrives_with_its_true_bytes() {
    let (mut pair, b, _) = streaming();
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.freeze_b = true;
    let data = pair.filled(pattern(LEN, 3));
    let sent = pair.a.send(b, bits(1), data.clone(), 1, SendMode::Standard);
    let Ok(Posted::Pending(id)) = sent else {
        panic!("{sent:?}")
    };
    assert!(pair.a.end(id, Status::Cancelled));
    data.give_back();
    assert_eq!(completions(&mut pair.a)[0].status, Status::Cancelled);
    pair.freeze_b = false;
    pair.run();
    assert_eq!(completions(&mut pair.b)[0].status, Status::Success);
    assert_eq!(buffer.bytes(), pattern(LEN, 3));
    nothing_left(&mut pair);
}

#[test]
fn a_message_of_the_inbox_is_in_memory_of_the_owners_when_it_is_whole() {
    let (mut pair, b, _) = streaming();
    let word = 1 << 63 | 5 << 32;
    for memory in [true, false] {
        pair.b.owner_mut().memory = memory;
        send(&mut pair, b, word, pattern(LEN, 3));
        pair.run_with(pair::put_in);
        assert_eq!(pair.b.messages(), 1);
        pair.b.owner_mut().memory = true;
        let message = pair.b.next_message().unwrap();
        assert_eq!((message.turn, message.memory.bytes()), (5, pattern(LEN, 3)));
        // Its credits get back to a.
        pair.run();
    }
    assert_eq!(pair.b.owner().asked.len(), 2);
    completions(&mut pair.a);
    nothing_left(&mut pair);
}

#[test]
fn a_placed_message_does_not_overtake_a_deferred_one() {
    let (mut pair, b, _) = streaming();
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run_with(pair::defer);
    let (buffer, _) = receive(&mut pair, 1, LEN);
    send(&mut pair, b, 1, pattern(LEN, 4));
    while let Some(deferred) = pair.b.next_deferred() {
        pair.b.decide(deferred, mx_proto::Decision::Continue);
    }
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 3));
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 4));
}

#[test]
fn a_message_that_is_whole_when_another_is_undecided_does_not_overtake_it() {
    let (mut pair, b, _) = streaming();
    let target = pair.target(Side::B);
    pair.b.connect(target, pair::KEY, bits(0), 9).unwrap();
    pair.run();
    let oneself = completions(&mut pair.b)[0].remote;
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    // B's own message comes meanwhile, and then the receive is posted.
    let own = pair.filled(vec![5; 100]);
    pair.b.sends(oneself, bits(1), own, 8);
    pair.run_with(pair::defer);
    assert_eq!(pair.b.undecided(), 1);
    let (buffer, received) = receive(&mut pair, 1, LEN);
    waiting(received);
    pair.stop_midway(false);
    pair.run_with(pair::defer);
    assert_eq!((pair.b.undecided(), pair.b.posted_receives()), (2, 1));
    // The receive gets the older one, and the younger one is shown.
    let shown = pair.b.next_deferred().expect("one is undecided");
    assert_eq!(
        (shown.arrival.length, &buffer.bytes()[..100]),
        (LEN as u32, &[5; 100][..])
    );
    pair.b.decide(shown, mx_proto::Decision::Finished);
    pair.b.disconnect(oneself);
    pair.run();
    completions(&mut pair.a);
    completions(&mut pair.b);
    nothing_left(&mut pair);
}

#[test]
fn more_than_its_credit_covers_ends_the_link_before_anything_is_kept() {
    let mut pair = Pair::streaming(16);
    connected(&mut pair);
    let mut header = Header::new(Packet::Eager, 1, LEN as u32);
    header.body_len = LEN as u32;
    pair.inject_from_a(header.emit(), vec![0; LEN]);
    pair.run();
    assert_eq!(pair.b.remotes(), 0);
    assert_eq!(pair.b.stats().malformed, 1);
}

#[test]
fn our_own_end_midway_gives_everything_back() {
    let (mut pair, b, _) = streaming();
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.stop_midway(true);
    send(&mut pair, b, 1, pattern(LEN, 3));
    pair.run();
    pair.b.close();
    buffer.give_back();
    let ends = completions(&mut pair.b);
    assert!(ends.iter().all(|end| end.status != Status::Success));
    assert_eq!(pair.b.requests(), 0);
    pair.stop_midway(false);
    pair.run();
    completions(&mut pair.a);
    assert_eq!(pair.a.remotes(), 0);
}

#[test]
fn a_body_of_another_length_than_its_message_ends_the_link() {
    for word in [1, 2] {
        let (mut pair, _, _) = streaming();
        let (buffer, _) = receive(&mut pair, 1, LEN);
        let mut header = Header::new(Packet::Eager, word, LEN as u32 - 1);
        header.body_len = LEN as u32;
        pair.inject_from_a(header.emit(), vec![0; LEN]);
        pair.run();
        assert_eq!(pair.b.remotes(), 0);
        assert_eq!(pair.b.stats().malformed, 1);
        assert_eq!(buffer.bytes(), vec![0xaa; LEN]);
    }
}
