//! The speed of streams of messages over datagrams, with loss, reordering, jitter, other senders
//! and slow receivers.
//!
//! ```text
//!   n1 -- messages, some at a time --> n0       a path without faults, and the same with some
//!   n2 -- the same ----------------'            a table of many paths: tests/golden/goodput.txt
//! ```
//!
//! All figures follow from the seed, so a change of the table is a change of behaviour. If the
//! change is good, write the table with `MX_BLESS=1`.

use crate::stage::unreliably;
use mx_proto::Config;
use mx_proto::reliability::{ReliableConfig, ReliableStats};
use mx_sim::check::Selector;
use mx_sim::datagram::Script;
use mx_sim::datagram::header::{DATA, KIND};
use mx_sim::link::Fate;
use mx_sim::node::KEY;
use mx_sim::scenario::{Stage, Unreliably};
use mx_sim::{Faults, NodeId, Rng, Terms, seeds};
use std::fmt::Write;
use std::time::Duration;

const TAG: u64 = 5;
const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// 10 Gbit/s, in bytes per second.
const RATE: u64 = 1_250_000_000;

/// Returns a path between two processes of one machine: large datagrams, 4 GB/s, and a round trip
/// of 50 us.
fn loopback() -> Terms {
    terms(65_507, Duration::from_micros(25), 4_000_000_000, 4 << 20)
}

/// Returns a path between two machines: 1 Gbit/s, and a round trip of a millisecond.
fn between_machines() -> Terms {
    terms(1_472, Duration::from_micros(500), 125_000_000, 4 << 20)
}

/// Returns a path between one machine and several others: 10 Gbit/s, and a round trip of 40 us.
fn fast() -> Terms {
    terms(8_972, Duration::from_micros(20), RATE, 16 << 20)
}

fn terms(mtu: usize, latency: Duration, rate: u64, queue: usize) -> Terms {
    let faults = Faults {
        latency,
        bandwidth: Some(rate),
        queue,
        ..Faults::default()
    };
    Terms {
        mtu,
        ..Terms::with(faults)
    }
}

/// Returns a path with a latency from `latency` to `latency + jitter`, whatever its load.
fn path(latency: Duration, jitter: Duration, loss: f64) -> Terms {
    Terms::with(Faults {
        latency,
        jitter,
        loss,
        ..Faults::default()
    })
}

/// The length of messages, their number, and the number under way at a time.
#[derive(Clone, Copy)]
struct Load(usize, u64, u64);

/// A hundred large messages.
const MANY: Load = Load(1 << 20, 100, 16);

/// Nodes of which all others call the first.
struct Paths {
    stage: Stage<Unreliably>,
    /// Number of messages that each node has sent.
    posted: Vec<u64>,
}

impl Paths {
    fn new(seed: u64, terms: Terms, config: ReliableConfig, peer_timeout: Duration) -> Self {
        Self::of(2, seed, terms, config, peer_timeout)
    }

    fn of(
        nodes: usize,
        seed: u64,
        terms: Terms,
        config: ReliableConfig,
        peer_timeout: Duration,
    ) -> Self {
        // As the C method sets them.
        let endpoint = Config {
            peer_timeout: Some(peer_timeout),
            request_timeout: None,
            ..Config::default()
        };
        let windows = vec![config.window; nodes];
        let mut stage = unreliably(seed, terms, (config, &windows), endpoint);
        (1..nodes).for_each(|id| stage.at(id).connect(0, KEY));
        stage.run(2 * SECOND);
        let posted = vec![0; nodes];
        Self { stage, posted }
    }

    fn send(&mut self, from: NodeId, len: usize) {
        self.stage.at(0).recv(Selector::exact(TAG), len);
        let sender = self.stage.at(from);
        sender.send(sender.remotes()[0], TAG, len);
        self.posted[from] += 1;
    }

    /// Returns the number of a node's sends that have ended.
    fn done(&mut self, node: NodeId) -> u64 {
        let left = self.stage.cluster.node(node).map(|node| node.outstanding());
        self.posted[node] - left.expect("it lives") as u64
    }

    fn stats(&self) -> ReliableStats {
        let node = self.stage.cluster.peek(1).expect("it lives");
        *node.endpoint.port().stats()
    }

