//! Path MTU discovery by probes: RFC 8899 (RFC 4821 for datagrams).
//!
//! ```text
//!   548   1200   1472   4052   8972   16 Ki   32 Ki   65 507     bytes of UDP payload
//!    |      |      `---- ladder, limited to what the service takes -'
//!    |    base     then three bisections between the largest that passed and the smallest that
//!  used until      did not, and the latter once more
//!  more is proven
//!
//!   unproven --1200 or 548 answered--> searching --nothing more to try--> complete
//!      |  ^                             ^      ^                             |
//!      v  | 10 s                   10 s |      +----------- 600 s -----------+
//!   nothing passes                    black hole: back to the base
//! ```
//!
//! A size fails after several lost probes. A lost probe or a time-out counts only if a datagram came from the peer
//! meanwhile, because a peer that does not run for a moment must not look like a narrow path. After three probes
//! without a datagram from the peer the search stops until one comes.
//!
//! A size that the service reports as too large is accepted as the path's limit. If probes just vanish, the path is
//! narrower than it claims: a PMTU black hole (RFC 4821, 8899).
//!
//! Owns: the sizes, the tries.
//! Out of scope: addresses.

mod black_hole;

use crate::time::Instant;
pub(super) use black_hole::BlackHole;
use std::time::Duration;

/// Search of one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pmtu {
    max: u32,
    /// Size of datagrams: one that passes on the data channel, or the minimum. Never larger, because segments are cut
    /// only once.
    good: u32,
    /// Smallest size known not to pass; more than `max`: none is known.
    bad: u32,
    /// Reason why `bad` counts as too large.
    why: Why,
    /// Largest size that passes unfragmented, if the service reports that not even the minimum does; otherwise
    /// `u32::MAX`.
    whole: u32,
    /// Whether a probe has been answered on the data channel.
    proven: bool,
    probe: Probe,
    halves: u8,
    /// Time-outs, each with the peer heard before it, since its cumulative acknowledgement last moved.
    timeouts: u8,
    /// Whether the peer has been heard since the last time-out.
    heard: bool,
    /// Black hole to be logged; `reported`: whether one has been found, because only the first is logged.
    black_hole: Option<BlackHole>,
    reported: bool,
}

/// Result of a search, kept by a suspended link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    good: u32,
    /// Time of the next search; `None`: never.
    until: Option<Instant>,
    reported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// The service reported it.
    Told,
    /// [`TRIES`] probes were lost, perhaps at random.
    Lost,
    /// Probes were lost; the size is being tried once more, or has been.
    LostAgain,
}

#[derive(Clone, Copy, Debug)]
enum Probe {
    /// A probe of this size is to be sent.
    Wanted { size: u32, tries: Tries },
    /// A probe has been sent; it is lost at `lost_at`.
    Out {
        size: u32,
        tries: Tries,
        lost_at: Instant,
        /// Whether the peer has been heard since.
        heard: bool,
    },
    /// The peer is silent. This size is tried again when it is heard.
    Waiting { size: u32 },
    /// The search is over until this time; `None`: for good.
    Complete { until: Option<Instant> },
}

#[derive(Clone, Copy, Default, Debug)]
struct Tries {
    /// Number of probes lost although the peer was heard.
    lost: u8,
    /// Number of probes lost while the peer was silent.
    silent: u8,
}

