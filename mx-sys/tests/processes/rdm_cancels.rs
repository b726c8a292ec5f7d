//! Cancels over the fabric: the time until memory comes back; it is not touched afterwards.
//!
//! ```text
//!   this process                              the same program as "child peer"
//!     cancels at random moments                 receives and sends whatever it can, for ever
//!       small, slot, large out, large in        |
//!                                               runs | is stopped | has been killed
//! ```
//!
//! Every buffer is overwritten when its cancel has returned, and compared a good while later; every
//! second one cannot be reached at all meanwhile. Times are printed as median, 99 %, 99.9 %, longest.
//!
//! `RDM_CANCELS=10000` makes as many cancels in each state of the peer and prints how long they took.

use crate::cases;
use crate::node::{LONG, Node};
use crate::peer::{FROM_PEER, LARGE, NOWHERE, Peer, TO_PEER, options};
use mx_proto::{Config, Posted, Received, RemoteId, RequestId};
use mx_sim::Cancelled;
use mx_sys::RdmError;
use mx_sys::{EndpointChoice, OpenError};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Every class of message there is on this provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Small,
    Slot,
    LargeOut,
    LargeIn,
}

const CLASSES: [Class; 4] = [Class::Small, Class::Slot, Class::LargeOut, Class::LargeIn];

/// The state of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Runs,
    Stopped,
    Killed,
}

const SMALL: usize = 8;
const SLOT: usize = 12_000;

/// Longer than any of this takes: what a cancel does is shown, not what a time-out does.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Operations under way at a time.
const WINDOW: usize = 6;

/// The bar of this project: median and maximum.
const MEDIAN: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(10);

pub(crate) fn run() -> ExitCode {
    if let Err(OpenError::Rdm(RdmError::NoLibrary(why))) = open() {
        println!("NOT TESTED: {why}");
        return ExitCode::SUCCESS;
    }
    log::set_logger(&LOGGER).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let cancels = std::env::var("RDM_CANCELS").ok();
    let cancels: Option<usize> = cancels.and_then(|text| text.parse().ok());
    let cases = [State::Runs, State::Stopped, State::Killed].map(|state| {
        let case = move || {
            let times = campaign(state, cancels.unwrap_or(400));
            assert!(!times.report(state, cancels.is_some()), "too long");
        };
        (format!("{state:?}"), case)
    });
    cases::run("rdm_cancels", cases)
}

fn open() -> Result<Node, OpenError> {
    let options = options(EndpointChoice::Any, KEEPALIVE);
    Node::open(options, Config::default(), true)
}

/// Cancels until there have been so many.
fn campaign(state: State, count: usize) -> Times {
    let mut random = Random(0x5eed + count as u64);
    let mut times = Times::default();
    while times.all.len() < count {
        let server = Peer::start(None, KEEPALIVE, true);
        let node = open().unwrap();
        let to = node.connect(server.target()).unwrap();
        let mut world = World::new(node, to);
        world.warm(&mut random);
        match state {
            State::Runs => {
                world.cancel_some(&mut random, &mut times, count, Duration::from_millis(3))
            }
            State::Stopped | State::Killed => {
                world.fill(&mut random);
                world.pause(random.below(3_000));
                server.signal(if state == State::Killed {
                    libc::SIGKILL
                } else {
                    libc::SIGSTOP
                });
                let most = count.min(times.all.len() + 200);
                world.cancel_some(&mut random, &mut times, most, Duration::from_micros(300));
                if state == State::Stopped {
                    server.signal(libc::SIGCONT);
                }
            }
        }
        world.check_all();
        drop(world);
        drop(server);
    }
    times
}

/// The times that the cancels took.
#[derive(Default)]
struct Times {
    all: Vec<(Duration, Class)>,
    /// The same in processor time: as they would have taken on a machine of their own.
    work: Vec<Duration>,
    too_late: usize,
}

impl Times {
    /// Prints them; true when they are too long. Judged is the processor's time: what a crowded
    /// machine does to a maximum is not the code's doing. Where the figures were asked for, the clock's
    /// are judged too.
    fn report(self, state: State, strict: bool) -> bool {
        let spread = |mut times: Vec<Duration>| {
            times.sort();
            let at = |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)];
            [at(500), at(990), at(999), at(1000)]
        };
        let wall = spread(self.all.iter().map(|(time, _)| *time).collect());
        let work = spread(self.work);
        println!("peer {state:?}: {} cancels: {wall:?}", self.all.len());
        println!("    at work: {work:?}; {} came too late", self.too_late);
        for class in CLASSES {
            let of = self.all.iter().filter(|(_, c)| *c == class);
            let of: Vec<Duration> = of.map(|(time, _)| *time).collect();
            if !of.is_empty() {
                println!("    {class:?}: {} cancels: {:?}", of.len(), spread(of));
            }
        }
        assert_eq!(
            LOGGER.count(),
            0,
            "the provider reached for what was given back"
        );
        let [median, .., longest] = work;
        let mut long = median > MEDIAN || longest > LONGEST * 2;
        if strict {
            let [median, .., longest] = wall;
            long |= median > MEDIAN || longest > LONGEST;
        }
        long
    }
}

/// A buffer with pages of its own.
struct Buffer {
    start: *mut u8,
    len: usize,
}

