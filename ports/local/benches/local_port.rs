//! The `local` port beside a bare ring, between two processes.
//!
//! `cargo bench -p mx-sys --bench local_port [-- quick]`
//!
//! Blocks of the bare ring and of the port follow each other in turn, so that whatever else the
//! machine does meets both. Printed are the medians of each, and the median of the ratios of
//! neighbouring blocks with the spread of its middle half. The reference of the last line is an
//! eventfd and `poll(2)`.

mod bare_ring;

use bare_ring::{CHUNK, End, RING_LEN};
use mx_port_base::clock::MonotonicClock;
use mx_port_local::LocalPort;
use mx_proto::port::{Body, HeaderBytes, LinkControl, Port, SendError};
use mx_proto::{Clock, LinkId, Source};
use mx_sim::tell_all;
use mx_sim::{Ear, Hearing, header_of};
use std::time::Instant;

fn main() {
    let quick = std::env::args().any(|arg| arg == "quick");
    let blocks = if quick { 101 } else { 501 };
    // Two rings, shared with the child.
    let rings = map(2 * RING_LEN);
    let parent = std::process::id();
    // Made before the other process exists, so that both have them.
    let doorbells = [eventfd(), eventfd()];
    // SAFETY: no other thread exists yet.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    let side = usize::from(child == 0);
    pin(side);
    // SAFETY: both rings lie inside the mapping, which stays; each end is used by one process.
    let (out, back) = unsafe { (End::new(rings), End::new(rings.add(RING_LEN))) };
    let (tx, rx) = if side == 0 { (out, back) } else { (back, out) };
    let mut bench = Bench {
        side,
        bare: Bare { tx, rx },
        port: Ported::meet(side, parent),
        doorbells: if side == 0 {
            doorbells
        } else {
            [doorbells[1], doorbells[0]]
        },
        blocks,
    };
    bench.run();
    if side == 1 {
        std::process::exit(0);
    }
    let mut status = 0;
    // SAFETY: our own child; `status` is valid.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the other process failed");
}

/// A side of something that carries messages.
trait Pipe {
    // `Vec`, as it is what implements `Memory`.
    #[expect(clippy::ptr_arg)]
    fn send(&mut self, bytes: &Vec<u8>);
    fn receive(&mut self, into: &mut Vec<u8>);
}

struct Bare {
    tx: End,
    rx: End,
}

impl Pipe for Bare {
    #[inline]
    fn send(&mut self, bytes: &Vec<u8>) {
        self.tx.send(bytes);
    }
    #[inline]
    fn receive(&mut self, into: &mut Vec<u8>) {
        self.rx.receive(into);
    }
}

struct Ported {
    port: LocalPort,
    link: LinkId,
    sink: Collector,
}

impl Ported {
    /// Side 0 connects, side 1 waits for it.
    fn meet(side: usize, board: u32) -> Self {
        let mut port = LocalPort::open(2, board, side as u32).expect("endpoint is taken");
        let mut sink = Collector::default();
        let link = if side == 0 {
            let link = loop {
                match port.connect_to(board, 1, MonotonicClock.now()) {
                    Ok(link) => break link,
                    // The other process is not there yet.
                    Err(_) => std::thread::yield_now(),
                }
            };
            while sink.link != Some(link) {
                port.begin_round(0, MonotonicClock.now(), 64);
                tell_all(&mut port, &mut Hearing(&mut sink));
            }
            link
        } else {
            LinkId::new(0, 0)
        };
        let mut this = Self { port, link, sink };
        if side == 0 {
            this.send(&vec![1]);
        } else {
            this.receive(&mut vec![0]);
            this.link = this.sink.link.expect("a packet has arrived");
        }
        this
    }
}

impl Ported {
    #[inline]
    fn poll(&mut self) -> bool {
        self.port.begin_round(1, MonotonicClock.now(), 64);
        tell_all(&mut self.port, &mut Hearing(&mut self.sink))
    }

