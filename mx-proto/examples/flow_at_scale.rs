//! Flow control at scale: how soon a crowd is in balance, what that takes, and how long peers wait.
//!
//! ```text
//!   cargo run --release -p mx-proto --example flow_at_scale [PEERS ...]
//! ```
//!
//! One server with the default settings (64 MiB), 100 to 100 000 peers unless others are given, all on
//! a virtual clock: the table is the same on every machine. Then what flow control costs a message,
//! on this machine.

#[path = "../tests/sim/flow/crowd.rs"]
mod crowd;
#[path = "../tests/sim/flow/scenarios.rs"]
mod scenarios;

use mx_proto::flow::{Accounts, Borrower, Flow, Lane, Lender, Settings};
use mx_proto::origin::Source;
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
    let settings = Settings::default();
    println!("{}", scenarios::HEADER);
    for run in [
        scenarios::still,
        scenarios::moving,
        scenarios::all,
        scenarios::storm,
    ] {
        for peers in &crowds {
            println!("{}", run(&settings, *peers));
        }
    }
    println!();
    for peers in crowds {
        let nanos = nanos_a_message(&settings, peers);
        println!("{peers:8} peers, one message each: {nanos:5.1} ns a message and its reply");
    }
}

struct Table(Vec<Lender>);

impl Accounts for Table {
    fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)> {
        Some((self.0.get_mut(remote as usize)?, Source::TRUSTED))
    }
}

/// Time of means, pay, wanted, arrived, taken, credit_fields and on_credit_fields together, with
/// peers in an order that no cache foresees. The best of several runs: what else the machine does
/// only adds to it.
fn nanos_a_message(settings: &Settings, peers: u32) -> f64 {
    let mut flow = Flow::new(settings);
    let mut all = Table(vec![Lender::default(); peers as usize]);
    let mut borrowers = Vec::new();
    for peer in 0..peers {
        let credit_limit = flow.first_credits(Source::TRUSTED);
        assert!(flow.open(&mut all, peer, credit_limit));
        borrowers.push((peer, Borrower::open(credit_limit)));
    }
    borrowers.sort_by_key(|(peer, _)| peer.wrapping_mul(0x9e37_79b1));
    let rounds = ((1 << 18) / borrowers.len()).max(1);
    let mut best = f64::MAX;
    for _ in 0..50 {
        let begin = std::time::Instant::now();
        for _ in 0..rounds {
            for (peer, borrower) in &mut borrowers {
                let Some(paid) = black_box(&mut *borrower).payment(1, Lane::Unexpected) else {
                    unreachable!("everything comes back");
                };
                borrower.pay(paid);
                let account = &mut all.0[*peer as usize];
                if flow.arrived(account, black_box(paid)).expect("honest") {
                    flow.note_use(&mut all, *peer);
                }
                let account = &mut all.0[*peer as usize];
                black_box(flow.taken(account, Source::TRUSTED, paid));
                let mut ours = Borrower::default();
                let fields = flow.credit_fields(account, &ours, 0);
                Flow::on_told(account, &mut ours, &fields);
                borrower.on_credit_fields(&black_box(fields));
            }
        }
        let took = begin.elapsed().as_secs_f64();
        best = best.min(took * 1e9 / (rounds * borrowers.len()) as f64);
    }
    best
}
