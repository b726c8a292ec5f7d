//! RTT: round-trip time and RTO (RFC 6298, section 2).
//!
//! ```text
//!   first sample r:   srtt = r            rttvar = r / 2
//!   every other:      rttvar += (|srtt - r| - rttvar) / 4
//!                     srtt  += (r - srtt) / 8
//!   RTO = (srtt + 4 * rttvar + delay of ACKs) * 2^back-off, between floor and cap
//!
//!   min:   | this half: 5 s, growing |   the path without queues: the minimum of both halves
//!          | the previous half       |
//! ```
//!
//! Owns: the estimate.
//! Out of scope: segments, clocks. The caller provides only samples of segments sent once.

use super::reliable_config::ReliableConfig;
use crate::time::Instant;
use std::time::Duration;

/// Estimate for one peer, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// Smoothed round-trip time; 0: nothing has been measured.
    srtt: u64,
    rttvar: u64,
    latest: u64,
    /// Time of the latest sample.
    at: Instant,
    /// Smallest sample of this half of the window, and of the previous one.
    min_rtt: [u64; 2],
    /// Time at which this half began.
    half: Instant,
    ack_delay: u64,
    first: u64,
    floor: u64,
    cap: u64,
    back_off: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SavedRtt {
    srtt: u64,
    rttvar: u64,
    min_rtt: u64,
}

impl SavedRtt {
    /// Returns the smoothed round-trip time; see [`Rtt::srtt`].
    pub(super) fn srtt(self) -> Option<Duration> {
        measured(self.srtt)
    }
}

fn measured(srtt: u64) -> Option<Duration> {
    (srtt > 0).then(|| Duration::from_nanos(srtt))
}

/// Maximum number of doublings, after which any RTO is at its cap; keeps the shift in range.
const BACK_OFF_MAX: u32 = 16;

/// Half of the time after which the minimum is forgotten. 10 s in total is BBR's figure: rare enough that our own
/// queues do not pass for the path, often enough for a path that has really become longer.
const HALF: Duration = Duration::from_secs(5);

impl Rtt {
    pub(super) fn new(config: &ReliableConfig) -> Self {
        Self {
            srtt: 0,
            rttvar: 0,
            latest: 0,
            at: Instant(0),
            min_rtt: [u64::MAX; 2],
            half: Instant(0),
            ack_delay: nanos(config.ack_delay),
            first: nanos(config.first_rto),
            floor: nanos(config.min_rto),
            cap: nanos(config.max_rto),
            back_off: 0,
        }
    }

    /// Returns the estimate to be kept by a suspended link.
    pub(super) fn remembered(&self) -> SavedRtt {
        SavedRtt {
            srtt: self.srtt,
            rttvar: self.rttvar,
            min_rtt: self.min_rtt[0].min(self.min_rtt[1]),
        }
    }

    /// Makes an estimator from a suspended link's estimate, made `at` that time.
    pub(super) fn recalled(config: &ReliableConfig, at: Instant, known: SavedRtt) -> Self {
        Self {
            srtt: known.srtt,
            rttvar: known.rttvar,
            min_rtt: [known.min_rtt, u64::MAX],
            half: at,
            ..Self::new(config)
        }
    }

    /// Adds the sample of a segment that was sent once. Ends the back-off.
    pub(super) fn on_sample(&mut self, now: Instant, sample: Duration) {
        let sample = nanos(sample).clamp(1, LONGEST);
        self.note_min_rtt(now, sample);
        (self.latest, self.at, self.back_off) = (sample, now, 0);
        if self.srtt == 0 {
            (self.srtt, self.rttvar) = (sample, sample / 2);
            return;
        }
        let off = self.srtt.abs_diff(sample);
        self.rttvar = (self.rttvar * 3 + off) / 4;
        self.srtt = ((self.srtt * 7 + sample) / 8).max(1);
    }

