//! Which datagrams pass on the way to a peer: RFC 8899.
//!
//! ```text
//!   548   1200   1472   4052   8972   16 Ki   32 Ki   65 507     bytes of UDP payload
//!    |      |      `------ ladder, cut to what the service takes --'
//!    |    base     then three steps by halves between the last that passed and the first that
//!  last resort     did not
//!
//!   unproven --1200 or 548 answered--> searching --nothing more to try--> settled
//!      |  ^                             ^      ^                             |
//!      v  | 10 s                   10 s |      +----------- 600 s -----------+
//!   nothing passes                    black hole: back to the base
//! ```
//!
//! A size fails when three probes of it were lost. A probe, or a time-out, counts only if the peer
//! was heard meanwhile: one that does not run for a moment has no narrow way. After three without a
//! word from it nothing is tried until it is heard again.
//!
//! Owns: the sizes, the tries. Knows nothing of: how a probe looks, addresses.

use crate::time::Instant;
use std::fmt;
use std::time::Duration;

/// The search of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pmtu {
    /// What the service takes.
    max: u32,
    /// What segments are cut to: passes, or is not known not to.
    good: u32,
    /// The least that is known not to pass; more than `max`: none.
    bad: u32,
    /// Something has been answered on the data channel.
    proven: bool,
    probe: Probe,
    /// Steps by halves that are left.
    halves: u8,
    /// Time-outs, with the peer heard before each, since its cumulative acknowledgement last moved.
    timeouts: u8,
    /// The peer has been heard since the last time-out.
    heard: bool,
    complaint: Complaining,
}

/// What is tried now.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// One of this size is to go out.
    Wanted { size: u32, tries: Tries },
    /// One is out; it is lost at `lost_at`.
    Out {
        size: u32,
        tries: Tries,
        lost_at: Instant,
        /// The peer has been heard since.
        heard: bool,
    },
    /// The peer says nothing at all. When it does, this size is tried again.
    Waiting { size: u32 },
    /// Until then nothing is tried. `None`: ever.
    Settled { until: Option<Instant> },
}

#[derive(Clone, Copy, Default, Debug)]
struct Tries {
    /// Lost although the peer was heard.
    lost: u8,
    /// Not answered by a peer that said nothing else either.
    silent: u8,
}

#[derive(Clone, Copy, Debug)]
enum Complaining {
    No,
    Due(Complaint),
    Done,
}

/// Small datagrams pass and large ones do not. For the log, once a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Complaint {
    /// The largest that passes on the data channel; `None`: nothing does.
    pub(super) passes: Option<usize>,
    /// One that does not.
    pub(super) does_not: usize,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does_not = self.does_not;
        match self.passes {
            Some(passes) => write!(
                f,
                "datagrams of {passes} bytes pass and of {does_not} bytes do not: \
                 is the MTU smaller somewhere on the way than its ends believe?"
            ),
            None => write!(
                f,
                "the command channel answers and the data channel does not, not even to datagrams \
                 of {does_not} bytes: is one of the two ports blocked?"
            ),
        }
    }
}

