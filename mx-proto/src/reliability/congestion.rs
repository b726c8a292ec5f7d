//! How many bytes may be in flight: slow start, CUBIC, and a careful view of loss.
//!
//! ```text
//!   window                        least delay of a round trip
//!     |          _.-'  CUBIC      well above that of an empty way:
//!     |   x    .'                     slow start -> careful start -> avoidance
//!     |  / \0.7
//!     | /   '--.__.--'            lost               queue?    more than 2 %?   then
//!     |/  slow start              something          yes       -                x 0.7
//!     +------------------ time                       no        yes              x 0.7
//!                                                    no        no               sent again, that is all
//! ```
//!
//! A loss means congestion when there is a queue (packets take longer than the way does) or when
//! more is lost than chance explains. The window falls at most once a round trip.
//!
//! Owns: the window, the rounds. Knows nothing of: numbers, segments, clocks.

use super::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

/// The limit of one link, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    window: u64,
    cap: u64,
    segment: u64,
    phase: Phase,
    /// Where slow start ends, if it is known.
    threshold: u64,
    /// The window when it last fell: CUBIC's plateau.
    plateau: u64,
    /// When avoidance began to follow its present curve.
    epoch: Option<Instant>,
    /// From the epoch to the plateau, in milliseconds.
    rise_ms: u64,
    /// What Reno would have, RFC 9438 section 4.3.
    reno: u64,
    /// When the window last fell. What was sent before says nothing new.
    fell_at: Option<Instant>,
    /// When anything was last sent.
    sent_at: Instant,
    round: Round,
    account: Account,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Doubles a round trip.
    Slow,
    /// There may be a queue: a quarter of that, for some rounds (HyStart++, RFC 9406).
    Careful {
        rounds: u8,
    },
    Avoidance,
}

/// A round trip: until a window's worth has arrived.
#[derive(Clone, Copy, Debug)]
struct Round {
    left: u64,
    /// Least sample in it, and in the one before, in nanoseconds.
    least: u64,
    before: u64,
    samples: u8,
}

/// What has arrived and what was lost lately.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    arrived: u64,
    lost: u64,
}

impl Congestion {
    /// For segments of at most `segment` bytes; the window never exceeds `cap`.
    pub(super) fn new(segment: usize, cap: u64) -> Self {
        let segment = (segment as u64).clamp(1, SEGMENT_MAX);
        let cap = cap.clamp(segment * FLOOR, CAP_MAX);
        let window = initial(segment).min(cap);
        Self {
            window,
            cap,
            segment,
            phase: Phase::Slow,
            threshold: u64::MAX,
            plateau: 0,
            epoch: None,
            rise_ms: 0,
            reno: 0,
            fell_at: None,
            sent_at: Instant(0),
            round: Round::of(window, u64::MAX),
            account: Account::default(),
        }
    }

    /// Segments are of another size from now on.
    pub(super) fn set_segment(&mut self, segment: usize) {
        self.segment = (segment as u64).clamp(1, SEGMENT_MAX);
        self.cap = self.cap.max(self.segment * FLOOR);
        if self.fell_at.is_none() && self.phase == Phase::Slow {
            self.window = self.window.max(initial(self.segment));
        }
        self.window = self.window.clamp(self.segment * FLOOR, self.cap);
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// The window still grows fast: the pacer must not be what keeps it from that.
    pub(super) fn is_slow_start(&self) -> bool {
        self.phase != Phase::Avoidance
    }

    /// `bytes` go out.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let _ = (now, bytes);
        self.sent_at = now;
    }

    /// `bytes` have arrived, of `in_flight_before`. `rtt` knows already.
    pub(super) fn on_arrived(
        &mut self,
        now: Instant,
        bytes: u64,
        in_flight_before: u64,
        rtt: &Rtt,
    ) {
        let _ = (now, bytes, in_flight_before, rtt);
    }

    /// `bytes` were lost, the last of them sent at `latest_sent_at`.
    pub(super) fn on_lost(&mut self, now: Instant, bytes: u64, latest_sent_at: Instant, rtt: &Rtt) {
        let _ = (now, bytes, latest_sent_at, rtt);
    }

    /// Nothing came back in time.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let _ = now;
    }
}
impl Round {
    fn of(left: u64, before: u64) -> Self {
        Self {
            left,
            least: u64::MAX,
            before,
            samples: 0,
        }
    }
}
const FLOOR: u64 = 4;
const SEGMENT_MAX: u64 = 1 << 17;
const CAP_MAX: u64 = 1 << 32;
fn initial(segment: u64) -> u64 {
    (segment * 16).min((64 << 10).max(segment * 4))
}
