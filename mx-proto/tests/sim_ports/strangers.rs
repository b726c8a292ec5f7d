//! Datagrams of strangers: nonsense, damaged ones with a good checksum, true ones from elsewhere.
//!
//! Nobody falls over, and a link that others attack without knowing its cookies does not notice.

use super::peer::{NIC, Peer, exchange, target, two};
use super::{ReliablePeer, reliable};
use mx_proto::EndpointId;
use mx_proto::former::ReliableConfig;
use mx_sim::datagrams::SimAddress;
use mx_sim::link::Fate;
use mx_sim::{Cluster, DatagramNet, Faults, Rng, World, seeds};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn address(node: u32) -> SimAddress {
    (NIC, EndpointId(node))
}

/// CRC-32C, bit by bit: not the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            crc >> 1 ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// Makes the checksum fit whatever the bytes say.
fn seal(bytes: &mut [u8]) {
    if bytes.len() >= 8 {
        bytes[4..8].fill(0);
        let sum = crc32c(bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Something like a datagram that was seen on the wire.
fn nonsense(rng: &mut Rng, seen: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seen[rng.index(seen.len())].clone();
    match rng.below(6) {
        0 => (0..rng.within(0..=100)).map(|_| rng.bits() as u8).collect(),
        1 => {
            bytes.truncate(rng.index(bytes.len() + 1));
            bytes
        }
        2 => {
            bytes.extend((0..rng.within(1..=500)).map(|_| rng.bits() as u8));
            seal(&mut bytes);
            bytes
        }
        _ => {
            for _ in 0..rng.within(1..=4) {
                // Mostly the header: kind, cookies, numbers, flags.
                let at = if rng.chance(0.8) {
                    3 + rng.index(41)
                } else {
                    rng.index(bytes.len())
                };
                bytes[at.min(43)] = if rng.chance(0.5) {
                    rng.bits() as u8
                } else {
                    rng.pick(&[0, 1, 255])
                };
            }
            seal(&mut bytes);
            bytes
        }
    }
}

struct Stage {
    net: DatagramNet,
    rng: Rng,
    cluster: Cluster<Peer<ReliablePeer>>,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
}

fn stage(seed: u64) -> Stage {
    let world = World::new(seed);
    seeds::watch(&world);
    let net = DatagramNet::new(&world, 1472, Faults::default());
    let config = ReliableConfig::default();
    let ports = (reliable(&net, 0, config, 1), reliable(&net, 1, config, 2));
    let seen = Rc::new(RefCell::new(Vec::new()));
    for (from, to) in [(0, 1), (1, 0)] {
        let tape = Rc::clone(&seen);
        let script = move |bytes: &[u8]| {
            tape.borrow_mut().push(bytes.to_vec());
            Fate::Chance
        };
        net.set_script(from, to, Some(Box::new(script)));
    }
    let mut stage = Stage {
        net,
        rng: Rng::new(seed),
        cluster: two(&world, ports),
        seen,
    };
    exchange(&mut stage.cluster, &mut stage.rng, 5, MINUTE);
    stage
}

#[test]
fn the_test_knows_how_to_make_a_checksum_fit() {
    let stage = stage(1);
    for bytes in stage.seen.borrow().iter() {
        let mut again = bytes.clone();
        seal(&mut again);
        assert_eq!(&again, bytes);
    }
}

#[test]
fn a_link_does_not_notice_what_strangers_send_from_elsewhere() {
    seeds::each(20, |seed| {
        let mut stage = stage(seed);
        for _ in 0..20 {
            for _ in 0..50 {
                let bytes = nonsense(&mut stage.rng, &stage.seen.borrow());
                let (from, to) = (7 + stage.rng.below(3) as u32, stage.rng.below(2) as u32);
                stage.net.inject(address(from), address(to), bytes);
            }
            exchange(&mut stage.cluster, &mut stage.rng, 1, MINUTE);
        }
    });
}

#[test]
fn a_link_does_not_notice_what_knows_only_one_of_its_cookies() {
    seeds::each(20, |seed| {
        let mut stage = stage(seed);
        for _ in 0..20 {
            for _ in 0..20 {
                let seen = stage.seen.borrow();
                let mut bytes = seen[stage.rng.index(seen.len())].clone();
                // Either the cookie of the receiver or the one of the sender is another.
                let at = stage.rng.pick(&[8, 16]);
                bytes[at..at + 8].copy_from_slice(&stage.rng.bits().to_le_bytes());
                seal(&mut bytes);
                drop(seen);
                for to in 0..2 {
                    let forged = bytes.clone();
                    stage.net.inject(address(1 - to), address(to), forged);
                }
            }
            exchange(&mut stage.cluster, &mut stage.rng, 1, MINUTE);
        }
        let old: u64 = (0..2)
            .map(|id| {
                stage
                    .cluster
                    .node(id)
                    .expect("it lives")
                    .port
                    .stats()
                    .old_session
            })
            .sum();
        assert!(old > 100, "only {old} were recognised as foreign");
    });
}

#[test]
fn forged_datagrams_that_know_the_cookies_harm_their_own_link_at_most() {
    seeds::each(100, |seed| {
        let mut stage = stage(seed);
        for _ in 0..300 {
            let bytes = nonsense(&mut stage.rng, &stage.seen.borrow());
            let to = stage.rng.below(2) as u32;
            stage.net.inject(address(1 - to), address(to), bytes);
            // The link's own packets may be damaged now; nobody is asked to accept them.
            for id in 0..2 {
                stage.cluster.node(id).expect("it lives").heard.indifferent = true;
                stage.cluster.poke(id);
            }
            let until = stage
                .cluster
                .world()
                .now()
                .after(Duration::from_micros(200));
            assert!(stage.cluster.run_until(until, 10_000));
        }
        for id in 0..2 {
            stage.cluster.node(id).expect("it lives").hang_up();
        }
        let until = stage.cluster.world().now().after(MINUTE);
        assert!(stage.cluster.run_until(until, 1_000_000));
        stage.cluster.node(0).expect("it lives").call(target(1));
        exchange(&mut stage.cluster, &mut stage.rng, 5, MINUTE);
    });
}
