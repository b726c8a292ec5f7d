//! Congestion control: slow start, CUBIC (RFC 9438), and tolerance of random loss.
//!
//! ```text
//!   window
//!     |     x           .      x  loss with a queue, or more than 2 %: x 0.7, at most once a round trip
//!     |    / \        .'
//!     |   /   \__..--'         CUBIC: back to the old window, a plateau there, then further
//!     |  /                     (RFC 9438; never less than Reno would have)
//!     | /                      slow start: doubles each round trip, a quarter as fast once packets
//!     |/                       take longer than min_rtt (after HyStart++, RFC 9406)
//!     +------------------------------------------------------------------------------> time
//! ```
//!
//! A single loss is no sign of congestion, because bad links lose packets, too. Loss means congestion if the smallest
//! RTT sample of a round trip is well above min_rtt, which indicates a queue, or if more is lost than the random loss
//! rate.
//!
//! Owns: the window, the rounds.
//! Out of scope: numbers, segments, clocks.

use self::reductions::{LossStats, UndoState};
use super::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

mod reductions;

/// Congestion window of one link, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    window: u64,
    cap: u64,
    segment: u64,
    phase: Phase,
    /// Window in bytes at which slow start ends.
    threshold: u64,
    /// Window in bytes before the last reduction; CUBIC stays there for a while.
    plateau: u64,
    /// Time at which avoidance began to follow its present curve; `None`: it has to begin a new one.
    epoch: Option<Instant>,
    /// Time from the epoch to the plateau, in milliseconds.
    rise_ms: u64,
    /// Window in bytes that Reno would have; `credit`: bytes towards its next segment.
    reno: u64,
    credit: u64,
    /// Time of the last reduction; `None`: never. Losses of earlier segments belong to the same event.
    fell_at: Option<Instant>,
    /// Time of the last transmission.
    sent_at: Instant,
    round: Round,
    account: LossStats,
    /// State before the last reduction, while that may still be undone.
    undo: Option<UndoState>,
    random_loss: u32,
    /// Whether packets wait in a queue on the path.
    queue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Slow,
    /// There may be a queue. For some rounds the window grows less; if that was a false alarm, it goes on as before.
    Careful {
        rounds: u8,
    },
    Avoidance,
}

/// Round trip: lasts until a window's worth of bytes has arrived.
#[derive(Clone, Copy, Debug)]
struct Round {
    left: u64,
    /// Smallest RTT sample of the round; `samples`: their number.
    min_rtt: Duration,
    samples: u8,
    /// Smallest RTT sample of the previous round; zero: there was none.
    before: Duration,
}

impl Congestion {
    /// Makes the window for segments of at most `segment` bytes. The window never exceeds `cap` bytes, unless that is
    /// less than a few segments.
    pub(super) fn new(segment: usize, cap: u64) -> Self {
        let segment = within(segment);
        let cap = cap.clamp(segment * FLOOR, CAP_MAX);
        let window = initial(segment).min(cap);
        Self {
            window,
            cap,
            segment,
            phase: Phase::Slow,
            threshold: cap,
            plateau: 0,
            epoch: None,
            rise_ms: 0,
            reno: 0,
            credit: 0,
            fell_at: None,
            sent_at: Instant(0),
            round: Round::new(window, Duration::ZERO),
            account: LossStats::default(),
            undo: None,
            random_loss: 0,
            queue: false,
        }
    }

