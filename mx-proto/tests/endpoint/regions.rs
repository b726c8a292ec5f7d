//! Registered memory between two endpoints of which one may not know of it; `tests/sim` has the rest.

use super::*;
use mx_proto::{PostError, RegionKey, Rights};

const BOTH: Rights = Rights {
    read: true,
    write: true,
};

#[test]
fn a_peer_without_the_feature_is_asked_for_nothing() {
    for (ours, theirs) in [(false, false), (false, true), (true, false)] {
        let mut pair = Pair::with_regions(ours, theirs);
        let (b, _) = connected(&mut pair);
        let what = (pair.shared(10), 1);
        let got = pair.a.get(b, (RegionKey(1), 0), what);
        assert_eq!(got, Err(PostError::NoRegions), "{ours} {theirs}");
    }
}

#[test]
fn a_get_posted_before_the_peer_is_met_waits_for_it_or_fails_with_it() {
    for knows in [true, false] {
        let mut pair = Pair::with_regions(true, knows);
        let target = pair.target(Side::B);
        pair.a.connect(target, pair::KEY, bits(0), 1).unwrap();
        let b = pair.a.named(101)[0];
        let memory = pair.filled(pattern(300, 7));
        let key = if knows {
            pair.b.register(memory, BOTH)
        } else {
            RegionKey(1)
        };
        let into = pair.shared(100);
        let posted = pair.a.get(b, (key, 200), (into.clone(), 2));
        assert!(matches!(posted, Ok(SendPosted::Pending(_))));
        pair.run();
        let ends = completions(&mut pair.a);
        let got = ends.iter().find(|done| done.context == 2).expect("it ends");
        let wanted = if knows {
            Status::Success
        } else {
            Status::Unsupported
        };
        assert_eq!(got.status, wanted);
        if knows {
            assert_eq!(into.bytes(), pattern(300, 7)[200..]);
        }
    }
}

#[test]
fn a_region_that_goes_ends_what_its_link_has_half_of() {
    let mut pair = Pair::with_regions(true, true);
    let (b, _) = connected(&mut pair);
    let memory = pair.filled(pattern(1 << 20, 3));
    let key = pair.b.register(memory.clone(), BOTH);
    let into = pair.shared(1 << 20);
    pair.a.get(b, (key, 0), (into.clone(), 2)).unwrap();
    // The request comes, and the link takes a part of the answer.
    pair.b_works(pair::keep);
    assert!(pair.b.accesses() > 0);
    assert!(pair.b.deregister(key));
    assert_eq!((pair.b.accesses(), memory.handles()), (0, 1));
    memory.give_back();
    pair.run();
    assert_eq!(pair.a.ended(), Status::NoRegion);
    assert_eq!(pair.a.stats().refused_accesses, 1);
}

#[test]
fn a_get_that_waits_for_its_turn_has_no_time_out() {
    let mut pair = Pair::with_regions(true, true);
    let (b, _) = connected(&mut pair);
    let key = pair.b.register(pair.filled(vec![1; 1000]), BOTH);
    // As many gets as may be under way, and one more.
    pair.freeze_b = true;
    for word in 0..17 {
        let into = pair.shared(1000);
        pair.a.get(b, (key, 0), (into, word)).unwrap();
    }
    pair.run();
    pair.advance(pair::TIMEOUT + Duration::from_secs(1));
    pair.run();
    let ends = completions(&mut pair.a);
    let timed_out = ends.iter().filter(|done| done.status == Status::Timeout);
    assert_eq!(timed_out.count(), 16);
    assert!(
        ends.iter().all(|done| done.context != 16),
        "it has not begun"
    );
    pair.freeze_b = false;
    pair.run();
    assert_eq!(pair.a.ended(), Status::Success);
}
