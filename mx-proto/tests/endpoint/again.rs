//! Sessions that end while something is on its way to them: connects go on, messages are not lost.

use super::pair::{self, Acts, Pair, Side};
use super::{EXACT, bits, connected};
use mx_proto::{Down, Kind, RemoteId, SendMode, Status};

/// The end of a's or b's only completion.
macro_rules! ended {
    ($node:expr) => {{
        let done = $node.next_completion().expect("it has ended");
        assert_eq!(done.kind, Kind::Connect);
        (done.status, done.remote)
    }};
}

/// Both have connected at the same time, so that there are two links.
fn connected_both_ways() -> (Pair, RemoteId) {
    let mut pair = Pair::keeping(8);
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    pair.run();
    let (status, of_a) = ended!(pair.a);
    assert_eq!(status, Status::Success);
    assert_eq!(ended!(pair.b).0, Status::Success);
    (pair, of_a)
}

#[test]
fn the_end_of_one_of_two_links_loses_nothing_of_the_other() {
    for newest_first in [false, true] {
        let (mut pair, b) = connected_both_ways();
        if newest_first {
            pair.newest_first();
        }
        for tag in 1..=3 {
            let data = pair.filled(vec![7; 100]);
            let mode = SendMode::Standard;
            pair.a.send(b, bits(tag), data, 0, mode).unwrap();
        }
        pair.a.close();
        pair.run();
        assert!(matches!(pair.b.next_down(), Some(Down { .. })));
        for tag in 1..=3 {
            assert!(
                pair.b.probe(bits(tag), EXACT).is_some(),
                "message {tag}, newest first: {newest_first}"
            );
        }
    }
}

#[test]
fn a_cancelled_connect_does_not_end_the_peers_own() {
    for steps in 0..30 {
        for newest_first in [false, true] {
            for again in [Again::No, Again::Once, Again::AndCalledOff] {
                called_off_after(steps, newest_first, again);
            }
        }
    }
}

/// A's calls after it has called off its connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Again {
    No,
    Once,
    AndCalledOff,
}

/// A calls off its connect after so many steps, of which b makes more or fewer than a.
fn called_off_after(steps: u32, newest_first: bool, again: Again) {
    let what = format!("after {steps} steps, newest first: {newest_first}, again: {again:?}");
    let mut pair = Pair::keeping(8);
    if newest_first {
        pair.newest_first();
    }
    let (a, b) = (pair.target(Side::A), pair.target(Side::B));
    let called_off = pair.a.connect(b, pair::KEY, bits(0), 1).unwrap();
    if steps % 2 == 0 {
        pair.b.progress();
    }
    pair.b.connect(a, pair::KEY, bits(0), 1).unwrap();
    for step in 0..steps {
        match (steps >> (step % 4)) & 1 {
            0 => pair.a.progress(),
            _ => pair.b.progress(),
        };
    }
    pair.a.cancel_unmatched(called_off);
    if again != Again::No {
        let second = pair.a.connect(b, pair::KEY, bits(0), 2).unwrap();
        if again == Again::AndCalledOff {
            for _ in 0..steps % 3 {
                pair.a.progress();
            }
            pair.a.cancel_unmatched(second);
        }
    }
    pair.run();
    let (status, of_b) = ended!(pair.b);
    assert_eq!(status, Status::Success, "{what}");
    for tag in 1..=3 {
        let data = pair.filled(vec![7; 100]);
        let mode = SendMode::Standard;
        pair.b.send(of_b, bits(tag), data, 0, mode).unwrap();
    }
    pair.run();
    for tag in 1..=3 {
        assert!(
            pair.a.probe(bits(tag), EXACT).is_some(),
            "message {tag}, {what}"
        );
    }
}

#[test]
fn a_connect_that_meets_the_end_of_a_session_goes_to_the_next() {
    for newest_first in [false, true] {
        let mut pair = Pair::keeping(8);
        let (_, old) = connected(&mut pair);
        if newest_first {
            pair.newest_first();
        }
        let before = pair.b.remote_identity(old).unwrap();
        pair.reopen_a(8);
        let a = pair.target(Side::A);
        pair.b.connect(a, pair::KEY, bits(0), 5).unwrap();
        pair.run();
        let (status, new) = ended!(pair.b);
        assert_eq!(status, Status::Success);
        let after = pair.b.remote_identity(new).unwrap();
        assert_eq!((after.nic, after.endpoint), (before.nic, before.endpoint));
        assert_ne!(after.session, before.session);
        assert!(pair.b.next_completion().is_none());
    }
}

#[test]
fn a_connect_goes_on_only_with_connect_again() {
    let mut pair = Pair::new();
    connected(&mut pair);
    pair.reopen_a(0);
    let a = pair.target(Side::A);
    pair.b.connect(a, pair::KEY, bits(0), 5).unwrap();
    pair.run();
    assert_ne!(ended!(pair.b).0, Status::Success);
}

#[test]
fn a_connect_that_goes_on_can_be_cancelled() {
    let mut pair = Pair::keeping(8);
    connected(&mut pair);
    pair.reopen_a(8);
    let a = pair.target(Side::A);
    let id = pair.b.connect(a, pair::KEY, bits(0), 5).unwrap();
    assert!(pair.b.cancel_unmatched(id));
    pair.run();
    assert!(pair.b.next_completion().is_none());
}
