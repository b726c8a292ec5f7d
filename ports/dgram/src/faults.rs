//! Fault injection: datagrams are lost, duplicated, reordered, delayed and damaged on purpose.
//!
//! ```text
//!   service --poll--> each datagram: one draw --+-- unchanged ---------------> above
//!                                               +-- lost
//!                                               +-- duplicated -------------->
//!                                               +-- held back: reordered behind some others, or delayed
//!                                               `-- some bits flipped, or truncated -->
//! ```
//!
//! Faults are applied on receive, so two processes with the same setting affect both directions.
//! The same seed and datagrams give the same faults.
//!
//! Without a plan everything passes, at the cost of one branch.
//!
//! Owns: the random numbers, datagrams held back.
//! Not here: the contents of datagrams.

mod plan;
#[cfg(test)]
mod tests;

pub use plan::{FaultPlan, WANTED};

use mx_proto::Instant;
use mx_proto::reliability::{Channel, Incoming};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Datagrams held back at a time; further ones pass.
const HELD_MAX: usize = 4096;

/// The most datagrams behind which one is reordered.
const REORDER_MAX: u64 = 8;

/// The longest time that one is held back.
const DELAY_MAX: Duration = Duration::from_millis(2);

/// Counters of datagrams by fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultStats {
    /// Unchanged.
    pub passed: u64,
    /// Dropped.
    pub lost: u64,
    /// Duplicated.
    pub doubled: u64,
    /// Held back until others had passed.
    pub reordered: u64,
    /// Held back for a while.
    pub delayed: u64,
    /// Damaged.
    pub corrupted: u64,
}

/// The result of a draw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pass,
    Lose,
    Double,
    Reorder,
    Delay,
    Corrupt,
}

const FATES: [Fate; 5] = [
    Fate::Lose,
    Fate::Double,
    Fate::Reorder,
    Fate::Delay,
    Fate::Corrupt,
];

struct Held<A> {
    channel: Channel,
    from: A,
    bytes: Vec<u8>,
    /// Released when so many datagrams have been seen ...
    after: u64,
    /// ... or at this time.
    until: Instant,
}

/// Faults in what a service receives.
pub(super) struct Faults<A> {
    /// Upper bounds of the draws for each fault, rising: below the first the first one, and so on.
    limits: [u64; 5],
    /// Some of them damage.
    pub(super) damages: bool,
    state: u64,
    seen: u64,
    held: VecDeque<Held<A>>,
    scratch: Vec<u8>,
    stats: FaultStats,
}

impl<A: Copy> Faults<A> {
    pub(super) fn new(plan: FaultPlan) -> Self {
        let mut sum = 0.0;
        let limits = plan.shares().map(|share| {
            sum += share;
            // Saturates at both ends.
            (sum * u64::MAX as f64) as u64
        });
        Self {
            limits,
            damages: plan.corrupt > 0.0,
            state: plan.seed,
            seen: 0,
            held: VecDeque::new(),
            scratch: Vec::new(),
            stats: FaultStats::default(),
        }
    }

    /// No datagram is held back.
    pub(super) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// The next random number (SplitMix64).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    fn fate(&mut self) -> Fate {
        let draw = self.draw();
        let place = self.limits.iter().position(|limit| draw < *limit);
        place.map_or(Fate::Pass, |place| FATES[place])
    }

    /// Hands on what has been held back for long enough.
    pub(super) fn release(
        &mut self,
        now: Instant,
        receive: &mut impl FnMut(Incoming<'_, A>),
    ) -> bool {
        let mut any = false;
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            if self.seen < held.after && now < held.until {
                at += 1;
                continue;
            }
            if let Some(held) = self.held.remove(at) {
                any = true;
                single(held.channel, held.from, &held.bytes, receive);
            }
        }
        any
    }

    /// Receives from the service and applies faults.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        incoming: Incoming<'_, A>,
        receive: &mut impl FnMut(Incoming<'_, A>),
    ) {
        match incoming {
            Incoming::Datagrams {
                channel,
                from,
                bytes,
                segment,
            } => self.harm((channel, from, now), (bytes, segment.max(1)), receive),
            other => receive(other),
        }
    }

    /// Applies faults to a batch; datagrams that pass stay together.
    fn harm(
        &mut self,
        (channel, from, now): (Channel, A, Instant),
        (bytes, segment): (&[u8], usize),
        receive: &mut impl FnMut(Incoming<'_, A>),
    ) {
        // The start of the current run of datagrams that pass.
        let mut run = 0;
        for (nth, datagram) in bytes.chunks(segment).enumerate() {
            self.seen += 1;
            let fate = match self.fate() {
                Fate::Reorder | Fate::Delay if self.held.len() >= HELD_MAX => Fate::Pass,
                fate => fate,
            };
            let at = nth * segment;
            if fate == Fate::Pass {
                self.stats.passed += 1;
                if self.held.iter().any(|held| self.seen >= held.after) {
                    let end = at + datagram.len();
                    batch(channel, from, &bytes[run..end], segment, receive);
                    run = end;
                    self.release(now, receive);
                }
                continue;
            }
            batch(channel, from, &bytes[run..at], segment, receive);
            run = at + datagram.len();
            match fate {
                Fate::Pass => {}
                Fate::Lose => self.stats.lost += 1,
                Fate::Double => {
                    self.stats.doubled += 1;
                    single(channel, from, datagram, receive);
                    single(channel, from, datagram, receive);
                }
                Fate::Corrupt => {
                    self.stats.corrupted += 1;
                    self.damage(datagram);
                    single(channel, from, &self.scratch, receive);
                }
                Fate::Reorder => {
                    self.stats.reordered += 1;
                    let after = self.seen + 1 + self.below(REORDER_MAX);
                    self.hold(channel, from, datagram, after, now.after(DELAY_MAX));
                }
                Fate::Delay => {
                    self.stats.delayed += 1;
                    let late = self.below(DELAY_MAX.as_nanos() as u64);
                    let until = now.after(Duration::from_nanos(late));
                    self.hold(channel, from, datagram, u64::MAX, until);
                }
            }
            self.release(now, receive);
        }
        batch(channel, from, &bytes[run..], segment, receive);
    }

    fn hold(&mut self, channel: Channel, from: A, bytes: &[u8], after: u64, until: Instant) {
        self.held.push_back(Held {
            channel,
            from,
            bytes: bytes.to_vec(),
            after,
            until,
        });
    }

    /// A copy with up to three bits flipped, or truncated.
    fn damage(&mut self, datagram: &[u8]) {
        self.scratch.clear();
        self.scratch.extend_from_slice(datagram);
        let len = datagram.len() as u64;
        if len > 1 && self.below(8) == 0 {
            let keep = 1 + self.below(len - 1);
            self.scratch.truncate(keep as usize);
            return;
        }
        for _ in 0..=self.below(3) {
            let bit = self.below(len * 8);
            if let Some(byte) = self.scratch.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

fn single<A>(channel: Channel, from: A, bytes: &[u8], receive: &mut impl FnMut(Incoming<'_, A>)) {
    batch(channel, from, bytes, bytes.len(), receive);
}

fn batch<A>(
    channel: Channel,
    from: A,
    bytes: &[u8],
    segment: usize,
    receive: &mut impl FnMut(Incoming<'_, A>),
) {
    if !bytes.is_empty() {
        receive(Incoming::Datagrams {
            channel,
            from,
            bytes,
            segment,
        });
    }
}

impl<A> fmt::Debug for Faults<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats.fmt(f)
    }
}