impl Pmtu {
    /// Nothing is proven; datagrams never exceed `max`, which is at least 548.
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX).max(RESORT);
        let base = BASE.min(max);
        Self {
            max,
            good: base,
            bad: u32::MAX,
            proven: false,
            probe: Probe::wanted(base),
            halves: HALVES,
            timeouts: 0,
            heard: false,
            complaint: Complaining::No,
        }
    }

    /// The largest datagram to be sent.
    pub(super) fn size(&self) -> usize {
        self.good as usize
    }

    /// A probe of this size is to go out on the data channel now.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<usize> {
        self.on_timer(now);
        match self.probe {
            Probe::Wanted { size, .. } => Some(size as usize),
            _ => None,
        }
    }

    /// It went out. Without an answer for `timeout` it is lost.
    pub(super) fn on_probe_sent(&mut self, now: Instant, size: usize, timeout: Duration) {
        if let Probe::Wanted {
            size: wanted,
            tries,
        } = self.probe
            && wanted as usize == size
        {
            let patience = timeout.max(PATIENCE) * (1 << tries.silent.min(4));
            self.probe = Probe::Out {
                size: wanted,
                tries,
                lost_at: now.after(patience),
                heard: false,
            };
        }
    }

    /// A probe of this size was answered. Whoever answers what was never sent gains nothing: only
    /// the size that is being tried counts.
    pub(super) fn on_probed(&mut self, now: Instant, size: usize) {
        let tried = match self.probe {
            Probe::Out { size, .. } | Probe::Wanted { size, .. } | Probe::Waiting { size } => size,
            Probe::Settled { .. } => return,
        };
        if tried as usize != size {
            return;
        }
        self.proven = true;
        self.good = tried;
        self.search(now);
    }

    /// The service says that nothing larger than `most` passes. Anybody may have made it believe
    /// that: at worst we fall back to the base and try this very size.
    pub(super) fn on_too_large(&mut self, now: Instant, most: usize) {
        let most = u32::try_from(most)
            .unwrap_or(u32::MAX)
            .clamp(RESORT, self.max);
        if most >= self.bad {
            return;
        }
        self.bad = most.saturating_add(1);
        if most < self.good {
            self.good = if most < BASE { RESORT } else { BASE };
        }
        self.probe = match most > self.good || !self.proven {
            true => Probe::wanted(most.max(self.good)),
            false => Probe::Settled {
                until: Some(now.after(AGAIN)),
            },
        };
    }

    /// The retransmission timer fired. True: that was once too often without progress although the
    /// peer is there, and the size has fallen to the base. Segments that are larger can only pass if
    /// the network layer cuts them.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        let base = BASE.min(self.max);
        let heard = std::mem::take(&mut self.heard);
        self.timeouts = self.timeouts.saturating_add(u8::from(heard));
        if self.timeouts < BLACK_HOLE {
            return false;
        }
        if self.good <= base {
            self.timeouts = 0;
            if self.proven {
                // Not even that passes any more: the command channel takes over.
                self.complain(None, self.good);
                self.proven = false;
                self.probe = Probe::wanted(base);
                return false;
            }
            // Nor there.
            self.good = RESORT;
            return base > RESORT;
        }
        self.complain(Some(base), self.good);
        self.timeouts = 0;
        (self.good, self.bad, self.halves) = (base, u32::MAX, HALVES);
        self.probe = Probe::Settled {
            until: Some(now.after(AFTER_BLACK_HOLE)),
        };
        true
    }

    /// Anything valid came from the peer.
    pub(super) fn on_heard(&mut self) {
        self.heard = true;
        match &mut self.probe {
            Probe::Out { heard, .. } => *heard = true,
            Probe::Waiting { size } => self.probe = Probe::wanted(*size),
            Probe::Wanted { .. } | Probe::Settled { .. } => {}
        }
    }

    /// The cumulative acknowledgement has moved: what we send does pass.
    pub(super) fn on_progress(&mut self) {
        self.on_heard();
        self.timeouts = 0;
    }

    /// When [`Self::on_timer`] has something to do. A probe that is wanted goes with the next pass
    /// of sending.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.probe {
            Probe::Out { lost_at, .. } => Some(lost_at),
            Probe::Settled { until } => until,
            Probe::Wanted { .. } | Probe::Waiting { .. } => None,
        }
    }

    /// Time has passed.
    pub(super) fn on_timer(&mut self, now: Instant) {
        match self.probe {
            Probe::Out {
                size,
                tries,
                lost_at,
                heard,
            } if lost_at <= now => self.on_lost(now, size, tries, heard),
            Probe::Settled { until: Some(until) } if until <= now => {
                (self.bad, self.halves) = (u32::MAX, HALVES);
                match self.proven {
                    true => self.search(now),
                    false => self.probe = Probe::wanted(self.good),
                }
            }
            _ => {}
        }
    }

    fn on_lost(&mut self, now: Instant, size: u32, mut tries: Tries, heard: bool) {
        if heard {
            tries.lost += 1;
        } else {
            tries.silent += 1;
        }
        if tries.lost >= TRIES {
            self.on_failed(now, size);
        } else if tries.silent >= TRIES {
            self.probe = Probe::Waiting { size };
        } else {
            self.probe = Probe::Wanted { size, tries };
        }
    }

    /// Nothing of this size passes.
    fn on_failed(&mut self, now: Instant, size: u32) {
        self.bad = self.bad.min(size);
        if size > self.good && self.proven {
            return self.search(now);
        }
        if size > RESORT {
            // Not even the base.
            self.good = RESORT;
            self.probe = Probe::wanted(RESORT);
            return;
        }
        self.complain(None, RESORT);
        self.good = BASE.min(self.max);
        self.bad = u32::MAX;
        self.probe = Probe::Settled {
            until: Some(now.after(AFTER_BLACK_HOLE)),
        };
    }

    /// What next, after an answer or a failure above what is good.
    fn search(&mut self, now: Instant) {
        if self.bad <= BASE && self.good == RESORT {
            self.complain(Some(RESORT), self.bad);
        }
        let next = LADDER.into_iter().find(|rung| *rung > self.good);
        let next = next.unwrap_or(self.max).min(self.max);
        if self.good >= self.max {
            self.probe = Probe::Settled { until: None };
        } else if next < self.bad {
            self.probe = Probe::wanted(next);
        } else if self.halves > 0 && self.bad - self.good > CLOSE {
            self.halves -= 1;
            self.probe = Probe::wanted(self.good + (self.bad - self.good) / 2);
        } else {
            self.probe = Probe::Settled {
                until: Some(now.after(AGAIN)),
            };
        }
    }

    /// A probe on the data channel has been answered: it may be used.
    pub(super) fn data_proven(&self) -> bool {
        self.proven
    }

    fn complain(&mut self, passes: Option<u32>, does_not: u32) {
        if matches!(self.complaint, Complaining::No) {
            self.complaint = Complaining::Due(Complaint {
                passes: passes.map(|passes| passes as usize),
                does_not: does_not as usize,
            });
        }
    }

    /// What is to be logged, once.
    pub(super) fn take_complaint(&mut self) -> Option<Complaint> {
        let Complaining::Due(complaint) = self.complaint else {
            return None;
        };
        self.complaint = Complaining::Done;
        Some(complaint)
    }
}

