//! The view of an endpoint's remotes that tools have.

use super::*;
use mx_proto::{Phase, RemoteView};

/// Returns a's remotes as tools see them.
fn seen(pair: &Pair) -> Vec<RemoteView> {
    let places = 0..pair.a.view_places();
    places.filter_map(|place| pair.a.view_at(place)).collect()
}

#[test]
fn a_remote_is_seen_from_the_call_to_the_end() {
    let mut pair = Pair::new();
    assert_eq!(seen(&pair), []);
    let target = pair.target(Side::B);
    pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
    let [called] = seen(&pair)[..] else { panic!() };
    assert_eq!((called.nic, called.endpoint), (target.nic, target.endpoint));
    assert_eq!((called.phase, called.operations), (Phase::Connecting, 1));
    assert!(called.oldest != 0 && called.link.is_some());
    pair.run();
    let [there] = seen(&pair)[..] else { panic!() };
    assert_eq!((there.phase, there.operations), (Phase::Connected, 0));
    assert_eq!((there.oldest, there.queued), (0, 0));
    assert!(there.credits > 0 && there.link.is_some());
    pair.cut();
    pair.run();
    assert_eq!(seen(&pair), []);
}

#[test]
fn sends_without_credits_are_seen_with_the_oldest_of_them() {
    let (mut pair, b) = associated();
    for _ in 0..2000 {
        pair.a.sends(b, bits(6), vec![1; 4], 0);
    }
    pair.run();
    let [waits] = seen(&pair)[..] else { panic!() };
    assert_eq!((waits.phase, waits.credits), (Phase::NoCredits, 0));
    assert_eq!(waits.operations as usize, pair.a.requests());
    assert_eq!(waits.queued, waits.operations);
    pair.advance(Duration::from_millis(300));
    for _ in 0..1000 {
        let buffer = pair.shared(4);
        pair.b.recv(bits(6), EXACT, buffer, 0).unwrap();
    }
    pair.run();
    let later = seen(&pair)[0];
    assert!(later.operations < waits.operations);
    assert_ne!(later.oldest, waits.oldest, "the first ones have gone");
    let [before, after] = [waits, later].map(|view| view.longest_wait);
    assert!(before < Duration::from_millis(300) && after >= Duration::from_millis(300));
}
