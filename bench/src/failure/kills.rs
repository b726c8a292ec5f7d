//! Very many deaths of clients, and what others notice of them.
//!
//! ```text
//!   client, timed ---- ping-pong ---- server ---- clients that are started and killed (storm)
//!
//!   in turn, slice by slice:   clients    control      quiet
//!                                 `--ratio--'             each as long as the clients took
//! ```
//!
//! Starting and killing processes costs processor time, whatever they do: the control starts and
//! kills as many that do not use the library and take as much.
//!
//! Owns: the slices, and what the server holds before and after.

use super::child::Counterpart;
use super::client::Client;
use super::orders::Order;
use super::storm::Storm;
use super::table::{self, Limit, Line};
use crate::args::{Args, Port};
use crate::figures::percentile;
use bmi_host::method::Address;
use std::fs;
use std::time::{Duration, Instant};

/// Slices: the machine's mood changes, and each is compared with its neighbours.
const SLICES: usize = 10;
/// The factor by which another client's operations may become slower.
const SLOWER: f64 = 2.0;
/// Deaths before the first look at what the server holds: tables and pools have grown by then.
const WARM_UP: usize = 20;
/// Memory that comes and goes with the moment. It counts from halfway: pools and tables have grown by
/// then, and a leak goes on.
const RSS_KB: f64 = 1024.0;
/// In `/proc/PID/status`.
const MEMORY: &str = "VmRSS:";

pub(super) fn run(args: &Args, port: Port, kills: usize) -> Result<(), String> {
    let client = super::client(args, "")?;
    let server = Counterpart::start(args, port)?;
    let remote = client.lookup(server.address())?;
    let storm = Storm::start(args, port, server.address())?;
    let mut run = Run {
        client,
        remote,
        storm,
        errors: 0,
    };
    run.client.greet(remote)?;
    run.slice("clients", WARM_UP)?;
    let before = run.holds(&server)?;
    let first = status(server.pid(), MEMORY)?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut memory = Vec::new();
    let mut medians = [Vec::new(), Vec::new()];
    let (mut killed, mut cpu) = (0, Vec::new());
    for slice in 1..=SLICES.min(kills) {
        let count = kills * slice / SLICES.min(kills) - killed;
        killed += count;
        let clients = run.slice("clients", count)?;
        memory.push(status(server.pid(), MEMORY)?);
        let control = run.slice("control", count)?;
        let quiet = run.quiet(clients.took)?;
        cpu.push(clients.cpu_us / 1e3);
        let median = percentile(&clients.times, 50.0);
        medians[0].push(median / percentile(&quiet, 50.0));
        medians[1].push(median / percentile(&control.times, 50.0));
        times[0].extend(clients.times);
        times[1].extend(control.times);
        times[2].extend(quiet);
    }
    let after = run.holds(&server)?;
    let line = |what: &str, unit, values: &[f64], limit, note| {
        let line = Line {
            port: port.name(),
            what,
            unit,
            values,
            limit,
            note,
        };
        table::print_line(&line, args.json);
    };
    let [clients, control, quiet] = &times;
    let note = format!(
        "{killed} kills, {:.1} ms of CPU each",
        percentile(&cpu, 50.0)
    );
    line(
        "round trip while clients are killed",
        "us",
        clients,
        None,
        note,
    );
    let note = "as many that do not use the library".to_owned();
    line(
        "round trip while others are killed",
        "us",
        control,
        None,
        note,
    );
    line("round trip without kills", "us", quiet, None, String::new());
    let [over_quiet, over_control] = &medians;
    let slower = Some(Limit::Median(SLOWER));
    let p99 = |values: &[f64]| percentile(values, 99.0);
    let note = format!("99 %: {:.2}", p99(clients) / p99(quiet));
    line(
        "its median, over that without kills",
        "",
        over_quiet,
        slower,
        note,
    );
    let note = format!("99 %: {:.2}", p99(clients) / p99(control));
    line(
        "its median, over others killed",
        "",
        over_control,
        slower,
        note,
    );
    let errors = [run.errors as f64];
    let none = Some(Limit::Max(0.0));
    line(
        "errors the other client saw",
        "",
        &errors,
        none,
        String::new(),
    );
    for ((what, before), (_, after)) in before.iter().zip(&after) {
        let what = format!("more {what}");
        let note = format!("{before} before, {after} after");
        line(&what, "", &[after - before], none, note);
    }
    let rss = status(server.pid(), MEMORY)?;
    let half = memory.get(memory.len() / 2).copied().unwrap_or(rss);
    let note = format!("{first} before, {half} halfway, {rss} after");
    let limit = Some(Limit::Max(RSS_KB));
    line(
        "more memory of the server, from halfway",
        "kB",
        &[rss - half],
        limit,
        note,
    );
    Ok(())
}