impl Probe {
    fn wanted(size: u32) -> Self {
        Self::Wanted {
            size,
            tries: Tries::default(),
        }
    }
}

/// What nearly every way takes: RFC 8899 and QUIC start with it.
const BASE: u32 = 1200;

/// What every IPv4 way takes: 576 bytes less headers.
const RESORT: u32 = 548;

/// What ways are made of: Ethernet, 4 KiB InfiniBand, jumbo frames, and what the network layer cuts
/// up for us or a virtual network takes.
const LADDER: [u32; 6] = [1472, 4052, 8972, 16 << 10, 32 << 10, 65_507];

/// Probes of a size that must be lost: RFC 8899's MAX_PROBES.
const TRIES: u8 = 3;

/// Least patience with a probe: a peer's wake-up, not only the way.
const PATIENCE: Duration = Duration::from_millis(5);

/// Steps by halves: they leave at most an eighth of the gap between two rungs.
const HALVES: u8 = 3;

/// Not worth a probe.
const CLOSE: u32 = 16;

/// Time-outs in a row after which large datagrams are taken not to pass any more. Chance does that
/// once in 3 000 times even where every fifth datagram is lost.
const BLACK_HOLE: u8 = 5;

/// After a black hole, or when nothing passed: as long as a route takes to settle.
const AFTER_BLACK_HOLE: Duration = Duration::from_secs(10);

