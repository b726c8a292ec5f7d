//! The measurement of a server with a number of peers.
//!
//! | step    | clients                  | measured                                         |
//! |---------|--------------------------|--------------------------------------------------|
//! | connect | all, at once             | time until the last one has its first answer     |
//! | rest    | none                     | memory, descriptors, processor time of the server |
//! | ask     | one of N, one of one     | round trips of 8 bytes, polled, in turn          |
//! | crowd   | all                      | round trips, one at a time each, not polled      |
//! | flood   | the busy ones, one of one | unexpected messages without answers, in turn     |
//! | rest    | none                     | memory again                                     |
//!
//! Out of scope: tables.

use crate::figures::Spread;
use bmi_mx_crowd::census::Census;
use bmi_mx_crowd::crew::{Crew, Program, Server, crowds_for};
use bmi_mx_crowd::orders::{Order, Outcome, Who};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Figures for one number of peers. Times are of round trips, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) peers: usize,
    /// Bytes that the server has allocated for all peers: when all were connected and had sent one
    /// request, and after all traffic.
    pub(crate) heap: f64,
    pub(crate) heap_after: f64,
    /// Bytes by which the server's resident memory grew.
    pub(crate) resident: f64,
    /// Bytes by which the kernel's objects grew, including those of the clients' ends.
    pub(crate) kernel: f64,
    /// Descriptors and threads in addition to those without a peer.
    pub(crate) descriptors: i64,
    pub(crate) threads: i64,
    /// Seconds until all were connected.
    pub(crate) connect_s: f64,
    /// Processor time of the server while all peers are silent, in percent of a core.
    pub(crate) idle_percent: f64,
    /// Round trips while one client asks and the others are silent, and their ratio to those of the
    /// server with one peer.
    pub(crate) latency: Spread,
    pub(crate) latency_p99: f64,
    pub(crate) latency_ratio: Spread,
    /// Round trips a second while all ask, and the server's processor time for one in microseconds.
    pub(crate) requests_s: f64,
    pub(crate) request_cpu_us: f64,
    /// Number of flooding clients.
    pub(crate) busy: usize,
    /// Unexpected messages a second, the server's processor time for one in microseconds, and their
    /// ratios to those with one flooding client.
    pub(crate) flood_s: f64,
    pub(crate) flood_cpu_us: f64,
    pub(crate) flood_ratio: Spread,
    pub(crate) flood_cpu_ratio: Spread,
}

/// Maximum number of clients that flood.
const BUSY: usize = 1000;

/// Time after which silent strangers have been dropped, and memory for connecting has been freed.
const SETTLED: Duration = Duration::from_secs(7);

const IDLE: Duration = Duration::from_secs(3);
const ASK: Duration = Duration::from_millis(200);
const CROWD: Duration = Duration::from_secs(2);
const FLOOD: Duration = Duration::from_millis(500);

/// A server and its clients: crowd 0 is one client that asks, crowd 1 are those that flood, the
/// others are idle.
struct Side {
    server: Server,
    crew: Crew,
    sizes: Vec<usize>,
}

pub(crate) fn point(program: &Program, peers: usize, repeats: usize) -> Result<Point, String> {
    let mut lone = Side::start(program, 1)?;
    lone.connect()?;
    let mut many = Side::start(program, peers)?;
    let before = many.server.census()?;
    let connect_s = many.connect()?;
    sleep(SETTLED);
    let connected = many.server.census()?;
    sleep(IDLE);
    let idle = many.server.census()?;

    let (mut latency, mut p99, mut latency_ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let (of_one, of_many) = (lone.ask()?, many.ask()?);
        latency.push(us(&of_many, 50.0));
        p99.push(us(&of_many, 99.0));
        latency_ratio.push(us(&of_many, 50.0) / us(&of_one, 50.0));
    }
    let (requests_s, request_cpu_us) = many.all_ask()?;
    let (mut floods, mut ratio, mut cpu_ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let (of_one, of_many) = (lone.flood()?, many.flood()?);
        ratio.push(of_many.0 / of_one.0);
        cpu_ratio.push(of_many.1 / of_one.1);
        floods.push(of_many);
    }
    sleep(SETTLED);
    let after = many.server.census()?;
    let median = |of: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = floods.iter().map(of).collect();
        Spread::of(&values).median
    };
    let more = |now: u64, then: u64| now as f64 - then as f64;
    Ok(Point {
        peers,
        heap: more(connected.heap, before.heap),
        heap_after: more(after.heap, before.heap),
        resident: more(connected.rss, before.rss),
        kernel: more(connected.slab_bytes, before.slab_bytes),
        descriptors: more(connected.descriptors, before.descriptors) as i64,
        threads: more(connected.threads, before.threads) as i64,
        connect_s,
        idle_percent: more(idle.cpu_us, connected.cpu_us) / IDLE.as_micros() as f64 * 100.0,
        latency: Spread::of(&latency),
        latency_p99: Spread::of(&p99).median,
        latency_ratio: Spread::of(&latency_ratio),
        requests_s,
        request_cpu_us,
        busy: many.busy().count,
        flood_s: median(|(rate, _)| *rate),
        flood_cpu_us: median(|(_, cpu)| *cpu),
        flood_ratio: Spread::of(&ratio),
        flood_cpu_ratio: Spread::of(&cpu_ratio),
    })
}

