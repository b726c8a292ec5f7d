//! Sends that go on from copies ([`SendMode::Buffered`]).

use super::*;

/// Sends a message of `len` bytes with the value of `word`'s lowest byte. Returns whether it is
/// complete at once.
fn sent(pair: &mut Pair, to: RemoteId, word: u64, len: usize, mode: SendMode) -> bool {
    let data = pair.filled(vec![word as u8; len]);
    let posted = pair.a.send(to, bits(word), data.clone(), word, mode);
    let complete = posted.unwrap() == SendPosted::Complete;
    if complete {
        data.give_back();
    }
    complete
}

/// Returns two endpoints whose link has just become full, and the number of small messages that
/// filled it.
fn full() -> (Pair, RemoteId, u64) {
    let (mut pair, b) = associated();
    pair.freeze_b = true;
    let mut count = 0;
    while pair.a.stats().queued == 0 {
        assert!(sent(&mut pair, b, count, 8, SendMode::Buffered));
        count += 1;
    }
    (pair, b, count)
}

/// Lets b work again, which receives the messages `all` in this order, whole.
fn receive(pair: &mut Pair, all: std::ops::Range<u64>, len: usize) {
    pair.freeze_b = false;
    let buffers: Vec<_> = all.clone().map(|_| pair.shared(len)).collect();
    for buffer in &buffers {
        pair.b
            .recv(bits(0), MatchMask(0), buffer.clone(), 0)
            .unwrap();
    }
    pair.run();
    for (word, buffer) in all.zip(buffers) {
        assert_eq!(buffer.bytes(), vec![word as u8; len]);
    }
}

#[test]
fn sends_behind_one_that_may_wait_for_credits_are_not_copied() {
    let (mut pair, b, first) = full();
    assert!(!sent(&mut pair, b, first, 8, SendMode::Standard));
    assert!(!sent(&mut pair, b, first + 1, 8, SendMode::Buffered));
    let before = completions(&mut pair.a);
    assert_eq!(before, []);
    receive(&mut pair, 0..first + 2, 8);
    let ends: Vec<_> = completions(&mut pair.a).iter().map(|c| c.context).collect();
    assert_eq!(ends, [first, first + 1]);
}

#[test]
fn a_link_that_has_room_again_is_used_before_the_port_says_so() {
    let (mut pair, b, first) = full();
    assert!(!sent(&mut pair, b, first, 8, SendMode::Standard));
    // B takes everything in, and A is not polled.
    while pair.b_works(pair::keep) {}
    assert!(!sent(&mut pair, b, first + 1, 8, SendMode::Standard));
    pair.tell_of_room();
    assert!(sent(&mut pair, b, first + 2, 8, SendMode::Standard));
    assert_eq!(completions(&mut pair.a).len(), 2);
    receive(&mut pair, 0..first + 3, 8);
}

#[test]
fn completed_copies_leave_before_disconnect_if_they_fit() {
    let (mut pair, b, first) = full();
    for word in first..first + 5 {
        assert!(sent(&mut pair, b, word, 8, SendMode::Buffered));
    }
    let all = 0..first + 5;
    let buffers: Vec<_> = all.clone().map(|_| pair.shared(8)).collect();
    for buffer in &buffers {
        pair.b
            .recv(bits(0), MatchMask(0), buffer.clone(), 0)
            .unwrap();
    }
    // B takes everything in, and A is not polled before it disconnects.
    while pair.b_works(pair::keep) {}
    pair.a.disconnect(b);
    pair.freeze_b = false;
    pair.run();
    for (word, buffer) in all.zip(buffers) {
        assert_eq!(buffer.bytes(), vec![word as u8; 8]);
    }
}