    pub(super) fn set_segment(&mut self, segment: usize) {
        self.segment = within(segment);
        self.cap = self.cap.max(self.segment * FLOOR);
        if self.fell_at.is_none() {
            self.window = self.window.max(initial(self.segment));
        }
        self.window = self.window.clamp(self.segment * LEAST, self.cap);
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Returns whether the window may double in a round trip, which the pacer must allow.
    pub(super) fn is_slow_start(&self) -> bool {
        self.phase == Phase::Slow
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.sent_at != Instant(0) && now.since(self.sent_at) >= IDLE {
            self.on_idle();
        }
        self.sent_at = now;
    }

    /// Restores the window from before a suspension, in slow start or after it.
    pub(super) fn resume(&mut self, window: u64, slow_start: bool) {
        self.window = window.clamp(self.segment * LEAST, self.cap);
        if !slow_start {
            self.phase = Phase::Avoidance;
        }
        self.on_idle();
    }

    /// Halves the window after a pause, and lets slow start lead back to the old one.
    fn on_idle(&mut self) {
        let initial = initial(self.segment).min(self.window);
        if self.phase == Phase::Avoidance {
            self.threshold = self.window;
        }
        self.window = (self.window / 2).max(initial);
        self.phase = Phase::Slow;
        self.epoch = None;
        self.account = LossStats::default();
        self.round = Round::new(self.window, Duration::ZERO);
    }

    /// Handles `bytes` that have arrived, of `in_flight_before` in flight. `rtt` has been updated.
    pub(super) fn on_arrived(
        &mut self,
        now: Instant,
        bytes: u64,
        in_flight_before: u64,
        rtt: &Rtt,
    ) {
        if let Some(sample) = rtt.sample_at(now) {
            self.round.min_rtt = self.round.min_rtt.min(sample);
            self.round.samples = self.round.samples.saturating_add(1);
            self.look_for_queue(rtt);
            self.take_care();
        }
        self.round.left = self.round.left.saturating_sub(bytes);
        if self.round.left == 0 {
            self.end_round();
        }
        // Arrivals in the round trip after a reduction say nothing about the new window, nor about its losses until
        // reordered segments would have arrived.
        let since = self.fell_at.map_or(Duration::MAX, |at| now.since(at));
        let typical = rtt.srtt().unwrap_or_default();
        if since >= typical + 4 * rtt.rttvar() {
            self.count_arrived(bytes);
        }
        if since >= typical && !self.is_experiment() {
            self.grow(now, bytes, in_flight_before, rtt);
        }
    }

    /// Checks for a queue on the path, as far as this round or the last one can tell.
    fn look_for_queue(&mut self, rtt: &Rtt) {
        let least = if self.round.samples < SAMPLES {
            self.round.before
        } else {
            self.round.min_rtt
        };
        self.queue = is_queue(least, rtt);
    }

    /// Slows down slow start while the path has a queue.
    fn take_care(&mut self) {
        match self.phase {
            Phase::Slow if self.queue => self.phase = Phase::Careful { rounds: CAREFUL },
            Phase::Careful { .. } if !self.queue => self.phase = Phase::Slow,
            _ => {}
        }
    }

    fn end_round(&mut self) {
        if let Phase::Careful { rounds } = &mut self.phase {
            *rounds = rounds.saturating_sub(1);
            if *rounds == 0 {
                self.threshold = self.window;
                self.phase = Phase::Avoidance;
            }
        }
        let before = match self.round.samples {
            0 => self.round.before,
            _ => self.round.min_rtt,
        };
        self.round = Round::new(self.window, before);
    }

    fn grow(&mut self, now: Instant, bytes: u64, in_flight: u64, rtt: &Rtt) {
        // An unused window has not been tested and must not grow (RFC 9438, section 5.8).
        let used = match self.phase {
            Phase::Slow | Phase::Careful { .. } => in_flight >= self.window / 2,
            Phase::Avoidance => in_flight >= self.window / 4 * 3,
        };
        if !used {
            self.epoch = None;
            return;
        }
        match self.phase {
            Phase::Slow => self.window += bytes,
            Phase::Careful { .. } => self.window += bytes / 4,
            Phase::Avoidance => self.follow_curve(now, bytes, rtt),
        }
        if self.phase == Phase::Slow && self.window >= self.threshold {
            self.window = self.threshold.max(self.segment * LEAST);
            self.phase = Phase::Avoidance;
        }
        self.window = self.window.min(self.cap);
    }

    fn follow_curve(&mut self, now: Instant, bytes: u64, rtt: &Rtt) {
        let epoch = *self.epoch.get_or_insert(now);
        if epoch == now {
            (self.reno, self.credit) = (self.window, 0);
            self.plateau = self.plateau.max(self.window);
            self.rise_ms = rise_ms(self.plateau - self.window, self.unit());
        }
        // Value of the curve one round trip from now.
        let ahead = now.since(epoch) + rtt.srtt().unwrap_or_default();
        let ms = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
        let away = climb(ms.abs_diff(self.rise_ms), self.unit());
        let target = if ms < self.rise_ms {
            self.plateau.saturating_sub(away)
        } else {
            self.plateau.saturating_add(away)
        };
        let target = target.clamp(self.window, self.window + self.window / 2);
        let step = u128::from(target - self.window) * u128::from(bytes) / u128::from(self.window);
        self.window += u64::try_from(step).unwrap_or(0);
        // Below the plateau Reno's step is smaller, so that both have the same average: RFC 9438, section 4.3: 3 * (1 -
        // 0.7) / (1 + 0.7).
        self.credit += if self.reno < self.plateau {
            bytes * 9 / 17
        } else {
            bytes
        };
        if self.credit >= self.reno {
            self.credit -= self.reno;
            self.reno += self.unit();
        }
        self.window = self.window.max(self.reno);
    }

    fn floor(&self) -> u64 {
        self.segment * FLOOR
    }

    fn unit(&self) -> u64 {
        self.segment.min(UNIT)
    }

    fn reduced(&self) -> u64 {
        self.window / 10 * 7
    }

    /// Sets the plateau, with fast convergence (RFC 9438, section 4.7): a flow whose window is reduced before it has
    /// recovered leaves room for others.
    fn note_plateau(&mut self) {
        self.plateau = if self.window < self.plateau {
            self.window / 20 * 17
        } else {
            self.window
        };
    }
}

impl Round {
    fn new(left: u64, before: Duration) -> Self {
        Self {
            left,
            min_rtt: Duration::MAX,
            samples: 0,
            before,
        }
    }
}

/// Returns whether the path has a queue: even the smallest sample of a round trip exceeds min_rtt by a margin. The
/// margin is a quarter of min_rtt, since 0.7 of the window then just empties the queue. At least 500 us: a GSO batch of
/// 64 KiB on a link of 1 Gbit/s, and the delay of an acknowledgement. If samples vary: three times their mean
/// deviation, which a whole round practically never exceeds. At most 25 ms, which is a queue on any path.
fn is_queue(min_rtt: Duration, rtt: &Rtt) -> bool {
    const MARGIN_MIN: Duration = Duration::from_micros(500);
    const MARGIN_MAX: Duration = Duration::from_millis(25);
    rtt.min().is_some_and(|min| {
        let margin = (min / 4).max(rtt.rttvar() * 3);
        min_rtt > min + margin.clamp(MARGIN_MIN, MARGIN_MAX)
    })
}

/// Returns CUBIC's growth in bytes within `ms` milliseconds from its plateau: 0.4 segments per second cubed.
fn climb(ms: u64, segment: u64) -> u64 {
    let ms = u128::from(ms.min(CURVE_MAX));
    let bytes = ms * ms * ms * u128::from(segment) * 4 / 10_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).min(CAP_MAX)
}