impl Side {
    /// Starts a server, and clients that are not connected yet.
    fn start(program: &Program, peers: usize) -> Result<Self, String> {
        let server = Server::start(program)?;
        let mut sizes = vec![1];
        let busy = (peers - 1).min(BUSY);
        sizes.extend((busy > 0).then_some(busy));
        let idle = peers - 1 - busy;
        let crowds = crowds_for(idle);
        // The first crowds get the remainder of the division.
        sizes.extend((0..crowds).map(|at| idle / crowds + usize::from(at < idle % crowds)));
        sizes.retain(|size| *size > 0);
        let mut crew = Crew::start(program, &server, sizes.len())?;
        let opened = crew.each(|at| Some(Order::Open(sizes[at])))?;
        if opened.done < peers as u64 {
            let (done, why) = (opened.done, opened.why);
            return Err(format!("only {done} of {peers} clients: {why}"));
        }
        Ok(Self {
            server,
            crew,
            sizes,
        })
    }

    /// Connects all; returns the seconds.
    fn connect(&mut self) -> Result<f64, String> {
        let (sizes, begin) = (&self.sizes, Instant::now());
        let outcome = self.crew.each(|at| Some(Order::Connect(all(sizes[at]))))?;
        let seconds = begin.elapsed().as_secs_f64();
        let peers: usize = sizes.iter().sum();
        if outcome.done < peers as u64 || outcome.failed > 0 {
            let Outcome { done, why, .. } = outcome;
            return Err(format!("only {done} of {peers} clients connected: {why}"));
        }
        Ok(seconds)
    }

    /// Lets one client ask.
    fn ask(&mut self) -> Result<Outcome, String> {
        let order = Order::Ask {
            who: all(1),
            time: ASK,
            spin: true,
        };
        good(self.crew.each(|at| (at == 0).then_some(order))?)
    }

    /// Lets all clients ask; returns round trips a second, and the server's microseconds for one.
    fn all_ask(&mut self) -> Result<(f64, f64), String> {
        let before = self.server.census()?;
        let sizes = &self.sizes;
        let outcome = self.crew.each(|at| {
            Some(Order::Ask {
                who: all(sizes[at]),
                time: CROWD,
                spin: false,
            })
        })?;
        let after = self.server.census()?;
        let outcome = good(outcome)?;
        let rate = outcome.done as f64 / outcome.time.as_secs_f64();
        Ok((rate, cpu_each(&before, &after)))
    }

    /// Selects the flooding clients, all in one process, like the single one of the other server.
    fn busy(&self) -> Who {
        all(self.sizes.get(1).copied().unwrap_or(1))
    }

    /// Returns unexpected messages a second, as the server counts them, and its microseconds for
    /// one.
    fn flood(&mut self) -> Result<(f64, f64), String> {
        let place = usize::from(self.sizes.len() > 1);
        let (who, time) = (self.busy(), FLOOD);
        let (before, begin) = (self.server.census()?, Instant::now());
        let order = Order::Flood { who, time };
        let outcome = self.crew.each(|at| (at == place).then_some(order))?;
        let (after, seconds) = (self.server.census()?, begin.elapsed().as_secs_f64());
        good(outcome)?;
        self.drain(after)?;
        let rate = (after.requests - before.requests) as f64 / seconds;
        Ok((rate, cpu_each(&before, &after)))
    }

    /// Waits until messages under way have arrived.
    fn drain(&mut self, mut last: Census) -> Result<(), String> {
        let end = Instant::now() + SETTLED;
        while Instant::now() < end {
            sleep(ASK);
            let now = self.server.census()?;
            if now.requests == last.requests {
                break;
            }
            last = now;
        }
        Ok(())
    }
}

fn all(count: usize) -> Who {
    Who { first: 0, count }
}

fn us(outcome: &Outcome, percent: f64) -> f64 {
    outcome.times.percentile(percent).as_nanos() as f64 / 1e3
}

fn cpu_each(before: &Census, after: &Census) -> f64 {
    let requests = after.requests.saturating_sub(before.requests).max(1);
    after.cpu_us.saturating_sub(before.cpu_us) as f64 / requests as f64
}

/// Fails if any operation has failed.
fn good(outcome: Outcome) -> Result<Outcome, String> {
    match (outcome.failed, outcome.why.as_str()) {
        (0, "") => Ok(outcome),
        (failed, why) => Err(format!("{failed} operations failed: {why}")),
    }
}
