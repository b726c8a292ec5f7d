//! Messages that come with their data and are placed while they come.

use super::*;

/// Length of a message that a port does not deliver whole.
const LEN: usize = 60_000;

/// Returns a pair with credit for one message of [`LEN`], a's name for b, and b's name for a.
fn streaming() -> (Pair, RemoteId, RemoteId) {
    let mut pair = Pair::streaming(4096);
    let (b, a) = connected(&mut pair);
    (pair, b, a)
}

/// Sends `data` from a to b.
fn send(pair: &mut Pair, b: RemoteId, word: u64, data: Vec<u8>) -> mx_sim::Buffer {
    let data = pair.filled(data);
    let posted = pair
        .a
        .send(b, bits(word), data.clone(), word, SendMode::Standard);
    posted.unwrap();
    data
}

/// Receives the message with those bits at b, into a new buffer of that length.
fn receive(pair: &mut Pair, word: u64, len: usize) -> (mx_sim::Buffer, ReceivePosted) {
    let buffer = pair.shared(len);
    let received = pair.b.recv(bits(word), EXACT, buffer.clone(), word);
    (buffer, received.unwrap())
}

/// Asserts that no operation and no message remains, and that all credits are lent or free.
fn nothing_left(pair: &mut Pair) {
    assert_eq!((pair.a.requests(), pair.b.requests()), (0, 0));
    let (flow, waiting) = (pair.b.flow_stats(), pair.b.unexpected_bytes());
    assert_eq!((flow.tombstones, flow.drawn, waiting), (0, 0, 0));
    assert_eq!(flow.free + flow.lent, flow.total);
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
    // B has lent credits for the next message.
    let (buffer, _) = receive(&mut pair, 2, LEN);
    send(&mut pair, b, 2, pattern(LEN, 4));
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, 4));
    assert_eq!(pair.a.stats().eager_out, 2);
}

#[test]
fn streamed_unexpected_message_waits_for_any_receive() {
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
    assert!(matches!(received, ReceivePosted::Complete(_)));
    assert_eq!(buffer.bytes(), pattern(LEN, 4));
    completions(&mut pair.b);
    nothing_left(&mut pair);
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
fn send_cancelled_halfway_arrives_with_its_bytes() {
    let (mut pair, b, _) = streaming();
    let (buffer, _) = receive(&mut pair, 1, LEN);
    pair.freeze_b = true;
    let data = pair.filled(pattern(LEN, 3));
    let sent = pair.a.send(b, bits(1), data.clone(), 1, SendMode::Standard);
    let Ok(SendPosted::Pending(id)) = sent else {
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
fn complete_inbox_message_is_in_the_owners_memory() {
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
        // The credits get back to a.
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
fn message_beyond_its_credit_ends_the_link_unstored() {
    let mut pair = Pair::streaming(16);
    connected(&mut pair);
    let mut header = Header::new(Packet::Eager, 1, LEN as u32);
    header.body_len = LEN as u32;
    pair.inject_from_a(header.emit(), vec![0; LEN]);
    pair.run();
    assert_eq!(pair.b.remotes(), 0);
    assert_eq!(pair.b.stats().malformed, 1);
}
