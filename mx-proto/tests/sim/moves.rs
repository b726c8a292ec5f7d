//! Sessions that begin on one link and move to one of a fabric.
//!
//! ```text
//!   n0 ---- Connect, Reply, Upgrade, Fence ----> n1      the first link
//!      ==== Attach, Fence, messages ===========>         the fabric's, which may fail at any step
//! ```

use mx_proto::Config;
use mx_sim::check::Selector;
use mx_sim::node::{KEY, target};
use mx_sim::scenario::{Reliably, Stage};
use mx_sim::{Buffer, Habits, Node, Profile, Rng, SimFabric, SimPort, World, seeds};
use std::time::Duration;

const BITS: u64 = 5;
const LATENCY: Duration = Duration::from_millis(1);

/// Returns a profile like kernel TCP with a fabric beside it.
fn tcp(strict: bool) -> Profile {
    Profile {
        data_links: 1,
        unbound: Some(Duration::from_secs(5)),
        fabric: Some(SimFabric {
            strict,
            remote_read: true,
            places: usize::MAX,
        }),
        ..Profile::stream()
    }
}

/// Returns [`tcp`] with a fabric on which places are short beyond `places` links.
fn with_places(places: usize) -> Profile {
    let profile = tcp(true);
    Profile {
        fabric: profile.fabric.map(|fabric| SimFabric { places, ..fabric }),
        ..profile
    }
}

/// Makes nodes of these profiles, of which the first calls the second.
fn calling(seed: u64, profiles: &[Profile]) -> Stage<Reliably> {
    let mut stage = standing(seed, profiles);
    stage.at(0).connect(1, KEY);
    stage
}

/// Makes nodes of these profiles.
fn standing(seed: u64, profiles: &[Profile]) -> Stage<Reliably> {
    let world = World::new(seed);
    seeds::watch(&world);
    let config = Config {
        request_timeout: None,
        ..Config::default()
    };
    let network = Reliably::new(&world, true, profiles[0]);
    let mut stage = Stage::new((&world, network), 0, (config, Habits::default()), true);
    for (id, profile) in profiles.iter().enumerate() {
        stage.network.profile = *profile;
        stage.begin(id);
    }
    stage
}

/// Returns the number of a node's sessions that have moved.
fn moved(stage: &mut Stage<Reliably>, id: usize) -> u64 {
    look(stage, id).endpoint.stats().moved
}

/// Returns a node without making it work.
fn look(stage: &mut Stage<Reliably>, id: usize) -> &mut Node<SimPort<Buffer>> {
    stage.cluster.node(id).expect("it lives")
}

/// Returns the number of ended sessions of both nodes.
fn ended(stage: &mut Stage<Reliably>) -> u64 {
    [0, 1]
        .map(|id| look(stage, id).endpoint.stats().remotes_down)
        .iter()
        .sum()
}

/// Sends a message to the other node and receives it there. Returns false if there is no session.
fn pass(stage: &mut Stage<Reliably>, from: usize, len: usize) -> bool {
    let to = target(1 - from);
    let node = look(stage, from);
    let mut sessions = node.endpoint.remotes_of(to.nic, to.endpoint);
    let session = sessions.next();
    drop(sessions);
    // The caller may use its session once its connect has ended.
    let met = session.filter(|id| from == 1 || node.remotes().contains(id));
    let Some(session) = met else {
        return false;
    };
    stage.at(from).send(session, BITS, len);
    stage.at(1 - from).recv(Selector::exact(BITS), len);
    true
}

/// Runs `steps` steps of a call, with messages in both directions as soon as there is a session.
/// Returns the number of messages.
fn talk(stage: &mut Stage<Reliably>, steps: u64, rng: &mut Rng) -> u64 {
    let mut sent = 0;
    for _ in 0..steps {
        stage.cluster.step();
        if sent < stage.received() + 6 {
            let (from, len) = (
                rng.index(2),
                rng.pick(&[0, 8, 3_000, 30_000, 200_000, 600_000]),
            );
            sent += u64::from(pass(stage, from, len));
        }
    }
    sent
}

/// Asserts that all messages have arrived in a session that goes on, or that the session has moved
/// and ended.
fn check(stage: &mut Stage<Reliably>, sent: u64) {
    stage.run(Duration::from_secs(40));
    if ended(stage) == 0 {
        assert_eq!(stage.received(), sent);
        for from in [0, 1] {
            assert!(pass(stage, from, 100));
        }
        stage.run_until_received(sent + 2, 1_000_000);
    } else {
        assert!(moved(stage, 0) + moved(stage, 1) > 0, "it has not moved");
        for id in [0, 1] {
            stage.at(id).cancel_receives();
        }
        stage.run(Duration::from_secs(10));
    }
}