    /// Has the second node send `load`, while the others send without end. Returns the time. The
    /// first node works only every `looks`.
    fn stream(&mut self, load: Load, others: &[(NodeId, Load)], looks: Duration) -> Duration {
        let (began, first) = (self.stage.world.now(), self.done(1));
        while self.done(1) < first + load.1 {
            self.keep_going(1, load, first + load.1);
            for (id, load) in others {
                self.keep_going(*id, *load, u64::MAX);
            }
            if !looks.is_zero() {
                self.stage.cluster.stall(0, looks);
                self.stage.run(looks);
                continue;
            }
            assert!(self.stage.cluster.step().is_some(), "nothing moves");
        }
        let took = self.stage.world.now().since(began);
        println!(
            "{took:?} {:?} {:?}",
            self.stats(),
            self.stage.network.net.traffic()
        );
        took
    }

    fn keep_going(&mut self, id: NodeId, Load(len, _, depth): Load, most: u64) {
        while self.posted[id] < most && self.posted[id] < self.done(id) + depth {
            self.send(id, len);
        }
    }

    /// Drops segments from the second node to the first from now on, or stops that; all other
    /// datagrams arrive.
    fn lose_segments(&self, lose: bool) {
        let script: Script = Box::new(|_, bytes| match bytes[KIND.at] {
            DATA => Fate::Drop,
            _ => Fate::Chance,
        });
        let net = &self.stage.network.net;
        net.set_script(1, 0, lose.then_some(script));
    }
}

/// Returns the time of a stream over a path in use.
fn time(seed: u64, terms: Terms) -> Duration {
    let mut paths = Paths::new(seed, terms, ReliableConfig::default(), 20 * SECOND);
    paths.stream(MANY, &[], Duration::ZERO)
}

/// Asserts which part of the goodput remains with these faults, summed over several streams,
/// because in one of some hundreds the losses look like a path that has lost its large datagrams.
fn keeps(terms: Terms, faults: Faults, least: f64) {
    let (mut without, mut with) = (Duration::ZERO, Duration::ZERO);
    seeds::each(2, |seed| {
        without += time(seed, terms);
        with += time(seed, Terms { faults, ..terms });
    });
    let kept = without.as_secs_f64() / with.as_secs_f64();
    assert!(
        kept >= least,
        "{kept:.2}: {with:?}, and {without:?} without loss"
    );
}

/// Loses a fifth of the datagrams, and reorders and duplicates a part `some` of them.
fn a_fifth_lost(terms: Terms, some: f64) -> Faults {
    Faults {
        loss: 0.2,
        duplicate: some,
        reorder: some,
        ..terms.faults
    }
}

#[test]
fn loss_of_a_fifth_keeps_three_tenths_locally() {
    for some in [0.0, 0.01] {
        keeps(loopback(), a_fifth_lost(loopback(), some), 0.3);
    }
}

/// Reordering by a round trip delays the declaration of a loss by a round trip, and before that the
/// receive window is full.
#[test]
fn loss_of_a_fifth_keeps_three_tenths_remotely() {
    for (some, least) in [(0.0, 0.3), (0.01, 0.2)] {
        let terms = between_machines();
        keeps(terms, a_fifth_lost(terms, some), least);
    }
}

#[test]
fn jitter_costs_no_more_than_the_longest_latency() {
    seeds::each(1, |seed| {
        for unit in [MILLI, 10 * MILLI] {
            let over = |terms| {
                let mut paths = Paths::new(seed, terms, ReliableConfig::default(), 20 * SECOND);
                paths.stream(MANY, &[], Duration::ZERO);
                let before = paths.stats();
                let took = paths.stream(MANY, &[], Duration::ZERO);
                let sent = paths.stats().datagrams_out - before.datagrams_out;
                (took, (paths.stats().resent - before.resent) * 1000 / sent)
            };
            let (steady, _) = over(path(2 * unit, Duration::ZERO, 0.0));
            let (jittery, again) = over(path(unit, unit, 0.0));
            assert!(
                jittery.mul_f64(0.9) <= steady,
                "{jittery:?} over {unit:?} to twice that, {steady:?} over a steady twice"
            );
            assert!(again <= 5, "{again} of 1000 were sent again for nothing");
        }
    });
}