    /// Receives one packet of 8 bytes, asleep.
    fn receive_asleep(&mut self) {
        self.sink.buffer.resize(8, 0);
        while self.sink.filled < 8 {
            if !self.poll() && self.port.arm() {
                let fds = self.port.descriptors();
                sleep_on(&[fds.control.unwrap_or(-1), fds.data.unwrap_or(-1)]);
                self.port.disarm();
            }
        }
        self.sink.filled -= 8;
        self.sink.buffer.clear();
    }
}

impl Pipe for Ported {
    #[inline]
    fn send(&mut self, bytes: &Vec<u8>) {
        let mut offset = 0;
        while offset < bytes.len() {
            let len = (bytes.len() - offset).min(CHUNK);
            let header = header_of(0, len);
            let body = Body::Memory {
                memory: bytes,
                offset,
                len,
            };
            match Port::send(&mut self.port, self.link, &header, body) {
                Ok(_) => offset += len,
                Err(SendError::WouldBlock) => {
                    self.poll();
                }
                Err(SendError::Down) => panic!("link down"),
            }
        }
    }

    #[inline]
    fn receive(&mut self, into: &mut Vec<u8>) {
        std::mem::swap(into, &mut self.sink.buffer);
        let wanted = self.sink.buffer.len();
        while self.sink.filled < wanted {
            self.poll();
        }
        self.sink.filled -= wanted;
        std::mem::swap(into, &mut self.sink.buffer);
    }
}

/// Puts what arrives into a buffer, over and over.
#[derive(Default)]
struct Collector {
    link: Option<LinkId>,
    buffer: Vec<u8>,
    filled: usize,
}

impl Ear for Collector {
    fn on_up(&mut self, link: LinkId) {
        self.link = Some(link);
    }
    #[inline]
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, _: &HeaderBytes, body: &B) {
        self.link = Some(link);
        let at = self.filled % self.buffer.len();
        body.copy_to(0, &mut self.buffer[at..at + body.len()]);
        self.filled += body.len();
    }
}

struct Bench {
    side: usize,
    /// To ring the other side with, and to sleep on.
    doorbells: [i32; 2],
    bare: Bare,
    port: Ported,
    blocks: usize,
}

impl Bench {
    fn run(&mut self) {
        if self.side == 0 {
            println!(
                "one-way times between two processes, {} blocks each",
                self.blocks
            );
            println!(
                "{:>10} {:>12} {:>12} {:>8}  middle half",
                "size", "bare", "port", "ratio"
            );
        }
        for (len, rounds) in [
            (8, 1000),
            (64, 1000),
            (1024, 1000),
            (8 * 1024, 300),
            (32 * 1024, 100),
            (64 * 1024, 60),
            (1024 * 1024, 6),
            (4 * 1024 * 1024, 3),
        ] {
            let side = self.side;
            let pairs = self.pairs(|pipe| latency(pipe, side, len, rounds));
            self.print(&size(len), " us", 1.0, &pairs);
        }
        for (len, messages) in [(8, 5_000), (1024, 3_000)] {
            let side = self.side;
            let pairs = self.pairs(|pipe| stream(pipe, side, len, messages));
            self.print(&format!("{} rate", size(len)), " ns", 1000.0, &pairs);
        }
        self.wake_ups();
    }

    /// Measures one-way times when the receiver sleeps: an eventfd and `poll`, and the port.
    fn wake_ups(&mut self) {
        const ROUNDS: usize = 50;
        let mut pairs = Vec::new();
        for _ in 0..=self.blocks / 4 {
            let bare = exchange(self.side, ROUNDS, |send| {
                let mut word = 1u64;
                // SAFETY: descriptors of our own; `word` is 8 bytes long.
                unsafe {
                    if send {
                        libc::write(self.doorbells[0], (&raw const word).cast(), 8);
                    } else {
                        sleep_on(&[self.doorbells[1]]);
                        libc::read(self.doorbells[1], (&raw mut word).cast(), 8);
                    }
                }
            });
            let port = exchange(self.side, ROUNDS, |send| {
                if send {
                    self.port.send(&vec![0; 8]);
                } else {
                    self.port.receive_asleep();
                }
            });
            pairs.push((bare, port));
        }
        self.print("wake-up", " us", 1.0, &pairs[1..]);
    }

