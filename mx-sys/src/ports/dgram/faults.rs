//! Datagrams that get lost, doubled, overtaken, delayed and damaged on purpose.
//!
//! ```text
//!   service --poll--> each datagram: one draw --+-- as it is --------------> above
//!                                               +-- lost
//!                                               +-- twice ----------------->
//!                                               +-- held back: overtaken by some others, or late
//!                                               `-- some bits flipped, or its end cut off -->
//! ```
//!
//! Every process harms what it receives, so that two with the same setting harm both directions.
//! The same seed and the same datagrams give the same harm.
//!
//! Owns: the draws, datagrams held back.
//! Knows nothing of: what is in them.

use mx_proto::port::{ConnectError, WakeDescriptors};
use mx_proto::reliability::{Capacity, Channel, DatagramError, DatagramPort, Incoming, Train};
use mx_proto::{Instant, Target};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Datagrams held back at a time; further ones pass.
const HELD_MAX: usize = 4096;

/// How many others overtake one at most.
const OVERTAKERS: u64 = 8;

/// How long one is held back at most, overtaken or not.
const LATE: Duration = Duration::from_millis(2);

/// What is to happen how often: shares of all datagrams, at most 1 together.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Never arrive.
    pub loss: f64,
    /// Arrive twice.
    pub dup: f64,
    /// Are overtaken by others.
    pub reorder: f64,
    /// Arrive a little later.
    pub delay: f64,
    /// Are damaged.
    pub corrupt: f64,
    /// Where the draws begin.
    pub seed: u64,
}

/// What a plan looks like, for whoever is told that theirs is none.
pub const WANTED: &str = "loss, dup, reorder, delay, corrupt = 0 to 1 and at most 1 \
                          together, seed = a number, as in loss=0.01,reorder=0.02,seed=7";

impl FaultPlan {
    /// Reads `loss=0.01,dup=0.01,seed=7`: parts in any order, separated by commas or semicolons.
    /// `None`: it is no such text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut plan = Self::default();
        for part in text.split([',', ';']) {
            let (name, value) = part.split_once('=')?;
            let (name, value) = (name.trim(), value.trim());
            let share = match name {
                "loss" => &mut plan.loss,
                "dup" => &mut plan.dup,
                "reorder" => &mut plan.reorder,
                "delay" => &mut plan.delay,
                "corrupt" => &mut plan.corrupt,
                "seed" => {
                    plan.seed = value.parse().ok()?;
                    continue;
                }
                _ => return None,
            };
            *share = value
                .parse()
                .ok()
                .filter(|share| (0.0..=1.0).contains(share))?;
        }
        (plan.shares().iter().sum::<f64>() <= 1.0).then_some(plan)
    }

    fn shares(&self) -> [f64; 5] {
        [self.loss, self.dup, self.reorder, self.delay, self.corrupt]
    }
}

/// How many datagrams met what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultStats {
    /// Nothing.
    pub passed: u64,
    /// They were dropped.
    pub lost: u64,
    /// They came twice.
    pub doubled: u64,
    /// They were held back until others had passed.
    pub overtaken: u64,
    /// They were held back for a while.
    pub delayed: u64,
    /// They were damaged.
    pub corrupted: u64,
}

/// What a draw says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pass,
    Lose,
    Double,
    Overtake,
    Delay,
    Corrupt,
}

const FATES: [Fate; 5] = [
    Fate::Lose,
    Fate::Double,
    Fate::Overtake,
    Fate::Delay,
    Fate::Corrupt,
];

struct Held<A> {
    channel: Channel,
    from: A,
    bytes: Vec<u8>,
    /// Goes on when so many datagrams have been seen ...
    after: u64,
    /// ... or at this time.
    until: Instant,
}

/// A service with faults.
pub struct Faulty<D: DatagramPort> {
    inner: D,
    mishaps: Mishaps<D::Address>,
}

