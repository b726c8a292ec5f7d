//! Time until a port over datagrams notices a dead peer whose machine rejects everything sent to
//! it, and the cost of that while the peer lives.
//!
//! ```text
//!   a datagram goes to the dead peer --> rejected --> Ping at once --> rejected --> rejected: dead
//!   none does                       operations wait (monitored): a Ping 25 times a second
//!                                   otherwise: the keep-alive
//! ```

use super::peer::target;
use super::sessions::{SECOND, Stage, config};
use mx_proto::port::{LinkControl, LinkDown};
use mx_proto::reliability::{Channel, Quote, ReliableConfig};
use mx_proto::{Clock, Instant};
use mx_sim::datagram::header::{PING, is_kind};
use mx_sim::link::Fate;
use mx_sim::{NodeId, Terms, seeds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// The time of three Pings at short intervals.
const ASKING: Duration = millis(20);

fn monitor(stage: &mut Stage, id: NodeId, wanted: bool) {
    let peer = stage.at(id);
    let link = peer.link.or(peer.heard.link).expect("it has a link");
    peer.port.monitor(link, wanted);
}

/// Kills the second node. Returns the time until the first notices, which has to be within 10 s.
fn death(stage: &mut Stage) -> Duration {
    let killed = stage.world.now();
    drop(stage.cluster.kill(1));
    while stage.down(0).is_none() {
        stage.run(millis(1));
        let took = stage.world.now().since(killed);
        assert!(took < 10 * SECOND, "never noticed");
    }
    assert_eq!(stage.down(0), Some(LinkDown::Reset));
    stage.world.now().since(killed)
}

/// Returns the times of Pings from the first node to the second, from now on.
fn count_pings(stage: &Stage) -> Rc<RefCell<Vec<Instant>>> {
    let pings = Rc::new(RefCell::new(Vec::new()));
    let (seen, world) = (Rc::clone(&pings), stage.world.clone());
    let script = move |_: Channel, bytes: &[u8]| {
        if is_kind(bytes, PING) {
            seen.borrow_mut().push(world.now());
        }
        Fate::Chance
    };
    stage.net.set_script(0, 1, Some(Box::new(script)));
    pings
}

#[test]
fn monitored_dead_peer_is_missed_even_after_long_idle() {
    seeds::each(10, |seed| {
        let mut stage = Stage::new(seed);
        stage.exchange(3);
        monitor(&mut stage, 0, true);
        let idle = stage.rng.pick(&[0, 1, 33, 700, 5_000]);
        stage.run(millis(idle));
        let took = death(&mut stage);
        let limit = ReliableConfig::default().monitored_keepalive + ASKING;
        assert!(took <= limit, "{took:?} after {idle} ms");
    });
}

#[test]
fn dead_idle_peer_is_missed_at_the_next_send() {
    seeds::each(10, |seed| {
        let mut stage = Stage::new(seed);
        stage.exchange(3);
        stage.run(3 * SECOND);
        let took = match stage.rng.below(2) {
            0 => death(&mut stage).saturating_sub(config().keepalive),
            _ => {
                let bytes = stage.rng.pick(&[1, 30_000]);
                stage.at(0).to_send.push_back(bytes);
                death(&mut stage)
            }
        };
        assert!(took <= ASKING, "{took:?}");
    });
}

#[test]
fn long_silent_peer_that_dies_is_missed_at_the_next_ping() {
    for is_monitored in [false, true] {
        seeds::each(5, |seed| {
            let mut stage = Stage::new(seed);
            stage.exchange(3);
            monitor(&mut stage, 0, is_monitored);
            stage.net.set_cut(0, 1, true);
            stage.at(0).to_send.extend([100, 30_000]);
            // All repeated questions have reached their longest interval.
            let more = stage.rng.below(250);
            stage.run(2 * SECOND + millis(more));
            assert_eq!(stage.down(0), None);
            let took = death(&mut stage);
            let longest = if is_monitored {
                ReliableConfig::default().monitored_keepalive
            } else {
                config().give_up / 8
            };
            assert!(took <= longest + ASKING, "{took:?}");
        });
    }
}

/// Makes two peers with a link and a known path, on which no search is under way.
fn settled(seed: u64, terms: Terms) -> Stage {
    let config = ReliableConfig {
        keepalive: 60 * SECOND,
        give_up: 240 * SECOND,
        ..config()
    };
    let mut stage = Stage::with(seed, config, terms);
    stage.exchange(3);
    stage.run(3 * SECOND);
    stage
}

#[test]
fn one_refusal_of_a_living_peer_costs_one_ping() {
    seeds::each(10, |seed| {
        let mut stage = settled(seed, Terms::default());
        let said = stage.record(0, 1);
        stage.at(0).to_send.push_back(100);
        stage.run(millis(10));
        let quote = Quote::read(&said.borrow()[0].1);
        assert!(quote.is_some());
        let (from, command) = (super::sessions::address(0), super::sessions::address(1));
        let data = stage.net.data_address(1).expect("it lives");
        for to in [command, data] {
            let pings = count_pings(&stage);
            stage.net.inject_error(from, to, None, quote);
            stage.run(millis(100));
            assert_eq!(pings.borrow().len(), 1, "one question, and one answer");
            assert_eq!(stage.down(0), None);
        }
        stage.exchange(3);
    });
}

#[test]
fn a_refusal_that_nothing_follows_is_not_asked_about_for_ever() {
    let mut stage = settled(1, Terms::default());
    let said = stage.record(0, 1);
    stage.at(0).to_send.push_back(100);
    stage.run(millis(10));
    let quote = Quote::read(&said.borrow()[0].1);
    let pings = count_pings(&stage);
    stage.net.set_cut(0, 1, true);
    let (from, to) = (super::sessions::address(0), super::sessions::address(1));
    stage.net.inject_error(from, to, None, quote);
    stage.run(2 * SECOND);
    let asked = pings.borrow().len();
    assert!((5..=20).contains(&asked), "{asked} times in 2 s");
}

#[test]
fn silent_monitored_peer_is_pinged_only_while_monitored() {
    let mut stage = settled(1, Terms::default());
    let pings = count_pings(&stage);
    monitor(&mut stage, 0, true);
    stage.run(4 * SECOND);
    let pause = ReliableConfig::default().monitored_keepalive;
    let most = (4 * SECOND).div_duration_f64(pause) as usize;
    let asked = pings.borrow_mut().drain(..).count();
    assert!((most / 2..=most).contains(&asked), "{asked} of {most}");
    assert_eq!(stage.at(0).port.suspended(), 0);
    // A peer that sends is not asked.
    for _ in 0..40 {
        stage.at(1).to_send.push_back(100);
        stage.run(pause / 2);
    }
    assert_eq!(pings.borrow().len(), 0);
    stage.run(3 * SECOND);
    pings.borrow_mut().clear();
    monitor(&mut stage, 0, false);
    assert_eq!(stage.at(0).port.suspended(), 1);
    stage.run(3 * SECOND);
    assert_eq!(pings.borrow().len(), 0);
    assert_eq!(stage.at(0).port.suspended(), 1);
    assert_eq!(stage.down(0), None);
}

#[test]
fn without_death_reports_monitoring_adds_no_pings() {
    let terms = Terms {
        answers_refused: false,
        ..Terms::default()
    };
    let mut stage = settled(1, terms);
    let pings = count_pings(&stage);
    monitor(&mut stage, 0, true);
    stage.run(millis(900));
    assert_eq!(pings.borrow().len(), 0);
}

#[test]
fn pings_of_all_monitored_peers_are_limited_together() {
    let mut stage = settled(1, Terms::default());
    for id in 0..2 {
        stage.at(id).heard.indifferent = true;
    }
    let clock = stage.world.clock();
    let links: Vec<_> = (0..800)
        .map(|_| {
            let port = &mut stage.at(0).port;
            port.connect(target(1), clock.now()).expect("there is room")
        })
        .collect();
    // Wait until the passing sizes are known, because their search sends Pings, too.
    stage.run(3 * SECOND);
    for link in &links {
        stage.at(0).port.monitor(*link, true);
    }
    stage.run(SECOND);
    let pings = count_pings(&stage);
    stage.run(SECOND);
    let asked = pings.borrow().len();
    // Without a limit there would be 20 000.
    assert!((3_000..=4_100).contains(&asked), "{asked} in a second");
    for link in links {
        stage.at(0).port.monitor(link, false);
    }
    stage.run(millis(10));
    pings.borrow_mut().clear();
    stage.run(millis(500));
    assert_eq!(pings.borrow().len(), 0);
}
