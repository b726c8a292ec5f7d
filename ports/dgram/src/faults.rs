//! Fault injection: loses, duplicates, reorders, delays and damages datagrams on purpose.
//!
//! ```text
//!   service --next--> each datagram: one draw --+-- unchanged ----------> queue --next--> above
//!                                               +-- lost
//!                                               +-- duplicated --------->
//!                                               +-- held back: reordered behind some others, or delayed
//!                                               `-- some bits flipped, or truncated -->
//! ```
//!
//! Unchanged datagrams stay in the service's memory until they are handed out.
//!
//! Faults are applied on receive, so two processes with the same setting affect both directions. Equal seeds and
//! datagrams give equal faults.
//!
//! Without a plan everything passes, at the cost of one branch.
//!
//! Owns: the random numbers, datagrams held back, and those handed out changed or late.
//! Out of scope: the contents of datagrams.

mod plan;
#[cfg(test)]
mod tests;

pub use plan::{FaultPlan, WANTED};

use mx_proto::Instant;
use mx_proto::reliability::{Channel, Incoming};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Maximum number of datagrams held back at a time; further ones pass.
const HELD_MAX: usize = 4096;

/// Maximum number of datagrams behind which one is reordered.
const REORDER_MAX: u64 = 8;

/// Maximum time for which a datagram is held back.
const DELAY_MAX: Duration = Duration::from_millis(2);

/// Number of datagrams by fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultStats {
    /// Datagrams passed unchanged.
    pub passed: u64,
    /// Datagrams dropped.
    pub lost: u64,
    /// Datagrams delivered twice.
    pub doubled: u64,
    /// Datagrams held back until others had passed.
    pub reordered: u64,
    /// Datagrams held back for a while.
    pub delayed: u64,
    /// Datagrams with flipped bits, or truncated.
    pub corrupted: u64,
}

/// Outcome of a draw.
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
    /// Value of `seen` at which the datagram is released ...
    after: u64,
    /// ... or the time, whichever comes first.
    until: Instant,
}

/// Event to be handed out, and the location of its datagrams.
struct Queued<A> {
    incoming: Incoming<A>,
    bytes: Lent,
}

/// Location of datagrams.
enum Lent {
    /// A range of the service's memory.
    Service(Range<usize>),
    Own(Vec<u8>),
}

/// Fault injection into what a service receives.
pub(super) struct Faults<A> {
    /// Upper bounds of the draws for each fault in the order of `FATES`, ascending.
    limits: [u64; 5],
    /// True if some datagrams are damaged.
    pub(super) damages: bool,
    state: u64,
    /// Time at which the poll began.
    now: Instant,
    /// True if datagrams held back have been released in this poll.
    released: bool,
    seen: u64,
    held: VecDeque<Held<A>>,
    queue: VecDeque<Queued<A>>,
    /// Location of the datagrams handed out last.
    lent: Lent,
    stats: FaultStats,
}

impl<A: Copy> Faults<A> {
    pub(super) fn new(plan: FaultPlan) -> Self {
        let mut sum = 0.0;
        let limits = plan.shares().map(|share| {
            sum += share;
            // `as` saturates at both ends.
            (sum * u64::MAX as f64) as u64
        });
        Self {
            limits,
            damages: plan.corrupt > 0.0,
            state: plan.seed,
            now: Instant(0),
            released: false,
            seen: 0,
            held: VecDeque::new(),
            queue: VecDeque::new(),
            lent: Lent::Service(0..0),
            stats: FaultStats::default(),
        }
    }

    /// Returns true if no datagram is held back.
    pub(super) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the next random number (SplitMix64).
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

