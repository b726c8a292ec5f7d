//! Datagrams of strangers: nonsense, damaged ones with a good checksum, true ones from elsewhere.
//!
//! No port falls over, and a link that others attack without knowing its cookies does not notice.

use super::peer::{Peer, exchange, target, two};
use super::sessions::{Tape, address, replay};
use super::{ReliablePeer, reliable};
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_sim::link::Fate;
use mx_sim::{Cluster, DatagramNet, Rng, Terms, World, seeds};
use std::rc::Rc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Bytes of a datagram's header.
const HEADER: usize = 64;

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

/// Makes both checksums fit whatever the bytes say.
pub(crate) fn seal(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_first_chunk_mut::<HEADER>() else {
        return;
    };
    // Summed, as the flags say?
    if header[44] & 4 != 0 {
        header[60..].copy_from_slice(&crc32c(payload).to_le_bytes());
    }
    header[4..8].fill(0);
    let sum = crc32c(header);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Something like a datagram that was seen on the wire.
pub(crate) fn nonsense(rng: &mut Rng, seen: &[(Channel, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = seen[rng.index(seen.len())].1.clone();
    match rng.below(6) {
        0 => (0..rng.within(0..=100)).map(|_| rng.bits() as u8).collect(),
        1 => {
            bytes.truncate(rng.index(bytes.len() + 1));
            bytes
        }
        2 => {
            bytes.extend((0..rng.within(1..=500)).map(|_| rng.bits() as u8));
            if rng.chance(0.5) {
                let len = (bytes.len() - HEADER) as u16;
                bytes[46..48].copy_from_slice(&len.to_le_bytes());
            }
            seal(&mut bytes);
            bytes
        }
        _ => {
            for _ in 0..rng.within(1..=4) {
                // Mostly the header: kind, cookies, numbers, flags.
                let at = if rng.chance(0.8) {
                    3 + rng.index(HEADER - 3)
                } else {
                    rng.index(bytes.len())
                };
                bytes[at] = if rng.chance(0.5) {
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
    seen: Tape,
}

fn stage(seed: u64) -> Stage {
    let world = World::new(seed);
    seeds::watch(&world);
    let net = DatagramNet::new(&world, Terms::default());
    let config = ReliableConfig::default();
    let ports = (reliable(&net, 0, config, 1), reliable(&net, 1, config, 2));
    let seen = Tape::default();
    for (from, to) in [(0, 1), (1, 0)] {
        let tape = Rc::clone(&seen);
        let script = move |channel: Channel, bytes: &[u8]| {
            tape.borrow_mut().push((channel, bytes.to_vec()));
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
    for (_, bytes) in stage.seen.borrow().iter() {
        let mut again = bytes.clone();
        seal(&mut again);
        assert_eq!(&again, bytes);
    }
}

#[test]
fn a_link_does_not_notice_what_strangers_send_from_elsewhere() {
    seeds::each(6, |seed| {
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
    seeds::each(6, |seed| {
        let mut stage = stage(seed);
        for _ in 0..20 {
            for _ in 0..20 {
                let seen = stage.seen.borrow();
                let mut bytes = seen[stage.rng.index(seen.len())].1.clone();
                // Either the cookie of the receiver or the one of the sender is another.
                let at = stage.rng.pick(&[8, 16]);
                bytes[at..at + 8].copy_from_slice(&stage.rng.bits().to_le_bytes());
                seal(&mut bytes);
                drop(seen);
                for to in 0..2 {
                    let channel = stage.rng.pick(&[Channel::Command, Channel::Data]);
                    replay(&stage.net, 1 - to, to, (channel, bytes.clone()));
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
    seeds::each(40, |seed| {
        let mut stage = stage(seed);
        for _ in 0..300 {
            let bytes = nonsense(&mut stage.rng, &stage.seen.borrow());
            let to = stage.rng.index(2);
            let channel = stage.rng.pick(&[Channel::Command, Channel::Data]);
            replay(&stage.net, 1 - to, to, (channel, bytes));
            // The link's own packets may be damaged now; the peers need not accept them.
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
