//! What holds after every step of a random program.
//!
//! ```text
//!   total           = bank + drawn + loans + estates
//!   loan + kept     = free + used at the peer + not told (due) + extra and Return under way
//!   used            = kept + owed + waiting + messages and credits home under way
//! ```
//!
//! Knows nothing of: how the program came there.

use super::{Down, Nature, Peer, Program, Up};
use mx_proto::ledger::{Account, Control};

impl Program {
    /// The identities that hold after every step.
    pub(super) fn check(&self) {
        let stats = self.lender.stats();
        assert_eq!(
            stats.bank + stats.drawn + stats.lent + stats.estates,
            stats.total
        );
        assert!(stats.bank + stats.drawn + stats.estates >= self.settings.reserve);
        let (mut loans, mut estates, mut drawn) = (0, 0, 0);
        for at in 0..self.peers.len() {
            estates += self.lender.estate(Self::id(at));
            let Some(account) = self.lender.account(Self::id(at)) else {
                continue;
            };
            loans += u32::from(account.loan);
            if !account.knows {
                drawn += u32::from(account.waiting);
            }
            self.check_peer(&self.peers[at], &account);
        }
        let pulled = self.inbox.iter().filter(|here| here.pulled);
        drawn += pulled.map(|here| here.offer).sum::<u32>();
        assert_eq!(
            (loans, estates, drawn),
            (stats.lent, stats.estates, stats.drawn)
        );
    }

    /// Both ends of one loan agree, but for what is under way.
    fn check_peer(&self, peer: &Peer, account: &Account) {
        if !peer.open || peer.nature != Nature::Honest {
            return;
        }
        assert_eq!(account.strikes, 0);
        assert!(account.loan <= self.settings.maximum);
        let (mut messages, mut returns) = (0, 0);
        for up in &peer.up {
            match up {
                Up::Message { cost, .. } => messages += cost,
                Up::Control(word) => {
                    if let Control::Return(back) = word.control {
                        returns += u32::from(back);
                    }
                }
            }
        }
        let (mut home, mut extra, mut revokes) = (0, 0, 0);
        for down in &peer.down {
            match down {
                Down::Ride(byte) => {
                    home += u32::from(byte.count);
                    extra += u32::from(byte.extra);
                }
                Down::Control(word) => match word.control {
                    Control::Grant { home: h, extra: e } => {
                        home += u32::from(h);
                        extra += u32::from(e);
                    }
                    Control::Revoke(_) => revokes += 1,
                    other => panic!("{other:?}"),
                },
            }
        }
        assert!(revokes <= 1);
        let theirs = &peer.borrower;
        let of = |number: u16| u32::from(number);
        assert_eq!(
            of(account.loan) + of(account.kept),
            of(theirs.free()) + of(theirs.used()) + of(account.due) + extra + returns,
            "{peer:?} {account:?}"
        );
        assert_eq!(
            of(theirs.used()),
            of(account.kept) + of(account.owed) + of(account.waiting) + messages + home,
            "{peer:?} {account:?}"
        );
    }
}
