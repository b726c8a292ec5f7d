//! How the rdm port gives up: registrations that are busy, breakdowns, and peers that are told.

mod direct;

use direct::nodes::{Nodes, pattern};
use libfabric_fake::{Fake, Faults, Shape};
use mx_proto::{Config, Status};
use mx_sys::ports::rdm::RdmOptions;

fn shapes() -> [Shape; 7] {
    [
        Shape::tcp(),
        Shape::tcp_rxm(),
        Shape::verbs_rxm(),
        Shape::cxi(),
        Shape::psm3(),
        Shape::efa(),
        Shape::odd(),
    ]
}

fn nodes(fake: &Fake, count: usize) -> Nodes {
    let options = RdmOptions {
        library: Some(fake.library()),
        ..RdmOptions::default()
    };
    Nodes::over(count, Config::default(), options).expect("the fake is always there")
}

#[test]
fn registrations_that_are_busy_now_and_then_harm_nobody() {
    for shape in shapes() {
        for seed in 1..12 {
            let fake = Fake::new(shape.clone(), seed);
            fake.faults(|faults| {
                *faults = Faults {
                    close_busy: 0.5,
                    ..Faults::rough()
                };
            });
            let mut nodes = nodes(&fake, 2);
            let to = [nodes.connect(0, 1), nodes.connect(1, 0)];
            for n in 0..20 {
                let from = n as usize % 2;
                let sent = pattern(if n % 3 == 0 { 5_000 } else { 200_003 }, n);
                let mut got = vec![0; sent.len()];
                nodes.post(1 - from, n, &mut got, 7);
                nodes.send_all(from, to[from], n, &sent);
                let done = nodes.wait(1 - from, 7);
                assert_eq!(done.status, Status::Success, "seed {seed}");
                assert!(got == sent, "seed {seed}, message {n}");
            }
            for node in [0, 1] {
                let stats = nodes.end(node).port().rdm().stats();
                assert_eq!(stats.renewals, 0, "{stats:?}");
            }
            drop(nodes);
            fake.assert_clean();
        }
    }
}
