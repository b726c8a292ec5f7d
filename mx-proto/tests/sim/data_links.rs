//! Sessions with further links for bulk data.
//!
//! ```text
//!   n0 ==== large messages ====> n1      over data links, which may break or fall silent at any packet
//!      ---- small messages --->          over the command link, meanwhile
//! ```

use crate::stage::{introduce, unreliably};
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_proto::{Config, EndpointId};
use mx_sim::check::Selector;
use mx_sim::datagram::header::{FROM, RESET, TO, build};
use mx_sim::link::Fate;
use mx_sim::node::{KEY, NIC, target};
use mx_sim::scenario::{Network, Reliably, Stage, Unreliably};
use mx_sim::{Faults, Habits, Profile, Rng, SimAddress, Terms, World, seeds};
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

const LARGE: usize = 16 << 20;
const BULK: u64 = 5;
const SMALL: u64 = 9;

/// Returns a profile like kernel TCP over 1 Gbit/s, with megabytes in its buffers.
fn tcp() -> Profile {
    Profile {
        packet_max: 48 << 10,
        streamed_max: 48 << 10,
        pull_block: 4 << 20,
        room: 4 << 20,
        bandwidth: Some(125_000_000),
        data_links: 1,
        ..Profile::stream()
    }
}

/// Makes two nodes with at most `links` data links each, of which the first has called the second.
fn two(seed: u64, links: [u32; 2], profile: Profile) -> Stage<Reliably> {
    let world = World::new(seed);
    seeds::watch(&world);
    let config = Config {
        request_timeout: None,
        ..Config::default()
    };
    let profile = Profile {
        data_links: links[0],
        ..profile
    };
    let network = Reliably::new(&world, false, profile);
    let mut stage = Stage::new((&world, network), 2, (config, Habits::default()), true);
    if links[1] != links[0] {
        stage.kill(1);
        stage.network.profile.data_links = links[1];
        stage.begin(1);
    }
    introduce(&mut stage, false);
    stage
}

/// Makes two nodes over datagrams with at most `links` data links, of which the first has called
/// the second.
fn over_datagrams(seed: u64, links: u32, terms: Terms) -> Stage<Unreliably> {
    let config = ReliableConfig {
        data_links: links,
        ..ReliableConfig::default()
    };
    let endpoint = Config {
        request_timeout: None,
        ..Config::default()
    };
    let mut stage = unreliably(seed, terms, (config, &[config.window; 2]), endpoint);
    introduce(&mut stage, false);
    stage
}

/// Returns a network of 1 Gbit/s with a queue of 2 ms.
fn gigabit() -> Terms {
    Terms::with(Faults {
        bandwidth: Some(125_000_000),
        queue: 256 << 10,
        ..Faults::default()
    })
}

/// Makes two nodes with `links` data links, all of which are open.
fn linked(seed: u64, links: u32, profile: Profile) -> Stage<Reliably> {
    let mut stage = two(seed, [links; 2], profile);
    pass(&mut stage, 0, LARGE / 4);
    let opened = stage.at(0).endpoint.stats().data_links;
    assert_eq!(opened, u64::from(links));
    stage
}

/// Sends a large message from one node to the other. Returns the time that the message takes.
fn pass<N: Network>(stage: &mut Stage<N>, from: usize, len: usize) -> Duration {
    let (began, before) = (stage.world.now(), stage.received());
    stage.at(1 - from).recv(Selector::exact(BULK), len);
    send(stage, from, BULK, len);
    stage.run_until_received(before + 1, 60_000_000);
    stage.world.now().since(began)
}

/// Asserts that no session has ended and that each node has lost `lost` data links.
fn check_lost<N: Network>(stage: &mut Stage<N>, lost: u64) {
    for id in 0..2 {
        let stats = stage.at(id).endpoint.stats();
        assert_eq!((stats.remotes_down, stats.data_links_lost), (0, lost));
    }
}

fn send<N: Network>(stage: &mut Stage<N>, from: usize, bits: u64, len: usize) {
    send_to(stage, from, 1 - from, (bits, len));
}

