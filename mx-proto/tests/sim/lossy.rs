//! One stream of large messages over datagrams of which a fifth is lost in either direction: none of
//! its operations fails, and it keeps a good part of its goodput.
//!
//! ```text
//!   n0 -- 100 messages of 1 MiB, 16 at a time --> n1      a fifth of all datagrams is lost, both ways,
//!                                                         also with 1 % reordered and 1 % doubled
//! ```

use crate::stage::{introduce, unreliably};
use mx_proto::Config;
use mx_proto::reliability::ReliableConfig;
use mx_sim::check::Selector;
use mx_sim::datagram::Script;
use mx_sim::link::Fate;
use mx_sim::scenario::{Stage, Unreliably};
use mx_sim::{DatagramNet, Faults, Terms, seeds};
use std::time::Duration;

const MESSAGE: usize = 1 << 20;
const MESSAGES: u64 = 100;
/// Messages under way at a time.
const DEPTH: u64 = 16;
const TAG: u64 = 5;
const SECOND: Duration = Duration::from_secs(1);
/// A datagram with a segment.
const DATA: u8 = 3;

/// Between two processes of one machine: large datagrams, at 4 GB/s, and back in 50 us.
fn loopback() -> Terms {
    terms(65_507, Duration::from_micros(25), 4_000_000_000)
}

/// Between two machines: 1 Gbit/s, and back in a millisecond.
fn between_machines() -> Terms {
    terms(1_472, Duration::from_micros(500), 125_000_000)
}

fn terms(mtu: usize, latency: Duration, rate: u64) -> Terms {
    let faults = Faults {
        latency,
        bandwidth: Some(rate),
        queue: 4 << 20,
        ..Faults::default()
    };
    Terms {
        mtu,
        ..Terms::with(faults)
    }
}

/// A fifth is lost; with `disorder`, 1 % is reordered and 1 % doubled besides.
fn bad(faults: Faults, disorder: bool) -> Faults {
    let some = if disorder { 0.01 } else { 0.0 };
    Faults {
        loss: 0.2,
        duplicate: some,
        reorder: some,
        ..faults
    }
}

type Lossy = Stage<Unreliably>;

/// Two nodes, of which the first is connected to the second.
fn stage(seed: u64, terms: Terms, config: ReliableConfig, peer_timeout: Duration) -> Lossy {
    // As the C method sets them.
    let endpoint = Config {
        peer_timeout: Some(peer_timeout),
        request_timeout: None,
        ..Config::default()
    };
    let windows = [config.window; 2];
    let mut stage = unreliably(seed, terms, (config, windows), endpoint);
    introduce(&mut stage, false);
    stage
}

fn send(stage: &mut Lossy, len: usize) {
    stage.at(1).recv(Selector::exact(TAG), len);
    let sender = stage.at(0);
    sender.send(sender.remotes()[0], TAG, len);
}

/// From now on no segment that goes from the first to the second arrives, or all do again;
/// whatever else they say to each other does.
fn lose_segments(net: &DatagramNet, lose: bool) {
    let script: Script = Box::new(|_, bytes| match bytes[3] {
        DATA => Fate::Drop,
        _ => Fate::Chance,
    });
    net.set_script(0, 1, lose.then_some(script));
}

/// The time of the stream.
fn stream(seed: u64, terms: Terms) -> Duration {
    let stage = stage(seed, terms, ReliableConfig::default(), 20 * SECOND);
    let Stage {
        world,
        book,
        mut cluster,
        ..
    } = stage;
    let began = world.now();
    let mut posted = 0;
    let done = cluster.run_while(50_000_000, |cluster| {
        let received = book.borrow().received();
        while posted < MESSAGES && posted < received + DEPTH {
            let receiver = cluster.node(1).expect("it lives");
            receiver.recv(Selector::exact(TAG), MESSAGE);
            let sender = cluster.node(0).expect("it lives");
            let to = sender.remotes()[0];
            sender.send(to, TAG, MESSAGE);
            cluster.poke(0);
            cluster.poke(1);
            posted += 1;
        }
        received < MESSAGES
    });
    let took = world.now().since(began);
    let (stats, other) = [0, 1]
        .map(|id| *cluster.node(id).expect("it lives").endpoint.port().stats())
        .into();
    println!(
        "seed {seed}: {took:?}, {:.0} MB/s\n  {stats:?}\n  {other:?}\n  {:?}",
        (MESSAGES * MESSAGE as u64) as f64 / took.as_secs_f64() / 1e6,
        book.borrow().tally()
    );
    assert!(
        done,
        "nothing moves, {} of {MESSAGES} arrived",
        book.borrow().received()
    );
    took
}

/// Asserts what part of the goodput is kept where a fifth is lost, in order and in disorder, of several streams
/// together: one in some hundreds takes its losses for a path that has lost its large datagrams.
fn keeps(terms: Terms, least: [f64; 2]) {
    for (disorder, least) in [false, true].into_iter().zip(least) {
        let (mut without, mut with) = (Duration::ZERO, Duration::ZERO);
        seeds::each(4, |seed| {
            let faults = bad(terms.faults, disorder);
            without += stream(seed, terms);
            with += stream(seed, Terms { faults, ..terms });
        });
        let kept = without.as_secs_f64() / with.as_secs_f64();
        assert!(
            kept >= least,
            "{kept:.2}: {with:?}, and {without:?} without loss"
        );
    }
}

#[test]
fn a_fifth_lost_on_one_machine_leaves_three_tenths_of_the_goodput() {
    keeps(loopback(), [0.3; 2]);
}

/// With reordering of a round trip each loss waits as long until it is declared; the receive window
/// is full before that.
#[test]
fn a_fifth_lost_between_machines_leaves_three_tenths_of_the_goodput() {
    keeps(between_machines(), [0.3, 0.2]);
}

#[test]
fn a_peer_of_which_something_is_heard_is_there_though_no_packet_becomes_whole() {
    seeds::each(4, |seed| {
        let config = ReliableConfig::default();
        let mut stage = stage(seed, loopback(), config, 2 * SECOND);
        lose_segments(&stage.network.net, true);
        send(&mut stage, 100_000);
        stage.run(10 * SECOND);
        assert_eq!(stage.at(0).endpoint.stats().silenced, 0);
        assert_eq!(stage.received(), 0);
        lose_segments(&stage.network.net, false);
        stage.run(10 * SECOND);
        assert_eq!(stage.received(), 1);
        assert_eq!(stage.at(0).outstanding(), 0);
    });
}

#[test]
fn a_path_on_which_no_segment_passes_ends_the_link_however_much_is_heard() {
    seeds::each(4, |seed| {
        let config = ReliableConfig {
            give_up: 4 * SECOND,
            ..ReliableConfig::default()
        };
        let mut stage = stage(seed, loopback(), config, 2 * SECOND);
        lose_segments(&stage.network.net, true);
        send(&mut stage, 100_000);
        stage.run(3 * SECOND);
        assert_eq!(stage.at(0).outstanding(), 1);
        stage.run(4 * SECOND);
        assert_eq!(stage.at(0).outstanding(), 0);
        assert_eq!(stage.at(0).endpoint.stats().silenced, 0);
    });
}
