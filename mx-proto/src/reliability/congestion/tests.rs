//! Tests of the window by itself, and of several flows at one bottleneck.
//!
//! ```text
//!   flow --+                                        +--> arrival: an ACK goes back
//!   flow --+--> [ queue, drop-tail ] --rate--> path -+--> lost by chance
//! ```
//!
//! Every flow always has something to send. Lost segments are not sent again, because one segment is as good as another
//! here. Time is virtual, and chance has a seed.

use super::super::pacer::Pacer;
use super::super::reliable_config::ReliableConfig;
use super::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy)]
struct Bottleneck {
    /// Rate in bytes per second.
    rate: u64,
    /// Round-trip time without a queue.
    path: Duration,
    /// Length of the queue in bytes.
    queue: u64,
    /// Random losses, of 10 000.
    loss: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ack { flow: usize, number: u64 },
    Send { flow: usize },
    Timer { flow: usize },
}

struct Flow {
    congestion: Congestion,
    pacer: Pacer,
    rtt: Rtt,
    segment: u64,
    next: u64,
    /// Numbers and times of sending of the segments in flight.
    flying: VecDeque<(u64, Instant)>,
    progress_at: Instant,
    arrived: u64,
    lost: u64,
    timeouts: u64,
}

struct Model {
    bottleneck: Bottleneck,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    scheduled: u64,
    /// Time at which the last byte in the queue will have left it.
    free_at: Instant,
    flows: Vec<Flow>,
    chance: u64,
    cut: bool,
    longest_queue: Duration,
}

impl Model {
    fn new(bottleneck: Bottleneck, seed: u64) -> Self {
        Self {
            bottleneck,
            now: Instant(1_000_000_000),
            events: BinaryHeap::new(),
            scheduled: 0,
            free_at: Instant(0),
            flows: Vec::new(),
            chance: seed,
            cut: false,
            longest_queue: Duration::ZERO,
        }
    }

    fn add(&mut self, segment: usize) {
        let flow = self.flows.len();
        self.flows.push(Flow {
            congestion: Congestion::new(segment, 64 << 20),
            pacer: Pacer::new(),
            rtt: Rtt::new(&ReliableConfig::default()),
            segment: segment as u64,
            next: 0,
            flying: VecDeque::new(),
            progress_at: self.now,
            arrived: 0,
            lost: 0,
            timeouts: 0,
        });
        self.at(self.now, Event::Send { flow });
        self.at(self.now, Event::Timer { flow });
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    /// Draws a number below 10 000 (SplitMix64).
    fn chance(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.chance;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % 10_000
    }

    /// Runs for `span`. Returns the bytes of each flow that have arrived in it.
    fn run(&mut self, span: Duration) -> Vec<u64> {
        let before: Vec<_> = self.flows.iter().map(|flow| flow.arrived).collect();
        let end = self.now.after(span);
        while self.events.peek().is_some_and(|next| next.0.0 <= end) {
            let Reverse((at, _, event)) = self.events.pop().unwrap();
            self.now = at;
            match event {
                Event::Ack { flow, number } => self.on_ack(flow, number),
                Event::Send { flow } => self.send(flow),
                Event::Timer { flow } => self.on_timer(flow),
            }
        }
        self.now = end;
        let flows = self.flows.iter().zip(before);
        flows.map(|(flow, before)| flow.arrived - before).collect()
    }

    /// Runs for `span`. Returns the percentage of the rate that has arrived in it.
    fn share(&mut self, span: Duration) -> u64 {
        let bytes: u64 = self.run(span).iter().sum();
        let most = u128::from(self.bottleneck.rate) * span.as_nanos() / 1_000_000_000;
        (u128::from(bytes) * 100 / most) as u64
    }

    fn send(&mut self, index: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[index];
            let window = flow.congestion.window();
            let flying = flow.flying.len() as u64 * flow.segment;
            if flying + flow.segment > window {
                return;
            }
            let slow = flow.congestion.is_slow_start();
            let wait = flow
                .pacer
                .wait_until(now, flow.segment, window, slow, &flow.rtt);
            if let Some(at) = wait {
                assert!(at > now);
                return self.at(at, Event::Send { flow: index });
            }
            let (number, bytes) = (flow.next, flow.segment);
            flow.next += 1;
            flow.pacer.on_sent(bytes);
            if flow.flying.is_empty() {
                flow.progress_at = now;
            }
            flow.flying.push_back((number, now));
            flow.congestion.on_sent(now, bytes);
            self.travel(index, number, bytes);
        }
    }

