//! Clients that are started and killed, one after the other, and processes that only look like them.
//!
//! ```text
//!   storm process, for each line "kind count" on its input:
//!      start ---> "up" ---> a random while ---> kill -9 ---> buried     count times
//!      says how many, and how much processor time one took
//! ```
//!
//! A process of its own starts them, so that the one that measures does nothing else. A client is
//! killed wherever it happens to be: starting, connecting, in the middle of messages either way. The
//! control spends as much processor time without having heard of the library: what remains is what
//! the library makes of the deaths.
//!
//! Owns: these processes.

use super::child;
use super::client::{Client, Message};
use super::dice::Dice;
use super::orders::{Order, Work};
use crate::args::Args;
use crate::bmi::Bmi;
use bmi_host::method::Verb;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Longest that a client goes on after it said it was up.
const LIFE_US: usize = 8000;
/// One in so many is killed while it is starting.
const EARLY: usize = 8;
const SIZE: usize = 256 << 10;

/// Reads what is wanted, and does it, until its input ends.
pub(crate) fn run(args: &Args, server: &str) -> Result<(), String> {
    crate::peer::end_with_parent();
    let port = args.port.ok_or("no port")?;
    let mut dice = Dice::new(args.seed);
    // Processor time and time of one client, which those of the control take as well.
    let (mut burn, mut pace) = (Duration::ZERO, Duration::ZERO);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (kind, count) = line.split_once(' ').ok_or("a line of two words")?;
        let count: u32 = count.parse().map_err(|_| "a number of processes")?;
        let (start, before) = (Instant::now(), children_time());
        for n in 0..count {
            let role = match kind {
                "clients" => ["victim".to_owned(), server.to_owned()],
                _ => ["control".to_owned(), burn.as_micros().to_string()],
            };
            let role: Vec<&str> = role.iter().map(String::as_str).collect();
            one(args, port, &role, &mut dice)?;
            if kind != "clients" {
                let due = pace * (n + 1);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
        }
        let each = children_time().saturating_sub(before) / count.max(1);
        if kind == "clients" {
            (burn, pace) = (each, start.elapsed() / count.max(1));
        }
        println!("{kind} {count} {}", each.as_micros());
        std::io::stdout()
            .flush()
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Starts one and kills it.
fn one(args: &Args, port: crate::args::Port, role: &[&str], dice: &mut Dice) -> Result<(), String> {
    let mut child = child::command(args, port, role)?
        .arg("--seed")
        .arg((dice.roll() >> 1).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting a client: {error}"))?;
    if dice.below(EARLY) > 0 {
        // One byte, or the end of a process that could not start.
        let mut up = [0];
        if let Some(out) = &mut child.stdout {
            let _ = out.read(&mut up);
        }
        if up == [0] {
            let _ = child.kill();
            let _ = child.wait();
            return Err("a client did not come up".into());
        }
    }
    std::thread::sleep(Duration::from_micros(dice.spread(1, LIFE_US) as u64));
    child.kill().map_err(|error| error.to_string())?;
    child.wait().map_err(|error| error.to_string())?;
    Ok(())
}

/// Talks to the server in every way until it is killed.
pub(crate) fn victim(args: &Args, server: &str) -> Result<(), String> {
    crate::peer::end_with_parent();
    let mut client = Client::new(Bmi::start(&args.library, None)?)?;
    let mut dice = Dice::new(args.seed);
    let remote = client.lookup(server)?;
    client.greet(remote)?;
    say_up();
    loop {
        let mut works = Vec::new();
        for n in 0..1 + dice.below(8) {
            let (tag, size) = (client.tag(), dice.spread(1, SIZE));
            let give = n % 2 == 0;
            works.push(Work { give, tag, size });
            let message = Message {
                verb: if give { Verb::Recv } else { Verb::Send },
                tag,
                size,
                pieces: 1,
            };
            let _ = client.post(remote, message)?;
        }
        // Some it promises and does not keep: they are under way when it dies.
        client.order(remote, &Order::Work(works))?;
        client.greet(remote)?;
    }
}

/// A process that knows nothing of the library, and takes as long to come up.
pub(crate) fn control(spend_us: u64) -> ! {
    crate::peer::end_with_parent();
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(spend_us) {
        std::hint::spin_loop();
    }
    say_up();
    loop {
        std::thread::park();
    }
}

fn say_up() {
    print!("+");
    let _ = std::io::stdout().flush();
}

/// Processor time of all children that were waited for.
fn children_time() -> Duration {
    // SAFETY: all zeros are times of 0.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for one.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
        .sum()
}

/// The storm, as the measuring process sees it.
pub(super) struct Storm {
    child: std::process::Child,
    input: std::process::ChildStdin,
    said: std::sync::mpsc::Receiver<String>,
}

impl Storm {
    pub(super) fn start(
        args: &Args,
        port: crate::args::Port,
        server: &str,
    ) -> Result<Self, String> {
        let mut child = child::command(args, port, &["storm", server, "--port", port.name()])?
            .arg("--seed")
            .arg(args.seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting the storm: {error}"))?;
        let input = child.stdin.take().ok_or("no input of the storm")?;
        let out = child.stdout.take().ok_or("no output of the storm")?;
        let (say, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let storm = Self { child, input, said };
        let first = storm.said.recv_timeout(Duration::from_secs(30));
        first.map_err(|_| "the storm does not start")?;
        Ok(storm)
    }

    /// Begins to start and kill processes.
    pub(super) fn begin(&mut self, kind: &str, count: usize) -> Result<(), String> {
        writeln!(self.input, "{kind} {count}").map_err(|error| format!("the storm: {error}"))
    }

    /// Whether it has done so: microseconds of processor time for each process.
    pub(super) fn over(&self) -> Result<Option<f64>, String> {
        use std::sync::mpsc::TryRecvError;
        match self.said.try_recv() {
            Ok(line) => {
                let last = line.rsplit(' ').next();
                Ok(last.and_then(|word| word.parse().ok()))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the storm has ended".into()),
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
