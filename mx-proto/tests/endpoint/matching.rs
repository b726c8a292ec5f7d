//! The matching engine against the naive model, over random sequences.
//!
//! ```text
//!   random op --+--> Endpoint b (a sends to it) --> completed, posted, undecided, probed
//!               `--> Naive -----------------------> the same
//! ```
//!
//! A works only when everything is decided and received, so no offer's bytes come before, and each can
//! still be withdrawn. `SIM_SEED=n` repeats one sequence, `SIM_SEEDS=n` makes so many.

use super::naive::{DEFER, FINISH, Message, Naive, Receive};
use super::pair::{Acts, Pair};
use super::{bits, connected};
use mx_proto::{
    Arrival, Completion, Decision, Deferred, Kind, MatchMask, Posted, Received, RemoteId,
    RequestId, SendMode, Status, Verdict,
};
use mx_sim::{CallOff, Cancelled, Rng, seeds};
use std::collections::BTreeMap;

/// Does with a message what its bits say.
fn by_bits(it: &Arrival) -> Verdict {
    match it.bits.0 {
        bits if bits & DEFER != 0 => Verdict::Defer,
        bits if bits & FINISH != 0 => Verdict::Finished,
        _ => Verdict::Continue,
    }
}

/// A packet in flight to b: the next poll of b brings it.
#[derive(Clone, Copy, Debug)]
enum Packet {
    Message(Message),
    Withdraw(u32),
}