/// Returns the milliseconds in which CUBIC grows by `bytes`.
fn rise_ms(bytes: u64, segment: u64) -> u64 {
    let (mut low, mut high) = (0, CURVE_MAX);
    while low < high {
        let middle = (low + high) / 2;
        if climb(middle, segment) < bytes {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the initial window in bytes: 16 segments, as many as one pass sends (usnic's figure), but of large segments
/// no more than 64 KiB, a GSO batch.
fn initial(segment: u64) -> u64 {
    (segment * 16).min((64 << 10).max(segment * FLOOR))
}

fn within(segment: usize) -> u64 {
    (segment as u64).clamp(1, 1 << 20)
}

/// Minimum number of segments in a reduced window: three later arrivals must be possible, or every loss costs a
/// time-out.
const FLOOR: u64 = 4;

/// Largest segment size in bytes with which the window grows: a jumbo frame. With larger segments it would be reduced
/// again every few round trips.
const UNIT: u64 = 9000;

/// Number of segments after a time-out. The second one shows whether the first was lost.
const LEAST: u64 = 2;

/// Number of samples in a round before their minimum is meaningful: HyStart++ takes eight, but our peers acknowledge a
/// quarter of the window at a time.
const SAMPLES: u8 = 4;

/// Number of rounds of careful growth before avoidance: HyStart++'s figure.
const CAREFUL: u8 = 5;

/// Pause after which the window is not trusted any more: a few round trips of the worst path.
const IDLE: Duration = Duration::from_secs(1);

/// Milliseconds after which the curve is not continued; far beyond any window.
const CURVE_MAX: u64 = 1 << 20;

/// Largest window in bytes; keeps products in range.
const CAP_MAX: u64 = 1 << 32;

#[cfg(test)]
mod tests;
