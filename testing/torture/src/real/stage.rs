//! All nodes of one program, seen from the director.
//!
//! ```text
//!   give(order) --> | line | --> node         hear: notes, ends, nodes to continue
//!                                  `--> handled, or a Trouble: the program has failed
//! ```
//!
//! Owns: the processes, and their notes.

use super::args::{Args, Place};
use super::figures::Figures;
use super::line::{self, Heard};
use super::notes::{self, Fate, Fates, Note, Order, Report};
use super::process::Process;
use super::settings;
use bmi_mx_torture::{Step, Stream};
use std::collections::BTreeSet;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reason why a program ends early.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A promise is broken.
    Fault {
        node: usize,
        text: String,
        /// Whether to save its threads' stacks.
        look: bool,
    },
    /// Another process has the endpoints.
    Taken,
    /// The user has interrupted the program.
    Interrupted,
}

/// Set by SIGINT and SIGTERM.
pub(crate) static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// A node of the stage.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) life: u32,
    pub(crate) process: Option<Process>,
    /// Recorders of earlier lives, as text.
    pub(crate) past: Vec<String>,
    ready: bool,
    /// Steps given and not done.
    owed: usize,
    /// Time of its last note, or of an order while no step was outstanding.
    heard: Instant,
    frozen: Option<Instant>,
    /// Deadline of a node that was told to finalize.
    ending: Option<Instant>,
    /// Whether the program has disturbed the node or one of its connections.
    pub(crate) disturbed: bool,
    pub(crate) report: Option<Report>,
    pub(crate) withdrawn: bool,
    pub(crate) checked: bool,
    pub(crate) talked: Option<u32>,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    args: &'a Args,
    seed: u64,
    base: u32,
    /// Reserves the endpoints for this director.
    _claim: UnixDatagram,
    environment: Vec<(&'static str, String)>,
    pub(crate) members: Vec<Member>,
    /// Streams of which a send was cancelled.
    pub(crate) loose: BTreeSet<Stream>,
    pub(crate) figures: Figures,
    /// Every process so far.
    pub(crate) pids: Vec<u32>,
}

impl<'a> Stage<'a> {
    /// Starts the nodes, and waits until all run. Each `attempt` uses other endpoints.
    pub(crate) fn set(
        args: &'a Args,
        seed: u64,
        attempt: u64,
        nodes: usize,
    ) -> Result<Self, Trouble> {
        let (base, claim) = claim_endpoints(seed * 17 + attempt);
        let mut stage = Self {
            args,
            seed,
            base,
            _claim: claim,
            environment: settings::environment(seed, args.port),
            members: (0..nodes).map(|_| Member::new()).collect(),
            loose: BTreeSet::new(),
            figures: Figures::default(),
            pids: Vec::new(),
        };
        for node in 0..nodes {
            stage.start(node)?;
        }
        stage.hear_until(|stage| stage.members.iter().all(|member| member.ready))?;
        Ok(stage)
    }

    /// Begins a life.
    pub(crate) fn start(&mut self, node: usize) -> Result<(), Trouble> {
        let place = Place {
            index: node,
            life: self.members[node].life,
            nodes: self.members.len(),
            base: self.base,
        };
        let process = Process::spawn(self.args, &place, self.seed, &self.environment);
        let process = process.map_err(|error| fault(node, format!("no process: {error}")))?;
        self.pids.push(process.pid());
        let member = &mut self.members[node];
        member.process = Some(process);
        member.ready = false;
        member.owed = 0;
        member.heard = Instant::now();
        Ok(())
    }

    /// Begins the next life of a node that has ended, or is about to.
    pub(crate) fn restart(&mut self, node: usize) -> Result<(), Trouble> {
        self.hear_until(|stage| stage.members[node].ending.is_none())?;
        self.members[node].life += 1;
        self.start(node)
    }

    pub(crate) fn lives(&self, node: usize) -> bool {
        let member = &self.members[node];
        member.process.is_some() && member.ending.is_none()
    }

    pub(crate) fn living(&self) -> Vec<usize> {
        (0..self.members.len())
            .filter(|node| self.lives(*node))
            .collect()
    }