#[test]
fn order_is_believed_in_again_after_a_while() {
    let terms = path(MILLI, MILLI, 0.0);
    let mut paths = Paths::new(1, terms, ReliableConfig::default(), 20 * SECOND);
    // Returns the number of reordered segments.
    let mut burst = |pause| {
        paths.stage.run(pause);
        let before = paths.stats().late;
        paths.stream(Load(32 << 10, 1000, 1000), &[], Duration::ZERO);
        paths.stats().late - before
    };
    let first = burst(Duration::ZERO) + burst(Duration::ZERO);
    assert!(first > 0, "nothing was reordered");
    let second = burst(Duration::ZERO);
    assert!(second <= first / 4, "{first} reordered ones, then {second}");
    // After 10 s a loss is found at once again, and reordering is unexpected.
    let third = burst(11 * SECOND);
    assert!(
        third > second,
        "{second} reordered ones, after a while {third}"
    );
}

/// Has eight nodes send to one over a short queue. Returns the used share of the path, and the
/// fewest and the most messages of a single sender.
fn incast(seed: u64, mtu: usize, queue: usize) -> (f64, u64, u64) {
    let terms = Terms {
        mtu,
        moderation: Duration::from_micros(5),
        ..fast()
    };
    let mut paths = Paths::of(9, seed, terms, ReliableConfig::default(), 20 * SECOND);
    paths.stage.network.net.set_bottleneck(0, RATE, queue);
    let mut rng = Rng::new(seed);
    for id in 1..9 {
        let faults = Faults {
            latency: Duration::from_micros(rng.within(5..=50) as u64),
            ..fast().faults
        };
        paths.stage.network.net.set_faults_of(id, 0, faults);
    }
    let load = Load(64 << 10, 0, 32);
    let mut run = |span: Duration| {
        let until = paths.stage.world.now().after(span);
        while paths.stage.world.now() < until {
            (1..9).for_each(|id| paths.keep_going(id, load, u64::MAX));
            paths.stage.cluster.step();
        }
        [1, 2, 3, 4, 5, 6, 7, 8].map(|id| paths.done(id))
    };
    let before = run(50 * MILLI);
    let after = run(400 * MILLI);
    let got: Vec<_> = (0..8).map(|id| after[id] - before[id]).collect();
    let bytes = got.iter().sum::<u64>() * (64 << 10);
    println!("seed {seed} mtu {mtu} queue {queue} {got:?}");
    let (least, most) = (got.iter().min(), got.iter().max());
    let share = bytes as f64 / (RATE as f64 * 0.4);
    (share, *least.expect("eight"), *most.expect("eight"))
}

/// Over a tenth of a second chance decides which sender is ahead: one that was alone at first may
/// have twice its share for so long, and yields it to the others after that.
#[test]
fn eight_to_one_over_a_short_queue_use_the_path_and_share_it() {
    seeds::each(1, |seed| {
        for (mtu, queue) in [(8_972, 1 << 20), (1_472, 256 << 10)] {
            let (share, least, most) = incast(seed, mtu, queue);
            assert!(share >= 0.8, "only {share} of the path is used: mtu {mtu}");
            assert!(2 * most <= 5 * least, "{least} to {most}: mtu {mtu}");
        }
    });
}

#[test]
fn a_lossy_peer_does_not_slow_another() {
    let rate = |others: &[(NodeId, Load)]| {
        let config = ReliableConfig::default();
        let mut paths = Paths::of(3, 1, fast(), config, 20 * SECOND);
        let loss = Faults {
            loss: 0.2,
            ..fast().faults
        };
        paths.stage.network.net.set_faults_of(0, 2, loss);
        paths.stage.network.net.set_faults_of(2, 0, loss);
        paths.stream(Load(64 << 10, 300, 16), others, Duration::ZERO)
    };
    let (alone, beside) = (rate(&[]), rate(&[(2, Load(64 << 10, 0, 16))]));
    assert!(
        beside <= alone.mul_f64(1.2),
        "{alone:?} alone, {beside:?} beside a lossy one"
    );
}

