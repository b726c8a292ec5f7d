//! One direction between two nodes, with everything that can go wrong on it.
//!
//! ```text
//!   offer --> script --> queue (drop-tail) --> loss --> corrupt one bit --> latency + jitter --> 0..2
//!             decides    bandwidth                      duplicate           reorder: held back  arrivals
//! ```
//!
//! Knows nothing of: who sends, what the bytes mean.

use crate::rng::Rng;
use mx_proto::Instant;
use std::fmt;
use std::time::Duration;

/// What is wrong with a link, and how fast it is. Probabilities are between 0 and 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// How long everything takes.
    pub latency: Duration,
    /// How much longer it takes at most.
    pub jitter: Duration,
    /// How likely a datagram gets lost.
    pub loss: f64,
    /// How likely it arrives twice.
    pub duplicate: f64,
    /// How likely it is held back so that later ones overtake it.
    pub reorder: f64,
    /// How likely one of its bits is turned.
    pub corrupt: f64,
    /// Largest datagram that gets through.
    pub size_limit: usize,
    /// Bytes a second; `None`: no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that wait for their turn at most; the rest is lost.
    pub queue: usize,
}

impl Default for Faults {
    /// A good local network.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(20),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            size_limit: usize::MAX,
            bandwidth: None,
            queue: usize::MAX,
        }
    }
}

impl Faults {
    /// Something between perfect and terrible.
    pub fn random(rng: &mut Rng) -> Self {
        let mut some = |most: f64| {
            if rng.chance(0.5) {
                0.0
            } else {
                most * rng.below(1000) as f64 / 1e3
            }
        };
        let (loss, duplicate, reorder, corrupt) = (some(0.2), some(0.2), some(0.3), some(0.05));
        let latency = Duration::from_micros(rng.pick(&[1, 20, 200, 5_000]));
        let bandwidth = rng
            .chance(0.3)
            .then(|| rng.pick(&[2_000_000, 20_000_000, 1_000_000_000]));
        Self {
            latency,
            jitter: if rng.chance(0.5) {
                latency
            } else {
                Duration::ZERO
            },
            loss,
            duplicate,
            reorder,
            corrupt,
            size_limit: usize::MAX,
            bandwidth,
            queue: rng.pick(&[64 << 10, 1 << 20]),
        }
    }
}

/// What a script wants to happen to one datagram, before chance has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Whatever chance says.
    Chance,
    /// It arrives, whatever chance says.
    Pass,
    /// It is lost.
    Drop,
    /// It arrives this much later than it would.
    Hold(Duration),
    /// It arrives twice.
    Twice,
}

/// Looks at a datagram and decides.
pub type Script = Box<dyn FnMut(&[u8]) -> Fate>;

/// One direction.
pub struct Link {
    faults: Faults,
    rng: Rng,
    script: Option<Script>,
    /// When the last byte accepted will have left.
    busy_until: Instant,
    cut: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// What became of one datagram.
#[derive(Debug)]
pub struct Offered {
    /// In a word, for the log.
    pub fate: &'static str,
    /// When what arrives; at most two.
    pub arrivals: Vec<(Instant, Vec<u8>)>,
}

impl Link {
    /// A link with these faults, whose chance comes from `rng`.
    pub fn new(faults: Faults, rng: Rng) -> Self {
        Self {
            faults,
            rng,
            script: None,
            busy_until: Instant::default(),
            cut: false,
        }
    }

    /// Changes the faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Asks `script` about every datagram from now on.
    pub fn set_script(&mut self, script: Option<Script>) {
        self.script = script;
    }