struct Run {
    client: Client,
    remote: Address,
    storm: Storm,
    errors: usize,
}

/// The measurements during some deaths.
struct Slice {
    times: Vec<f64>,
    took: Duration,
    /// Processor time of each process that was killed.
    cpu_us: f64,
}

impl Run {
    /// Round trips until so many processes have been killed.
    fn slice(&mut self, kind: &str, count: usize) -> Result<Slice, String> {
        let start = Instant::now();
        self.storm.begin(kind, count)?;
        let mut times = Vec::new();
        loop {
            times.extend(self.round_trip()?);
            if let Some(cpu_us) = self.storm.over()? {
                return Ok(Slice {
                    times,
                    took: start.elapsed(),
                    cpu_us,
                });
            }
        }
    }

    fn quiet(&mut self, span: Duration) -> Result<Vec<f64>, String> {
        let (start, mut times) = (Instant::now(), Vec::new());
        while start.elapsed() < span {
            times.extend(self.round_trip()?);
        }
        Ok(times)
    }

    /// Microseconds from the question to its answer.
    fn round_trip(&mut self) -> Result<Option<f64>, String> {
        let tag = self.client.tag();
        let start = Instant::now();
        match self.client.ask(self.remote, &Order::Ping { tag }, tag)? {
            Ok(_) => Ok(Some(start.elapsed().as_secs_f64() * 1e6)),
            Err(_) => {
                self.errors += 1;
                Ok(None)
            }
        }
    }

    /// The server's resources, once the last of the dead is known to be dead.
    fn holds(&mut self, server: &Counterpart) -> Result<Vec<(&'static str, f64)>, String> {
        let start = Instant::now();
        loop {
            let held = self.look(server)?;
            // Over a fabric the last deaths are noticed late.
            let counts = held.iter().take(2).map(|(_, count)| *count);
            if counts.eq([1.0, 0.0]) || start.elapsed() > Duration::from_secs(5) {
                return Ok(held);
            }
            let pause = Instant::now();
            while pause.elapsed() < Duration::from_millis(20) {
                self.client.pause()?;
            }
        }
    }

    fn look(&mut self, server: &Counterpart) -> Result<Vec<(&'static str, f64)>, String> {
        let tag = self.client.tag();
        let answer = self.client.ask(self.remote, &Order::Stats { tag }, tag)?;
        let Ok([known, outstanding, ..]) = answer else {
            return Err("the server does not say what it holds".into());
        };
        let pid = server.pid();
        Ok(vec![
            ("peers the server knows", known as f64),
            ("operations of the server", outstanding as f64),
            ("threads of the server", status(pid, "Threads:")?),
            (
                "descriptors of the server",
                entries(&format!("/proc/{pid}/fd"))?,
            ),
            (
                "mappings of the server",
                lines(&format!("/proc/{pid}/maps"))?,
            ),
            ("files in /dev/shm", entries("/dev/shm")?),
        ])
    }
}

/// A number in `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Result<f64, String> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    field(&text, name).ok_or_else(|| format!("{path}: no {name}"))
}

fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn entries(path: &str) -> Result<f64, String> {
    let entries = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(entries.count() as f64)
}

fn lines(path: &str) -> Result<f64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(text.lines().count() as f64)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn fields_of_a_status_are_found_by_their_names() {
        let text = "Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t3\n";
        assert_eq!(field(text, "VmRSS:"), Some(1234.0));
        assert_eq!(field(text, "Threads:"), Some(3.0));
        assert_eq!(field(text, "VmSwap:"), None);
        let own = std::process::id();
        assert!(status(own, "Threads:").is_ok_and(|threads| threads >= 1.0));
    }
}
