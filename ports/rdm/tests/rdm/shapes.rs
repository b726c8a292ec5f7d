//! The rdm port over providers this machine does not have, made up, with and without faults.

use crate::direct::made_up::{nodes, shapes};
use crate::direct::nodes::{Nodes, pattern};
use libfabric_fake::{Fake, Faults, Shape};
use mx_proto::Status;

/// Prints what the fake saw when a test fails.
struct Witness(Fake, String);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(fake, name) = self;
            eprintln!("{name}: {:?} {:#?}", fake.stats(), fake.violations());
        }
    }
}

fn witnessed(shape: &Shape, faults: Faults, seed: u64) -> (Fake, Witness) {
    let fake = Fake::new(shape.clone(), seed);
    fake.faults(|all| *all = faults);
    let name = format!("{}, seed {seed}", shape.provider);
    (fake.clone(), Witness(fake, name))
}

/// Messages of every class in both directions, twice.
fn converse(nodes: &mut Nodes) {
    let to = [nodes.connect(0, 1), nodes.connect(1, 0)];
    let sizes = [0, 1, 8, 63, 64, 65, 4096, 16_300, 16_337, 65_536, 1_000_003];
    for round in 0..2 {
        for (n, size) in sizes.into_iter().enumerate() {
            for from in [0, 1] {
                let bits = n as u64;
                let sent = pattern(size, bits + round);
                let mut got = vec![0xee; size + 1];
                nodes.post(1 - from, bits, &mut got, 7);
                nodes.send_all(from, to[from], bits, &sent);
                let done = nodes.wait(1 - from, 7);
                assert_eq!(done.status, Status::Success, "size {size}");
                assert!(got[..size] == sent[..], "size {size}");
                assert_eq!(got[size], 0xee, "a byte behind the message");
            }
        }
    }
}

#[test]
fn every_shape_carries_messages_and_finds_its_rules_kept() {
    for shape in shapes() {
        let (fake, _witness) = witnessed(&shape, Faults::none(), 1);
        let mut nodes = nodes(&fake, 2);
        converse(&mut nodes);
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn every_shape_carries_messages_when_things_are_rough() {
    for shape in shapes() {
        for seed in 2..6 {
            let (fake, _witness) = witnessed(&shape, Faults::rough(), seed);
            let mut nodes = nodes(&fake, 2);
            converse(&mut nodes);
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
            let late = Faults {
                landing_polls: 30,
                ..Faults::none()
            };
            let (fake, _witness) = witnessed(&shape, late, seed);
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
