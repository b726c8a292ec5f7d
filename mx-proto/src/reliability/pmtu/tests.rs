//! Tests of the search, on a path that passes datagrams up to a size.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// A link whose path passes datagrams up to `passes` bytes, and the present time.
struct Path {
    pmtu: Pmtu,
    passes: usize,
    now: u64,
    probes: Vec<usize>,
}

impl Path {
    fn new(max: usize, passes: usize) -> Self {
        Self {
            pmtu: Pmtu::new(max),
            passes,
            now: 100,
            probes: Vec::new(),
        }
    }

    /// Runs the search for `ms`; `talks`: the peer sends meanwhile.
    fn run(&mut self, ms: u64, talks: bool) {
        let end = self.now + ms;
        while self.now < end {
            let now = at(self.now);
            if self.pmtu.deadline().is_some_and(|due| due <= now) {
                self.pmtu.on_timer(now);
            }
            if let Some(size) = self.pmtu.next_probe(now) {
                self.probes.push(size);
                self.pmtu.on_probe_sent(now, size, 2 * MS);
                assert_eq!(self.pmtu.next_probe(now), None);
                assert!(self.pmtu.deadline() > Some(now), "of its answer");
                if size <= self.passes && talks {
                    self.pmtu.on_probed(now, size);
                }
            }
            self.now += 1;
            if talks {
                self.pmtu.on_heard();
            }
        }
    }
}

#[test]
fn below_base_size_the_minimum_is_used_and_reported() {
    let mut path = Path::new(9000, 600);
    path.run(1_000, true);
    assert!(path.pmtu.data_proven());
    assert_eq!(path.pmtu.size(), 548);
    assert_eq!(path.probes[..6], [1200, 1200, 1200, 1200, 1200, 548]);
    let black_hole = path.pmtu.take_black_hole().unwrap();
    assert_eq!(black_hole.passes, Some(548));
    assert!(black_hole.does_not < 650);
    assert!(black_hole.to_string().contains("MTU"));
    assert_eq!(path.pmtu.take_black_hole(), None);
    // The report is not repeated after the link has been suspended.
    let found = path.pmtu.found().expect("complete");
    path.pmtu = Pmtu::recalled(9000, found);
    path.run(1_000_000, true);
    assert!(path.probes.len() > 6);
    assert_eq!(path.pmtu.take_black_hole(), None);
}

#[test]
fn a_deaf_data_channel_is_reported_once_and_tried_again() {
    let mut path = Path::new(9000, 0);
    path.run(9_000, true);
    assert!(!path.pmtu.data_proven());
    assert_eq!(path.pmtu.size(), 548);
    let black_hole = path.pmtu.take_black_hole().unwrap();
    assert_eq!(black_hole.passes, None);
    assert!(black_hole.to_string().contains("blocked"));
    assert_eq!(path.probes[..5], [1200; 5]);
    assert_eq!(path.probes[5..], [548; 5]);
    path.run(9_000, true);
    assert_eq!(path.probes.len(), 20);
    assert_eq!(path.pmtu.take_black_hole(), None);
    path.passes = 9000;
    path.run(10_000, true);
    assert_eq!(path.pmtu.size(), 9000);
}

#[test]
fn below_minimum_size_datagrams_are_cut_and_not_probed() {
    for most in [547, 548] {
        let mut pmtu = Pmtu::new(9000);
        assert!(!pmtu.is_to_be_cut(548) && pmtu.is_to_be_cut(549));
        pmtu.on_too_large(at(1), most);
        assert_eq!(pmtu.is_to_be_cut(548), most < 548);
        assert!(!pmtu.is_to_be_cut(547));
        assert_eq!(pmtu.next_probe(at(1)), (most == 548).then_some(548));
        // There may be another path by then.
        assert!(most == 548 || pmtu.next_probe(at(10_001)) == Some(1200));
        pmtu.on_too_large(at(10_001), 1000);
        assert!(!pmtu.is_to_be_cut(548));
    }
}

#[test]
fn three_probes_lost_by_chance_cost_neither_size_nor_a_report() {
    for unlucky in [1472, 4052, 8972] {
        let mut path = Path::new(9000, unlucky - 1);
        // Run until something else is tried than the size lost three times.
        while !path.probes.ends_with(&[unlucky; 3]) {
            path.run(1, true);
        }
        while path.probes.ends_with(&[unlucky]) {
            path.run(1, true);
        }
        path.passes = 9000;
        path.run(1_000, true);
        assert_eq!(path.pmtu.size(), 9000);
        assert_eq!(path.pmtu.take_black_hole(), None);
    }
}

#[test]
fn unproven_sizes_above_the_minimum_are_not_used() {
    let mut path = Path::new(9000, 9000);
    assert_eq!(path.pmtu.size(), 548);
    path.run(1, true);
    assert_eq!(path.pmtu.size(), 1200);
    // The size falls back when the data channel has died.
    path.run(200, true);
    path.passes = 0;
    for _ in 0..10 {
        path.pmtu.on_heard();
        path.pmtu.on_timeout(at(path.now));
    }
    assert!(!path.pmtu.data_proven());
    assert_eq!(path.pmtu.size(), 548);
}

#[test]
fn a_peer_that_does_not_run_has_no_narrow_path() {
    let mut path = Path::new(9000, 9000);
    path.run(50, true);
    let mut path = Path {
        pmtu: Pmtu::new(9000),
        ..path
    };
    path.probes.clear();
    path.run(60_000, false);
    // Three tries, and then no probe: an idle link stays idle.
    assert_eq!(path.probes, [1200; 3]);
    assert_eq!(path.pmtu.deadline(), None);
    (0..100).for_each(|_| assert!(!path.pmtu.on_timeout(at(path.now))));
    path.run(200, true);
    assert_eq!(path.pmtu.size(), 9000);
    assert_eq!(path.pmtu.take_black_hole(), None);
}

#[test]
fn a_black_hole_brings_it_back_to_the_base_and_later_up_again() {
    let mut path = Path::new(9000, 9000);
    path.run(200, true);
    for _ in 0..4 {
        path.pmtu.on_heard();
        assert!(!path.pmtu.on_timeout(at(path.now)));
    }
    // Progress restarts the count, and silence does not count.
    path.pmtu.on_progress(true, 0);
    for _ in 0..4 {
        path.pmtu.on_heard();
        assert!(!path.pmtu.on_timeout(at(path.now)));
        assert!(!path.pmtu.on_timeout(at(path.now)));
    }
    path.pmtu.on_heard();
    assert!(path.pmtu.on_timeout(at(path.now)));
    assert_eq!(path.pmtu.size(), 1200);
    assert!(path.pmtu.data_proven());
    assert!(path.pmtu.take_black_hole().is_some());
    path.passes = 1472;
    path.probes.clear();
    path.run(9_900, true);
    assert_eq!(path.probes, []);
    path.run(1_000, true);
    assert_eq!(path.pmtu.size(), 1472);
    assert!(!path.pmtu.on_timeout(at(path.now)));
}

#[test]
fn what_the_service_knows_is_tried_at_once() {
    let mut path = Path::new(65_507, 65_507);
    path.run(200, true);
    path.passes = 1422;
    path.pmtu.on_too_large(at(path.now), 1422);
    assert_eq!(path.pmtu.size(), 1200);
    path.run(5, true);
    assert_eq!(path.pmtu.size(), 1422);
    // An equal or larger limit changes nothing.
    path.pmtu.on_too_large(at(path.now), 1422);
    path.pmtu.on_too_large(at(path.now), 9000);
    assert_eq!(path.pmtu.size(), 1422);
}