    /// Loses everything from now on, or stops doing so.
    pub fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Sends one datagram on its way.
    pub fn offer(&mut self, now: Instant, bytes: &[u8]) -> Offered {
        let lost = |fate| Offered {
            fate,
            arrivals: Vec::new(),
        };
        let fate = self
            .script
            .as_mut()
            .map_or(Fate::Chance, |script| script(bytes));
        if self.cut {
            return lost("cut off");
        }
        if bytes.len() > self.faults.size_limit {
            return lost("too large");
        }
        let Some(left_at) = self.pass_queue(now, bytes.len()) else {
            return lost("queue full");
        };
        let by_chance = fate == Fate::Chance;
        if fate == Fate::Drop || (by_chance && self.rng.chance(self.faults.loss)) {
            return lost("lost");
        }
        let mut fate_word = "passed";
        let mut payload = bytes.to_vec();
        if by_chance && !payload.is_empty() && self.rng.chance(self.faults.corrupt) {
            let bit = self.rng.index(payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
            fate_word = "corrupted";
        }
        let mut at = self.arrival(left_at);
        if let Fate::Hold(span) = fate {
            at = at.after(span);
            fate_word = "held back";
        }
        let mut arrivals = vec![(at, payload)];
        if fate == Fate::Twice || (by_chance && self.rng.chance(self.faults.duplicate)) {
            let again = self.arrival(left_at);
            let copy = arrivals[0].1.clone();
            arrivals.push((again, copy));
            fate_word = "doubled";
        }
        Offered {
            fate: fate_word,
            arrivals,
        }
    }

    /// When the last byte leaves; `None` when the queue is full.
    fn pass_queue(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let Some(bandwidth) = self.faults.bandwidth else {
            return Some(now);
        };
        let start = self.busy_until.max(now);
        let waiting = start.since(now).as_secs_f64() * bandwidth as f64;
        if waiting + len as f64 > self.faults.queue as f64 {
            return None;
        }
        let nanos = (len as u64).saturating_mul(1_000_000_000) / bandwidth.max(1);
        self.busy_until = start.after(Duration::from_nanos(nanos));
        Some(self.busy_until)
    }

    fn arrival(&mut self, left_at: Instant) -> Instant {
        let mut at = left_at
            .after(self.faults.latency)
            .after(self.rng.span(self.faults.jitter));
        if self.rng.chance(self.faults.reorder) {
            let held = self.faults.latency.max(Duration::from_micros(10)) * 2;
            at = at.after(self.rng.span(held));
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(faults: Faults) -> Link {
        Link::new(faults, Rng::new(3))
    }

    fn arrived(link: &mut Link, count: usize) -> usize {
        (0..count)
            .map(|_| link.offer(Instant(0), b"datagram").arrivals.len())
            .sum()
    }

    #[test]
    fn a_good_link_delivers_everything_once_and_unchanged_after_the_latency() {
        let offered = link(Faults::default()).offer(Instant(7), b"abc");
        assert_eq!(offered.arrivals, [(Instant(20_007), b"abc".to_vec())]);
    }

    #[test]
    fn loss_and_duplication_happen_about_as_often_as_asked_for() {
        let lossy = arrived(
            &mut link(Faults {
                loss: 0.2,
                ..Faults::default()
            }),
            10_000,
        );
        assert!((7_700..8_300).contains(&lossy), "{lossy}");
        let doubling = arrived(
            &mut link(Faults {
                duplicate: 0.2,
                ..Faults::default()
            }),
            10_000,
        );
        assert!((11_700..12_300).contains(&doubling), "{doubling}");
    }

    #[test]
    fn corruption_turns_exactly_one_bit() {
        let mut link = link(Faults {
            corrupt: 1.0,
            ..Faults::default()
        });
        for _ in 0..100 {
            let arrivals = link.offer(Instant(0), &[0; 16]).arrivals;
            let turned: u32 = arrivals[0].1.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(turned, 1);
        }
    }

    #[test]
    fn bandwidth_spaces_datagrams_and_a_full_queue_drops_them() {
        let slow = Faults {
            bandwidth: Some(1000),
            queue: 20,
            ..Faults::default()
        };
        let mut link = link(slow);
        let first = link.offer(Instant(0), &[0; 10]).arrivals[0].0;
        let second = link.offer(Instant(0), &[0; 10]).arrivals[0].0;
        assert_eq!(second.since(first), Duration::from_millis(10));
        assert_eq!(link.offer(Instant(0), &[0; 10]).fate, "queue full");
    }

    #[test]
    fn size_limit_and_cut_lose_and_a_script_decides_first() {
        let mut link = link(Faults {
            size_limit: 4,
            loss: 1.0,
            ..Faults::default()
        });
        assert_eq!(link.offer(Instant(0), &[0; 5]).fate, "too large");
        assert_eq!(link.offer(Instant(0), &[0; 4]).fate, "lost");
        link.set_script(Some(Box::new(|bytes| {
            if bytes[0] == 1 {
                Fate::Twice
            } else {
                Fate::Pass
            }
        })));
        assert_eq!(link.offer(Instant(0), &[1]).arrivals.len(), 2);
        assert_eq!(link.offer(Instant(0), &[0]).arrivals.len(), 1);
        link.set_cut(true);
        assert_eq!(link.offer(Instant(0), &[0]).fate, "cut off");
    }
}
