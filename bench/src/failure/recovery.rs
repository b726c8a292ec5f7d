//! Death, return and silence of a server, as its client sees them.
//!
//! ```text
//!   death    operations of every kind ... kill -9 ......... the last of them has failed
//!            receives, and long nothing . kill -9 ......... the last of them has failed
//!   return   the dead one's address ..... "ready" ......... the first answer
//!   silence  operations of every kind ... SIGSTOP ......... the last of them has failed
//!                                         SIGCONT ......... the first answer
//! ```
//!
//! Owns: these three.

use super::child::{Counterpart, KEEPALIVE_MS};
use super::client::{Client, Ended, Message, TIMEOUT};
use super::dice::Dice;
use super::orders::{Order, Work};
use super::table::{self, Limit, Line};
use crate::args::{Args, Port};
use bmi_host::codes;
use bmi_host::method::Address;
use bmi_host::method::Verb;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Operations that are under way when it happens.
const OUTSTANDING: usize = 100;
const SIZE: usize = 256 << 10;
/// A hang-up is told to its waiters.
const HANG_UP_MS: f64 = 5.0;
/// The time that may come on top of a time-out.
const ALLOWANCE_MS: f64 = 100.0;
/// The time-out of a silent peer, as it is set for the frozen one.
const PEER_TIMEOUT_MS: u64 = 1000;
const FREEZES: usize = 5;
/// Longest that receives wait and nothing else happens, and how soon a death is to be noticed then.
const WAITED_US: usize = 1_000_000;
const WAITED_LIMIT_MS: f64 = 1000.0;

/// Deaths and returns of a server.
pub(super) fn deaths(args: &Args, port: Port) -> Result<(), String> {
    let mut client = super::client(args, "")?;
    let mut dice = Dice::new(args.seed);
    let mut counterpart = Counterpart::start(args, port)?;
    let remote = client.lookup(counterpart.address())?;
    // A fabric tells nothing: each death takes a keep-alive.
    let repeats = match port {
        Port::Local | Port::Tcp => 5 * args.repeats,
        Port::Rdm | Port::Dgram => args.repeats,
    };
    let mut book = Book::default();
    let (mut noticed, mut after_end, mut returns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        client.greet(remote)?;
        let outstanding = engage(&mut client, remote, &mut dice)?;
        let start = Instant::now();
        counterpart.kill()?;
        let last = book.wait_for_all(&mut client, outstanding)?;
        let closed = counterpart.bury()?;
        noticed.push(ms(last.saturating_duration_since(start)));
        after_end.push(ms(last.saturating_duration_since(closed)));
        let next = counterpart.again(args, port)?;
        returns.push(ms(first_answer(&mut client, remote, &next)?));
        counterpart = next;
    }
    let limit = match port {
        Port::Local | Port::Tcp => HANG_UP_MS,
        Port::Rdm | Port::Dgram => KEEPALIVE_MS as f64 + ALLOWANCE_MS,
    };
    let line = |what, values, limit, note| {
        let line = Line {
            port: port.name(),
            what,
            unit: "ms",
            values,
            limit,
            note,
        };
        table::print_line(&line, args.json);
    };
    let note = format!("{OUTSTANDING} operations at most; {}", book.said());
    let limit = Some(Limit::Max(limit));
    line("kill -9 to the last error", &noticed, limit, note);
    let note = "without what the system takes to end a process".into();
    line(
        "its sockets closed to the last error",
        &after_end,
        None,
        note,
    );
    line(
        "server ready again to the first answer",
        &returns,
        None,
        String::new(),
    );
    let mut book = Book::default();
    let mut missed = Vec::new();
    for _ in 0..repeats {
        client.greet(remote)?;
        await_nothing(&mut client, remote, &mut dice)?;
        let start = Instant::now();
        counterpart.kill()?;
        let last = book.wait_for_all(&mut client, OUTSTANDING)?;
        counterpart.bury()?;
        missed.push(ms(last.saturating_duration_since(start)));
        let next = counterpart.again(args, port)?;
        first_answer(&mut client, remote, &next)?;
        counterpart = next;
    }
    let limit = match port {
        Port::Local | Port::Tcp => HANG_UP_MS,
        Port::Rdm => KEEPALIVE_MS as f64 + ALLOWANCE_MS,
        Port::Dgram => WAITED_LIMIT_MS,
    };
    let note = format!("{OUTSTANDING} receives that wait; {}", book.said());
    let limit = Some(Limit::Max(limit));
    line("kill -9 of a silent server", &missed, limit, note);
    Ok(())
}

/// Posts receives that nothing is sent for, and lets them wait for a random while.
fn await_nothing(client: &mut Client, remote: Address, dice: &mut Dice) -> Result<(), String> {
    for _ in 0..OUTSTANDING {
        let message = Message {
            verb: Verb::Recv,
            tag: client.tag(),
            size: SIZE,
            pieces: 1,
        };
        match client.post(remote, message)? {
            Ok(_) => {}
            Err(code) => return Err(format!("{message:?}: {}", codes::name(code))),
        }
    }
    let span = Duration::from_micros(dice.spread(1000, WAITED_US) as u64);
    let start = Instant::now();
    while start.elapsed() < span {
        client.take_in(10, &mut Vec::new())?;
    }
    Ok(())
}

