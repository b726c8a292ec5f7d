//! Tests of the rules of a lender and all its remotes, one by one, and of random programs.
//!
//! ```text
//!   lending    first credits, requests, order of service, slots, draws, tombstones, shares of sources
//!   taking     Revokes: to which remotes, for how much, when again; epochs; narrowing
//!   model      many lenders and borrowers, honest and hostile, any order of events
//! ```

mod lending;
mod model;
mod taking;

use super::*;

/// Settings with 1000 credits, of which 200 are never lent; credit limits up to 200, and no credits at connect.
fn scarce() -> Settings {
    Settings {
        bytes: 1000 * CREDIT,
        // A reserve of 200 credits.
        largest: 102_080,
        first: 0,
        source_share: 50,
    }
}

struct Table(Vec<(Lender, Source)>);

impl Accounts for Table {
    fn account(&mut self, remote: u32) -> Option<(&mut Lender, Source)> {
        let (account, source) = self.0.get_mut(remote as usize)?;
        Some((account, *source))
    }
}

/// A lender and its remotes, which receive every update at once.
struct Town {
    flow: Flow,
    all: Table,
    remotes: Vec<Borrower>,
}

impl Town {
    fn new(settings: &Settings, remotes: u32) -> Self {
        let mut town = Self {
            flow: Flow::new(settings),
            all: Table(Vec::new()),
            remotes: Vec::new(),
        };
        for _ in 0..remotes {
            town.open(Source::TRUSTED);
        }
        town
    }

    fn open(&mut self, source: Source) -> u32 {
        let remote = self.remotes.len() as u32;
        let credit_limit = self.flow.first_credits(source);
        self.all.0.push((Lender::default(), source));
        assert!(self.flow.open(&mut self.all, remote, credit_limit));
        self.remotes.push(Borrower::open(credit_limit));
        remote
    }

    fn account(&self, remote: u32) -> &Lender {
        &self.all.0[remote as usize].0
    }

    fn credit_limit(&self, remote: u32) -> u32 {
        self.account(remote).credit_limit()
    }

    fn free(&self, remote: u32) -> u32 {
        self.remotes[remote as usize].free()
    }

    /// Sends credit fields from the lender to the remote.
    fn tell(&mut self, remote: u32) -> CreditFields {
        let (account, _) = &mut self.all.0[remote as usize];
        let mut ours = Borrower::default();
        let fields = self.flow.credit_fields(account, &ours, 0);
        Flow::on_told(account, &mut ours, &fields);
        self.remotes[remote as usize].on_credit_fields(&fields);
        fields
    }

    /// Has a remote send a message that it can pay for, and that arrives.
    fn send(&mut self, remote: u32, cost: u32) -> Payment {
        let borrower = &mut self.remotes[remote as usize];
        let paid = borrower.payment(cost, Lane::Unexpected).expect("enough");
        borrower.pay(paid);
        self.arrive(remote, paid).expect("honest");
        paid
    }

    fn arrive(&mut self, remote: u32, paid: Payment) -> Result<(), Violation> {
        let account = &mut self.all.0[remote as usize].0;
        if self.flow.arrived(account, paid)? {
            self.flow.note_use(&mut self.all, remote);
        }
        Ok(())
    }

    fn take(&mut self, remote: u32, paid: Payment) -> bool {
        let (account, source) = &mut self.all.0[remote as usize];
        self.flow.taken(account, *source, paid)
    }

    /// Has a message sent, taken and answered.
    fn message(&mut self, remote: u32, cost: u32) {
        let paid = self.send(remote, cost);
        self.take(remote, paid);
        self.tell(remote);
    }

    /// Has a remote request credits that it lacks; the lender does not act yet.
    fn miss(&mut self, remote: u32, credits: u32) {
        let borrower = &mut self.remotes[remote as usize];
        let wanted = borrower.wanted(borrower.free() + credits);
        borrower.on_said(wanted);
        assert!(wanted > 0);
        self.flow.wants(&mut self.all, remote, wanted);
    }

    /// Has a remote request credits that it lacks. Returns all messages that follow.
    fn want(&mut self, remote: u32, credits: u32) -> Vec<(u32, CreditMessage)> {
        self.miss(remote, credits);
        self.run_until_idle()
    }

    /// Sends all messages that are due and has remotes answer them.
    fn run_until_idle(&mut self) -> Vec<(u32, CreditMessage)> {
        let mut said = Vec::new();
        while let Some((remote, say)) = self.flow.poll(&mut self.all) {
            said.push((remote, say));
            self.tell(remote);
            if let CreditMessage::Revoke(credits) = say {
                let back = self.remotes[remote as usize].give_back(credits, 0);
                let answer = self.flow.returned(&mut self.all, remote, back);
                assert_eq!(answer, Ok(()));
            }
        }
        said
    }

    /// Lets epochs pass in which nothing happens.
    fn epochs(&mut self, count: u32) {
        for _ in 0..count {
            self.flow.end_epoch();
        }
    }

    /// Returns the Revokes in `said`: remotes and credits.
    fn revoked(said: &[(u32, CreditMessage)]) -> Vec<(u32, u32)> {
        let revoke = |(remote, say): &(u32, CreditMessage)| match say {
            CreditMessage::Revoke(credits) => Some((*remote, *credits)),
            CreditMessage::Credit => None,
        };
        said.iter().filter_map(revoke).collect()
    }
}

#[test]
fn a_remote_costs_56_bytes() {
    assert_eq!(size_of::<Lender>() + size_of::<Borrower>(), 56);
}