    fn travel(&mut self, flow: usize, number: u64, bytes: u64) {
        let Bottleneck { rate, path, .. } = self.bottleneck;
        let waits = self.free_at.since(self.now);
        let waiting = waits.as_nanos() * u128::from(rate) / 1_000_000_000;
        if waiting + u128::from(bytes) > u128::from(self.bottleneck.queue) {
            return;
        }
        let takes = Duration::from_nanos(bytes * 1_000_000_000 / rate);
        self.free_at = self.free_at.max(self.now).after(takes);
        self.longest_queue = self.longest_queue.max(waits);
        if !self.cut && self.chance() >= self.bottleneck.loss {
            self.at(self.free_at.after(path), Event::Ack { flow, number });
        }
    }

    fn on_ack(&mut self, index: usize, number: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let before = flow.flying.len() as u64 * flow.segment;
        let Ok(at) = flow.flying.binary_search_by_key(&number, |sent| sent.0) else {
            return;
        };
        let (_, sent_at) = flow.flying.remove(at).unwrap();
        flow.rtt.on_sample(now, now.since(sent_at));
        // The path keeps the order: a segment sent at least three before this one is lost.
        while let Some((first, sent_at)) = flow.flying.front().copied()
            && first + 3 <= number
        {
            flow.flying.pop_front();
            flow.lost += 1;
            flow.congestion
                .on_lost(now, flow.segment, 1, sent_at, &flow.rtt);
        }
        flow.congestion
            .on_arrived(now, flow.segment, before, &flow.rtt);
        flow.arrived += flow.segment;
        flow.progress_at = now;
        self.send(index);
    }

    fn on_timer(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let mut next = flow.progress_at.after(flow.rtt.rto());
        if next <= now && !flow.flying.is_empty() {
            flow.rtt.on_timeout();
            flow.congestion.on_timeout(now);
            flow.timeouts += 1;
            flow.flying.clear();
            flow.progress_at = now;
            next = now.after(flow.rtt.rto());
            self.send(index);
        }
        self.at(next.max(now.after(MS)), Event::Timer { flow: index });
    }
}

const GIGABIT: u64 = 125_000_000;

/// Returns a path in a machine room: 1 Gbit/s, 60 us, 256 KiB of queue.
fn room(loss: u64) -> Bottleneck {
    Bottleneck {
        rate: GIGABIT,
        path: Duration::from_micros(60),
        queue: 256 << 10,
        loss,
    }
}

/// Returns a long path: 100 Mbit/s, 20 ms, 256 KiB of queue.
fn far(loss: u64) -> Bottleneck {
    Bottleneck {
        rate: GIGABIT / 10,
        path: 20 * MS,
        queue: 256 << 10,
        loss,
    }
}

fn of_one(bottleneck: Bottleneck, segment: usize) -> Model {
    let mut model = Model::new(bottleneck, 1);
    model.add(segment);
    model
}

#[test]
fn a_flow_alone_fills_the_link() {
    for segment in [1200, 1472, 8972, 32 << 10] {
        let mut model = of_one(room(0), segment);
        model.run(20 * MS);
        assert!(model.share(200 * MS) >= 98, "segments of {segment}");
        let mut model = of_one(far(0), segment);
        model.run(2000 * MS);
        assert!(model.share(2000 * MS) >= 95, "segments of {segment}, far");
    }
}

#[test]
fn one_percent_of_loss_by_chance_costs_little_more_than_itself() {
    for (bottleneck, warm) in [(room(100), 20 * MS), (far(100), 2000 * MS)] {
        for seed in 1..4 {
            let mut model = Model::new(bottleneck, seed);
            model.add(1472);
            model.run(warm);
            let share = model.share(warm * 3);
            assert!(share >= 80, "{share} % with seed {seed}");
        }
    }
}