fn send_to<N: Network>(stage: &mut Stage<N>, from: usize, to: usize, (bits, len): (u64, usize)) {
    let node = stage.at(from);
    let to = target(to);
    let mut sessions = node.endpoint.remotes_of(to.nic, to.endpoint);
    let session = sessions.next().expect("they have met");
    drop(sessions);
    node.send(session, bits, len);
}

/// Begins a large message from one node to the other, and lets some of it be transferred.
fn begin_bulk<N: Network>(stage: &mut Stage<N>, from: usize) {
    stage.at(1 - from).recv(Selector::exact(BULK), 4 * LARGE);
    send(stage, from, BULK, 4 * LARGE);
    stage.run(Duration::from_millis(50));
}

/// Returns the time of a small message, which may be sent at once, copied or matched. The nodes
/// rest after it.
fn small_message<N: Network>(stage: &mut Stage<N>, from: usize, to: usize) -> Duration {
    let (began, before) = (stage.world.now(), stage.received());
    stage.at(to).recv(Selector::exact(SMALL), 8);
    send_to(stage, from, to, (SMALL, 8));
    while stage.received() == before {
        stage.run(Duration::from_micros(10));
    }
    let took = stage.world.now().since(began);
    stage.run(Duration::from_millis(2));
    took
}

#[test]
fn a_small_message_waits_for_no_large_one_of_its_peer() {
    for from in [0, 1] {
        let [together, apart] = [0, 1].map(|links| {
            let mut stage = two(1, [links; 2], tcp());
            begin_bulk(&mut stage, from);
            let all = (0..20).map(|_| small_message(&mut stage, from, 1 - from));
            all.max().unwrap_or_default()
        });
        println!("{apart:?} with a data link, {together:?} without");
        assert!(apart < Duration::from_micros(200), "{apart:?}");
        assert!(together > Duration::from_millis(20), "{together:?}");
    }
}

#[test]
fn a_small_message_waits_little_while_the_data_link_opens() {
    for from in [0, 1] {
        let mut stage = two(1, [1; 2], tcp());
        for bits in BULK..BULK + 4 {
            stage.at(1 - from).recv(Selector::exact(bits), LARGE);
            send(&mut stage, from, bits, LARGE);
        }
        stage.run(Duration::from_micros(100));
        // Two parts of each message, of 128 KiB, and those that had begun.
        let took = small_message(&mut stage, from, 1 - from);
        println!("{took:?}");
        assert!(took < Duration::from_millis(10), "{took:?}");
        stage.run_until_received(5, 60_000_000);
        check_lost(&mut stage, 0);
    }
}

/// Beside bulk data of its own node, a small message takes as long as beside that of another node,
/// over one path of 1 Gbit/s.
#[test]
fn over_datagrams_a_small_message_waits_for_the_path_alone() {
    for from in [0, 1] {
        let to = 1 - from;
        let [together, apart] = [0, 1].map(|links| {
            let mut stage = over_datagrams(1, links, Terms::default());
            stage.begin(2);
            stage.at(2).connect(to, KEY);
            stage.network.net.set_bottleneck(to, 125_000_000, 256 << 10);
            begin_bulk(&mut stage, from);
            let all = (0..20).map(|_| [from, 2].map(|from| small_message(&mut stage, from, to)));
            let (mut own, mut other): (Vec<_>, Vec<_>) =
                all.map(|[own, other]| (own, other)).unzip();
            own.sort();
            other.sort();
            println!(
                "{from} {links}: {:?} beside bulk of its own, {:?} of another's",
                own[10], other[10]
            );
            own[10].as_secs_f64() / other[10].as_secs_f64()
        });
        assert!(apart < 1.2 && together > 1.5, "{apart} {together}");
    }
}

#[test]
fn a_data_link_may_open_late_at_either_side() {
    let mut opened = 0;
    seeds::each(40, |seed| {
        for from in [0, 1] {
            let profile = Profile {
                jitter: Duration::from_millis(3),
                ..tcp()
            };
            let links = [1, 2, 4][seed as usize % 3];
            let mut stage = two(seed, [links; 2], profile);
            let took = pass(&mut stage, from, LARGE);
            assert!(took < Duration::from_secs(1), "{from}: {took:?}");
            opened += stage.at(from).endpoint.stats().data_links;
        }
    });
    let one = std::env::var_os("SIM_SEED").is_some();
    assert!(one || opened > 60, "{opened}");
}

