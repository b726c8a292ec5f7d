//! The rules of a lender, one by one.

use super::*;
use crate::ledger::{Borrower, Control, cost};
use std::time::Duration;

const T0: Instant = Instant(1_000_000_000);

fn at(ms: u64) -> Instant {
    T0.after(Duration::from_millis(ms))
}

/// Few credits, and no limits that get in the way.
fn small() -> LenderSettings {
    let settings = LenderSettings {
        total: 2000,
        initial: 8,
        minimum: 4,
        maximum: 64,
        reserve: 20,
        lent_percent: 80,
        lend_limit: 64,
        revoke_limit: 64,
        epoch_messages: 1_000_000,
        epoch_time: Duration::from_secs(1),
        low_percent: 0,
        scavenge: 4,
        revoke_timeout: Duration::from_secs(10),
        strikes: 3,
        fixed: 6,
    };
    assert_eq!(settings.check(), Ok(()));
    settings
}

fn byte(cost: u16, extra: u16) -> CreditByte {
    CreditByte {
        epoch: false,
        extra,
        count: cost.min(15) as u8,
    }
}

/// The peer sends a message of so many credits, and the host takes it.
fn message(lender: &mut Lender, peer: u32, cost: u16, now: Instant) {
    assert_eq!(
        lender.arrived(peer, byte(cost, 0), cost.into(), now),
        Arrived::Paid
    );
    lender.taken(peer, cost.into());
}

fn account(lender: &Lender, peer: u32) -> Account {
    lender.account(peer).expect("open")
}

fn controls(lender: &mut Lender) -> Vec<(u32, Control)> {
    std::iter::from_fn(|| lender.poll_control())
        .map(|(peer, word)| (peer, word.control))
        .collect()
}

#[test]
fn what_a_peer_uses_comes_home_with_the_reply() {
    let mut lender = Lender::new(small());
    let mut peer = Borrower::open(lender.open(1, true, T0));
    assert_eq!(peer.free(), 8);
    for len in [0, 256, 1000] {
        let byte = peer.pay(cost(len)).expect("enough");
        assert_eq!(lender.arrived(1, byte, cost(len), T0), Arrived::Paid);
    }
    assert_eq!((peer.free(), account(&lender, 1).waiting), (2, 6));
    for len in [0, 256, 1000] {
        lender.taken(1, cost(len));
        let byte = lender.ride(1);
        assert_eq!(u32::from(byte.count), cost(len));
        assert!(peer.on_ride(byte));
    }
    assert_eq!((peer.free(), account(&lender, 1).free()), (8, 8));
    assert_eq!(controls(&mut lender), []);
    assert_eq!(lender.deadline(), None);
}
