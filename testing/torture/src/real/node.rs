//! A node: carries out orders, and checks everything it receives.
//!
//! ```text
//!   line --> order --> operations: post, cancel, ... --> libbmi_mx.so
//!     ^                  |
//!     `-- note <---------'   the first fault is the last note
//! ```

use super::alarm;
use super::args::{Args, Place};
use super::bmi::{self, CONTEXTS, record};
use super::drain::Drain;
use super::line::{Heard, Line, RECORDER_FD};
use super::notes::{self, Note, Order};
use super::operations::Operations;
use super::recorder::Recorder;
use super::sockets;
use super::talk::{self, Talk};
use bmi_host::codes::EADDRINUSE;
use bmi_host::method::Address;
use bmi_mx_torture::program::UNEXPECTED_TAG;
use bmi_mx_torture::{Action, Side, Step, Stream, Verb};
use std::collections::HashSet;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A node of a program.
struct Node {
    operations: Operations,
    line: Line,
    port: &'static str,
    /// Streams that the director knows to be loose.
    loose: HashSet<Stream>,
    drain: Option<Drain>,
    talk: Option<Talk>,
    ending: bool,
}

/// Runs until it is told to end, or finds a fault.
pub(crate) fn run(args: &Args, place: &Place) -> ExitCode {
    let line = Line::inherited();
    // SAFETY: the director has put it there for this process, and it is not taken elsewhere.
    let memory = unsafe { OwnedFd::from_raw_fd(RECORDER_FD) };
    if let Ok(recorder) = Recorder::open(&memory) {
        bmi::record_in(recorder);
    }
    drop(memory);
    alarm::install();
    let fault = match serve(args, place, line) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(fault) => fault,
    };
    record(&format!("fault: {}", fault.text));
    let _ = fault.line.say(&notes::text(&Note::Fault(fault.text)));
    ExitCode::from(alarm::FAULT_EXIT as u8)
}

/// A fault, and the line on which to report it.
struct Wrong {
    line: Line,
    text: String,
}

fn serve(args: &Args, place: &Place, line: Line) -> Result<(), Wrong> {
    let method = match bmi::load(&args.library) {
        Ok(method) => method,
        Err(text) => return Err(Wrong { line, text }),
    };
    let before = (sockets::descriptors(), sockets::threads());
    let name = bmi::name_of(place, place.index);
    let listen = match method.start(Some(&name), "", CONTEXTS) {
        Ok(listen) => listen,
        Err(failed) if failed.code == EADDRINUSE => {
            let _ = line.say(&notes::text(&Note::Taken));
            return Ok(());
        }
        Err(failed) => {
            let text = failed.into();
            return Err(Wrong { line, text });
        }
    };
    let seed = args.seed ^ (place.index as u64) << 40 ^ u64::from(place.life) << 48;
    let mut node = Node {
        operations: Operations::new(method, place, seed),
        line,
        port: args.port,
        loose: HashSet::new(),
        drain: None,
        talk: None,
        ending: false,
    };
    let outcome = node.go_on().and_then(|()| node.end(&before, listen));
    outcome.map_err(|text| Wrong {
        line: node.line,
        text,
    })
}