#[test]
fn two_flows_share_within_a_factor_of_two() {
    for (bottleneck, warm) in [(room(0), 100 * MS), (far(0), 2000 * MS)] {
        for seed in 1..4 {
            let mut model = Model::new(bottleneck, seed);
            model.add(1472);
            // The second flow begins when the first has the whole rate.
            model.run(warm / 4);
            model.add(1472);
            model.run(warm * 2);
            let shares = model.run(warm * 5);
            let (most, least) = (shares[0].max(shares[1]), shares[0].min(shares[1]));
            assert!(most <= least * 2, "{shares:?}");
        }
    }
}

#[test]
fn a_short_queue_drops_little() {
    // An eighth of a usual queue. Without backing off, most of the traffic would be lost.
    let shallow = Bottleneck {
        queue: 32 << 10,
        ..room(0)
    };
    let mut model = of_one(shallow, 1472);
    model.run(20 * MS);
    (model.flows[0].arrived, model.flows[0].lost) = (0, 0);
    assert!(model.share(300 * MS) >= 90);
    let flow = &model.flows[0];
    let lost = flow.lost * flow.segment;
    assert!(lost * 100 <= flow.arrived * 3, "{lost} of {}", flow.arrived);
}

#[test]
fn a_long_queue_is_not_kept_full() {
    let long = Bottleneck {
        queue: 16 << 20,
        loss: 10,
        ..room(0)
    };
    let mut model = of_one(long, 1472);
    model.run(200 * MS);
    model.longest_queue = Duration::ZERO;
    assert!(model.share(300 * MS) >= 95);
    assert!(model.longest_queue < 10 * MS, "{:?}", model.longest_queue);
}

#[test]
fn after_a_cut_it_is_soon_where_it_was() {
    let mut model = of_one(room(0), 1472);
    model.run(100 * MS);
    model.cut = true;
    model.run(50 * MS);
    assert!(model.flows[0].timeouts >= 3);
    let cut = model.flows[0].congestion.window();
    assert_eq!(cut, 2 * 1472);
    model.cut = false;
    // The pause between two time-outs, and a few round trips.
    model.run(100 * MS);
    assert!(model.share(100 * MS) >= 95);
}

#[test]
fn ten_percent_of_loss_by_chance_is_found_out_to_be_chance() {
    for (bottleneck, warm) in [(room(1000), 50 * MS), (far(1000), 3000 * MS)] {
        for seed in 1..4 {
            let mut model = Model::new(bottleneck, seed);
            model.add(1472);
            model.run(warm);
            let share = model.share(warm * 3);
            assert!(share >= 45, "{share} % with seed {seed}");
        }
    }
}

#[test]
fn two_at_a_short_queue_do_not_take_each_other_for_chance() {
    // The queue is too short to be seen.
    for queue in [32 << 10, 56 << 10] {
        let mut model = Model::new(Bottleneck { queue, ..room(0) }, 1);
        for _ in 0..2 {
            model.add(1472);
            model.run(MS);
        }
        // More time does not change that.
        for _ in 0..3 {
            let flows = &mut model.flows;
            flows.iter_mut().for_each(|flow| flow.lost = 0);
            let arrived: u64 = model.run(1000 * MS).iter().sum();
            let lost: u64 = model
                .flows
                .iter()
                .map(|flow| flow.lost * flow.segment)
                .sum();
            assert!(arrived >= GIGABIT / 100 * 95);
            assert!(lost * 100 <= arrived * 7, "{lost} of {arrived} in {queue}");
        }
    }
}

fn rtt(sample: Duration) -> Rtt {
    let mut rtt = Rtt::new(&ReliableConfig::default());
    rtt.on_sample(Instant(1), sample);
    rtt
}

