//! The cost of a message over each shape of hardware, as the number of operations of the provider.
//!
//! libfabric's own ping-pong needs, at every size: one send (injected up to a size), its completion
//! unless the send was injected, the completion of the receive, no registration (one for all
//! messages, made before), and no copy. This port adds a copy through a slot if it does not read;
//! for a message that is read, a registration, the offer, and its end.

use crate::direct::made_up::nodes;
use crate::direct::nodes::pattern;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::abi::FI_CONTEXT2;
use mx_proto::Status;

/// The cost of a message, at both ends together: sends, injected ones among them, reads,
/// completions, registrations, and the number of times that its bytes are in frames (rounded),
/// where each end copies them.
type Cost = [u64; 6];

/// Returns Omni-Path by `opx`, whose registrations mean nothing.
fn opx() -> Shape {
    Shape {
        provider: "opx".into(),
        mode: FI_CONTEXT2,
        mr_mode: 0,
        ..Shape::psm3()
    }
}

fn cost(shape: Shape, size: usize) -> Cost {
    let fake = Fake::new(shape, 1);
    let mut nodes = nodes(&fake, 2);
    let to = nodes.connect(0, 1);
    let sent = pattern(size, 1);
    let mut got = vec![0; size];
    let mut before = fake.stats();
    // The first messages connect, and fill slots and credits.
    for n in 0..4 {
        before = fake.stats();
        nodes.post(1, n, &mut got, 7);
        nodes.send_all(0, to, n, &sent);
        assert_eq!(nodes.wait(1, 7).status, Status::Success);
        (0..20).for_each(|_| nodes.turn());
    }
    assert!(got == sent);
    let after = fake.stats();
    drop(nodes);
    fake.assert_clean();
    let bytes = after.sent - before.sent + size as u64 / 2;
    [
        after.sends - before.sends,
        after.injects - before.injects,
        after.remotes - before.remotes,
        after.completions - before.completions,
        after.registrations - before.registrations,
        bytes / size.max(1000) as u64,
    ]
}

const SIZES: [usize; 5] = [8, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

#[test]
fn a_message_costs_what_its_class_costs() {
    let table: [(&str, Shape, [Cost; 5]); 4] = [
        (
            "verbs",
            Shape::verbs_rxm(),
            [
                [1, 1, 0, 1, 0, 0],
                [1, 0, 0, 2, 0, 1],
                [1, 0, 0, 2, 0, 1],
                [2, 1, 1, 4, 2, 0],
                [2, 1, 4, 7, 2, 0],
            ],
        ),
        (
            "cxi",
            Shape::cxi(),
            [
                [1, 1, 0, 1, 0, 0],
                [1, 0, 0, 2, 0, 1],
                [1, 0, 0, 2, 0, 1],
                [3, 1, 0, 5, 0, 1],
                [2, 2, 4, 6, 1, 0],
            ],
        ),
        (
            "efa",
            Shape::efa(),
            [
                [1, 0, 0, 2, 0, 0],
                [1, 0, 0, 2, 0, 1],
                [1, 0, 0, 2, 0, 1],
                [3, 0, 0, 6, 0, 1],
                [2, 0, 1, 5, 2, 0],
            ],
        ),
        (
            "opx",
            opx(),
            [
                [1, 1, 0, 1, 0, 0],
                [1, 0, 0, 2, 0, 1],
                [1, 0, 0, 2, 0, 1],
                [3, 1, 0, 5, 0, 1],
                [42, 9, 0, 79, 0, 1],
            ],
        ),
    ];
    for (name, shape, costs) in table {
        for (size, expected) in SIZES.into_iter().zip(costs) {
            assert_eq!(cost(shape.clone(), size), expected, "{name}, {size} bytes");
        }
    }
}