impl Pmtu {
    /// Begins a search with nothing proven. Datagrams never exceed `max`, which is at least 548.
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max).unwrap_or(u32::MAX).max(RESORT);
        let base = BASE.min(max);
        Self {
            max,
            good: RESORT,
            bad: u32::MAX,
            why: Why::Told,
            whole: u32::MAX,
            proven: false,
            probe: Probe::wanted(base),
            halves: HALVES,
            timeouts: 0,
            heard: false,
            black_hole: None,
            reported: false,
        }
    }

    /// Returns the result of the search. `None`: it is not over, or a black hole has not been logged yet.
    pub(super) fn found(&self) -> Option<Found> {
        let Probe::Complete { until } = self.probe else {
            return None;
        };
        (self.proven && self.black_hole.is_none()).then_some(Found {
            good: self.good,
            until,
            reported: self.reported,
        })
    }

    /// Begins with the result of a suspended link's search.
    pub(super) fn recalled(max: usize, found: Found) -> Self {
        Self {
            good: found.good,
            proven: true,
            probe: Probe::Complete { until: found.until },
            halves: 0,
            reported: found.reported,
            ..Self::new(max)
        }
    }

    pub(super) fn size(&self) -> usize {
        self.good as usize
    }

    /// Returns whether a datagram of this size passes only if the network layer fragments it.
    pub(super) fn is_to_be_cut(&self, size: usize) -> bool {
        size > self.good.min(self.whole) as usize
    }

    /// Returns the size of the probe to send on the data channel now, if one is due.
    pub(super) fn next_probe(&mut self, now: Instant) -> Option<usize> {
        self.on_timer(now);
        match self.probe {
            Probe::Wanted { size, .. } => Some(size as usize),
            _ => None,
        }
    }

    /// Records that a probe was sent. Without an answer for `timeout` it is lost.
    pub(super) fn on_probe_sent(&mut self, now: Instant, size: usize, timeout: Duration) {
        if let Probe::Wanted {
            size: wanted,
            tries,
        } = self.probe
            && wanted as usize == size
        {
            let probe_timeout = timeout.max(PROBE_TIMEOUT_MIN) * (1 << tries.silent.min(4));
            self.probe = Probe::Out {
                size: wanted,
                tries,
                lost_at: now.after(probe_timeout),
                heard: false,
            };
        }
    }

    /// Handles the answer to a probe. A forged answer gains nothing, because only the size being tried counts.
    pub(super) fn on_probed(&mut self, now: Instant, size: usize) {
        let tried = match self.probe {
            Probe::Out { size, .. } | Probe::Wanted { size, .. } | Probe::Waiting { size } => size,
            Probe::Complete { .. } => return,
        };
        if tried as usize != size {
            return;
        }
        self.proven = true;
        self.good = tried;
        self.whole = u32::MAX;
        if tried >= self.bad {
            // The earlier failure was random loss.
            (self.bad, self.halves) = (u32::MAX, HALVES);
        }
        self.search(now);
    }

    /// Handles a report that nothing larger than `most` passes. If an attacker on the path forged it, the size falls
    /// back to the base at worst, and this very size is tried.
    pub(super) fn on_too_large(&mut self, now: Instant, most: usize) {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.whole = if most < RESORT { most } else { u32::MAX };
        let most = most.clamp(RESORT, self.max);
        if most >= self.bad {
            return;
        }
        (self.bad, self.why) = (most.saturating_add(1), Why::Told);
        if most < self.good {
            self.good = if most < BASE { RESORT } else { BASE };
        }
        self.probe = if most > self.good {
            Probe::wanted(most)
        } else if self.proven {
            Probe::Complete {
                until: Some(now.after(AGAIN)),
            }
        } else if self.whole >= RESORT {
            Probe::wanted(self.good)
        } else {
            // Not even the smallest probe is small enough.
            Probe::Complete {
                until: Some(now.after(AFTER_BLACK_HOLE)),
            }
        };
    }

    /// Handles a retransmission time-out. Returns true if there were too many without progress although the peer is
    /// alive: the size has fallen to the base. Larger segments can then pass only if the network layer fragments them.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        let base = BASE.min(self.max);
        let heard = std::mem::take(&mut self.heard);
        self.timeouts = self.timeouts.saturating_add(u8::from(heard));
        if self.timeouts < BLACK_HOLE {
            return false;
        }
        self.timeouts = 0;
        if self.good <= base {
            if !self.proven {
                return false;
            }
            // Not even this size passes any more: the command channel takes over.
            self.report(None, self.good);
            self.proven = false;
            (self.bad, self.halves) = (u32::MAX, HALVES);
            self.probe = Probe::wanted(base);
            return std::mem::replace(&mut self.good, RESORT) > RESORT;
        }
        self.report(Some(base), self.good);
        (self.good, self.bad, self.halves) = (base, u32::MAX, HALVES);
        self.probe = Probe::Complete {
            until: Some(now.after(AFTER_BLACK_HOLE)),
        };
        true
    }

    /// Records that a valid datagram came from the peer.
    pub(super) fn on_heard(&mut self) {
        self.heard = true;
        match &mut self.probe {
            Probe::Out { heard, .. } => *heard = true,
            Probe::Waiting { size } => self.probe = Probe::wanted(*size),
            Probe::Wanted { .. } | Probe::Complete { .. } => {}
        }
    }

    /// Handles progress: the cumulative acknowledgement moved, or a segment of `largest` bytes arrived, which counts if
    /// no larger one is sent.
    pub(super) fn on_progress(&mut self, moved: bool, largest: usize) {
        if moved || largest >= self.size() {
            self.on_heard();
            self.timeouts = 0;
        }
    }

    /// Returns the time at which [`Self::on_timer`] has something to do. A due probe is sent in the next pass.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.probe {
            Probe::Out { lost_at, .. } => Some(lost_at),
            Probe::Complete { until } => until,
            Probe::Wanted { .. } | Probe::Waiting { .. } => None,
        }
    }

    /// Handles a lost probe or the time of the next search.
    pub(super) fn on_timer(&mut self, now: Instant) {
        match self.probe {
            Probe::Out {
                size,
                tries,
                lost_at,
                heard,
            } if lost_at <= now => self.on_lost(now, size, tries, heard),
            Probe::Complete { until: Some(until) } if until <= now => {
                (self.bad, self.halves) = (u32::MAX, HALVES);
                if self.proven {
                    self.search(now);
                } else {
                    self.probe = Probe::wanted(BASE.min(self.max));
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
        } else if tries.silent >= SILENT {
            self.probe = Probe::Waiting { size };
        } else {
            self.probe = Probe::Wanted { size, tries };
        }
    }

    /// Handles the failure of a size.
    fn on_failed(&mut self, now: Instant, size: u32) {
        if size < self.bad {
            (self.bad, self.why) = (size, Why::Lost);
        }
        if self.proven {
            return self.search(now);
        }
        if size > RESORT {
            self.probe = Probe::wanted(RESORT);
            return;
        }
        self.report(None, RESORT);
        self.bad = u32::MAX;
        self.probe = Probe::Complete {
            until: Some(now.after(AFTER_BLACK_HOLE)),
        };
    }

    /// Begins the next step, after an answer or a failure above the good size.
    fn search(&mut self, now: Instant) {
        let next = LADDER.into_iter().find(|rung| *rung > self.good);
        let next = next.unwrap_or(self.max).min(self.max);
        if self.good >= self.max {
            self.probe = Probe::Complete { until: None };
        } else if next < self.bad {
            self.probe = Probe::wanted(next);
        } else if self.halves > 0 && self.bad - self.good > CLOSE {
            self.halves -= 1;
            self.probe = Probe::wanted(self.good + (self.bad - self.good) / 2);
        } else if self.why == Why::Lost {
            self.why = Why::LostAgain;
            self.probe = Probe::wanted(self.bad);
        } else {
            if self.why == Why::LostAgain {
                self.report(Some(self.good), self.bad);
            }
            self.probe = Probe::Complete {
                until: Some(now.after(AGAIN)),
            };
        }
    }

    /// Returns whether a probe on the data channel has been answered, so that the channel may be used.
    pub(super) fn data_proven(&self) -> bool {
        self.proven
    }

    /// Takes the black hole to be logged; it is returned once.
    pub(super) fn take_black_hole(&mut self) -> Option<BlackHole> {
        self.black_hole.take()
    }

    fn report(&mut self, passes: Option<u32>, does_not: u32) {
        if !std::mem::replace(&mut self.reported, true) {
            self.black_hole = Some(BlackHole { passes, does_not });
        }
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

/// Size that nearly every path carries: RFC 8899 and QUIC start with it.
const BASE: u32 = 1200;

/// Size that every IPv4 path carries: 576 bytes less headers. Used until more is proven: if the base does not pass and
/// nothing reports that, no segment of that size would ever arrive.
const RESORT: u32 = 548;

/// Usual sizes of paths: the base, Ethernet, 4 KiB InfiniBand, jumbo frames, and those of virtual networks or of
/// fragmentation.
const LADDER: [u32; 7] = [BASE, 1472, 4052, 8972, 16 << 10, 32 << 10, 65_507];

/// Number of lost probes after which a size fails. RFC 8899's MAX_PROBES is 3; where every fifth datagram is lost in
/// either direction, one of 20 sizes that do pass would fail.
const TRIES: u8 = 5;

/// Number of probes without a datagram from the peer after which the search waits for one.
const SILENT: u8 = 3;

/// Shortest time-out of a probe, which includes a peer's wake-up.
const PROBE_TIMEOUT_MIN: Duration = Duration::from_millis(5);

/// Number of bisections: they leave at most an eighth of the gap between two sizes of the ladder.
const HALVES: u8 = 3;

/// Difference in bytes that is not worth a probe.
const CLOSE: u32 = 16;

/// Number of time-outs in a row after which large datagrams are taken not to pass any more. Random loss does that once
/// in 3 000 times even where every fifth datagram is lost.
const BLACK_HOLE: u8 = 5;

/// Pause after a black hole, or if nothing passed: as long as a route takes to converge.
const AFTER_BLACK_HOLE: Duration = Duration::from_secs(10);

/// Time after which a path may have become wider: RFC 8899's PMTU_RAISE_TIMER.
const AGAIN: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests;
