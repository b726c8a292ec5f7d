//! A copy of an endpoint in another process: all operations have ended, and nothing was done with
//! the port.

use super::pair::{self, Acts, Pair, Side, defer};
use super::{EXACT, bits, completions, connected, pending, waiting};
use mx_proto::{Config, DownReason, Identity, MatchMask, SessionId, Status};
use mx_sim::Reports;

#[test]
fn every_operation_ends_once_and_the_port_is_left_alone() {
    let mut pair = Pair::keeping(8);
    let (b, a) = connected(&mut pair);
    completions(&mut pair.a);
    assert!(pair.a.set_remote_context(b, 42));
    // A message to a that waits for a receive.
    pair.b.sends(a, bits(7), vec![1; 100], 0);
    // An offer, two receives and a connect.
    let large = pair.filled(vec![2; 1 << 20]);
    let sent = pending(pair.a.sends(b, bits(5), large, 1));
    pair.a.posts(bits(8), pair.shared(10), 2);
    let any = MatchMask(0xf0);
    waiting(pair.a.recv(bits(0x90), any, pair.shared(10), 3).unwrap());
    pair.run();
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 4).unwrap();
    assert_eq!((pair.a.unexpected_bytes(), pair.a.remotes()), (100, 1));

    let before = pair.port_states();
    pair.a.inherit();
    assert_eq!(pair.port_states(), before);
    let mut ended: Vec<_> = completions(&mut pair.a)
        .iter()
        .map(|done| (done.context, done.status))
        .collect();
    ended.sort_by_key(|(context, _)| *context);
    // The connect to a connected remote is complete at once.
    ended.retain(|(context, _)| *context != 4);
    let gone = Status::Unreachable;
    assert_eq!(ended, [(1, gone), (2, gone), (3, gone)]);
    let down = pair.a.next_down().expect("the remote is lost");
    assert_eq!((down.context, down.remote), (42, b));
    assert!(matches!(down.reason, DownReason::Link(_)));
    let left = (
        pair.a.remotes(),
        pair.a.requests(),
        pair.a.unexpected_bytes(),
    );
    assert_eq!(left, (0, 0, 0));
    assert!(!pair.a.end(sent, Status::Cancelled));
    assert_eq!(pair.a.remote_context(b), None);
    assert_eq!(pair.port_states(), before);
}

#[test]
fn a_decision_about_a_message_of_before_is_dropped() {
    let mut pair = Pair::new();
    let (_, a) = connected(&mut pair);
    pair.a.owner_mut().answer = defer;
    for tag in [7, 8] {
        pair.b.sends(a, bits(tag), vec![1; 10], 0);
    }
    pair.run();
    let deferred = pair.a.next_deferred().expect("it waits for a decision");
    pair.a.inherit();
    assert_eq!(pair.a.undecided(), 0);
    let before = pair.port_states();
    pair.a.decide(deferred, mx_proto::Decision::Continue);
    assert!(pair.a.next_deferred().is_none());
    assert!(pair.a.probe(bits(7), EXACT).is_none() && pair.a.probe(bits(8), EXACT).is_none());
    assert_eq!(pair.port_states(), before);
}

#[test]
fn it_goes_on_over_another_port_as_another_session() {
    let mut pair = Pair::reading_remotely();
    let (old, _) = connected(&mut pair);
    // The port of the original has memory that it would be told to release.
    let large = pair.filled(vec![2; 1 << 20]);
    pair.a.sends(old, bits(5), large, 1);
    pair.run();
    pair.a.inherit();
    completions(&mut pair.a);
    while pair.a.next_down().is_some() {}
    let identity = Identity {
        session: SessionId(77),
        ..pair.a.identity()
    };
    // The process of the original ends.
    pair.cut();
    let port = pair.another_port();
    let config = Config::clone(pair.a.config());
    drop(pair.a.reopen(config, identity, port));
    assert_eq!(pair.a.identity().session, SessionId(77));
    pair.run();
    let (new, _) = connected(&mut pair);
    assert_ne!(old, new);
    let lost = pair.b.next_down().expect("the session of before");
    assert_ne!(lost.identity.session, SessionId(77));
}
