//! The handler hears of every message once, as it arrives, whatever becomes of it.

use super::pair::{KEY, Pair, Shared};
use super::{EXACT, bits, connected, waiting};
use mx_proto::wire::{Header, Kind as Packet};
use mx_proto::{
    Arrival, Decision, Handler, KeepAll, MatchBits, PartnerId, SendMode, Source, Verdict,
};

/// Notes what arrives, and answers as it is told when asked about an unmatched message.
struct Listener {
    heard: Vec<(u64, u64)>,
    asked: usize,
    answer: fn() -> Verdict<Shared>,
}

impl Handler<Shared> for Listener {
    fn arriving(&mut self, source_context: u64, bits: MatchBits) {
        self.heard.push((source_context, bits.0));
    }

    fn unexpected<B: Source + ?Sized>(&mut self, _: &Arrival, _: Option<&B>) -> Verdict<Shared> {
        assert!(self.heard.len() > self.asked, "asked before it was told");
        self.asked += 1;
        (self.answer)()
    }
}

fn listener(answer: fn() -> Verdict<Shared>) -> Listener {
    Listener {
        heard: Vec::new(),
        asked: 0,
        answer,
    }
}

/// A and b know each other; b calls a 77. What a calls b.
fn named() -> (Pair, PartnerId) {
    let mut pair = Pair::new();
    let (b, a) = connected(&mut pair);
    assert!(pair.b.set_partner_context(a, 77));
    (pair, b)
}

fn send(pair: &mut Pair, to: PartnerId, tag: u64, len: usize) {
    let data = pair.filled(vec![1; len]);
    let posted = pair.a.send(to, bits(tag), data, 0, SendMode::Standard);
    posted.unwrap();
}

#[test]
fn every_message_is_told_once_matched_or_not_with_data_or_offered() {
    let answers: [fn() -> Verdict<Shared>; 4] = [
        || Verdict::Continue,
        || Verdict::Finished,
        || Verdict::Defer,
        || Verdict::Receive {
            memory: vec![0; 100_000].into(),
            context: 5,
        },
    ];
    for answer in answers {
        let (mut pair, b) = named();
        for tag in [1, 2] {
            let buffer = pair.shared(100_000);
            waiting(pair.b.recv(bits(tag), EXACT, buffer, 0).unwrap());
        }
        for (tag, len) in [(1, 10), (2, 100_000), (3, 10), (4, 100_000), (5, 0)] {
            send(&mut pair, b, tag, len);
        }
        let mut handler = listener(answer);
        pair.run_with(&mut handler);
        while let Some(deferred) = pair.b.next_deferred() {
            pair.b.decide(deferred, Decision::Continue);
            pair.run_with(&mut handler);
        }
        let told = [1, 2, 3, 4, 5].map(|tag| (77, tag));
        assert_eq!(handler.heard, told);
    }
}

#[test]
fn a_deferred_message_is_not_told_again_when_it_is_decided() {
    let (mut pair, b) = named();
    let mut handler = listener(|| Verdict::Defer);
    for tag in [1, 2] {
        send(&mut pair, b, tag, 10);
    }
    pair.run_with(&mut handler);
    assert_eq!(handler.heard, [(77, 1), (77, 2)]);
    for _ in 0..2 {
        let deferred = pair.b.next_deferred().expect("both are undecided");
        pair.b.decide(deferred, Decision::Continue);
    }
    pair.run_with(&mut handler);
    assert_eq!(handler.heard.len(), 2);
}

#[test]
fn what_the_window_does_not_allow_is_not_told() {
    let (mut pair, _) = named();
    let mut handler = listener(|| Verdict::Continue);
    let mut forged = Header::new(Packet::Eager, 9, 40_000);
    forged.body_len = 40_000;
    pair.inject_from_a(forged.emit(), vec![0; 40_000]);
    pair.run_with(&mut handler);
    assert_eq!(handler.heard, []);
    assert_eq!(pair.b.stats().malformed, 1);
}

#[test]
fn a_sender_without_a_word_is_0() {
    let mut pair = Pair::new();
    let target = pair.target(super::Side::B);
    pair.a.connect(target, KEY, bits(0), 1).unwrap();
    pair.run();
    let b = pair.a.poll_completion().expect("connected").partner;
    send(&mut pair, b, 3, 1);
    let mut handler = listener(|| Verdict::Continue);
    pair.run_with(&mut handler);
    assert_eq!(handler.heard, [(0, 3)]);
    // The default hears nothing and changes nothing.
    send(&mut pair, b, 4, 1);
    pair.run_with(&mut KeepAll);
    assert!(pair.b.probe(bits(4), EXACT).is_some());
}
