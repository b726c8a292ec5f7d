//! Messages without enough credits: the sender asks for credits first, and announces the message if
//! there are none.

use super::pair::{Acts, Pair};
use super::{EXACT, bits, completions, connected, pattern, pending};
use mx_proto::{RemoteId, SendMode};

/// Length of a message that costs five credits.
const LEN: usize = 2000;

/// Sends `count` messages. Returns those complete at once, then those complete by now, in this
/// order.
fn send(pair: &mut Pair, b: RemoteId, count: u64) -> Vec<u64> {
    let mut done = Vec::new();
    for n in 0..count {
        let data = pair.filled(pattern(LEN, n as u8));
        let posted = pair.a.send(b, bits(n), data, n, SendMode::Standard);
        if posted.unwrap() == mx_proto::SendPosted::Complete {
            done.push(n);
        }
    }
    pair.run();
    done.extend(completions(&mut pair.a).iter().map(|end| end.context));
    done
}

/// Receives one of the messages at b, before or after it has come.
fn receive(pair: &mut Pair, n: u64) {
    let buffer = pair.shared(LEN);
    let _ = pair.b.recv(bits(n), EXACT, buffer.clone(), n).unwrap();
    pair.run();
    assert_eq!(buffer.bytes(), pattern(LEN, n as u8));
}

#[test]
fn what_it_cannot_lend_for_is_announced_when_it_has_answered() {
    let mut pair = Pair::asking(64, 12);
    let (b, _) = connected(&mut pair);
    let done = send(&mut pair, b, 20);
    assert!(!done.is_empty() && done.len() < 20, "{done:?}");
    assert!(pair.a.stats().offers_out > 0);
    // The first announced message can be received before all others.
    let announced = done.len() as u64;
    receive(&mut pair, announced);
    for n in (0..20).filter(|n| *n != announced) {
        receive(&mut pair, n);
    }
    assert_eq!(pair.a.requests() + pair.b.requests(), 0);
}

#[test]
fn nothing_is_sent_at_once_while_a_message_waits() {
    let mut pair = Pair::asking(64, 14);
    let (b, _) = connected(&mut pair);
    let mut sent = 0;
    while pair.a.send_at_once(b, bits(1), &pattern(LEN, sent)) {
        sent += 1;
    }
    // Too few credits for it are left, and enough for a smaller one.
    pending(pair.a.sends(b, bits(1), pattern(LEN, sent), 0));
    let account = pair.a.account(b).unwrap();
    assert!(
        account.send_waiting == 1 && account.send_free > 0,
        "{account:?}"
    );
    assert!(!pair.a.send_at_once(b, bits(1), &[9]));
    pair.run();
    for n in 0..=sent {
        let buffer = pair.shared(LEN);
        let _ = pair.b.recv(bits(1), EXACT, buffer.clone(), 0).unwrap();
        pair.run();
        assert_eq!(buffer.bytes(), pattern(LEN, n));
    }
    assert!(pair.a.send_at_once(b, bits(1), &[9]));
}
