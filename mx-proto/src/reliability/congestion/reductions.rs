//! Reductions of the congestion window after losses, and undoing them.
//!
//! ```text
//!                   a queue, or more than 2 % and the random rate, or many in a row
//!      window as it is ──────────────────────────────────────────────────────────► x 0.7
//!         ▲   ▲                                                                     │ │
//!         │   └── most of it arrived after all: reordered, not lost ────────────────┘ │
//!         └────── as much is still lost at x 0.7: random loss ────────────────────────┘
//! ```
//!
//! A full queue drops what exceeds the path's capacity: at 0.7 of the window next to nothing. A bad link loses the same
//! share at any rate. The first reduction is therefore an experiment, and its result is remembered as the random loss
//! rate.
//!
//! `bench/RESULTS.md`, *What each rule of dgram brings*, has the goodput of a path with and without each rule.
//!
//! Owns: the count of losses, the state before the last reduction.
//! Out of scope: numbers, segments, clocks.

use super::{Congestion, LEAST, Phase, Round};
use crate::reliability::rtt::Rtt;
use crate::time::Instant;
use std::time::Duration;

/// Bytes that recently arrived and were lost.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct LossStats {
    arrived: u64,
    lost: u64,
}

/// State before a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct UndoState {
    window: u64,
    threshold: u64,
    plateau: u64,
    phase: Phase,
    fell_at: Option<Instant>,
    /// Bytes lost of those sent before the reduction.
    lost: u64,
    /// Bytes of losses that would not have caused the reduction.
    tolerated: u64,
    /// Share lost, of 1024; 0: unknown.
    share: u32,
    by_timeout: bool,
    /// Whether less has been lost since the reduction, which means congestion.
    helped: bool,
}

impl Congestion {
    /// Handles the loss of `bytes`, at most `run` segments in a row, the last of them sent at `latest_sent_at`.
    pub(in super::super) fn on_lost(
        &mut self,
        now: Instant,
        bytes: u64,
        run: u32,
        latest_sent_at: Instant,
        rtt: &Rtt,
    ) {
        if self.fell_at.is_some_and(|at| latest_sent_at <= at) {
            // This loss belongs to the same event; it counts for the decision to undo the reduction.
            if let Some(fall) = &mut self.undo {
                fall.lost += bytes;
            }
            return;
        }
        self.account.lost += bytes;
        self.look_for_queue(rtt);
        let many = run >= self.run_of_a_full_queue() || self.account.lost > self.tolerated();
        if !self.queue && (!many || self.is_random_loss()) {
            return;
        }
        self.remember(false);
        self.note_plateau();
        self.window = self.reduced().max(self.floor()).min(self.window);
        self.threshold = self.window;
        self.phase = Phase::Avoidance;
        self.start_over(now);
    }

    /// Handles a time-out: begins slow start with a minimal window. Slow start ends at the old window, or below it if
    /// there are signs of congestion; without them, the last segment of a message may just have been lost alone, or the
    /// peer may not have run for a while.
    pub(in super::super) fn on_timeout(&mut self, now: Instant) {
        let least = self.segment * LEAST;
        if self.window > least && self.round.before > Duration::ZERO {
            self.remember(true);
            self.threshold = self.window;
            if self.queue || self.account.lost > self.tolerated() / 2 {
                self.note_plateau();
                self.threshold = self.reduced().max(self.floor());
            }
        }
        self.window = least.min(self.window);
        self.phase = Phase::Slow;
        self.start_over(now);
    }

    /// Handles `bytes` that were declared lost and have arrived after all, the first of them sent at `sent_at`. Returns
    /// true if they show that a time-out was spurious.
    pub(in super::super) fn on_spurious(&mut self, bytes: u64, sent_at: Instant) -> bool {
        if self.fell_at.is_none_or(|at| sent_at > at) {
            self.account.lost = self.account.lost.saturating_sub(bytes);
            return false;
        }
        let Some(fall) = &mut self.undo else {
            return false;
        };
        fall.lost = fall.lost.saturating_sub(bytes);
        let UndoState {
            lost,
            tolerated,
            by_timeout,
            ..
        } = *fall;
        if by_timeout || lost <= tolerated {
            self.undo();
            self.account.lost += lost;
        }
        by_timeout
    }

    pub(super) fn count_arrived(&mut self, bytes: u64) {
        self.account.arrived += bytes;
        if self.account.total() < self.counted() {
            return;
        }
        let share = self.account.share();
        if !self.is_random_loss()
            && let Some(fall) = &mut self.undo
        {
            fall.helped = true;
        }
        self.account = LossStats::default();
        if share * MUCH_LESS < self.random_loss {
            self.random_loss = self.random_loss.midpoint(share);
        }
    }

