//! Hostile nodes that attack introductions, with and without a site's secret.
//!
//! ```text
//!   honest nodes  <--- claims, replays, relays, floods, unasked answers --- hostile nodes
//!        `-- each other: every operation ends well, and they connect in bounded time
//! ```
//!
//! `SIM_SEED=n` repeats one run, `SIM_SEEDS=n` makes n runs.

use mx_proto::reliability::ReliableConfig;
use mx_proto::secret::Secret;
use mx_proto::{Config, Endpoint, EndpointId, Identity, Key, MatchBits, SessionId, Status};
use mx_sim::hostile::{Gang, Hostile};
use mx_sim::node::{KEY, NIC, target};
use mx_sim::scenario::{Besieged, Ground, Network, Reliably, Secrets, Tally, Unreliably};
use mx_sim::{Buffer, Queue, Reports};
use mx_sim::{Drive, Profile, Rng, Terms, World, seeds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use zeroize::Zeroizing;

const SECOND: Duration = Duration::from_secs(1);

fn secret(letters: &str) -> Secret {
    Secret::new(Zeroizing::new(letters.as_bytes().to_vec()))
}

/// Returns the secret of the site, if it has one, and that of the attackers: another one, or none.
fn secrets(rng: &mut Rng, site: bool) -> Secrets {
    Secrets {
        site: site.then(|| secret("one and the same for all")),
        other: rng.chance(0.5).then(|| secret("something else altogether")),
    }
}

/// Runs machines with addresses, over links that are as reliable as TCP's.
fn over_a_reliable_port(seed: u64, site: bool, tally: &mut Tally) {
    let world = World::new(seed);
    seeds::watch(&world);
    let mut rng = Rng::new(seed);
    let binding = rng.chance(0.5);
    let ground = Ground::drawn(&world, &mut rng, site && binding);
    let secrets = secrets(&mut rng, site);
    let profile = Profile {
        unbound: Some(5 * SECOND),
        binding,
        ..Profile::random(&mut rng)
    };
    // An honest node would notice a data link that falls silent.
    let profile = Profile {
        beside_dies: 0.0,
        ..profile
    };
    let network = Reliably::new(&world, true, profile);
    let gang = Rc::<RefCell<Gang>>::default();
    let ears = Rc::clone(&gang);
    let tap = move |header: &_, body: &[u8]| ears.borrow_mut().hear(header, body);
    network.fabric.set_tap(Box::new(tap));
    let mut run = Besieged::new((&world, rng), network, &gang, ground, &secrets);
    run.run();
    run.tally(tally);
}

fn datagrams(world: &World, rng: &mut Rng) -> Unreliably {
    Unreliably::new(
        world,
        Terms::default(),
        ReliableConfig::default(),
        rng.fork(),
    )
}

/// Runs nodes on one machine, over datagrams.
fn over_datagrams(seed: u64, tally: &mut Tally) {
    let world = World::new(seed);
    seeds::watch(&world);
    let mut rng = Rng::new(seed);
    let secrets = secrets(&mut rng, true);
    let ground = Ground::on_one_machine(&mut rng);
    let network = datagrams(&world, &mut rng);
    let gang = Rc::default();
    let mut run = Besieged::new((&world, rng), network, &gang, ground, &secrets);
    run.run();
    run.tally(tally);
}

/// Runs two nodes that know the secret, and one that passes on all their packets, all on one
/// machine. Returns how a call to the latter ends.
fn relayed<N: Network>(world: &World, mut network: N) -> Status {
    let secrets = Secrets {
        site: Some(secret("one and the same for all")),
        other: None,
    };
    let endpoint = |id: usize, port| {
        let config = Config {
            secret: secrets.site.clone(),
            key: Key([id as u8; 16]),
            ..Config::default()
        };
        let identity = Identity {
            nic: NIC,
            endpoint: EndpointId(id as u32),
            session: SessionId(id as u64 + 1),
        };
        let owner = <Queue<Buffer>>::default();
        Endpoint::new(config, identity, KEY, port, world.clock(), owner)
    };
    let mut caller = endpoint(0, network.open(0));
    let mut called = endpoint(1, network.open(1));
    let (book, gang) = (Rc::default(), Rc::default());
    let knows = (&book, &gang);
    let relay = Hostile::new(world, knows, (2, 2), SECOND, None, network.open(2));
    let mut relay = relay.relaying_to(1);
    caller.connect(target(2), KEY, MatchBits(0), 0).unwrap();
    for _ in 0..10_000 {
        caller.progress();
        called.progress();
        relay.progress();
        if let Some(done) = caller.next_completion() {
            return done.status;
        }
        let now = world.now();
        world
            .clock()
            .advance_to(now.after(Duration::from_micros(100)));
    }
    panic!("it never ends");
}

/// A relay passes on a call to its own name.
#[test]
fn a_relay_is_noticed_by_the_name_that_was_called() {
    let world = World::new(1);
    let network = Reliably::new(&world, true, Profile::default());
    let status = relayed(&world, network);
    assert_eq!(status, Status::Refused);
    let world = World::new(1);
    let status = relayed(&world, datagrams(&world, &mut Rng::new(1)));
    assert_eq!(status, Status::Refused);
}

/// Asserts that each of these events happened in the runs, so that it was tested.
fn check(tally: &Tally, wanted: &[&str]) {
    println!("{tally:#?}");
    let runs = tally.get("runs").copied().unwrap_or(0);
    for what in wanted {
        let met = tally.contains_key(*what);
        assert!(runs < 15 || met, "not once in {runs} runs: {what}");
    }
    let never = ["hostile"].iter().filter(|what| !wanted.contains(what));
    for what in never {
        assert!(!tally.contains_key(*what), "{what}");
    }
}

#[test]
fn honest_nodes_do_not_notice_peers_that_claim_to_be_others() {
    let mut tally = Tally::new();
    seeds::each(30, |seed| over_a_reliable_port(seed, false, &mut tally));
    let wanted = [
        "hostile",
        "refused",
        "same_name_pings",
        "joined",
        "repeated at once",
    ];
    check(&tally, &wanted);
}

#[test]
fn stranger_without_secret_gains_nothing_by_overhearing() {
    let mut tally = Tally::new();
    seeds::each(30, |seed| over_a_reliable_port(seed, true, &mut tally));
    check(&tally, &["refused", "joined"]);
}

/// Seeds that once failed. What they do changes with the code.
#[test]
fn runs_that_once_failed_go_well() {
    for seed in [55, 2907] {
        for site in [false, true] {
            over_a_reliable_port(seed, site, &mut Tally::new());
        }
    }
}

#[test]
fn no_stranger_gets_in_without_the_secret_over_datagrams() {
    let mut tally = Tally::new();
    seeds::each(15, |seed| over_datagrams(seed, &mut tally));
    check(&tally, &["refused"]);
}