    /// Blocks of both, in turn.
    fn pairs(&mut self, mut block: impl FnMut(&mut dyn Pipe) -> f64) -> Vec<(f64, f64)> {
        block(&mut self.bare);
        block(&mut self.port);
        (0..self.blocks)
            .map(|_| (block(&mut self.bare), block(&mut self.port)))
            .collect()
    }

    fn print(&self, what: &str, unit: &str, scale: f64, pairs: &[(f64, f64)]) {
        if self.side == 1 {
            return;
        }
        let bare = sorted(pairs.iter().map(|(bare, _)| bare * scale).collect());
        let port = sorted(pairs.iter().map(|(_, port)| port * scale).collect());
        let ratio = sorted(pairs.iter().map(|(bare, port)| port / bare).collect());
        let at = |list: &[f64], part: f64| list[(list.len() as f64 * part) as usize];
        println!(
            "{what:>10} {:>9.3}{unit} {:>9.3}{unit} {:>8.2}  {:.2} - {:.2}",
            at(&bare, 0.5),
            at(&port, 0.5),
            at(&ratio, 0.5),
            at(&ratio, 0.25),
            at(&ratio, 0.75),
        );
    }
}

/// Microseconds one way; `step` sends when it is given `true` and receives otherwise.
fn exchange(side: usize, rounds: usize, mut step: impl FnMut(bool)) -> f64 {
    let start = Instant::now();
    for _ in 0..rounds {
        step(side == 0);
        step(side == 1);
    }
    start.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0
}

fn eventfd() -> i32 {
    // SAFETY: plain system call.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) };
    assert!(fd >= 0);
    fd
}

/// Sleeps until one of the descriptors is readable.
fn sleep_on(fds: &[i32]) {
    let mut set = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; 2];
    for (entry, fd) in set.iter_mut().zip(fds) {
        entry.fd = *fd;
    }
    // SAFETY: `set` is valid for its length.
    unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) };
}

/// Microseconds one way.
fn latency(pipe: &mut dyn Pipe, side: usize, len: usize, rounds: usize) -> f64 {
    let message = vec![1; len];
    let mut answer = vec![0; len];
    let start = Instant::now();
    for _ in 0..rounds {
        if side == 0 {
            pipe.send(&message);
            pipe.receive(&mut answer);
        } else {
            pipe.receive(&mut answer);
            pipe.send(&message);
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0
}

/// Microseconds a message when they follow each other as fast as they can.
fn stream(pipe: &mut dyn Pipe, side: usize, len: usize, messages: usize) -> f64 {
    let message = vec![1; len];
    let mut answer = vec![0; len];
    let start = Instant::now();
    for _ in 0..messages {
        if side == 0 {
            pipe.send(&message);
        } else {
            pipe.receive(&mut answer);
        }
    }
    if side == 0 {
        pipe.receive(&mut answer);
    } else {
        pipe.send(&message);
    }
    start.elapsed().as_secs_f64() * 1e6 / messages as f64
}

fn sorted(mut list: Vec<f64>) -> Vec<f64> {
    list.sort_by(f64::total_cmp);
    list
}

fn size(len: usize) -> String {
    match len {
        0..1024 => format!("{len}"),
        1024..1_048_576 => format!("{}K", len / 1024),
        _ => format!("{}M", len / 1_048_576),
    }
}

fn map(len: usize) -> *mut u8 {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    base.cast()
}

/// Keeps this process on one of the processors it may use.
fn pin(side: usize) {
    // SAFETY: `cpu_set_t` is plain integers; the calls are given its size.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let len = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, len, &raw mut all), 0);
        let mut usable = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &all));
        let Some(cpu) = usable.nth(side) else {
            println!("fewer than two processors: the figures mean nothing");
            return;
        };
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        libc::sched_setaffinity(0, len, &raw const one);
    }
}
