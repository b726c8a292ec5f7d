//! The processes of a measurement, and their orders.
//!
//! ```text
//!   Program --> Server   "ready on mx://..."    census
//!          `--> Crew     crowd, crowd, crowd    an order to each, then all answers
//! ```
//!
//! Owns: the processes, which end with this value.

use crate::census::Census;
use crate::limits;
use crate::orders::{self, Order, Outcome};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The program that runs as server and as crowd.
#[derive(Clone, Debug)]
pub struct Program {
    /// Executable file.
    pub file: OsString,
    /// Arguments for a server; the address follows.
    pub server: Vec<OsString>,
    /// Arguments for a crowd; the server's address follows.
    pub crowd: Vec<OsString>,
    /// Variables for its environment.
    pub environment: Vec<(String, String)>,
}

/// A process that answers each line of input with a line.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// The server's process.
pub struct Server {
    process: Process,
    /// Address of the server.
    pub address: String,
}

/// Crowds of the same server.
#[derive(Default)]
pub struct Crew {
    crowds: Vec<Process>,
}

/// Descriptors of one client, and its share of the process's own, rounded up.
const DESCRIPTORS_EACH: u64 = 11;
const DESCRIPTORS_BESIDE: u64 = 64;

/// Returns the number of crowds for `clients` clients: a few, or as many as the limit of
/// descriptors demands.
pub fn crowds_for(clients: usize) -> usize {
    let limit = limits::raise_descriptors(DESCRIPTORS_BESIDE + DESCRIPTORS_EACH * clients as u64);
    let each = limit.saturating_sub(DESCRIPTORS_BESIDE) / DESCRIPTORS_EACH;
    clients
        .div_ceil((each as usize).max(1))
        .max(FEW)
        .min(clients.max(1))
}

/// Number of crowds whatever the limit.
const FEW: usize = 4;

/// Endpoints to try for the server.
const TRIES: u32 = 20;

impl Server {
    /// Starts a server on a free endpoint.
    pub fn start(program: &Program) -> Result<Self, String> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        for _ in 0..TRIES {
            let attempt = STARTED.fetch_add(1, Ordering::Relaxed);
            let seed = std::process::id().wrapping_mul(31);
            // Below the numbers that the kernel gives to clients.
            let endpoint = 1024 + seed.wrapping_add(attempt.wrapping_mul(977)) % 5_000;
            let address = format!("mx://127.0.0.1:{endpoint}");
            let mut process = Process::start(program, &program.server, &address)?;
            if process.answer()?.starts_with("ready on ") {
                return Ok(Self { process, address });
            }
        }
        Err("no server could be started".into())
    }

    /// Returns its resources, and the number of its requests.
    pub fn census(&mut self) -> Result<Census, String> {
        self.process.tell(&Order::Census)?;
        self.process.hear()
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }
}

impl Crew {
    /// Starts `count` crowds for a server.
    pub fn start(program: &Program, server: &Server, count: usize) -> Result<Self, String> {
        let mut crew = Self::default();
        for _ in 0..count {
            let process = Process::start(program, &program.crowd, &server.address)?;
            crew.crowds.push(process);
        }
        for crowd in &mut crew.crowds {
            let said = crowd.answer()?;
            if said != "ready" {
                return Err(format!("a crowd did not come up: {said}"));
            }
        }
        Ok(crew)
    }

    /// Returns the number of crowds.
    pub fn len(&self) -> usize {
        self.crowds.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.crowds.is_empty()
    }

    /// Gives each crowd its order, all at once, and adds up the outcomes. A crowd without an order
    /// does nothing.
    pub fn each(&mut self, order: impl Fn(usize) -> Option<Order>) -> Result<Outcome, String> {
        for (at, crowd) in self.crowds.iter_mut().enumerate() {
            if let Some(order) = order(at) {
                crowd.tell(&order)?;
            }
        }
        let mut sum = Outcome::default();
        for (at, crowd) in self.crowds.iter_mut().enumerate() {
            if order(at).is_some() {
                add(&mut sum, crowd.hear()?);
            }
        }
        Ok(sum)
    }

    /// Returns the resources of one crowd.
    pub fn census(&mut self, at: usize) -> Result<Census, String> {
        let crowd = self.crowds.get_mut(at).ok_or("there is no such crowd")?;
        crowd.tell(&Order::Census)?;
        crowd.hear()
    }
}

/// Adds an outcome: times are added up, the duration is that of the slowest.
fn add(sum: &mut Outcome, one: Outcome) {
    let Outcome {
        done,
        failed,
        time,
        times,
        why,
    } = one;
    sum.done += done;
    sum.failed += failed;
    sum.time = sum.time.max(time);
    sum.times.merge(&times);
    if sum.why.is_empty() {
        sum.why = why;
    }
}

impl Process {
    fn start(program: &Program, role: &[OsString], address: &str) -> Result<Self, String> {
        let mut child = Command::new(&program.file)
            .args(role)
            .arg(address)
            // The crowd stands for many machines.
            .env("MX_SOURCE_SHARE", "100")
            .envs(
                program
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| format!("starting {}: {why}", program.file.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self {
                child,
                input,
                output: BufReader::new(output),
            }),
            _ => Err("a process without pipes".into()),
        }
    }

    fn tell(&mut self, order: &Order) -> Result<(), String> {
        writeln!(self.input, "{}", orders::text(order))
            .map_err(|why| format!("telling a process: {why}"))
    }

    /// Returns the parsed next answer.
    fn hear<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        orders::parse(&self.answer()?)
    }

    /// Returns the next line; empty if the process has ended.
    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(|why| format!("hearing a process: {why}"))?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ending in order takes a while for so many clients, and is not measured.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a time in milliseconds, for tables.
pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