/// Everything but the service, which is busy while this is needed.
struct Mishaps<A> {
    /// Fates by rising draws: below the first number the first one, and so on.
    limits: [u64; 5],
    damages: bool,
    state: u64,
    seen: u64,
    held: VecDeque<Held<A>>,
    scratch: Vec<u8>,
    stats: FaultStats,
}

impl<D: DatagramPort> Faulty<D> {
    /// Harms what `inner` receives.
    pub fn new(inner: D, plan: FaultPlan) -> Self {
        let mut sum = 0.0;
        let limits = plan.shares().map(|share| {
            sum += share;
            // Saturates at both ends.
            (sum * u64::MAX as f64) as u64
        });
        let mishaps = Mishaps {
            limits,
            damages: plan.corrupt > 0.0,
            state: plan.seed,
            seen: 0,
            held: VecDeque::new(),
            scratch: Vec::new(),
            stats: FaultStats::default(),
        };
        Self { inner, mishaps }
    }

    /// The service underneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The same, to change it.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// How many datagrams met what so far.
    pub fn stats(&self) -> FaultStats {
        self.mishaps.stats
    }
}

impl<A: Copy> Mishaps<A> {
    /// The next number (SplitMix64).
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
    fn release(&mut self, now: Instant, receive: &mut impl FnMut(Incoming<'_, A>)) -> bool {
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

    /// Datagrams have come: those that nothing happens to stay together.
    fn harm(
        &mut self,
        (channel, from, now): (Channel, A, Instant),
        (bytes, segment): (&[u8], usize),
        receive: &mut impl FnMut(Incoming<'_, A>),
    ) {
        // Where the run of datagrams that pass began.
        let mut run = 0;
        for (nth, datagram) in bytes.chunks(segment).enumerate() {
            self.seen += 1;
            let fate = match self.fate() {
                Fate::Overtake | Fate::Delay if self.held.len() >= HELD_MAX => Fate::Pass,
                fate => fate,
            };
            let at = nth * segment;
            if fate == Fate::Pass {
                self.stats.passed += 1;
                if self.held.iter().any(|held| self.seen >= held.after) {
                    let end = at + datagram.len();
                    train(channel, from, &bytes[run..end], segment, receive);
                    run = end;
                    self.release(now, receive);
                }
                continue;
            }
            train(channel, from, &bytes[run..at], segment, receive);
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
                Fate::Overtake => {
                    self.stats.overtaken += 1;
                    let after = self.seen + 1 + self.below(OVERTAKERS);
                    self.hold(channel, from, datagram, after, now.after(LATE));
                }
                Fate::Delay => {
                    self.stats.delayed += 1;
                    let late = self.below(LATE.as_nanos() as u64);
                    let until = now.after(Duration::from_nanos(late));
                    self.hold(channel, from, datagram, u64::MAX, until);
                }
            }
            self.release(now, receive);
        }
        train(channel, from, &bytes[run..], segment, receive);
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

    /// A copy with up to three bits flipped, or without its end.
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
    train(channel, from, bytes, bytes.len(), receive);
}

fn train<A>(
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

impl<D: DatagramPort> DatagramPort for Faulty<D> {
    type Address = D::Address;

    fn resolve(&self, target: Target) -> Result<Self::Address, ConnectError> {
        self.inner.resolve(target)
    }

    fn same_host(one: Self::Address, other: Self::Address) -> bool {
        D::same_host(one, other)
    }

    fn data_name(&self) -> &[u8] {
        self.inner.data_name()
    }

    fn data_address(&mut self, command: Self::Address, name: &[u8]) -> Option<Self::Address> {
        self.inner.data_address(command, name)
    }

    fn is_safe(&self, address: Self::Address) -> bool {
        !self.mishaps.damages && self.inner.is_safe(address)
    }

    fn capacity(&self, channel: Channel) -> Capacity {
        self.inner.capacity(channel)
    }

    fn receive_buffer(&self) -> usize {
        self.inner.receive_buffer()
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn send(
        &mut self,
        channel: Channel,
        to: Self::Address,
        train: Train<'_>,
    ) -> Result<(), DatagramError> {
        self.inner.send(channel, to, train)
    }

    fn poll(
        &mut self,
        budget: usize,
        mut receive: impl FnMut(Incoming<'_, Self::Address>),
    ) -> bool {
        let now = self.inner.now();
        let mut any = self.mishaps.release(now, &mut receive);
        let mishaps = &mut self.mishaps;
        any |= self.inner.poll(budget, |incoming| match incoming {
            Incoming::Datagrams {
                channel,
                from,
                bytes,
                segment,
            } => mishaps.harm((channel, from, now), (bytes, segment.max(1)), &mut receive),
            other => receive(other),
        });
        any
    }

    fn arm(&mut self) -> bool {
        // Nothing else brings back what is held.
        let ready = self.inner.arm();
        ready && self.mishaps.held.is_empty()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn descriptors(&self) -> WakeDescriptors {
        self.inner.descriptors()
    }
}

impl<D: DatagramPort> fmt::Debug for Faulty<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("held", &self.mishaps.held.len())
            .field("stats", &self.mishaps.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Receives datagrams of four bytes, numbered from 0, in trains of `train`.
    struct Numbers {
        next: u32,
        end: u32,
        train: u32,
        now: Cell<u64>,
    }

    impl DatagramPort for Numbers {
        type Address = u8;

        fn resolve(&self, _: Target) -> Result<u8, ConnectError> {
            Err(ConnectError::NoRoute)
        }

        fn data_name(&self) -> &[u8] {
            &[]
        }

        fn data_address(&mut self, _: u8, _: &[u8]) -> Option<u8> {
            None
        }

        fn is_safe(&self, _: u8) -> bool {
            true
        }

        fn capacity(&self, _: Channel) -> Capacity {
            Capacity {
                datagram_max: 1,
                train_max: 1,
                train_bytes: 1,
            }
        }

        fn receive_buffer(&self) -> usize {
            1
        }

        fn now(&self) -> Instant {
            self.now.set(self.now.get() + 100);
            Instant(self.now.get())
        }

        fn send(&mut self, _: Channel, _: u8, _: Train<'_>) -> Result<(), DatagramError> {
            Ok(())
        }

        fn poll(&mut self, _: usize, mut receive: impl FnMut(Incoming<'_, u8>)) -> bool {
            let end = self.end.min(self.next + self.train);
            let bytes: Vec<u8> = (self.next..end).flat_map(u32::to_le_bytes).collect();
            self.next = end;
            train(Channel::Data, 9, &bytes, 4, &mut receive);
            !bytes.is_empty()
        }

        fn arm(&mut self) -> bool {
            true
        }

        fn disarm(&mut self) {}
    }

    const COUNT: u32 = 20_000;

    fn plan(text: &str) -> FaultPlan {
        FaultPlan::parse(text).unwrap()
    }

    /// What comes through of [`COUNT`] datagrams.
    fn through(text: &str) -> (Vec<Vec<u8>>, FaultStats) {
        let numbers = Numbers {
            next: 0,
            end: COUNT,
            train: 60,
            now: Cell::new(0),
        };
        let mut faulty = Faulty::new(numbers, plan(text));
        let mut got = Vec::new();
        while faulty.inner.next < COUNT || !faulty.arm() {
            faulty.poll(64, |incoming| {
                let Incoming::Datagrams { bytes, segment, .. } = incoming else {
                    panic!("only datagrams");
                };
                got.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
            });
        }
        (got, faulty.stats())
    }

    fn numbers(got: &[Vec<u8>]) -> Vec<u32> {
        let number = |bytes: &Vec<u8>| u32::from_le_bytes(bytes[..].try_into().unwrap());
        got.iter().map(number).collect()
    }

    /// 5 % of the datagrams, give or take as much as chance does.
    fn about_five_percent(count: u64) -> bool {
        (850..1150).contains(&count)
    }

    #[test]
    fn what_is_lost_is_missing_and_the_rest_is_in_order() {
        let (got, stats) = through("loss=0.05,seed=1");
        let got = numbers(&got);
        assert!(got.is_sorted());
        assert!(about_five_percent(stats.lost), "{stats:?}");
        assert_eq!(got.len() as u64, u64::from(COUNT) - stats.lost);
        assert_eq!(stats.passed + stats.lost, u64::from(COUNT));
    }

    #[test]
    fn what_is_doubled_comes_twice() {
        let (got, stats) = through("dup=0.05,seed=2");
        assert!(about_five_percent(stats.doubled), "{stats:?}");
        assert_eq!(got.len() as u64, u64::from(COUNT) + stats.doubled);
        let mut got = numbers(&got);
        got.dedup();
        assert_eq!(got, (0..COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_held_back_comes_all_the_same_and_not_much_later() {
        for (text, last) in [("reorder=0.05,seed=3", 10), ("delay=0.05,seed=4", COUNT)] {
            let (got, stats) = through(text);
            assert!(
                about_five_percent(stats.overtaken + stats.delayed),
                "{stats:?}"
            );
            let got = numbers(&got);
            assert!(!got.is_sorted());
            for (place, number) in got.iter().enumerate() {
                // One that nothing happened to is early by those that are held.
                assert!(
                    (place as u32).abs_diff(*number) <= last,
                    "{number} at {place}"
                );
            }
            let mut sorted = got;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..COUNT).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_damaged_differs_or_is_shorter_and_its_service_is_not_safe() {
        let (got, stats) = through("corrupt=0.05,seed=5");
        let right = (0..COUNT).map(|number| number.to_le_bytes().to_vec());
        let wrong = got.iter().zip(right).filter(|(got, right)| *got != right);
        let (wrong, short): (Vec<_>, Vec<_>) = wrong.partition(|(got, _)| got.len() == 4);
        assert!(about_five_percent(stats.corrupted), "{stats:?}");
        assert!(!short.is_empty() && wrong.len() > short.len());
        // The same bit may be flipped twice.
        let all = (wrong.len() + short.len()) as u64;
        assert!(
            all <= stats.corrupted && all + 60 > stats.corrupted,
            "{all}, {stats:?}"
        );
        let service = |text| {
            let numbers = Numbers {
                next: 0,
                end: 0,
                train: 1,
                now: Cell::new(0),
            };
            Faulty::new(numbers, plan(text)).is_safe(1)
        };
        assert!(service("loss=1") && !service("corrupt=0.001"));
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let text = "loss=0.1,dup=0.1,reorder=0.1,corrupt=0.1,seed=18446744073709551615";
        assert_eq!(through(text), through(text));
        assert_ne!(
            through(text).1,
            through("loss=0.1,dup=0.1,reorder=0.1,corrupt=0.1").1
        );
    }

    #[test]
    fn nothing_comes_through_when_all_is_lost_and_everything_when_nothing_is_said() {
        assert!(through("loss=1").0.is_empty());
        let (got, stats) = through("loss=0");
        assert_eq!(numbers(&got), (0..COUNT).collect::<Vec<_>>());
        assert_eq!(stats.passed, u64::from(COUNT));
    }

    #[test]
    fn plans_are_read_in_any_order_and_nonsense_is_refused() {
        let expected = FaultPlan {
            loss: 0.25,
            reorder: 0.5,
            seed: 7,
            ..FaultPlan::default()
        };
        for text in [
            "loss=0.25,reorder=0.5,seed=7",
            "seed=7; reorder=.5; loss=25e-2",
        ] {
            assert_eq!(plan(text), expected);
        }
        for text in [
            "",
            "loss",
            "loss=",
            "loss=-0.1",
            "loss=1.1",
            "loss=nan",
            "loss=0.5,dup=0.6",
            "seed=-1",
            "drop=0.1",
            "loss=0.1,",
            "loss=inf",
        ] {
            assert_eq!(FaultPlan::parse(text), None, "{text:?}");
        }
    }
}