/// Posts operations of every kind, lets them run for a random while; how many are still under way.
fn engage(client: &mut Client, remote: Address, dice: &mut Dice) -> Result<usize, String> {
    let mut works = Vec::new();
    let mut messages = Vec::new();
    for n in 0..OUTSTANDING {
        let tag = client.tag();
        let (verb, help) = match n % 4 {
            0 => (Verb::Recv, None),
            1 => (Verb::Send, None),
            2 => (Verb::Recv, Some(true)),
            _ => (Verb::Send, Some(false)),
        };
        works.extend(help.map(|give| Work {
            give,
            tag,
            size: SIZE,
        }));
        messages.push(Message {
            verb,
            tag,
            size: SIZE,
            pieces: 1,
        });
    }
    match client.order(remote, &Order::Work(works))? {
        0 => {}
        code => return Err(format!("an order: {}", codes::name(code))),
    }
    for message in messages {
        match client.post(remote, message)? {
            Ok(_) | Err(0) => {}
            Err(code) => return Err(format!("{message:?}: {}", codes::name(code))),
        }
    }
    let span = Duration::from_micros(dice.spread(1, 3000) as u64);
    let start = Instant::now();
    while start.elapsed() < span {
        client.take_in(0, &mut Vec::new())?;
    }
    Ok(client.under_way())
}

/// With what operations have ended.
#[derive(Default)]
struct Book {
    codes: BTreeMap<i32, usize>,
    never: usize,
}

impl Book {
    /// Waits as a client does that has nothing else to do; when the last one ended, or gave up.
    fn wait_for_all(&mut self, client: &mut Client, outstanding: usize) -> Result<Instant, String> {
        let (start, mut last) = (Instant::now(), Instant::now());
        let (mut ends, mut ended): (Vec<Ended>, _) = (Vec::new(), 0);
        while ended < outstanding {
            if start.elapsed() > TIMEOUT {
                // They do not end any more, and are counted as such.
                self.never += outstanding - ended;
                client.cancel_all()?;
                return Ok(Instant::now());
            }
            client.take_in(10, &mut ends)?;
            if !ends.is_empty() {
                last = Instant::now();
            }
            ended += ends.len();
            for Ended { error, .. } in ends.drain(..) {
                *self.codes.entry(error).or_default() += 1;
            }
        }
        Ok(last)
    }

    fn said(&self) -> String {
        let counts = self.codes.iter();
        let never = (self.never > 0).then(|| format!("{} NEVER", self.never));
        let parts: Vec<String> = counts
            .map(|(code, count)| format!("{count} {}", codes::name(*code)))
            .chain(never)
            .collect();
        parts.join(", ")
    }
}

/// Asks a server that is just starting again and again; how long after it was ready it answered.
fn first_answer(
    client: &mut Client,
    remote: Address,
    server: &Counterpart,
) -> Result<Duration, String> {
    let start = Instant::now();
    let mut ready = None;
    while start.elapsed() < TIMEOUT {
        ready = ready.or_else(|| server.ready());
        let tag = client.tag();
        let answer = client.ask(remote, &Order::Ping { tag }, tag)?;
        let now = Instant::now();
        if answer.is_ok() {
            let ready = match ready {
                Some(ready) => ready,
                None => server.wait_ready()?,
            };
            return Ok(now.saturating_duration_since(ready));
        }
        client.pause()?;
    }
    Err(format!("no answer of a new server in {TIMEOUT:?}"))
}

/// A server that is stopped, and goes on after it has been given up.
pub(super) fn freezes(args: &Args, port: Port) -> Result<(), String> {
    let mut client = super::client(args, &format!("BMI_MX_PEER_TIMEOUT_MS={PEER_TIMEOUT_MS}"))?;
    let mut dice = Dice::new(args.seed);
    let mut counterpart = Counterpart::start(args, port)?;
    let remote = client.lookup(counterpart.address())?;
    let mut book = Book::default();
    let (mut noticed, mut returns) = (Vec::new(), Vec::new());
    for _ in 0..FREEZES.min(args.repeats) {
        client.greet(remote)?;
        let outstanding = engage(&mut client, remote, &mut dice)?;
        let start = Instant::now();
        counterpart.stop()?;
        let outcome = book.wait_for_all(&mut client, outstanding);
        let thawed = Instant::now();
        counterpart.go_on()?;
        noticed.push(ms(outcome?.saturating_duration_since(start)));
        client.greet(remote)?;
        returns.push(ms(thawed.elapsed()));
    }
    let limit = PEER_TIMEOUT_MS as f64 + ALLOWANCE_MS;
    let note = format!("BMI_MX_PEER_TIMEOUT_MS={PEER_TIMEOUT_MS}; {}", book.said());
    let line = Line {
        port: port.name(),
        what: "SIGSTOP to the last error",
        unit: "ms",
        values: &noticed,
        limit: Some(Limit::Max(limit)),
        note,
    };
    table::print_line(&line, args.json);
    let line = Line {
        port: port.name(),
        what: "SIGCONT to the first answer",
        unit: "ms",
        values: &returns,
        limit: None,
        note: String::new(),
    };
    table::print_line(&line, args.json);
    Ok(())
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
