//! Limits of operations that nothing has matched.

use super::pair::{Acts, Pair, TIMEOUT};
use super::{EXACT, bits, completions, connected, pattern, pending};
use mx_proto::{RemoteId, RequestId, SendMode, Status};
use mx_sim::Completion;
use mx_sim::{Buffer, Reports};
use mx_sim::{CallOff, Cancelled};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a pair whose sends wait for ever and whose transfers do not.
fn patient() -> (Pair, RemoteId) {
    let mut pair = Pair::waiting_for_ever();
    let (b, _) = connected(&mut pair);
    (pair, b)
}

fn send(pair: &mut Pair, to: RemoteId, data: impl Into<Buffer>, context: u64) -> RequestId {
    let mode = SendMode::Synchronous;
    let posted = pair.a.send(to, bits(1), data.into(), context, mode);
    pending(posted.unwrap())
}

fn ends(done: &[Completion]) -> Vec<(u64, Status)> {
    done.iter()
        .map(|done| (done.context, done.status))
        .collect()
}

#[test]
fn a_send_waits_for_ever_and_its_transfer_does_not() {
    let (mut pair, b) = patient();
    let data = pair.filled(pattern(100_000, 1));
    send(&mut pair, b, data, 1);
    pair.advance(10_000 * SECOND);
    assert_eq!(completions(&mut pair.a), []);
    // The receiver would notice it as well.
    pair.b.set_request_timeout(None);
    let buffer = pair.shared(100_000);
    pair.b.posts(bits(1), buffer, 2);
    pair.hold_data = true;
    pair.run();
    pair.advance(TIMEOUT - SECOND);
    assert_eq!(completions(&mut pair.a), []);
    // The receiver has asked for two parts, and the second counts as progress.
    pair.advance(TIMEOUT + 3 * SECOND);
    assert_eq!(ends(&completions(&mut pair.a)), [(1, Status::Timeout)]);
}

#[test]
fn a_send_with_a_limit_is_withdrawn_and_its_remote_stays() {
    let (mut pair, b) = patient();
    for len in [10, 100_000] {
        let data = pair.filled(pattern(len, 1));
        let limited = send(&mut pair, b, data.clone(), 1);
        let other = send(&mut pair, b, pattern(len, 2), 2);
        assert!(pair.a.limit_waiting(limited, Some(2 * SECOND)));
        pair.advance(SECOND);
        assert_eq!(completions(&mut pair.a), []);
        pair.advance(2 * SECOND);
        assert_eq!(ends(&completions(&mut pair.a)), [(1, Status::Timeout)]);
        data.give_back();
        assert!(!pair.a.limit_waiting(limited, Some(SECOND)));
        // The withdrawn send is not received.
        let buffer = pair.shared(len);
        pair.b.recv(bits(1), EXACT, buffer.clone(), 3).unwrap();
        pair.run();
        assert_eq!(ends(&completions(&mut pair.a)), [(2, Status::Success)]);
        assert_eq!(buffer.bytes(), pattern(len, 2));
        completions(&mut pair.b);
        assert_eq!(pair.a.cancel(other), Cancelled::Unknown);
    }
    assert_eq!(pair.a.next_down(), None);
}

#[test]
fn a_receive_with_a_limit_ends_unless_a_message_has_come() {
    let (mut pair, b) = patient();
    let buffers: Vec<Buffer> = (0..3).map(|_| pair.shared(100_000)).collect();
    let recvs: Vec<RequestId> = (0..3)
        .map(|n| {
            let buffer = buffers[n as usize].clone();
            pair.b.posts(bits(n), buffer, n)
        })
        .collect();
    for recv in &recvs {
        assert!(pair.b.limit_waiting(*recv, Some(2 * SECOND)));
    }
    // A small message, and a large one whose bytes are held.
    let small = pair.filled(vec![1; 10]);
    pair.a.sends(b, bits(0), small, 0);
    pair.hold_data = true;
    let large = pair.filled(pattern(100_000, 1));
    pair.a.sends(b, bits(1), large, 1);
    pair.run();
    assert_eq!(ends(&completions(&mut pair.b)), [(0, Status::Success)]);
    assert!(!pair.b.limit_waiting(recvs[1], Some(SECOND)));
    pair.advance(5 * SECOND);
    assert_eq!(ends(&completions(&mut pair.b)), [(2, Status::Timeout)]);
    buffers[2].give_back();
    // The timed-out receive is no longer there; the message waits for the next one.
    pair.a.sends(b, bits(2), vec![2; 10], 0);
    pair.run();
    assert_eq!(completions(&mut pair.b), []);
    pair.advance(20 * SECOND);
    assert_eq!(ends(&completions(&mut pair.b)), [(1, Status::Timeout)]);
}
