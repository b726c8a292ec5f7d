//! Order in a case that random runs hardly ever reach: a send posted just when waiting sends have
//! begun to move.

use crate::stage::introduce;
use mx_proto::Config;
use mx_sim::check::Selector;
use mx_sim::scenario::{Reliably, Stage};
use mx_sim::{Drive, Habits, Profile, World};
use std::time::Duration;

#[test]
fn send_does_not_overtake_queued_ones_when_room_returns() {
    let world = World::new(1);
    let profile = Profile {
        room: 10_000,
        ..Profile::default()
    };
    // Each call takes in one packet and sends few, so the queue moves in small steps.
    let config = Config {
        poll_budget: 1,
        burst: 1,
        ..Config::default()
    };
    let network = Reliably::new(&world, false, profile);
    let mut stage = Stage::new((&world, network), 2, (config, Habits::default()), true);
    let second = Duration::from_secs(1);
    introduce(&mut stage, false);
    let receiver = stage.at(1);
    (0..40).for_each(|_| receiver.recv(Selector::exact(5), 1_000));
    stage.run(second);
    let sender = stage.at(0);
    let remote = sender.remotes()[0];
    (0..30).for_each(|_| sender.send(remote, 5, 1_000));
    let waiting = sender.outstanding();
    assert!(waiting > 10, "the link took everything at once");
    // The receiver empties the link while the sender does not work.
    stage.cluster.stall(0, Duration::from_millis(1));
    stage.cluster.poke(1);
    stage.run(Duration::from_micros(900));
    let sender = stage.cluster.node(0).expect("it lives");
    while sender.outstanding() == waiting {
        assert!(sender.progress(), "nothing moves");
    }
    assert!(sender.outstanding() > 0, "everything moved at once");
    sender.send(remote, 5, 1_000);
    (0..2).for_each(|id| stage.cluster.poke(id));
    stage.run(second);
    assert_eq!(stage.received(), 31);
}