/// When a way may have become wider: RFC 8899's PMTU_RAISE_TIMER.
const AGAIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// A link whose way passes `way` bytes, at a moment.
    struct Way {
        pmtu: Pmtu,
        passes: usize,
        now: u64,
        probes: Vec<usize>,
    }

    impl Way {
        fn new(max: usize, passes: usize) -> Self {
            Self {
                pmtu: Pmtu::new(max),
                passes,
                now: 100,
                probes: Vec::new(),
            }
        }

        /// Lets the search go on for `ms`; the peer talks meanwhile or not.
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

        fn found(max: usize, passes: usize) -> usize {
            let mut way = Self::new(max, passes);
            way.run(2_000, true);
            assert!(way.pmtu.data_proven());
            assert!(way.pmtu.size() <= passes.min(max));
            way.pmtu.size()
        }
    }

    #[test]
    fn usual_ways_are_found_exactly() {
        for rung in [1200, 1472, 4052, 8972, 16 << 10, 32 << 10, 65_507] {
            assert_eq!(Way::found(65_507, rung), rung);
            assert_eq!(Way::found(rung, 65_507), rung);
        }
    }

    #[test]
    fn other_ways_are_found_within_an_eighth_of_the_gap() {
        for passes in (1201..1472).step_by(13) {
            assert!(Way::found(1472, passes) + 272 / 8 + 16 > passes);
        }
        for passes in (4053..8972).step_by(101) {
            assert!(Way::found(65_507, passes) + 4920 / 8 + 16 > passes);
        }
        assert_eq!(Way::found(1400, 1400), 1400);
        assert_eq!(Way::found(548, 9000), 548);
        assert_eq!(Pmtu::new(0).size(), 548);
    }

    #[test]
    fn where_not_even_the_base_passes_the_last_resort_does_and_the_cause_is_named() {
        let mut way = Way::new(9000, 600);
        way.run(1_000, true);
        assert!(way.pmtu.data_proven());
        assert_eq!(way.pmtu.size(), 548);
        let complaint = way.pmtu.take_complaint().unwrap();
        assert_eq!(complaint.passes, Some(548));
        assert_eq!(complaint.does_not, 1200);
        assert!(complaint.to_string().contains("MTU"));
        assert_eq!(way.pmtu.take_complaint(), None);
    }

    #[test]
    fn a_deaf_data_channel_is_complained_of_once_and_tried_again() {
        let mut way = Way::new(9000, 0);
        way.run(9_000, true);
        assert!(!way.pmtu.data_proven());
        assert_eq!(way.pmtu.size(), 1200);
        let complaint = way.pmtu.take_complaint().unwrap();
        assert_eq!(complaint.passes, None);
        assert!(complaint.to_string().contains("blocked"));
        assert_eq!(way.probes, [1200, 1200, 1200, 548, 548, 548]);
        way.run(9_000, true);
        assert_eq!(way.probes.len(), 12);
        assert_eq!(way.pmtu.take_complaint(), None);
        way.passes = 9000;
        way.run(10_000, true);
        assert_eq!(way.pmtu.size(), 9000);
    }

    #[test]
    fn a_size_is_tried_three_times() {
        let mut way = Way::new(9000, 1472);
        way.run(1_000, true);
        let of = |size| way.probes.iter().filter(|probe| **probe == size).count();
        assert_eq!((of(1200), of(1472), of(4052)), (1, 1, 3));
        assert_eq!(way.probes.len(), 1 + 1 + 3 + 3 * 3);
    }

    #[test]
    fn a_peer_that_does_not_run_has_no_narrow_way() {
        let mut way = Way::new(9000, 9000);
        way.run(50, true);
        let mut way = Way {
            pmtu: Pmtu::new(9000),
            ..way
        };
        way.probes.clear();
        way.run(60_000, false);
        // Three tries, and then not a word: an idle link stays idle.
        assert_eq!(way.probes, [1200; 3]);
        assert_eq!(way.pmtu.deadline(), None);
        (0..100).for_each(|_| assert!(!way.pmtu.on_timeout(at(way.now))));
        way.run(200, true);
        assert_eq!(way.pmtu.size(), 9000);
        assert_eq!(way.pmtu.take_complaint(), None);
    }

    #[test]
    fn a_settled_link_asks_again_after_ten_minutes() {
        let mut way = Way::new(9000, 1472);
        way.run(1_000, true);
        let before = way.probes.len();
        way.run(590_000, true);
        assert_eq!(way.probes.len(), before);
        way.passes = 9000;
        way.run(20_000, true);
        assert_eq!(way.pmtu.size(), 9000);
        // There is nothing above it.
        assert_eq!(way.pmtu.deadline(), None);
    }

    #[test]
    fn a_black_hole_brings_it_back_to_the_base_and_later_up_again() {
        let mut way = Way::new(9000, 9000);
        way.run(200, true);
        for _ in 0..4 {
            way.pmtu.on_heard();
            assert!(!way.pmtu.on_timeout(at(way.now)));
        }
        // Progress begins the count anew, and silence does not count.
        way.pmtu.on_progress();
        for _ in 0..4 {
            way.pmtu.on_heard();
            assert!(!way.pmtu.on_timeout(at(way.now)));
            assert!(!way.pmtu.on_timeout(at(way.now)));
        }
        way.pmtu.on_heard();
        assert!(way.pmtu.on_timeout(at(way.now)));
        assert_eq!(way.pmtu.size(), 1200);
        assert!(way.pmtu.data_proven());
        assert!(way.pmtu.take_complaint().is_some());
        way.passes = 1472;
        way.probes.clear();
        way.run(9_900, true);
        assert_eq!(way.probes, []);
        way.run(1_000, true);
        assert_eq!(way.pmtu.size(), 1472);
        assert!(!way.pmtu.on_timeout(at(way.now)));
    }

    #[test]
    fn what_the_service_knows_is_tried_at_once() {
        let mut way = Way::new(65_507, 65_507);
        way.run(200, true);
        way.passes = 1422;
        way.pmtu.on_too_large(at(way.now), 1422);
        assert_eq!(way.pmtu.size(), 1200);
        way.run(5, true);
        assert_eq!(way.pmtu.size(), 1422);
        // The same again, or more, is no news.
        way.pmtu.on_too_large(at(way.now), 1422);
        way.pmtu.on_too_large(at(way.now), 9000);
        assert_eq!(way.pmtu.size(), 1422);
    }

    #[test]
    fn a_lying_service_costs_no_more_than_small_datagrams() {
        for most in [0, 1, 547, 548, 1199, 1200, 1201, usize::MAX] {
            let mut way = Way::new(9000, 9000);
            way.run(200, true);
            way.pmtu.on_too_large(at(way.now), most);
            assert!(way.pmtu.size() >= 548);
            way.run(700_000, true);
            assert_eq!(way.pmtu.size(), 9000, "after {most}");
        }
    }

    #[test]
    fn answers_to_what_was_not_asked_count_for_nothing() {
        let mut pmtu = Pmtu::new(9000);
        for size in [0, 548, 9000, 65_507, usize::MAX] {
            pmtu.on_probed(at(1), size);
        }
        assert!(!pmtu.data_proven());
        assert_eq!((pmtu.size(), pmtu.next_probe(at(1))), (1200, Some(1200)));
        pmtu.on_probe_sent(at(1), 1200, MS);
        pmtu.on_probed(at(2), 1200);
        pmtu.on_probed(at(2), 1200);
        assert_eq!((pmtu.size(), pmtu.next_probe(at(2))), (1200, Some(1472)));
    }
}
