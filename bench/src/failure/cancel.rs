//! Random cancels: how long until the completion can be had.
//!
//! ```text
//!   a round:  up to 32 operations of random classes and sizes, some of them with a peer that was
//!             asked to send or to receive
//!                |  a random while
//!                v
//!             the peer: goes on | SIGSTOP | kill -9
//!                |
//!                v
//!             what is still under way is called off, in random order:
//!             cancel ... testcontext(0) has reported it         <- the time that is measured
//! ```
//!
//! Every operation ends exactly once, or the run fails. Those that end before they are called off
//! are not counted.
//!
//! Owns: the rounds.

use super::child::Counterpart;
use super::client::{Client, Ended, Message, OpKey, TIMEOUT};
use super::dice::Dice;
use super::orders::{Order, Work};
use super::table::{self, CancelRow, Figures};
use crate::args::{Args, Peer, Port};
use bmi_host::method::Address;
use bmi_host::method::Verb;
use std::time::{Duration, Instant};

/// Operations of one round, at most.
const AT_ONCE: usize = 32;
/// Sizes of messages that are offered and pulled on every port.
const SMALLEST: usize = 64 << 10;
const LARGEST: usize = 2 << 20;
/// Longest that a round is left alone before something is called off.
const WHILE_US: usize = 3000;
/// Tag of unexpected messages the counterpart throws away.
const NOISE_TAG: i32 = 2;
/// Rounds of posts to a peer that has just died.
const AFTERWARDS: usize = 4;

/// The kind of operation that is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// A receive without a message.
    Receive,
    /// A receive whose message was asked for; nothing of it has arrived.
    Awaited,
    /// A receive that has begun to be filled.
    Filling,
    /// A send to a peer that has not been connected to yet.
    Queued,
    /// A large send without a receive.
    Offered,
    /// A large send whose receiver was asked to take it.
    Pulled,
    /// A large unexpected send.
    Unexpected,
    /// Any of these, except the last and queued ones, as a list.
    List,
}

impl Class {
    pub(crate) const ALL: [Self; 8] = [
        Self::Receive,
        Self::Awaited,
        Self::Filling,
        Self::Queued,
        Self::Offered,
        Self::Pulled,
        Self::Unexpected,
        Self::List,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive, unmatched",
            Self::Awaited => "receive, asked for",
            Self::Filling => "receive being filled",
            Self::Queued => "send, queued",
            Self::Offered => "send, offered",
            Self::Pulled => "send being pulled",
            Self::Unexpected => "unexpected, large",
            Self::List => "lists",
        }
    }
}

/// One operation of a round.
#[derive(Clone, Copy, Debug)]
struct Plan {
    class: Class,
    verb: Verb,
    size: usize,
    pieces: usize,
    /// The counterpart's part in it.
    help: Option<bool>,
}

impl Plan {
    /// A random one.
    fn roll(dice: &mut Dice) -> Self {
        let mut size = dice.spread(SMALLEST, LARGEST);
        let (class, verb, help) = match dice.below(7) {
            0 => {
                size = dice.spread(1, LARGEST);
                (Class::Receive, Verb::Recv, None)
            }
            1 => (Class::Awaited, Verb::Recv, Some(true)),
            2 => {
                size = dice.spread(1, LARGEST);
                (Class::Queued, Verb::Send, None)
            }
            3 => (Class::Offered, Verb::Send, None),
            4 => (Class::Pulled, Verb::Send, Some(false)),
            5 => (Class::Unexpected, Verb::SendUnexpected, None),
            _ => {
                let (verb, help) = match dice.below(4) {
                    0 => (Verb::Recv, None),
                    1 => (Verb::Recv, Some(true)),
                    2 => (Verb::Send, None),
                    _ => (Verb::Send, Some(false)),
                };
                (Class::List, verb, help)
            }
        };
        let pieces = match class {
            Class::List => dice.spread(2, 64),
            _ => 1,
        };
        Self {
            class,
            verb,
            size,
            pieces,
            help,
        }
    }
}