#[test]
fn bodies_are_finished_whatever_becomes_of_their_data_links() {
    let (mut opened, mut lost) = (0, 0);
    seeds::each(40, |seed| {
        let mut rng = Rng::new(seed);
        let profile = Profile {
            beside_dies: rng.pick(&[0.0, 0.02, 0.3, 1.0]),
            room: rng.pick(&[100_000, 1 << 20]),
            ..tcp()
        };
        let links = rng.pick(&[1, 2, 4]);
        let mut stage = two(seed, [links; 2], profile);
        let count = 24;
        for nth in 0..count {
            let (from, len) = (
                rng.index(2),
                rng.pick(&[8, 40_000, 60_000, 300_000, 3 << 20, 6 << 20]),
            );
            let bits = BULK + nth % 3;
            send(&mut stage, from, bits, len);
            stage.at(1 - from).recv(Selector::exact(bits), len);
            stage.run(Duration::from_micros(rng.below(20_000)));
        }
        stage.run_until_received(count, 60_000_000);
        for id in 0..2 {
            let stats = stage.at(id).endpoint.stats();
            assert_eq!(stats.remotes_down, 0, "a session has ended");
            (opened, lost) = (opened + stats.data_links, lost + stats.data_links_lost);
        }
    });
    println!("{opened} data links, {lost} lost");
    let one = std::env::var_os("SIM_SEED").is_some();
    assert!(one || opened > 50 && lost > 30, "{opened} {lost}");
}

#[test]
fn bytes_of_a_message_that_is_called_off_are_no_other_ones() {
    seeds::each(60, |seed| {
        let mut rng = Rng::new(seed);
        // Bytes on the data link arrive long after packets that the command link carries.
        let profile = Profile {
            room: 8 << 20,
            bandwidth: Some(10_000_000),
            ..tcp()
        };
        let links = rng.pick(&[1, 2, 4]);
        let mut stage = two(seed, [links; 2], profile);
        for _ in 0..12 {
            for _ in 0..3 {
                send(&mut stage, 0, BULK, rng.pick(&[60_000, 300_000, 1 << 20]));
                stage.at(1).recv(Selector::exact(BULK), 1 << 20);
            }
            stage.run(Duration::from_micros(rng.below(60_000)));
            if rng.chance(0.6) {
                stage.at(0).cancel_sends();
            }
            stage.run(Duration::from_micros(rng.below(300)));
        }
        send(&mut stage, 0, SMALL, 8);
        stage.at(1).recv(Selector::exact(SMALL), 8);
        stage.run(Duration::from_secs(10));
        stage.at(1).cancel_receives();
    });
}

#[test]
fn a_large_body_comes_over_all_data_links_at_once() {
    for from in [0, 1] {
        let took = [1, 2, 4].map(|links| pass(&mut linked(1, links, tcp()), from, LARGE));
        println!("{took:?} over 1, 2 and 4 links");
        assert!(took[0] > took[1].mul_f64(1.9), "{took:?}");
        assert!(took[0] > took[2].mul_f64(3.6), "{took:?}");
    }
}

#[test]
fn small_bodies_are_spread_over_all_data_links() {
    let took = [1, 4].map(|links| {
        let mut stage = linked(1, links, tcp());
        let (began, count) = (stage.world.now(), 32);
        for _ in 0..count {
            stage.at(1).recv(Selector::exact(BULK), LARGE / 128);
            send(&mut stage, 0, BULK, LARGE / 128);
        }
        stage.run_until_received(1 + count, 60_000_000);
        stage.world.now().since(began)
    });
    assert!(took[0] > took[1].mul_f64(3.0), "{took:?}");
}

