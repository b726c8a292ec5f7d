//! The rdm port over simulated providers, of hardware that this machine does not have, with and
//! without faults.

use crate::direct::made_up::{nodes, shapes};
use crate::direct::nodes::{Nodes, pattern};
use libfabric_fake::{Fake, Faults, Shape};
use mx_proto::Status;

/// Sends messages of these sizes in both directions, `rounds` times.
pub(super) fn converse(nodes: &mut Nodes, sizes: &[usize], rounds: u64) {
    let to = [nodes.connect(0, 1), nodes.connect(1, 0)];
    for round in 0..rounds {
        for (bits, &size) in (0..).zip(sizes) {
            for from in [0, 1] {
                let sent = pattern(size, bits + round);
                let mut got = vec![0xee; size + 1];
                nodes.post(1 - from, bits, &mut got, 7);
                nodes.send_all(from, to[from], bits, &sent);
                let done = nodes.wait(1 - from, 7);
                let all = (Status::Success, size);
                assert_eq!((done.status, done.transferred as usize), all);
                assert!(got[..size] == sent[..], "round {round}, size {size}");
                assert_eq!(got[size], 0xee, "a byte behind the message");
            }
        }
    }
}

#[test]
fn all_provider_shapes_carry_messages_and_obey_rules() {
    let sizes = [0, 1, 8, 63, 64, 65, 4096, 16_300, 16_337, 65_536, 1_000_003];
    for shape in shapes() {
        for seed in 1..6 {
            let fake = Fake::new(shape.clone(), seed);
            if seed > 1 {
                fake.faults(|faults| *faults = Faults::rough());
            }
            let mut nodes = nodes(&fake, 2);
            converse(&mut nodes, &sizes, 2);
            drop(nodes);
            fake.assert_clean();
        }
    }
}

#[test]
fn messages_keep_their_order_where_completions_do_not() {
    let unordered = |shape| Shape {
        receives_in_order: false,
        ..shape
    };
    for shape in shapes().map(unordered) {
        for seed in 0..3 {
            let fake = Fake::new(shape.clone(), seed);
            fake.faults(|faults| faults.landing_polls = 30);
            let mut nodes = nodes(&fake, 2);
            let to = nodes.connect(0, 1);
            let length = |n: u64| if n % 2 == 0 { 15_000 } else { 8 };
            let sent: Vec<_> = (0..40).map(|n| pattern(length(n), n)).collect();
            for (message, n) in sent.iter().zip(1_000..) {
                nodes.send(0, to, 5, message, n);
            }
            for (n, message) in sent.iter().enumerate() {
                let mut got = vec![0xee; 15_001];
                let done = nodes.receive(1, 5, &mut got);
                let len = done.transferred as usize;
                assert_eq!((done.status, len), (Status::Success, message.len()));
                assert!(got[..len] == message[..], "message {n}");
            }
            drop(nodes);
            fake.assert_clean();
        }
    }
}
