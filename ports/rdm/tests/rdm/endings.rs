//! Failures of the rdm port: registrations that are busy, failures of devices, and peers that are
//! told.

use crate::direct::made_up::{nodes, nodes_with, shapes};
use crate::direct::nodes::{Nodes, pattern};
use libfabric_fake::{Fake, Faults, Shape};
use mx_port_base::clock::MonotonicClock;
use mx_port_rdm::RdmOptions;
use mx_proto::port::LinkControl;
use mx_proto::{Clock, Status};
use std::time::{Duration, Instant};

#[test]
fn registrations_that_are_busy_now_and_then_do_no_harm() {
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

/// Lets the nodes work until node `at` has no link any more.
fn until_alone(nodes: &mut Nodes, at: usize, within: Duration) {
    let until = Instant::now() + within;
    while nodes.end(at).port().rdm().link_count() > 0 {
        assert!(Instant::now() < until, "{:?}", nodes.end(at).port().rdm());
        nodes.turn();
    }
}

#[test]
fn the_peer_of_a_port_that_was_opened_anew_hears_of_it_at_once() {
    for shape in shapes() {
        let fake = Fake::new(shape.clone(), 1);
        let mut nodes = nodes(&fake, 2);
        let to = nodes.connect(0, 1);
        let sent = pattern(5_000, 1);
        let mut got = vec![0; sent.len()];
        nodes.send_all(0, to, 1, &sent);
        assert_eq!(nodes.receive(1, 1, &mut got).status, Status::Success);
        // Pending operations have to end then, too.
        nodes.post(1, 2, &mut got, 7);
        fake.faults(|faults| faults.overrun = 1.0);
        nodes.end(0).progress();
        fake.faults(|faults| faults.overrun = 0.0);
        assert_eq!(nodes.end(0).port().rdm().stats().renewals, 1);
        until_alone(&mut nodes, 1, Duration::from_secs(3));
        until_alone(&mut nodes, 0, Duration::from_secs(3));
        // Both work as before.
        let to = nodes.connect(0, 1);
        nodes.send_all(0, to, 2, &sent);
        assert_eq!(nodes.wait(1, 7).status, Status::Success);
        assert!(got == sent, "{}", shape.provider);
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn peer_learns_of_a_close_that_had_no_room() {
    for shape in shapes() {
        let fake = Fake::new(shape.clone(), 1);
        let mut nodes = nodes(&fake, 2);
        let to = nodes.connect(0, 1);
        let sent = pattern(5_000, 1);
        nodes.send_all(0, to, 1, &sent);
        let mut got = vec![0; sent.len()];
        assert_eq!(nodes.receive(1, 1, &mut got).status, Status::Success);
        fake.faults(|faults| {
            faults.again = 1.0;
            faults.again_run = 1;
        });
        nodes.end(0).disconnect(to);
        for _ in 0..10 {
            nodes.turn();
        }
        fake.faults(|faults| *faults = Faults::none());
        until_alone(&mut nodes, 1, Duration::from_secs(3));
        until_alone(&mut nodes, 0, Duration::from_secs(3));
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn busy_peer_that_signals_is_not_taken_for_dead() {
    let keepalive = Duration::from_secs(1);
    for says_so in [true, false] {
        let fake = Fake::new(Shape::tcp(), 1);
        let options = RdmOptions {
            keepalive,
            ..RdmOptions::default()
        };
        let mut nodes = nodes_with(&fake, 2, options);
        nodes.connect(0, 1);
        let until = Instant::now() + 5 * keepalive / 2;
        while Instant::now() < until && nodes.end(0).port().rdm().link_count() > 0 {
            nodes.end(0).progress();
            let halted = nodes.end(1);
            assert!(halted.keep_alive_due().is_some(), "it has a peer");
            if says_so {
                halted.keep_alive();
            }
        }
        let left = nodes.end(0).port().rdm().link_count();
        assert_eq!(left, usize::from(says_so), "says so: {says_so}");
        drop(nodes);
        fake.assert_clean();
    }
}

#[test]
fn doubted_peer_keeps_its_link_only_if_it_answers() {
    for alive in [true, false] {
        let fake = Fake::new(Shape::tcp(), 1);
        let mut nodes = nodes(&fake, 2);
        nodes.connect(0, 1);
        nodes.end(0).port().doubt(MonotonicClock.now());
        // A packet to a dead peer is given up after a second.
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && nodes.end(0).port().rdm().link_count() > 0 {
            nodes.end(0).progress();
            if alive {
                nodes.end(1).progress();
            }
        }
        let left = nodes.end(0).port().rdm().link_count();
        assert_eq!(left, usize::from(alive), "alive: {alive}");
        drop(nodes);
        fake.assert_clean();
    }
}