    pub(crate) fn fates(&self) -> Fates {
        let fate = |member: &Member| match (&member.process, member.frozen) {
            (None, _) => Fate::Dead,
            (_, Some(_)) => Fate::Stopped,
            _ => Fate::Alive,
        };
        Fates(self.members.iter().map(fate).collect())
    }

    /// Gives a node a step.
    pub(crate) fn give_step(&mut self, node: usize, step: Step) -> Result<(), Trouble> {
        self.give(node, &Order::Do(self.fates(), step))
    }

    /// Gives a node an order, after the earlier ones.
    pub(crate) fn give(&mut self, node: usize, order: &Order) -> Result<(), Trouble> {
        self.hear_until(|stage| stage.members[node].owed < WINDOW)?;
        let text = notes::text(order);
        loop {
            let member = &mut self.members[node];
            let Some(process) = &member.process else {
                return Ok(());
            };
            match process.line.offer(&text) {
                Ok(true) => break,
                Ok(false) => self.hear(Duration::from_millis(5))?,
                // It has ended; the next `hear` finds out how.
                Err(_) => return self.hear(Duration::ZERO),
            }
        }
        let member = &mut self.members[node];
        if member.owed == 0 {
            member.heard = Instant::now();
        }
        match order {
            Order::Do(..) => member.owed += 1,
            Order::Finalize => member.ending = Some(Instant::now() + TIMEOUT),
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn kill(&mut self, node: usize) -> Result<(), Trouble> {
        if let Some(mut process) = self.members[node].process.take() {
            process.kill();
            // Its earlier notes count.
            while let Heard::Text(text) = process.line.hear() {
                self.note(node, &text)?;
            }
            let member = &mut self.members[node];
            member.past.push(process.recorder.text());
            member.frozen = None;
        }
        Ok(())
    }

    pub(crate) fn freeze(&mut self, node: usize, span: Duration) {
        let member = &mut self.members[node];
        if let Some(process) = &member.process {
            process.signal(libc::SIGSTOP);
            member.frozen = Some(Instant::now() + span);
        }
    }

    fn thaw(&mut self, due: Instant) {
        for member in &mut self.members {
            if member.frozen.is_some_and(|then| then <= due) {
                member.frozen = None;
                member.heard = Instant::now();
                if let Some(process) = &member.process {
                    process.signal(libc::SIGCONT);
                }
            }
        }
    }

    /// Waits until no node is stopped any more.
    pub(crate) fn thaw_all(&mut self) -> Result<(), Trouble> {
        while let Some(then) = self.members.iter().filter_map(|member| member.frozen).max() {
            self.hear(line::until(then))?;
        }
        Ok(())
    }

    /// Handles notes of all nodes for that long.
    pub(crate) fn pause(&mut self, span: Duration) -> Result<(), Trouble> {
        let then = Instant::now() + span;
        while Instant::now() < then {
            self.hear(line::until(then))?;
        }
        Ok(())
    }

    /// Handles notes of all nodes until a condition holds. A node that is silent although it has
    /// something to do is a fault.
    pub(crate) fn hear_until(&mut self, so: impl Fn(&Self) -> bool) -> Result<(), Trouble> {
        let begin = Instant::now();
        while !so(self) {
            self.hear(Duration::from_millis(50))?;
            if begin.elapsed() > TIMEOUT {
                let now = Instant::now();
                let late = |member: &Member| {
                    member.process.is_some() && now.duration_since(member.heard) > TIMEOUT / 2
                };
                let node = self.members.iter().position(late);
                return Err(Trouble::Fault {
                    node: node.unwrap_or(0),
                    text: format!("nothing happens for {TIMEOUT:?}"),
                    look: true,
                });
            }
        }
        Ok(())
    }

    /// Handles all notes, waiting up to `span` for the first.
    pub(crate) fn hear(&mut self, span: Duration) -> Result<(), Trouble> {
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Err(Trouble::Interrupted);
        }
        self.thaw(Instant::now());
        let processes = self
            .members
            .iter()
            .filter_map(|member| member.process.as_ref());
        let fds: Vec<_> = processes
            .map(|process| (process.line.fd(), libc::POLLIN))
            .collect();
        let next = self.members.iter().filter_map(|member| member.frozen).min();
        line::wait(&fds, next.map_or(span, |then| span.min(line::until(then))));
        for node in 0..self.members.len() {
            self.hear_node(node)?;
        }
        Ok(())
    }

    fn hear_node(&mut self, node: usize) -> Result<(), Trouble> {
        while let Some(process) = &mut self.members[node].process {
            match process.line.hear() {
                Heard::Text(text) => self.note(node, &text)?,
                Heard::Gone => self.over(node)?,
                Heard::Nothing => break,
            }
        }
        let member = &self.members[node];
        let now = Instant::now();
        let busy = member.owed > 0 || !member.ready;
        let silent = busy && now.duration_since(member.heard) > TIMEOUT;
        let late = member.ending.is_some_and(|then| now > then);
        if member.process.is_some() && member.frozen.is_none() && (silent || late) {
            let what = if late { "to end" } else { "to do a step" };
            return Err(Trouble::Fault {
                node,
                text: format!("it takes more than {TIMEOUT:?} {what}"),
                look: true,
            });
        }
        Ok(())
    }

    fn note(&mut self, node: usize, text: &str) -> Result<(), Trouble> {
        let note = notes::parse(text).ok_or_else(|| fault(node, format!("it says '{text}'")))?;
        let life = self.members[node].life;
        let member = &mut self.members[node];
        member.heard = Instant::now();
        match note {
            Note::Ready => member.ready = true,
            Note::Taken if life == 0 => return Err(Trouble::Taken),
            Note::Taken => return Err(fault(node, "its endpoint is taken".into())),
            Note::Done => member.owed = member.owed.saturating_sub(1),
            Note::Loose(stream) => {
                self.loose.insert(stream);
            }
            Note::Report(report) => member.report = Some(report),
            Note::Withdrawn => member.withdrawn = true,
            Note::Checked => member.checked = true,
            Note::Talked(attempts) => member.talked = Some(attempts),
            Note::Figures(figures) => self.figures.add(&figures),
            Note::Fault(text) => {
                return Err(Trouble::Fault {
                    node,
                    look: text.starts_with("memory"),
                    text,
                });
            }
        }
        Ok(())
    }

    /// Handles a closed line: the node has ended, or is about to.
    fn over(&mut self, node: usize) -> Result<(), Trouble> {
        let member = &mut self.members[node];
        let Some(process) = &mut member.process else {
            return Ok(());
        };
        let timeout = Instant::now() + Duration::from_secs(5);
        let status = loop {
            match process.ended() {
                Some(status) => break status,
                None if Instant::now() > timeout => {
                    return Err(fault(node, "it has closed its line and runs".into()));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if member.ending.is_none() || !status.success() {
            return Err(fault(node, format!("it has ended: {status}")));
        }
        member.past.push(process.recorder.text());
        member.process = None;
        member.ending = None;
        member.frozen = None;
        Ok(())
    }
}

impl Member {
    fn new() -> Self {
        Self {
            life: 0,
            process: None,
            past: Vec::new(),
            ready: false,
            owed: 0,
            heard: Instant::now(),
            frozen: None,
            ending: None,
            disturbed: false,
            report: None,
            withdrawn: false,
            checked: false,
            talked: None,
        }
    }
}

/// Makes a fault of a node that needs no further data.
pub(crate) fn fault(node: usize, text: String) -> Trouble {
    Trouble::Fault {
        node,
        text,
        look: false,
    }
}

/// Claims endpoint numbers that no other director uses; returns the claim, too.
fn claim_endpoints(place: u64) -> (u32, UnixDatagram) {
    let begin = u64::from(std::process::id()) * 131 + place;
    for more in 0.. {
        // Below the numbers that other test programs claim (c_tests/support/ids.h).
        let base = 1024 + ((begin + more) % 640) as u32 * 8;
        let name = format!("bmi-mx-torture-{base}");
        let claimed =
            SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        match claimed {
            Ok(socket) => return (base, socket),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    unreachable!("the loop has no end")
}

/// Maximum number of steps given to a node and not done.
const WINDOW: usize = 48;
/// Longer than anything takes, with every time-out of the library and on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(25);