    fn note_min_rtt(&mut self, now: Instant, sample: u64) {
        let passed = now.since(self.half);
        if passed >= HALF * 2 {
            self.min_rtt = [u64::MAX; 2];
            self.half = now;
        } else if passed >= HALF {
            self.min_rtt = [u64::MAX, self.min_rtt[0]];
            self.half = now;
        }
        self.min_rtt[0] = self.min_rtt[0].min(sample);
    }

    /// Halves the back-off after a new acknowledgement, even of a retransmission; otherwise a link on which every
    /// segment must be sent twice would stay at its longest RTO.
    pub(super) fn on_progress(&mut self) {
        self.back_off = self.back_off.saturating_sub(1);
    }

    /// Doubles the RTO after a time-out.
    pub(super) fn on_timeout(&mut self) {
        self.back_off = (self.back_off + 1).min(BACK_OFF_MAX);
    }

    /// Returns the smoothed round-trip time (RFC 6298). `None`: nothing has been measured.
    pub(super) fn srtt(&self) -> Option<Duration> {
        measured(self.srtt)
    }

    /// Returns the mean deviation of samples (RFC 6298).
    pub(super) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }

    /// Returns the smallest sample of the last 5 to 10 seconds that had any: the path without queues.
    pub(super) fn min(&self) -> Option<Duration> {
        let min_rtt = self.min_rtt[0].min(self.min_rtt[1]);
        (min_rtt < u64::MAX).then(|| Duration::from_nanos(min_rtt))
    }

    pub(super) fn sample_at(&self, now: Instant) -> Option<Duration> {
        (self.latest > 0 && self.at == now).then(|| Duration::from_nanos(self.latest))
    }

    /// Returns the time-out of an acknowledgement that is not delayed.
    pub(super) fn answer(&self) -> Duration {
        if self.srtt == 0 {
            return self.rto_without_backoff();
        }
        let nanos = (self.srtt + self.rttvar * 4).max(QUICKEST);
        Duration::from_nanos(nanos.min(self.cap))
    }

    /// Returns the time-out of an acknowledgement.
    pub(super) fn rto_without_backoff(&self) -> Duration {
        Duration::from_nanos(self.base().min(self.cap))
    }

    /// Returns the retransmission time-out, doubled for every time-out in a row.
    pub(super) fn rto(&self) -> Duration {
        let nanos = self.base().saturating_mul(1 << self.back_off);
        Duration::from_nanos(nanos.min(self.cap))
    }

    fn base(&self) -> u64 {
        let base = match self.srtt {
            0 => self.first,
            srtt => srtt + self.rttvar * 4 + self.ack_delay,
        };
        base.max(self.floor)
    }
}

/// Shortest time-out of an undelayed acknowledgement in nanoseconds: twice a timer's inaccuracy.
const QUICKEST: u64 = 100_000;

