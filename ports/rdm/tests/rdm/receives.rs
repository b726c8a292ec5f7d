//! Receive buffers with frames of several peers, one of which dies.
//!
//! ```text
//!   node n ... dies ---.
//!   node 1 ----------- + --> node 0: [ frame of 1 | half a frame of n: failed | frame of 1 | ...
//! ```

use crate::direct::made_up::nodes;
use crate::direct::nodes::pattern;
use libfabric_fake::{Death, Fake, Faults, Shape};
use libfabric_sys::abi::FI_ECONNRESET;
use mx_proto::Status;

/// The provider has a buffer until it releases the buffer, and a frame that fails in the buffer
/// does not release it.
#[test]
fn a_frame_that_fails_half_way_costs_no_other_peer_a_frame() {
    for shape in [
        Shape::tcp(),
        Shape {
            eager: 0,
            ..Shape::odd()
        },
    ] {
        let mut failed = 0;
        for seed in 1..16 {
            let fake = Fake::new(shape.clone(), seed);
            let mut nodes = nodes(&fake, 2);
            let good = nodes.connect(1, 0);
            for round in 0..6 {
                let others = fake.addresses();
                // Another name each time but once, because a second life under the same name is
                // accepted after a second.
                let dies = if (seed, round) == (1, 5) {
                    nodes.restart(6);
                    6
                } else {
                    nodes.add().unwrap()
                };
                let all = fake.addresses();
                let doomed = all.iter().find(|address| !others.contains(address));
                let doomed = doomed.expect("the address of the one that dies");
                let bad = nodes.connect(dies, 0);
                fake.faults(|faults| faults.landing_polls = 12);
                let sent: Vec<_> = (0..24).map(|n| pattern(3_000, n)).collect();
                for (n, bytes) in (0..).zip(&sent) {
                    nodes.send(1, good, n, bytes, 1_000 + n);
                    nodes.send(dies, bad, 100, bytes, 1_000 + n);
                }
                for _ in 0..round + 2 {
                    nodes.turn();
                }
                fake.kill(doomed, Death::Fail(FI_ECONNRESET));
                for (n, bytes) in (0..).zip(&sent) {
                    let mut got = vec![0; bytes.len()];
                    let done = nodes.receive(0, n, &mut got);
                    assert_eq!(done.status, Status::Success, "seed {seed}, message {n}");
                    assert!(got == *bytes, "seed {seed}, message {n}");
                }
                fake.faults(|faults| *faults = Faults::none());
                nodes.kill(dies);
            }
            let stats = nodes.end(0).port().rdm().stats();
            assert_eq!(
                (stats.strange, stats.renewals),
                (0, 0),
                "seed {seed}: {stats:?}"
            );
            failed += stats.malformed;
            drop(nodes);
            fake.assert_clean();
        }
        assert!(failed > 0, "{}: no frame failed half way", shape.provider);
    }
}
