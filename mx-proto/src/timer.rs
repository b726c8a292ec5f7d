//! Deadlines of requests, or of partners: a hashed wheel.
//!
//! ```text
//!   slot:   0   1   2  ...  255       of requests: 64 ms each, 16.4 s a lap
//!           |   |
//!           |   +-- entry -- entry    an entry whose deadline is laps away
//!           +-- entry                 stays and is looked at once a lap
//! ```
//!
//! Owns: when something is to be looked at again. Knows nothing of: what then happens.
//! Cost: set and clear are O(1), 40 bytes an entry; expiry looks at the slots that have passed.
//! A deadline is met up to one slot late, never early.

use crate::time::Instant;
use slab::Slab;
use std::num::NonZeroU32;
use std::time::Duration;

/// Names an entry; only its holder may clear it. Its number and one, so that having none takes no
/// room in every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerId(NonZeroU32);

impl TimerId {
    fn of(index: u32) -> Self {
        // The slab has fewer than 2^32 - 1 entries: they would not fit into memory.
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug)]
struct Entry<K> {
    deadline: Instant,
    key: K,
    prev: u32,
    next: u32,
}

/// The wheel, of things called `K`.
#[derive(Debug)]
pub(crate) struct Wheel<K> {
    heads: Box<[u32; SLOTS]>,
    entries: Slab<Entry<K>>,
    /// Nanoseconds of one slot.
    slot: u64,
    /// The last slot (counted from the beginning of time) that has been looked at.
    swept: u64,
}

impl<K: Copy> Wheel<K> {
    /// Nothing to be looked at, in slots as long as deadlines may be late.
    pub(crate) fn new(slot: Duration) -> Self {
        Self {
            heads: Box::new([NONE; SLOTS]),
            entries: Slab::new(),
            slot: u64::try_from(slot.as_nanos()).unwrap_or(u64::MAX).max(1),
            swept: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Asks for `key` to come out of [`Self::expired`] once `deadline` has passed.
    pub(crate) fn set(&mut self, now: Instant, deadline: Instant, key: K) -> TimerId {
        if self.entries.is_empty() {
            self.swept = self.slot_of(now);
        }
        // A deadline in a slot already swept would wait for a whole lap.
        let deadline = deadline.max(Instant((self.swept + 1).saturating_mul(self.slot)));
        let slot = self.slot_of(deadline) as usize % SLOTS;
        let head = &mut self.heads[slot];
        let entry = Entry {
            deadline,
            key,
            prev: NONE,
            next: *head,
        };
        let next = *head;
        let index = self.entries.insert(entry) as u32;
        *head = index;
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = index;
        }
        TimerId::of(index)
    }

    /// Forgets an entry.
    #[inline(never)]
    pub(crate) fn clear(&mut self, timer: TimerId) {
        let Some(entry) = self.entries.try_remove(timer.index()) else {
            return;
        };
        if let Some(next) = self.entries.get_mut(entry.next as usize) {
            next.prev = entry.prev;
        }
        match self.entries.get_mut(entry.prev as usize) {
            Some(prev) => prev.next = entry.next,
            None => {
                let slot = self.slot_of(entry.deadline) as usize % SLOTS;
                self.heads[slot] = entry.next;
            }
        }
    }

    /// Takes out one whose deadline has passed, and says when that was.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<(K, Instant)> {
        let current = self.slot_of(now);
        // More than a lap behind, every slot is looked at once.
        self.swept = self.swept.max(current.saturating_sub(SLOTS as u64));
        while self.swept < current {
            // The slot after the last one swept; it is complete once time has left it.
            let mut index = self.heads[self.swept as usize % SLOTS];
            while let Some(entry) = self.entries.get(index as usize) {
                if entry.deadline <= now {
                    let expired = (entry.key, entry.deadline);
                    self.clear(TimerId::of(index));
                    return Some(expired);
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
            .map(|slot| Instant((slot + 1).saturating_mul(self.slot)))
    }

    fn slot_of(&self, at: Instant) -> u64 {
        at.0 / self.slot
    }
}

const SLOTS: usize = 256;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;

    const SLOT: Duration = Duration::from_millis(64);

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    fn id(n: u32) -> RequestId {
        RequestId::new(n, 1)
    }

    fn out(wheel: &mut Wheel<RequestId>, now: u64) -> Option<(u32, Instant)> {
        let (id, due) = wheel.expired(ms(now))?;
        Some((id.index(), due))
    }

    #[test]
    fn deadlines_come_out_after_their_time_and_at_most_a_slot_late() {
        for start in [0, 1, 63, 64, 100_000] {
            for span in [0, 1, 63, 64, 65, 1_000, 16_383, 16_384, 20_000, 60_000] {
                let mut wheel = Wheel::new(SLOT);
                wheel.set(ms(start), ms(start + span), id(7));
                let mut now = start;
                let fired = loop {
                    if let Some((7, due)) = out(&mut wheel, now) {
                        assert!(due >= ms(start + span));
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
        let mut wheel = Wheel::new(SLOT);
        let timers: Vec<_> = (0..10).map(|n| wheel.set(ms(0), ms(100), id(n))).collect();
        for n in [0usize, 9, 4, 5] {
            wheel.clear(timers[n]);
        }
        let mut left: Vec<_> = std::iter::from_fn(|| out(&mut wheel, 500))
            .map(|(n, _)| n)
            .collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 6, 7, 8]);
    }

    #[test]
    fn next_is_never_later_than_a_slot_after_the_deadline() {
        let mut wheel = Wheel::new(SLOT);
        assert_eq!(wheel.next(), None);
        wheel.set(ms(1000), ms(1500), id(1));
        let next = wheel.next().unwrap();
        assert!(next >= ms(1500) && next <= ms(1500 + 64));
    }

    #[test]
    fn a_long_silence_does_not_lose_deadlines() {
        let mut wheel = Wheel::new(SLOT);
        for n in 0..300 {
            wheel.set(ms(0), ms(u64::from(n) * 100), id(n));
        }
        let out = std::iter::from_fn(|| wheel.expired(ms(10_000_000))).count();
        assert_eq!(out, 300);
    }
}
