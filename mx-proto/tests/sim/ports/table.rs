//! Goodput and resends by loss, window and size of messages, as a text that is kept.
//!
//! ```text
//!   Mass n0 -- 10 Gbit/s, 50 us, drop-tail, loss --> Mass n1       tests/golden/goodput.txt
//! ```
//!
//! Everything follows from the seed, so any change of the text is a change of behaviour: look
//! whether it is a good one, then write it with `MX_BLESS=1`.

use super::mass::{Mass, run_for, run_until};
use mx_proto::reliability::ReliableConfig;
use mx_sim::{Cluster, DatagramNet, Faults, Terms, World, seeds};
use std::fmt::Write;
use std::time::Duration;

/// 10 Gbit/s.
const RATE: u64 = 1_250_000_000;

const LOSSES: [f64; 6] = [0.0, 0.001, 0.01, 0.05, 0.1, 0.2];
const WINDOWS: [u16; 3] = [64, 256, 1024];
/// Bytes of a message, and how many are sent.
const MESSAGES: [(usize, u64); 3] = [(1 << 10, 2_000), (64 << 10, 64), (1 << 20, 4)];

struct Cell {
    /// MB a second.
    goodput: f64,
    resent: u64,
    timeouts: u64,
    /// Segments that had to be sent.
    segments: u64,
}

fn measure(loss: f64, window: u16, (len, count): (usize, u64)) -> Cell {
    let world = World::new(1);
    seeds::watch(&world);
    let faults = Faults {
        latency: Duration::from_micros(50),
        bandwidth: Some(RATE),
        queue: 1 << 20,
        loss,
        ..Faults::default()
    };
    let terms = Terms {
        moderation: Duration::from_micros(5),
        ..Terms::with(faults)
    };
    let net = DatagramNet::new(&world, terms);
    let config = ReliableConfig {
        window,
        ..ReliableConfig::default()
    };
    let mut cluster = Cluster::new(&world);
    for node in 0..2 {
        cluster.add(Mass::new(&net, &world, node, config));
    }
    // The path has been explored before the first message.
    cluster.node(0).expect("no node dies").load(1, 100, 1);
    run_for(&mut cluster, Duration::from_secs(1));
    let sender = cluster.node(0).expect("no node dies");
    let before = *sender.port.stats();
    // A message goes as the endpoint sends it: in packets of at most data_max.
    let packet = len.min(sender.limits().data_max);
    let packets = count * (len / packet) as u64;
    sender.loads[0].len = packet;
    sender.loads[0].left = packets;
    let took = run_until(&mut cluster, Duration::from_secs(60), |cluster| {
        cluster.node(1).expect("no node dies").got().packets == packets + 1
    });
    let after = *cluster.node(0).expect("no node dies").port.stats();
    let resent = after.resent - before.resent;
    Cell {
        goodput: (len as u64 * count) as f64 / took.as_secs_f64() / 1e6,
        resent,
        timeouts: after.timeouts - before.timeouts,
        segments: packets * ((packet + 32).div_ceil(1_472 - 64)) as u64,
    }
}

fn table() -> String {
    let mut text = String::from(
        "goodput over 10 Gbit/s, 50 us one way, datagrams of 1472 bytes, queue 1 MiB, seed 1\n\
         \n\
         \x20 loss  window  message      MB/s  of link  segments  resent  timeouts\n",
    );
    for loss in LOSSES {
        for window in WINDOWS {
            for message in MESSAGES {
                let cell = measure(loss, window, message);
                let share = cell.goodput * 1e6 / RATE as f64;
                writeln!(
                    text,
                    "{:5} %  {window:6}  {:>7}  {:8.1}  {:5.1} %  {:8}  {:6}  {:8}",
                    loss * 100.0,
                    format!("{} KiB", message.0 >> 10),
                    cell.goodput,
                    share * 100.0,
                    cell.segments,
                    cell.resent,
                    cell.timeouts,
                )
                .expect("memory");
            }
        }
    }
    text
}

#[test]
fn goodput_and_resends_are_what_they_were() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/goodput.txt");
    mx_sim::golden::is_kept(path, &table());
}