/// Measures one port and prints what came out.
pub(super) fn run(args: &Args, port: Port, peer: Peer, count: usize) -> Result<(), String> {
    let seed = args.seed;
    let mut run = Run {
        args,
        port,
        peer,
        dice: Dice::new(seed),
        client: super::client(args, "BMI_MX_CONNECT_TIMEOUT_MS=0")?,
        counterpart: Counterpart::start(args, port)?,
        mute: Counterpart::start(args, port)?,
        figures: Class::ALL.map(|_| Figures::default()),
        measured: 0,
        posted: 0,
        pulled_begun: 0,
    };
    // Never connected to, and never will be.
    run.mute.stop()?;
    let mute = run.client.lookup(run.mute.address())?;
    let mut remote = run.client.lookup(run.counterpart.address())?;
    let start = Instant::now();
    while run.measured < count {
        run.client.greet(remote)?;
        run.round(remote, mute)?;
        if peer == Peer::Dead {
            remote = run.next_life(remote)?;
        }
    }
    let left = run.client.under_way();
    if left > 0 {
        return Err(format!("{left} operations have not ended"));
    }
    run.print(start.elapsed());
    Ok(())
}

struct Run<'a> {
    args: &'a Args,
    port: Port,
    peer: Peer,
    dice: Dice,
    client: Client,
    counterpart: Counterpart,
    mute: Counterpart,
    figures: [Figures; Class::ALL.len()],
    measured: usize,
    posted: usize,
    /// Receives of the counterpart that had something in them when they were given up.
    pulled_begun: u64,
}