#[test]
fn the_side_with_fewer_data_links_decides() {
    for (links, most) in [
        ([4, 2], 2),
        ([2, 4], 2),
        ([16, 1], 1),
        ([0, 4], 0),
        ([4, 0], 0),
    ] {
        let mut stage = two(1, links, tcp());
        for from in [0, 1] {
            pass(&mut stage, from, 2 * LARGE);
        }
        for id in 0..2 {
            assert_eq!(stage.at(id).endpoint.stats().data_links, most, "{links:?}");
        }
        check_lost(&mut stage, 0);
    }
}

#[test]
fn short_messages_pass_long_ones_on_their_data_link() {
    let mut stage = linked(1, 1, tcp());
    for len in [LARGE, LARGE, 300_000] {
        stage.at(1).recv(Selector::exact(len as u64), len);
        send(&mut stage, 0, len as u64, len);
        stage.run(Duration::from_millis(1));
    }
    let began = stage.world.now();
    stage.run_until_received(2, 60_000_000);
    // Before this message only as much arrives as the link had room for, which takes 268 ms.
    let took = stage.world.now().since(began);
    assert!(took < Duration::from_millis(45), "{took:?}");
    stage.run_until_received(4, 60_000_000);
}

#[test]
fn stalled_data_link_is_closed_and_its_bytes_ignored() {
    for (from, links) in [(0, 4), (1, 4), (0, 2), (1, 1)] {
        let mut stage = linked(1, links, tcp());
        let (began, before) = (stage.world.now(), stage.received());
        stage.at(1 - from).recv(Selector::exact(BULK), LARGE);
        send(&mut stage, from, BULK, LARGE);
        stage.run(Duration::from_millis(5));
        let late = Duration::from_secs(60);
        stage.network.fabric.delay_beside(0, 1, late);
        stage.run_until_received(before + 1, 60_000_000);
        let took = stage.world.now().since(began);
        assert!(took < Duration::from_secs(10), "{from} {links}: {took:?}");
        check_lost(&mut stage, 1);
        stage.at(1 - from).recv(Selector::exact(BULK), LARGE);
        // The late bytes arrive now.
        stage.run(late);
        send(&mut stage, from, BULK, LARGE);
        stage.run_until_received(before + 2, 60_000_000);
        check_lost(&mut stage, 1);
    }
}

#[test]
fn stalled_data_links_are_dialled_less_and_less_often() {
    let slow = Profile {
        bandwidth: Some(1_000_000),
        room: 100_000,
        ..tcp()
    };
    for from in [0, 1] {
        let mut stage = two(1, [1; 2], slow);
        let end = stage.world.now().after(Duration::from_secs(200));
        let (mut opened, mut received) = (0, 0);
        while stage.world.now() < end {
            if stage.received() >= received {
                received += 1;
                send(&mut stage, from, BULK, LARGE / 4);
                stage.at(1 - from).recv(Selector::exact(BULK), LARGE / 4);
            }
            stage.run(Duration::from_millis(20));
            let all = stage.at(from).endpoint.stats().data_links;
            if all > opened {
                opened = all;
                let late = Duration::from_secs(1000);
                stage.network.fabric.delay_beside(0, 0, late);
            }
        }
        println!("{opened} data links from {from}");
        assert!((5..11).contains(&opened), "{opened}");
    }
}

#[test]
fn a_data_link_may_break_after_every_step_of_a_body() {
    for step in 0.. {
        let mut stage = linked(step, 4, tcp());
        let before = stage.received();
        let from = step as usize % 2;
        stage.at(1 - from).recv(Selector::exact(BULK), LARGE / 4);
        send(&mut stage, from, BULK, LARGE / 4);
        for _ in 0..step {
            stage.cluster.step();
        }
        if stage.received() > before {
            assert!(step > 50, "{step} steps");
            break;
        }
        stage.network.fabric.break_beside(0, step as usize);
        stage.run_until_received(before + 1, 60_000_000);
        check_lost(&mut stage, 1);
    }
}