impl Node {
    fn go_on(&mut self) -> Result<(), String> {
        self.say(&Note::Ready)?;
        while !self.ending {
            let mut busy = false;
            // Not all at once, so that some are done while messages arrive.
            for _ in 0..1 + self.operations.rng.index(8) {
                match self.line.hear() {
                    Heard::Text(text) => {
                        let order = notes::parse(&text);
                        let order = order.ok_or_else(|| format!("no order: {text}"))?;
                        self.obey(order)?;
                        busy = true;
                    }
                    Heard::Nothing => break,
                    Heard::Gone => return Err("the director is gone".into()),
                }
            }
            for (by, tag) in self.operations.unexpected()? {
                talk::answer(&mut self.operations, by, tag)?;
                busy = true;
            }
            // Sometimes later, so that an operation is posted after the session has ended.
            if self.operations.rng.chance(0.3) {
                let method = self.operations.method;
                self.operations.peers.drop_those_over(method);
            }
            for context in 0..CONTEXTS {
                let last = context == CONTEXTS - 1;
                let idle_ms = if last && !busy { IDLE_MS } else { 0 };
                busy |= self.operations.test(context, idle_ms)?;
            }
            let over = self.operations.take_over();
            if let Some(drain) = &mut self.drain {
                drain.step(&mut self.operations, &over)?;
            }
            if let Some(talk) = &mut self.talk
                && let Some(attempts) = talk.step(&mut self.operations, &over)?
            {
                self.talk = None;
                self.say(&Note::Talked(attempts))?;
            }
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Do(fates, step) => {
                self.operations.fates = fates;
                self.step(&step)?;
                self.say(&Note::Done)
            }
            Order::Report => {
                if let Some(talk) = &self.talk {
                    record(&format!("not talked to yet: {:?}", talk.left()));
                }
                self.say(&Note::Report(self.operations.report()))
            }
            Order::Drain { tags, len, nodes } => {
                self.drain = Some(Drain::begin(&nodes, tags, len));
                Ok(())
            }
            Order::Withdraw(fates) => {
                self.operations.fates = fates;
                self.drain = None;
                for label in self.operations.outstanding() {
                    self.cancel(label)?;
                }
                self.say(&Note::Withdrawn)
            }
            Order::Check(loose) => {
                self.operations.check_order(&loose)?;
                self.operations.give_all_back()?;
                self.say(&Note::Checked)
            }
            Order::Talk(with) => {
                self.talk = Some(Talk::begin(&with));
                Ok(())
            }
            Order::Finalize => {
                self.ending = true;
                Ok(())
            }
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        record(&format!("step: {step}"));
        match &step.action {
            Action::Post {
                verb,
                to,
                tag,
                len,
                pieces,
            } => {
                let with = self.operations.node(*to)?;
                self.operations.post(*verb, with, *tag, *len, *pieces)?;
            }
            Action::Cancel { which } => {
                let labels = self.operations.outstanding();
                if !labels.is_empty() {
                    self.cancel(labels[*which as usize % labels.len()])?;
                }
            }
            Action::Connect { to } => {
                let method = self.operations.method;
                let with = self.operations.peers.look_up(method, *to)?;
                self.operations
                    .post(Verb::SendUnexpected, with, UNEXPECTED_TAG, 40, 1)?;
            }
            Action::Drop { to } if *to != self.operations.me() => {
                let all = [Side::Caller, Side::Called];
                let sides = self.operations.rng.pick(&[&all[..], &all[..1], &all[1..]]);
                let method = self.operations.method;
                self.operations.peers.drop(method, |peer| {
                    peer.node == *to && sides.contains(&peer.side)
                });
            }
            Action::Reset { .. } if self.port == "tcp" => {
                let reset = sockets::reset_one(&mut self.operations.rng);
                record(&format!("reset: {reset}"));
            }
            // Orders for the director.
            _ => {}
        }
        Ok(())
    }

    fn cancel(&mut self, label: u64) -> Result<(), String> {
        if let Some(stream) = self.operations.loosens(label) {
            // Reported first, so that it is known whatever happens to this process.
            if self.loose.insert(stream) {
                self.say(&Note::Loose(stream))?;
            }
        }
        self.operations.cancel(label)
    }

    fn say(&self, note: &Note) -> Result<(), String> {
        let said = self.line.say(&notes::text(note));
        said.map_err(|error| format!("the director does not listen: {error}"))
    }

    /// Finalizes, and checks what is left.
    fn end(&mut self, before: &(Vec<i32>, usize), listen: Option<Address>) -> Result<(), String> {
        self.operations.be_alone()?;
        self.operations.give_all_back()?;
        self.say(&Note::Figures(Box::new(self.operations.figures.clone())))?;
        let begin = Instant::now();
        let rc = self.operations.method.finalize(CONTEXTS);
        if rc != 0 {
            return Err(format!("finalize: {}", bmi_host::codes::name(rc)));
        }
        record(&format!("finalized in {:?}", begin.elapsed()));
        for news in bmi::news() {
            if let bmi::News::Wrong(text) = news {
                return Err(text);
            }
        }
        self.operations.peers.drop(self.operations.method, |_| true);
        if let Some(listen) = listen {
            self.operations.method.drop_address(listen);
        }
        // libfabric keeps some of each until the process ends.
        if self.port == "rdm" {
            return Ok(());
        }
        // A joined thread may be listed for a moment.
        let timeout = Instant::now() + Duration::from_secs(2);
        loop {
            let (fds, threads) = (sockets::descriptors(), sockets::threads());
            if fds == before.0 && threads == before.1 {
                return Ok(());
            }
            if Instant::now() > timeout {
                return Err(format!(
                    "after finalize: descriptors {fds:?}, {threads} threads; before {before:?}"
                ));
            }
            std::thread::yield_now();
        }
    }
}

/// Idle time of a test call in milliseconds, with nothing to do.
const IDLE_MS: i32 = 2;
