//! A direction between two nodes, with all faults that can occur on it.
//!
//! ```text
//!   offer --> mtu --> queue (drop-tail) --> loss --> corrupt one bit --> latency + jitter --> 0..2
//!             cut     bandwidth                      duplicate           reorder: held back  arrivals
//! ```
//!
//! A datagram that the network layer fragments is lost if any fragment is.

use crate::queue::Queue;
use crate::rng::Rng;
use mx_proto::Instant;
use std::time::Duration;

/// Faults and speed of a link. Probabilities are between 0 and 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// Minimum delay.
    pub latency: Duration,
    /// Maximum of the additional random delay.
    pub jitter: Duration,
    /// Probability that a datagram is lost.
    pub loss: f64,
    /// Probability that a datagram arrives twice.
    pub duplicate: f64,
    /// Probability that a datagram is delayed, so that it is reordered.
    pub reorder: f64,
    /// Probability that one of its bits flips.
    pub corrupt: f64,
    /// Bytes a second; `None`: unlimited.
    pub bandwidth: Option<u64>,
    /// Maximum number of waiting bytes; more are lost.
    pub queue: usize,
}

impl Default for Faults {
    /// Returns a good local network.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(20),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            bandwidth: None,
            queue: usize::MAX,
        }
    }
}

impl Faults {
    /// Draws a link between perfect and terrible.
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
            bandwidth,
            queue: rng.pick(&[64 << 10, 1 << 20]),
        }
    }
}

/// Decision of a script about one datagram, before chance decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Chance decides.
    Chance,
    /// The datagram arrives, whatever chance says.
    Pass,
    /// The datagram is lost.
    Drop,
    /// The datagram arrives later by this time.
    Hold(Duration),
    /// The datagram arrives twice.
    Twice,
}

/// A direction of a cable.
#[derive(Debug)]
pub struct Link {
    faults: Faults,
    mtu: usize,
    rng: Rng,
    queue: Queue,
    cut: bool,
}

/// Fate of one datagram.
#[derive(Debug)]
pub struct Offered {
    /// Name of the fate, for the log.
    pub fate: &'static str,
    /// Arrivals, at most two, each with its time.
    pub arrivals: Vec<(Instant, Vec<u8>)>,
}

impl Link {
    /// Makes a link with these faults, over which datagrams of at most `mtu` bytes pass in one
    /// piece, and whose chance comes from `rng`.
    pub fn new(faults: Faults, mtu: usize, rng: Rng) -> Self {
        Self {
            faults,
            mtu,
            rng,
            queue: Queue::default(),
            cut: false,
        }
    }

    /// Changes the faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Makes the link lose everything from now on, or work again.
    pub fn set_cut(&mut self, cut: bool) {
        self.cut = cut;
    }

    /// Returns whether the link loses everything.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the size of the largest datagram that passes in one piece.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Changes the route, and with it the MTU.
    pub fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Sends a datagram, fragmented if it has to be and `may_cut`.
    pub fn offer(&mut self, now: Instant, bytes: &[u8], wanted: Fate, may_cut: bool) -> Offered {
        let lost = |fate| Offered {
            fate,
            arrivals: Vec::new(),
        };
        if self.cut {
            return lost("cut off");
        }
        if bytes.len() > self.mtu && !may_cut {
            return lost("too large");
        }
        let left_at = match self.faults.bandwidth {
            Some(rate) => self.queue.pass(now, bytes.len(), rate, self.faults.queue),
            None => Some(now),
        };
        let Some(left_at) = left_at else {
            return lost("queue full");
        };
        let by_chance = wanted == Fate::Chance;
        let pieces = bytes.len().div_ceil(self.mtu).max(1);
        let loss = self.faults.loss;
        let unlucky = by_chance && (0..pieces).any(|_| self.rng.chance(loss));
        if wanted == Fate::Drop || unlucky {
            return lost("lost");
        }
        let mut fate = "passed";
        let mut payload = bytes.to_vec();
        if by_chance && !payload.is_empty() && self.rng.chance(self.faults.corrupt) {
            let bit = self.rng.index(payload.len() * 8);
            payload[bit / 8] ^= 1 << (bit % 8);
            fate = "corrupted";
        }
        let mut at = self.arrival(left_at);
        if let Fate::Hold(span) = wanted {
            at = at.after(span);
            fate = "held back";
        }
        let mut arrivals = vec![(at, payload)];
        if wanted == Fate::Twice || (by_chance && self.rng.chance(self.faults.duplicate)) {
            let again = self.arrival(left_at);
            let copy = arrivals[0].1.clone();
            arrivals.push((again, copy));
            fate = "doubled";
        }
        Offered { fate, arrivals }
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
        Link::new(faults, 100, Rng::new(3))
    }

    fn offer(link: &mut Link, bytes: &[u8]) -> Offered {
        link.offer(Instant(0), bytes, Fate::Chance, false)
    }

    #[test]
    fn corruption_turns_exactly_one_bit() {
        let mut link = link(Faults {
            corrupt: 1.0,
            ..Faults::default()
        });
        for _ in 0..100 {
            let arrivals = offer(&mut link, &[0; 16]).arrivals;
            let turned: u32 = arrivals[0].1.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(turned, 1);
        }
    }

    #[test]
    fn what_is_cut_into_pieces_is_lost_with_any_of_them() {
        let mut link = link(Faults {
            loss: 0.1,
            ..Faults::default()
        });
        let mut passes = |len: usize| {
            let mut passed = || {
                let offered = link.offer(Instant(0), &vec![0; len], Fate::Chance, true);
                offered.arrivals.len()
            };
            (0..1_000).map(|_| passed()).sum::<usize>()
        };
        let (whole, in_ten) = (passes(100), passes(1_000));
        assert!((860..940).contains(&whole), "{whole}");
        assert!(
            (300..400).contains(&in_ten),
            "0.9 to the tenth is 0.35: {in_ten}"
        );
    }
}
