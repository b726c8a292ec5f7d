//! A bad link between two network interfaces, for kernels without netem.
//!
//! ```text
//!   host's namespace       the namespace this runs in         host's namespace
//!      side0 ===veth=== A --> Wire --> Line forth --> Wire --> B ===veth=== side0
//!                         <-- Wire <-- Line back  <-- Wire <--
//! ```
//!
//! Owns: the loop that moves frames, and the clock.
//! Out of scope: the treatment of frames (`line`), access to an interface (`wire`).

mod args;
mod line;
mod plain;
mod wire;

use args::{Plan, Task};
use line::Line;
use mx_proto::Instant;
use mx_sim::rng::Rng;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::ffi::OsString;
use std::io::{Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;
use wire::Wire;

/// Frames taken from one interface before the other's turn.
const BATCH: usize = 64;

/// Largest frame of a veth pair with its offloads on.
const FRAME_MAX: usize = (64 << 10) + 64;

/// An Ethernet frame at the usual MTU. A larger one shows that the offloads are on.
const CABLE_FRAME: usize = 1514;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let done = match args::read(&words).unwrap_or_else(|error| error.exit()) {
        Task::Plain(interfaces) => make_plain(&interfaces),
        Task::Link(plan) => be_the_link(&plan),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mx_shaper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_plain(interfaces: &[String]) -> Result<(), String> {
    for interface in interfaces {
        plain::make_plain(interface).map_err(|error| format!("{interface}: {error}"))?;
    }
    Ok(())
}

fn be_the_link(plan: &Plan) -> Result<(), String> {
    let open = |name: &String| Wire::open(name).map_err(|error| format!("{name}: {error}"));
    make_plain(&plan.ends)?;
    let wires = [open(&plan.ends[0])?, open(&plan.ends[1])?];
    let mut rng = Rng::new(plan.seed);
    let mut lines = plan.ways.map(|way| Line::new(&way, rng.fork()));
    say("ready");
    let ended = forward(&wires, &mut lines).map_err(|error| error.to_string());
    for (way, line) in lines.iter_mut().enumerate() {
        line.count_many("missed by mx_shaper itself", wires[way].missed());
        let [from, to] = [&plan.ends[way], &plan.ends[1 - way]];
        say(&format!("{from} to {to}: {line}"));
    }
    ended
}

/// Prints for the parent. If the parent has exited, standard input ends as well.
fn say(line: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Forwards frames until standard input ends.
fn forward(wires: &[Wire; 2], lines: &mut [Line; 2]) -> Result<(), Errno> {
    let clock = Clock::start();
    let input = stdin();
    let mut frame = vec![0; FRAME_MAX];
    loop {
        let now = clock.now();
        for (way, line) in lines.iter_mut().enumerate() {
            while let Some(frame) = line.due(now) {
                if !wires[1 - way].send(&frame) {
                    line.count("refused by the interface");
                }
            }
        }
        let next = lines.iter().filter_map(Line::next).min();
        let wait = next.map(|next| TimeSpec::from_duration(next.since(clock.now())));
        let mut ready = [wires[0].as_fd(), wires[1].as_fd(), input.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut ready, wait, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let [first, second, input_ready] = ready.map(|fd| fd.any().unwrap_or(false));
        for (way, _) in [first, second].iter().enumerate().filter(|(_, is)| **is) {
            for _ in 0..BATCH {
                let Some(len) = wires[way].receive(&mut frame)? else {
                    break;
                };
                if len > CABLE_FRAME {
                    lines[way].count("larger than a cable carries");
                }
                let now = clock.now();
                lines[way].take(now, &frame[..len]);
            }
        }
        if input_ready && !matches!(stdin().lock().read(&mut [0; 64]), Ok(1..)) {
            return Ok(());
        }
    }
}

/// Clock of the machine, in the simulator's unit.
struct Clock {
    start: std::time::Instant,
}

impl Clock {
    fn start() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }

    fn now(&self) -> Instant {
        let nanos = Duration::as_nanos(&self.start.elapsed());
        // Enough for 584 years.
        Instant(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
