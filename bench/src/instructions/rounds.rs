//! Round trips whose calls are counted, and the peer at their other end.
//!
//! ```text
//!   counted process                       peer, which polls all the time
//!     post_recv
//!     post_send        ------8 B----->    receives
//!     two tests: nothing                  waits for a byte on the pipe
//!     (a byte on a pipe) ------------>
//!                      <-----8 B------    sends
//!     <---------------- (a byte on a pipe)
//!     test: reports the receive
//! ```
//!
//! Each call thus finds what it is meant to find, however much slower than its peer the counted
//! process is. Three tests a round trip: rare work that a library does in each test whose number is a
//! multiple of a power of two falls evenly on those that find something and those that do not.
//!
//! Owns: the order, and the functions whose names callgrind's file is searched for.
//! Out of scope: the calls, see `calls`.

use super::calls::{Calls, Method, Ucx};
use crate::args::{Args, Subject};
use crate::{peer, pin};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Number of counted round trips.
pub(super) const ROUNDS: u64 = 2000;
/// Round trips before them, until memory is mapped, symbols are bound, and the peer is known.
const FIRST: u64 = 200;
/// Function in which callgrind collects.
pub(super) const COUNTED: &str = "counted_rounds";
/// A word on a pipe.
const WORD: &str = ".";

/// Runs the process whose calls are counted.
pub(crate) fn count(args: &Args, subject: Subject) -> Result<(), String> {
    if args.pin {
        pin::to_core(0);
    }
    let mut other = Other::start(args, subject)?;
    match subject {
        Subject::Method => counted(Method::connect(&args.library, &other.address)?, &mut other)?,
        Subject::Ucx => {
            let (calls, address) = Ucx::connect(&other.address)?;
            other.say(&format!("{address}\n"))?;
            counted(calls, &mut other)?;
        }
    }
    Ok(())
}

fn counted<C: Calls>(mut calls: C, other: &mut Other) -> Result<(), String> {
    for _ in 0..FIRST {
        round(&mut calls, other)?;
    }
    counted_rounds(&mut calls, other)?;
    // Ends the peer first, so that it does not notice this process's exit.
    other.end();
    Ok(())
}

#[inline(never)]
fn counted_rounds<C: Calls>(calls: &mut C, other: &mut Other) -> Result<(), String> {
    for _ in 0..ROUNDS {
        round(calls, other)?;
    }
    Ok(())
}

fn round<C: Calls>(calls: &mut C, other: &mut Other) -> Result<(), String> {
    let unusual = |what: &str| Err(format!("{what}: its instructions are not those of a call"));
    if counted_post_recv(calls)? {
        return unusual("a receive was complete at once");
    }
    if !counted_post_send(calls)? {
        return unusual("a send was not complete at once");
    }
    if counted_test_nothing(calls)? + calls.test()? != 0 {
        return unusual("a test found something before it was sent");
    }
    other.ask_for_message()?;
    if counted_test_report(calls)? != 1 {
        return unusual("a test did not report what had been sent");
    }
    Ok(())
}

#[inline(never)]
fn counted_post_recv<C: Calls>(calls: &mut C) -> Result<bool, String> {
    calls.post_recv()
}

#[inline(never)]
fn counted_post_send<C: Calls>(calls: &mut C) -> Result<bool, String> {
    calls.post_send()
}

#[inline(never)]
fn counted_test_nothing<C: Calls>(calls: &mut C) -> Result<usize, String> {
    // The compiler merges functions with the same code, and keeps one name.
    std::hint::black_box("nothing");
    calls.test()
}

#[inline(never)]
fn counted_test_report<C: Calls>(calls: &mut C) -> Result<usize, String> {
    std::hint::black_box("a report");
    calls.test()
}

/// The peer, as seen from the counted process.
struct Other {
    child: Child,
    /// Input of the peer; dropping it ends the peer.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    address: String,
}

impl Other {
    fn start(args: &Args, subject: Subject) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        crate::tests::on_free_endpoint(|address| {
            let mut command = Command::new(&program);
            command.args(["counted-peer", subject.name(), address]);
            command.arg("--library").arg(&args.library);
            if !args.pin {
                command.arg("--no-pin");
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command
                .spawn()
                .map_err(|error| format!("starting the peer: {error}"))?;
            let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("a peer without pipes".into());
            };
            let mut other = Self {
                child,
                orders: Some(orders),
                answers: BufReader::new(answers),
                address: String::new(),
            };
            let said = other.answers.read_line(&mut other.address);
            other.address.truncate(other.address.trim_end().len());
            Ok(said.is_ok_and(|len| len > 0).then_some(other))
        })
    }

    /// Asks the peer for a message; returns when it has been sent.
    fn ask_for_message(&mut self) -> Result<(), String> {
        self.say(WORD)?;
        let answer = self.answers.read_exact(&mut [0]);
        answer.map_err(|error| format!("the peer ended: {error}"))
    }

    fn say(&mut self, words: &str) -> Result<(), String> {
        let Some(orders) = &mut self.orders else {
            return Err("a peer that was told to end".into());
        };
        let said = orders.write_all(words.as_bytes());
        said.map_err(|error| format!("the peer ended: {error}"))
    }

    /// Ends the peer by closing its input.
    fn end(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs the peer, until standard input ends.
pub(crate) fn answer(args: &Args, subject: Subject, address: &str) -> Result<(), String> {
    if args.pin {
        pin::to_core(1);
    }
    peer::end_with_parent();
    match subject {
        Subject::Method => {
            let listening = Method::listen(&args.library, address)?;
            say(&format!("{address}\n"))?;
            answers(listening.accept()?)
        }
        Subject::Ucx => {
            let (listening, address) = Ucx::open()?;
            say(&format!("{address}\n"))?;
            let mut other = String::new();
            let read = std::io::stdin().read_line(&mut other);
            read.map_err(|error| error.to_string())?;
            answers(listening.to(other.trim_end())?)
        }
    }
}

fn answers<C: Calls>(mut calls: C) -> Result<(), String> {
    loop {
        let mut pending = usize::from(!calls.post_recv()?);
        // The last wait ends without a message.
        while !asked()? {
            pending -= calls.test()?;
        }
        let mut word = [0];
        if !matches!(std::io::stdin().read(&mut word), Ok(1)) {
            return Ok(());
        }
        pending += usize::from(!calls.post_send()?);
        while pending > 0 {
            pending -= calls.test()?;
        }
        say(WORD)?;
    }
}

fn say(words: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(words.as_bytes()).and_then(|()| out.flush());
    said.map_err(|error| error.to_string())
}

/// Returns whether standard input is readable, or has ended.
fn asked() -> Result<bool, String> {
    let mut input = libc::pollfd {
        fd: libc::STDIN_FILENO,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one descriptor, and no waiting.
    match unsafe { libc::poll(&mut input, 1, 0) } {
        count @ 0.. => Ok(count > 0),
        _ => Err(format!("poll: {}", std::io::Error::last_os_error())),
    }
}