/// Returns a window that has grown to a megabyte without a loss.
fn grown() -> (Congestion, Rtt, Instant) {
    let (mut congestion, mut rtt) = (Congestion::new(1000, 1 << 20), rtt(MS));
    let mut now = Instant(1_000_000);
    while congestion.window() < 1 << 20 {
        now = now.after(MS / 10);
        rtt.on_sample(now, MS);
        let window = congestion.window();
        congestion.on_arrived(now, window / 10, window, &rtt);
    }
    (congestion, rtt, now)
}

#[test]
fn the_first_window_is_sixteen_segments_or_a_batch() {
    let first = |segment, cap| Congestion::new(segment, cap).window();
    assert_eq!(first(1200, 1 << 20), 16 * 1200);
    assert_eq!(first(8972, 1 << 20), 64 << 10);
    assert_eq!(first(65_507, 1 << 20), 4 * 65_507);
    assert_eq!(first(1200, 10_000), 10_000);
    assert_eq!(first(1200, 0), 4 * 1200);
    assert_eq!(first(0, 0), 4);
}

#[test]
fn slow_start_doubles_and_the_cap_holds() {
    let (mut congestion, rtt) = (Congestion::new(1000, 100_000), rtt(MS));
    for round in 2..20 {
        let window = congestion.window();
        congestion.on_arrived(Instant(round * 1_000_000), window, window, &rtt);
        assert_eq!(congestion.window(), (window * 2).min(100_000));
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut congestion, rtt) = (Congestion::new(1000, 1 << 20), rtt(MS));
    for n in 2..100 {
        congestion.on_arrived(Instant(n), 4000, 7000, &rtt);
    }
    assert_eq!(congestion.window(), 16_000);
}

#[test]
fn a_single_loss_behind_a_queue_is_congestion() {
    let (mut congestion, mut rtt, mut now) = grown();
    let window = congestion.window();
    for _ in 0..40 {
        now = now.after(MS / 10);
        rtt.on_sample(now, 2 * MS);
        congestion.on_arrived(now, window / 10, window, &rtt);
    }
    congestion.on_lost(now, 1000, 1, now, &rtt);
    assert_eq!(congestion.window(), window / 10 * 7);
}

/// Loses one of every ten segments and delivers nine, `bytes` altogether, without a queue.
fn lose_a_tenth(congestion: &mut Congestion, rtt: &mut Rtt, now: &mut Instant, bytes: u64) {
    for _ in 0..bytes / 10_000 {
        *now = now.after(MS / 20);
        rtt.on_sample(*now, MS);
        let window = congestion.window();
        congestion.on_arrived(*now, 9000, window / 2, rtt);
        congestion.on_lost(*now, 1000, 1, now.before(MS), rtt);
    }
}

/// Loses a tenth until the window is reduced.
fn lose_until_it_falls(congestion: &mut Congestion, rtt: &mut Rtt, now: &mut Instant) {
    let window = congestion.window();
    for _ in 0..200 {
        if congestion.window() < window {
            return;
        }
        lose_a_tenth(congestion, rtt, now, 10_000);
    }
    panic!("a tenth is lost, and the window is {window} as before");
}

#[test]
fn a_loss_that_ends_with_the_fall_was_congestion() {
    let (mut congestion, mut rtt, mut now) = grown();
    let window = congestion.window();
    lose_until_it_falls(&mut congestion, &mut rtt, &mut now);
    for _ in 0..300 {
        now = now.after(MS / 20);
        rtt.on_sample(now, MS);
        congestion.on_arrived(now, 10_000, 0, &rtt);
    }
    assert_eq!(
        (congestion.window(), congestion.random_loss),
        (window / 10 * 7, 0)
    );
    lose_until_it_falls(&mut congestion, &mut rtt, &mut now);
    assert_eq!(congestion.window(), window / 10 * 7 / 10 * 7);
}

#[test]
fn random_loss_rate_is_capped_and_decays() {
    let (mut congestion, mut rtt, mut now) = grown();
    for _ in 0..2 {
        // A fifth is lost.
        for _ in 0..150 {
            now = now.after(MS / 20);
            rtt.on_sample(now, MS);
            congestion.on_arrived(now, 8000, 0, &rtt);
            congestion.on_lost(now, 2000, 1, now.before(MS), &rtt);
        }
    }
    assert_eq!(congestion.random_loss, 203);
    for _ in 0..2000 {
        now = now.after(MS / 20);
        rtt.on_sample(now, MS);
        congestion.on_arrived(now, 10_000, 0, &rtt);
    }
    assert_eq!(congestion.random_loss, 0);
}