/// Largest sample in nanoseconds; keeps the sums in range.
const LONGEST: u64 = 1 << 40;

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos())
        .unwrap_or(u64::MAX)
        .min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const DELAY: Duration = Duration::from_micros(500);

    fn rtt() -> Rtt {
        Rtt::new(&ReliableConfig::default())
    }

    fn s(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn the_first_sample_counts_with_half_of_itself_as_rttvar() {
        let mut rtt = rtt();
        assert_eq!(rtt.rto(), 5 * MS);
        assert_eq!((rtt.srtt(), rtt.min()), (None, None));
        rtt.on_sample(s(1), 10 * MS);
        assert_eq!(rtt.rto(), 30 * MS + DELAY);
        rtt.on_sample(s(1), 10 * MS);
        assert_eq!(rtt.rto(), 25 * MS + DELAY);
        assert_eq!(rtt.srtt(), Some(10 * MS));
    }

    #[test]
    fn what_is_recalled_lasts_as_if_it_had_just_been_measured() {
        let mut before = rtt();
        before.on_sample(s(1), 8 * MS);
        let known = before.remembered();
        let mut rtt = Rtt::recalled(&ReliableConfig::default(), s(100), known);
        assert_eq!((rtt.srtt(), rtt.min()), (Some(8 * MS), Some(8 * MS)));
        rtt.on_sample(s(104), 20 * MS);
        assert_eq!(rtt.min(), Some(8 * MS));
        rtt.on_sample(s(115), 20 * MS);
        assert_eq!(rtt.min(), Some(20 * MS));
    }

    #[test]
    fn the_timeout_stays_between_floor_and_cap() {
        let mut rtt = rtt();
        rtt.on_sample(s(1), Duration::from_micros(3));
        assert_eq!(rtt.rto(), MS);
        rtt.on_sample(s(1), Duration::from_secs(100));
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        for odd in [Duration::ZERO, Duration::MAX] {
            rtt.on_sample(s(1), odd);
            assert!(rtt.rto() >= MS && rtt.rto() <= Duration::from_secs(1));
        }
    }

    #[test]
    fn rto_without_ack_delay_is_shorter_but_not_zero() {
        let mut rtt = rtt();
        assert_eq!(rtt.answer(), rtt.rto_without_backoff());
        rtt.on_sample(s(1), Duration::from_micros(10));
        assert_eq!(rtt.answer(), Duration::from_nanos(QUICKEST));
        rtt.on_sample(s(1), Duration::from_secs(100));
        assert_eq!(rtt.answer(), Duration::from_secs(1));
        let mut rtt = Rtt::new(&ReliableConfig::default());
        rtt.on_sample(s(1), 10 * MS);
        assert_eq!(
            (rtt.answer(), rtt.rto_without_backoff()),
            (30 * MS, 30 * MS + DELAY)
        );
    }

    #[test]
    fn rto_of_a_steady_path_is_its_rtt_plus_ack_delay() {
        let mut rtt = rtt();
        (0..200).for_each(|_| rtt.on_sample(s(1), 20 * MS));
        assert!(rtt.rto() >= 20 * MS + DELAY);
        assert!(rtt.rto() <= 21 * MS);
    }

    #[test]
    fn back_off_doubles_never_overflows_and_ends_with_a_sample() {
        let mut rtt = rtt();
        rtt.on_timeout();
        assert_eq!(rtt.rto(), 10 * MS);
        (0..1000).for_each(|_| rtt.on_timeout());
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.on_sample(s(1), MS);
        assert_eq!(rtt.rto(), 3 * MS + DELAY);
    }

    #[test]
    fn progress_takes_back_one_step_of_the_back_off() {
        let mut rtt = rtt();
        (0..2).for_each(|_| rtt.on_timeout());
        rtt.on_progress();
        assert_eq!(rtt.rto(), 10 * MS);
        (0..5).for_each(|_| rtt.on_progress());
        assert_eq!(rtt.rto(), 5 * MS);
    }

    #[test]
    fn the_min_rtt_sample_is_remembered_for_five_to_ten_seconds() {
        let mut rtt = rtt();
        rtt.on_sample(s(100), 2 * MS);
        for second in 101..105 {
            rtt.on_sample(s(second), 9 * MS);
        }
        assert_eq!(rtt.min(), Some(2 * MS));
        rtt.on_sample(s(105), 8 * MS);
        rtt.on_sample(s(109), 7 * MS);
        assert_eq!(rtt.min(), Some(2 * MS));
        rtt.on_sample(s(110), 9 * MS);
        assert_eq!(rtt.min(), Some(7 * MS));
        rtt.on_sample(s(200), 20 * MS);
        assert_eq!(rtt.min(), Some(20 * MS));
    }

    #[test]
    fn silence_does_not_make_the_estimate_forget() {
        let mut rtt = rtt();
        rtt.on_sample(s(1), 2 * MS);
        assert_eq!(rtt.sample_at(s(1)), Some(2 * MS));
        assert_eq!(rtt.sample_at(s(2)), None);
        assert_eq!((rtt.min(), rtt.srtt()), (Some(2 * MS), Some(2 * MS)));
    }
}
