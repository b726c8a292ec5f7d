//! Datagrams of strangers: nonsense, damaged ones with a correct checksum, true ones from another
//! address.
//!
//! No port fails, and a link is not affected by attackers that do not have its cookies.

use super::peer::target;
use super::sessions::{Stage, Tape, address, replay};
use mx_proto::reliability::{Channel, ReliableConfig};
use mx_sim::datagram::header::{FROM, HEADER, KIND, PAYLOAD, TO, altered, seal};
use mx_sim::{Rng, Terms, seeds};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Makes a datagram that resembles one of those seen on the wire.
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
                let len = (bytes.len() - HEADER) as u64;
                PAYLOAD.put(&mut bytes, len);
            }
            seal(&mut bytes);
            bytes
        }
        _ => {
            for _ in 0..rng.within(1..=4) {
                // Mostly in the header: kind, cookies, numbers, flags.
                let at = if rng.chance(0.8) {
                    KIND.at + rng.index(HEADER - KIND.at)
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

/// Makes two peers that exchange packets, and a tape of all their datagrams.
fn stage(seed: u64) -> (Stage, Tape) {
    let mut stage = Stage::with(seed, ReliableConfig::default(), Terms::default());
    let seen = Tape::default();
    stage.record_on(0, 1, &seen);
    stage.record_on(1, 0, &seen);
    stage.exchange(5);
    (stage, seen)
}

#[test]
fn the_test_knows_how_to_make_a_checksum_fit() {
    let (_, seen) = stage(1);
    for (_, bytes) in seen.borrow().iter() {
        assert_eq!(altered(bytes, &[]), *bytes);
    }
}

#[test]
fn a_link_does_not_notice_what_strangers_send_from_elsewhere() {
    seeds::each(6, |seed| {
        let (mut stage, seen) = stage(seed);
        for _ in 0..20 {
            for _ in 0..50 {
                let bytes = nonsense(&mut stage.rng, &seen.borrow());
                let (from, to) = (7 + stage.rng.below(3) as u32, stage.rng.below(2) as u32);
                stage.net.inject(address(from), address(to), &bytes);
            }
            stage.exchange(1);
        }
    });
}

#[test]
fn a_link_does_not_notice_what_knows_only_one_of_its_cookies() {
    seeds::each(6, |seed| {
        let (mut stage, seen) = stage(seed);
        for _ in 0..20 {
            for _ in 0..20 {
                let at = stage.rng.index(seen.borrow().len());
                // Either the receiver's or the sender's cookie is wrong.
                let wrong = (stage.rng.pick(&[TO, FROM]), stage.rng.bits());
                let bytes = altered(&seen.borrow()[at].1, &[wrong]);
                for to in 0..2 {
                    let channel = stage.rng.pick(&[Channel::Command, Channel::Data]);
                    replay(&stage.net, 1 - to, to, (channel, bytes.clone()));
                }
            }
            stage.exchange(1);
        }
        let old: u64 = [0, 1]
            .map(|id| stage.at(id).port.stats().old_session)
            .iter()
            .sum();
        assert!(old > 100, "only {old} were recognised as foreign");
    });
}

#[test]
fn forged_datagrams_with_cookies_harm_only_their_link() {
    seeds::each(40, |seed| {
        let (mut stage, seen) = stage(seed);
        for _ in 0..300 {
            let bytes = nonsense(&mut stage.rng, &seen.borrow());
            let to = stage.rng.index(2);
            let channel = stage.rng.pick(&[Channel::Command, Channel::Data]);
            replay(&stage.net, 1 - to, to, (channel, bytes));
            // The link's own packets may be damaged now, and the peers need not accept them.
            for id in 0..2 {
                stage.at(id).heard.indifferent = true;
            }
            stage.run(Duration::from_micros(200));
        }
        (0..2).for_each(|id| stage.at(id).hang_up());
        stage.run(MINUTE);
        stage.at(0).call(target(1));
        stage.exchange(5);
    });
}