impl Buffer {
    fn new() -> Self {
        // SAFETY: a mapping of its own, at any place.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LARGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            start: start.cast(),
            len: LARGE,
        }
    }

    fn protect(&self, protection: i32) {
        // SAFETY: our own mapping, which no reference points into.
        let result = unsafe { libc::mprotect(self.start.cast(), self.len, protection) };
        assert_eq!(result, 0);
    }

    #[expect(clippy::mut_from_ref, reason = "the mapping is its own")]
    fn bytes(&self, len: usize) -> &mut [u8] {
        // SAFETY: mapped, and not used otherwise while it is looked at.
        unsafe { std::slice::from_raw_parts_mut(self.start, len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: our own mapping.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// An operation under way.
struct Under {
    class: Class,
    request: RequestId,
    context: u64,
    buffer: Buffer,
}

/// A buffer that was given back.
struct Given {
    buffer: Buffer,
    fill: u8,
    len: usize,
    hidden: bool,
}

struct World {
    node: Node,
    to: RemoteId,
    next: u64,
    under: Vec<Under>,
    given: Vec<Given>,
    spare: Vec<Buffer>,
}

impl World {
    fn new(node: Node, to: RemoteId) -> Self {
        Self {
            node,
            to,
            next: 1,
            under: Vec::new(),
            given: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Moves large messages both ways.
    fn warm(&mut self, random: &mut Random) {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(150) {
            self.fill(random);
            self.pause(2_000);
            self.reap();
        }
    }

    /// As many operations as may be under way.
    fn fill(&mut self, random: &mut Random) {
        let mut tries = 0;
        while self.under.len() < WINDOW && tries < 3 * WINDOW {
            tries += 1;
            self.post(CLASSES[random.below(4) as usize], random);
        }
    }

    fn post(&mut self, class: Class, random: &mut Random) {
        let buffer = self.spare.pop().unwrap_or_else(Buffer::new);
        self.next += 1;
        let context = self.next;
        let (len, bits) = match class {
            Class::Small => (SMALL, NOWHERE),
            Class::Slot => (SLOT, NOWHERE),
            Class::LargeOut | Class::LargeIn => (LARGE - random.below(2 << 20) as usize, TO_PEER),
        };
        let known = self
            .node
            .shared
            .lock()
            .endpoint
            .remote_identity(self.to)
            .is_some();
        let request = if class == Class::LargeIn {
            match self.node.post(FROM_PEER, buffer.bytes(LARGE), context) {
                Received::Pending(request) => Some(request),
                Received::Complete(_) => None,
            }
        } else if known {
            match self.node.send(self.to, bits, buffer.bytes(len), context) {
                Posted::Pending(request) => Some(request),
                Posted::Complete => None,
            }
        } else {
            None
        };
        match request {
            Some(request) => self.under.push(Under {
                class,
                request,
                context,
                buffer,
            }),
            None => self.spare.push(buffer),
        }
    }

    fn pause(&mut self, micros: u64) {
        let until = Instant::now() + Duration::from_micros(micros);
        while Instant::now() < until {
            self.node
                .try_done(u64::MAX, Duration::from_micros(micros.min(200)));
        }
    }

    /// Takes out what has completed.
    fn reap(&mut self) -> usize {
        let mut engine = self.node.shared.lock();
        let mut reaped = 0;
        while let Some(done) = engine.done.pop_front() {
            if let Some(at) = self
                .under
                .iter()
                .position(|under| under.context == done.context)
            {
                self.spare.push(self.under.swap_remove(at).buffer);
                reaped += 1;
            }
        }
        reaped
    }

    fn cancel_some(
        &mut self,
        random: &mut Random,
        times: &mut Times,
        most: usize,
        pause: Duration,
    ) {
        let begin = Instant::now();
        while times.all.len() < most && begin.elapsed() < LONG {
            self.fill(random);
            if self.under.is_empty() {
                return;
            }
            self.pause(random.below(pause.as_micros() as u64));
            self.reap();
            if self.under.is_empty() {
                continue;
            }
            let at = random.below(self.under.len() as u64) as usize;
            let Under {
                class,
                request,
                buffer,
                context,
            } = self.under.swap_remove(at);
            let (begin, work) = (Instant::now(), thread_time());
            let cancelled = self.node.cancel(request);
            let took = begin.elapsed();
            let work = thread_time() - work;
            if cancelled == Cancelled::Unknown {
                times.too_late += 1;
                self.node.done(context);
                self.spare.push(buffer);
                continue;
            }
            times.all.push((took, class));
            times.work.push(work);
            self.give(buffer, random);
        }
    }

    /// A buffer is ours again: the library must not write to it, nor even read it.
    fn give(&mut self, buffer: Buffer, random: &mut Random) {
        let fill = random.below(256) as u8;
        let hidden = random.below(2) == 0;
        let len = 64 << 10;
        buffer.bytes(len).fill(fill);
        if hidden {
            buffer.protect(libc::PROT_NONE);
        }
        self.given.push(Given {
            buffer,
            fill,
            len,
            hidden,
        });
        if self.given.len() > 32 {
            let given = self.given.remove(0);
            self.check(given);
        }
    }

    fn check(&mut self, given: Given) {
        if given.hidden {
            given.buffer.protect(libc::PROT_READ | libc::PROT_WRITE);
        }
        let bytes = given.buffer.bytes(given.len);
        assert!(
            bytes.iter().all(|byte| *byte == given.fill),
            "memory was touched after its cancel"
        );
        self.spare.push(given.buffer);
    }

    fn check_all(&mut self) {
        for given in std::mem::take(&mut self.given) {
            self.check(given);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for under in std::mem::take(&mut self.under) {
            self.node.cancel(under.request);
        }
        self.node.shared.lock().endpoint.close();
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: an output of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Counts faults: a provider that reaches for memory that was given back is told by the kernel.
struct Logger(AtomicUsize);

static LOGGER: Logger = Logger(AtomicUsize::new(0));

impl Logger {
    fn count(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.args().to_string().contains("Bad address") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}
