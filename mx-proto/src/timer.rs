//! Timer wheel for deadlines of requests, remotes or links: hierarchical (Varghese and Lauck, 1987).
//!
//! ```text
//!   level 0    64 slots of a tick           | x |   | x | x | ...     the 64 ticks around now
//!   level 1    64 slots of 64 ticks         |   |   |   | x | ...     the 4096 ticks around now
//!   level 2    64 slots of 4096 ticks       |   | x |   |   | ...
//!     ...      up to the end of time
//!                            when time reaches a slot, its entries move down; those of a slot of
//!                            level 0 expire
//! ```
//!
//! An entry is on the level of the highest group of six bits in which its tick differs from the present one. So all
//! entries of a level expire before those of the next, and the lowest bit set in the lowest level's map is the next
//! slot.
//!
//! Deadlines of one tick expire in the order in which they were set.
//!
//! Owns: the deadlines.
//! Cost: set and clear are O(1), 24 bytes and a key for each entry; an entry moves down at most once for each level,
//! and slots without entries take no time. 2.9 KiB for the slots. A deadline expires up to one tick late, never early.

use crate::time::{Instant, PeerDeadline};
use slab::Slab;
use std::num::NonZeroU32;
use std::time::Duration;

/// Name of an entry; only its holder may clear it. The value is the index plus one, so that an `Option` of it takes no
/// more room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerId(NonZeroU32);

impl TimerId {
    fn of(index: u32) -> Self {
        // The slab has fewer than 2^32 - 1 entries: more would not fit into memory.
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
    /// Previous entry of the slot; of the first entry, the last one.
    prev: u32,
    /// Next entry of the slot; of the last entry, none.
    next: u32,
    /// Level and slot of the entry.
    slot: TimerSlot,
    /// Whether a late check has postponed the entry ([`Wheel::expired_or_put_off`]).
    put_off: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimerSlot {
    level: u8,
    index: u8,
}

#[derive(Debug)]
pub(crate) struct Wheel<K> {
    levels: Box<[Level; LEVELS]>,
    entries: Slab<Entry<K>>,
    /// Length of a tick in nanoseconds.
    tick: u64,
    /// Tick up to which everything has expired, except the entries in its own slot of level 0. No entry is before it.
    current: u64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// Bit `i` is set if slot `i` has an entry.
    map: u64,
    heads: [u32; SLOTS],
}

impl<K: Copy> Wheel<K> {
    /// Makes an empty wheel. Deadlines may expire up to one `tick` late.
    pub(crate) fn new(tick: Duration) -> Self {
        let empty = Level {
            map: 0,
            heads: [NONE; SLOTS],
        };
        Self {
            levels: Box::new([empty; LEVELS]),
            entries: Slab::new(),
            tick: u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1),
            current: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry: [`Self::expired`] returns `key` once `deadline` has passed.
    pub(crate) fn set(&mut self, now: Instant, deadline: Instant, key: K) -> TimerId {
        if self.entries.is_empty() {
            self.current = self.current.max(now.0 / self.tick);
        }
        let index = self.entries.insert(Entry {
            deadline,
            key,
            prev: NONE,
            next: NONE,
            slot: TimerSlot { level: 0, index: 0 },
            put_off: false,
        });
        // A deadline that is over expires with the next tick, so a caller that sets it again each time does not loop
        // for ever.
        let present = self.current.max(now.0 / self.tick);
        let tick = self.tick_of(deadline).max(present.saturating_add(1));
        self.link(index as u32, tick);
        TimerId::of(index as u32)
    }

    pub(crate) fn due(&self, timer: TimerId) -> Option<Instant> {
        let entry = self.entries.get(timer.index())?;
        Some(entry.deadline)
    }

    #[inline(never)]
    pub(crate) fn clear(&mut self, timer: TimerId) {
        self.unlink(timer.index());
        self.entries.try_remove(timer.index());
    }

    fn unlink(&mut self, index: usize) {
        let Some(entry) = self.entries.get(index) else {
            return;
        };
        let (slot, prev, next) = (entry.slot, entry.prev, entry.next);
        let level = &mut self.levels[usize::from(slot.level)];
        let head = &mut level.heads[usize::from(slot.index)];
        if *head as usize == index {
            *head = next;
            if next == NONE {
                level.map &= !(1 << slot.index);
                return;
            }
        } else if let Some(prev) = self.entries.get_mut(prev as usize) {
            prev.next = next;
        }
        let next = if next == NONE { *head } else { next };
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = prev;
        }
    }

    /// Removes an entry that may have expired already, if it still has this `key`: its name may have been reused.
    pub(crate) fn clear_of(&mut self, timer: TimerId, key: K)
    where
        K: PartialEq,
    {
        let entry = self.entries.get(timer.index());
        if entry.is_some_and(|entry| entry.key == key) {
            self.clear(timer);
        }
    }

    /// Removes an expired entry. Returns its key and its deadline.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<(K, Instant)> {
        self.expired_or_put_off(now, |_| false)
    }

    /// Removes an expired entry as [`Self::expired`] does, but postpones deadlines of peers (`of_peer`) as
    /// [`PeerDeadline`] does.
    pub(crate) fn expired_or_put_off(
        &mut self,
        now: Instant,
        of_peer: impl Fn(K) -> bool,
    ) -> Option<(K, Instant)> {
        let until = now.0 / self.tick;
        while let Some((slot, start)) = self.first() {
            if start > until {
                break;
            }
            self.current = self.current.max(start);
            let head = self.levels[usize::from(slot.level)].heads[usize::from(slot.index)];
            if slot.level > 0 {
                self.move_down(slot);
            } else if let Some(entry) = self.entries.get(head as usize) {
                let expired = (entry.key, entry.deadline);
                if !entry.put_off && of_peer(entry.key) && self.put_off(head, now) {
                    continue;
                }
                self.clear(TimerId::of(head));
                return Some(expired);
            }
        }
        self.current = self.current.max(until);
        None
    }

    /// Postpones an entry if the check comes late. Returns whether it did.
    fn put_off(&mut self, index: u32, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return false;
        };
        let mut deadline = PeerDeadline::new(entry.deadline);
        if deadline.is_over(now) {
            return false;
        }
        (entry.deadline, entry.put_off) = (deadline.at(), true);
        self.unlink(index as usize);
        self.link(index, self.tick_of(deadline.at()));
        true
    }

