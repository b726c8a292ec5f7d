//! A side of a busy stream, over the method or over bare TCP.
//!
//! ```text
//!   server: "ready on PLACE"      client: asks ---> stream ---> end        each reports its cost
//! ```

use super::{WINDOW, Way};
use crate::args::Args;
use crate::bmi::Bmi;
use crate::messages::Messages;
use crate::peer::end_with_parent;
use bmi_host::method::{Address, Memory, Posted, Verb};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::time::Instant;

const TAG: i32 = 1;
/// Tag of the byte that tells that everything has been written.
const END: i32 = 2;
/// Idle time of a test call in milliseconds, as in hosts.
const IDLE_MS: i32 = 10;

/// Takes part in one stream, and prints its cost.
pub(crate) fn run(
    args: &Args,
    server: bool,
    place: &str,
    way: &str,
    size: usize,
    count: usize,
) -> Result<(), String> {
    end_with_parent();
    let way = if way == Way::In.name() {
        Way::In
    } else {
        Way::Out
    };
    let plan = Plan {
        server,
        sends: server == (way == Way::Out),
        size,
        count,
    };
    if place.starts_with("mx://") {
        method(args, &plan, place)
    } else {
        bare(&plan, place).map_err(|error| format!("bare TCP: {error}"))
    }
}

struct Plan {
    server: bool,
    sends: bool,
    size: usize,
    count: usize,
}

fn method(args: &Args, plan: &Plan, place: &str) -> Result<(), String> {
    let bmi = Bmi::start(&args.library, plan.server.then_some(place))?;
    let (peer, meter) = if plan.server {
        ready(place)?;
        (bmi.next_request()?.0, Meter::start())
    } else {
        let peer = bmi.lookup(place)?;
        ready(place)?;
        let meter = Meter::start();
        bmi.request(peer, &[])?;
        (peer, meter)
    };
    let mut end = [1u8];
    if plan.sends {
        transfer(&bmi, peer, plan, Verb::Send, |_, _| Ok(()))?;
        // SAFETY: waited for right below.
        if !unsafe { bmi.recv(peer, &mut end, END)? } {
            bmi.wait(1, IDLE_MS)?;
        }
        meter.stop(None);
    } else {
        let mut work = Work::new(meter.start).map_err(|error| error.to_string())?;
        transfer(&bmi, peer, plan, Verb::Recv, |n, bytes| {
            work.write(n, bytes).map_err(|error| error.to_string())
        })?;
        // SAFETY: waited for right below.
        if !unsafe { bmi.send(peer, &end, END)? } {
            bmi.wait(1, IDLE_MS)?;
        }
        meter.stop(work.first_ms);
    }
    Ok(())
}

/// Moves all messages, `WINDOW` at a time. `done` may use each buffer until it is posted again.
fn transfer(
    bmi: &Bmi,
    peer: Address,
    plan: &Plan,
    verb: Verb,
    mut done: impl FnMut(usize, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut buffers = buffers(plan.size);
    let (mut posted, mut over) = (0, 0);
    let mut free: Vec<usize> = (0..buffers.len()).rev().collect();
    let mut ended = Vec::new();
    while over < plan.count {
        while posted < plan.count
            && let Some(at) = free.pop()
        {
            let memory = Memory::One(buffers[at].as_mut_ptr(), plan.size);
            // SAFETY: the buffer lives on, and is touched again only when the operation is over:
            // an error ends the process.
            match unsafe { bmi.post(verb, peer, TAG, memory, at) } {
                Posted::Pending(_) => {}
                Posted::Complete(_) => {
                    done(over, &buffers[at])?;
                    over += 1;
                    free.push(at);
                }
                Posted::Refused(code) => return Err(format!("a post: {code}")),
            }
            posted += 1;
        }
        if over == plan.count {
            break;
        }
        bmi.completions(IDLE_MS, &mut ended)?;
        for one in ended.drain(..) {
            if one.error != 0 {
                return Err(format!("an operation ended with {}", one.error));
            }
            done(over, &buffers[one.user])?;
            over += 1;
            free.insert(0, one.user);
        }
    }
    Ok(())
}

fn bare(plan: &Plan, place: &str) -> std::io::Result<()> {
    let said = |error: String| std::io::Error::other(error);
    let (mut peer, meter) = if plan.server {
        let listener = TcpListener::bind(place)?;
        ready(&listener.local_addr()?.to_string()).map_err(said)?;
        let mut peer = listener.accept()?.0;
        peer.read_exact(&mut [0])?;
        (peer, Meter::start())
    } else {
        ready(place).map_err(said)?;
        let mut peer = TcpStream::connect(place)?;
        let meter = Meter::start();
        peer.write_all(&[1])?;
        (peer, meter)
    };
    peer.set_nodelay(true)?;
    let mut buffers = buffers(plan.size);
    if plan.sends {
        for n in 0..plan.count {
            peer.write_all(&buffers[n % WINDOW])?;
        }
        peer.read_exact(&mut [0])?;
        meter.stop(None);
    } else {
        let mut work = Work::new(meter.start)?;
        for n in 0..plan.count {
            let buffer = &mut buffers[n % WINDOW];
            peer.read_exact(buffer)?;
            work.write(n, buffer)?;
        }
        peer.write_all(&[1])?;
        meter.stop(work.first_ms);
    }
    Ok(())
}

fn ready(place: &str) -> Result<(), String> {
    println!("ready on {place}");
    std::io::stdout().flush().map_err(|error| error.to_string())
}

fn buffers(size: usize) -> Vec<Vec<u8>> {
    (0..WINDOW).map(|_| vec![1u8; size]).collect()
}

/// Work of the receiver: writes each message to a file in memory.
struct Work {
    file: File,
    start: Instant,
    first_ms: Option<f64>,
}

impl Work {
    fn new(start: Instant) -> std::io::Result<Self> {
        // SAFETY: a C string.
        let fd = unsafe { libc::memfd_create(c"received".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: just made, and owned by nothing else.
            file: unsafe { File::from_raw_fd(fd) },
            start,
            first_ms: None,
        })
    }

    fn write(&mut self, n: usize, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, (n * bytes.len()) as u64)?;
        if n + 1 == WINDOW {
            self.first_ms = Some(milliseconds(self.start));
        }
        Ok(())
    }
}

/// Meter of time, processor time and sleeps of this process since its start.
struct Meter {
    start: Instant,
    cpu_ms: f64,
    sleeps: i64,
}

impl Meter {
    fn start() -> Self {
        let (cpu_ms, sleeps) = used();
        Self {
            start: Instant::now(),
            cpu_ms,
            sleeps,
        }
    }

    /// Prints the figures.
    fn stop(self, first_ms: Option<f64>) {
        let wall_ms = milliseconds(self.start);
        let (cpu_ms, sleeps) = used();
        println!(
            "{wall_ms} {} {} {}",
            first_ms.unwrap_or(0.0),
            cpu_ms - self.cpu_ms,
            sleeps - self.sleeps
        );
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Returns milliseconds of processor time, and sleeps, of all threads.
fn used() -> (f64, i64) {
    // SAFETY: zeros are a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for one.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    (ms(usage.ru_utime) + ms(usage.ru_stime), usage.ru_nvcsw)
}
