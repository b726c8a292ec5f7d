//! Random programs of a few peers against one lender.
//!
//! ```text
//!   Peer: queue -> Borrower --- messages, Want, Return ---> Lender -> inbox -> host
//!                      ^-------- rides, Grant, Revoke ------------------------'
//!          channels keep their order and lose nothing; who moves next is chance
//! ```
//!
//! After every step: no credit is made or lost, the two ends agree but for what is under way, and
//! nobody honest has a strike. At the end everything that honest peers wanted to send has come.

mod chance;
mod identities;

use chance::{nature, settings};
use mx_proto::ledger::{
    Arrived, Borrower, CONTROL_MAX, Control, ControlWord, CreditByte, Fault, Lender, LenderSettings,
};
use mx_proto::{Instant, MatchBits};
use mx_sim::{Rng, seeds};
use std::collections::VecDeque;

/// From a peer to the lender.
#[derive(Clone, Copy, Debug)]
enum Up {
    Message {
        byte: CreditByte,
        offer: u32,
        cost: u32,
    },
    Control(ControlWord),
}

/// From the lender to a peer.
#[derive(Clone, Copy, Debug)]
enum Down {
    Ride(CreditByte),
    Control(ControlWord),
}

/// What a peer is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nature {
    Honest,
    /// Says and sends anything.
    Liar,
    /// Never answers a Revoke.
    Deaf,
    /// Keeps what it has.
    Miser,
    /// Knows no credits.
    Plain,
}

#[derive(Debug)]
struct Peer {
    nature: Nature,
    borrower: Borrower,
    /// Costs of messages that wait.
    queue: VecDeque<u32>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// The host owes it so many replies.
    replies: u32,
    open: bool,
    failed: Option<Fault>,
}

/// A message that is here.
#[derive(Clone, Copy, Debug)]
struct Here {
    peer: usize,
    cost: u32,
    /// It was offered: so many credits are needed to pull it, or were drawn.
    offer: u32,
    pulled: bool,
}

struct Program {
    rng: Rng,
    settings: LenderSettings,
    lender: Lender,
    peers: Vec<Peer>,
    inbox: VecDeque<Here>,
    now: Instant,
    /// The largest cost of a message.
    largest: u32,
    taken: u64,
    sent: u64,
}

impl Program {
    fn new(seed: u64, liars: bool) -> Self {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        assert_eq!(settings.check(), Ok(()));
        let count = rng.within(1..=12);
        let peers = (0..count)
            .map(|_| Peer::new(nature(&mut rng, liars)))
            .collect();
        Self {
            largest: settings.reserve,
            lender: Lender::new(settings),
            settings,
            peers,
            inbox: VecDeque::new(),
            now: Instant(1),
            taken: 0,
            sent: 0,
            rng,
        }
    }

    fn id(peer: usize) -> u32 {
        // Not all from zero on.
        3 * peer as u32 + 1
    }

    fn step(&mut self) {
        let peer = self.rng.index(self.peers.len());
        match self.rng.below(100) {
            0..12 => self.write(peer),
            12..35 => self.send(peer),
            35..55 => self.deliver_up(peer),
            55..70 => self.deliver_down(peer),
            70..82 => _ = self.take(),
            82..92 => self.reply(peer),
            92..97 => self.poll(),
            97 if self.rng.chance(0.5) => self.pass(),
            97 => self.call_off(peer),
            98 => self.come_or_go(peer),
            _ => self.lie(peer),
        }
        self.check();
    }

    /// A new message waits to be sent.
    fn write(&mut self, peer: usize) {
        let costs = [1, 1, 1, 2, 5, 20, self.largest];
        let cost = self.rng.pick(&costs).min(self.largest);
        let peer = &mut self.peers[peer];
        if peer.queue.len() < 50 && peer.nature != Nature::Liar {
            peer.queue.push_back(cost);
        }
    }

    /// The first message that waits goes, if it may.
    fn send(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        let Some(&cost) = peer.queue.front() else {
            return;
        };
        if !peer.open || peer.failed.is_some() {
            return;
        }
        let message = match peer.borrower.pay(cost) {
            Some(byte) => Some(Up::Message {
                byte,
                offer: 0,
                cost,
            }),
            None => peer.borrower.pay(1).map(|byte| Up::Message {
                byte,
                offer: cost,
                cost: 1,
            }),
        };
        match message {
            Some(message) => {
                peer.queue.pop_front();
                peer.up.push_back(message);
                self.sent += 1;
            }
            None => {
                let waiting = peer.queue.iter().sum();
                let want = peer.borrower.stalled(waiting);
                peer.up.extend(want.map(Up::Control));
            }
        }
    }