    /// Returns the time at which [`Self::expired`] has something to do: never later than the earliest deadline's tick,
    /// and earlier only to move distant entries down.
    pub(crate) fn next(&self) -> Option<Instant> {
        let (_, start) = self.first()?;
        Some(Instant(start.saturating_mul(self.tick)))
    }

    /// Returns the first slot that is not empty, and the tick with which it begins.
    fn first(&self) -> Option<(TimerSlot, u64)> {
        let level = self.levels.iter().position(|level| level.map != 0)?;
        let index = self.levels[level].map.trailing_zeros();
        let shift = level as u32 * BITS;
        // Above the level's bits an entry agrees with the present tick.
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        let start = self.current & above | u64::from(index) << shift;
        let slot = TimerSlot {
            level: level as u8,
            index: index as u8,
        };
        Some((slot, start))
    }

    /// Moves the entries of a slot down when time has reached its beginning.
    fn move_down(&mut self, slot: TimerSlot) {
        let level = &mut self.levels[usize::from(slot.level)];
        level.map &= !(1 << slot.index);
        let mut index = std::mem::replace(&mut level.heads[usize::from(slot.index)], NONE);
        while let Some(entry) = self.entries.get(index as usize) {
            let (deadline, next) = (entry.deadline, entry.next);
            self.link(index, self.tick_of(deadline).max(self.current));
            index = next;
        }
    }

    fn link(&mut self, index: u32, tick: u64) {
        let slot = TimerSlot::of(tick, self.current);
        let level = &mut self.levels[usize::from(slot.level)];
        level.map |= 1 << slot.index;
        let head = &mut level.heads[usize::from(slot.index)];
        let last = match self.entries.get_mut(*head as usize) {
            Some(first) => std::mem::replace(&mut first.prev, index),
            None => {
                *head = index;
                index
            }
        };
        if let Some(last) = self.entries.get_mut(last as usize) {
            last.next = index;
        }
        if let Some(entry) = self.entries.get_mut(index as usize) {
            (entry.prev, entry.next, entry.slot) = (last, NONE, slot);
        }
    }

    /// Returns the first tick that is not before `at`.
    fn tick_of(&self, at: Instant) -> u64 {
        at.0.div_ceil(self.tick)
    }
}

impl TimerSlot {
    /// Returns the slot of `tick`, which is not before `current`.
    fn of(tick: u64, current: u64) -> Self {
        let level = (tick ^ current | 1).ilog2() / BITS;
        Self {
            level: level as u8,
            index: (tick >> (level * BITS)) as u8 % SLOTS as u8,
        }
    }
}

