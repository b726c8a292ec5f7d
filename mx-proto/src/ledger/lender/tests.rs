//! The rules of a lender, one by one.
//!
//! ```text
//!   lending    first loans, wants, limits, who is served first, plain peers, draws, estates
//!   taking     quiet peers: who is asked, for how much, when again; epochs; what is kept
//!   lies       every fault, and what becomes of who has too many
//! ```

mod lending;
mod lies;
mod taking;

use super::*;
use crate::ledger::{Borrower, Control, cost};
use std::time::Duration;

const T0: Instant = Instant(1_000_000_000);

fn at(ms: u64) -> Instant {
    T0.after(Duration::from_millis(ms))
}

/// No limits that get in the way. First loans are 8 for the first two hundred peers.
fn plenty() -> LenderSettings {
    let settings = LenderSettings {
        total: 4000,
        initial: 8,
        minimum: 4,
        maximum: 1000,
        reserve: 20,
        lent_percent: 80,
        lend_limit: 1000,
        revoke_limit: 1000,
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

/// So many can be lent, and nobody gets any at connect.
fn scarce(lendable: u32) -> LenderSettings {
    let settings = LenderSettings {
        total: 20 + lendable,
        initial: 0,
        ..plenty()
    };
    let settings = LenderSettings {
        lent_percent: 0,
        ..settings
    };
    assert_eq!(settings.check(), Ok(()));
    settings
}

/// A lender and its peers, which are told at once.
struct Town {
    lender: Lender,
    now: Instant,
    peers: Vec<Borrower>,
}

impl Town {
    fn new(settings: LenderSettings, peers: u32) -> Self {
        let mut lender = Lender::new(settings);
        let loans: Vec<u16> = (0..peers).map(|peer| lender.open(peer, true, T0)).collect();
        // The first time that it hears begins the first epoch.
        lender.tick(T0);
        Self {
            lender,
            now: T0,
            peers: loans.into_iter().map(Borrower::open).collect(),
        }
    }

    /// The peer wants so many; all that follows from it.
    fn want(&mut self, peer: u32, credits: u16) -> Vec<(u32, Control)> {
        assert!(self.want_only(peer, credits));
        self.settle()
    }

    fn want_only(&mut self, peer: u32, credits: u16) -> bool {
        let free = u32::from(self.peers[peer as usize].free());
        match self.peers[peer as usize].stalled(free + u32::from(credits)) {
            Some(word) => self.lender.on_control(peer, word.control, self.now),
            None => false,
        }
    }

    /// Delivers control messages both ways until there are none; those to peers.
    fn settle(&mut self) -> Vec<(u32, Control)> {
        let mut sent = Vec::new();
        while let Some((peer, word)) = self.lender.poll_control() {
            sent.push((peer, word.control));
            if let Some(answer) = self.peers[peer as usize].on_control(word) {
                assert!(self.lender.on_control(peer, answer.control, self.now));
            }
        }
        sent
    }

    /// The peer sends a message that it can pay for, and it arrives.
    fn arrive(&mut self, peer: u32, cost: u32) {
        let byte = self.peers[peer as usize].pay(cost).expect("enough");
        let arrived = self.lender.arrived(peer, byte, cost, self.now);
        assert_eq!(arrived, Arrived::Paid);
    }

    /// The host takes a message and replies.
    fn reply(&mut self, peer: u32, cost: u32) {
        self.lender.taken(peer, cost);
        let byte = self.lender.ride(peer);
        self.peers[peer as usize].on_ride(byte);
    }

    fn message(&mut self, peer: u32, cost: u32) {
        self.arrive(peer, cost);
        self.reply(peer, cost);
    }

    /// So many epochs end; all that follows from it.
    fn epochs(&mut self, count: u64) -> Vec<(u32, Control)> {
        let mut sent = Vec::new();
        for _ in 0..count {
            self.now = self.now.after(Duration::from_secs(1));
            self.lender.tick(self.now);
            sent.extend(self.settle());
        }
        sent
    }

    fn account(&self, peer: u32) -> Account {
        self.lender.account(peer).expect("open")
    }

    fn loan(&self, peer: u32) -> u16 {
        self.account(peer).loan
    }
}

fn byte(cost: u16, extra: u16) -> CreditByte {
    CreditByte {
        epoch: false,
        extra,
        count: cost.min(15) as u8,
    }
}

fn grant(home: u16, extra: u16) -> Control {
    Control::Grant { home, extra }
}
