//! Deadlines of requests: a hashed wheel.
//!
//! ```text
//!   slot:   0   1   2  ...  255       64 ms each, 16.4 s a lap
//!           |   |
//!           |   +-- entry -- entry    an entry whose deadline is laps away
//!           +-- entry                 stays and is looked at once a lap
//! ```
//!
//! Owns: when a request is to be looked at again. Knows nothing of: what then happens.
//! Cost: set and clear are O(1), 40 bytes an entry; expiry looks at the slots that have passed.
//! A deadline is met up to one slot late, never early.

use crate::ids::RequestId;
use crate::time::Instant;
use slab::Slab;
use std::time::Duration;

/// Names an entry; only its holder may clear it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerId(u32);

#[derive(Debug)]
struct Entry {
    deadline: Instant,
    request: RequestId,
    prev: u32,
    next: u32,
}

/// The wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    heads: Box<[u32; SLOTS]>,
    entries: Slab<Entry>,
    /// The last slot (counted from the beginning of time) that has been looked at.
    swept: u64,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self {
            heads: Box::new([NONE; SLOTS]),
            entries: Slab::new(),
            swept: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Asks for `request` to come out of [`Self::expired`] once `deadline` has passed.
    pub(crate) fn set(&mut self, now: Instant, deadline: Instant, request: RequestId) -> TimerId {
        if self.entries.is_empty() {
            self.swept = slot_of(now);
        }
        // A deadline in a slot already swept would wait for a whole lap.
        let deadline = deadline.max(Instant((self.swept + 1) * SLOT_NANOS));
        let head = &mut self.heads[slot_of(deadline) as usize % SLOTS];
        let entry = Entry {
            deadline,
            request,
            prev: NONE,
            next: *head,
        };
        let next = *head;
        let index = self.entries.insert(entry) as u32;
        *head = index;
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = index;
        }
        TimerId(index)
    }

    /// Forgets an entry.
    pub(crate) fn clear(&mut self, timer: TimerId) {
        let Some(entry) = self.entries.try_remove(timer.0 as usize) else {
            return;
        };
        if let Some(next) = self.entries.get_mut(entry.next as usize) {
            next.prev = entry.prev;
        }
        match self.entries.get_mut(entry.prev as usize) {
            Some(prev) => prev.next = entry.next,
            None => self.heads[slot_of(entry.deadline) as usize % SLOTS] = entry.next,
        }
    }

    /// Takes out one request whose deadline has passed.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<RequestId> {
        let current = slot_of(now);
        // More than a lap behind, every slot is looked at once.
        self.swept = self.swept.max(current.saturating_sub(SLOTS as u64));
        while self.swept < current {
            // The slot after the last one swept; it is complete once time has left it.
            let mut index = self.heads[self.swept as usize % SLOTS];
            while let Some(entry) = self.entries.get(index as usize) {
                if entry.deadline <= now {
                    let request = entry.request;
                    self.clear(TimerId(index));
                    return Some(request);
                }
                index = entry.next;
            }
            self.swept += 1;
        }
        None
    }

    /// When [`Self::expired`] may next have something: never later than the earliest deadline's
    /// slot ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.entries.is_empty() {
            return None;
        }
        (self.swept..self.swept + SLOTS as u64)
            .find(|slot| self.heads[*slot as usize % SLOTS] != NONE)
            .map(|slot| Instant((slot + 1).saturating_mul(SLOT_NANOS)))
    }
}

fn slot_of(at: Instant) -> u64 {
    at.0 / SLOT_NANOS
}

const SLOTS: usize = 256;
const SLOT_NANOS: u64 = Duration::from_millis(64).as_nanos() as u64;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    fn id(n: u32) -> RequestId {
        RequestId::new(n, 1)
    }

    #[test]
    fn deadlines_come_out_after_their_time_and_at_most_a_slot_late() {
        for start in [0, 1, 63, 64, 100_000] {
            for span in [0, 1, 63, 64, 65, 1_000, 16_383, 16_384, 20_000, 60_000] {
                let mut wheel = Wheel::new();
                wheel.set(ms(start), ms(start + span), id(7));
                let mut now = start;
                let fired = loop {
                    if wheel.expired(ms(now)) == Some(id(7)) {
                        break now;
                    }
                    now += 7;
                };
                assert!(
                    fired >= start + span,
                    "{start} + {span} fired early at {fired}"
                );
                assert!(
                    fired <= start + span + 64 * 2 + 7,
                    "{start} + {span} at {fired}"
                );
                assert!(wheel.is_empty());
            }
        }
    }

    #[test]
    fn cleared_deadlines_never_come_out() {
        let mut wheel = Wheel::new();
        let timers: Vec<_> = (0..10).map(|n| wheel.set(ms(0), ms(100), id(n))).collect();
        for n in [0usize, 9, 4, 5] {
            wheel.clear(timers[n]);
        }
        let mut out: Vec<_> = std::iter::from_fn(|| wheel.expired(ms(500)))
            .map(RequestId::index)
            .collect();
        out.sort_unstable();
        assert_eq!(out, [1, 2, 3, 6, 7, 8]);
    }

    #[test]
    fn next_is_never_later_than_a_slot_after_the_deadline() {
        let mut wheel = Wheel::new();
        assert_eq!(wheel.next(), None);
        wheel.set(ms(1000), ms(1500), id(1));
        let next = wheel.next().unwrap();
        assert!(next >= ms(1500) && next <= ms(1500 + 64));
    }

    #[test]
    fn a_long_silence_does_not_lose_deadlines() {
        let mut wheel = Wheel::new();
        for n in 0..300 {
            wheel.set(ms(0), ms(u64::from(n) * 100), id(n));
        }
        let out = std::iter::from_fn(|| wheel.expired(ms(10_000_000))).count();
        assert_eq!(out, 300);
    }
}