#[test]
fn a_fall_for_what_was_only_late_is_taken_back() {
    let (mut congestion, rtt, now) = grown();
    let window = congestion.window();
    for _ in 0..30 {
        congestion.on_lost(now, 1000, 1, now, &rtt);
    }
    let fallen = window / 10 * 7;
    assert_eq!(congestion.window(), fallen);
    // Five more than would have been tolerated; those after the reduction count, too.
    for _ in 0..5 {
        assert!(!congestion.on_spurious(1000, now));
        assert_eq!(congestion.window(), fallen);
    }
    assert!(!congestion.on_spurious(1000, now));
    assert_eq!(congestion.window(), window);
    // The next loss is judged with those that remain.
    congestion.on_lost(now.after(MS), 1000, 1, now.after(MS), &rtt);
    assert_eq!(congestion.window(), fallen);
}

#[test]
fn behind_a_queue_all_of_it_must_have_been_reordered() {
    let (mut congestion, mut rtt, mut now) = grown();
    let window = congestion.window();
    for _ in 0..40 {
        now = now.after(MS / 10);
        rtt.on_sample(now, 2 * MS);
        congestion.on_arrived(now, window / 10, window, &rtt);
    }
    congestion.on_lost(now, 2000, 1, now, &rtt);
    congestion.on_spurious(1000, now);
    assert_eq!(congestion.window(), window / 10 * 7);
    congestion.on_spurious(1000, now);
    assert_eq!(congestion.window(), window);
}

#[test]
fn a_time_out_that_was_none_leaves_the_window_as_it_was() {
    let (mut congestion, _, now) = grown();
    let window = congestion.window();
    // The second time-out in a row adds nothing.
    congestion.on_timeout(now);
    congestion.on_timeout(now.after(MS));
    assert_eq!(congestion.window(), 2000);
    assert!(congestion.on_spurious(1000, now));
    assert_eq!(congestion.window(), window);
    // Only once.
    assert!(!congestion.on_spurious(1000, now));
    congestion.on_timeout(now.after(2 * MS));
    // Losses of segments sent since are not undone.
    assert!(!congestion.on_spurious(1000, now.after(3 * MS)));
    assert_eq!(congestion.window(), 2000);
}

#[test]
fn it_never_falls_below_four_segments_nor_two_after_a_time_out() {
    let (mut congestion, rtt, mut now) = grown();
    for _ in 0..100 {
        now = now.after(MS);
        congestion.on_lost(now, 1 << 20, 1, now, &rtt);
    }
    assert_eq!(congestion.window(), 4000);
    (0..100).for_each(|_| congestion.on_timeout(now));
    assert_eq!(congestion.window(), 2000);
}

#[test]
fn a_lone_time_out_leads_back_to_where_the_window_was() {
    let (mut congestion, rtt, mut now) = grown();
    let window = congestion.window();
    congestion.on_timeout(now);
    congestion.on_timeout(now.after(MS));
    for _ in 0..10 {
        now = now.after(10 * MS);
        let window = congestion.window();
        congestion.on_arrived(now, window, window, &rtt);
    }
    assert_eq!(congestion.window(), window);
    // With losses before it, a time-out leads to a smaller window.
    congestion.on_lost(now, 20_000, 1, now, &rtt);
    congestion.on_timeout(now);
    assert_eq!(congestion.threshold, window / 10 * 7);
}

#[test]
fn a_time_out_after_half_of_the_tolerated_losses_is_congestion() {
    let (congestion, rtt, now) = grown();
    let reduces = |lost| {
        let mut it = congestion;
        it.on_lost(now, lost, 1, now, &rtt);
        it.on_timeout(now);
        it.threshold < congestion.window()
    };
    let half = (congestion.counted() / 50 + 4 * 1000) / 2;
    assert_eq!((reduces(half), reduces(half + 1)), (false, true));
}