    /// Messages that are queued below, one in each direction, are cancelled before they go.
    fn call_off(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        let messages = |up: &Up| matches!(up, Up::Message { .. });
        let from = self.rng.index(peer.up.len());
        if let Some(at) = peer.up.iter().skip(from).position(messages)
            && let Some(Up::Message { cost, .. }) = peer.up.remove(from + at)
        {
            peer.borrower.refund(cost);
        }
        let rides = |down: &Down| matches!(down, Down::Ride(_));
        let from = self.rng.index(peer.down.len());
        if let Some(ride) = peer.down.iter().skip(from).position(rides)
            && let Some(Down::Ride(byte)) = peer.down.remove(from + ride)
        {
            self.lender.unride(Self::id(at), byte);
            peer.replies += 1;
        }
    }

    fn deliver_up(&mut self, at: usize) {
        let id = Self::id(at);
        let Some(&next) = self.peers[at].up.front() else {
            return;
        };
        match next {
            Up::Message { byte, offer, cost } => {
                match self.lender.arrived(id, byte, cost, self.now) {
                    Arrived::Paid => self.inbox.push_back(Here {
                        peer: at,
                        cost,
                        offer,
                        pulled: false,
                    }),
                    Arrived::Hold => {
                        assert_eq!(self.peers[at].nature, Nature::Plain);
                        return;
                    }
                    Arrived::Unpaid | Arrived::Fail => {
                        assert_eq!(self.peers[at].nature, Nature::Liar, "{next:?}");
                    }
                }
            }
            Up::Control(word) => {
                let honest = self.lender.on_control(id, word.control, self.now);
                let nature = self.peers[at].nature;
                assert!(honest || nature != Nature::Honest, "{word:?}");
            }
        }
        self.peers[at].up.pop_front();
    }

    fn deliver_down(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        match peer.down.pop_front() {
            Some(Down::Ride(byte)) => {
                let before = peer.borrower.free();
                let more = peer.borrower.on_ride(byte);
                assert_eq!(more, peer.borrower.free() > before);
            }
            Some(Down::Control(word)) => {
                let revoked = matches!(word.control, Control::Revoke(_));
                match peer.nature {
                    Nature::Deaf if revoked => {}
                    Nature::Miser if revoked => peer.up.push_back(returning(0)),
                    _ => {
                        let answer = peer.borrower.on_control(word);
                        assert_eq!(answer.is_some(), revoked);
                        peer.up.extend(answer.map(Up::Control));
                    }
                }
            }
            None => {}
        }
        if peer.nature == Nature::Honest {
            assert_eq!(peer.borrower.lies(), 0);
        }
    }

    /// The host takes the first message. An offered one has to be pulled before.
    fn take(&mut self) -> bool {
        let Some(first) = self.inbox.front_mut() else {
            return false;
        };
        if first.offer > 0 && !first.pulled {
            // Nothing else is drawn: this is the first message, and plain peers are behind it.
            first.pulled = self.lender.draw(first.offer);
            if !first.pulled {
                // Others that are here hold the bank: the host takes one of those.
                return self.take_another();
            }
        }
        let here = self.inbox.pop_front().expect("looked at");
        self.finish(here);
        true
    }

    fn take_another(&mut self) -> bool {
        let ready = |here: &Here| here.offer == 0 || here.pulled;
        let Some(at) = self.inbox.iter().position(ready) else {
            return false;
        };
        let here = self.inbox.remove(at).expect("found");
        self.finish(here);
        true
    }

    fn finish(&mut self, here: Here) {
        self.lender.taken(Self::id(here.peer), here.cost);
        if here.offer > 0 {
            self.lender.undraw(here.offer);
        }
        self.taken += 1;
        let peer = &mut self.peers[here.peer];
        peer.replies += u32::from(peer.open);
    }

    fn reply(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if peer.open && peer.replies > 0 {
            peer.replies -= 1;
            peer.down
                .push_back(Down::Ride(self.lender.ride(Self::id(at))));
        }
    }

    fn poll(&mut self) {
        while let Some((id, word)) = self.lender.poll_control() {
            let at = id as usize / 3;
            assert!(self.peers[at].open);
            self.peers[at].down.push_back(Down::Control(word));
        }
        while let Some((id, fault)) = self.lender.poll_fault() {
            let at = id as usize / 3;
            let nature = self.peers[at].nature;
            let expected = match fault {
                Fault::NoAnswer => nature == Nature::Deaf || nature == Nature::Liar,
                Fault::Hoards => nature == Nature::Miser || nature == Nature::Liar,
                _ => nature == Nature::Liar,
            };
            assert!(expected, "{nature:?} failed: {fault}");
            self.shut(at);
            self.peers[at].failed = Some(fault);
        }
    }

    fn pass(&mut self) {
        // Answers in time take less than the 10 s of the settings: a step is 10 ms at most.
        let span = self.rng.below(10_000_000);
        self.now = Instant(self.now.0 + span);
        if self.rng.chance(0.5) {
            self.lender.tick(self.now);
        }
    }

    fn come_or_go(&mut self, at: usize) {
        if self.peers[at].failed.is_some() {
            return;
        }
        if self.peers[at].open && self.rng.chance(0.2) {
            self.shut(at);
        } else if !self.peers[at].open {
            self.enter(at);
        }
    }