/// Returns the times of bodies of these sizes while others use `load` of the link, as multiples of
/// their times alone: for each size the median and the 99th of 100. Bodies begin at random times,
/// and each size has an equal share of the bytes.
fn slowdowns(sizes: [usize; 3], load: f64, span: Duration) -> [(f64, f64); 3] {
    let profile = Profile {
        // As much as the tcp port leaves in the kernel for a link of this rate.
        room: 250_000,
        data_max: 125_000,
        ..tcp()
    };
    let bandwidth = profile.bandwidth.expect("it is limited") as f64;
    let mut stage = linked(1, 1, profile);
    let alone = sizes.map(|len| pass(&mut stage, 0, len).as_secs_f64());
    let (mut rng, began) = (Rng::new(1), stage.world.now());
    let pause = |rng: &mut Rng, len: usize| {
        let mean = 3.0 * len as f64 / (load * bandwidth);
        let uniform = (rng.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
        Duration::from_secs_f64(-uniform.ln() * mean)
    };
    let mut next = sizes.map(|len| pause(&mut rng, len));
    let mut under_way = Vec::new();
    let mut times: [Vec<f64>; 3] = Default::default();
    loop {
        let at = stage.world.now().since(began);
        if at > span && under_way.is_empty() {
            break;
        }
        for (nth, len) in sizes.into_iter().enumerate() {
            while next[nth] <= at && at <= span {
                let serial = stage.book.borrow().sent();
                let bits = 1000 + serial;
                stage.at(1).recv(Selector::exact(bits), len);
                send(&mut stage, 0, bits, len);
                under_way.push((serial, nth, next[nth]));
                next[nth] += pause(&mut rng, len);
            }
        }
        stage.run(Duration::from_micros(20));
        let (book, at) = (stage.book.borrow(), stage.world.now().since(began));
        under_way.retain(|(serial, nth, begun)| {
            let arrived = book.message(*serial).arrived;
            if arrived {
                times[*nth].push((at - *begun).as_secs_f64() / alone[*nth]);
            }
            !arrived
        });
    }
    times.map(|mut all| {
        all.sort_unstable_by(f64::total_cmp);
        (all[all.len() / 2], all[all.len() * 99 / 100])
    })
}

#[test]
fn bodies_of_every_size_get_on_at_a_high_load() {
    let sizes = [128 << 10, 1 << 20, 8 << 20];
    let seconds = std::env::var("SLOWDOWN_SECONDS").map_or(4, |text| text.parse().unwrap());
    let all = slowdowns(sizes, 0.8, Duration::from_secs(seconds));
    for ((median, late), (len, most)) in
        all.into_iter().zip(sizes.into_iter().zip([6.0, 6.0, 12.0]))
    {
        println!("{len}: median {median:.2}, 99 of 100 {late:.2}");
        assert!(late < most, "{len}: {late}");
    }
}

/// Asks `fate` about each datagram of later sessions, with its number and bytes.
fn script_later_sessions(
    stage: &mut Stage<Unreliably>,
    fate: impl FnMut(u64, &[u8]) -> Fate + 'static,
) {
    let known = Rc::new(RefCell::new(HashSet::new()));
    for (from, to) in [(0, 1), (1, 0)] {
        let known = Rc::clone(&known);
        let note = move |_: Channel, bytes: &[u8]| {
            known.borrow_mut().insert(FROM.of(bytes));
            Fate::Chance
        };
        stage.network.net.set_script(from, to, Some(Box::new(note)));
    }
    for from in [0, 1] {
        pass(stage, from, 8);
    }
    let state = Rc::new(RefCell::new((0, fate)));
    for (from, to) in [(0, 1), (1, 0)] {
        let (known, state) = (Rc::clone(&known), Rc::clone(&state));
        let script = move |_: Channel, bytes: &[u8]| {
            if known.borrow().contains(&FROM.of(bytes)) {
                return Fate::Chance;
            }
            let (nth, fate) = &mut *state.borrow_mut();
            *nth += 1;
            fate(*nth, bytes)
        };
        stage
            .network
            .net
            .set_script(from, to, Some(Box::new(script)));
    }
}

/// Returns numbers of datagrams of a data session: each of the first ones, then fewer.
fn datagrams() -> impl Iterator<Item = u64> {
    (1..24).chain((24..700).step_by(97))
}

/// Sends three large messages. Returns the time of the first.
fn pass_some(stage: &mut Stage<Unreliably>, from: usize) -> Duration {
    let took = pass(stage, from, LARGE / 16);
    for from in [1 - from, from] {
        pass(stage, from, LARGE / 16);
    }
    for id in 0..2 {
        assert_eq!(stage.at(id).endpoint.stats().remotes_down, 0);
    }
    took
}

#[test]
fn a_data_session_may_fall_silent_at_any_datagram() {
    for silent in datagrams() {
        let mut stage = over_datagrams(silent, 1, gigabit());
        script_later_sessions(&mut stage, move |nth, _| {
            if nth < silent {
                Fate::Chance
            } else {
                Fate::Drop
            }
        });
        let took = pass_some(&mut stage, silent as usize % 2);
        assert!(took < Duration::from_secs(10), "{silent}: {took:?}");
    }
}

#[test]
fn datagrams_of_a_data_session_that_come_late_change_nothing() {
    let (mut lost, mut stale) = (0, 0);
    for held in datagrams() {
        let mut stage = over_datagrams(held, 1, gigabit());
        // The cookies of the first data session; the next session works.
        let mut first = Vec::new();
        script_later_sessions(&mut stage, move |nth, bytes| {
            let from = FROM.of(bytes);
            if first.len() < 2 && !first.contains(&from) {
                first.push(from);
            }
            if first.contains(&from) && nth >= held {
                Fate::Hold(Duration::from_secs(30))
            } else {
                Fate::Chance
            }
        });
        let took = pass_some(&mut stage, held as usize % 2);
        assert!(took < Duration::from_secs(10), "{held}: {took:?}");
        let old = |stage: &mut Stage<Unreliably>| {
            let old = |id| stage.at(id).endpoint.port().stats().old_session;
            [0, 1].map(old).iter().sum::<u64>()
        };
        let before = old(&mut stage);
        stage.run(Duration::from_secs(31));
        stale += old(&mut stage) - before;
        pass_some(&mut stage, 0);
        lost += stage.at(0).endpoint.stats().data_links_lost;
    }
    assert!(lost > 10 && stale > 100, "{lost} {stale}");
}

#[test]
fn a_data_session_may_be_reset_at_any_datagram() {
    for end in datagrams() {
        let mut stage = over_datagrams(end, 1, gigabit());
        let seen = Rc::new(RefCell::new(None));
        let note = Rc::clone(&seen);
        script_later_sessions(&mut stage, move |nth, bytes| {
            if nth <= end {
                *note.borrow_mut() = Some([TO, FROM].map(|field| field.of(bytes)));
            }
            Fate::Chance
        });
        let from = end as usize % 2;
        let before = stage.received();
        stage.at(1 - from).recv(Selector::exact(BULK), LARGE / 16);
        send(&mut stage, from, BULK, LARGE / 16);
        while seen.borrow().is_none() {
            stage.cluster.step();
        }
        stage.run(Duration::from_micros(15 * end));
        let [to, by] = seen.take().expect("a data session has begun");
        for (node, ends) in [(0, [to, by]), (1, [by, to]), (0, [by, to]), (1, [to, by])] {
            let reset = build(RESET, &[(TO, ends[0]), (FROM, ends[1])], &[]);
            let at = |node| SimAddress::command(NIC, EndpointId(node));
            stage.network.net.inject(at(1 - node), at(node), &reset);
        }
        stage.run_until_received(before + 1, 60_000_000);
        pass_some(&mut stage, from);
    }
}

#[test]
fn figures_of_a_data_session_are_the_bytes_of_large_messages() {
    let mut stage = over_datagrams(1, 1, gigabit());
    for from in [0, 1] {
        pass(&mut stage, from, LARGE);
    }
    for id in 0..2 {
        let endpoint = &stage.at(id).endpoint;
        let link = (0..4).find_map(|place| endpoint.data_links_at(place).next());
        let figures = endpoint.port().figures(link.expect("it is open"));
        let figures = figures.expect("it is there");
        for bytes in [figures.sent, figures.received].map(Option::unwrap_or_default) {
            // The first parts went over the command link, and datagrams have headers.
            let large = LARGE as u64;
            assert!((large * 3 / 4..large * 5 / 4).contains(&bytes), "{bytes}");
        }
    }
}