#[test]
fn first_request_takes_one_rtt_and_the_move_three() {
    let profile = Profile {
        latency: LATENCY,
        ..tcp(false)
    };
    let mut stage = calling(1, &[profile; 2]);
    let mut now_at = [None; 3];
    let began = stage.world.now();
    while now_at[2].is_none() {
        stage.run(LATENCY / 20);
        let at = stage.world.now().since(began);
        if now_at[0].is_none() && pass(&mut stage, 0, 8) {
            now_at[0] = Some(at);
        }
        for id in [0, 1] {
            if moved(&mut stage, id) == 1 {
                now_at[1 + id].get_or_insert(at);
            }
        }
    }
    // The first round trip is TCP's own.
    let round_trips = now_at.map(|at| at.unwrap().div_duration_f64(2 * LATENCY));
    println!("request, caller moved, called moved: {round_trips:.2?} round trips");
    for (round_trips, most) in round_trips.into_iter().zip([2.0, 4.0, 4.5]) {
        assert!((most - 0.1..most + 0.2).contains(&round_trips));
    }
    check(&mut stage, 1);
}

#[test]
fn messages_keep_their_order_across_the_move() {
    let mut all = 0;
    seeds::each(60, |seed| {
        let mut rng = Rng::new(seed);
        let mut profile = Profile {
            fabric: tcp(false).fabric,
            beside_dies: 0.0,
            ..Profile::random(&mut rng)
        };
        profile.jitter = profile.latency;
        let mut stage = calling(seed, &[profile; 2]);
        let sent = talk(&mut stage, 2_000, &mut rng);
        assert!(sent > 3, "{sent}");
        check(&mut stage, sent);
        assert_eq!(ended(&mut stage), 0);
        all += moved(&mut stage, 0) + moved(&mut stage, 1);
    });
    let one = std::env::var_os("SIM_SEED").is_some();
    assert!(one || all == 120, "{all}");
}

/// Runs `what` on the fabric's link after every step of a call, until both sides have moved.
fn at_every_step(what: impl Fn(&mut Stage<Reliably>), tally: &mut [u64; 2]) {
    for seed in 0..3 {
        for step in 1.. {
            let mut rng = Rng::new(seed);
            let profile = Profile {
                jitter: Duration::from_micros(rng.pick(&[0, 30, 300])),
                ..tcp(false)
            };
            let mut stage = calling(seed, &[profile; 2]);
            let sent = talk(&mut stage, step, &mut rng);
            let both = moved(&mut stage, 0) + moved(&mut stage, 1) == 2;
            if stage.network.fabric.has_beside(0) || stage.network.fabric.has_beside(1) {
                what(&mut stage);
                check(&mut stage, sent);
                tally[usize::from(ended(&mut stage) > 0)] += 1;
            }
            if both {
                assert!(step > 10, "{step} steps");
                break;
            }
        }
    }
}

#[test]
fn a_fabric_may_break_after_every_step() {
    let mut tally = [0; 2];
    let break_it = |stage: &mut Stage<Reliably>| {
        let node = usize::from(!stage.network.fabric.has_beside(0));
        stage.network.fabric.break_beside(node, 0);
    };
    at_every_step(break_it, &mut tally);
    println!("stayed, ended: {tally:?}");
    assert!(tally[0] > 10 && tally[1] > 2, "{tally:?}");
}

#[test]
fn a_fabric_may_be_slow_after_every_step() {
    let mut tally = [0; 2];
    let delay = |stage: &mut Stage<Reliably>| {
        let node = usize::from(!stage.network.fabric.has_beside(0));
        let span = Duration::from_secs(15);
        stage.network.fabric.delay_beside(node, 0, span);
    };
    at_every_step(delay, &mut tally);
    println!("went on, ended: {tally:?}");
    assert!(tally[0] > 10, "{tally:?}");
}

#[test]
fn a_fabric_without_an_answer_is_not_moved_to() {
    for strict in [false, true] {
        let mut stage = calling(1, &[tcp(strict); 2]);
        stage.network.fabric.set_mute(true);
        let steps = if strict { 0 } else { 100 };
        let sent = talk(&mut stage, steps, &mut Rng::new(1));
        stage.run(Duration::from_secs(30));
        assert_eq!(moved(&mut stage, 0) + moved(&mut stage, 1), 0);
        assert_eq!(stage.at(0).remotes().len(), usize::from(!strict));
        if !strict {
            check(&mut stage, sent);
        }
    }
}

