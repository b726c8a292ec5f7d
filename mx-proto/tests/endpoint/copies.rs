//! Sends that go on from copies ([`SendMode::Buffered`]).

use super::*;
use mx_proto::flow::cost;

/// A message of `len` bytes, which are `word`'s lowest: whether it is complete at once.
fn sent(pair: &mut Pair, to: RemoteId, word: u64, len: usize, mode: SendMode) -> bool {
    let data = pair.filled(vec![word as u8; len]);
    let posted = pair.a.send(to, bits(word), data.clone(), word, mode);
    let complete = posted.unwrap() == Posted::Complete;
    if complete {
        data.give_back();
    }
    complete
}

/// Two of them, whose link has just become full, and how many small messages that took.
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

/// B is at work again, and receives messages `all` in this order, whole.
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
fn a_small_send_to_a_full_link_is_complete_at_once_but_only_so_many() {
    let (mut pair, b, first) = full();
    let most = first + 15;
    for word in first..most {
        assert!(sent(&mut pair, b, word, 8, SendMode::Buffered), "{word}");
    }
    assert_eq!(pair.a.flow_stats().copies, 16);
    assert!(!sent(&mut pair, b, most, 8, SendMode::Buffered));
    // Time-outs are for sends that are not complete.
    pair.advance(2 * pair::TIMEOUT);
    let ends = completions(&mut pair.a);
    let [end] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((end.context, end.status), (most, Status::Timeout));
    receive(&mut pair, 0..most, 8);
    assert_eq!((pair.a.flow_stats().copies, pair.a.requests()), (0, 0));
    assert_eq!(completions(&mut pair.a), []);
}

#[test]
fn what_must_be_matched_what_is_large_and_what_has_no_credit_is_not_copied() {
    let (mut pair, b, first) = full();
    let len = 10_000;
    // 80 credits are lent; one message more than these has gone before.
    let last = first + (80 - (first + 1)) / u64::from(cost(len));
    assert!(last > first);
    for word in first..last {
        assert!(sent(&mut pair, b, word, len as usize, SendMode::Buffered));
    }
    assert!(!sent(&mut pair, b, last, len as usize, SendMode::Buffered));
    let (mut pair, b, first) = full();
    assert!(!sent(&mut pair, b, first, 8, SendMode::Synchronous));
    let (mut pair, b, first) = full();
    assert!(!sent(&mut pair, b, first, 32_769, SendMode::Buffered));
}

#[test]
fn nothing_is_copied_behind_what_could_have_to_wait_for_credits() {
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
fn copies_end_with_their_remote_without_a_word() {
    for parts in [false, true] {
        let (mut pair, b, first) = full();
        for word in first..first + 5 {
            assert!(sent(&mut pair, b, word, 8, SendMode::Buffered));
        }
        if parts {
            pair.a.disconnect(b);
        } else {
            pair.cut();
        }
        pair.run();
        assert_eq!((pair.a.flow_stats().copies, pair.a.requests()), (0, 0));
        assert_eq!(completions(&mut pair.a), []);
        assert_eq!(pair.a.next_down().is_some(), !parts);
    }
}

#[test]
fn a_copy_that_the_port_goes_on_reading_takes_room_until_it_does_not() {
    let (mut pair, b, first) = full();
    for word in first..first + 5 {
        assert!(sent(&mut pair, b, word, 8, SendMode::Buffered));
    }
    pair.read_on();
    receive(&mut pair, 0..first + 5, 8);
    assert_eq!((pair.a.flow_stats().copies, pair.being_read()), (6, 6));
    pair.a.disconnect(b);
    pair.run();
    assert_eq!((pair.a.flow_stats().copies, pair.being_read()), (0, 0));
    assert_eq!(completions(&mut pair.a), []);
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
fn copies_go_although_nothing_is_left_to_pay_with() {
    // Nothing may wait but copies: then nothing is asked for, either.
    let complete = |most: u64| {
        let mut pair = Pair::lending(20);
        let (b, _) = connected(&mut pair);
        // The credits lent, and the slot.
        let mut count = 0;
        while sent(&mut pair, b, count, 8, SendMode::Standard) {
            count += 1;
            pair.run();
        }
        receive(&mut pair, 0..12, 8);
        pair.freeze_b = true;
        let all = (0..most).take_while(|word| sent(&mut pair, b, *word, 8, SendMode::Buffered));
        (all.count() as u64, pair)
    };
    let (most, _) = complete(u64::MAX);
    let (all, mut pair) = complete(most);
    assert_eq!(all, most);
    assert!(pair.a.flow_stats().copies > 0, "{most}");
    pair.freeze_b = false;
    pair.run();
    assert_eq!(pair.a.flow_stats().copies, 0);
}

#[test]
fn what_is_complete_goes_before_we_part_if_there_is_room_by_then() {
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
    // B takes everything in, and A is not polled before it parts.
    while pair.b_works(pair::keep) {}
    pair.a.disconnect(b);
    pair.freeze_b = false;
    pair.run();
    for (word, buffer) in all.zip(buffers) {
        assert_eq!(buffer.bytes(), vec![word as u8; 8]);
    }
}