    /// Begins a poll.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.now, self.released) = (now, false);
    }

    /// Returns true if this poll has released datagrams held back.
    pub(super) fn has_released(&self) -> bool {
        self.released
    }

    /// Returns the next event to hand out.
    pub(super) fn next(&mut self) -> Option<Incoming<A>> {
        let Queued { incoming, bytes } = self.queue.pop_front()?;
        self.lent = bytes;
        Some(incoming)
    }

    /// Returns the datagrams handed out last; `service`: those that the service lends.
    pub(super) fn bytes<'a>(&'a self, service: &'a [u8]) -> &'a [u8] {
        match &self.lent {
            Lent::Service(range) => service.get(range.clone()).unwrap_or(&[]),
            Lent::Own(bytes) => bytes,
        }
    }

    /// Releases datagrams that have been held back long enough.
    pub(super) fn release(&mut self) {
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            if self.seen < held.after && self.now < held.until {
                at += 1;
                continue;
            }
            if let Some(held) = self.held.remove(at) {
                self.released = true;
                self.single(held.channel, held.from, held.bytes);
            }
        }
    }

    /// Applies faults to an event of the service; `bytes` are its datagrams.
    pub(super) fn take_in(&mut self, incoming: Incoming<A>, bytes: &[u8]) {
        match incoming {
            Incoming::Datagrams {
                channel,
                from,
                segment,
            } => self.harm(channel, from, (bytes, segment.max(1))),
            other => self.queue.push_back(Queued {
                incoming: other,
                bytes: Lent::Service(0..0),
            }),
        }
    }

    /// Applies faults to a batch; datagrams that pass stay together.
    fn harm(&mut self, channel: Channel, from: A, (bytes, segment): (&[u8], usize)) {
        // Start of the current run of datagrams that pass.
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
                    self.pass(channel, from, run..end, segment);
                    run = end;
                    self.release();
                }
                continue;
            }
            self.pass(channel, from, run..at, segment);
            run = at + datagram.len();
            match fate {
                Fate::Pass => {}
                Fate::Lose => self.stats.lost += 1,
                Fate::Double => {
                    self.stats.doubled += 1;
                    for _ in 0..2 {
                        self.pass(channel, from, at..run, segment);
                    }
                }
                Fate::Corrupt => {
                    self.stats.corrupted += 1;
                    let damaged = self.damage(datagram);
                    self.single(channel, from, damaged);
                }
                Fate::Reorder => {
                    self.stats.reordered += 1;
                    let after = self.seen + 1 + self.below(REORDER_MAX);
                    self.hold(channel, from, datagram, after, self.now.after(DELAY_MAX));
                }
                Fate::Delay => {
                    self.stats.delayed += 1;
                    let late = self.below(DELAY_MAX.as_nanos() as u64);
                    let until = self.now.after(Duration::from_nanos(late));
                    self.hold(channel, from, datagram, u64::MAX, until);
                }
            }
            self.release();
        }
        self.pass(channel, from, run..bytes.len(), segment);
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

    /// Returns a copy that is truncated, or has up to three bits flipped.
    fn damage(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut copy = datagram.to_vec();
        let len = datagram.len() as u64;
        if len > 1 && self.below(8) == 0 {
            let keep = 1 + self.below(len - 1);
            copy.truncate(keep as usize);
            return copy;
        }
        for _ in 0..=self.below(3) {
            let bit = self.below(len * 8);
            if let Some(byte) = copy.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
        copy
    }

    /// Queues datagrams in the service's memory, unchanged.
    fn pass(&mut self, channel: Channel, from: A, range: Range<usize>, segment: usize) {
        if !range.is_empty() {
            self.queue.push_back(Queued {
                incoming: Incoming::Datagrams {
                    channel,
                    from,
                    segment,
                },
                bytes: Lent::Service(range),
            });
        }
    }

    /// Queues a single owned datagram.
    fn single(&mut self, channel: Channel, from: A, bytes: Vec<u8>) {
        self.queue.push_back(Queued {
            incoming: Incoming::Datagrams {
                channel,
                from,
                segment: bytes.len().max(1),
            },
            bytes: Lent::Own(bytes),
        });
    }
}

impl<A> fmt::Debug for Faults<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats.fmt(f)
    }
}