#[test]
fn another_process_that_answers_at_the_address_gets_nothing() {
    for strict in [false, true] {
        let mut stage = calling(1, &[tcp(strict); 3]);
        stage.network.fabric.set_impostor(Some(2));
        let sent = talk(&mut stage, 100, &mut Rng::new(1));
        stage.run(Duration::from_secs(30));
        let stats = stage.at(2).endpoint.stats();
        assert_eq!((stats.malformed, stats.remotes_up), (1, 0));
        assert_eq!(moved(&mut stage, 0) + moved(&mut stage, 1), 0);
        assert_eq!(stage.at(0).remotes().len(), usize::from(!strict));
        if !strict {
            check(&mut stage, sent);
        }
    }
}

#[test]
fn a_peer_without_the_fabric_is_talked_to_where_it_was_met() {
    let without = Profile {
        fabric: None,
        ..tcp(false)
    };
    for profiles in [[tcp(false), without], [without, tcp(false)], [without; 2]] {
        let mut stage = calling(1, &profiles);
        let sent = talk(&mut stage, 100, &mut Rng::new(1));
        assert!(sent > 0);
        check(&mut stage, sent);
        assert_eq!(moved(&mut stage, 0) + moved(&mut stage, 1), 0);
    }
    let mut stage = calling(1, &[tcp(true), without]);
    stage.run(Duration::from_secs(2));
    assert_eq!(stage.at(0).remotes().len(), 0);
    assert_eq!(stage.at(0).calling(), 0, "the connect has ended");
}

#[test]
fn the_end_of_the_meeting_link_is_a_reason_to_ask() {
    let mut stage = calling(1, &[tcp(true); 2]);
    stage.run(Duration::from_secs(1));
    assert_eq!(moved(&mut stage, 0) + moved(&mut stage, 1), 2);
    stage.network.fabric.break_met(0);
    assert!(pass(&mut stage, 0, 100_000));
    check(&mut stage, 1);
    assert_eq!(ended(&mut stage), 0);
}

#[test]
fn moved_session_gives_up_its_meeting_link_when_short() {
    for few in [[false; 2], [true, false], [false, true], [true; 2]] {
        let places = few.map(|few| if few { 0 } else { usize::MAX });
        let profiles = places.map(with_places);
        let mut stage = calling(1, &profiles);
        stage.run(Duration::from_secs(1));
        assert_eq!(moved(&mut stage, 0) + moved(&mut stage, 1), 2);
        let left = [0, 1].map(|id| stage.network.fabric.links_met(id));
        assert_eq!(left, [usize::from(few == [false; 2]); 2], "{few:?}");
        check(&mut stage, 0);
        assert_eq!(ended(&mut stage), 0);
    }
}

#[test]
fn many_fabric_peers_are_served_in_few_places() {
    const PLACES: usize = 16;
    // An eighth of the places is for new peers, as at a real port.
    let server = with_places(PLACES - PLACES / 8);
    let plain = Profile {
        fabric: None,
        ..tcp(false)
    };
    seeds::each(20, |seed| {
        let mut rng = Rng::new(seed);
        // Peers that remain on their links come among those that move.
        let callers: Vec<_> = (0..100)
            .map(|at| if at % 8 == 7 { plain } else { tcp(true) })
            .collect();
        let mut profiles = vec![server];
        profiles.extend(callers);
        let mut stage = standing(seed, &profiles);
        for caller in 1..profiles.len() {
            stage.at(caller).connect(0, KEY);
            stage.run(Duration::from_micros(rng.pick(&[200, 1_000, 20_000])));
            let links = stage.network.fabric.links_met(0);
            assert!(links <= PLACES, "{links} links with {caller} callers");
        }
        stage.run(Duration::from_secs(5));
        let fabric = profiles.iter().filter(|profile| profile.fabric.is_some());
        assert_eq!(moved(&mut stage, 0), fabric.count() as u64 - 1);
        for caller in 1..profiles.len() {
            let session = stage.at(caller).remotes()[0];
            stage.at(caller).send(session, BITS, 3_000);
            stage.at(0).recv(Selector::exact(BITS), 3_000);
        }
        stage.run_until_received(profiles.len() as u64 - 1, 1_000_000);
    });
}