#[test]
fn a_receiver_that_looks_seldom_is_not_overrun() {
    let terms = Terms {
        receive_buffer: 1 << 20,
        ..fast()
    };
    let mut paths = Paths::new(1, terms, ReliableConfig::default(), 20 * SECOND);
    let took = paths.stream(Load(32 << 10, 500, 64), &[], 2 * MILLI);
    let rate = (500 * (32 << 10)) as f64 / took.as_secs_f64();
    // At most a buffer can arrive each time that the receiver works.
    let best = f64::from(1 << 20) / (2 * MILLI).as_secs_f64();
    assert!(rate >= 0.2 * best, "{rate} of {best} bytes a second");
    let traffic = paths.stage.network.net.traffic();
    assert!(traffic.overrun * 20 <= traffic.sent, "{traffic:?}");
}

#[test]
fn peer_with_partial_packets_counts_as_alive() {
    seeds::each(4, |seed| {
        let config = ReliableConfig::default();
        let mut paths = Paths::new(seed, loopback(), config, 2 * SECOND);
        paths.lose_segments(true);
        paths.send(1, 100_000);
        paths.stage.run(10 * SECOND);
        assert_eq!(paths.stage.at(1).endpoint.stats().peer_timeouts, 0);
        assert_eq!(paths.stage.received(), 0);
        paths.lose_segments(false);
        paths.stage.run(10 * SECOND);
        assert_eq!(paths.stage.received(), 1);
        assert_eq!(paths.stage.at(1).outstanding(), 0);
    });
}

#[test]
fn path_without_any_segment_ends_the_link() {
    seeds::each(4, |seed| {
        let config = ReliableConfig {
            give_up: 4 * SECOND,
            ..ReliableConfig::default()
        };
        let mut paths = Paths::new(seed, loopback(), config, 2 * SECOND);
        paths.lose_segments(true);
        paths.send(1, 100_000);
        paths.stage.run(3 * SECOND);
        assert_eq!(paths.stage.at(1).outstanding(), 1);
        paths.stage.run(4 * SECOND);
        assert_eq!(paths.stage.at(1).outstanding(), 0);
        assert_eq!(paths.stage.at(1).endpoint.stats().peer_timeouts, 0);
    });
}

/// Writes a line of the table, of a stream over a path that has been explored.
fn line(text: &mut String, loss: f64, window: u16, load: Load) {
    let terms = terms(1_472, Duration::from_micros(50), RATE, 1 << 20);
    let faults = Faults {
        loss,
        ..terms.faults
    };
    let terms = Terms {
        moderation: Duration::from_micros(5),
        faults,
        ..terms
    };
    let config = ReliableConfig {
        window,
        ..ReliableConfig::default()
    };
    let mut paths = Paths::new(1, terms, config, 20 * SECOND);
    let before = paths.stats();
    let took = paths.stream(load, &[], Duration::ZERO);
    let after = paths.stats();
    let rate = load.0 as f64 * load.1 as f64 / took.as_secs_f64();
    let (resent, timeouts) = (
        after.resent - before.resent,
        after.timeouts - before.timeouts,
    );
    writeln!(
        text,
        "{:5} %  {window:6}  {:>7}  {:8.1}  {:5.1} %  {:8}  {resent:6}  {timeouts:8}",
        loss * 100.0,
        format!("{} KiB", load.0 >> 10),
        rate / 1e6,
        rate / RATE as f64 * 100.0,
        after.datagrams_out - before.datagrams_out,
    )
    .expect("memory");
}

#[test]
fn goodput_and_resends_are_what_they_were() {
    let mut text = String::from(
        "goodput over 10 Gbit/s, 50 us one way, datagrams of 1472 bytes, queue 1 MiB, seed 1\n\
         \n\
         \x20 loss  window  message      MB/s  of link  datagrams  resent  timeouts\n",
    );
    for loss in [0.0, 0.001, 0.01, 0.05, 0.1, 0.2] {
        for window in [64, 256, 1024] {
            for (len, count) in [(1 << 10, 2_000), (64 << 10, 64), (1 << 20, 4)] {
                line(&mut text, loss, window, Load(len, count, count));
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/goodput.txt");
    mx_sim::golden::is_kept(path, &text);
}