impl Run<'_> {
    fn round(&mut self, remote: Address, mute: Address) -> Result<(), String> {
        let mut posted = self.post(remote, mute)?;
        self.leave_alone()?;
        match self.peer {
            Peer::Alive => {}
            Peer::Stopped => self.counterpart.stop()?,
            Peer::Dead => {
                self.counterpart.kill()?;
                // Dead for certain, or still dying.
                if self.dice.below(2) == 0 {
                    self.counterpart.bury()?;
                }
            }
        }
        self.dice.shuffle(&mut posted);
        self.cancel(&posted)?;
        match self.peer {
            Peer::Alive => self.end_round(remote),
            Peer::Stopped => {
                self.counterpart.go_on()?;
                self.end_round(remote)
            }
            Peer::Dead => self.afterwards(remote),
        }
    }

    /// Posts random operations, after asking for what the counterpart has to do.
    fn post(&mut self, remote: Address, mute: Address) -> Result<Vec<(OpKey, Class)>, String> {
        let count = 1 + self.dice.below(AT_ONCE);
        let mut plans = Vec::with_capacity(count);
        let mut works = Vec::new();
        for _ in 0..count {
            let plan = Plan::roll(&mut self.dice);
            let tag = self.client.tag();
            works.extend(plan.help.map(|give| Work {
                give,
                tag,
                size: plan.size,
            }));
            plans.push((plan, tag));
        }
        if !works.is_empty() {
            self.expect_sent(remote, &Order::Work(works))?;
        }
        let mut posted = Vec::with_capacity(count);
        for (plan, tag) in plans {
            let to = match plan.class {
                Class::Queued => mute,
                _ => remote,
            };
            let tag = match plan.class {
                Class::Unexpected => NOISE_TAG,
                _ => tag,
            };
            let Plan {
                verb, size, pieces, ..
            } = plan;
            let message = Message {
                verb,
                tag,
                size,
                pieces,
            };
            match self.client.post(to, message)? {
                Ok(key) => posted.push((key, plan.class)),
                Err(0) => {}
                Err(code) => return Err(format!("{plan:?}: {}", bmi_host::codes::name(code))),
            }
        }
        self.posted += posted.len();
        Ok(posted)
    }

    fn expect_sent(&mut self, remote: Address, order: &Order) -> Result<(), String> {
        match self.client.order(remote, order)? {
            0 => Ok(()),
            code => Err(format!("an order: {}", bmi_host::codes::name(code))),
        }
    }

    /// A random while, in which messages move.
    fn leave_alone(&mut self) -> Result<(), String> {
        let span = match self.dice.below(8) {
            0 => return Ok(()),
            _ => Duration::from_micros(self.dice.spread(1, WHILE_US) as u64),
        };
        let start = Instant::now();
        while start.elapsed() < span {
            self.client.take_in(0, &mut Vec::new())?;
        }
        Ok(())
    }

    fn cancel(&mut self, posted: &[(OpKey, Class)]) -> Result<(), String> {
        let mut ends = Vec::new();
        for &(key, class) in posted {
            if self.peer == Peer::Alive && self.dice.below(4) == 0 {
                self.client.take_in(0, &mut ends)?;
            }
            if !self.client.is_under_way(key) {
                continue;
            }
            let class = match class {
                Class::Awaited if self.client.begun(key) => Class::Filling,
                class => class,
            };
            let cancelled = self.client.cancel(key, &mut ends)?;
            self.figures[class as usize].add(&cancelled);
            self.measured += 1;
        }
        Ok(())
    }

    /// Cancels what is left of this round at the counterpart, which has heard of all of it.
    fn end_round(&mut self, remote: Address) -> Result<(), String> {
        let tag = self.client.tag();
        match self.client.ask(remote, &Order::CancelAll { tag }, tag)? {
            Ok([_, begun, ..]) => {
                self.pulled_begun += begun;
                Ok(())
            }
            Err(code) => Err(format!(
                "the counterpart is gone: {}",
                bmi_host::codes::name(code)
            )),
        }
    }

    /// Posts to the dead, which wait for a connection that does not come about.
    fn afterwards(&mut self, remote: Address) -> Result<(), String> {
        for _ in 0..AFTERWARDS {
            let mut posted = Vec::new();
            for _ in 0..1 + self.dice.below(4) {
                let (verb, class) = match self.dice.below(2) {
                    0 => (Verb::Recv, Class::Receive),
                    _ => (Verb::Send, Class::Queued),
                };
                let message = Message {
                    verb,
                    tag: self.client.tag(),
                    size: self.dice.spread(1, LARGEST),
                    pieces: 1,
                };
                // The dead may also refuse.
                if let Ok(key) = self.client.post(remote, message)? {
                    posted.push((key, class));
                }
            }
            self.posted += posted.len();
            self.cancel(&posted)?;
        }
        Ok(())
    }

    /// After a death: everything has ended, and there is a counterpart again. Over a fabric or
    /// datagrams it is another one, because only silence would tell that the old one is dead.
    fn next_life(&mut self, remote: Address) -> Result<Address, String> {
        let (start, mut ends): (_, Vec<Ended>) = (Instant::now(), Vec::new());
        while self.client.under_way() > 0 {
            self.client.take_in(10, &mut ends)?;
            if start.elapsed() > TIMEOUT {
                return Err(format!("an operation has not ended in {TIMEOUT:?}"));
            }
        }
        self.counterpart.bury()?;
        if matches!(self.port, Port::Rdm | Port::Dgram) {
            self.client.forget(remote);
            self.counterpart = Counterpart::start(self.args, self.port)?;
            return self.client.lookup(self.counterpart.address());
        }
        self.counterpart = self.counterpart.again(self.args, self.port)?;
        self.counterpart.wait_ready()?;
        Ok(remote)
    }

    fn print(&self, took: Duration) {
        let mut all = Figures::default();
        let mut rows = Vec::new();
        for (class, figures) in Class::ALL.iter().zip(&self.figures) {
            all.join(figures);
            rows.push((class.name(), figures));
        }
        rows.push(("all", &all));
        for (class, figures) in rows {
            let row = CancelRow {
                port: self.port.name(),
                peer: self.peer.name(),
                class,
                figures,
            };
            table::print_cancel(&row, self.args.json);
        }
        if !self.args.json {
            let Self {
                posted,
                measured,
                pulled_begun,
                ..
            } = self;
            println!(
                "{posted} operations, each ended exactly once; {measured} called off, {pulled_begun} \
                 of the receivers had begun; seed {}, {:.1} s",
                self.args.seed,
                took.as_secs_f64()
            );
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_class_is_rolled_and_lists_are_lists() {
        let mut dice = Dice::new(3);
        let plans: Vec<Plan> = (0..2000).map(|_| Plan::roll(&mut dice)).collect();
        for class in Class::ALL {
            // Whether one is being filled is known when it is cancelled.
            let rolled = plans.iter().filter(|plan| plan.class == class).count();
            assert_eq!(rolled > 150, class != Class::Filling, "{class:?}: {rolled}");
        }
        for plan in plans {
            assert_eq!(plan.pieces > 1, plan.class == Class::List);
            assert!((1..=LARGEST).contains(&plan.size), "{plan:?}");
            assert!(plan.help.is_none() || plan.size >= SMALLEST, "{plan:?}");
        }
    }
}