#[test]
fn after_a_pause_half_of_the_window_is_believed_in() {
    let (mut congestion, _, now) = grown();
    let window = congestion.window();
    congestion.on_sent(now, 1000);
    congestion.on_sent(now.after(MS * 999), 1000);
    assert_eq!(congestion.window(), window);
    congestion.on_sent(now.after(MS * 1999), 1000);
    assert_eq!(congestion.window(), window / 2);
    assert!(congestion.is_slow_start());
}

#[test]
fn the_curve_is_that_of_the_standard() {
    // A window of 1000 segments reduced to 700 is back after the cube root of 300 / 0.4 seconds.
    assert_eq!(rise_ms(300_000, 1000), 9086);
    assert_eq!(climb(9086, 1000) / 1000, 300);
    assert_eq!(climb(1000, 1000), 400);
    assert_eq!((rise_ms(0, 1000), climb(0, 1000)), (0, 0));
    assert!(climb(u64::MAX, 1 << 20) <= CAP_MAX);
}

#[test]
fn no_input_overflows() {
    let (mut congestion, mut rtt) = (Congestion::new(usize::MAX, u64::MAX), rtt(MS));
    for n in 0..2000 {
        let now = Instant(u64::MAX / 2000 * n);
        rtt.on_sample(now, Duration::from_nanos(n * n));
        congestion.on_sent(now, u64::MAX >> 24);
        congestion.on_arrived(now, u64::MAX >> 24, u64::MAX, &rtt);
        match n % 7 {
            0 => congestion.on_lost(now, u64::MAX >> 24, 1, now, &rtt),
            3 => congestion.on_timeout(now),
            5 => congestion.set_segment(usize::MAX >> (n % 64)),
            _ => {}
        }
        assert!(congestion.window() > 0);
    }
}

#[test]
fn the_state_of_a_link_is_small() {
    assert!(
        size_of::<Congestion>() <= 240,
        "{}",
        size_of::<Congestion>()
    );
    assert!(size_of::<Rtt>() + size_of::<Pacer>() <= 112);
}

#[test]
fn slow_start_grows_carefully_while_there_is_a_queue() {
    let (mut congestion, _, _) = grown();
    congestion.phase = Phase::Slow;
    for (queue, phase) in [
        (false, Phase::Slow),
        (true, Phase::Careful { rounds: CAREFUL }),
        (false, Phase::Slow),
    ] {
        congestion.queue = queue;
        congestion.take_care();
        assert_eq!(congestion.phase, phase);
    }
}

#[test]
fn a_link_that_was_suspended_begins_like_after_a_pause() {
    for (slow_start, threshold) in [(false, 100_000), (true, 1 << 20)] {
        let mut congestion = Congestion::new(1000, 1 << 20);
        congestion.resume(100_000, slow_start);
        assert_eq!(
            (congestion.window, congestion.threshold),
            (50_000, threshold)
        );
    }
}

#[test]
fn window_grows_only_if_three_quarters_of_it_are_used() {
    let (mut congestion, rtt, now) = grown();
    congestion.window = 100_000;
    congestion.phase = Phase::Avoidance;
    for (in_flight, used) in [(74_999, false), (75_000, true)] {
        congestion.grow(now, 1000, in_flight, &rtt);
        assert_eq!(congestion.epoch.is_some(), used, "{in_flight}");
    }
}

#[test]
fn careful_growth_lasts_some_rounds_then_ends_slow_start() {
    let mut congestion = Congestion::new(1400, 64 << 20);
    congestion.phase = Phase::Careful { rounds: CAREFUL };
    let window = congestion.window;
    congestion.grow(Instant(1), 4000, window, &rtt(MS));
    assert_eq!(congestion.window, window + 1000);
    for left in (1..CAREFUL).rev() {
        congestion.end_round();
        assert_eq!(congestion.phase, Phase::Careful { rounds: left });
    }
    congestion.end_round();
    assert_eq!(congestion.phase, Phase::Avoidance);
    assert_eq!(congestion.threshold, congestion.window);
}