/// Number of bits of a tick's number that choose the slot on a level.
const BITS: u32 = 6;
/// Number of slots on a level: as many as a word has bits, so that the next one is found at once.
const SLOTS: usize = 1 << BITS;
/// Number of levels: enough for all 64 bits.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TICK: Duration = Duration::from_millis(64);

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    #[test]
    fn deadlines_come_out_after_their_time_and_at_most_a_tick_late() {
        for start in [0, 1, 63, 64, 4095 * 64, 100_000, 262_143 * 64] {
            for span in [0, 1, 63, 64, 65, 1_000, 16_383, 16_384, 60_000, 4096 * 64] {
                let mut wheel = Wheel::new(TICK);
                wheel.set(ms(start), ms(start + span), 7);
                let mut now = start;
                let due = loop {
                    if let Some((7, due)) = wheel.expired(ms(now)) {
                        break due;
                    }
                    now += 7;
                };
                assert_eq!(due, ms(start + span));
                assert!(now >= start + span, "{start} + {span} early at {now}");
                // A deadline that is over when it is set expires with the next tick.
                let late = if span == 0 { 128 } else { 64 };
                assert!(now < start + span + late + 7, "{start} + {span} at {now}");
                assert!(wheel.is_empty());
            }
        }
    }

    #[test]
    fn deadlines_of_one_tick_expire_in_setting_order() {
        for span in [300, 5_000, 300_000, 20_000_000] {
            let mut wheel = Wheel::new(TICK);
            let mut timers: Vec<_> = (0..40).map(|n| wheel.set(ms(0), ms(span), n)).collect();
            // Half of the time passes, and some entries move down before the others are set.
            let half = ms(span / 2 + 64);
            wheel.set(ms(0), ms(span / 2), 100);
            assert_eq!(wheel.expired(half), Some((100, ms(span / 2))));
            assert_eq!(wheel.expired(half), None);
            timers.extend((40..60).map(|n| wheel.set(half, ms(span), n)));
            let gone = [0, 7, 8, 39, 41, 59];
            gone.iter().for_each(|n| wheel.clear(timers[*n]));
            timers.push(wheel.set(half, ms(span), 60));
            let out = std::iter::from_fn(|| wheel.expired(ms(span + 64)));
            let left = (0..=60).filter(|n| !gone.contains(n));
            assert!(out.map(|(n, _)| n).eq(left), "{span}");
            assert!(wheel.is_empty() && wheel.levels.iter().all(|level| level.map == 0));
        }
    }

    #[test]
    fn cleared_deadlines_never_come_out() {
        let mut wheel = Wheel::new(TICK);
        let timers: Vec<_> = (0..10).map(|n| wheel.set(ms(0), ms(100), n)).collect();
        for n in [0usize, 9, 4, 5] {
            wheel.clear(timers[n]);
        }
        let mut left: Vec<_> = std::iter::from_fn(|| wheel.expired(ms(500)))
            .map(|(n, _)| n)
            .collect();
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 6, 7, 8]);
        assert!(wheel.levels.iter().all(|level| level.map == 0));
    }

    #[test]
    fn next_is_the_deadlines_tick_when_that_is_near() {
        let mut wheel = Wheel::new(TICK);
        assert_eq!(wheel.next(), None);
        wheel.set(ms(1000), ms(1500), 1);
        assert_eq!(wheel.next(), Some(ms(24 * 64)));
        let timer = wheel.set(ms(1000), ms(1400), 1);
        assert_eq!(wheel.next(), Some(ms(22 * 64)));
        wheel.clear(timer);
        assert_eq!(wheel.next(), Some(ms(24 * 64)));
    }

    #[test]
    fn a_sleep_until_next_meets_every_deadline_with_few_wake_ups() {
        for tick in [1, 1000, 1_000_000] {
            for span in [1u64, 1_000, 1_000_000, 60_000_000_000, 1 << 55] {
                let start = Instant(123_456_789_123);
                let mut wheel = Wheel::new(Duration::from_nanos(tick));
                wheel.set(start, Instant(start.0 + span), ());
                let mut wakes = 0;
                let met = loop {
                    let now = wheel.next().unwrap();
                    assert!(now > start);
                    wakes += 1;
                    if wheel.expired(now).is_some() {
                        break now;
                    }
                };
                assert!(met.0 >= start.0 + span && met.0 < start.0 + span + 2 * tick);
                assert!(
                    wakes <= LEVELS,
                    "{wakes} wake-ups for {span} in ticks of {tick}"
                );
            }
        }
    }

    #[test]
    fn a_long_silence_does_not_lose_deadlines_nor_their_order() {
        let mut wheel = Wheel::new(TICK);
        for n in 0..3000 {
            wheel.set(ms(0), ms(n * 1000), n);
        }
        let out: Vec<_> = std::iter::from_fn(|| wheel.expired(ms(10_000_000))).collect();
        assert!(out.iter().map(|(n, _)| *n).eq(0..3000));
    }

    #[test]
    fn the_end_of_time_is_a_deadline() {
        let mut wheel = Wheel::new(Duration::from_nanos(1));
        wheel.set(Instant(5), Instant(u64::MAX), 1);
        wheel.set(Instant(5), Instant(u64::MAX - 1), 2);
        assert_eq!(wheel.expired(Instant(u64::MAX - 2)), None);
        assert_eq!(wheel.expired(Instant(u64::MAX)).unwrap().0, 2);
        assert_eq!(wheel.expired(Instant(u64::MAX)).unwrap().0, 1);
        wheel.set(Instant(u64::MAX), Instant(u64::MAX), 3);
        assert_eq!(wheel.expired(Instant(u64::MAX)).unwrap().0, 3);
    }

    #[test]
    fn a_late_look_puts_off_the_deadlines_of_peers_and_no_others() {
        let second = |n: u64| Instant(n * 1_000_000_000);
        let mut wheel = Wheel::new(TICK);
        let timers = [1, 2, 3].map(|key| wheel.set(second(0), second(5), key));
        let out = |wheel: &mut Wheel<i32>, at| {
            let next = || wheel.expired_or_put_off(second(at), |key| key != 2);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!(out(&mut wheel, 60), [(2, second(5))]);
        assert_eq!(wheel.due(timers[0]), Some(second(61)));
        wheel.clear(timers[2]);
        assert_eq!(out(&mut wheel, 99), [(1, second(61))], "once");
        assert!(wheel.is_empty());
    }

    #[test]
    fn one_that_is_always_overdue_comes_out_once_a_tick() {
        let mut wheel = Wheel::new(TICK);
        wheel.set(ms(0), ms(0), 1);
        for tick in [1, 2, 3, 500, 501] {
            let now = ms(tick * 64 + 13);
            assert!(wheel.expired(now).is_some());
            wheel.set(now, ms(0), 1);
            assert_eq!(wheel.expired(now), None);
        }
    }

    #[test]
    fn time_that_stands_still_or_goes_back_fires_nothing() {
        let mut wheel = Wheel::new(TICK);
        wheel.set(ms(10_000), ms(10_100), 1);
        assert_eq!(wheel.expired(ms(10_000)), None);
        assert_eq!(wheel.expired(ms(5)), None);
        assert!(wheel.expired(ms(10_200)).is_some());
    }

    /// Compares the wheel with an ordered map, with times of all orders of magnitude.
    #[test]
    fn any_sequence_does_what_an_ordered_map_does() {
        let mut chance = 1u64;
        let mut roll = move |below: u64| {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            chance % below
        };
        for tick in [1, 100, 64_000_000] {
            let mut wheel = Wheel::new(Duration::from_nanos(tick));
            let mut known = BTreeMap::new();
            let (mut now, mut key) = (roll(1 << 40), 0u64);
            for _ in 0..20_000 {
                match roll(8) {
                    0..4 => {
                        let order = 1 + roll(40);
                        let deadline = now + roll(1 << order);
                        let timer = wheel.set(Instant(now), Instant(deadline), key);
                        known.insert(key, (deadline, timer, now));
                        key += 1;
                    }
                    4 | 5 => {
                        let some = known.range(roll(key + 1)..).next().map(|(key, _)| *key);
                        if let Some((_, timer, _)) = some.and_then(|key| known.remove(&key)) {
                            wheel.clear(timer);
                        }
                    }
                    _ => {
                        let order = 1 + roll(38);
                        now += roll(1 << order);
                        while let Some((key, due)) = wheel.expired(Instant(now)) {
                            let (deadline, ..) = known.remove(&key).unwrap();
                            assert!(due.0 == deadline && deadline <= now);
                        }
                        for (deadline, _, set) in known.values() {
                            let late = (*deadline).max(set + tick) + tick;
                            assert!(late > now, "{deadline} set at {set} forgotten at {now}");
                        }
                    }
                }
                let earliest = known
                    .values()
                    .map(|(deadline, _, set)| (*deadline).max(*set));
                match (wheel.next(), earliest.min()) {
                    (None, None) => {}
                    (Some(next), Some(earliest)) => assert!(next.0 <= earliest + 2 * tick),
                    other => panic!("{other:?}"),
                }
                assert_eq!(wheel.is_empty(), known.is_empty());
            }
        }
    }
}
