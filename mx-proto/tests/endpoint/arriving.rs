//! The owner hears of every message once, as it arrives, whatever becomes of it.

use super::pair::{Answer, KEY, Pair, defer, finish, keep, put_in};
use super::{EXACT, bits, connected, waiting};
use mx_proto::wire::{Header, Kind as Packet};
use mx_proto::{Decision, PartnerId, SendMode};

/// A and b know each other; b calls a 77. What a calls b.
fn named() -> (Pair, PartnerId) {
    let mut pair = Pair::new();
    let (b, a) = connected(&mut pair);
    assert!(pair.b.set_partner_context(a, 77));
    // They have spoken before.
    pair.b.owner_mut().heard.clear();
    pair.b.owner_mut().asked.clear();
    (pair, b)
}

fn send(pair: &mut Pair, to: PartnerId, tag: u64, len: usize) {
    let data = pair.filled(vec![1; len]);
    let posted = pair.a.send(to, bits(tag), data, 0, SendMode::Standard);
    posted.unwrap();
}

#[test]
fn every_message_is_told_once_matched_or_not_with_data_or_offered() {
    let answers: [Answer; 4] = [keep, finish, defer, put_in];
    for answer in answers {
        let (mut pair, b) = named();
        for tag in [1, 2] {
            let buffer = pair.shared(100_000);
            waiting(pair.b.recv(bits(tag), EXACT, buffer, 0).unwrap());
        }
        for (tag, len) in [(1, 10), (2, 100_000), (3, 10), (4, 100_000), (5, 0)] {
            send(&mut pair, b, tag, len);
        }
        pair.run_with(answer);
        while let Some(deferred) = pair.b.next_deferred() {
            pair.b.decide(deferred, Decision::Continue);
            pair.run_with(answer);
        }
        let told = [1, 2, 3, 4, 5].map(|tag| (77, tag));
        assert_eq!(pair.b.owner().heard, told);
    }
}

#[test]
fn a_deferred_message_is_not_told_again_when_it_is_decided() {
    let (mut pair, b) = named();
    for tag in [1, 2] {
        send(&mut pair, b, tag, 10);
    }
    pair.run_with(defer);
    assert_eq!(pair.b.owner().heard, [(77, 1), (77, 2)]);
    for _ in 0..2 {
        let deferred = pair.b.next_deferred().expect("both are undecided");
        pair.b.decide(deferred, Decision::Continue);
    }
    pair.run_with(defer);
    assert_eq!(pair.b.owner().heard.len(), 2);
}

#[test]
fn what_there_are_no_credits_for_is_not_told() {
    let (mut pair, _) = named();
    let mut forged = Header::new(Packet::Eager, 9, 50_000);
    forged.body_len = 50_000;
    pair.inject_from_a(forged.emit(), vec![0; 50_000]);
    pair.run_with(keep);
    assert_eq!(pair.b.owner().heard, []);
    assert_eq!(pair.b.stats().malformed, 1);
}

#[test]
fn a_sender_without_a_word_is_0() {
    let mut pair = Pair::new();
    let target = pair.target(super::Side::B);
    pair.a.connect(target, KEY, bits(0), 1).unwrap();
    pair.run();
    let b = pair
        .a
        .owner_mut()
        .next_completion()
        .expect("connected")
        .partner;
    send(&mut pair, b, 3, 1);
    pair.run_with(keep);
    assert_eq!(pair.b.owner().heard, [(0, 3)]);
}
