//! Credits at scale: how soon a crowd settles, what that takes, and how long anybody waits.
//!
//! ```text
//!   cargo run --release -p mx-proto --example credits_at_scale [PEERS ...]
//! ```
//!
//! One lender with the default settings (64 MiB), 100 to 100 000 peers unless others are given, all on
//! a virtual clock: the table is the same on every machine. Then what the ledger costs a message,
//! on this machine.

#[path = "../tests/sim_credits/crowd.rs"]
mod crowd;
#[path = "../tests/sim_credits/scenarios.rs"]
mod scenarios;

use mx_proto::Instant;
use mx_proto::ledger::{Arrived, Borrower, Lender, LenderSettings};
use std::hint::black_box;

fn main() {
    let asked: Vec<u32> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let crowds = if asked.is_empty() {
        vec![100, 1_000, 10_000, 100_000]
    } else {
        asked
    };
    let settings = LenderSettings::default();
    println!("{}", scenarios::HEADER);
    for run in [
        scenarios::still,
        scenarios::moving,
        scenarios::all,
        scenarios::storm,
    ] {
        for peers in &crowds {
            println!("{}", run(settings, *peers));
        }
    }
    println!();
    // Everybody has one.
    let settings = LenderSettings {
        initial: 1,
        ..settings
    };
    for peers in crowds {
        let nanos = nanos_a_message(settings, peers);
        println!("{peers:8} peers, one message each: {nanos:5.1} ns a message and its reply");
    }
}

/// What pay, arrived, taken, ride and on_ride take together, with peers in an order that no cache
/// foresees. The best of several runs: what else the machine does only adds to it.
fn nanos_a_message(settings: LenderSettings, peers: u32) -> f64 {
    let mut lender = Lender::new(settings);
    let now = Instant(1);
    let loans: Vec<u16> = (0..peers)
        .map(|peer| lender.open(peer, true, now))
        .collect();
    let mut borrowers: Vec<(u32, Borrower)> = (0..)
        .zip(loans)
        .filter(|(_, loan)| *loan > 0)
        .map(|(peer, loan)| (peer, Borrower::open(loan)))
        .collect();
    borrowers.sort_by_key(|(peer, _)| peer.wrapping_mul(0x9e37_79b1));
    let rounds = ((1 << 18) / borrowers.len()).max(1);
    let mut best = f64::MAX;
    for _ in 0..50 {
        let begin = std::time::Instant::now();
        for _ in 0..rounds {
            for (peer, borrower) in &mut borrowers {
                let Some(byte) = borrower.pay(1) else {
                    unreachable!("everything comes home");
                };
                assert_eq!(
                    lender.arrived(*peer, black_box(byte), 1, now),
                    Arrived::Paid
                );
                lender.taken(*peer, 1);
                borrower.on_ride(black_box(lender.ride(*peer)));
            }
        }
        let took = begin.elapsed().as_secs_f64();
        best = best.min(took * 1e9 / (rounds * borrowers.len()) as f64);
    }
    best
}