struct Run {
    rng: Rng,
    pair: Pair,
    b: RemoteId,
    model: Naive,
    under_way: Vec<Packet>,
    /// Offers a has not been told the end of.
    offers: BTreeMap<u32, RequestId>,
    /// Receives that are not complete.
    receives: BTreeMap<u64, RequestId>,
    out: Option<Deferred>,
    messages: u32,
    posts: u64,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut pair = Pair::with_large_credit_limits();
        let (b, _) = connected(&mut pair);
        // Offers are shown at once, without their bytes.
        pair.b.owner_mut().memory = false;
        Self {
            rng: Rng::new(seed),
            pair,
            b,
            model: Naive::default(),
            under_way: Vec::new(),
            offers: BTreeMap::new(),
            receives: BTreeMap::new(),
            out: None,
            messages: 0,
            posts: 0,
            log: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..24 => self.send(),
            24..50 => self.post(),
            50..60 => self.poll(),
            60..70 => self.withdraw(),
            70..78 => self.cancel(),
            78..84 => self.probe(),
            84..90 => self.next(),
            90..96 => self.decide(),
            _ => self.drain(),
        }
        self.compare();
    }

    fn random_bits(&mut self) -> u64 {
        self.rng.below(4) | self.rng.below(2) << 8 | self.rng.pick(&[0, 0, DEFER, FINISH])
    }

    fn random_receive(&mut self) -> Receive {
        // More masks than an index keeps, all of them about few bits.
        let mask = match self.rng.below(4) {
            0 => u64::MAX,
            1 => 0,
            2 => self.rng.below(4) | self.rng.below(4) << 20,
            _ => !(DEFER | FINISH),
        };
        self.posts += 1;
        Receive {
            number: self.posts,
            bits: self.random_bits() & mask,
            mask,
        }
    }

    fn send(&mut self) {
        if self.under_way.len() >= LINK_ROOM {
            return self.poll();
        }
        self.messages += 1;
        let (number, tag, offer) = (self.messages, self.random_bits(), self.rng.chance(0.5));
        let mode = if offer {
            SendMode::Synchronous
        } else {
            SendMode::Standard
        };
        let data = self.pair.filled(vec![0; number as usize]);
        let posted = self
            .pair
            .a
            .send(self.b, bits(tag), data, number.into(), mode);
        if let Posted::Pending(id) = posted.expect("b is known") {
            assert!(offer, "a small message has not gone at once");
            self.offers.insert(number, id);
        }
        let message = Message {
            number,
            bits: tag,
            offer,
        };
        self.log.push(format!("{message:x?}"));
        self.under_way.push(Packet::Message(message));
    }

    fn withdraw(&mut self) {
        let at = self.rng.index(self.offers.len());
        let Some((&number, &id)) = self.offers.iter().nth(at) else {
            return;
        };
        if self.under_way.len() >= LINK_ROOM {
            return self.poll();
        }
        self.log.push(format!("withdraw {number}"));
        assert_eq!(self.pair.a.cancel(id), Cancelled::Withdrawn);
        self.offers.remove(&number);
        self.under_way.push(Packet::Withdraw(number));
    }

    /// B takes in everything that is under way, unless it is deciding about something.
    fn poll(&mut self) {
        let busy = self.pair.b_works(by_bits);
        if self.model.out.is_some() {
            assert!(!busy, "something was taken in while a message was decided");
            return;
        }
        self.log
            .push(format!("poll: {} packets", self.under_way.len()));
        for packet in self.under_way.drain(..) {
            match packet {
                Packet::Message(message) => self.model.arrive(message),
                Packet::Withdraw(number) => self.model.withdraw(number),
            }
        }
    }

    fn post(&mut self) {
        let receive = self.random_receive();
        self.post_this(receive);
    }

    fn post_this(&mut self, receive: Receive) {
        self.log.push(format!("{receive:x?}"));
        self.model.post(receive);
        let (wanted, mask) = (bits(receive.bits), MatchMask(receive.mask));
        let room = self.pair.shared(1000);
        let posted = self.pair.b.recv(wanted, mask, room, receive.number);
        match posted.expect("its bits lie within its mask") {
            Received::Complete(done) => self.completed(&[done.at_once(receive.number)]),
            Received::Pending(id) => {
                self.receives.insert(receive.number, id);
            }
        }
    }

    fn cancel(&mut self) {
        let at = self.rng.index(self.receives.len());
        let Some((&number, &id)) = self.receives.iter().nth(at) else {
            return;
        };
        let gently = self.rng.chance(0.5);
        self.log.push(format!("cancel {number}, gently: {gently}"));
        let posted = self.model.posted.len();
        self.model.posted.retain(|receive| receive.number != number);
        let unmatched = self.model.posted.len() < posted;
        if gently {
            assert_eq!(self.pair.b.cancel_unmatched(id), unmatched);
        } else {
            let outcome = if unmatched {
                Cancelled::Withdrawn
            } else {
                Cancelled::Aborted
            };
            assert_eq!(self.pair.b.cancel(id), outcome);
        }
        if unmatched || !gently {
            // The message of one that had matched is lost.
            self.model
                .matched
                .retain(|(receive, _)| receive.number != number);
            self.receives.remove(&number);
        }
    }

    fn probe(&mut self) {
        let wanted = self.random_receive();
        let found = self.pair.b.probe(bits(wanted.bits), MatchMask(wanted.mask));
        let found = found.map(|found| (found.length, found.bits.0));
        let expected = self.model.probe(wanted);
        let expected = expected.map(|message| (message.number, message.bits));
        assert_eq!(found, expected, "{wanted:x?}");
    }

    fn next(&mut self) {
        let expected = self.model.next();
        self.log.push(format!("next: {expected:x?}"));
        let next = self.pair.b.next_deferred();
        let found = next.as_ref().map(|next| Message {
            number: next.arrival.length,
            bits: next.arrival.bits.0,
            offer: next.body().is_none(),
        });
        assert_eq!(found, expected);
        if next.is_some() {
            self.out = next;
        }
    }

    fn decide(&mut self) {
        let Some(message) = self.out.take() else {
            return self.next();
        };
        let finished = self.rng.chance(0.3);
        self.log.push(format!("decide, finished: {finished}"));
        self.model.decide(finished);
        let decision = if finished {
            Decision::Finished
        } else {
            Decision::Continue
        };
        self.pair.b.decide(message, decision);
    }

    /// Everything is decided and taken in, and offers that have matched are fetched.
    fn drain(&mut self) {
        while self.pair.b.undecided() > 0 || !self.under_way.is_empty() {
            self.decide();
            self.compare();
            self.poll();
            self.compare();
        }
        self.log.push("drain".into());
        self.pair.run_with(by_bits);
        let fetched = std::mem::take(&mut self.model.matched);
        self.model.done.extend(fetched);
        while let Some(done) = self.pair.a.next_completion() {
            assert_eq!(done.kind, Kind::Send);
            self.offers.remove(&(done.context as u32));
        }
    }

    /// B has said that these receives are complete, in this order or another.
    fn completed(&mut self, found: &[Completion]) {
        for done in found {
            assert_eq!((done.kind, done.status), (Kind::Recv, Status::Success));
            self.receives.remove(&done.context);
        }
        let found = found.iter();
        let found = found.map(|done| (done.context, done.transferred, done.bits.0));
        let mut found: Vec<_> = found.collect();
        let expected = self.model.done.drain(..);
        let expected = expected.map(|(receive, got)| (receive.number, got.number, got.bits));
        let mut expected: Vec<_> = expected.collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "receives and their messages");
    }

    fn compare(&mut self) {
        let done: Vec<_> = std::iter::from_fn(|| self.pair.b.next_completion()).collect();
        self.completed(&done);
        let undecided = self.model.undecided.len() + usize::from(self.model.out.is_some());
        assert_eq!(self.pair.b.undecided(), undecided);
        assert_eq!(self.pair.b.posted_receives(), self.model.posted.len());
        let held = self.model.unexpected.iter().chain(&self.model.undecided);
        let held = held.chain(&self.model.out).filter(|message| !message.offer);
        let held: usize = held.map(|message| message.number as usize).sum();
        assert_eq!(self.pair.b.unexpected_bytes(), held);
    }

    /// Everything that lies at b is received, and then nothing is left anywhere.
    fn finish(mut self) {
        self.drain();
        self.compare();
        while !self.model.unexpected.is_empty() {
            self.posts += 1;
            let (number, bits, mask) = (self.posts, 0, 0);
            self.post_this(Receive { number, bits, mask });
            self.drain();
            self.compare();
        }
        assert!(self.offers.is_empty(), "{:?} have no end", self.offers);
        assert_eq!(
            (self.pair.a.requests(), self.pair.b.unexpected_bytes()),
            (0, 0)
        );
        assert_eq!(self.pair.b.requests(), self.receives.len());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{:#x?}", self.log.join("\n"), self.model);
        }
    }
}

#[test]
fn every_receive_gets_the_message_that_the_naive_model_gives_it() {
    seeds::each(20_000, |seed| {
        let mut run = Run::new(seed);
        for _ in 0..run.rng.within(5..=150) {
            run.step();
        }
        run.finish();
    });
}

/// Packets that may wait on the link to b so that it takes another.
const LINK_ROOM: usize = 6;
