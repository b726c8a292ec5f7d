//! A counterpart in a process of its own, which can be stopped, killed and started again.
//!
//! ```text
//!   start ---> "ready on ..." ---> stop / go on / kill ---> end of its output ---> buried
//!                  `-- when, and when its output ended, a thread of its own notes --'
//! ```
//!
//! Owns: the process; it ends with this value.

use crate::args::{Args, Port};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Silence over a fabric after which a peer is dead, here: the smallest there is.
pub(crate) const KEEPALIVE_MS: u64 = 1000;
const KEEPALIVE: &str = "MX_RDM_KEEPALIVE_MS";

/// Longest that any process here is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Counterpart {
    child: Child,
    address: String,
    said: Receiver<(Instant, Said)>,
    /// When its output ended.
    buried: Option<Instant>,
}

enum Said {
    Ready,
    /// The system has closed its output.
    End,
}

/// This program again, in another role.
pub(crate) fn command(args: &Args, port: Port, role: &[&str]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(role).arg("--library").arg(&args.library);
    command.env("MX_PORT", port.name());
    if let Some(provider) = &args.provider {
        command.env("MX_PROVIDER", provider);
    }
    if std::env::var_os(KEEPALIVE).is_none() {
        command.env(KEEPALIVE, KEEPALIVE_MS.to_string());
    }
    if !args.pin {
        command.arg("--no-pin");
    }
    Ok(command)
}

/// Settings of this process's own method, beside those of its environment.
pub(crate) fn options(more: &str) -> String {
    let keepalive = match std::env::var_os(KEEPALIVE) {
        Some(_) => None,
        None => Some(format!("{KEEPALIVE}={KEEPALIVE_MS}")),
    };
    let more = (!more.is_empty()).then(|| more.to_owned());
    let all: Vec<String> = keepalive.into_iter().chain(more).collect();
    all.join(", ")
}

impl Counterpart {
    /// Starts one on a free endpoint.
    pub(crate) fn start(args: &Args, port: Port) -> Result<Self, String> {
        static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let mut why = String::new();
        for _ in 0..20 {
            let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let endpoint = 1024 + (std::process::id() * 31 + number * 977) % 12000;
            let begun = Self::spawn(args, port, &format!("mx://localhost:{endpoint}"))?;
            match begun.wait_ready() {
                Ok(_) => return Ok(begun),
                Err(error) => why = error,
            }
        }
        Err(format!("no counterpart could be started: {why}"))
    }

    /// Starts one on the address of this one, which has been buried. Does not wait.
    pub(crate) fn again(&self, args: &Args, port: Port) -> Result<Self, String> {
        Self::spawn(args, port, &self.address)
    }

    fn spawn(args: &Args, port: Port, address: &str) -> Result<Self, String> {
        let mut child = command(args, port, &["counterpart", address])?
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting a counterpart: {error}"))?;
        let out = child.stdout.take().ok_or("no output of the counterpart")?;
        let (say, said) = channel();
        std::thread::spawn(move || {
            for _ready in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = say.send((Instant::now(), Said::Ready));
            }
            let _ = say.send((Instant::now(), Said::End));
        });
        Ok(Self {
            child,
            address: address.to_owned(),
            said,
            buried: None,
        })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// When it said that it serves.
    pub(crate) fn wait_ready(&self) -> Result<Instant, String> {
        match self.said.recv_timeout(TIMEOUT) {
            Ok((when, Said::Ready)) => Ok(when),
            Ok((_, Said::End)) => Err(format!("the counterpart on {} ended", self.address)),
            Err(_) => Err(format!("the counterpart on {} says nothing", self.address)),
        }
    }

    /// The same, if it has.
    pub(crate) fn ready(&self) -> Option<Instant> {
        let said = self.said.try_recv().ok()?;
        matches!(said.1, Said::Ready).then_some(said.0)
    }

    /// Returns when it has stopped.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.signal(libc::SIGSTOP)?;
        let pid = self.pid() as libc::pid_t;
        let mut status = 0;
        // SAFETY: room for one status, of a child of ours.
        let rc = unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
        if rc != pid || !libc::WIFSTOPPED(status) {
            return Err(format!("process {pid} did not stop"));
        }
        Ok(())
    }

    pub(crate) fn go_on(&mut self) -> Result<(), String> {
        self.signal(libc::SIGCONT)
    }

    /// `kill -9`; returns at once.
    pub(crate) fn kill(&self) -> Result<(), String> {
        self.signal(libc::SIGKILL)
    }

    /// After `kill`: when the system had closed what it had open.
    pub(crate) fn bury(&mut self) -> Result<Instant, String> {
        if let Some(when) = self.buried {
            return Ok(when);
        }
        loop {
            match self.said.recv_timeout(TIMEOUT) {
                Ok((when, Said::End)) => {
                    self.child.wait().map_err(|error| error.to_string())?;
                    self.buried = Some(when);
                    return Ok(when);
                }
                Ok((_, Said::Ready)) => {}
                Err(_) => return Err(format!("process {} does not end", self.pid())),
            }
        }
    }

    fn signal(&self, signal: libc::c_int) -> Result<(), String> {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        match unsafe { libc::kill(self.pid() as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(format!("signal {signal} to process {}", self.pid())),
        }
    }
}

impl Drop for Counterpart {
    fn drop(&mut self) {
        // A stopped one dies of this, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