    /// Returns whether as much is lost as before the reduction. The losses are then random, and the reduction is
    /// undone.
    fn is_random_loss(&mut self) -> bool {
        let Some(fall) = &self.undo else {
            return false;
        };
        let share = self.share_to_compare();
        if fall.share == 0 || fall.helped || share * MUCH_LESS < fall.share {
            return false;
        }
        self.random_loss = self
            .random_loss
            .max(share.midpoint(fall.share))
            .min(CHANCE_MAX);
        self.undo();
        self.account = LossStats::default();
        true
    }

    /// Returns whether the effect of the reduction is still unknown. Until it is known the window must not grow,
    /// because the losses could not be compared.
    pub(super) fn is_experiment(&self) -> bool {
        self.undo.as_ref().is_some_and(UndoState::is_open)
    }

    /// Returns the share lost, of 1024, for a comparison; 0 if there are too few segments, or if the share is so large
    /// that a queue may lose part of it even at 0.7 of the window.
    fn share_to_compare(&self) -> u32 {
        let share = self.account.share();
        if self.account.total() >= self.segment * COMPARED && share <= COMPARED_MAX {
            share
        } else {
            0
        }
    }

    fn remember(&mut self, by_timeout: bool) {
        let comparable = !self.queue && !by_timeout;
        let mut fall = UndoState {
            window: self.window,
            threshold: self.threshold,
            plateau: self.plateau,
            phase: self.phase,
            fell_at: self.fell_at,
            lost: self.account.lost,
            tolerated: if self.queue { 0 } else { self.tolerated() },
            share: if comparable {
                self.share_to_compare()
            } else {
                0
            },
            by_timeout,
            helped: false,
        };
        if let Some(before) = self.undo.filter(UndoState::is_open)
            && comparable
        {
            // The previous reduction was not decided yet: both are undone together.
            fall = UndoState {
                lost: before.lost + fall.lost,
                share: if fall.share > 0 {
                    fall.share
                } else {
                    before.share
                },
                ..before
            };
        }
        self.undo = Some(fall);
    }

    fn undo(&mut self) {
        let Some(fall) = self.undo.take() else {
            return;
        };
        self.window = self.window.max(fall.window).min(self.cap);
        self.threshold = self.threshold.max(fall.threshold);
        self.plateau = fall.plateau;
        self.phase = fall.phase;
        self.fell_at = fall.fell_at;
        self.epoch = None;
        self.round = Round::new(self.window, self.round.before);
    }

    pub(super) fn start_over(&mut self, now: Instant) {
        self.epoch = None;
        self.fell_at = Some(now);
        self.account = LossStats::default();
        self.round = Round::new(self.window, self.round.before);
    }

    /// Returns the number of bytes over which losses are counted: a round trip, but enough to make a rate out of single
    /// losses.
    pub(super) fn counted(&self) -> u64 {
        self.window.max(self.segment * COUNTED)
    }

    /// Returns how many of these bytes may be lost: 2 %, the random loss rate and a quarter, and the variation of
    /// chance in so few.
    fn tolerated(&self) -> u64 {
        let counted = self.counted();
        let chance = counted * u64::from(self.random_loss) * 5 / 4096;
        counted / 50 + chance + self.segment * CHANCE
    }

    /// Returns the number of consecutive lost segments that is no longer random.
    fn run_of_a_full_queue(&self) -> u32 {
        match self.random_loss {
            0..32 => 3,
            32..64 => 5,
            _ => 7,
        }
    }
}

impl UndoState {
    /// Returns whether the reduction was for losses, without a queue, and has not been seen to help.
    fn is_open(&self) -> bool {
        !self.helped && !self.by_timeout && self.tolerated > 0
    }
}

impl LossStats {
    fn total(&self) -> u64 {
        self.arrived + self.lost
    }

    fn share(&self) -> u32 {
        let share = u128::from(self.lost) * 1024 / u128::from(self.total().max(1));
        share as u32
    }
}

/// Minimum number of segments over which losses are counted: 2 % of them are more than two.
const COUNTED: u64 = 128;

/// Number of losses that chance may add to 2 %: where 1 % is lost at random, it adds more once in some thousand round
/// trips.
const CHANCE: u64 = 4;

/// Minimum number of segments whose share is worth comparing.
const COMPARED: u64 = 32;

/// Largest share, of 1024, that is compared: 3/8. At 0.7 of a window that overfilled a queue, next to nothing is lost
/// if the whole window lost up to 30 %, and half as much only if it lost 46 %. A window is reduced when chance is at
/// its worst: where a fifth is lost, that is often more than a quarter.
const COMPARED_MAX: u32 = 384;

/// Factor by which a share is much less than another. A larger one would require too much of 128 segments, because the
/// window is reduced when chance is at its worst.
const MUCH_LESS: u32 = 2;

/// Largest random loss rate, of 1024: a quarter. At a short queue shared by many, a flow loses as much at 0.7 of its
/// window because the others fill the queue, and must not take all of that for random.
const CHANCE_MAX: u32 = 256;