    fn enter(&mut self, at: usize) {
        let knows = self.peers[at].nature != Nature::Plain;
        let loan = self.lender.open(Self::id(at), knows, self.now);
        let peer = &mut self.peers[at];
        peer.open = true;
        peer.borrower = if knows {
            Borrower::open(loan)
        } else {
            Borrower::default()
        };
    }

    /// The peer is gone, with what was under way. What is here stays, but for offers: they cannot be
    /// pulled any more.
    fn shut(&mut self, at: usize) {
        self.lender.close(Self::id(at));
        let lost = |here: &Here| here.peer == at && here.offer > 0 && !here.pulled;
        for _ in self.inbox.iter().filter(|here| lost(here)) {
            self.lender.taken(Self::id(at), 1);
        }
        self.inbox.retain(|here| !lost(here));
        let peer = &mut self.peers[at];
        peer.open = false;
        peer.up.clear();
        peer.down.clear();
        peer.replies = 0;
    }

    fn lie(&mut self, at: usize) {
        let peer = &mut self.peers[at];
        if peer.nature != Nature::Liar || !peer.open {
            return;
        }
        let any = self.rng.bits();
        let few = self.rng.below(40) as u16;
        let cost = self.rng.pick(&[1, few.into(), 70_000, u32::MAX]);
        peer.up.push_back(match self.rng.below(8) {
            0 => returning(few),
            1 => returning(CONTROL_MAX),
            2 => Up::Control(ControlWord {
                control: Control::Want(self.rng.pick(&[few, 1, CONTROL_MAX])),
                epoch: true,
            }),
            3 => Up::Control(ControlWord {
                control: Control::Grant {
                    home: few,
                    extra: few,
                },
                epoch: false,
            }),
            4 => Up::Message {
                byte: CreditByte::of(MatchBits(any)),
                offer: 0,
                cost: 1,
            },
            _ => Up::Message {
                byte: CreditByte::of(MatchBits(any)),
                offer: 0,
                cost,
            },
        });
    }

    /// Nobody writes, lies or goes any more; everything else happens until nothing does.
    fn settle(&mut self) {
        for at in 0..self.peers.len() {
            if !self.peers[at].open && self.peers[at].failed.is_none() {
                self.enter(at);
            }
        }
        // Every liar may be forgiven, one after the other.
        let lies = self.peers.len() as u32 * u32::from(self.settings.strikes + 2);
        let patience = self.settings.revoke_timeout * lies;
        let end = self.now.after(patience);
        let mut rounds = 0;
        loop {
            let mut busy = false;
            for at in 0..self.peers.len() {
                let before = (self.sent, self.taken);
                self.send(at);
                while !self.peers[at].up.is_empty() {
                    let left = self.peers[at].up.len();
                    self.deliver_up(at);
                    if self.peers[at].up.len() == left {
                        break;
                    }
                    busy = true;
                }
                while self.take() {}
                while self.peers[at].replies > 0 {
                    self.reply(at);
                }
                self.poll();
                while !self.peers[at].down.is_empty() {
                    self.deliver_down(at);
                    busy = true;
                }
                busy |= before != (self.sent, self.taken);
                self.check();
            }
            if busy {
                // Every round brings somebody's message, or an answer, nearer to its end.
                rounds += 1;
                assert!(rounds < 10_000, "{:?} {:?}", self.lender, self.peers);
                continue;
            }
            let waits = |peer: &Peer| peer.open && (!peer.queue.is_empty() || !peer.up.is_empty());
            let Some(deadline) = self
                .lender
                .deadline()
                .filter(|_| self.peers.iter().any(waits))
            else {
                break;
            };
            // Somebody waits for an epoch or an answer: there is a time for that.
            self.now = self.now.max(deadline);
            self.lender.tick(self.now);
            self.poll();
            assert!(self.now < end, "{:?}", self.lender);
        }
        for (at, peer) in self.peers.iter().enumerate() {
            if peer.failed.is_none() {
                assert!(
                    peer.queue.is_empty() && peer.up.is_empty(),
                    "{at} waits: {peer:?}"
                );
            }
        }
        let stats = self.lender.stats();
        assert_eq!((stats.drawn, stats.estates, self.inbox.len()), (0, 0, 0));
    }
}

impl Peer {
    fn new(nature: Nature) -> Self {
        Self {
            nature,
            borrower: Borrower::default(),
            queue: VecDeque::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            replies: 0,
            open: false,
            failed: None,
        }
    }
}

fn returning(credits: u16) -> Up {
    Up::Control(ControlWord {
        control: Control::Return(credits),
        epoch: false,
    })
}

fn run(seed: u64, liars: bool) {
    let mut program = Program::new(seed, liars);
    for _ in 0..4000 {
        program.step();
    }
    program.settle();
    assert!(program.taken > 0 || program.sent == 0);
}

#[test]
fn honest_peers_lose_nothing_starve_never_and_are_never_struck() {
    seeds::each(150, |seed| run(seed, false));
}

#[test]
fn liars_are_failed_and_nobody_honest_notices() {
    seeds::each(150, |seed| run(seed, true));
}
